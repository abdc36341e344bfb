"""Replay: answering the calls of a program from a recording."""
