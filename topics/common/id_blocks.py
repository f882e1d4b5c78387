"""Sets and dicts with topic ids as keys, however many: none of their steps is long.

A plain set or dict copies itself whenever it has doubled. With 700,000 keys that takes 30 ms, in
the middle of the operation that adds one. Ids are given out in order, so they are divided here into
blocks of neighbours, and only a block is ever copied, sorted or listed at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar, overload

IDS_A_BLOCK = 1 << 12
_SHIFT = IDS_A_BLOCK.bit_length() - 1
_V = TypeVar("_V")
_D = TypeVar("_D")


class IdSet:
    """A set of ids."""

    __slots__ = ("blocks",)

    def __init__(self, ids: Iterable[int] = ()) -> None:
        self.blocks: dict[int, set[int]] = {}
        """Ids by their block; none is empty."""
        self.update(ids)

    def __len__(self) -> int:
        return sum(map(len, self.blocks.values()))

    def __contains__(self, number: int) -> bool:
        block = self.blocks.get(number >> _SHIFT)
        return block is not None and number in block

    def __iter__(self) -> Iterator[int]:
        """Yield the ids in order. What changes meanwhile may be among them or not."""
        for at in sorted(self.blocks):
            yield from sorted(self.blocks.get(at, ()))

    def add(self, number: int) -> None:
        try:
            self.blocks[number >> _SHIFT].add(number)
        except KeyError:
            self.blocks[number >> _SHIFT] = {number}

    def add_all(self, numbers: Sequence[int]) -> None:
        """Add ids, at least one. Those of a pass to many topics are mostly of one block."""
        first = min(numbers) >> _SHIFT
        if first == max(numbers) >> _SHIFT:
            self.blocks.setdefault(first, set()).update(numbers)
        else:
            self.update(numbers)

    def update(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.add(number)

    def discard(self, number: int) -> None:
        block = self.blocks.get(number >> _SHIFT)
        if block is not None:
            block.discard(number)
            if not block:
                del self.blocks[number >> _SHIFT]


class IdDict(Generic[_V]):
    """A dict from ids. The methods it has behave as a dict's, but the order is that of blocks."""

    __slots__ = ("blocks",)

    def __init__(self) -> None:
        self.blocks: dict[int, dict[int, _V]] = {}
        """Items by the block of their id; none is empty."""

    def __len__(self) -> int:
        return sum(map(len, self.blocks.values()))

    def __bool__(self) -> bool:
        return bool(self.blocks)

    def __contains__(self, number: int) -> bool:
        block = self.blocks.get(number >> _SHIFT)
        return block is not None and number in block

    def __getitem__(self, number: int) -> _V:
        return self.blocks[number >> _SHIFT][number]

    @overload
    def get(self, number: int) -> _V | None: ...

    @overload
    def get(self, number: int, default: _D) -> _V | _D: ...

    def get(self, number: int, default: _D | None = None) -> _V | _D | None:
        block = self.blocks.get(number >> _SHIFT)
        return default if block is None else block.get(number, default)

    def __setitem__(self, number: int, value: _V) -> None:
        self.blocks.setdefault(number >> _SHIFT, {})[number] = value

    def setdefault(self, number: int, value: _V) -> _V:
        return self.blocks.setdefault(number >> _SHIFT, {}).setdefault(number, value)

    def __delitem__(self, number: int) -> None:
        block = self.blocks[number >> _SHIFT]
        del block[number]
        if not block:
            del self.blocks[number >> _SHIFT]

    def pop(self, number: int) -> _V | None:
        """Remove an id; return its value, None if it was absent."""
        value = self.get(number)
        if value is not None:
            del self[number]
        return value

    def __iter__(self) -> Iterator[int]:
        """Yield the ids; what changes meanwhile is among them or not."""
        for at in list(self.blocks):
            yield from list(self.blocks.get(at, ()))

    def lists(self) -> Iterator[list[_V]]:
        """Yield the values, a block at a time. What changes meanwhile is among them or not."""
        for at in list(self.blocks):
            yield list(self.blocks.get(at, {}).values())

    def values(self) -> Iterator[_V]:
        """Yield the values as `lists` does."""
        for some in self.lists():
            yield from some
