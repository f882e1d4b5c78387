"""Byte layouts of the log, and the columns and rows that its frames are made of and become."""
