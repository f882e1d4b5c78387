"""The names of topics, however many: found by name and in order, without a long step.

A plain dict copies itself whenever it has doubled, 40 ms with 700,000 names, and a name that comes
into a list of a million or leaves it moves up to 8 MB. Creations and deletions of a pass are many.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from topics.engine.index.spread_dict import SpreadDict
from topics.engine.state.topic import Topic

SPREAD_FROM = 1 << 15
"""Names from which on they are spread over many dicts; moving so many takes 5 ms."""
NAMES_A_BLOCK = 1 << 11


class TopicsByName:
    """The topics by name."""

    __slots__ = ("_few", "_many", "get")

    def __init__(self) -> None:
        self._few: dict[str, Topic] = {}
        self._many: SpreadDict[str, Topic] | None = None
        self.get: Callable[[str], Topic | None] = self._few.get
        """Returns the topic with a name, None without one.

        It changes once there are many topics. A plain dict's is C: every request asks it.
        """

    def __len__(self) -> int:
        return len(self._few if self._many is None else self._many)

    def __getitem__(self, name: str) -> Topic:
        return (self._few if self._many is None else self._many.place(name))[name]

    def __setitem__(self, name: str, topic: Topic) -> None:
        if self._many is None and len(self._few) == SPREAD_FROM:
            self._many = SpreadDict(self._few)
            self.get = self._many.get
            self._few = {}
        (self._few if self._many is None else self._many.place(name))[name] = topic

    def __delitem__(self, name: str) -> None:
        del (self._few if self._many is None else self._many.place(name))[name]


class SortedNames:
    """Names in order; they are ASCII, so this is the order of bytes."""

    __slots__ = ("_firsts", "blocks")

    def __init__(self, names: Sequence[str] = ()) -> None:
        """names: in order."""
        size = NAMES_A_BLOCK // 2
        self.blocks = [list(names[at : at + size]) for at in range(0, len(names), size)]
        """The names, in order, none of the lists empty or longer than NAMES_A_BLOCK."""
        self._firsts = [block[0] for block in self.blocks]

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
