"""The ways to write a batch to the disk, and what their results mean."""

from __future__ import annotations

import errno
from enum import Enum

from topics.loop.files import NOTHING_DONE
from topics.store.format.log_format import BLOCK_BYTES

_FULL = (-errno.ENOSPC, -errno.EDQUOT)


class Primitive(Enum):
    """A way to write a batch to the disk."""

    BARE = "bare"
    """A buffered write; a background fdatasync follows some time."""
    BARE_DIRECT = "bare-direct"
    """An O_DIRECT write; a background fdatasync follows some time."""
    LINK = "link"
    """A buffered write softly linked to an fdatasync."""
    DIRECT = "direct"
    """An O_DIRECT write softly linked to an fdatasync."""
    DSYNC = "dsync"
    """One O_DIRECT write with RWF_DSYNC."""

    def __init__(self, name: str) -> None:
        self.syncs = name in {"link", "direct", "dsync"}
        """Whether its completion means that the batch is on stable storage."""
        self.is_chain = name in {"link", "direct"}
        """Whether it is a write softly linked to an fdatasync, with two results."""
        self.is_direct = name in {"bare-direct", "direct", "dsync"}
        """Whether it bypasses the page cache."""
        self.is_dsync = name == "dsync"
        """Whether it is one write with RWF_DSYNC."""


class Verdict(Enum):
    """The meaning of a commit's results."""

    DONE = 1
    """All bytes were written and, where asked for, synced."""
    REST = 2
    """Part of the bytes was written, or none because of a signal.

    The rest is written before anything else.
    """
    FULL = 3
    """No space: the batch fails, the file is given up, and the log continues in another."""
    FAILED = 4
    """The contents of the disk are unknown: the log is read-only from here on."""


_DONE = Verdict.DONE
"""A module name, since access to an Enum's member through its class takes ten times as long."""


def judge(primitive: Primitive, expected: int, write_res: int, sync_res: int) -> Verdict:
    """Judge the results of a commit.

    An ack needs the full count and the sync's 0; with soft links a short write cancels its sync.
    """
    chained = primitive.is_chain
    if write_res == expected:
        return _DONE if not chained or sync_res == 0 else Verdict.FAILED
    if chained and sync_res != -errno.ECANCELED:
        return Verdict.FAILED  # the sync ran after a failed write: not the chain that was built
    if write_res in _FULL:
        return Verdict.FULL
    if write_res in NOTHING_DONE or 0 <= write_res < expected:
        return Verdict.REST
    return Verdict.FAILED


def rest_begins(write_res: int) -> int:
    """Return the start of the rest of a short write: a whole block, as O_DIRECT needs it."""
    return max(0, write_res) & -BLOCK_BYTES
