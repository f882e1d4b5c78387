"""Tests of the library, with a client in the place of the log: the same calls, results and errors."""

__all__ = [name for name in dir() if name.startswith("test_")]
