"""The tags of one topic by number, so that an index row takes four bytes for any tag."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from topics.engine.index.chunk import Dead
from topics.engine.index.spread_dict import PLACES_MASK, SpreadDict
from topics.store.format.catalog import NO_TAG

_A_STEP = 512
"""Tags that are counted down or forgotten in a step."""
_MANY = 16_384
"""Tags from which on a plain dict would take milliseconds to grow.

The dict of so many is spread in one step, once in the life of a topic: 1.8 to 2.2 ms of CPU. So
that is the only write of a topic that waits for it, and a look-up asks one dict.
"""


class Tags:
    """Tags with a count of their live rows.

    A tag without live rows is forgotten and its number reused. Many rows that died together are
    counted down in steps. Until then they count as live, which has no visible effect, because the
    rows themselves decide which of them match.
    """

    __slots__ = ("_counts", "_credit", "_free", "_names", "_numbers", "dead")

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] | SpreadDict[bytes, int] = {}
        self._names: list[bytes] = []
        self._counts = array("I")
        self._free: list[int] = []
        self.dead: list[Dead] = []
        """Dead rows whose tags are still to be counted down."""
        self._credit = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def take(self, tag: bytes, rows: int = 1) -> int:
        """Count `rows` more live rows of `tag` and return its number."""
        if self.dead:
            self._pay(rows)
        every = self._numbers
        numbers = every.place(tag) if isinstance(every, SpreadDict) else every
        number = numbers.get(tag)
        if number is not None:
            self._counts[number] += rows
            return number
        if self._free:
            number = self._free.pop()
            self._names[number], self._counts[number] = tag, rows
        else:
            number = len(self._names)
            self._names.append(tag)
            self._counts.append(rows)
            if number == _MANY:
                numbers = self._spread(tag)
        numbers[tag] = number
        return number

    def take_each(self, tags: Sequence[bytes | None]) -> list[int]:
        """Count one more live row of each tag; return their numbers, NO_TAG for None.

        It does the same as `take` in half the time, because a write may have 10,000 tags.
        """
        if self.dead:
            self._pay(len(tags) - tags.count(None))
        every, names, counts, free = self._numbers, self._names, self._counts, self._free
        places = every.places if isinstance(every, SpreadDict) else None
        numbers = every if isinstance(every, dict) else {}
        taken: list[int] = []
        for tag in tags:
            if tag is None:
                taken.append(NO_TAG)
                continue
            if places is not None:
                numbers = places[hash(tag) & PLACES_MASK]
            number = numbers.get(tag)
            if number is not None:
                counts[number] += 1
            else:
                if free:
                    number = free.pop()
                    names[number], counts[number] = tag, 1
                else:
                    number = len(names)
                    names.append(tag)
                    counts.append(1)
                    if number == _MANY and places is None:
                        numbers = self._spread(tag)
                        assert isinstance(self._numbers, SpreadDict), "it is spread"
                        places = self._numbers.places
                numbers[tag] = number
            taken.append(number)
        return taken

    def _spread(self, tag: bytes) -> dict[bytes, int]:
        """Spread the tags over many dicts from now on; return the dict of `tag`."""
        numbers = self._numbers
        if not isinstance(numbers, SpreadDict):
            numbers = self._numbers = SpreadDict(numbers)
        return numbers.place(tag)

    def drop(self, number: int) -> None:
        """Count down one dead row of this tag."""
        count = self._counts[number]
        assert count > 0, "more rows of a tag died than lived"
        self._counts[number] = count - 1
        if count == 1:
            self._forget(number)

    def _forget(self, number: int) -> None:
        del self._numbers[self._names[number]]
        self._names[number] = b""
        self._free.append(number)

    def drop_rows(self, numbers: NDArray[np.uint32]) -> None:
        """Count down one dead row for each element; NO_TAG elements are ignored."""
        numbers = numbers[numbers != NO_TAG]
        counts = np.frombuffer(self._counts, np.uint32)
        assert counts[numbers].all(), "more rows of a tag died than lived"
        np.subtract.at(counts, numbers, np.uint32(1))
        for number in set(numbers[counts[numbers] == 0].tolist()):
            self._forget(number)

    def _pay(self, rows: int) -> None:
        """Count down one dead row for each added row, so that evictions never outrun the steps."""
        self._credit += rows
        while self.dead:
            chunk, which = self.dead[-1]
            if self._credit < (chunk.count if which is None else len(which)):
                return
            numbers = self._next_dead()
            self._credit -= len(numbers)
            self.drop_rows(numbers)

    def _next_dead(self) -> NDArray[np.uint32]:
        dead = self.dead.pop()
        assert dead.chunk.tags is not None, "rows bore tags"
        return dead.chunk.tags[dead.rows]

    def count_down(self) -> Iterator[None]:
        """Drop the tags of the dead rows, a bounded number a step."""
        while self.dead:
            numbers = self._next_dead()
            for at in range(0, len(numbers), _A_STEP):
                self.drop_rows(numbers[at : at + _A_STEP])
                yield

    def forget(self) -> Iterator[None]:
        """Free the memory of tags that no row has, a bounded number a step."""
        while self.dead:
            self.dead.pop()
            yield
        while self._names:
            del self._names[-_A_STEP:]
            yield
        while self._free:
            del self._free[-_A_STEP:]
            yield
        numbers = self._numbers
        while numbers:
            for _ in range(min(_A_STEP, len(numbers))):
                numbers.popitem()
            yield

    def is_borne(self, number: int) -> bool:
        """Return whether the count shows live rows with this tag."""
        return number < len(self._counts) and self._counts[number] > 0

    def name(self, number: int) -> bytes:
        return self._names[number]

    @property
    def numbers_end(self) -> int:
        """A number above all tag numbers."""
        return len(self._names)

    def names(self, start: int, end: int) -> list[bytes]:
        """Return the tags of these numbers; b"" for a number that is unused now."""
        return self._names[start:end]

    def number(self, tag: bytes) -> int:
        """Return the number of a tag; NO_TAG if no row has it."""
        number = self._numbers.get(tag)
        return NO_TAG if number is None else number

    def begin_with(self, numbers: NDArray[np.uint32], beginning: bytes) -> NDArray[np.bool_]:
        """Return which of these numbers are of tags with the prefix, shape (n,); NO_TAG is not."""
        names = self._names
        found = [number != NO_TAG and names[number].startswith(beginning) for number in numbers.tolist()]
        return np.array(found, np.bool_)
