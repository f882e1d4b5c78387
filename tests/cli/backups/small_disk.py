"""A file system of a few megabytes, which a test fills to the last byte."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

_PIECE = bytes(4096)


class SmallDisk:
    """A tmpfs. It is filled by a file of its own, which may be removed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._filling = root / "filling"

    def fill(self) -> None:
        """Leave no byte, also of those that another process frees meanwhile, as one that replaces a file does."""
        with open(self._filling, "ab", buffering=0) as file:
            while os.statvfs(self.root).f_bfree:
                with contextlib.suppress(OSError):
                    while file.write(_PIECE):
                        pass

    def free(self) -> None:
        self._filling.unlink()


@contextlib.contextmanager
def small_disk(root: Path, size: int) -> Iterator[SmallDisk]:
    """Yield a disk of `size` bytes at `root`. Skips the test where none can be mounted."""
    root.mkdir()
    made = subprocess.run(
        ("mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(root)), capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip(f"a tmpfs cannot be mounted, which takes root: {made.stderr.strip()}")
    try:
        yield SmallDisk(root)
    finally:
        subprocess.run(("umount", "--lazy", str(root)), check=True)
