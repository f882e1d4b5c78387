"""How far the archive of a log is, for programs that copy it."""

from __future__ import annotations

from typing import NamedTuple

HOLE = -1
"""The number in the place of a batch's where the archive has a hole."""


class ArchivedEnd(NamedTuple):
    """The end of the part of one shard's log that is archived."""

    file: int
    """Number of the last file; those before it are whole."""
    bytes: int
    """Bytes of that file that are archived."""
    batch: int
    """Number of the last batch; HOLE: it is not known."""


class ArchiveOfCores(NamedTuple):
    """The part of a state that only one of several cores has."""

    joint: str
    """The name of the timeline that all cores have together."""
    set_back: tuple[tuple[int, int], ...]
    """The first and the last Unix ms of the times that came twice."""

    def ms_again(self, after_ms: int) -> int:
        """Return how many ms after a time came twice: what is of that time is older by them."""
        return sum(max(0, last - max(first, after_ms)) for first, last in self.set_back)


class ArchiveState(NamedTuple):
    """How far an archive is."""

    timeline: str
    """The name of its directory; "" until there is one."""
    now_ms: int
    """Unix ms by the clock of the server."""
    upto_ms: int
    """Unix ms: all that was acknowledged until then is archived. 0: nothing is."""
    shards: dict[int, ArchivedEnd]
    holes: tuple[tuple[int, int | None], ...]
    """Begin and end of each hole, Unix ms; the end is None while there is no base after it."""
    bases: tuple[str, ...]
    """Names of the bases, oldest first. The newest may be later than `upto_ms`."""
    of_cores: ArchiveOfCores | None = None
    """That of one of several cores; None: the server has one core."""
