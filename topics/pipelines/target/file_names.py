"""Names of directories and files in the target of an export.

    topic=<name>/date=YYYY-MM-DD/part-<run>-<unit>-<try>-<number>.parquet

The name of a topic is percent-encoded as by Hive and Spark; the colon is the only character of
names that needs it.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

from topics.pipelines.errors import TargetError

NAME_BYTES_MAX = 255
"""Bytes of a directory's name at most, on all file systems in use."""

_RUN = re.compile(r"part-([0-9a-f]{22})-[0-9]{5}-[0-9a-f]{8}-[0-9]{3}\.parquet\Z")


def topic_directory(topic: str) -> str:
    """Return the name of a topic's directory.

    Raises: TargetError, the topic's name is too long.
    """
    name = "topic=" + quote(topic, safe="")
    if len(name) > NAME_BYTES_MAX:
        raise TargetError(
            f"topic {topic} has too long a name: 'topic=' and the name (a colon as %3A) make {len(name)} bytes, and "
            f"a directory may have {NAME_BYTES_MAX}: leave the topic out"
        )
    return name


def topic_of(directory: str) -> str | None:
    """Return the topic of a directory; None if it is no directory of a topic."""
    return unquote(directory[6:]) if directory.startswith("topic=") else None


def part_name(run: str, unit: int, attempt: str, number: int) -> str:
    """Return the name of a Parquet file.

    run: 22 hex digits.
    attempt: 8 hex digits, new for each try at the unit.
    """
    return f"part-{run}-{unit:05d}-{attempt}-{number:03d}.parquet"


def run_of(file: str) -> str | None:
    """Return the run that wrote a file; None if the name is not one of an export."""
    match = _RUN.match(file)
    return match.group(1) if match else None


def as_uri(path: str) -> str:
    """Return the path of a file in a Delta log: relative, percent-encoded once more."""
    return quote(path, safe="/=")


def from_uri(uri: str) -> str:
    """Return the path of a URI: the inverse of `as_uri`."""
    return unquote(uri)
