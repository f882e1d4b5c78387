"""Invariants between the numbers of a topic, whatever changes them."""

from __future__ import annotations

import random

from topics.engine.state.topic_numbers import NO_RESERVATION, TopicNumbers


def test_up_to_ample_no_write_needs_a_reservation_for_itself_or_ahead_of_the_next_one() -> None:
    """R-DUR-6: the quick bound is never above what the rules say."""
    rng = random.Random(1)
    numbers = TopicNumbers()
    numbers.need_reservation(True)
    asked = 0
    for _ in range(20_000):
        numbers.reserve(rng.choice((rng.randrange(300), rng.randrange(1 << 14), rng.randrange(1 << 40))))
        near = rng.choice((numbers.ample, numbers.reserved, rng.randrange(numbers.reserved + 2)))
        first = max(1, near + rng.randrange(-5, 6))
        count = rng.choice((1, 1, 2, 1000))
        numbers.next_seq = first
        if first + count - 1 <= numbers.ample:
            asked += 1
            assert not numbers.lacks(count)
            assert not numbers.is_short(first)
    assert asked > 1000


def test_most_of_a_reservation_is_ample() -> None:
    for reserved in (256, 1000, 1 << 20, 1 << 30):
        numbers = TopicNumbers()
        numbers.need_reservation(True)
        numbers.reserve(reserved)
        assert numbers.ample >= reserved * 3 // 4


def test_a_class_without_reservations_has_ample_seqs() -> None:
    numbers = TopicNumbers()
    assert numbers.ample == numbers.reserved == NO_RESERVATION
    numbers.need_reservation(True)
    assert numbers.ample <= numbers.reserved == 0
    numbers.need_reservation(False)
    assert numbers.ample == numbers.reserved == NO_RESERVATION


def test_a_reservation_ahead_of_use_does_not_count_once_a_snapshot_has_released_it() -> None:
    numbers = TopicNumbers()
    numbers.need_reservation(True)
    upto = numbers.next_reservation(1, 1)
    generation = numbers.reserve_ahead()
    numbers.release_reservation()
    numbers.reserved_ahead(generation, upto)
    assert numbers.reserved == 0
    numbers.next_reservation(1, 1)
    numbers.reserved_ahead(numbers.reserve_ahead(), upto)
    assert numbers.reserved == upto


def test_time_never_goes_back_within_a_topic() -> None:
    """R-SEQ: the clock may."""
    numbers = TopicNumbers()
    numbers.take_seqs(1, 10, numbers.stamp(2000))
    assert numbers.stamp(1000) == 2000
    assert numbers.stamp(3000) == 3000
