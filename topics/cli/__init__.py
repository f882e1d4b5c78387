"""The command line: serve, doctor, fsck."""

from topics.cli.main import main

__all__ = ["main"]
