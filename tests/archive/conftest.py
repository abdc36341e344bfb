"""The servers of the storage tests, for archives."""

from __future__ import annotations

from tests.storage.conftest import (
    gcs_bucket,
    gcs_server,
    moto_server,
    s3_bucket,
    seaweed_server,
    static_server,
    static_server_without_ranges,
)

__all__ = [
    "gcs_bucket",
    "gcs_server",
    "moto_server",
    "s3_bucket",
    "seaweed_server",
    "static_server",
    "static_server_without_ranges",
]
