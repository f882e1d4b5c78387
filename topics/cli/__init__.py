"""The command line: serve, doctor, fsck, pipeline."""

from topics.cli.main import main

__all__ = ["main"]
