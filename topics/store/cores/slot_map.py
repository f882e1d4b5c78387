"""The slot map: the core that owns each slot, and the moves of slots to other cores."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from topics.errors import UsageError
from topics.store.cores.slots import SLOTS, slot_of


class SlotMove(NamedTuple):
    """A slot that another core gets."""

    slot: int
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class SlotMap:
    """The owner of every slot, among cores that are numbered from 0."""

    cores: int
    owners: tuple[int, ...]
    """Shape (SLOTS,): the core of each slot. A core may own none."""

    def __post_init__(self) -> None:
        assert 1 <= self.cores <= SLOTS
        assert len(self.owners) == SLOTS
        assert min(self.owners) >= 0
        assert max(self.owners) < self.cores

    @classmethod
    def balanced(cls, cores: int) -> SlotMap:
        """Return the map of a new directory: equally many slots each, up to one.

        Raises: UsageError, there cannot be so many cores.
        """
        check_cores(cores)
        return cls(cores, tuple(slot % cores for slot in range(SLOTS)))

    @classmethod
    def of_first(cls, cores: int) -> SlotMap:
        """Return the map in which core 0 owns everything, as after a time with one core.

        Raises: UsageError, there cannot be so many cores.
        """
        check_cores(cores)
        return cls(cores, (0,) * SLOTS)

    def core_of(self, name: str) -> int:
        """Return the core that owns a topic."""
        return self.owners[slot_of(name)]

    def counts(self) -> list[int]:
        """Return the number of slots that each core owns."""
        found = Counter(self.owners)
        return [found[core] for core in range(self.cores)]

    def moved_to(self, cores: int) -> SlotMap:
        """Return the balanced map for another number of cores, with the fewest moves.

        Where the slots are not divisible, those cores own one more that own the most already.
        Raises: UsageError, there cannot be so many cores.
        """
        check_cores(cores)
        have = [*self.counts(), *[0] * cores][: max(cores, self.cores)]
        base, rest = divmod(SLOTS, cores)
        targets = [base] * cores + [0] * max(0, self.cores - cores)
        for core in sorted(range(cores), key=lambda core: (-have[core], core))[:rest]:
            targets[core] += 1
        takers = [core for core in range(cores) for _ in range(targets[core] - have[core])]
        owners = list(self.owners)
        for slot in reversed(range(SLOTS)):
            owner = owners[slot]
            if have[owner] > targets[owner]:
                have[owner] -= 1
                owners[slot] = takers.pop()
        assert not takers, "as many slots are given as are taken"
        return SlotMap(cores, tuple(owners))

    def moves_to(self, wanted: SlotMap) -> list[SlotMove]:
        """Return the slots whose owner is another one in `wanted`, in their order."""
        both = enumerate(zip(self.owners, wanted.owners, strict=True))
        return [SlotMove(slot, source, target) for slot, (source, target) in both if source != target]


def check_cores(cores: int) -> None:
    """Check a number of cores. Raises: UsageError."""
    if not 1 <= cores <= SLOTS:
        raise UsageError(f"cores is {cores}: use 1 to {SLOTS}, which is the number of slots that cores share")
