"""Data directories written by released formats. They are never written again: a new format gets a directory of its own.

`v1/` was made by `python -m tests.store.golden.make`; `expected.json` says what must be found in it.
"""
