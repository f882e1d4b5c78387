"""One step of a router: from its position as far as filter, hops and room allow.

retention on the source (R-FLOOR-7), then on the destination
  -> live records after the position: filter, hops
  -> by position, or the records are read and written out: one step does one of the two
  -> as many as there is room for are framed and staged with the new position; applied when the
  class is met
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from topics.common.values.configs import EXACTLY_ONCE
from topics.engine.index.selected_rows import SelectedRows
from topics.engine.index.tagged_rows import tagged_mask
from topics.engine.read.frame_read import FrameRead, OwnFrames
from topics.engine.routers.copies import Copies, copies_of
from topics.engine.routers.destination_space import DestinationSpace, SpaceCore
from topics.engine.routers.evidence import Evidence
from topics.engine.routers.forward import Forward, ForwardCore, ForwardStep, stage_forward
from topics.engine.shared.read_turns import ReadTurns
from topics.engine.state.router import HOPS_MAX, RouterLife
from topics.engine.state.router_work import RouterWork
from topics.engine.state.staged_operations import Turn
from topics.engine.state.topic import Life, Router, Topic
from topics.engine.values.ports import ReaderPort
from topics.engine.values.read_bounds import fitting
from topics.engine.write.delete import RecordDeletionCore, trim
from topics.engine.write.evictions import has_to_wait
from topics.engine.write.retention import when_retained
from topics.errors import StorageError, TopicsError
from topics.store.format.log_format import Frame, record_size

_STEP_ROWS = 8192
_COPIED_ROWS = 1000


class OnEnd(Protocol):
    """Callback for the end of a step.

    blocked: the step is to be tried again later. is_whole: it took all records there were when it
    began, so newer ones may wait as usual.
    """

    def __call__(self, router: Router, *, blocked: bool = False, is_whole: bool = False) -> None: ...


class ForwardStepsCore(ForwardCore, RecordDeletionCore, SpaceCore, Protocol):
    """The part of the core that the steps of routers need."""

    reader: ReaderPort
    turns: ReadTurns


class ForwardSteps:
    """The steps of routers. Each ends with one call of `on_end`."""

    copied_bytes = 4 << 20
    """Most bytes that one step writes out, though at least one record."""

    def __init__(self, core: ForwardStepsCore, on_end: OnEnd) -> None:
        self._core = core
        self._on_end = on_end
        self.stopped = False
        """Whether nothing is staged any more."""
        self._room = DestinationSpace(core)

    def begin(self, router: Router) -> None:
        """Begin a step of a router that can continue and has no step in progress."""
        router.enter(RouterWork.RETAINING)
        when_retained(self._core, router.source, self._core.clock.now_ms(), partial(self._on_source_retained, router))

    def can_continue(self, router: Router) -> bool:
        """Return whether there are records to forward, and no permanent obstacle."""
        return (
            not self.stopped
            and router.life is RouterLife.LIVE
            and router.lags
            and router.dest.life is Life.LIVE
            and router.source.life is not Life.GONE
        )

    def _on_source_retained(self, router: Router, error: TopicsError | None) -> None:
        if error is not None:
            self._on_end(router, blocked=True)
            return
        when_retained(self._core, router.dest, self._core.clock.now_ms(), partial(self._on_retained, router))

    def _on_retained(self, router: Router, error: TopicsError | None) -> None:
        if error is not None or not self.can_continue(router):
            self._on_end(router, blocked=error is not None)
        elif router.config.guarantee == EXACTLY_ONCE and router.examined < router.dest.head:
            router.enter(RouterWork.SEARCHING)
            Evidence(self._core.reader, self._core.turns, router, partial(self._on_retained, router)).begin()
        else:
            self._plan(router)

    def _plan(self, router: Router) -> None:
        source = router.source
        lost, head = source.floors.lost, source.head
        if router.kept and self._stage_evicted(router, lost, head):
            return
        rows = source.index.select(max(router.position, lost), head, _STEP_ROWS)
        whole = len(rows.seqs) < _STEP_ROWS
        step = ForwardStep(router.config, head if whole else int(rows.seqs[-1]), _holes(router, lost), head)
        if router.kept:
            run = self._kept_before(router, rows)
            if run and len(rows.seqs) and int(rows.seqs[0]) < run[0]:
                rows = rows.rows(rows.seqs < np.uint64(run[0]))
                step.upto = min(step.upto, run[0] - 1)
            elif run:
                self._forward_kept(router, step, run)
                return
        kept = self._forwardable(router, rows)
        if not len(kept.seqs):
            self._stage(router, step)
            return
        shared, kept = self._split(router, step, kept)
        if shared:
            self._admit_shared(router, step, kept)
            return
        room = self._room_for(router, step, int(kept.seqs[0]), kept.sizes[:_COPIED_ROWS])
        if not room:
            return
        most = min(room, fitting(kept.lengths, self.copied_bytes))
        if most < len(kept.seqs):
            step.upto = int(kept.seqs[most]) - 1
            kept = kept.rows(slice(most))
        router.enter(RouterWork.READING)
        FrameRead(self._core.reader, source, kept).begin(partial(self._on_read, router, step))

    def _stage_evicted(self, router: Router, lost: int, head: int) -> bool:
        """Stage one run of kept frames below the source's floor: acknowledged, not lost.

        The runs are staged between holes. Returns: False if there are none.
        """
        position, kept = router.position, router.kept_seqs
        at = bisect_right(kept, position)
        some = kept[at : min(bisect_right(kept, lost), at + _STEP_ROWS)]
        if not some:
            return False
        if some[0] > position + 1:
            self._stage(router, ForwardStep(router.config, some[0] - 1, _holes(router, some[0] - 1), head))
        else:
            run = [seq for at, seq in enumerate(some, some[0]) if at == seq]
            self._forward_kept(router, ForwardStep(router.config, run[-1], [], head), run)
        return True

    def _forwardable(self, router: Router, rows: SelectedRows) -> SelectedRows:
        """Return the rows that pass the filter and have hops left."""
        source = router.source
        if router.config.filter is not None and len(rows.seqs):
            rows = rows.rows(tagged_mask(source.index, rows.seqs, router.config.filter))
        hops = source.hops
        if hops is not None and hops.runs and len(rows.seqs):
            rows = rows.rows(np.array([hops.of(seq) < HOPS_MAX for seq in rows.seqs.tolist()], np.bool_))
        return rows

    def _kept_before(self, router: Router, rows: SelectedRows) -> list[int]:
        """Return the seqs of kept frames without records, before the first row or the next one."""
        source, kept = router.source, router.kept_seqs
        at = bisect_right(kept, max(router.position, source.floors.lost))
        gone: list[int] = []
        while not gone and at < len(kept):  # mostly once, because acknowledged records are gone
            seqs = np.array(kept[at : at + _STEP_ROWS], np.uint64)
            gone = seqs[~source.index.alive(seqs)].tolist()
            at += _STEP_ROWS
        if gone and len(rows.seqs):
            return gone[: bisect_left(gone, int(rows.seqs[0]))] or gone[:1]
        return gone

    def _forward_kept(self, router: Router, step: ForwardStep, seqs: list[int]) -> None:
        """Forward as many of these kept frames as one step may write out."""
        seqs = seqs[: fitting([len(router.kept[seq]) for seq in seqs[:_COPIED_ROWS]], self.copied_bytes)]
        step.upto = seqs[-1]
        hops, match = router.source.hops, router.config.filter
        if hops is not None:
            seqs = [seq for seq in seqs if hops.of(seq) < HOPS_MAX]
        if match is not None:
            seqs = [seq for seq in seqs if match.matches(Frame.unpack(router.kept[seq], "a kept frame").tag)]
        if not seqs:
            self._stage(router, step)
            return
        frames = [router.kept[seq] for seq in seqs]
        room = self._room_for(router, step, seqs[0], [record_size(frame) for frame in frames])
        if not room:
            return
        if room < len(seqs):
            seqs, frames = seqs[:room], frames[:room]
            step.upto = seqs[-1]
        lengths = np.array([len(frame) for frame in frames], np.uint32)
        offsets = (np.cumsum(lengths, dtype=np.uint64) - lengths).astype(np.uint32)
        nothing = np.zeros(len(seqs), np.uint32)
        rows = SelectedRows(
            np.array(seqs, np.uint64),
            nothing,
            offsets,
            lengths,
            nothing,
            nothing.astype(np.uint8),
            nothing.astype(np.uint64),
        )
        try:
            copies = copies_of(router, [OwnFrames(memoryview(b"".join(frames)), 0, rows)])
        except StorageError:
            self._on_end(router, blocked=True)
            return
        self._admit(router, step, copies)

    def _room_for(self, router: Router, step: ForwardStep, seq: int, sizes: Sequence[int] | NDArray[np.uint32]) -> int:
        """Return how many of the next records, from `seq` on, are worth reading and copying.

        0: there is certainly no room for any, and the step is staged. exactly_once adds to the
        sizes, and may find records there already, which take no room.
        """
        room = len(sizes) if router.evidence else self._room.of(router.dest, sizes)
        if not room:
            step.upto, step.blocked = seq - 1, True
            self._stage(router, step)
        return room

    def _split(self, router: Router, step: ForwardStep, rows: SelectedRows) -> tuple[bool, SelectedRows]:
        """Return whether the first rows are copied by position, and the rows treated alike.

        One step does one of the two. Records in a file that the log is writing to are copied by
        position. The copies of others are written out: records of a weaker class could differ after
        a power cut; exactly_once adds to its originals; records being written when the router was
        created are before its creation; and records that were moved already are few.
        """
        core = self._core
        by_position = (
            router.config.guarantee != EXACTLY_ONCE
            and router.source.config.durability in ("disk", "fsync")
            and router.dest.stage_class != "ephemeral"
        )
        first = int(rows.file_ids[0])
        older = by_position and int(rows.seqs[0]) <= router.unshared_through
        shared = by_position and not older and core.usage.may_be_shared(first)
        if older:
            same = rows.seqs <= np.uint64(router.unshared_through)
        elif shared:
            same = rows.file_ids == first
        elif by_position:
            files = np.unique(rows.file_ids).tolist()
            same = ~np.isin(rows.file_ids, [file_id for file_id in files if core.usage.may_be_shared(file_id)])
        else:
            return False, rows
        if not same.all():
            count = int(same.argmin())
            step.upto = int(rows.seqs[count]) - 1
            rows = rows.rows(slice(count))
        return shared, rows

    def _admit_shared(self, router: Router, step: ForwardStep, rows: SelectedRows) -> None:
        room = self._room.of(router.dest, rows.sizes)
        if room < len(rows.seqs):
            step.upto = int(rows.seqs[room]) - 1
            step.blocked = True
            rows = rows.rows(slice(room))
        if room:
            step.originals = rows
            step.hops = self._hops_after(router, rows.seqs)
        self._stage(router, step)

    def _hops_after(self, router: Router, seqs: NDArray[np.uint64]) -> list[int]:
        """Return the hops of the copies of these records; one number if it is equal for all."""
        hops = router.source.hops
        if hops is None or not hops.runs:
            return [1]
        return [1 + hops.of(seq) for seq in seqs.tolist()]

    def _on_read(self, router: Router, step: ForwardStep, read: FrameRead | StorageError) -> None:
        if not self.can_continue(router) or router.config != step.config:
            self._on_end(router)  # perhaps to be planned again
            return
        if isinstance(read, StorageError):
            self._on_end(router, blocked=True)
            return
        # A record deleted while it was read is not forwarded (R-DEL-9). An evicted or acknowledged
        # one is.
        kept = np.array(list(router.kept), np.uint64) if router.kept else None
        if read.is_doubtful(kept):
            self._on_end(router)  # planned again
            return
        try:
            copies = copies_of(router, [frames for frames, _last in read.surviving(kept)])
        except StorageError:
            # a damaged record, which is reported to readers of the source
            self._on_end(router, blocked=True)
            return
        self._admit(router, step, copies)

    def _admit(self, router: Router, step: ForwardStep, copies: Copies) -> None:
        """Stage as many copies as the destination has room for, in order (R-RTR-13)."""
        if router.config.guarantee == EXACTLY_ONCE:
            copies, found = self._without_found(router, copies)
        else:
            found = []
        room = self._room.of(router.dest, copies.sizes)
        if room < len(copies.sizes):
            step.upto = int(copies.seqs[room]) - 1
            step.blocked = True
        step.found = sum(seq <= step.upto for seq in found)
        if room:
            step.rows = copies.first(room)
            step.hops = self._hops_after(router, copies.seqs[:room])
        self._stage(router, step)

    def _without_found(self, router: Router, copies: Copies) -> tuple[Copies, list[int]]:
        """Return the copies that the destination lacks, and the seqs of the others (R-EO-3)."""
        index = router.dest.index
        found = [
            seq
            for seq in copies.seqs.tolist()
            if (there := router.evidence.get(seq)) is not None and index.alive(np.array([there], np.uint64))[0]
        ]
        if not found:
            return copies, found
        kept: list[int] = np.flatnonzero(~np.isin(copies.seqs, np.array(found, np.uint64))).tolist()
        return copies.at(kept), found

    def _stage(self, router: Router, step: ForwardStep) -> None:
        if step.upto <= router.position and not step.holes:
            self._on_end(router, blocked=step.blocked)
            return
        # After a change of config the step would forward, or omit, records against the acknowledged
        # one (R-RTR-8), so it is planned again then.
        if router.changing or (step.copies and has_to_wait(router.dest)):
            router.enter(RouterWork.QUEUED)
            failed = partial(self._on_turn_failed, router)
            Turn(self._core, router.dest, partial(self._plan_again, router), failed).wait()
            return
        router.enter(RouterWork.COMMITTING)
        try:
            stage_forward(self, self._core, router, step)
        except TopicsError:
            self._on_end(router, blocked=True)

    def _plan_again(self, router: Router) -> None:
        self._on_end(router)

    def _on_turn_failed(self, router: Router, _error: TopicsError) -> None:
        self._on_end(router, blocked=True)

    # --- its end -----------------------------------------------------------------------------------------------------
    def on_applied(self, forward: Forward) -> None:
        router, step = forward.router, forward.step
        router.position = step.upto
        router.forwarded = forward.total
        if router.kept or router.keeping:
            router.drop_kept()
        if router.evidence:
            router.evidence = {seq: there for seq, there in router.evidence.items() if seq > step.upto}
        if router.examined == forward.first_hole - 1 and forward.counts[0]:
            # the router's own copies need no check
            router.examined = forward.first_seqs[0] + forward.counts[0] - 1
        forget_hops(router.source)
        trim(self._core, router.source)
        self._on_end(router, blocked=step.blocked, is_whole=step.is_whole)

    def on_failed(self, forward: Forward) -> None:
        self._on_end(forward.router, blocked=True)


def _holes(router: Router, upto: int) -> list[tuple[int, int]]:
    """Return holes for records that the source lost after the position (R-TRIM-1): (count, hops).

    A hole has one hop more than the lost record. Like copies, holes end after a few rounds of a
    cycle.
    """
    first, hops = router.position + 1, router.source.hops
    if upto < first:
        return []
    holes: list[tuple[int, int]] = []
    for begin, end, count in hops.within(first, upto) if hops is not None else [(first, upto, 0)]:
        if holes and holes[-1][1] == count + 1:
            holes[-1] = holes[-1][0] + end + 1 - begin, count + 1
        # the loss of any record is reported, and of the holes before the last ones
        elif count <= HOPS_MAX:
            holes.append((end + 1 - begin, count + 1))
    return holes


def forget_hops(source: Topic) -> None:
    """Forget hops that no router needs any more.

    Of many routers the last one usually catches up last, so mostly only that is checked.
    """
    hops, routers = source.hops, source.routers
    if hops is not None and hops.runs and all(router.position >= hops.runs[0][1] for router in reversed(routers)):
        hops.forget(min((router.position for router in routers), default=source.head))
