"""Byte layouts of the files that checkpoints write, and names in a data directory."""
