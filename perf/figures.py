"""Shared by tables of measurements: the machine, the interpreter, the commit, a payload, medians with their range."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sysconfig
from pathlib import Path

PAYLOAD = '{"user":12345678,"action":"page_view","path":"/products/shoes/42","ms":1748450000123,"x":1}'
"""One JSON object of 91 bytes."""


def interpreter() -> str:
    """Return which build of Python this is, with what its configuration says of optimisation; Debian's hides that."""
    built = [
        str(value) for name, value in sysconfig.get_config_vars().items() if "FLAGS" in name or name == "CONFIG_ARGS"
    ]
    found = [
        text
        for text, words in {
            "PGO": ("--enable-optimizations", "-fprofile-use"),
            "LTO": ("--with-lto", "-flto"),
        }.items()
        if any(word in each for word in words for each in built)
    ]
    build = " ".join(platform.python_build())
    return (
        f"{platform.python_implementation()} {platform.python_version()} ({build}), {platform.python_compiler()}, "
        f"configured with {' and '.join(found) or 'neither PGO nor LTO'}"
    )


def machine() -> str:
    return f"{platform.machine()} {platform.release()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def spread(values: list[float], scale: float = 1.0) -> str:
    return f"{statistics.median(values) * scale:,.0f} ({min(values) * scale:,.0f}-{max(values) * scale:,.0f})"


def commit_id(tree: Path | None = None) -> str:
    """The commit of a source tree, by default of the one that this runs in."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=tree, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"
