"""The lives that are stored, because they have shown a feature that no life before them had."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heapreplace
from pathlib import Path
from typing import NamedTuple

import msgspec

from tests.sim.genome import Genome
from tests.sim.hunt.blocks import Blocks
from tests.sim.hunt.life_changes import Shape

_FILE = "lives.jsonl"
_RARE = 30
"""A feature that more runs than this have shown is not rare: any stored life shows it."""
_FADES = 0.5
"""Factor of a feature's weight for each choice of a life that shows it."""
_PHASES = 3


class Told(NamedTuple):
    """The features of a run. frames: functions that were running at an end or a fault, with their
    lines.
    """

    features: set[int]
    frames: set[str]


class Stored(msgspec.Struct):
    """A line of the file: a life, the blocks that ran in each phase as the digits of a number, and
    its frames.
    """

    genome: str
    phases: list[str]
    frames: list[str]


class Header(msgspec.Struct):
    """The first line: sum, first and last block of each function of the code that the lives have run on."""

    functions: dict[str, tuple[int, int, int]]


class Kept:
    """One life. own: the features that it was the first to show; rare: those that few lives had
    shown by then.
    """

    def __init__(self, genome: Genome, shape: Shape, own: frozenset[int], rare: frozenset[int], told: Told) -> None:
        self.genome = genome
        self.shape = shape
        self.own = own
        self.rare = rare
        numbers = [0] * _PHASES
        for feature in told.features:
            if feature >> 32 == 0 and not feature & 7:
                numbers[(feature >> 3 & 3) - 1] |= 1 << (feature >> 5)
        self.stored = Stored(str(genome), [f"{number:x}" for number in numbers], sorted(told.frames))
        self.changed = 0
        """Number of times that it was chosen to be changed."""


class Corpus:
    """The corpus: in memory, and as lines of text in a directory, if there is one."""

    def __init__(self, directory: Path | None, blocks: Blocks | None = None, *, read_only: bool = False) -> None:
        self._directory = directory
        self._read_only = read_only
        self._functions = {} if blocks is None else blocks.functions
        self.kept: list[Kept] = []
        self.hits: Counter[int] = Counter()
        """Number of runs in which each feature was seen."""

    def read(self) -> tuple[list[Genome], bool]:
        """Return the lives of earlier hunts, to be run again: the code may have changed.

        If it has, those lives come first that ran the functions which have changed since, in many
        ways (True).
        """
        path = self._directory / _FILE if self._directory is not None else None
        if path is None or not path.exists():
            return [], False
        header, *lines = path.read_bytes().splitlines()
        known = msgspec.json.decode(header, type=Header).functions
        lives = [msgspec.json.decode(line, type=Stored) for line in lines]
        changed = {name for name, (text_sum, _, _) in known.items() if self._sum(name) != text_sum}
        if changed:
            lives = by_what_they_ran(lives, changed, known)
        return [Genome.parse(life.genome) for life in lives], bool(changed)

    def _sum(self, name: str) -> int:
        function = self._functions.get(name)
        return -1 if function is None else function.sum

    def add(self, genome: Genome, shape: Shape, told: Told) -> int:
        """Note the features of a run. Return how many are new."""
        features = told.features
        own = frozenset(feature for feature in features if feature not in self.hits)
        self.hits.update(features)
        if own:
            rare = frozenset(feature for feature in features if self.hits[feature] <= _RARE)
            self.kept.append(Kept(genome, shape, own, rare, told))
        return len(own)

    def choose(self, rng: random.Random) -> Kept:
        """Choose a life to be changed: preferably one with features that few runs have shown, and
        not always the same.
        """
        hits = self.hits
        weights = [sum(1 / hits[feature] for feature in kept.own) / (1 + kept.changed) for kept in self.kept]
        kept = rng.choices(self.kept, weights)[0]
        kept.changed += 1
        return kept

    def write(self) -> None:
        """Write the lives that together show all features."""
        if self._directory is None or self._read_only:
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        header = Header({name: (f.sum, f.blocks.start, f.blocks.stop) for name, f in self._functions.items()})
        path = self._directory / _FILE
        temporary = path.with_suffix(".tmp")
        lines: Iterable[Header | Stored] = [header, *(kept.stored for kept in self.smallest())]
        temporary.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
        temporary.replace(path)

    def smallest(self) -> list[Kept]:
        """Return lives that show all rare features: newest first, each with a feature that the
        others lack.
        """
        shown: set[int] = set()
        chosen: list[Kept] = []
        for kept in reversed(self.kept):
            if not kept.rare <= shown:
                shown |= kept.rare
                chosen.append(kept)
        return chosen[::-1]


def by_what_they_ran(
    lives: Sequence[Stored], changed: set[str], known: dict[str, tuple[int, int, int]]
) -> list[Stored]:
    """Return lives, chosen greedily, that together ran most of the changed functions.

    Both blocks count and lines that were running at an end or a fault. A feature that few lives
    have shown weighs more, and one of chosen lives less with each.
    """
    wanted = sum(1 << block for name in changed for block in range(known[name][1], known[name][2]))
    shows: list[set[str]] = []
    for life in lives:
        blocks = [int(number, 16) & wanted for number in life.phases]
        found = {f"{phase} {block}" for phase, number in enumerate(blocks) for block in _ones(number)}
        found |= {frame for frame in life.frames if frame.partition(" ")[2].rpartition(":")[0] in changed}
        shows.append(found)
    count = Counter(feature for found in shows for feature in found)
    weight = {feature: 1 / number for feature, number in count.items()}
    # Weights only fall: an old sum is no less than the present one, and is computed anew if it may
    # be the largest.
    left = [(-sum(map(weight.__getitem__, found)), index) for index, found in enumerate(shows)]
    heapify(left)
    ordered: list[Stored] = []
    while left:
        index = left[0][1]
        now = (-sum(map(weight.__getitem__, shows[index])), index)
        if now > left[0]:
            heapreplace(left, now)
            continue
        heappop(left)
        ordered.append(lives[index])
        for feature in shows[index]:
            weight[feature] *= _FADES
    return ordered


def _ones(number: int) -> list[int]:
    return [index for index, digit in enumerate(reversed(f"{number:b}")) if digit == "1"]
