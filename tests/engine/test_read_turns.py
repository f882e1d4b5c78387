"""Many large reads at once: each pass renders so much, and everybody has his turn."""

from __future__ import annotations

from tests.engine.harness import Harness, records


def _full(pass_read_bytes: int) -> Harness:
    h = Harness(pass_read_bytes=pass_read_bytes)
    h.append(*("x" * 1000 for _ in range(10)))
    h.engine.flush()
    return h


def test_reads_beyond_the_bytes_of_a_pass_come_in_the_next_ones_in_turn() -> None:
    h = _full(15_000)
    answers = [h.start_diff() for _ in range(6)]
    assert [answer.given for answer in answers] == [True, True, False, False, False, False]
    assert h.loop.next_due_ms() == 0, "the loop comes back by itself"
    late = h.start_diff(limit=1)
    h.engine.flush()
    assert [answer.given for answer in answers] == [True, True, True, True, False, False]
    assert not late.given, "nobody overtakes those who wait"
    h.engine.flush()
    h.engine.flush()
    assert [answer.get().count for answer in (*answers, late)] == [10] * 6 + [1]


def test_without_a_limit_every_read_begins_at_once() -> None:
    h = _full(0)
    assert all(h.start_diff().given for _ in range(100))


def test_a_read_that_waits_for_its_turn_sees_what_came_meanwhile_and_can_be_given_up() -> None:
    h = _full(1)
    first, second, third = h.start_diff(), h.start_diff(), h.start_diff()
    assert first.given
    h.cancel()
    h.start_append(records("new"))
    h.store.log.commit(None)
    while not second.given:
        h.engine.flush()
    assert second.get().count == 11
    for _ in range(3):
        h.engine.flush()
    assert not third.given
    assert len(h.engine._core.turns) == 0


def test_cold_reads_count_when_they_begin_not_when_the_disk_has_answered() -> None:
    h = _full(15_000)
    h.store.reader.slow = True
    for _ in range(6):
        h.start_diff()
    assert len(h.store.reader.held) == 2
