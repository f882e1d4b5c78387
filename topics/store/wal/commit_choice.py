"""Whether a shard's next batch is committed now, and how: one pure function, asked for every commit there is.

A batch goes to the disk through the ring, or in place: by one write that the thread waits for. The second costs less
where it is quick and nobody else wants the thread meanwhile (perf/commits.py).
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Protocol

from topics.store.wal.commit import Primitive

DSYNC_BYTES_MAX = 256 * 1024
"""Up to here one write with RWF_DSYNC, made in place, beats the chain, which needs a worker (perf/commits.py)."""

BARE_DIRECT_BYTES_MIN = 64 * 1024
"""From here on, copying a batch into the page cache by a worker thread costs more than waiting for the device."""

BARE_IN_PLACE_BYTES_MAX = 1 << 20
"""Up to here a caller that waits copies it: tens of microseconds for 100 KiB, where the device takes hundreds."""

WINDOW_BYTES_MAX = 256 * 1024
"""A batch of this size gains nothing by waiting for more."""


class ShardView(Protocol):
    """What a choice is made from: a shard as it is now. Facts that a batch does not depend on are not asked for."""

    @property
    def setting(self) -> str:
        """auto, link, direct or dsync; link wherever O_DIRECT does not work."""

    @property
    def exclusive(self) -> bool:
        """The thread waits for nothing but commits: it is the caller's of a library."""

    @property
    def unsynced(self) -> bool:
        """Bytes written before are not on stable storage yet."""

    @property
    def syncing(self) -> bool:
        """A sync runs, or one is owed to a file that the log has left."""

    @property
    def sync_planned(self) -> bool:
        """A timer will start a sync in the background."""

    @property
    def room(self) -> int:
        """Bytes that the file written to still takes; 0: none is open, or it is to be left."""

    @property
    def held_ns(self) -> int:
        """How long the bound of the log's length holds the next commit back."""

    @property
    def window_ns(self) -> int:
        """How long after a commit the next one is held back for more records to come (setting)."""

    @property
    def delay_ns(self) -> int:
        """The same for synced groups, where it brings more records a second (`CommitDelayTuner`)."""

    @property
    def idle_ns(self) -> int:
        """Since the last commit's end."""

    @property
    def quick(self) -> bool:
        """Commits may be made in place: none took too long of late (`InPlaceLimit`)."""

    @property
    def quick_beside_sync(self) -> bool:
        """No sync runs, or those beside one may be made in place, too."""


class Until(Enum):
    """What a batch waits for."""

    TIME = "a delay is over"
    SYNC = "no other sync runs or is owed"
    FILE = "a file has room"
    TIMER = "a sync in the background is planned"


class Held(NamedTuple):
    """The batch is held back."""

    until: Until
    ns: int = 0
    """How long, where `until` is TIME."""


class Choice(NamedTuple):
    """Now, and how."""

    primitive: Primitive
    in_place: bool = False
    """By one write that the thread waits for; else through the ring."""
    is_measured: bool = False
    """A small synced group: `PrimitiveTuner` knows which primitive is the fastest."""


_HELD_SYNC = Held(Until.SYNC)
_HELD_FILE = Held(Until.FILE)
_HELD_TIMER = Held(Until.TIMER)
_BARE = Choice(Primitive.BARE)
_BARE_IN_PLACE = Choice(Primitive.BARE, in_place=True)
_BARE_DIRECT = Choice(Primitive.BARE_DIRECT)
_LINK = Choice(Primitive.LINK)
_GROUP = Choice(Primitive.LINK, is_measured=True)
_DIRECT = Choice(Primitive.DIRECT)
_DSYNC = Choice(Primitive.DSYNC)
_DSYNC_IN_PLACE = Choice(Primitive.DSYNC, in_place=True)


def choose(shard: ShardView, size: int, *, fsync: bool, alone: bool) -> Choice | Held:
    """Say how the next batch, of `size` bytes, is committed now, or what it waits for. No commit is in flight.

    fsync: somebody waits for it to be on stable storage. alone: it is the write of one caller, who has the loop to
    itself, so that nobody gains by the loop going on meanwhile, and no record would join it later.

    RWF_DSYNC syncs its own range only, so bytes before it that are not synced yet call for the chain; and those are
    dirty in the page cache, which an O_DIRECT write would have to flush first: the buffered one then. For a small batch
    through the ring `auto` gives LINK, and DSYNC would be right, too. That leaves its flush to a kernel worker bound to
    the core of the disk's interrupt, which waits for whatever runs there; the chain's worker goes to a core that is
    free, but costs more: so such groups are measured.

    What nobody waits to be synced is made in place for any number of callers: through the ring a buffered write always
    goes to a worker, which costs more than the copy into the page cache.
    """
    held_ns = shard.held_ns
    if size < WINDOW_BYTES_MAX:
        gather_ns = shard.window_ns or (shard.delay_ns if fsync and not alone else 0)
        if gather_ns:
            held_ns = max(held_ns, gather_ns - shard.idle_ns)
    if held_ns > 0:
        return Held(Until.TIME, held_ns)
    if fsync and shard.syncing:
        return _HELD_SYNC
    if size > shard.room:
        return _HELD_FILE
    exclusive = shard.exclusive
    in_place = exclusive or (shard.quick and (alone or (not fsync and shard.quick_beside_sync)))
    if not fsync:
        if not shard.sync_planned:
            return _HELD_TIMER
        small = size <= BARE_IN_PLACE_BYTES_MAX if in_place else size < BARE_DIRECT_BYTES_MIN
        if not (small or exclusive or shard.setting == "link"):
            return _BARE_DIRECT
        return _BARE_IN_PLACE if in_place else _BARE
    setting = shard.setting
    if shard.unsynced or setting == "link":
        return _LINK
    if setting == "auto":
        if in_place and size <= DSYNC_BYTES_MAX:
            return _DSYNC_IN_PLACE
        return _GROUP if size < BARE_DIRECT_BYTES_MIN else _DIRECT
    if setting == "direct":
        return _DIRECT
    return _DSYNC_IN_PLACE if in_place else _DSYNC


def explain_commit(setting: str, block_bytes: int) -> list[str]:
    """Which primitive `choose` takes, and why, a line for each case. block_bytes: 0 without O_DIRECT."""
    if not block_bytes:
        return ["link: a buffered write linked to an fdatasync, for lack of O_DIRECT"]
    if setting != "auto":
        return [f"{setting}: asked for; link where unsynced bytes precede"]
    return [
        "auto:",
        "  nobody waits for a sync       a bare write, synced in the background",
        "  a lone commit                 dsync: one O_DIRECT write with RWF_DSYNC",
        "  a group                       dsync or link, whichever proves faster",
        "  unsynced bytes precede it     link: a buffered write linked to an fdatasync",
        "  64 KiB and more               direct: an O_DIRECT write linked to an fdatasync",
    ]
