"""The records of jobs, read and rendered, or decoded."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from topics.engine.index.index import SelectedRows
from topics.engine.read.read_plan import own_frames, plan_pieces
from topics.engine.shared.core import Core
from topics.engine.state.job import LeasedJob
from topics.engine.state.topic import Topic
from topics.errors import CorruptError, StorageError
from topics.store.format.log_format import Frame
from topics.store.read.reader import Fetched
from topics.store.read.render_json import LEASE, JsonRenderer

_NO_BUDGET = 1 << 62


def render_jobs(
    core: Core,
    topic: Topic,
    jobs: Sequence[LeasedJob],
    then: Callable[[list[bytes] | StorageError], None],
    *,
    singly: bool,
) -> None:
    """Calls `then` with the elements of `claimed` (8.2), joined by commas or each by itself, or with the error.

    jobs: leased ones whose records are live, ascending by seq, at least one.
    """
    leases = b"".join([LEASE.pack(job.lease_id, job.until, job.deliveries) for job in jobs])

    def on_rows(pieces: Sequence[tuple[memoryview, int, SelectedRows]]) -> None:
        rendered: list[bytes] = []
        projection = JsonRenderer(topic.id, limit=len(jobs), budget=_NO_BUDGET, include_tags=True)
        at = 0
        for view, base, rows in pieces:
            step = 1 if singly else len(rows.seqs)
            for row in range(0, len(rows.seqs), step):
                part = slice(row, row + step)
                end = at + step * LEASE.size
                projection.add(view, base, rows.offsets[part], rows.lengths[part], rows.seqs[part], leases[at:end])
                at = end
                if singly:
                    rendered.append(projection.records())
                    projection = JsonRenderer(topic.id, limit=1, budget=_NO_BUDGET, include_tags=True)
        then(rendered if singly else [projection.records()])

    _fetch(core, topic, jobs, on_rows, then)


def decode_jobs(
    core: Core, topic: Topic, jobs: Sequence[LeasedJob], then: Callable[[list[Frame] | StorageError], None]
) -> None:
    """Calls `then` with the frame of each job, in their order, or with the error. jobs: as above."""

    def on_rows(pieces: Sequence[tuple[memoryview, int, SelectedRows]]) -> None:
        frames: list[Frame] = []
        for view, base, rows in pieces:
            for offset, length, seq in zip(
                rows.offsets.tolist(), rows.lengths.tolist(), rows.seqs.tolist(), strict=True
            ):
                frame = Frame.unpack(view[offset - base : offset - base + length], f"topic {topic.name}")
                if (frame.topic_id, frame.seq) != (topic.id, seq):
                    raise CorruptError(f"topic {topic.name}: record {seq} is not in its place", {"seq": seq})
                frames.append(frame)
        then(frames)

    _fetch(core, topic, jobs, on_rows, then)


def _fetch(
    core: Core,
    topic: Topic,
    jobs: Sequence[LeasedJob],
    on_rows: Callable[[Sequence[tuple[memoryview, int, SelectedRows]]], None],
    on_error: Callable[[StorageError], None],
) -> None:
    """Reads the frames; `on_rows` gets (bytes, their file offset, rows in them) and may raise CorruptError."""
    rows = topic.index.at(np.array([job.seq for job in jobs], np.uint64))
    plan = plan_pieces(rows)

    def on_fetched(fetched: Fetched) -> None:
        if isinstance(fetched, StorageError):
            on_error(fetched)
            return
        try:
            pieces = zip(fetched, plan.pieces, plan.rows, strict=True)
            on_rows([own_frames(topic.id, view, piece.offset, its) for view, piece, its in pieces])
        except CorruptError as error:
            detail = {**(error.detail or {}), "topic": topic.name}
            detail.pop("topic_id", None)
            on_error(CorruptError(f"topic {topic.name}: {error}", detail))

    core.reader.fetch(plan.pieces, on_fetched)
