"""The slot of a name is fixed for ever, and names are spread evenly."""

from __future__ import annotations

from collections import Counter

import pytest

from topics.store.cores.slots import SLOTS, slot_of


@pytest.mark.parametrize(
    ("name", "slot"), [("a", 543), ("orders", 251), ("orders.eu:1", 645), ("x" * 255, 413), ("0", 85), ("A", 133)]
)
def test_the_slot_of_a_name_never_changes(name: str, slot: int) -> None:
    """A directory that was made with another function would find its topics in the wrong core."""
    assert slot_of(name) == slot


def test_names_that_differ_in_a_number_are_spread_over_all_slots() -> None:
    counts = Counter(slot_of(f"sensor-{number}") for number in range(100 * SLOTS))
    assert len(counts) == SLOTS
    assert min(counts.values()) > 50
    assert max(counts.values()) < 150
