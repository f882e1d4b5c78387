"""The index of one topic: the place of each record, by seq, in chunks of columns.

Chunks without live rows are dropped whole. A gap between chunks costs nothing, however wide the
range that was deleted, evicted or burned. The index counts live records and bytes, maintains the
earliest live seq, and reports each row that comes or dies to the topic's tags and to `Usage`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence, Set
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from topics.engine.index.chunk import CHUNK_ROWS_MAX, DEAD, THIN, Chunk, Dead
from topics.engine.index.chunk_table import ChunkTable
from topics.engine.index.found_rows import Found
from topics.engine.index.selected_rows import NO_ROWS, SelectedRows, joined, rows_of, slice_of
from topics.engine.index.tags import Tags
from topics.engine.index.usage import Usage
from topics.store.format.catalog import NO_TAG

_HOLE_ROWS_MAX = 64
"""A wider hole starts a new chunk."""
_FIRST_ROWS = 16
_WINDOW_ROWS = 64
_NEXT_ROWS = 1024
_NEXT_BATCHES = 16
"""The chunk after a full one is allocated for this many batches."""
_FEW_CHUNKS = 8
"""Up to this number, chunks are removed from the list one at a time."""
_CHUNKS_A_STEP = 16
"""Chunks whose memory is freed in one step, 200 KB each."""
_FEW_ROWS = 64
"""Up to this number of rows, Python integers are faster than numpy."""
_MANY_ROWS = 1 << 16


class Index:
    """The records of one topic by seq.

    `earliest` is the smallest live seq, 0 if there is none. `last_seq` is the newest row's seq,
    live or dead.
    """

    __slots__ = (
        "_firsts",
        "_tags_ahead",
        "_to_shrink",
        "bytes",
        "chunks",
        "deaths",
        "earliest",
        "last_seq",
        "live",
        "removals",
        "table",
        "tags",
        "usage",
    )

    def __init__(self, usage: Usage) -> None:
        self.usage = usage
        self.chunks: list[Chunk] = []
        self._firsts: list[int] = []
        self._to_shrink: dict[Chunk, None] = {}
        """Chunks that are dead or thin."""
        self.live = 0
        self.bytes = 0
        self.deaths = 0
        """A counter that grows when rows die: while it is unchanged, a row that was live still is.
        """
        self.removals = 0
        """A counter that grows when rows are deleted or acknowledged: while it is unchanged, rows
        that died were lost.
        """
        self.earliest = 0
        self.last_seq = 0
        self.tags: Tags | None = None
        self._tags_ahead = 0
        """Tags that `take_tags` has counted for rows that are not added yet."""
        self.table: ChunkTable | None = None
        """The C table of the chunks, created by the first bulk read."""

    # --- adding ------------------------------------------------------------------------------------------------------
    def append_row(  # noqa: PLR0917 - one call a request
        self, seq: int, file_id: int, offset: int, length: int, size: int, ts: int, flags: int, tag: bytes | None
    ) -> None:
        """Add one live row above all others: `append_rows` for the most common case."""
        chunk = self._chunk_for(seq)
        row = chunk.count
        if row == chunk.capacity:
            chunk.reserve(1)
        chunk.file_ids[row] = file_id
        chunk.offsets[row] = offset
        chunk.lengths[row] = length
        chunk.sizes[row] = size
        chunk.ts[row] = ts
        chunk.flags[row] = flags
        if tag is not None:
            chunk.tag_column()[row] = self._take_tag(tag)
        chunk.take(1, size, file_id)
        self._added(file_id, seq, seq, 1, size)

    def append_rows(  # noqa: PLR0917 - columns
        self,
        first_seq: int,
        file_id: int,
        offsets: NDArray[np.uint32],
        lengths: NDArray[np.uint32],
        sizes: NDArray[np.uint32],
        ts: NDArray[np.uint64] | int,
        flags: NDArray[np.uint8],
        tags: list[bytes | None] | NDArray[np.uint32] | None,
    ) -> None:
        """Add live rows first_seq, first_seq + 1, ...; columns of shape (n,), n >= 1.

        first_seq is above every row so far. tags: texts, or the numbers that `take_tags` returned.
        """
        count = len(offsets)
        done = total = 0
        while done < count:
            chunk = self._chunk_for(first_seq + done)
            rows = min(count - done, CHUNK_ROWS_MAX - chunk.count)
            chunk.reserve(rows)
            part, at = slice(done, done + rows), slice(chunk.count, chunk.count + rows)
            chunk.file_ids[at] = file_id
            chunk.offsets[at] = offsets[part]
            chunk.lengths[at] = lengths[part]
            chunk.sizes[at] = sizes[part]
            chunk.ts[at] = ts if isinstance(ts, int) else ts[part]
            chunk.flags[at] = flags[part]
            if isinstance(tags, np.ndarray):
                chunk.tag_column()[at] = tags[part]
                self._tags_ahead -= _bearing(tags[part])
            elif tags is not None:
                chunk.tag_column()[at] = self._take_each(tags[part])
            size = int(sizes[part].sum(dtype=np.uint64))
            chunk.take(rows, size, file_id)
            done += rows
            total += size
        self._added(file_id, first_seq, first_seq + count - 1, count, total)

    def add_placed(  # noqa: PLR0917 - hot
        self, first_seq: int, count: int, placed: bytes | bytearray, at: int, file_id: int, base: int
    ) -> None:
        """Add live rows without tags like `append_rows`, from packed PLACED; count >= 1.

        at: position of the first one in `placed`. base: added to their starts.
        """
        chunks = self.chunks
        chunk = chunks[-1] if chunks else None
        if chunk is not None and chunk.first + chunk.count == first_seq and chunk.count + count <= chunk.capacity:
            size = chunk.place(count, placed, at, file_id, base)
        else:
            done = size = 0
            while done < count:
                chunk = self._chunk_for(first_seq + done, count)
                rows = min(CHUNK_ROWS_MAX - chunk.count, count - done)
                chunk.reserve(rows)
                size += chunk.place(rows, placed, at + done, file_id, base)
                done += rows
        self._added(file_id, first_seq, first_seq + count - 1, count, size)

    def add_scattered(
        self,
        seqs: NDArray[np.uint64],
        file_id: int,
        columns: SelectedRows,
        ts: NDArray[np.uint64],
        tags: list[bytes | None],
    ) -> None:
        """Add live rows with holes between them, all above every row so far (recovery).

        tags: empty if no row has one.
        """
        wide = np.flatnonzero(np.diff(seqs) > _HOLE_ROWS_MAX) + 1
        for start, end in zip([0, *wide.tolist()], [*wide.tolist(), len(seqs)], strict=True):
            while start < end:
                chunk = self._chunk_for(int(seqs[start]))
                limit = chunk.first + CHUNK_ROWS_MAX
                stop = start + int(np.searchsorted(seqs[start:end], np.uint64(limit)))
                self._scatter(chunk, seqs[start:stop], file_id, columns, ts, tags, start)
                start = stop
        if len(seqs):
            total = int(columns.sizes.sum(dtype=np.uint64))
            self._added(file_id, int(seqs[0]), int(seqs[-1]), len(seqs), total)

    def _scatter(  # noqa: PLR0917 - columns
        self,
        chunk: Chunk,
        seqs: NDArray[np.uint64],
        file_id: int,
        columns: SelectedRows,
        ts: NDArray[np.uint64],
        tags: list[bytes | None],
        start: int,
    ) -> None:
        old = chunk.count
        part = slice(start, start + len(seqs))
        chunk.add_holes(int(seqs[-1]) + 1 - chunk.end)
        rows = (seqs - np.uint64(chunk.first)).astype(np.intp)
        chunk.file_ids[rows] = columns.file_ids[part]
        chunk.offsets[rows] = columns.offsets[part]
        chunk.lengths[rows] = columns.lengths[part]
        chunk.sizes[rows] = columns.sizes[part]
        chunk.flags[rows] = columns.flags[part]
        chunk.ts[rows] = ts[part]
        from_row = max(0, old - 1)
        np.maximum.accumulate(chunk.ts[from_row : chunk.count], out=chunk.ts[from_row : chunk.count])
        if tags:
            chunk.tag_column()[rows] = self._take_each(tags[part])
        chunk.count -= len(seqs)  # `add_holes` has counted these rows; `take` counts them again.
        chunk.take(len(seqs), int(columns.sizes[part].sum(dtype=np.uint64)), file_id)

    def _chunk_for(self, seq: int, rows: int = 1) -> Chunk:
        """Return the chunk whose next row is `seq`: the last one or a new one.

        A small gap of seqs is filled with holes in the last chunk. rows: those that come together.
        """
        assert seq > self.last_seq, "rows come in the order of their seqs"
        if self.chunks:
            chunk = self.chunks[-1]
            hole = seq - chunk.first - chunk.count
            if hole == 0 and chunk.count < CHUNK_ROWS_MAX:
                return chunk
            if chunk.live and 0 < hole <= _HOLE_ROWS_MAX and chunk.count + hole < CHUNK_ROWS_MAX:
                chunk.add_holes(hole)
                return chunk
            chunk.close()
            if chunk.is_thin:  # The last chunk is not thinned, so it may have become thin before.
                self._to_shrink[chunk] = None
        # A topic that has filled a chunk is not small: its next chunk starts larger.
        is_full = self.chunks and self.chunks[-1].count == CHUNK_ROWS_MAX
        chunk = Chunk(seq, min(CHUNK_ROWS_MAX, max(_NEXT_ROWS, _NEXT_BATCHES * rows)) if is_full else _FIRST_ROWS)
        self.chunks.append(chunk)
        self._firsts.append(seq)
        return chunk

    def take_tags(self, tags: list[bytes | None]) -> NDArray[np.uint32]:
        """Count tags for rows that will be added later; return the numbers of the tags.

        The numbers are for `append_rows` or `give_back_tags`.
        """
        numbers = np.array(self._take_each(tags), np.uint32)
        self._tags_ahead += _bearing(numbers)
        return numbers

    def give_back_tags(self, numbers: NDArray[np.uint32]) -> None:
        """Undo `take_tags` for rows that will not be added."""
        self._tags_ahead -= _bearing(numbers)
        if self.tags is not None:
            self.tags.drop_rows(numbers)
            if not len(self.tags):
                self._forget_tags()

    def _take_each(self, tags: Sequence[bytes | None]) -> list[int]:
        if self.tags is None:
            if tags.count(None) == len(tags):
                return [NO_TAG] * len(tags)
            self.tags = Tags()
        return self.tags.take_each(tags)

    def _take_tag(self, tag: bytes) -> int:
        if self.tags is None:
            self.tags = Tags()
        return self.tags.take(tag)

    def _added(self, file_id: int, first: int, last: int, count: int, size: int) -> None:
        self.live += count
        self.bytes += size
        self.last_seq = last
        if not self.earliest:
            self.earliest = first
        self.usage.added(file_id, count, size)

    # --- looking -----------------------------------------------------------------------------------------------------
    def position_of(self, seq: int) -> int:
        """Return the position of the chunk with `seq`.

        Returns: in a gap, the position of the chunk before it; -1 before the first chunk.
        """
        return bisect_right(self._firsts, seq) - 1

    def next_live(self, seq: int) -> int:
        """Return the smallest live seq >= `seq`; 0 if there is none."""
        for position in range(max(0, self.position_of(seq)), len(self.chunks)):
            chunk = self.chunks[position]
            if not chunk.live:
                continue
            start = max(0, seq - chunk.first)
            if start < chunk.count:
                if chunk.flags[start] < DEAD:  # usually
                    return chunk.first + start
                alive = chunk.flags[start : chunk.count] < DEAD
                row = int(alive.argmax())
                if alive[row]:
                    return chunk.first + start + row
        return 0

    def select(self, after: int, upto: int, limit: int) -> SelectedRows:
        """Return the first `limit` live rows with after < seq <= upto."""
        parts: list[SelectedRows] = []
        for position in range(max(0, self.position_of(after + 1)), len(self.chunks)):
            chunk = self.chunks[position]
            if chunk.first > upto or limit <= 0:
                break
            start, end = max(0, after + 1 - chunk.first), min(chunk.count, upto + 1 - chunk.first)
            if not chunk.live:
                continue
            if chunk.live == chunk.count and start < end:
                rows_here = min(limit, end - start)
                parts.append(slice_of(chunk, start, start + rows_here))
                limit -= rows_here
                continue
            window = 4 * limit + _WINDOW_ROWS  # A few rows are usually among the first ones.
            while start < end and limit > 0:
                stop = min(end, start + window)
                window *= 4
                rows = chunk.live_rows(start, stop)[:limit]
                limit -= len(rows)
                if len(rows):
                    parts.append(rows_of(chunk, rows))
                start = stop
        if len(parts) == 1:
            return parts[0]
        return joined(parts) if parts else NO_ROWS

    def live_seqs(self, after: int, upto: int, limit: int) -> list[int]:
        """Return the first `limit` live seqs with after < seq <= upto."""
        found: list[int] = []
        for position in range(max(0, self.position_of(after + 1)), len(self.chunks)):
            chunk = self.chunks[position]
            if chunk.first > upto or limit <= 0:
                break
            start, end = max(0, after + 1 - chunk.first), min(chunk.count, upto + 1 - chunk.first)
            if not chunk.live or start >= end:
                continue
            few = min(end, start + limit)
            # Usually the rows are a run without dead ones.
            if max(chunk.flags[start:few].tobytes()) < DEAD:
                found += range(chunk.first + start, chunk.first + few)
                limit -= few - start
                start = few
            if start < end and limit:
                rows = chunk.live_rows(start, end)[:limit]
                limit -= len(rows)
                found += (rows + chunk.first).tolist()
        return found

    def at(self, seqs: NDArray[np.uint64]) -> SelectedRows:
        """Return the rows of these seqs, which are ascending and all live."""
        first, count = int(seqs[0]), len(seqs)
        if int(seqs[-1]) - first == count - 1:
            chunk = self.chunks[self.position_of(first)]
            start = first - chunk.first
            end = start + count
            if end <= chunk.count:
                return slice_of(chunk, start, end)
        parts = []
        for chunk, start, end in self.by_chunk(seqs):
            parts.append(rows_of(chunk, (seqs[start:end] - np.uint64(chunk.first)).astype(np.intp)))
        return parts[0] if len(parts) == 1 else joined(parts) if parts else NO_ROWS

    def locations(
        self, first: int, last: int, file_ids: Set[int] | None = None
    ) -> Iterator[tuple[Chunk, NDArray[np.intp], NDArray[np.uint32]]]:
        """Yield (chunk, live rows, the files that hold them) of first <= seq <= last, ascending.

        Chunks without such rows are left out.
        file_ids: chunks without a row in these files are skipped early, because a topic may have a
        thousand times as many chunks as are in the log.
        """
        for position in range(max(0, self.position_of(first)), len(self.chunks)):
            chunk = self.chunks[position]
            if chunk.first > last:
                return
            if file_ids is not None and not chunk.may_be_in(file_ids):
                continue
            start, end = max(0, first - chunk.first), max(0, min(chunk.count, last + 1 - chunk.first))
            rows = chunk.live_rows(start, end)
            if len(rows):
                yield chunk, rows, chunk.file_ids[start:end] if len(rows) == end - start else chunk.file_ids[rows]

    def totals_through(self, upto: int) -> tuple[int, int]:
        """Return the number of live records up to and including `upto`, and their bytes."""
        records, size = self.live, self.bytes
        for chunk in reversed(self.chunks):
            if chunk.end <= upto + 1:
                break
            if chunk.first > upto:
                records -= chunk.live
                size -= chunk.bytes
                continue
            rows = chunk.live_rows(upto + 1 - chunk.first, chunk.count)
            records -= len(rows)
            size -= int(chunk.sizes[rows].sum(dtype=np.uint64))
        return records, size

    def live_above(self, seqs: Sequence[int]) -> list[int]:
        """Return the number of live records above each of these seqs, which descend.

        The cost is that of the chunks above the last one, however many seqs there are.
        """
        above: list[int] = []
        records, at = 0, len(self.chunks) - 1
        for seq in seqs:
            while at >= 0 and self.chunks[at].first > seq:
                records += self.chunks[at].live
                at -= 1
            here = 0
            if at >= 0 and self.chunks[at].end > seq + 1:
                chunk = self.chunks[at]
                here = len(chunk.live_rows(seq + 1 - chunk.first, chunk.count))
            above.append(records + here)
        return above

    def alive(self, seqs: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return which of these seqs (ascending) are live, shape (n,)."""
        result = np.zeros(len(seqs), np.bool_)
        for chunk, start, end in self.by_chunk(seqs):
            rows = (seqs[start:end] - np.uint64(chunk.first)).astype(np.intp)
            result[start:end] = chunk.flags[rows] < DEAD
        return result

    def whole_chunk(self, seqs: NDArray[np.uint64]) -> Chunk | None:
        """Return the only chunk if all of its rows live, and these seqs are a run of them."""
        if len(self.chunks) != 1 or not len(seqs):
            return None
        chunk, first, last = self.chunks[0], int(seqs[0]), int(seqs[-1])
        is_run = last - first == len(seqs) - 1 and chunk.first <= first and last < chunk.end
        return chunk if is_run and chunk.live == chunk.count else None

    def by_chunk(self, seqs: NDArray[np.uint64]) -> Iterator[tuple[Chunk, int, int]]:
        """Yield (chunk, start, end) where seqs[start:end] are rows of the chunk.

        Seqs in no chunk are left out.
        """
        # A search by numpy for each of many chunks takes far longer than one in a view.
        numbers = memoryview(seqs)  # type: ignore[arg-type]
        start = 0
        while start < len(numbers):
            position = self.position_of(numbers[start])
            if position < 0:
                if not self.chunks:
                    return
                start = bisect_left(numbers, self._firsts[0])
                continue
            chunk = self.chunks[position]
            end = bisect_left(numbers, chunk.end, start)
            if end > start:
                yield chunk, start, end
            if position + 1 == len(self.chunks):
                return
            start = bisect_left(numbers, self._firsts[position + 1], end)

    def earliest_ts(self) -> int:
        """Return the `$ts` of the oldest live record, ms. The index is not empty."""
        return self.ts_of(self.earliest)

    def ts_of(self, seq: int) -> int:
        """Return the `$ts` of a live record, ms."""
        chunk = self.chunks[self.position_of(seq)]
        return int(chunk.ts[seq - chunk.first])

    def first_since(self, ts_ms: int) -> int:
        """Return the lowest live seq whose `$ts` is at least `ts_ms`; 0 if there is none."""
        position = bisect_left(self.chunks, ts_ms, key=attrgetter("newest_ts"))
        if position == len(self.chunks):
            return 0
        chunk = self.chunks[position]
        row = int(np.searchsorted(chunk.ts[: chunk.count], np.uint64(ts_ms)))
        return self.next_live(chunk.first + row)

    def last_live(self, count: int, upto: int) -> int:
        """Return the lowest of the last `count` live seqs up to `upto`; 0 if there is none.

        The cost grows with the chunks that hold them, which are at most `count`, and not with rows.
        """
        lowest = 0
        for chunk in reversed(self.chunks):
            if count <= 0:
                break
            if chunk.first > upto:
                continue
            is_whole = chunk.end <= upto + 1
            if is_whole and chunk.live < count:
                count -= chunk.live
                lowest = chunk.first
                continue
            rows = chunk.live_rows(0, chunk.count if is_whole else upto + 1 - chunk.first)[-count:]
            count -= len(rows)
            if len(rows):
                lowest = chunk.first + int(rows[0])
        return self.next_live(lowest) if lowest else 0

    def last_before(self, ts_ms: int) -> int:
        """Return the highest live seq whose `$ts` is below `ts_ms`; 0 if there is none."""
        position = bisect_left(self.chunks, ts_ms, key=attrgetter("newest_ts"))
        # One of the two chunks has a live row before `ts_ms`.
        for chunk in reversed(self.chunks[max(0, position - 1) : position + 1]):
            alive = chunk.live_rows(0, int(np.searchsorted(chunk.ts[: chunk.count], np.uint64(ts_ms))))
            if len(alive):
                return chunk.first + int(alive[-1])
        return 0

    # --- killing -----------------------------------------------------------------------------------------------------
    def evict_one(self) -> int:
        """Kill the oldest live record; return its seq."""
        seq = self.earliest
        chunk = self.chunks[self.position_of(seq)]
        row = seq - chunk.first
        chunk.flags[row] |= DEAD
        self._died(chunk, 1, int(chunk.sizes[row]))
        self.usage.left(int(chunk.file_ids[row]), 1)
        if self.tags is not None and chunk.tags is not None and (number := int(chunk.tags[row])) != NO_TAG:
            self._drop_tag(number)
        if row + 1 < chunk.count and chunk.flags[row + 1] < DEAD:
            self.earliest = seq + 1
        else:
            self._drop_dead_rows()
            self.earliest = self.next_live(seq + 1)
        return seq

    def evict_oldest(self, records: int, size: int, upto: int) -> int:
        """Kill the fewest oldest live records that reach both `records` and `size` (bytes).

        Records above `upto` stay. Returns: the seq of the last one, 0 if none had to die.
        """
        oldest = list(self._oldest(records, size, upto))
        if not oldest:
            return 0
        last = _last_seq(*oldest[-1])
        for chunk, rows in oldest:
            if rows is not None:
                self._kill_rows(chunk, rows)
        self._kill_chunks([chunk for chunk, rows in oldest if rows is None])
        self._after_kill()
        return last

    def oldest_through(self, records: int, size: int, upto: int) -> int:
        """Return what `evict_oldest` would return, without killing rows."""
        oldest = list(self._oldest(records, size, upto))
        return _last_seq(*oldest[-1]) if oldest else 0

    def _oldest(self, records: int, size: int, upto: int) -> Iterator[tuple[Chunk, NDArray[np.intp] | None]]:
        """Yield (chunk, rows) that `evict_oldest` has to kill; rows None: all of the chunk."""
        for chunk in self.chunks:
            if (records <= 0 and size <= 0) or chunk.first > upto:
                return
            if not chunk.live:
                continue
            if chunk.end <= upto + 1 and (chunk.live <= records or chunk.bytes < size):
                records -= chunk.live
                size -= chunk.bytes
                yield chunk, None
                continue
            rows = chunk.live_rows(0, min(chunk.count, upto + 1 - chunk.first))
            sums = np.cumsum(chunk.sizes[rows], dtype=np.uint64)
            count = max(records, int(np.searchsorted(sums, np.uint64(size))) + 1 if size > 0 else 0)
            rows = rows[:count]
            if len(rows):
                records -= len(rows)
                size -= int(sums[len(rows) - 1])
                yield chunk, rows

    def _forget_tags(self) -> None:
        """Forget the tags, because all rows that have tags are about to die.

        If tags of rows to come are counted too, nothing is forgotten here and the tags are counted
        down one by one.
        """
        if not self._tags_ahead and self.tags is not None:
            tags, self.tags = self.tags, None
            if tags.dead or tags.numbers_end > _FEW_ROWS:
                self.usage.reclaim.run(tags.forget())

    def kill_through(self, seq: int) -> int:
        """Kill all live rows up to and including `seq`; return their number."""
        before = self.live
        if seq >= self.last_seq:
            self._forget_tags()
        position = self.position_of(seq)
        if position < 0:
            return 0
        chunk = self.chunks[position]
        if chunk.end <= seq + 1:
            position += 1
        else:
            self._kill_rows(chunk, chunk.live_rows(0, seq + 1 - chunk.first))
        self._kill_chunks(self.chunks[:position])
        if self.live != before:
            self._after_kill()
        return before - self.live

    def _kill_chunks(self, chunks: list[Chunk]) -> None:
        """Kill all rows of these chunks. The caller runs `_after_kill` after the last chunk.

        The cost depends on the number of chunks, not of rows: memory is freed and tags are counted
        down in steps. The flags stay unchanged, because they show which rows' tags are to be
        counted down.
        """
        records = size = 0
        by_file: dict[int, int] = {}
        for chunk in chunks:
            records += chunk.live
            size += chunk.bytes
            if chunk.file_id:
                by_file[chunk.file_id] = by_file.get(chunk.file_id, 0) + chunk.live
            elif chunk.live:
                self.usage.left_files(chunk.file_ids[chunk.live_rows(0, chunk.count)])
            chunk.live = chunk.bytes = 0
            self._to_shrink[chunk] = None
        for file_id, rows in by_file.items():
            self.usage.left(file_id, rows)
        if not records:
            return
        self._lost(records, size)
        if self.tags is not None:
            self._count_down([Dead(chunk, None) for chunk in chunks if chunk.tags is not None])
        if len(chunks) > _FEW_CHUNKS:
            self.usage.reclaim.run(_given_back(chunks))

    def kill_found(self, found: list[Found]) -> None:
        """Kill rows that a search has found and that are all still live.

        Each chunk gets a new array of flags, so the cost is one step a chunk.
        """
        if not found:
            return
        self.removals += 1
        if sum([each.records for each in found]) == self.live:
            self._forget_tags()
        records = size = 0
        by_file: dict[int, int] = {}
        whole: list[Chunk] = []
        dead: list[Dead] = []
        for each in found:
            chunk, which, count = each.chunk, each.which, each.records
            if which is None:
                whole.append(chunk)
                continue
            records += count
            size += each.size
            if chunk.file_id:
                by_file[chunk.file_id] = by_file.get(chunk.file_id, 0) + count
            else:
                self.usage.left_files(chunk.file_ids[: len(which)][which])
            chunk.set_flags(each.flags)
            chunk.live -= count
            chunk.bytes -= each.size
            if chunk.live * THIN <= chunk.count and self._is_to_shrink(chunk):
                self._to_shrink[chunk] = None
            if chunk.tags is not None:
                dead.append(Dead(chunk, which))
        for file_id, rows in by_file.items():
            self.usage.left(file_id, rows)
        if records:
            self.table = None
            self._lost(records, size)
        if self.tags is not None and dead:
            self._count_down(dead)
        self._kill_chunks(whole)
        self._after_kill()

    def kill_run(self, first: int, last: int) -> list[tuple[Chunk, NDArray[np.intp]]]:
        """Kill the live rows of first .. last like `kill_seqs`; usually a few of one chunk."""
        count = last + 1 - first
        position = self.position_of(first)
        if position >= 0 and count <= _FEW_ROWS:
            chunk = self.chunks[position]
            start = first - chunk.first
            end = start + count
            if end <= chunk.count and max(chunk.flags[start:end].tobytes()) < DEAD:
                self._kill_few(chunk, start, end)
                return [(chunk, np.arange(start, end))]
        if count <= _MANY_ROWS:
            return self.kill_seqs(np.arange(first, last + 1, dtype=np.uint64))
        # Chunks may hold only a small part of a run of millions.
        here = self.chunks[max(0, position) :]
        within = [(max(first, chunk.first), min(last, chunk.end - 1)) for chunk in here if chunk.first <= last]
        parts = [np.arange(start, end + 1, dtype=np.uint64) for start, end in within if start <= end]
        return self.kill_seqs(np.concatenate(parts)) if parts else []

    def _kill_few(self, chunk: Chunk, start: int, end: int) -> None:
        """Kill rows [start, end) of a chunk, all live, in the most common case.

        It combines `_kill_rows` and `_after_kill`.
        """
        count = end - start
        self.removals += 1
        chunk.flags[start:end] |= DEAD
        self._died(chunk, count, sum(chunk.sizes[start:end].tolist()))
        self.usage.left_files(chunk.file_ids[start:end])
        if self.tags is not None and chunk.tags is not None:
            self.tags.drop_rows(chunk.tags[start:end])
            if not len(self.tags):
                self._forget_tags()
        self._drop_dead_rows()
        if chunk.first + start <= self.earliest < chunk.first + end:
            if end < chunk.count and chunk.flags[end] < DEAD:
                self.earliest = chunk.first + end
            else:
                self.earliest = self.next_live(chunk.first + end)

    def lose_seqs(self, seqs: NDArray[np.uint64]) -> list[tuple[Chunk, NDArray[np.intp]]]:
        """Kill the live rows among these seqs (ascending); return the rows, chunk by chunk."""
        killed = []
        for chunk, start, end in self.by_chunk(seqs):
            rows = (seqs[start:end] - np.uint64(chunk.first)).astype(np.intp)
            alive = chunk.flags[rows] < DEAD
            if not alive.all():
                rows = rows[alive]
            if len(rows):
                self._kill_rows(chunk, rows)
                killed.append((chunk, rows))
        if killed:
            self._after_kill()
        return killed

    def kill_seqs(self, seqs: NDArray[np.uint64]) -> list[tuple[Chunk, NDArray[np.intp]]]:
        """Kill rows like `lose_seqs`, because they were deleted or acknowledged."""
        killed = self.lose_seqs(seqs)
        if killed:
            self.removals += 1
        return killed

    def _kill_rows(self, chunk: Chunk, rows: NDArray[np.intp]) -> None:
        """Kill these live rows of a chunk. The caller runs `_after_kill` after the last chunk."""
        if not len(rows):
            return
        chunk.flags[rows] |= DEAD
        self._died(chunk, len(rows), int(chunk.sizes[rows].sum(dtype=np.uint64)))
        self.usage.left_files(chunk.file_ids[rows])
        if self.tags is not None and chunk.tags is not None:
            if len(rows) > _FEW_ROWS:
                which = np.zeros(int(rows[-1]) + 1, np.bool_)
                which[rows] = True
                self._count_down([Dead(chunk, which)])
                return
            self.tags.drop_rows(chunk.tags[rows])
            if not len(self.tags):
                self._forget_tags()

    def _count_down(self, dead: list[Dead]) -> None:
        """Count down the tags of dead rows in steps. Until then their tags count as present."""
        tags = self.tags
        assert tags is not None, "rows bore tags"
        waits = bool(tags.dead)
        tags.dead += dead
        if not waits:
            self.usage.reclaim.run(self._counted_down(tags))

    def _counted_down(self, tags: Tags) -> Iterator[None]:
        yield from tags.count_down()
        if self.tags is tags and not len(tags):
            self._forget_tags()

    def _died(self, chunk: Chunk, count: int, size: int) -> None:
        chunk.live -= count
        chunk.bytes -= size
        if chunk.live * THIN <= chunk.count and self._is_to_shrink(chunk):
            self._to_shrink[chunk] = None
        self._lost(count, size)

    def _lost(self, count: int, size: int) -> None:
        self.live -= count
        self.deaths += 1
        self.bytes -= size
        self.usage.records -= count
        self.usage.bytes -= size

    def _drop_tag(self, number: int) -> None:
        assert self.tags is not None, "a row bears a tag"
        self.tags.drop(number)
        if not len(self.tags):
            self._forget_tags()

    def _is_to_shrink(self, chunk: Chunk) -> bool:
        return not chunk.live or (chunk.is_thin and chunk is not self.chunks[-1])

    def _after_kill(self) -> None:
        self._drop_dead_rows()
        self.earliest = self.next_live(self.earliest)

    def _drop_dead_rows(self) -> None:
        """Drop chunks without a live row, and the wide holes of thin chunks except the last one."""
        if not self._to_shrink:
            return
        shrinking, self._to_shrink = self._to_shrink, {}
        self.table = None
        # In place, because a topic may have a chunk for each of very many single records.
        if len(shrinking) <= _FEW_CHUNKS:
            for chunk in shrinking:
                at, parts = self.position_of(chunk.first), self._shrunk(chunk)
                self.chunks[at : at + 1] = parts
                self._firsts[at : at + 1] = [part.first for part in parts]
            return
        chunks: list[Chunk] = []
        for chunk in self.chunks:
            if chunk in shrinking:
                chunks += self._shrunk(chunk)
            else:
                chunks.append(chunk)
        self.chunks = chunks
        self._firsts = [chunk.first for chunk in chunks]

    def _shrunk(self, chunk: Chunk) -> list[Chunk]:
        if not self._is_to_shrink(chunk):
            return [chunk]
        return chunk.thinned(_HOLE_ROWS_MAX) if chunk.live else []


def extend_each(
    indexes: Sequence[Index], first_seqs: Sequence[int], counts: Sequence[int], sizes: Sequence[int], file_id: int
) -> tuple[list[bytes], list[int], list[int]]:
    """Add rows without tags to each index like `append_rows`, without their columns and Usage.

    The rows of all are in one file, back to back in its PLACED.
    Returns: columns and runs for `place_rows`, which writes the columns; the positions of indexes
    to which nothing was added, because their last chunk has no room or a hole comes before.
    """
    columns: list[bytes] = []
    runs: list[int] = []
    left: list[int] = []
    at = 0
    for index, first, count, size in zip(indexes, first_seqs, counts, sizes, strict=True):
        if (
            not (chunks := index.chunks)
            or (chunk := chunks[-1]).first + (row := chunk.count) != first
            or (end := row + count) > CHUNK_ROWS_MAX
        ):
            left.append(len(columns) + len(left))
        else:
            if end > chunk.capacity:
                chunk.reserve(count)
            if chunk.file_id != file_id and file_id not in chunk.files:
                chunk.join(file_id)
            chunk.count = end
            chunk.live += count
            chunk.bytes += size
            index.live += count
            index.bytes += size
            index.last_seq = first + count - 1
            if not index.earliest:
                index.earliest = first
            columns.append(chunk.addresses or chunk.find_addresses())
            runs += (at, row, count)
        at += count
    return columns, runs, left


def _last_seq(chunk: Chunk, rows: NDArray[np.intp] | None) -> int:
    """Return the last seq of these rows; None: of all live rows."""
    return chunk.first + int((chunk.live_rows(0, chunk.count) if rows is None else rows)[-1])


def _given_back(chunks: list[Chunk]) -> Iterator[None]:
    """Free the memory of dropped chunks in steps, from the next pass on.

    Nothing else refers to the chunks by then.
    """
    while chunks:
        del chunks[-_CHUNKS_A_STEP:]
        yield


def _bearing(numbers: NDArray[np.uint32]) -> int:
    """Return the number of elements that are not NO_TAG."""
    return int(np.count_nonzero(numbers != NO_TAG))
