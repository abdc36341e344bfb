"""The servers of the storage tests."""

from __future__ import annotations

from tests.storage.conftest import moto_server, s3_bucket

__all__ = ["moto_server", "s3_bucket"]
