"""Names of the files in a data directory, and the numbers of its format.

    topics.json                                              the marker (directory_format.py)
    snapshots/snapshot-<number:016x>
    packs/pack-<number:016x>.data
    topics/<topic_id:016x>/seg-<first_seq:020d>.data         a segment
    topics/<topic_id:016x>/seg-<first_seq:020d>.idx          its index

A segment that was written anew without its deleted records is its next edition, and the name ends
with that number: `seg-<first_seq:020d>-<edition>.data`. It has the range of seqs of those that it
replaces, and is always sealed.
"""

from __future__ import annotations

FIRST_DIRECTORY_FORMAT, DIRECTORY_FORMAT = 1, 5
"""The oldest and the newest format in the marker of a data directory that this build knows.

A directory gets the format that it needs when it needs it (directory_format.py).
"""
SECOND_DIRECTORY_FORMAT = 2
"""The format with records of bytes, named readers, later editions and compressed segments."""
THIRD_DIRECTORY_FORMAT = 3
"""The format with records that have a delay or a ttl."""
FOURTH_DIRECTORY_FORMAT = 4
"""The format with routers between cores. The newest has dead letters of another core's queues."""
KNOWN_FORMATS = range(FIRST_DIRECTORY_FORMAT, DIRECTORY_FORMAT + 1)
MARKER_NAME = "topics.json"
"""Name of the marker in the data directory."""
COLD_MARK_NAME = "cold-directory"
"""Name of the file with the id that a data directory and its cold directory share."""
TOPICS_DIRECTORY = "topics"
PACK_DIRECTORY = "packs"
SNAPSHOT_DIRECTORY = "snapshots"
HOT, COLD = 0, 1
"""Tiers of segments: in the data directory, in the cold directory."""


def topic_directory(topic_id: int) -> str:
    return f"{TOPICS_DIRECTORY}/{topic_id:016x}"


def segment_path(topic_id: int, first_seq: int, edition: int = 0) -> str:
    """Return the path of a segment's data file, relative to the data directory."""
    again = f"-{edition}" if edition else ""
    return f"{topic_directory(topic_id)}/seg-{first_seq:020d}{again}.data"


def edition_of(name: str) -> int:
    """Return the edition in a name like `seg-<020d>-<edition>.data`; 0 for any other name."""
    digits = name.removesuffix(".data").partition("-")[2].partition("-")[2]
    return int(digits) if digits.isascii() and digits.isdigit() else 0


def index_path(data_path: str) -> str:
    """Return the path of the index beside a segment's data file."""
    assert data_path.endswith(".data")
    return data_path[:-5] + ".idx"


def pack_path(number: int) -> str:
    return f"{PACK_DIRECTORY}/pack-{number:016x}.data"


def file_number(path: str) -> int:
    """Return the number in the name of a data file: a segment's first seq, or a pack's number."""
    name = path.rpartition("/")[2].removesuffix(".data")
    return int(name[5:], 16) if name.startswith("pack-") else int(name[4:].partition("-")[0])


def snapshot_path(number: int) -> str:
    return f"{SNAPSHOT_DIRECTORY}/snapshot-{number:016x}"


def numbered(name: str, prefix: str, suffix: str = "") -> int | None:
    """Return the number in a name like `pack-<016x>.data`; None for any other name."""
    digits = name[len(prefix) : len(name) - len(suffix)]
    if name != f"{prefix}{digits}{suffix}" or len(digits) != 16:
        return None
    return int(digits, 16) if all(c in "0123456789abcdef" for c in digits) else None
