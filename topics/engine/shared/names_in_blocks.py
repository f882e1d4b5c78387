"""The names of topics, however many: found by name and in order, without a long step.

A plain dict copies itself whenever it has doubled, 40 ms with 700,000 names, and a name that comes
into a list of a million or leaves it moves up to 8 MB. Creations and deletions of a pass are many.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import islice
from typing import Generic, TypeVar

from topics.engine.index.spread_dict import SpreadDict

SPREAD_FROM = 1 << 15
"""Names in one dict; further ones are spread over many. None moves: so many took 20 to 30 ms."""
NAMES_A_BLOCK = 1 << 11
NAMES_A_STEP = NAMES_A_BLOCK
"""Names that a step of `sorted_in_steps` takes: a millisecond or two."""
_SAMPLES = 8
"""Every so many of the names are sorted to find where the parts end."""
_V = TypeVar("_V")


class ByName(Generic[_V]):
    """The topics by name, or something else of each."""

    __slots__ = ("_few", "_many", "get")

    def __init__(self) -> None:
        self._few: dict[str, _V] = {}
        self._many: SpreadDict[str, _V] | None = None
        """The names that came when there were SPREAD_FROM; None if that has never been."""
        self.get: Callable[[str], _V | None] = self._few.get
        """Returns what a name has, None without it.

        It changes once there are many names. A plain dict's is C: every request asks it.
        """

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def __len__(self) -> int:
        return len(self._few) + (0 if self._many is None else len(self._many))

    def __getitem__(self, name: str) -> _V:
        return self._place(name)[name]

    def __setitem__(self, name: str, value: _V) -> None:
        if self._many is None and len(self._few) == SPREAD_FROM:
            self._many = SpreadDict({})
            self.get = self._get
        self._place(name)[name] = value

    def __delitem__(self, name: str) -> None:
        del self._place(name)[name]

    def _get(self, name: str) -> _V | None:
        assert self._many is not None, "there are many"
        found = self._few.get(name)
        return self._many.get(name) if found is None else found

    def _place(self, name: str) -> dict[str, _V]:
        """Return the dict that has the name, or gets it."""
        return self._few if self._many is None or name in self._few else self._many.place(name)


class SortedNames:
    """Names in order; they are ASCII, so this is the order of bytes."""

    __slots__ = ("_firsts", "blocks")

    def __init__(self, names: Sequence[str] = ()) -> None:
        """names: in order."""
        self.blocks: list[list[str]] = []
        """The names, in order, none of the lists empty or longer than NAMES_A_BLOCK."""
        self._firsts: list[str] = []
        self.extend(names)

    def extend(self, names: Sequence[str]) -> None:
        """Add names, in order, that come after all others."""
        size = NAMES_A_BLOCK // 2
        blocks = [list(names[at : at + size]) for at in range(0, len(names), size)]
        self.blocks += blocks
        self._firsts += [block[0] for block in blocks]

    def add(self, name: str) -> None:
        if not self.blocks:
            self.blocks.append([])
            self._firsts.append(name)
        at = self._block_of(name)
        block = self.blocks[at]
        insort(block, name)
        self._firsts[at] = block[0]
        if len(block) > NAMES_A_BLOCK:
            half = len(block) // 2
            self.blocks.insert(at + 1, block[half:])
            self._firsts.insert(at + 1, block[half])
            del block[half:]

    def remove(self, name: str) -> None:
        """Remove a name that is there."""
        at = self._block_of(name)
        block = self.blocks[at]
        del block[bisect_left(block, name)]
        if block:
            self._firsts[at] = block[0]
        else:
            del self.blocks[at], self._firsts[at]

    def from_name(self, name: str) -> Iterator[str]:
        """Yield the names from this one on."""
        number = self._block_of(name)
        for block in islice(self.blocks, number, number + 1):
            yield from islice(block, bisect_left(block, name), None)
        for block in islice(self.blocks, number + 1, None):
            yield from block

    def _block_of(self, name: str) -> int:
        """Return the index of the block that a name is in, or would be."""
        return max(bisect_right(self._firsts, name) - 1, 0)


def sorted_in_steps(names: Sequence[str]) -> Generator[None, None, SortedNames]:
    """Sort names in bounded steps.

    A sample of the names says where parts of the order end that have as many names as a step takes,
    or some more; each name is then put into its part, and the parts are sorted one by one.
    """
    found = SortedNames()
    if len(names) <= NAMES_A_STEP:
        found.extend(sorted(names))
        return found
    ends = sorted(names[:: max(1, NAMES_A_STEP // _SAMPLES)])[_SAMPLES::_SAMPLES]
    yield
    parts: list[list[str]] = [[] for _ in range(len(ends) + 1)]
    for at in range(0, len(names), NAMES_A_STEP):
        for name in names[at : at + NAMES_A_STEP]:
            parts[bisect_right(ends, name)].append(name)
        yield
    for part in parts:
        part.sort()
        found.extend(part)
        yield
    return found
