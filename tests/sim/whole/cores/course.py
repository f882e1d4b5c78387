"""The choices of a seed about cores: how many each life has, and how they share the time."""

from __future__ import annotations

import random
from typing import NamedTuple

from tests.sim.genome import Seed, stream
from topics.store.cores.slot_map import SlotMap

_SAME = 0.6
"""Share of the lives with as many cores as the one before."""
_PACES = ((1, 1), (1, 1), (1, 5), (1, 20))
"""Weights of cores: how often one makes a pass, if others could, too."""
_RESTS_NS = (20_000, 100_000, 1_000_000, 4_000_000)
"""Times for which a core gets no CPU."""
_SPARED = 0.4
"""Share of the lives in which no single core is killed."""
_AWAY_NS = (20_000_000, 40_000_000, 100_000_000)
"""Times until a core is started again. Supervisors wait for the longest at least."""
_WITH_A_WRITE = 0.5
"""Share of the kills that come with a write of the log: what it has is done, and not answered."""
_AGAIN = 0.2
"""Share of the kills after which the next start is killed, too."""
_RESTING = (0.0, 0.0, 0.01, 0.05)
"""Shares of the passes after which a core rests."""

_NAMES = 100
"""Names of a topic of dead letters that a seed chooses from."""
_APART = 0.7
"""Share of the queues whose dead letters are on another core, unless moves of slots change that."""


class Bounds(NamedTuple):
    """The fewest and the most cores of a run."""

    fewest: int
    most: int

    @classmethod
    def parse(cls, text: str) -> Bounds:
        """Return the bounds of a text as `2..4`, or `3`. Raises: ValueError."""
        fewest, _, most = text.partition("..")
        bounds = cls(int(fewest), int(most or fewest))
        if not 1 <= bounds.fewest <= bounds.most:
            raise ValueError(f"{text} is no number of cores")
        return bounds

    def __str__(self) -> str:
        return f"{self.fewest}..{self.most}"


class Kill(NamedTuple):
    """The kill of one core."""

    core: int
    effects: int
    """The number of operations of its process after which it comes."""
    log_writes: int
    """The number of writes of its log after which it comes, before anything is answered; 0: `effects` counts."""
    away_ns: int
    again: int
    """The number of operations after which its next start is killed, too; 0: it is not."""


class Course:
    """The choices of one seed."""

    def __init__(self, seed: Seed, bounds: Bounds) -> None:
        self._seed = seed
        self.bounds = bounds

    def cores(self, life: int, before: int) -> int:
        """Return the number of cores that a life is started with. before: of the one before it; 0: none was."""
        rng = stream(self._seed, f"{life}:cores")
        if before and rng.random() < _SAME:
            return before
        return rng.randint(*self.bounds)

    def kills(self, life: int, cores: int) -> list[Kill]:
        """Return the kills of single cores in a life."""
        rng = stream(self._seed, f"{life}:core kills")
        if cores == 1 or rng.random() < _SPARED:
            return []
        return [
            Kill(
                rng.randrange(cores),
                rng.choice((rng.randint(1, 40), rng.randint(1, 300))),
                rng.randint(1, 12) if rng.random() < _WITH_A_WRITE else 0,
                rng.choice(_AWAY_NS),
                rng.randint(1, 150) if rng.random() < _AGAIN else 0,
            )
            for _ in range(rng.choice((1, 1, 2)))
        ]

    def dead_letters_of(self, queue: str) -> str:
        """Return a name of a topic, which is on another core than the queue in most lives, or in some."""
        rng = stream(self._seed, f"0:dead letters of {queue}")
        maps = [SlotMap.balanced(cores) for cores in range(max(2, self.bounds.fewest), self.bounds.most + 1)]
        names = [f"{queue}-dead-{number}" for number in range(_NAMES)]
        apart = [name for name in names if all(slots.core_of(name) != slots.core_of(queue) for slots in maps)]
        return rng.choice(apart if rng.random() < _APART else names)

    def turns(self, life: int, cores: int) -> Turns:
        return Turns(stream(self._seed, f"{life}:turns"), cores)


class Turns:
    """How the cores of one life share the time."""

    def __init__(self, rng: random.Random, cores: int) -> None:
        self._rng = rng
        slow, quick = rng.choice(_PACES)
        self._paces = [rng.choice((slow, quick)) for _ in range(cores)]
        self._resting = rng.choice(_RESTING)

    def choose(self, able: list[int]) -> int:
        """Return the core that makes the next pass, of those that have something to do."""
        if len(able) == 1:
            return able[0]
        return self._rng.choices(able, [self._paces[core] for core in able])[0]

    def rest_ns(self) -> int:
        """Return for how long a core gets no CPU after a pass."""
        if not self._resting or self._rng.random() >= self._resting:
            return 0
        return self._rng.choice(_RESTS_NS)
