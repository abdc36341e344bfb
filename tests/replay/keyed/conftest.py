"""The buckets of the storage tests."""

from __future__ import annotations

from tests.storage.conftest import s3_bucket

__all__ = ["s3_bucket"]
