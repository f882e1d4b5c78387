"""A server as a process, for tests of files that speak of one."""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.cli.forked import Forked, without_settings


@contextmanager
def served(directory: Path) -> Iterator[str]:
    """A server that is ready; its host:port. It is killed at the end."""
    port_file = directory / "port"
    arguments = ["serve", "--data-dir", str(directory / "data"), "--port", "0", "--port-file", str(port_file)]
    environment = without_settings()
    reader, writer = os.pipe()
    server = Forked(arguments, environment, writer, seconds=120)
    os.close(writer)
    try:
        with os.fdopen(reader) as log:
            wait_for(log, "ready after")
            yield port_file.read_text()
    finally:
        server.kill()
        server.wait()


def wait_for(log: IO[str], text: str) -> None:
    """Read the lines of a process until one has this text."""
    lines = []
    for line in log:
        lines.append(line)
        if text in line:
            return
    raise AssertionError(f"the process ended: {lines}")


def get(address: str, path: str) -> str:
    with urllib.request.urlopen(f"http://{address}{path}", timeout=30) as answer:
        text: str = answer.read().decode()
        return text
