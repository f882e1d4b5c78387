"""The command line: serve, doctor, fsck, pipeline, bench, and the commands on topics."""

from topics.cli.main import main

__all__ = ["main"]
