"""A router's step in the batch of the write that it forwards.

A write to a topic with one router, at whose destination a reader waits, carries that step: the
control frame of `forward.py`, and the copies where they are written out, are in the batch of its
rows, after them. So it takes one commit, and neither a crash nor a failed write leaves a copy
without its original, or a position above it. The writer's answer waits for no more than its own
commit (R-RTR-3), so the destination needs no stronger class, and nothing that a commit of its own
is made for. Any other write is forwarded by a step after it (forwarding.py).

A lone write (`CarriedStep`) is published in the call that commits it. Of the writes that are staged
in a pass, the end of the pass finds those that may carry a step (`StepCarrier.carry`), as a
`Forward` whose copies are by position; it is decided next after them.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from topics.clock import Clock
from topics.common.values.configs import EXACTLY_ONCE
from topics.engine.routers.forward import Forward, ForwardStep, StepOwner, add_hops, ignore, kept_flags
from topics.engine.routers.forwarding import Load
from topics.engine.state.control_frames import encode
from topics.engine.state.hops import Run
from topics.engine.state.router import RouterLife
from topics.engine.state.router_frames import ForwardPayload
from topics.engine.state.router_work import RouterWork
from topics.engine.state.topic import Router, Topic
from topics.engine.write.append import Append, AppendCore, notify, publish_lone
from topics.errors import TopicsError
from topics.store.commits.write_batch import CarriedFrames, Commit
from topics.store.format.log_format import FLAG_COPY, FrameType
from topics.store.format.rows import PLACED, PLACED_DTYPE, Framed, Rows, any_noded, tags_in

_COPIED_BYTES = 64 << 10
"""Most bytes of copies that are written out in the batch of a write, whose answer waits for it."""
_FEW = 16
"""Rows up to which one by one is faster than by columns."""


class CarryCore(AppendCore, Protocol):
    """The part of the core that a carried step needs."""

    clock: Clock
    closing: bool
    routed: dict[Topic, None]


class CarriedStep:
    """The step of one router that forwards the rows of a write.

    After the commit `publish` is called, and nothing of it is to be done if there is none.
    """

    __slots__ = ("_core", "_count", "_first", "_router", "_runs", "_size", "_tags", "_upto", "frames")

    def __init__(self, core: CarryCore, router: Router, rows: Rows, now_ms: int, *, is_copied: bool) -> None:
        dest, source, count = router.dest, router.source, rows.count
        self._core = core
        self._router = router
        self._count, self._size = count, rows.size
        self._first = first = dest.next_seq
        self._upto = upto = source.next_seq + count - 1
        self._runs: list[Run] = [(first, first + count - 1, 1)]
        self._tags = tags_in(rows) if router.config.preserve_tag else None
        payload = ForwardPayload(router.id, upto, router.forwarded + count, hops=self._runs)
        if not is_copied:
            payload.source, payload.refs, payload.keep = source.id, [(source.next_seq, upto)], kept_flags(router)
        ts = dest.stamp(now_ms)
        self.frames = CarriedFrames(dest.id, FrameType.FORWARD, first, ts, encode(payload), is_copied)
        """The frames that the log writes with the rows."""

    def publish(self, commit: Commit, placed: bytes, copies: Framed | None) -> None:
        """Show the copies to readers, and move the router. The originals are visible.

        placed: of the originals. copies: frames of their own.
        """
        core, router, first, count, ts = self._core, self._router, self._first, self._count, self.frames.ts_ms
        dest = router.dest
        assert dest.next_seq == first, "its seqs were given out again: the answer may only send"
        base = commit.base
        if copies is None:
            placed = _shared(placed, kept_flags(router), ts)
        else:
            placed, base = copies.placed, base + copies.start
        publish_lone(core, dest, count, self._size, placed, self._tags, ts, commit, base)
        router.position = self._upto
        router.forwarded += count
        if router.examined == first - 1:
            router.examined = dest.head  # the router's own copies need no check
        if dest.routers:
            add_hops(dest, self._runs)
        notify(core, dest)


class StepCarrier:
    """Decides which writes carry the step of a router."""

    def __init__(self, core: CarryCore, load: Load, owner: StepOwner) -> None:
        self._core = core
        self._load = load
        self._owner = owner

    def step_of(self, source: Topic, rows: Rows, node: bytes | None, now_ms: int) -> CarriedStep | None:
        """Return the step that forwards these rows, the next ones of a topic with routers.

        None if the write carries none. Nothing else of the source is staged.
        """
        if len(source.routers) != 1:
            return None
        router = source.routers[0]
        if not _is_ready(router, rows.count) or not self._is_wanted(router.dest):
            return None
        config = router.config
        if config.filter is not None:
            match, tags = config.filter, tags_in(rows)
            if tags is None or not all(map(match.matches, tags)):
                return None
        if source.stage_class != "memory":
            return CarriedStep(self._core, router, rows, now_ms, is_copied=False)
        # Seqs of this class may be given out again, so no copy refers to them.
        if rows.size > _COPIED_BYTES or not _keeps_all(router, rows, node):
            return None
        return CarriedStep(self._core, router, rows, now_ms, is_copied=True)

    def carry(self) -> None:
        """Let the batches that are being filled carry the steps of the records that they have."""
        core = self._core
        routed, core.routed = core.routed, {}
        for source in routed:
            append = source.pending[0] if len(source.pending) == 1 and len(source.routers) == 1 else None
            if type(append) is not Append or append.batch_number != core.log.batch_number(source.id):
                continue
            router, at = source.routers[0], append.topics.index(source)
            count = append.counts[at]
            if count and _is_ready(router, count) and self._is_wanted(router.dest):
                self._carry(router, append, at)

    def _carry(self, router: Router, append: Append, at: int) -> None:
        """Stage the step of a router for the records of one topic of an append."""
        core, config, count = self._core, router.config, append.counts[at]
        source, dest, first = router.source, router.dest, append.first_seqs[at]
        tags = append.tags
        if config.filter is not None and (type(tags) is not list or not all(map(config.filter.matches, tags))):
            return
        if source.stage_class == "memory" or append.carried is not None or isinstance(tags, np.ndarray):
            return
        step = ForwardStep(config, first + count - 1, [], first + count - 1)
        step.carried = count
        runs: list[Run] = [(dest.next_seq, dest.next_seq + count - 1, 1)]
        payload = ForwardPayload(router.id, step.upto, router.forwarded + count, hops=runs)
        payload.source, payload.refs, payload.keep = source.id, [(first, step.upto)], kept_flags(router)
        ts = dest.stamp(core.clock.now_ms())
        try:
            core.log.stage_control(dest.id, FrameType.FORWARD, dest.next_seq, ts, encode(payload), counted=False)
        except TopicsError:
            return
        forward = Forward(self._owner, core, router, step, fsync=dest.stage_class == "fsync")
        forward.runs = runs
        begin = sum(append.counts[:at]) * PLACED.size
        placed = _shared(append.placed[begin : begin + count * PLACED.size], payload.keep, ts)
        kept = tags if config.preserve_tag else None
        forward.add((count, False, ignore), count, append.sizes[at], Framed(0, placed), ts, kept)
        router.enter(RouterWork.COMMITTING)
        dest.enqueue(forward)
        append.carried = forward

    def _is_wanted(self, dest: Topic) -> bool:
        """Return whether a reader waits for the destination, and a step may be begun for it."""
        core = self._core
        return bool(dest.waiters) and not core.closing and core.log.is_one_shard and not self._load.defers_routers


def _is_ready(router: Router, count: int) -> bool:
    """Return whether a step for the next rows needs nothing but seqs of the destination."""
    source, dest = router.source, router.dest
    last = dest.next_seq + count - 1
    return (
        dest is not source
        and router.work is RouterWork.IDLE
        and router.life is RouterLife.LIVE
        and router.position == source.head
        and router.config.guarantee != EXACTLY_ONCE
        and not (router.changing or router.waiting or router.kept or router.keeping)
        and not (source.hops is not None and source.hops.runs)
        and source.readers is None  # they may trim what is forwarded
        and source.needs_only_seqs
        and dest.needs_only_seqs
        and not dest.pending
        and (last <= dest.ample or not (dest.lacks(count) or dest.is_short(dest.next_seq)))
        and (dest.stage_class != "fsync" or source.stage_class == "fsync")
    )


def _keeps_all(router: Router, rows: Rows, node: bytes | None) -> bool:
    """Return whether the router's copies of these rows have all of their fields."""
    config = router.config
    has_node = node is not None or any_noded(rows.spans)
    return (config.preserve_tag or tags_in(rows) is None) and (config.preserve_node or not has_node)


def _shared(placed: bytes | bytearray, keep: int, ts: int) -> bytes:
    """Return the packed PLACED of copies by position of these rows."""
    if len(placed) > _FEW * PLACED.size:
        columns = np.frombuffer(bytearray(placed), PLACED_DTYPE)
        columns["flags"] = columns["flags"] & np.uint8(keep) | np.uint8(FLAG_COPY)
        columns["ts_ms"] = ts
        return columns.tobytes()
    pack = PLACED.pack
    rows = PLACED.iter_unpack(placed)
    return b"".join(
        [pack(start, length, size, flags & keep | FLAG_COPY, ts) for start, length, size, flags, _ts in rows]
    )
