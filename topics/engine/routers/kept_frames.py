"""Frames that a router keeps: of jobs acknowledged while it cannot forward them.

Source: R-RTR-18.

An ack consumes a job, a delete erases it: acknowledged records are still forwarded, even if the
destination is full for long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from topics.clock import Clock
from topics.config import Config
from topics.engine.read.frame_read import FrameRead, verified
from topics.engine.shared.router_registry import Routers
from topics.engine.state import refusals
from topics.engine.state.control_frames import encode
from topics.engine.state.router import RouterLife
from topics.engine.state.router_frames import KeepPayload
from topics.engine.state.staged_operations import Operation, OperationCore
from topics.engine.state.topic import Life, Router
from topics.engine.values.ports import ReaderPort
from topics.errors import DiskFullError, StorageError, TopicsError
from topics.store.commits.write_batch import Commit
from topics.store.format.log_format import FrameType

Done = Callable[[TopicsError | None], None]


class KeepCore(OperationCore, Protocol):
    """The part of the core that the keeping of frames needs."""

    clock: Clock
    config: Config
    reader: ReaderPort
    routers: Routers


class KeptFrames(Operation[OperationCore]):
    """Frames being written into the destination's part of the log."""

    __slots__ = ("done", "frames", "router")

    def __init__(self, core: OperationCore, router: Router, frames: list[tuple[int, bytes]], done: Done) -> None:
        super().__init__(core, router.home)
        self.router = router
        self.frames = frames
        self.done = done

    def apply(self, commit: Commit) -> None:
        router = self.router
        router.keep((seq, frame) for seq, frame in self.frames if seq > router.position)
        self.done(None)

    def fail(self, error: TopicsError) -> None:
        self.done(error if self.router.life is not RouterLife.GONE else None)


def keep_frames(core: KeepCore, router: Router, seqs: list[int], done: Done, *, bounded: bool) -> None:
    """Make the router keep the frames of these source records, unless it has passed or keeps them.

    They are durable when `done` is called, because the ack that follows may be in another shard of
    the log. bounded: `done` gets a RequestError if the router would keep more than
    `router_keep_bytes`, which stay in memory and in the log until it continues.
    """
    source = router.source
    deleting = _deletion_of(router)
    if deleting is not None:  # the deletion may fail
        deleting.append(lambda: keep_frames(core, router, seqs, done, bounded=bounded))
        return
    lacks = [seq for seq in seqs if seq > router.position and seq not in router.kept and seq not in router.keeping]
    wanted = np.array(sorted(lacks), np.uint64)
    wanted = wanted[source.index.alive(wanted)]
    if not len(wanted) or router.life is RouterLife.GONE:
        done(None)
        return
    rows = source.index.at(wanted)
    most, more = core.config.router_keep_bytes, int(rows.lengths.sum())
    if bounded and 0 < most < router.kept_bytes + more and (router.kept_bytes or len(wanted) > 1):
        done(refusals.router_keeps_enough(router))
        return

    def on_read(read: FrameRead | StorageError) -> None:
        if isinstance(read, StorageError):
            done(read)
            return
        if router.life is RouterLife.GONE or _deletion_of(router) is not None:
            keep_frames(core, router, seqs, done, bounded=bounded)
            return
        try:
            frames = [(seq, raw) for part in read.all_frames() for seq, raw, _frame in verified(source, part)]
            _stage(core, router, frames)
        except TopicsError as error:
            done(error)
            return
        KeptFrames(core, router, frames, done).stage(synced=True)

    FrameRead(core.reader, source, rows).begin(on_read)


def _stage(core: KeepCore, router: Router, frames: list[tuple[int, bytes]]) -> None:
    """Stage the frames. Raises StorageError.

    On a full disk acks continue (R-DUR-16), until routers keep as much as half the reserve.
    """
    home = router.home
    payload = encode(KeepPayload(router.id, frames))
    frame = home.id, FrameType.KEEP, home.next_seq - 1, core.clock.now_ms(), payload
    try:
        core.log.stage_control(*frame, counted=False)
    except DiskFullError:
        kept = sum(other.kept_bytes for other in core.routers.by_name.values())
        if kept + len(payload) > core.log.reserve_bytes // 2:
            raise
        with core.log.use_reserve():
            core.log.stage_control(*frame, counted=False)


def _deletion_of(router: Router) -> list[Callable[[], None]] | None:
    """Return the calls that wait for a deletion in progress that removes the router, or None."""
    if router.life is RouterLife.DELETING:
        return router.parked
    return router.home.parked if router.home.life is Life.DELETING else None
