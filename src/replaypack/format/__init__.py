"""The format as code: bytes in, bytes out, no I/O (spec chapters 01, 04, 05, 06, 12)."""
