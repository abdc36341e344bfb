"""Benchmarks of replaypack next to its peers: ``python -m benchmarks --help``."""
