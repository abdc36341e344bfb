"""Storage: one small protocol and its backends (spec chapter 07)."""
