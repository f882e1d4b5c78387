"""Times of records, by seq and in their order: when a delay ends, or a record expires.

Seqs are divided into chunks of 4,096 numbers. Each has a dict and a heap of its own, and a heap
holds the first time of each chunk. So neither a dict nor a heap that is built anew is large, and no
pass of the loop depends on how many times there are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from topics.engine.values.job import BLOCK_BITS, bits_by_block

_BITS = 12
_MASK = (1 << _BITS) - 1
_STALE_MIN = 64
"""A heap is rebuilt once it has this many more entries than twice the valid ones."""
_PUSHED_MOST = 256
"""Most entries that are pushed one by one; with more, the heap is built anew."""


class _ChunkTimes:
    __slots__ = ("is_stale", "order", "present", "times")

    def __init__(self) -> None:
        self.times: dict[int, int] = {}
        """By seq."""
        self.present = 0
        """The seqs that have a time: a bit each."""
        self.is_stale = False
        """Whether `times` may have seqs that are not in `present`, until a step drops them."""
        self.order: list[int] = []
        """Heap of the times that were not taken, each `time << _BITS` plus the seq's last bits."""

    def __len__(self) -> int:
        return self.present.bit_count() if self.is_stale else len(self.times)

    def put(self, seqs: Sequence[int], times: Sequence[int]) -> None:
        """Note a time for each seq; the seqs ascend."""
        self.times.update(zip(seqs, times, strict=True))
        first = seqs[0] & _MASK
        if seqs[-1] - seqs[0] == len(seqs) - 1:
            self.present |= (1 << len(seqs)) - 1 << first
        else:
            for seq in seqs:
                self.present |= 1 << (seq & _MASK)
        entries = [time << _BITS | seq & _MASK for seq, time in zip(seqs, times, strict=True)]
        if len(entries) > _PUSHED_MOST:
            self.order += entries
            heapify(self.order)
        else:
            for entry in entries:
                heappush(self.order, entry)

    def has(self, seq: int) -> bool:
        return seq in self.times and (not self.is_stale or self.present >> (seq & _MASK) & 1 == 1)

    def settle(self) -> None:
        """Drop the times of seqs that are not present."""
        if self.is_stale:
            self.is_stale = False
            present = self.present
            self.times = {seq: time for seq, time in self.times.items() if present >> (seq & _MASK) & 1}


class SeqTimes:
    """A time (ms) for each of many seqs."""

    __slots__ = ("_chunks", "_count", "_order")

    def __init__(self) -> None:
        self._chunks: dict[int, _ChunkTimes] = {}
        """The chunks by the upper bits of their seqs; an empty chunk is removed."""
        self._count = 0
        self._order: list[tuple[int, int]] = []
        """Heap of (time, first bits): the first time of each chunk, and some that are outdated."""

    def __len__(self) -> int:
        return self._count

    def __contains__(self, seq: int) -> bool:
        chunk = self._chunks.get(seq >> _BITS)
        return chunk is not None and chunk.has(seq)

    def get(self, seq: int) -> int:
        """Return the time of a seq, 0 without one."""
        chunk = self._chunks.get(seq >> _BITS)
        return chunk.times[seq] if chunk is not None and chunk.has(seq) else 0

    def of(self, seqs: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the time of each of these seqs, 0 without one."""
        if not self._count:
            return np.zeros(len(seqs), np.uint64)
        return np.fromiter(map(self.get, seqs.tolist()), np.uint64, len(seqs))

    def parts(self) -> Iterator[list[tuple[int, int]]]:
        """Yield all (seq, time) in parts; those of a part may be discarded meanwhile."""
        for number in list(self._chunks):
            chunk = self._chunks.get(number)
            if chunk is not None:
                chunk.settle()
                yield list(chunk.times.items())

    def seqs(self) -> list[int]:
        """Return all seqs that have a time, ascending."""
        for chunk in self._chunks.values():
            chunk.settle()
        return sorted([seq for chunk in self._chunks.values() for seq in chunk.times])

    def add(self, seqs: Sequence[int], times: Sequence[int]) -> None:
        """Note a time for each seq; the seqs ascend.

        A seq that has this time already, and was taken, can be taken again.
        """
        at = 0
        while at < len(seqs):
            number = seqs[at] >> _BITS
            upto = bisect_left(seqs, number + 1 << _BITS, at)
            chunk = self._chunks.get(number)
            if chunk is None:
                chunk = self._chunks[number] = _ChunkTimes()
            first = chunk.order[0] >> _BITS if chunk.order else -1
            before = len(chunk)
            chunk.put(seqs[at:upto], times[at:upto])
            self._count += len(chunk) - before
            self._enter(number, chunk, first)
            at = upto

    def _enter(self, number: int, chunk: _ChunkTimes, before: int) -> None:
        """Enter a chunk in the heap of chunks if its first time is not `before`, that it had."""
        if chunk.order and chunk.order[0] >> _BITS != before:
            heappush(self._order, (chunk.order[0] >> _BITS, number))
        if len(self._order) > 2 * len(self._chunks) + _STALE_MIN:
            self._order = [(each.order[0] >> _BITS, at) for at, each in self._chunks.items() if each.order]
            heapify(self._order)

    def first(self) -> int | None:
        """Return a lower bound (ms) of the times to be taken, None without any."""
        return self._order[0][0] if self._order else None

    def take(self, upto: int, most: int) -> list[int]:
        """Return seqs whose time is at most `upto`, those with the earliest first.

        Each is returned once, and its time remains known until `discard`. At most `most` are looked
        at.
        """
        order, found = self._order, list[int]()
        while order and order[0][0] <= upto and most > 0:
            time, number = heappop(order)
            most -= 1
            chunk = self._chunks.get(number)
            if chunk is None or not chunk.order or chunk.order[0] >> _BITS != time:
                continue
            own, base = chunk.order, number << _BITS
            bound = (min(upto, order[0][0]) if order else upto) + 1 << _BITS
            most += 1
            while own and own[0] < bound and most > 0:
                most -= 1
                seq = base | heappop(own) & _MASK
                if chunk.has(seq):
                    found.append(seq)
            if own:
                heappush(order, (own[0] >> _BITS, number))
        return found

    def discard(self, seqs: Iterable[int]) -> None:
        """Forget the times of these seqs."""
        for seq in seqs:
            number = seq >> _BITS
            chunk = self._chunks.get(number)
            if chunk is None or not chunk.has(seq):
                continue
            chunk.present ^= 1 << (seq & _MASK)
            del chunk.times[seq]
            self._count -= 1
            if not chunk.present:
                del self._chunks[number]
            else:
                self._shorten(number, chunk)

    def _shorten(self, number: int, chunk: _ChunkTimes) -> None:
        """Build the heap of a chunk anew if most of its entries are outdated."""
        if len(chunk.order) > 2 * len(chunk.times) + _STALE_MIN:
            base, first = number << _BITS, chunk.order[0] >> _BITS
            chunk.order = [each for each in chunk.order if base | each & _MASK in chunk.times]
            heapify(chunk.order)
            self._enter(number, chunk, first)

    def discard_rows(self, first: int, which: NDArray[np.bool_]) -> Iterator[None]:
        """Forget the times of the seqs `first + i` for which which[i].

        Returns: steps that free the memory of them.
        """
        changed: dict[int, _ChunkTimes] = {}
        for block, bits in bits_by_block(first, which):
            number = block >> _BITS - BLOCK_BITS
            chunk = self._chunks.get(number)
            if chunk is None:
                continue
            gone = bits << ((block << BLOCK_BITS) & _MASK) & chunk.present
            if gone:
                chunk.present ^= gone
                chunk.is_stale = True
                self._count -= gone.bit_count()
                changed[number] = chunk
        for number, chunk in changed.items():
            if not chunk.present:
                del self._chunks[number]
        return self._freed(changed)

    def _freed(self, changed: dict[int, _ChunkTimes]) -> Iterator[None]:
        """Free what chunks have of seqs that are gone, a chunk a step."""
        while changed:
            number, chunk = changed.popitem()
            if self._chunks.get(number) is chunk:
                chunk.settle()
                self._shorten(number, chunk)
            del chunk
            yield

    def discard_through(self, last: int) -> Sequence[object]:
        """Forget the times of seqs up to `last`, where chunks were added in the order of seqs.

        Returns the removed chunks, for the caller to free in steps.
        """
        numbers = list(takewhile(lambda number: number << _BITS <= last, self._chunks))
        if numbers and last & _MASK != _MASK and numbers[-1] == last >> _BITS:
            self.discard(list(takewhile(lambda seq: seq <= last, self._chunks[numbers.pop()].times)))
        gone = [self._chunks.pop(number) for number in numbers]
        self._count -= sum([len(chunk) for chunk in gone])
        return gone
