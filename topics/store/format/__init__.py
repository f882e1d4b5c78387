"""Byte layouts of everything on disk, and the columns and rows they are made of and become."""
