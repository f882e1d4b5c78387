"""TOPICS_VERIFY: a comparison of the engine's counters with the rows that they count.

The index of a topic counts its live rows as they come and die, a topic counts its staged records,
and every file counts the rows that point to it. Retention, quotas and the removal of files rely on
these numbers, and a wrong one shows much later and elsewhere. This check therefore runs at the end
of each pass, on the topics that changed since their last check. Of more than fifty topics, each is
looked at every few passes: a wrong number that is put right before its turn, or whose topic is
deleted before it, stays unnoticed.

Totals and files are looked at when all topics have had their turn, if one has changed: a file holds
records of many topics, so that its count can only be compared with a sum over all of them. That sum
takes the counts of chunks, which were compared with their rows. A dormant topic has no chunk with a
count. Its rows are found in the snapshot, which is too much work for a pass if there are many of
these topics; in this case, files are compared at the close.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from topics.engine.index.chunk import DEAD, Chunk
from topics.engine.index.usage import Usage
from topics.engine.shared.topic_registry import Registry
from topics.engine.state.topic import Topic
from topics.engine.write.append import Append
from topics.store.format.catalog import NO_TAG
from topics.store.format.file_table import FileTable

_TOPICS_A_PASS = 50
"""Topics that one pass checks; if there are more, they take turns, since a pass changes few."""
_DORMANT_A_PASS = 50
"""Dormant topics with which the end of a pass still looks at files."""


class _ChunkMark(NamedTuple):
    """Values that differ if a chunk has changed, found without reading its rows."""

    rows: int
    live: int
    size: int
    flags: int


_TopicMark = tuple[int, ...]
"""Values that differ if a topic has changed."""


class StateVerifier:
    """Raises AssertionError, with the topic's name and both numbers, if a counter is wrong.

    A check of topics costs as much as has changed: chunks with unchanged counters are skipped,
    except by `check_all`. A check of totals and files costs as much as there are topics and chunks.
    """

    def __init__(self, registry: Registry, usage: Usage, files: FileTable) -> None:
        self._registry = registry
        self._usage = usage
        self._files = files
        self._marks: dict[Topic, _TopicMark] = {}
        self._chunks: dict[Topic, dict[Chunk, _ChunkMark]] = {}
        self._totals = (-1, 0, 0, 0, 0)
        """Totals and numbers of topics at the last comparison of totals."""
        self._has_changed = True
        """Whether a topic has changed since then."""
        self._next = 0
        self.looks = 0
        """The number of topic checks, over all passes."""

    def check_pass(self) -> None:
        """Check the topics that changed since their last check."""
        topics = list(self._registry.by_id.values())
        start = self._next if self._next < len(topics) else 0
        self._next = start + _TOPICS_A_PASS
        for topic in topics[start : self._next]:
            mark = _mark(topic)
            if self._marks.get(topic) != mark:
                self._check_topic(topic, self._chunks.setdefault(topic, {}))
                self._marks[topic] = mark
                self._has_changed = True
        if self._next >= len(topics):  # a round over all topics ends
            usage, dormant = self._usage, self._registry.dormant
            totals = (usage.records, usage.bytes, usage.pending_bytes, len(topics), len(dormant.by_id))
            if self._has_changed or totals != self._totals:
                self._check_usage(topics)
                if len(dormant.by_id) <= _DORMANT_A_PASS:
                    self._check_files(topics)
                self._totals, self._has_changed = totals, False
            if len(self._marks) > len(topics):
                for gone in self._marks.keys() - set(topics):
                    del self._marks[gone], self._chunks[gone]

    def check_all(self) -> None:
        """Check every row of every topic, and the rows of every file."""
        topics = list(self._registry.by_id.values())
        for topic in topics:
            self._check_topic(topic, {})
            _check_tags(topic)
        self._check_usage(topics)
        self._check_files(topics)

    # --- a topic -----------------------------------------------------------------------------------------------------
    def _check_topic(self, topic: Topic, known: dict[Chunk, _ChunkMark]) -> None:
        self.looks += 1
        name, index = topic.name, topic.index
        live = size = end = 0
        for chunk in index.chunks:
            assert chunk.first >= end, f"{name}: the chunk at {chunk.first} begins before {end}, the end of the last"
            end = chunk.end
            live += chunk.live
            size += chunk.bytes
            mark = _ChunkMark(chunk.count, chunk.live, chunk.bytes, id(chunk.flags))
            if known.get(chunk) != mark:
                _check_chunk(name, chunk)
                known[chunk] = mark
        if len(known) > len(index.chunks):
            for gone in known.keys() - set(index.chunks):
                del known[gone]
        _equal(name, "live records", index.live, live)
        _equal(name, "bytes of live records", index.bytes, size)
        _equal(name, "the earliest live seq", index.earliest, index.next_live(1))
        assert end - 1 <= index.last_seq or not index.chunks, f"{name}: rows end at {end - 1}, after {index.last_seq}"
        assert index.last_seq <= topic.head, f"{name}: the head is {topic.head}, before the last row {index.last_seq}"
        assert topic.head < topic.next_seq, f"{name}: the head is {topic.head}, the next seq {topic.next_seq}"
        staged = [operation.staged(topic) for operation in topic.pending if isinstance(operation, Append)]
        _equal(name, "staged records", topic.pending_records, sum(records for records, _size in staged))
        _equal(name, "bytes of staged records", topic.pending_bytes, sum(size for _records, size in staged))
        for reader in topic.readers.by_name.values() if topic.readers is not None else ():
            seqs = max(reader.position, reader.committed)
            assert seqs <= topic.head, f"{name}: reader {reader.name} is at {seqs}, and the head is {topic.head}"
        if topic.queue is not None:
            topic.queue.check()
        filling: object = topic.filling
        if filling is not None:
            last = topic.pending[-1] if topic.pending else None
            assert filling is last, f"{name}: the batch that takes rows is not the last that is staged"

    # --- all topics --------------------------------------------------------------------------------------------------
    def _check_usage(self, topics: list[Topic]) -> None:
        usage, dormant = self._usage, self._registry.dormant
        records = sum(topic.index.live for topic in topics)
        size = sum(topic.index.bytes for topic in topics)
        if rows := list(dormant.by_id.values()):
            records += int(dormant.live[rows].sum())
            size += int(dormant.bytes[rows].sum())
        _equal("all topics", "live records", usage.records, records)
        _equal("all topics", "bytes of live records", usage.bytes, size)
        staged = sum(topic.pending_bytes for topic in topics)
        _equal("all topics", "bytes of staged records", usage.pending_bytes, staged)

    def _check_files(self, topics: list[Topic]) -> None:
        """Count rows of indexes, dormant topics, and staged copies in their originals' frames."""
        counted: dict[int, int] = {}
        for topic in topics:
            for chunk in topic.index.chunks:
                if chunk.live and chunk.file_id:
                    counted[chunk.file_id] = counted.get(chunk.file_id, 0) + chunk.live
                elif chunk.live:
                    files, rows = np.unique(chunk.file_ids[chunk.live_rows(0, chunk.count)], return_counts=True)
                    for file_id, count in zip(files.tolist(), rows.tolist(), strict=True):
                        counted[file_id] = counted.get(file_id, 0) + count
            for operation in topic.pending:
                if isinstance(operation, Append) and operation.file_id:
                    counted[operation.file_id] = counted.get(operation.file_id, 0) + operation.staged(topic)[0]
        for file_id, count in self._registry.dormant.rows_by_file().items():
            counted[file_id] = counted.get(file_id, 0) + count
        for file in self._files:
            _equal(f"file {file.file_id} {file.path}", "rows", file.live_rows, counted.pop(file.file_id, 0))
        assert not counted, f"rows point to files that are gone: {counted}"


def _mark(topic: Topic) -> _TopicMark:
    index = topic.index
    return (
        topic.head,
        topic.next_seq,
        len(topic.pending),
        topic.pending_bytes,
        index.live,
        index.bytes,
        index.deaths,
        len(index.chunks),
        index.last_seq,
    )


def _check_chunk(name: str, chunk: Chunk) -> None:
    if not chunk.live:  # The flags may differ until the chunk's memory is freed.
        _equal(name, f"bytes of the dead chunk at {chunk.first}", chunk.bytes, 0)
        return
    alive = chunk.flags[: chunk.count] < DEAD
    _equal(name, f"live rows of the chunk at {chunk.first}", chunk.live, int(np.count_nonzero(alive)))
    size = int(chunk.sizes[: chunk.count][alive].sum(dtype=np.uint64))
    _equal(name, f"bytes of the chunk at {chunk.first}", chunk.bytes, size)
    assert not (np.diff(chunk.ts[: chunk.count].view(np.int64)) < 0).any(), f"{name}: $ts falls in {chunk.first}"
    files = set(np.unique(chunk.file_ids[: chunk.count][alive]).tolist())
    said = {chunk.file_id} if chunk.file_id else set(chunk.files)
    assert files <= said, f"{name}: rows of the chunk at {chunk.first} point to files {files}, and it names {said}"


def _check_tags(topic: Topic) -> None:
    """Check that each live row's tag exists; tags of dead rows may be counted down later."""
    tags = topic.index.tags
    for chunk in topic.index.chunks:
        if chunk.live and chunk.tags is not None:
            numbers = set(chunk.tags[chunk.live_rows(0, chunk.count)].tolist()) - {NO_TAG}
            if numbers:
                assert tags is not None, f"{topic.name}: rows bear tags that were forgotten"
                assert all(map(tags.is_borne, numbers)), f"{topic.name}: a tag that rows bear was forgotten"


def _equal(what: str, number: str, kept: int, counted: int) -> None:
    assert kept == counted, f"{what}: {number}: {kept} by the counter, {counted} in truth"
