"""Topics with few rows in the log for a checkpoint, many of them in one call.

Each takes a microsecond or two. What the columns of all of them say together decides which need
more than that: those are asked for one by one (engine_checkpoints.py).
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topics.engine.index.chunk import DEAD, Chunk
from topics.engine.shared.stored_state import StoredState
from topics.engine.shared.topic_snapshot import has_long_gaps, short_descriptions
from topics.engine.state.topic import STAGING, Topic
from topics.store.format.catalog import FewRows
from topics.store.format.log_format import FLAG_COPY

_ROWS_MAX = 128
"""The last rows of a topic, which are looked at."""
_CHUNKS_MAX = 4


def few_rows(stored: StoredState, topic_ids: Sequence[int], file_ids: NDArray[np.uint32], bytes_max: int) -> FewRows:
    """See `CheckpointCatalog.few_rows`."""
    topics: list[Topic] = []
    chunks: list[Chunk] = []
    files = set(file_ids.tolist())
    for topic_id in topic_ids:
        topic = stored.registry.with_id(topic_id)
        if topic is not None and _may_have_few(topic, files):
            topics.append(topic)
            chunks.append(topic.index.chunks[-1])
    rows = _LastRows.of(chunks)
    in_log = np.isin(rows.file_ids, np.array(stored.usage.log_files(), np.uint32))
    wanted = np.isin(rows.file_ids, file_ids)
    fit = _fitting(rows, wanted, in_log, bytes_max) if len(rows.seqs) else np.zeros(len(topics), np.bool_)
    taken = wanted & np.repeat(fit, rows.counts)
    described = [topics[at] for at in np.flatnonzero(fit).tolist()]
    return FewRows(
        np.array([topic.id for topic in described], np.uint64),
        _sums(rows, taken)[fit],
        short_descriptions(described),
        rows.seqs[taken],
        rows.file_ids[taken],
        rows.offsets[taken],
        rows.lengths[taken],
    )


def _may_have_few(topic: Topic, files: Set[int]) -> bool:
    """Return whether all rows in these files may be among its last ones. None is in memory only."""
    chunks = topic.index.chunks
    return (
        0 < len(chunks) <= _CHUNKS_MAX
        and not topic.has_memory
        and not has_long_gaps(topic)
        and topic.name != STAGING
        and (len(chunks) == 1 or not any(chunk.may_be_in(files) for chunk in chunks[:-1]))
    )


class _LastRows(NamedTuple):
    """The last live rows of chunks, one chunk after the other."""

    counts: NDArray[np.int64]
    """Shape (chunks,), as has `are_all`."""
    are_all: NDArray[np.bool_]
    """Whether these are all live rows of the chunk."""
    seqs: NDArray[np.uint64]
    file_ids: NDArray[np.uint32]
    offsets: NDArray[np.uint32]
    lengths: NDArray[np.uint32]
    flags: NDArray[np.uint8]

    @classmethod
    def of(cls, chunks: Sequence[Chunk]) -> _LastRows:
        parts = [slice(max(0, chunk.count - _ROWS_MAX), chunk.count) for chunk in chunks]
        looked_at = np.array([part.stop - part.start for part in parts], np.int64)
        ends = np.cumsum(looked_at)
        chunk_ends = np.array([chunk.end for chunk in chunks], np.int64)
        seqs = np.arange(len(looked_at) and ends[-1]) + np.repeat(chunk_ends - ends, looked_at)
        last = list(zip(chunks, parts, strict=True))
        columns = [
            seqs.astype(np.uint64),
            _joined([chunk.file_ids[part] for chunk, part in last], np.uint32),
            _joined([chunk.offsets[part] for chunk, part in last], np.uint32),
            _joined([chunk.lengths[part] for chunk, part in last], np.uint32),
            _joined([chunk.flags[part] for chunk, part in last], np.uint8),
        ]
        alive = columns[-1] < DEAD
        if not alive.all():
            columns = [column[alive] for column in columns]
            sums = np.concatenate(([0], np.cumsum(alive, dtype=np.int64)))
            looked_at = sums[ends] - sums[ends - looked_at]
        live = np.array([chunk.live for chunk in chunks], np.int64)
        return cls(looked_at, looked_at == live, *columns)


def _joined(parts: list[NDArray[Any]], dtype: type) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.empty(0, dtype)


def _sums(rows: _LastRows, values: NDArray[Any]) -> NDArray[np.int64]:
    """Return the sum of the values of each chunk's rows."""
    sums = np.concatenate(([0], np.cumsum(values, dtype=np.int64)))
    ends = np.cumsum(rows.counts)
    of_chunks: NDArray[np.int64] = sums[ends] - sums[ends - rows.counts]
    return of_chunks


def _fitting(
    rows: _LastRows, wanted: NDArray[np.bool_], in_log: NDArray[np.bool_], bytes_max: int
) -> NDArray[np.bool_]:
    """Return which chunks have all their rows of the log in wanted files, as their last ones.

    Rows before those that were looked at are not in the log if one of these is not, because rows
    leave it in the order of their seqs. Copies are no such rows, since they may share frames of
    other topics, and be in an older file than a record before them.
    """
    begins = (np.cumsum(rows.counts) - rows.counts)[rows.counts > 0]
    is_first = np.zeros(len(wanted), np.bool_)
    is_first[begins] = True
    odd = (in_log & ~wanted) | (wanted & (rows.flags & np.uint8(FLAG_COPY) != 0))
    odd[1:] |= wanted[:-1] & ~wanted[1:] & ~is_first[1:]
    odd[begins] |= in_log[begins] & ~rows.are_all[rows.counts > 0]
    sizes = _sums(rows, np.where(wanted, rows.lengths, 0))
    fit: NDArray[np.bool_] = (sizes > 0) & (sizes < bytes_max) & (_sums(rows, odd) == 0)
    return fit


def moved_few(stored: StoredState, few: FewRows, file_id: int, offsets: NDArray[np.uint32]) -> list[int]:
    """See `CheckpointCatalog.moved_few`."""
    with_id, in_log = stored.registry.with_id, stored.in_log
    sources = set(few.file_ids.tolist())
    changed: list[int] = []
    ends = np.cumsum(few.counts)
    firsts, lasts = few.seqs[ends - few.counts].tolist(), few.seqs[ends - 1].tolist()
    columns = few.topic_ids.tolist(), few.counts.tolist(), ends.tolist(), firsts, lasts
    for at, (topic_id, count, end, first, last) in enumerate(zip(*columns, strict=True)):
        topic = with_id(topic_id)
        chunk = topic.index.chunks[-1] if topic is not None and topic.index.chunks else None
        if chunk is None or chunk.first > first or chunk.end != last + 1:
            changed.append(at)
            continue
        rows: slice | NDArray[np.intp] = slice(first - chunk.first, chunk.count)
        if last + 1 - first != count:
            rows = (few.seqs[end - count : end] - np.uint64(chunk.first)).astype(np.intp)
        if chunk.live != chunk.count and (chunk.flags[rows] >= DEAD).any():
            changed.append(at)
            continue
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
