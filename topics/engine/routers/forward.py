"""One step of a router, staged on its destination: holes, copies, and the new position.

All of it is in one batch of the destination's shard, so a crash leaves all or none of it.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from topics.common.values.configs import EXACTLY_ONCE, RouterConfig
from topics.engine.index.index import Index
from topics.engine.index.selected_rows import SelectedRows
from topics.engine.state.control_frames import encode
from topics.engine.state.hops import Hops, Run
from topics.engine.state.router_frames import ForwardPayload
from topics.engine.state.topic import Router, Topic
from topics.engine.values.results import AppendResult
from topics.engine.write.admission import LogRoomCore, check_log
from topics.engine.write.append import Append, AppendCore, notify
from topics.engine.write.evictions import EvictionCore, log_evictions
from topics.engine.write.reservations import reserve_ahead, reserve_beyond
from topics.errors import TopicsError
from topics.store.commits.write_batch import Commit
from topics.store.format.catalog import NO_TAG
from topics.store.format.floors import TRIM, Gap
from topics.store.format.log_format import FLAG_COPY, FLAG_META, FLAG_NODE, FLAG_TAG, FrameType
from topics.store.format.rows import Framed, Rows, tags_in
from topics.store.in_memory.ephemeral import EphemeralFrames


class ForwardCore(AppendCore, EvictionCore, LogRoomCore, Protocol):
    """The part of the core that a step of a router needs."""

    memory: EphemeralFrames


class ForwardStep:
    """Content of one step, as far as it is known."""

    __slots__ = (
        "blocked",
        "carried",
        "config",
        "found",
        "head",
        "hole_hops",
        "holes",
        "hops",
        "originals",
        "rows",
        "upto",
    )

    def __init__(self, config: RouterConfig, upto: int, holes: list[tuple[int, int]], head: int) -> None:
        self.config = config
        """The router's config when the step was planned."""
        self.upto = upto
        """The router's position after the step."""
        self.head = head
        """The source's head when the step was planned."""
        self.hole_hops = holes
        """Runs of holes: (count, hops) of neighbours with equal hops, in order."""
        self.holes = sum([count for count, _hops in holes])
        self.rows: Rows | None = None
        """Copies whose frames are written out."""
        self.originals: SelectedRows | None = None
        """Source rows, all in one file and at least one, that are copied by position."""
        self.carried = 0
        """Number of records that are copied by position, and are staged in the same batch."""
        self.hops: list[int] = []
        """Hops of each copy, or one number for all."""
        self.found = 0
        """Number of records that exactly_once found in the destination already."""
        self.blocked = False
        """Whether there are more records, without room for them."""

    @property
    def is_whole(self) -> bool:
        return self.upto == self.head

    @property
    def copies(self) -> int:
        if self.originals is not None:
            return len(self.originals.seqs)
        return self.rows.count if self.rows is not None else self.carried


class StepOwner(Protocol):
    """The code that staged a step, called when it ends."""

    def on_applied(self, forward: Forward) -> None: ...
    def on_failed(self, forward: Forward) -> None: ...


class Forward(Append):
    """One step as an append.

    Once applied, readers see holes and copies, and the router's position is `step.upto`.
    """

    __slots__ = ("first_hole", "owner", "router", "runs", "shared", "step", "total")

    def __init__(self, owner: StepOwner, core: AppendCore, router: Router, step: ForwardStep, *, fsync: bool) -> None:
        topic = router.dest
        self.first_hole = topic.next_seq
        topic.skip_holes(step.holes)
        super().__init__(core, [topic], [topic.next_seq], [0], [0], [0], bytearray(), fsync=fsync)
        self.owner = owner
        self.router = router
        self.step = step
        self.total = router.forwarded + step.holes + step.copies + step.found
        self.runs: list[Run] = []
        self.shared: SelectedRows | None = None

    def apply(self, commit: Commit) -> None:
        topic = self.topic
        if self.step.holes:
            if commit.unsynced is not None:
                commit.unsynced.setdefault(topic.id, self.first_hole)
            take_holes(topic, self.first_hole, self.step.holes)
            notify(self.core, topic)  # a loss is forwarded down the chain, too
        if topic.routers:
            add_hops(topic, self.runs)
        if self.shared is not None:
            source = self.router.source
            self.core.log.note_shared(topic.id, self.first_seqs[0], source.id, self.shared.seqs, self.file_id)
        if self.counts[0]:
            super().apply(commit)
        self.owner.on_applied(self)

    def share(self, keep: int, ts: int) -> None:
        """Make copies by position: rows of the destination that point to the originals' frames.

        The frames stay in place from now on, even if the originals are deleted: the file counts
        these rows.
        """
        originals = self.step.originals
        assert originals is not None, "the originals were found to be shareable"
        count = len(originals.seqs)
        size = int(originals.sizes.sum(dtype=np.uint64))
        tags = tags_of(self.router.source.index, originals.seqs) if keep & FLAG_TAG else None
        self.shared = originals._replace(
            flags=(originals.flags & np.uint8(keep)) | np.uint8(FLAG_COPY), ts=np.full(count, ts, np.uint64)
        )
        self.file_id = int(originals.file_ids[0])
        self.core.usage.placed(self.file_id, count)
        self.add((count, False, ignore), count, size, Framed(0, b""), ts, tags)

    def place(self, file_id: int, base: int) -> None:
        shared = self.shared
        if shared is None:
            super().place(file_id, base)
            return
        self.topic.index.append_rows(
            self.first_seqs[0],
            file_id,
            shared.offsets,
            shared.lengths,
            shared.sizes,
            shared.ts,
            shared.flags,
            self.tags,
        )
        self.core.usage.left(file_id, self.counts[0])  # counted by the index from now on

    def fail(self, error: TopicsError) -> None:
        super().fail(error)
        self.owner.on_failed(self)


def take_holes(topic: Topic, first: int, count: int) -> None:
    """Record seqs that stand for lost source records, and are never live (R-TRIM-1, -2)."""
    last = first + count - 1
    topic.show_holes(last)
    topic.floors.add_gap(Gap(first, last, TRIM))
    topic.settle_gaps()


def add_hops(topic: Topic, runs: list[Run]) -> None:
    if topic.hops is None:
        topic.hops = Hops()
    for run in runs:
        topic.hops.add(*run)


def stage_forward(owner: StepOwner, core: ForwardCore, router: Router, step: ForwardStep) -> Forward:
    """Stage the step. Raises TopicsError; nothing is staged then."""
    topic = router.dest
    now_ms = core.clock.now_ms()
    first = topic.next_seq
    ts = topic.stamp(now_ms)
    check_log(core)
    fsync = topic.stage_class == "fsync"
    runs = hole_runs(first, step.hole_hops) + hop_runs(first + step.holes, step.hops, step.copies)
    total = router.forwarded + step.holes + step.copies + step.found
    payload = ForwardPayload(router.id, step.upto, total, step.holes, runs)
    if step.originals is not None:
        payload.source = router.source.id
        payload.refs = seq_runs(step.originals.seqs)
        payload.keep = kept_flags(router)
        # else the power cut that takes the originals takes this frame, too
        if not core.log.is_one_shard:
            sizes: list[int] = step.originals.sizes.tolist()
            payload.sizes = sizes[:1] if min(sizes) == max(sizes) else sizes
    seqs = step.holes + step.copies
    reserved = reserve_beyond(core.log, topic, first + seqs - 1, step.copies, now_ms) if topic.lacks(seqs) else 0
    if not reserved and topic.is_short(first):  # a write that has to reserve carries no step
        reserve_ahead(core.log, topic, seqs, now_ms)
    core.log.stage_control(topic.id, FrameType.FORWARD, first, ts, encode(payload), counted=False)
    forward = Forward(owner, core, router, step, fsync=fsync)
    forward.runs = runs
    if step.rows is not None and step.rows.count:
        _stage_copies(core, forward, step.rows, ts, fsync=fsync)
    elif step.originals is not None:
        forward.share(payload.keep, ts)
    if step.copies and topic.memory_through:
        log_evictions(core, topic, topic.config, records=topic.pending_records, size=topic.pending_bytes)
    if reserved:
        forward.rely_on((reserved,))
    seen = bool(step.copies or step.holes)
    forward.stage(synced=(fsync and seen) or bool(reserved))
    return forward


def _stage_copies(core: ForwardCore, forward: Forward, rows: Rows, ts: int, *, fsync: bool) -> None:
    topic, first = forward.topic, forward.first_seqs[0]
    routed = forward.step.config.guarantee == EXACTLY_ONCE
    if topic.stage_class == "ephemeral":
        forward.file_id, framed = core.memory.stage_records(topic.id, first, ts, rows, routed=routed)
    else:
        framed = core.log.stage_records(topic.id, first, ts, rows, fsync=fsync, counted=False, routed=routed)
    forward.add((rows.count, False, ignore), rows.count, rows.size, framed, ts, tags_in(rows))


def hole_runs(first: int, holes: list[tuple[int, int]]) -> list[Run]:
    """Return holes from `first` on, with their hops, as runs of seqs."""
    runs: list[Run] = []
    for count, hops in holes:
        runs.append((first, first + count - 1, hops))
        first += count
    return runs


def hop_runs(first: int, hops: list[int], copies: int) -> list[Run]:
    """Return neighbours with equal hops as runs of seqs from `first` on."""
    if len(hops) == 1:
        return [(first, first + copies - 1, hops[0])]
    runs: list[Run] = []
    for seq, count in enumerate(hops, first):
        if runs and runs[-1][2] == count:
            runs[-1] = (runs[-1][0], seq, count)
        else:
            runs.append((seq, seq, count))
    return runs


def kept_flags(router: Router) -> int:
    """Return the flags of fields that copies keep of their originals' frames."""
    config = router.config
    return FLAG_META | (FLAG_TAG if config.preserve_tag else 0) | (FLAG_NODE if config.preserve_node else 0)


def seq_runs(seqs: NDArray[np.uint64]) -> list[tuple[int, int]]:
    """Return ascending seqs, at least one, as (first, last) of neighbours."""
    first, last = int(seqs[0]), int(seqs[-1])
    if last - first == len(seqs) - 1:
        return [(first, last)]
    cuts = np.flatnonzero(np.diff(seqs) != 1)
    firsts, lasts = seqs[np.concatenate(([0], cuts + 1))], seqs[np.concatenate((cuts, [len(seqs) - 1]))]
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))


def tags_of(index: Index, seqs: NDArray[np.uint64]) -> list[bytes | None] | None:
    """Return the tag of each of these live seqs, ascending; None if none has one."""
    if index.tags is None:
        return None
    name = index.tags.name
    found: list[bytes | None] = []
    for chunk, start, end in index.by_chunk(seqs):
        if chunk.tags is None:
            found += [None] * (end - start)
        else:
            rows = (seqs[start:end] - np.uint64(chunk.first)).astype(np.intp)
            found += [None if number == NO_TAG else name(number) for number in chunk.tags[rows].tolist()]
    return found


def ignore(_result: AppendResult | TopicsError) -> None:
    """Ignore a result: no client waits for a single copy."""
