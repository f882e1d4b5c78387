"""Byte layouts of every file in a data directory, and columns and rows to build and read them."""
