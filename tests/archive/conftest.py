"""The buckets of the storage tests, for archives."""

from __future__ import annotations

from tests.storage.conftest import gcs_bucket, s3_bucket

__all__ = ["gcs_bucket", "s3_bucket"]
