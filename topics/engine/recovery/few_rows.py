"""Topics with few rows for a checkpoint, many of them in one call.

Each takes a microsecond or two. What the columns of all of them say together decides which need
more than that: those are asked for one by one (engine_checkpoints.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topics.engine.index.chunk import Chunk
from topics.engine.shared.stored_state import StoredState
from topics.engine.shared.topic_snapshot import is_described_plainly, plain_descriptions
from topics.engine.state.topic import Topic
from topics.store.format.catalog import FewRows
from topics.store.format.log_format import FLAG_COPY

_ROWS_MAX, _ROWS_IN_LOG_MAX = 128, 16
"""Rows of a topic, and those of them that are in the log."""


def few_rows(stored: StoredState, topic_ids: Sequence[int], file_ids: NDArray[np.uint32], bytes_max: int) -> FewRows:
    """See `CheckpointCatalog.few_rows`."""
    topics: list[Topic] = []
    chunks: list[Chunk] = []
    for topic_id in topic_ids:
        topic = stored.registry.with_id(topic_id)
        if topic is not None and len(topic.index.chunks) == 1:
            chunk = topic.index.chunks[0]
            if chunk.live == chunk.count <= _ROWS_MAX and is_described_plainly(topic):
                topics.append(topic)
                chunks.append(chunk)
    rows = _Rows.of(chunks)
    log_ids = np.array(stored.usage.log_files(), np.uint32)
    wanted = np.isin(rows.file_ids, file_ids)
    fit = _fitting(rows, wanted, np.isin(rows.file_ids, log_ids), bytes_max) if topics else np.empty(0, np.bool_)
    taken = wanted & np.repeat(fit, rows.counts)
    here = np.flatnonzero(fit).tolist()
    counts = _sums(rows, taken)[fit]
    ends = np.array([chunks[at].end for at in here], np.uint64)
    return FewRows(
        np.array([topics[at].id for at in here], np.uint64),
        ends - counts.astype(np.uint64),
        counts,
        plain_descriptions([topics[at] for at in here]),
        rows.file_ids[taken],
        rows.offsets[taken],
        rows.lengths[taken],
    )


class _Rows(NamedTuple):
    """The rows of chunks without dead rows, one chunk after the other."""

    counts: NDArray[np.int64]
    file_ids: NDArray[np.uint32]
    offsets: NDArray[np.uint32]
    lengths: NDArray[np.uint32]
    flags: NDArray[np.uint8]

    @classmethod
    def of(cls, chunks: Sequence[Chunk]) -> _Rows:
        return cls(
            np.array([chunk.count for chunk in chunks], np.int64),
            _joined([chunk.file_ids[: chunk.count] for chunk in chunks], np.uint32),
            _joined([chunk.offsets[: chunk.count] for chunk in chunks], np.uint32),
            _joined([chunk.lengths[: chunk.count] for chunk in chunks], np.uint32),
            _joined([chunk.flags[: chunk.count] for chunk in chunks], np.uint8),
        )


def _joined(parts: list[NDArray[Any]], dtype: type) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.empty(0, dtype)


def _sums(rows: _Rows, values: NDArray[Any]) -> NDArray[np.int64]:
    """Return the sum of the values of each chunk's rows."""
    sums = np.concatenate(([0], np.cumsum(values, dtype=np.int64)))
    ends = np.cumsum(rows.counts)
    of_chunks: NDArray[np.int64] = sums[ends] - sums[ends - rows.counts]
    return of_chunks


def _fitting(rows: _Rows, wanted: NDArray[np.bool_], in_log: NDArray[np.bool_], bytes_max: int) -> NDArray[np.bool_]:
    """Return which chunks have all their rows of the log in wanted files, as their last ones.

    Copies are no such rows, since they may share frames of other topics.
    """
    begins = np.zeros(len(wanted), np.bool_)
    begins[np.cumsum(rows.counts) - rows.counts] = True
    odd = (in_log & ~wanted) | (wanted & (rows.flags & np.uint8(FLAG_COPY) != 0))
    odd[1:] |= wanted[:-1] & ~wanted[1:] & ~begins[1:]
    sizes = _sums(rows, np.where(wanted, rows.lengths, 0))
    are_few = (_sums(rows, wanted) <= _ROWS_IN_LOG_MAX) & (sizes < bytes_max)
    fit: NDArray[np.bool_] = are_few & (sizes > 0) & (_sums(rows, odd) == 0)
    return fit


def moved_few(stored: StoredState, few: FewRows, file_id: int, offsets: NDArray[np.uint32]) -> list[int]:
    """See `CheckpointCatalog.moved_few`."""
    with_id, in_log = stored.registry.with_id, stored.in_log
    sources = set(few.file_ids.tolist())
    changed: list[int] = []
    end = 0
    columns = few.topic_ids.tolist(), few.first_seqs.tolist(), few.counts.tolist()
    for at, (topic_id, first, count) in enumerate(zip(*columns, strict=True)):
        end += count
        topic = with_id(topic_id)
        chunks = topic.index.chunks if topic is not None else ()
        if len(chunks) != 1 or not _is_as_it_was(chunks[0], first, count):
            changed.append(at)
            continue
        chunk = chunks[0]
        rows = slice(first - chunk.first, chunk.count)
        chunk.file_ids[rows] = file_id
        chunk.offsets[rows] = offsets[end - count : end]
        if chunk.file_id:
            chunk.file_id = file_id
        else:
            kept = tuple([each for each in chunk.files if each not in sources])
            chunk.file_id, chunk.files = (0, (*kept, file_id)) if kept else (file_id, ())
        in_log.discard(topic_id)
    moved = np.ones(len(few.counts), np.bool_)
    moved[changed] = False
    if moved.any():
        stored.usage.left_files(few.file_ids[np.repeat(moved, few.counts)])
        stored.usage.placed(file_id, int(few.counts[moved].sum()))
    return changed


def _is_as_it_was(chunk: Chunk, first: int, count: int) -> bool:
    """Return whether the rows from `first` on are its last ones, and none has died."""
    return chunk.live == chunk.count and chunk.first <= first and chunk.end == first + count
