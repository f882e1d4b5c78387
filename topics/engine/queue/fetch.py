"""The records of jobs, read and rendered, or decoded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import msgspec
import numpy as np

from topics.clock import Clock
from topics.engine.index.selected_rows import SelectedRows
from topics.engine.read.frame_read import FrameRead, own, verified, with_topic
from topics.engine.shared.read_turns import ReadTurns
from topics.engine.state.topic import Life, Topic
from topics.engine.values.job import LeasedJob
from topics.engine.values.ports import ReaderPort
from topics.engine.values.read_bounds import fitting
from topics.errors import CorruptError, StorageError
from topics.store.format.log_format import Frame
from topics.store.read.render_json import LEASE, JsonRenderer, Payload

_NO_BUDGET = 1 << 62
_TURN_BYTES = 1 << 20
"""Bytes of records that are rendered in one turn, at most or of one job: some 3 ms."""
_TURN_PIECES = 256
"""Likewise pieces that are apart, and jobs that are rendered one by one."""
_BYTES_A_JOB, _BYTES_A_SINGLE, _BYTES_A_PIECE = 2048, 6144, 3072
"""Shares of a pass's budget for reads that a job takes in one answer with others, one that is
rendered by itself, and each further piece, besides their records.
"""


class FetchCore(Protocol):
    """The part of the core that the records of jobs need."""

    clock: Clock
    reader: ReaderPort
    turns: ReadTurns


class JobsRead:
    """The records of leased jobs being read and rendered, of very many bytes some in a turn."""

    def __init__(
        self,
        core: FetchCore,
        topic: Topic,
        jobs: Sequence[LeasedJob],
        then: Callable[[list[bytes] | StorageError], None],
        payloads: list[Payload] | None = None,
        *,
        singly: bool,
        attempts: bool = False,
    ) -> None:
        """Plan to call `then` with the elements of `claimed` (8.2), joined or single, or the error.

        `then` gets no element if a job is gone before its turn.

        jobs: leased ones, at least one, ascending by seq; their records are live. singly: one
        element per job. attempts: with those of its job, if singly. payloads: gets data of bytes
        apart from the elements; None: it is in the elements, as base64.
        """
        self._core, self._topic, self._jobs, self._then = core, topic, jobs, then
        self._singly, self._attempts, self._payloads = singly, attempts, payloads
        # As they are now: other leases may follow before the last turn.
        self._leases = b"".join([LEASE.pack(job.lease_id, job.until, job.deliveries) for job in jobs])
        self._at = 0
        """Number of jobs that are rendered."""
        self._upto = 0
        """Their number after this turn."""
        self._size = 0
        """The bytes of all records."""
        self._held = 0
        """The bytes of the answer, if it is read in several turns (`ReadTurns.hold`)."""
        self._rendered: list[bytes] = []
        self._renderer = JsonRenderer(
            topic.id, limit=len(jobs), budget=_NO_BUDGET, include_tags=True, bytes_apart=payloads is not None
        )
        self.planned = self._plan()
        """The read of the next turn."""

    def _plan(self) -> FrameRead:
        """Return the next read: of all jobs that are left if they are few, at least of one."""
        jobs = self._jobs[self._at :] if self._at else self._jobs
        rows = self._topic.index.at(np.array([job.seq for job in jobs], np.uint64))
        if not self._at:
            self._size = int(rows.lengths.sum(dtype=np.uint64))
        # Of a thousand jobs that are apart, each turn would plan all that are left.
        read = FrameRead(self._core.reader, self._topic, rows, _TURN_PIECES)
        planned = most = read.count
        if read.size > _TURN_BYTES:
            most = min(most, fitting(rows.lengths, _TURN_BYTES))
        if self._singly:
            most = min(most, _TURN_PIECES)
        elif not self._at and (len(read.pieces) > 1 or most < len(jobs)):
            self._renderer.expect(self._size)
        if most < planned:
            read = FrameRead(self._core.reader, self._topic, rows.rows(slice(most)))
        self._upto = self._at + most
        return read

    def begin(self) -> None:
        """Read what is planned, once there is room for all."""
        if self._upto < len(self._jobs):
            size = self._size
            if not self._core.turns.hold(size, partial(self._on_room, size)):
                return
            self._held = size
        self._read()

    def _on_room(self, size: int) -> None:
        self._held = size
        self._go_on()

    def _end(self, result: list[bytes] | StorageError) -> None:
        held, self._held = self._held, 0
        if held:
            self._core.turns.let_go(held)
        self._then(result)

    def _read(self) -> None:
        read = self.planned
        a_job = _BYTES_A_SINGLE if self._singly else _BYTES_A_JOB
        self._core.turns.spend(
            (self._upto - self._at) * a_job + (len(read.pieces) - 1) * _BYTES_A_PIECE + read.size,
        )
        read.begin(self._on_read)

    def _go_on(self) -> None:
        """Read the next ones, if all are there: else the claim is delivered without some."""
        assert self._topic.queue is not None, "only queues have jobs"
        self._topic.queue.apply_time(self._core.clock.now_ms())
        left = np.array([job.seq for job in self._jobs[self._at :]], np.uint64)
        if self._topic.life is Life.GONE or not self._topic.index.alive(left).all():
            self._end([])
        else:
            self.planned = self._plan()
            self._read()

    def _on_read(self, read: FrameRead | StorageError) -> None:
        if isinstance(read, StorageError):
            self._end(read)
            return
        try:
            self._render(read)
        except CorruptError as error:
            self._end(with_topic(self._topic, error, read))
            return
        if self._at < len(self._jobs):
            self._core.turns.take_later(self._go_on)
            return
        if not self._singly:
            self._rendered.append(self._renderer.records())
            if self._payloads is not None:
                self._payloads.extend(self._renderer.payloads)
        self._end(self._rendered)

    def _render(self, read: FrameRead) -> None:
        if self._singly:
            self._render_singly(read)
            return
        for view, base, rows in read.all_frames():
            begin, end = self._at * LEASE.size, (self._at + len(rows.seqs)) * LEASE.size
            self._at += self._renderer.add(view, base, rows.offsets, rows.lengths, rows.seqs, self._leases[begin:end])

    def _render_singly(self, read: FrameRead) -> None:
        renderer, payloads = self._renderer, self._payloads
        for view, base, rows in read.all_frames():
            for row in range(len(rows.seqs)):
                part = slice(row, row + 1)
                at, self._at = self._at, self._at + 1
                leases = self._leases[at * LEASE.size : self._at * LEASE.size]
                renderer.add(view, base, rows.offsets[part], rows.lengths[part], rows.seqs[part], leases)
                element, apart = renderer.take()
                if payloads is not None:
                    payloads.extend((at, data) for _index, data in apart)
                self._rendered.append(_with_attempts(element, self._jobs[at]) if self._attempts else element)


def _with_attempts(element: bytes, job: LeasedJob) -> bytes:
    """Return an element of `claimed` with the attempts of its job (R-Q-34)."""
    return b'%b,"attempts":%b}' % (element[:-1], msgspec.json.encode(job.attempts))


def decode_jobs(
    reader: ReaderPort,
    topic: Topic,
    jobs: Sequence[LeasedJob],
    then: Callable[[Sequence[Frame | CorruptError] | StorageError], None],
) -> None:
    """Call `then` with the frame of each job, in their order, or with the error.

    A job whose frame is not sound has its own error; the reader is notified of it.
    jobs: at least one, ascending by seq; their records are live.
    """

    def on_read(read: FrameRead | StorageError) -> None:
        if isinstance(read, StorageError):
            then(read)
            return
        try:
            frames = [frame for part in read.all_frames() for _seq, _raw, frame in verified(topic, part)]
        except CorruptError:
            then([_frame_of(topic, read, *one) for one in read.single_rows()])
            return
        then(frames)

    rows = topic.index.at(np.array([job.seq for job in jobs], np.uint64))
    FrameRead(reader, topic, rows).begin(on_read)


def _frame_of(topic: Topic, read: FrameRead, view: memoryview, base: int, row: SelectedRows) -> Frame | CorruptError:
    """Return the frame of one row, or the error of one that is not sound."""
    try:
        return next(frame for _seq, _raw, frame in verified(topic, own(topic, view, base, row)))
    except CorruptError as error:
        return with_topic(topic, error, read)
