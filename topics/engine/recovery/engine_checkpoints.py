"""The engine's part in checkpoints: implements `topics.store.format.catalog.CheckpointCatalog`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from topics.engine.index.chunk import DEAD, Chunk
from topics.engine.recovery.few_rows import few_rows, moved_few
from topics.engine.shared.stored_state import StoredState
from topics.engine.shared.topic_snapshot import (
    LongImage,
    PlainTopics,
    PreparedSnapshot,
    Rest,
    has_long_gaps,
    image_of,
    is_long,
    is_plain,
    key_rows_of,
)
from topics.engine.state.router_frames import images_of
from topics.engine.state.topic import Topic
from topics.engine.values.ports import LoopPort
from topics.store.format.catalog import NO_TAG, SEQ_MAX, Deletions, FewRows, RowColumns, SeqRange
from topics.store.format.log_format import FLAG_COPY

_READERS_A_STEP = 1000
_DORMANT_A_STEP = 8
"""The number of dormant topics that cost a snapshot as much as one other topic."""

_NO_SEQS = np.empty(0, np.uint64)


class EngineCheckpoints:
    """Answers checkpoints: which rows are where, what a snapshot says, which records are gone."""

    def __init__(self, loop: LoopPort, stored: StoredState) -> None:
        self._clock = loop.clock
        self._stored = stored
        self._topic = stored.registry.with_id
        self._prepared: PreparedSnapshot | None = None
        """The prepared parts of the next snapshot, once they are complete."""

    # --- rows --------------------------------------------------------------------------------------------------------
    def topics_in_log(self) -> Iterator[int]:
        return iter(self._stored.in_log)

    def _is_in_log(self, chunks: Sequence[Chunk]) -> bool:
        """Return whether the newest live row is in the log, which decides it for all rows.

        Rows move to segments in the order of their seqs. Only rows in memory never move: rows
        before them may be from a time in another class, so all are checked then.
        """
        usage = self._stored.usage
        for chunk in reversed(chunks):
            if chunk.file_id and chunk.live and not usage.is_memory(chunk.file_id):
                return usage.is_log(chunk.file_id)
            file_ids = chunk.file_ids[chunk.live_rows(0, chunk.count)]
            if len(file_ids) and not usage.is_memory(int(file_ids[-1])):
                return usage.is_log(int(file_ids[-1]))
            for file_id in np.unique(file_ids).tolist():
                if usage.is_log(file_id):
                    return True
        return False

    def rows_in_files(
        self,
        topic_id: int,
        file_ids: NDArray[np.uint32],
        *,
        first_seq: int = 0,
        last_seq: int = SEQ_MAX,
        rows_max: int = SEQ_MAX,
    ) -> list[RowColumns]:
        topic = self._topic(topic_id)
        if topic is None:
            return []
        found: list[tuple[int, list[tuple[Chunk, NDArray[np.intp]]]]] = []
        for file_id, chunk, rows in _parts_in(topic, file_ids, first_seq, last_seq, rows_max):
            if not found or found[-1][0] != file_id:
                found.append((file_id, []))
            found[-1][1].append((chunk, rows))
        return [self._columns(topic, file_id, parts) for file_id, parts in found]

    def few_rows(self, topic_ids: Sequence[int], file_ids: NDArray[np.uint32], bytes_max: int) -> FewRows:
        return few_rows(self._stored, topic_ids, file_ids, bytes_max)

    def moved_few(self, few: FewRows, file_id: int, offsets: NDArray[np.uint32]) -> list[int]:
        return moved_few(self._stored, few, file_id, offsets)

    def last_in_files(self, topic_id: int, file_ids: NDArray[np.uint32]) -> int:
        topic = self._topic(topic_id)
        wanted = set(file_ids.tolist())
        for chunk in reversed(topic.index.chunks) if topic is not None else ():
            if chunk.live and chunk.may_be_in(wanted):
                if chunk.file_id and chunk.live == chunk.count:
                    return chunk.end - 1
                rows = chunk.live_rows(0, chunk.count)
                if chunk.file_id:
                    return chunk.first + int(rows[-1])
                for file_id, _start, end in reversed(list(_runs(chunk.file_ids[rows]))):
                    if file_id in wanted:
                        return chunk.first + int(rows[end - 1])
        if topic is None or not self._is_in_log(topic.index.chunks):
            self._stored.in_log.discard(topic_id)
        return 0

    def bytes_in_files(
        self,
        topic_id: int,
        file_ids: NDArray[np.uint32],
        *,
        first_seq: int = 0,
        last_seq: int = SEQ_MAX,
        rows_max: int = SEQ_MAX,
    ) -> SeqRange:
        topic = self._topic(topic_id)
        first = last = count = total = 0
        parts = _parts_in(topic, file_ids, first_seq, last_seq, rows_max) if topic is not None else ()
        for _file_id, chunk, rows in parts:
            first = first or chunk.first + int(rows[0])
            last = max(last, chunk.first + int(rows[-1]))
            count += len(rows)
            total += int(chunk.lengths[_where(rows)].sum(dtype=np.uint64))
        return SeqRange(first, last, count, total)

    def _columns(self, topic: Topic, file_id: int, parts: list[tuple[Chunk, NDArray[np.intp]]]) -> RowColumns:
        if len(parts) == 1 and parts[0][0].tags is None:
            return _columns_of(topic, file_id, *parts[0])
        table: list[bytes] = []
        if all(chunk.tags is None for chunk, _rows in parts):
            tags = np.full(sum([len(rows) for _chunk, rows in parts]), NO_TAG, np.uint32)
        else:
            numbers = np.concatenate(
                [
                    np.full(len(rows), NO_TAG, np.uint32) if chunk.tags is None else chunk.tags[rows]
                    for chunk, rows in parts
                ]
            )
            names, places = np.unique(numbers, return_inverse=True)
            if topic.index.tags is not None:
                table = [topic.index.tags.name(number) for number in names.tolist() if number != NO_TAG]
            # NO_TAG is the highest number, so it comes last, and all others are indexes into the
            # table.
            tags = np.where(numbers == NO_TAG, NO_TAG, places).astype(np.uint32)
        found = [(chunk, _where(rows)) for chunk, rows in parts]
        seqs = _joined([(rows + chunk.first).astype(np.uint64) for chunk, rows in parts])
        return RowColumns(
            file_id,
            seqs,
            _joined([chunk.offsets[where] for chunk, where in found]),
            _joined([chunk.lengths[where] for chunk, where in found]),
            _joined([chunk.sizes[where] for chunk, where in found]),
            _joined([chunk.ts[where] for chunk, where in found]),
            _joined([chunk.flags[where] for chunk, where in found]),
            tags,
            table,
            _times_of(topic, seqs),
        )

    def last_shared(self, topic_id: int) -> int:
        topic = self._topic(topic_id)
        for chunk in reversed(topic.index.chunks) if topic is not None else ():
            shared = np.flatnonzero((chunk.flags[: chunk.count] & np.uint8(FLAG_COPY | DEAD)) == FLAG_COPY)
            if len(shared):
                return chunk.first + int(shared[-1])
        return 0

    def moved(
        self,
        topic_id: int,
        seqs: NDArray[np.uint64],
        file_id: int,
        offsets: NDArray[np.uint32],
        lengths: NDArray[np.uint32] | None = None,
    ) -> NDArray[np.uint64]:
        topic = self._topic(topic_id)
        if topic is None:
            return seqs
        if lengths is not None and (chunk := topic.index.whole_chunk(seqs)) is not None:
            first = int(seqs[0]) - chunk.first
            self._moved(topic, chunk, slice(first, first + len(seqs)), len(seqs), file_id, offsets, lengths)
            return _NO_SEQS
        died = np.ones(len(seqs), np.bool_)
        for chunk, start, end in topic.index.by_chunk(seqs):
            rows = (seqs[start:end] - np.uint64(chunk.first)).astype(np.intp)
            where = _where(rows)
            which: slice | NDArray[np.intp] = slice(start, end)
            if lengths is not None and chunk.live == chunk.count:
                died[start:end] = False
            else:
                alive = chunk.flags[where] < DEAD
                died[start:end] = ~alive
                if lengths is None:
                    alive &= self._are_in_log(chunk.file_ids[where])
                if not alive.all():
                    kept = np.flatnonzero(alive)
                    rows, which = rows[kept], kept + start
            if len(rows):
                new_lengths = None if lengths is None else lengths[which]
                self._moved(topic, chunk, _where(rows), len(rows), file_id, offsets[which], new_lengths)
        return seqs[died]

    def _moved(  # noqa: PLR0917 - hot
        self,
        topic: Topic,
        chunk: Chunk,
        where: slice | NDArray[np.intp],
        count: int,
        file_id: int,
        offsets: NDArray[np.uint32],
        lengths: NDArray[np.uint32] | None,
    ) -> None:
        """Note that these live rows of a chunk are in another file now. lengths: the copies'."""
        usage = self._stored.usage
        if chunk.file_id:
            usage.left(chunk.file_id, count)
        else:
            usage.left_files(chunk.file_ids[where])
        usage.placed(file_id, count)
        chunk.moved(where, file_id)
        chunk.offsets[where] = offsets
        if lengths is not None:
            chunk.lengths[where] = lengths
            chunk.set_flags(chunk.flags.copy())  # A search may hold the old array.
            chunk.flags[where] &= np.uint8(~FLAG_COPY & 0xFF)
            topic.index.table = None

    def _are_in_log(self, file_ids: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """Return which of these files are log files, row by row.

        A row may be elsewhere: a checkpoint copied it, and a kill then prevented the log from being
        recycled.
        """
        unique, inverse = np.unique(file_ids, return_inverse=True)
        return np.array([self._stored.usage.is_log(file_id) for file_id in unique.tolist()], np.bool_)[inverse]

    # --- topics, and the snapshot ---------------------------------------------------------------------------------
    def exists(self, topic_id: int) -> bool:
        return self._stored.registry.has_id(topic_id)

    def is_untouched(self, topic_id: int) -> bool:
        return topic_id in self._stored.registry.dormant.by_id

    def lowest_live_seq(self, topic_id: int) -> int:
        topic = self._topic(topic_id)
        assert topic is not None, "a topic that exists"
        return topic.earliest

    def describe(self, topic_id: int) -> Iterator[bytes]:
        topic = self._topic(topic_id)
        assert topic is not None, "a topic that exists"
        if has_long_gaps(topic):
            image = LongImage(topic, None)
            for _ in image.steps():
                yield b""
            yield from image.end()
        else:
            yield msgspec.json.encode(image_of(topic, None))

    def prepare_snapshot(self, topics_a_step: int) -> Iterator[None]:
        """Encode topics, keys and producers, a bounded number a step.

        Each topic is encoded in its state at its step; one with very many gaps or leases takes
        several (`LongImage`). Later changes are in the log after the cut, like those after the
        snapshot.

        Reservations are released: seqs above those given out need a new reservation.
        """
        now_ms = self._clock.now_ms()
        prepared = PreparedSnapshot()
        step = max(1, topics_a_step)
        topics = self._made_now(step)
        for block in self._stored.registry.dormant.blocks(_DORMANT_A_STEP * step):
            prepared.plain.append(b"," + msgspec.json.encode(block))
            yield
        with_keys: list[Topic] = []
        with_producers: list[Topic] = []
        with_readers: list[Topic] = []
        for made in topics:
            some = [topic for topic in made if topic.visible]
            long = [topic for topic in some if is_long(topic)]
            self._describe(prepared, [topic for topic in some if topic not in long] if long else some, now_ms)
            for topic in long:
                yield from self._describe_long(prepared, topic, now_ms)
            with_keys += [topic for topic in some if topic.keys is not None]
            with_producers += [topic for topic in some if topic.producers is not None]
            with_readers += [topic for topic in some if topic.readers is not None]
            yield
        self._stored.registry.dormant.end_blocks()
        for topic in with_keys:
            for rows in key_rows_of(topic, now_ms) if topic.visible else ():
                if rows:
                    prepared.keys.append(b"," + msgspec.json.encode((topic.id, rows)))
                yield
        for topic in with_producers:
            if topic.producers is not None and topic.visible:
                for producers in topic.producers.images_in_steps(now_ms):
                    prepared.producers.append(b"," + msgspec.json.encode((topic.id, producers)))
                    yield
        for topic in with_readers:
            if topic.readers is not None and topic.visible:
                for readers in topic.readers.images_in_steps(_READERS_A_STEP):
                    prepared.readers.append(b"," + msgspec.json.encode((topic.id, readers)))
                    yield
        self._prepared = prepared

    def _made_now(self, step: int) -> Iterator[list[Topic]]:
        """Return an iterator over the topics of this call that no block of dormant ones has.

        It is used after these blocks, `step` topics at a time. No list of all is made: to touch a
        million topics takes 40 ms, and each collection of garbage would visit such a list.
        """
        registry = self._stored.registry
        last_id, end, dormant = registry.last_id, registry.ids_end, registry.dormant

        def parts() -> Iterator[list[Topic]]:
            for topics in registry.by_id.lists():
                for at in range(0, len(topics), step):
                    made = [topic for topic in topics[at : at + step] if not last_id < topic.id < end]
                    in_blocks = dormant.made_after_block
                    yield [topic for topic in made if topic.id not in in_blocks] if in_blocks else made

        return parts()

    def _describe(self, prepared: PreparedSnapshot, topics: Sequence[Topic], now_ms: int) -> None:
        plain: list[Topic] = []
        others: list[bytes] = []
        for topic in topics:
            topic.release_reservation()
            if is_plain(topic):
                plain.append(topic)
            else:
                others.append(b"," + self._image(topic, now_ms))
        if plain:
            prepared.plain.append(b"," + msgspec.json.encode(PlainTopics.of(plain)))
        prepared.topics.append(b"".join(others))

    def _describe_long(self, prepared: PreparedSnapshot, topic: Topic, now_ms: int) -> Iterator[None]:
        image = LongImage(topic, now_ms)
        yield from image.steps()
        if topic.visible:
            topic.release_reservation()
            prepared.topics += [b",", *image.end()]

    def _image(self, topic: Topic, now_ms: int) -> bytes:
        image = image_of(topic, now_ms)
        if topic is self._stored.registry.staging:
            image.staged = self._stored.staged.images()
        return msgspec.json.encode(image)

    def snapshot(self) -> list[bytes | memoryview]:
        stored = self._stored
        if self._prepared is None:
            for _ in self.prepare_snapshot(len(stored.registry)):
                pass
        prepared, self._prepared = self._prepared, None
        assert prepared is not None
        rest = Rest(
            stored.registry.last_id,
            stored.registry.last_order,
            stored.lease_ids.reserved,
            images_of(list(stored.routers.by_id.values())),
            stored.routers.ties(stored.usage.log_files()),
        )
        lists = {b"topics": prepared.topics, b"plain": prepared.plain, b"keys": prepared.keys}
        lists[b"producers"] = prepared.producers
        if prepared.readers:
            lists[b"readers"] = prepared.readers
        return rest.pack(lists)

    def prepare_deletions(self) -> Iterator[None]:
        return self._stored.deletions.gather()

    def take_deletions(self) -> list[Deletions]:
        usage = self._stored.usage
        deletions = self._stored.deletions.take()
        return [
            part for part in deletions if part.topic_id in self._stored.registry.by_id and usage.is_sealed(part.file_id)
        ]


def _parts_in(
    topic: Topic, file_ids: NDArray[np.uint32], first_seq: int, last_seq: int, rows_max: int
) -> Iterator[tuple[int, Chunk, NDArray[np.intp]]]:
    """Yield (file id, chunk, rows) of live rows in these files, up to the chunk with `rows_max`."""
    count = 0
    wanted = set(file_ids.tolist())
    for chunk, rows, here in topic.index.locations(first_seq, last_seq, wanted):
        for file_id, start, end in _runs(here) if not chunk.file_id else ((chunk.file_id, 0, len(rows)),):
            if file_id in wanted:
                yield file_id, chunk, rows[start:end]
                count += end - start
        if count >= rows_max:
            return


def _columns_of(topic: Topic, file_id: int, chunk: Chunk, rows: NDArray[np.intp]) -> RowColumns:
    """Return columns, which the caller owns, of rows of one chunk without tags."""
    where = _where(rows)
    seqs = (rows + chunk.first).astype(np.uint64)
    return RowColumns(
        file_id,
        seqs,
        chunk.offsets[where].copy(),
        chunk.lengths[where].copy(),
        chunk.sizes[where].copy(),
        chunk.ts[where].copy(),
        chunk.flags[where].copy(),
        np.full(len(rows), NO_TAG, np.uint32),
        [],
        _times_of(topic, seqs),
    )


def _times_of(topic: Topic, seqs: NDArray[np.uint64]) -> NDArray[np.uint64] | None:
    """Return `RowColumns.times` of rows."""
    dues = None if topic.queue is None else topic.queue.dues_of(seqs)
    ends = None if topic.expiries is None else topic.expiries.of(seqs)
    if dues is None and (ends is None or not ends.any()):
        return None
    zeros = np.zeros(len(seqs), np.uint64)
    return np.stack([zeros if dues is None else dues, zeros if ends is None else ends], axis=1)


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """Return the rows of parts, mostly one, which the caller owns."""
    return parts[0].copy() if len(parts) == 1 else np.concatenate(parts)


def _where(rows: NDArray[np.intp]) -> slice | NDArray[np.intp]:
    """Return ascending rows as an index: a slice if they are a run, which is many times as fast."""
    first, last = int(rows[0]), int(rows[-1])
    return slice(first, last + 1) if last - first == len(rows) - 1 else rows


def _runs(file_ids: NDArray[np.uint32]) -> Iterator[tuple[int, int, int]]:
    """Yield (file id, start, end) of adjacent rows in one file; nearly always one run."""
    if not len(file_ids):
        return
    first = int(file_ids[0])
    if bool((file_ids == first).all()):
        yield first, 0, len(file_ids)
        return
    cuts = [0, *(np.flatnonzero(np.diff(file_ids)) + 1).tolist(), len(file_ids)]
    for start, end in pairwise(cuts):
        yield int(file_ids[start]), start, end
