"""The records of jobs, read and rendered, or decoded."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from topics.engine.index.selected_rows import SelectedRows
from topics.engine.read.frame_read import FrameRead, own, verified, with_topic
from topics.engine.state.topic import Topic
from topics.engine.values.job import LeasedJob
from topics.engine.values.ports import ReaderPort
from topics.errors import CorruptError, StorageError
from topics.store.format.log_format import Frame
from topics.store.read.render_json import LEASE, JsonRenderer, Payload

_NO_BUDGET = 1 << 62


def read_of(reader: ReaderPort, topic: Topic, jobs: Sequence[LeasedJob]) -> FrameRead:
    """Return the read of these jobs' records.

    jobs: at least one, ascending by seq; their records are live.
    """
    return FrameRead(reader, topic, topic.index.at(np.array([job.seq for job in jobs], np.uint64)))


def render_jobs(
    read: FrameRead,
    topic: Topic,
    jobs: Sequence[LeasedJob],
    then: Callable[[list[bytes] | StorageError], None],
    *,
    singly: bool,
    payloads: list[Payload] | None = None,
) -> None:
    """Call `then` with the elements of `claimed` (8.2), joined or single, or the error.

    read: that of the jobs, not begun. jobs: leased ones. singly: one element per job.
    payloads: gets data of bytes apart from the elements; None: it is in the elements, as base64.
    """
    leases = b"".join([LEASE.pack(job.lease_id, job.until, job.deliveries) for job in jobs])

    def on_read(read: FrameRead | StorageError) -> None:
        if isinstance(read, StorageError):
            then(read)
            return
        rendered: list[bytes] = []
        renderer = JsonRenderer(
            topic.id, limit=len(jobs), budget=_NO_BUDGET, include_tags=True, bytes_apart=payloads is not None
        )
        if not singly and len(read.pieces) > 1:
            renderer.expect(read.size)
        at = 0
        try:
            for view, base, rows in read.all_frames():
                step = 1 if singly else len(rows.seqs)
                for row in range(0, len(rows.seqs), step):
                    part = slice(row, row + step)
                    end = at + step * LEASE.size
                    renderer.add(view, base, rows.offsets[part], rows.lengths[part], rows.seqs[part], leases[at:end])
                    at = end
                    if singly:
                        element, apart = renderer.take()
                        if payloads is not None:
                            payloads.extend((len(rendered), data) for _index, data in apart)
                        rendered.append(element)
        except CorruptError as error:
            then(with_topic(topic, error, read))
            return
        if singly:
            then(rendered)
            return
        if payloads is not None:
            payloads.extend(renderer.payloads)
        then([renderer.records()])

    read.begin(on_read)


def with_attempts(element: bytes, job: LeasedJob) -> bytes:
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
    jobs: as in `read_of`.
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

    read_of(reader, topic, jobs).begin(on_read)


def _frame_of(topic: Topic, read: FrameRead, view: memoryview, base: int, row: SelectedRows) -> Frame | CorruptError:
    """Return the frame of one row, or the error of one that is not sound."""
    try:
        return next(frame for _seq, _raw, frame in verified(topic, own(topic, view, base, row)))
    except CorruptError as error:
        return with_topic(topic, error, read)
