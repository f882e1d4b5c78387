"""The choice whether and how a shard's next batch is committed now, one pure function.

A batch is written through the ring, or in place: by one write that the thread waits for. In place
costs less where the write is quick and no other work waits for the thread (perf/commits.py).
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Protocol

from topics.store.commits.primitive import Primitive

DSYNC_BYTES_MAX = 256 * 1024
"""Size up to which one in-place write with RWF_DSYNC is faster than the chain.

The chain needs a worker. Source: perf/commits.py.
"""

BARE_DIRECT_BYTES_MIN = 64 * 1024
"""From this size on a worker's copy into the page cache costs more than waiting for the device."""

BARE_IN_PLACE_BYTES_MAX = 1 << 20
"""Up to this size a waiting caller copies the batch itself.

That takes tens of microseconds for 100 KiB, where the device takes hundreds.
"""

WINDOW_BYTES_MAX = 256 * 1024
"""A batch of this size gains nothing by waiting for more records."""


class ShardView(Protocol):
    """The state of a shard that a choice depends on.

    `choose` reads only those properties that its batch depends on, because some cost a call.
    """

    @property
    def setting(self) -> str:
        """The primitive to use: auto, link, direct or dsync.

        Link wherever O_DIRECT does not work.
        """

    @property
    def exclusive(self) -> bool:
        """Whether the thread waits only for commits, as the caller's thread of a library does."""

    @property
    def unsynced(self) -> bool:
        """Whether earlier writes are not on stable storage yet."""

    @property
    def max_unsynced(self) -> int:
        """Most bytes that may be acknowledged and not synced (setting); 0: no limit."""

    @property
    def unsynced_bytes(self) -> int:
        """Bytes that are written and not synced."""

    @property
    def syncing(self) -> bool:
        """Whether a sync runs, or a file that the log has left has not been synced."""

    @property
    def sync_planned(self) -> bool:
        """Whether a timer will start a sync in the background."""

    @property
    def room(self) -> int:
        """Room in bytes of the current file; 0: none is open, or it is to be left."""

    @property
    def held_ns(self) -> int:
        """Delay of the next commit by the bound of the log's length."""

    @property
    def window_ns(self) -> int:
        """Delay of a commit after the previous one, to gather more records (setting)."""

    @property
    def delay_ns(self) -> int:
        """Delay for synced groups, where it yields more records a second (`CommitDelayTuner`)."""

    @property
    def idle_ns(self) -> int:
        """Time since the last commit's end."""

    @property
    def quick(self) -> bool:
        """Whether commits may be made in place: none took too long recently (`InPlaceLimit`)."""

    @property
    def quick_beside_sync(self) -> bool:
        """Whether no sync runs, or commits may be made in place beside one, too."""

    @property
    def is_only(self) -> bool:
        """Whether the thread commits for no other shard or log, which a sync would hold up."""


class Until(Enum):
    """The event that a batch waits for."""

    TIME = "a delay has ended"
    SYNC = "no other sync runs or is owed"
    FILE = "a file has room"
    TIMER = "a sync in the background is planned"


class Held(NamedTuple):
    """The decision to hold the batch back."""

    until: Until
    ns: int = 0
    """The delay if `until` is TIME."""


class Choice(NamedTuple):
    """The decision to commit now, and how."""

    primitive: Primitive
    in_place: bool = False
    """Whether it is one write that the thread waits for; otherwise it is made through the ring."""
    is_measured: bool = False
    """Whether it is a small synced group, whose fastest way `MeasuredPlaces` knows. `in_place` then
    says that it may be in place, if that proves faster.
    """


_HELD_SYNC = Held(Until.SYNC)
_HELD_FILE = Held(Until.FILE)
_HELD_TIMER = Held(Until.TIMER)
_BARE = Choice(Primitive.BARE)
_BARE_IN_PLACE = Choice(Primitive.BARE, in_place=True)
_BARE_DIRECT = Choice(Primitive.BARE_DIRECT)
_LINK = Choice(Primitive.LINK)
_GROUP = Choice(Primitive.LINK, is_measured=True)
_GROUP_IN_PLACE = Choice(Primitive.DSYNC, in_place=True, is_measured=True)
GROUP_THROUGH_RING = _GROUP, Choice(Primitive.DSYNC, is_measured=True)
"""The ways of a small synced group that is not made in place; the first until one proves faster."""
_DIRECT = Choice(Primitive.DIRECT)
_DSYNC = Choice(Primitive.DSYNC)
_DSYNC_IN_PLACE = Choice(Primitive.DSYNC, in_place=True)


def choose(shard: ShardView, size: int, *, fsync: bool, lone: bool) -> Choice | Held:
    """Choose how the next batch is committed now, or what it waits for. No commit is in flight.

    size: bytes of the batch.
    fsync: a waiter needs it on stable storage.
    lone: it is the write of one caller with exclusive use of the loop, so other work gains
    nothing if the loop runs meanwhile, and no record would join the batch later.

    RWF_DSYNC syncs only its own range, so unsynced bytes before it need the chain. Those bytes are
    dirty in the page cache, and an O_DIRECT write would have to flush them first, so the chain's
    write is then buffered.

    For a small batch through the ring `auto` gives LINK, and DSYNC would be right, too. DSYNC
    leaves its flush to a kernel worker bound to the core of the disk's interrupt, which waits for
    other work there. The chain's worker runs on a free core, but costs more. A worker's turns of
    threads may take longer than the device, so a group is made in place where that proves faster
    and no other requests come. So the time of such groups is measured.

    A batch that would exceed the bound of unsynced bytes is synced before it is answered, so its
    writers wait for a sync, and a power cut never takes more than the bound.

    A write without a sync waiter is made in place for any number of callers: through the ring a
    buffered write always needs a worker, which costs more than the copy into the page cache.
    """
    if not fsync and shard.max_unsynced and shard.unsynced_bytes + size > shard.max_unsynced:
        fsync = True
    held_ns = shard.held_ns
    if size < WINDOW_BYTES_MAX:
        gather_ns = shard.window_ns or (shard.delay_ns if fsync and not lone else 0)
        if gather_ns:
            held_ns = max(held_ns, gather_ns - shard.idle_ns)
    if held_ns > 0:
        return Held(Until.TIME, held_ns)
    if fsync and shard.syncing:
        return _HELD_SYNC
    if size > shard.room:
        return _HELD_FILE
    exclusive = shard.exclusive
    in_place = exclusive or (shard.quick and (lone or (not fsync and shard.quick_beside_sync)))
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
        if size >= BARE_DIRECT_BYTES_MIN:
            return _DIRECT
        return _GROUP_IN_PLACE if shard.is_only and shard.quick else _GROUP
    if setting == "direct":
        return _DIRECT
    return _DSYNC_IN_PLACE if in_place else _DSYNC
