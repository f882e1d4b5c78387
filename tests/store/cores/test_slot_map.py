"""The slot map is balanced, and another number of cores moves as few slots as can be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.amount import examples
from topics.errors import UsageError
from topics.store.cores.slot_map import SlotMap
from topics.store.cores.slots import SLOTS, slot_of

CORES = st.one_of(st.integers(1, 9), st.integers(1, SLOTS))
"""Few cores as often as any number."""


@st.composite
def maps(draw: st.DrawFn) -> SlotMap:
    """Any map, also one that is far from balanced."""
    cores = draw(CORES)
    owners = draw(st.lists(st.integers(0, cores - 1), min_size=1, max_size=40))
    return SlotMap(cores, tuple(owners[slot * len(owners) // SLOTS] for slot in range(SLOTS)))


def most_kept(have: list[int], cores: int) -> int:
    """The most slots that any balanced map leaves where they are: each core keeps up to its share,
    and as many cores have one more as the division leaves over."""
    base, rest = divmod(SLOTS, cores)
    kept = have[:cores]
    return sum(min(count, base) for count in kept) + min(rest, sum(count > base for count in kept))


def is_balanced(of: SlotMap) -> bool:
    return max(of.counts()) - min(of.counts()) <= 1


@examples(400)
@given(maps(), CORES)
def test_another_number_of_cores_gets_a_balanced_map_with_the_fewest_moves(before: SlotMap, cores: int) -> None:
    after = before.moved_to(cores)
    assert after.cores == cores
    assert is_balanced(after)
    assert len(before.moves_to(after)) == SLOTS - most_kept(before.counts(), cores)
    assert before.moved_to(cores) == after


@examples(100)
@given(CORES, CORES)
def test_a_slot_moves_between_balanced_maps_only_to_a_new_core_or_from_an_old_one(before: int, after: int) -> None:
    first = SlotMap.balanced(before)
    for move in first.moves_to(first.moved_to(after)):
        assert move.target >= before if after >= before else move.source >= after


@examples(60)
@given(st.lists(CORES, min_size=1, max_size=6))
def test_any_sequence_of_counts_leaves_a_balanced_map(counts: list[int]) -> None:
    of = SlotMap.of_first(1)
    for cores in counts:
        of = of.moved_to(cores)
        assert is_balanced(of)
    assert sum(of.counts()) == SLOTS


def test_the_same_number_of_cores_moves_nothing() -> None:
    for cores in (1, 2, 3, 7, 64, SLOTS):
        of = SlotMap.balanced(cores)
        assert is_balanced(of)
        assert of.moved_to(cores) == of


def test_two_cores_share_the_slots_of_one() -> None:
    moves = SlotMap.of_first(1).moves_to(SlotMap.of_first(1).moved_to(2))
    assert len(moves) == SLOTS // 2
    assert {(move.source, move.target) for move in moves} == {(0, 1)}


def test_a_topic_is_where_its_slot_is() -> None:
    of = SlotMap.balanced(3)
    assert of.core_of("orders") == of.owners[slot_of("orders")] == slot_of("orders") % 3


@pytest.mark.parametrize("cores", [0, -1, SLOTS + 1])
def test_a_number_of_cores_that_cannot_be_is_refused_with_the_bounds(cores: int) -> None:
    for make in (SlotMap.balanced, SlotMap.of_first, SlotMap.balanced(2).moved_to):
        with pytest.raises(UsageError, match=rf"^cores is {cores}: use 1 to 1024, which is the number of slots"):
            make(cores)
