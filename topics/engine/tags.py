"""The tags of one topic by number: an index row holds four bytes whatever its tag."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from topics.engine.chunk import Chunk
from topics.engine.predicate import Predicate
from topics.store.catalog import NO_TAG


class Tags:
    """Counted: a tag without live records is forgotten and its number given to another."""

    __slots__ = ("_counts", "_free", "_names", "_numbers")

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._names: list[bytes] = []
        self._counts: list[int] = []
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._numbers)

    def take(self, tag: bytes, rows: int = 1) -> int:
        """The number of `tag`, which so many more live rows bear."""
        number = self._numbers.get(tag)
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
        self._numbers[tag] = number
        return number

    def drop(self, number: int, rows: int = 1) -> None:
        """So many rows of this tag died."""
        count = self._counts[number] - rows
        assert count >= 0, "more rows of a tag died than lived"
        self._counts[number] = count
        if not count:
            del self._numbers[self._names[number]]
            self._names[number] = b""
            self._free.append(number)

    def drop_rows(self, numbers: NDArray[np.uint32]) -> None:
        """A row died for each element; NO_TAG among them is no tag."""
        for number, rows in zip(*np.unique(numbers, return_counts=True), strict=True):
            if number != NO_TAG:
                self.drop(int(number), int(rows))

    def name(self, number: int) -> bytes:
        return self._names[number]

    def matching(self, predicate: Predicate) -> NDArray[np.uint32]:
        """Numbers of the tags that match; R-DEL-8."""
        if predicate.is_prefix and not predicate.value:
            return np.fromiter(self._numbers.values(), np.uint32, len(self._numbers))
        if predicate.is_prefix:
            found = [number for tag, number in self._numbers.items() if tag.startswith(predicate.value)]
        else:
            number = self._numbers.get(predicate.value)
            found = [] if number is None else [number]
        return np.array(found, np.uint32)

    def match(self, numbers: NDArray[np.uint32], predicate: Predicate) -> NDArray[np.bool_]:
        """Which of these, of live rows, are of tags that match. It costs what they are, not what tags there are."""
        if not predicate.is_prefix:
            return np.isin(numbers, self.matching(predicate))
        each, places = np.unique(numbers, return_inverse=True)
        names = self._names
        matches = [number != NO_TAG and predicate.matches(names[number]) for number in each.tolist()]
        return np.array(matches, np.bool_)[places]

    def among(self, numbers: NDArray[np.uint32]) -> NDArray[np.bool_] | np.uint32:
        """For `rows_matching`: whether each number, and above them NO_TAG, is one of these; a single one as it is."""
        if len(numbers) == 1:
            return np.uint32(numbers[0])
        found = np.zeros(len(self._names) + 1, np.bool_)
        found[numbers] = True
        return found

    def rows_matching(self, chunk: Chunk, among: NDArray[np.bool_] | np.uint32) -> NDArray[np.intp]:
        """Live rows of the chunk that bear one of the tags that `among` was made of."""
        if chunk.tags is None or not chunk.live:
            return np.empty(0, np.intp)
        column = chunk.tags[: chunk.count]
        bears = among[np.minimum(column, len(among) - 1)] if isinstance(among, np.ndarray) else column == among
        rows = np.flatnonzero(bears)
        return rows[chunk.flags[rows] < 0x80]
