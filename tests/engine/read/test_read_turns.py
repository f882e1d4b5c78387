"""Many large reads at once: each pass renders so much, and each reader gets its turn."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.harness import Answer, Harness, records
from topics.common import memory
from topics.common.memory import GrowthWatch, MemoryReturns, let_go, note_held
from topics.engine.read import shared_reads
from topics.engine.shared.outside import NOTHING_OUTSIDE, Outside
from topics.errors import RequestError
from topics.store.read.render_json import JsonRenderer


def _full(pass_read_bytes: int, outside: Outside = NOTHING_OUTSIDE) -> Harness:
    h = Harness(outside, pass_read_bytes=pass_read_bytes)
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
    assert [answer.given for answer in answers] == [True] * 3 + [False] * 3
    h.engine.flush()
    assert [answer.given for answer in answers] == [True] * 5 + [False]
    assert not late.given, "nobody overtakes those who wait"
    h.engine.flush()
    h.engine.flush()
    assert [answer.get().count for answer in (*answers, late)] == [10] * 6 + [1]


def test_a_read_that_exceeds_the_bytes_of_a_pass_uses_up_those_of_the_next_ones() -> None:
    """One of 8 MB and the next one were rendered in the pass of the write that woke them."""
    h = _full(2_500)
    answers = [h.start_diff() for _ in range(3)]
    given = []
    while not answers[-1].given:
        given.append(sum(answer.given for answer in answers))
        assert h.loop.next_due_ms() == 0
        h.engine.flush()
    assert given == [1] * 4 + [2] * 4, "11 KB each"


def test_a_very_large_read_uses_up_some_passes_and_no_more() -> None:
    h = _full(1)
    h.start_diff()
    other = h.start_diff()
    passes = 0
    while not other.given:
        h.engine.flush()
        passes += 1
    assert passes == 17


def _long(monkeypatch: pytest.MonkeyPatch) -> tuple[Harness, list[int]]:
    """24 records of 300 KB, and the bytes of frames that each call renders."""
    h = Harness(pass_read_bytes=1 << 20, max_batch_bytes=16 << 20)
    h.append(*("x" * 300_000 for _ in range(24)), tag="some")
    rendered: list[int] = []
    add = JsonRenderer.add

    def counted(renderer: JsonRenderer, data: memoryview, base: int, *columns: Any) -> int:
        rendered.append(int(columns[1].sum()))
        return add(renderer, data, base, *columns)

    monkeypatch.setattr(JsonRenderer, "add", counted)
    return h, rendered


def test_a_long_read_is_rendered_in_several_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 8 MB took 18 to 27 ms in one pass."""
    h, rendered = _long(monkeypatch)
    answer = h.start_diff(max_batch_bytes=16 << 20)
    passes = [sum(rendered)]
    while not answer.given:
        h.engine.flush()
        passes.append(sum(rendered) - sum(passes))
    assert max(passes) <= 2 << 20
    assert sum(passes) > 24 * 300_000
    result = answer.get()
    assert (result.count, result.next_from_seq, result.scanned) == (24, 24, 24)
    assert [record["$seq"] for record in json.loads(b"[%b]" % result.records)] == list(range(1, 25))


@pytest.mark.parametrize(
    ("query", "count"),
    [({"limit": 10}, 10), ({"limit": 24}, 24), ({"max_batch_bytes": 2_800_000}, 9), ({"max_batch_bytes": 1}, 1)],
)
def test_a_long_read_keeps_its_bounds(query: dict[str, int], count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    h, rendered = _long(monkeypatch)
    answer = h.start_diff(1, **{"max_batch_bytes": 16 << 20, **query})
    for _ in range(20):
        h.engine.flush()
    result = answer.get()
    assert (result.count, result.next_from_seq) == (min(count, 23), 1 + min(count, 23))
    assert sum(rendered) <= 300_100 * count


@pytest.mark.parametrize("loss", [False, True])
def test_what_goes_during_a_long_read_is_left_out_or_ends_it(loss: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    h, _rendered = _long(monkeypatch)
    answer = h.start_diff(max_batch_bytes=16 << 20)
    assert not answer.given
    if loss:
        h.put(cap_records=2)
    else:
        h.start_delete(before_seq=21)
        h.engine.flush()
        h.store.log.commit(None)
    for _ in range(20):
        h.engine.flush()
    result = answer.get()
    seqs = [record["$seq"] for record in json.loads(b"[%b]" % result.records)]
    begun = [seq for seq in seqs if seq <= 20]
    assert begun == list(range(1, len(begun) + 1))
    assert 3 <= len(begun) <= 12
    assert seqs[len(begun) :] == ([] if loss else [21, 22, 23, 24])
    assert result.next_from_seq == seqs[-1]


def _in_progress(h: Harness, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note the bytes of answers under way, whenever some are rendered: those that have begun and are not given."""
    begun: dict[int, JsonRenderer] = {}
    under_way = list[int]()
    add, records_of = JsonRenderer.add, JsonRenderer.records

    def adding(renderer: JsonRenderer, *columns: Any) -> int:
        begun[id(renderer)] = renderer
        result = add(renderer, *columns)
        under_way.append(sum(each.size for each in begun.values()))
        return result

    def giving(renderer: JsonRenderer) -> bytes:
        begun.pop(id(renderer), None)
        return records_of(renderer)

    monkeypatch.setattr(JsonRenderer, "add", adding)
    monkeypatch.setattr(JsonRenderer, "records", giving)
    return under_way


@pytest.mark.parametrize("query", [{}, {"nodes": [b"me"]}])
def test_long_reads_wait_until_there_is_room_for_their_answers(
    query: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """400 long polls of 7 MB, each with a cursor of its own, were all rendered a part at a time: 2.4 GB."""
    h = Harness(pass_read_bytes=1 << 20, max_batch_bytes=8 << 20, max_client_bytes=16 * (20 << 20))
    h.append(*("x" * 300_000 for _ in range(30)), node=b"other")
    under_way = _in_progress(h, monkeypatch)
    waiting = [h.start_diff(at % 4, max_batch_bytes=(8 << 20) - at, **query) for at in range(20)]
    small = h.start_diff(limit=1)
    given_up = h.start_diff(max_batch_bytes=8 << 20)
    h.cancel()
    passes = 0
    while not all(answer.given for answer in waiting):
        h.engine.flush()
        passes += 1
        assert passes < 1000
        if passes == 40 and not query:
            assert small.given, "others read meanwhile"
            assert sum(answer.given for answer in waiting) < 10
    assert max(under_way) <= 20 << 20
    assert {answer.get().count for answer in waiting} == {27}
    assert not given_up.given
    while h.engine._core.turns:
        h.engine.flush()
    assert h.engine._core.turns.held == 0


def test_who_gives_up_a_read_without_room_leaves_it_to_others() -> None:
    h = Harness(pass_read_bytes=1 << 20, max_batch_bytes=8 << 20, max_client_bytes=16)
    h.append(*("x" * 300_000 for _ in range(24)))
    first = h.start_diff(max_batch_bytes=8 << 20)
    given_up = h.start_diff(1, max_batch_bytes=8 << 20)
    for _ in range(4):
        h.engine.flush()
    h.cancel()
    other = h.start_diff(2, max_batch_bytes=8 << 20)
    for _ in range(40):
        h.engine.flush()
    assert [answer.given for answer in (first, given_up, other)] == [True, False, True]
    assert h.engine._core.turns.held == 0


def test_what_reads_without_room_wait_for_is_as_it_is_once_they_begin() -> None:
    h = Harness(pass_read_bytes=1 << 20, max_batch_bytes=8 << 20, max_client_bytes=16)
    h.append(*("x" * 300_000 for _ in range(24)))
    first, second, third = (h.start_diff(at, max_batch_bytes=8 << 20) for at in range(3))
    h.delete(before_seq=23)
    for _ in range(40):
        h.engine.flush()
    assert first.get().next_from_seq == 24
    assert [(answer.get().count, answer.get().next_from_seq) for answer in (second, third)] == [(2, 24)] * 2
    h.engine.delete_topic("t", if_empty=False, done=Answer())
    assert h.engine._core.turns.held == 0


def test_no_read_begins_while_what_was_dropped_is_not_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    """600 long polls of 8 MB, with nodes of their own and never taken, made 1.7 GB of 1 GiB."""
    monkeypatch.setattr(memory, "_growth", None)
    monkeypatch.setattr(memory, "_returns", None)
    due: list[Callable[[], None]] = []
    returns = MemoryReturns(lambda _ns, step: due.append(step))
    watch = GrowthWatch(1 << 30, lambda: None, 30 << 20)
    held = [bytes(8 << 20) for _ in range(5)]
    for part in held:
        note_held(part)
    h = _full(10_000, Outside(is_memory_short=lambda: watch.is_short(returns.bytes)))
    assert h.start_diff().given, "in a pass that has begun"
    waiting = h.start_diff()
    for _ in range(5):
        h.engine.flush()
    assert not waiting.given, "40 MiB of 30 are held"
    found = watch.begin_look()
    while held:
        let_go(held.pop())
    found(0)
    for _ in range(5):
        h.engine.flush()
    assert not waiting.given, "none is held, and none has been returned"
    h.advance_ms(0)
    assert h.loop.next_due_ms() == 1, "the return of memory makes passes, and this one where there is none"
    while returns:
        due.pop(0)()
    h.engine.flush()
    assert waiting.given


@pytest.mark.parametrize("node", [None, b"another"])
def test_a_filter_by_nodes_that_finds_nothing_lets_others_go_first(node: bytes | None) -> None:
    """R-MATCH-6: a read of 1,000,000 records without nodes took one pass of 20 ms, which grew with the topic."""
    h = Harness(pass_read_bytes=10_000, max_filter_records=1_000_000)
    for _ in range(8):
        h.append(*range(1024), node=node)
    h.engine.flush()
    answer = h.start_diff(nodes=[b"me"], only_nodes=True)
    other = h.start_diff(limit=1)
    passes = 0
    while not answer.given:
        h.engine.flush()
        passes += 1
    assert passes >= 2
    assert other.given
    assert (answer.get().count, answer.get().next_from_seq) == (0, 8 * 1024)


def test_a_filter_by_nodes_looks_at_a_bounded_number_of_records_without_nodes() -> None:
    """R-MATCH-6."""
    h = Harness(max_filter_records=3000)
    for _ in range(8):
        h.append(*range(1024))
    result = h.diff(nodes=[b"me"], only_nodes=True)
    assert (result.count, result.next_from_seq, result.caught_up) == (0, 3 * 1024, False)


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
    while h.engine._core.turns:
        h.engine.flush()
    assert not third.given
    assert len(h.engine._core.turns) == 0


def test_cold_reads_count_when_they_begin_not_when_the_disk_has_answered() -> None:
    h = _full(15_000)
    h.store.reader.slow = True
    for _ in range(6):
        h.start_diff()
    assert len(h.store.reader.held) == 2


def test_long_polls_that_one_write_wakes_take_turns_and_share_the_bytes() -> None:
    h = Harness(pass_read_bytes=30_000)
    h.append("first")
    waiting = [h.start_diff(1, wait_ms=1000) for _ in range(10)]
    other = h.start_diff(1, wait_ms=1000, include_tags=True)
    h.append("y" * 9_000)
    for _ in range(20):
        before = sum(answer.given for answer in waiting)
        h.engine.flush()
        assert sum(answer.given for answer in waiting) - before <= 3, "some of them a pass"
    results = [answer.get() for answer in waiting]
    assert {id(result.records) for result in results} == {id(results[0].records)}
    assert other.get().count == 1
    assert not h.engine._reads._results, "nothing is kept once nobody waits for a turn"


def test_long_polls_that_leave_out_their_own_share_the_bytes_in_later_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """600 of them for 8 MB each had copies of their own: 1.7 GB."""
    monkeypatch.setattr(shared_reads, "_KEPT_BYTES", 20_000)  # two of these answers
    h = Harness(pass_read_bytes=30_000)
    h.append("first")
    waiting = [h.start_diff(1, wait_ms=1000, nodes=[b"n%d" % number]) for number in range(20)]
    h.append("y" * 9_000)
    while not waiting[-1].given:
        h.engine.flush()
    assert {id(answer.get().records) for answer in waiting[:-4]} == {id(waiting[0].get().records)}


@pytest.mark.parametrize("names", [1, 5, 999])
def test_long_polls_with_names_of_their_own_wait_for_one_read_of_the_disk(names: int) -> None:
    """Each read 8 MB of its own until the first had come, and searched them for each of its names: 4 ms."""
    h = Harness(pass_read_bytes=30_000)
    h.append("first")
    h.store.reader.slow = True
    waiting = [h.start_diff(1, wait_ms=1000, nodes=[b"%d-%d" % (at, n) for n in range(names)]) for at in range(40)]
    h.append("y" * 3_000, record_node="other")
    for _ in range(100):
        h.engine.flush()
    assert not any(answer.given for answer in waiting)
    assert len(h.store.reader.held) == 1
    h.cancel()
    h.store.reader.release()
    for _ in range(400):
        h.engine.flush()
    assert [answer.given for answer in waiting] == [True] * 39 + [False]
    assert len({id(answer.get().records) for answer in waiting[:-1]}) == 1
    assert not h.store.reader.held


def test_who_waits_for_the_read_of_others_gets_no_record_that_is_deleted_meanwhile() -> None:
    h = Harness(pass_read_bytes=20_000)
    h.append("first")
    h.store.reader.slow = True
    waiting = [h.start_diff(1, wait_ms=1000, nodes=[b"n%d" % at]) for at in range(8)]
    h.append("second", "y" * 9_000)
    for _ in range(40):
        h.engine.flush()
    assert len(h.store.reader.held) == 1
    h.store.reader.release()
    assert not waiting[-1].given, "its turn has not come"
    h.store.reader.slow = False
    h.delete(3)
    for _ in range(40):
        h.engine.flush()
    assert waiting[-1].get().count == 1


def test_who_leaves_out_the_node_of_a_record_reads_by_itself() -> None:
    h = Harness()
    h.append("first")
    h.store.reader.slow = True
    waiting = [h.start_diff(1, wait_ms=1000, nodes=[b"n%d" % at, b"a", b"b", b"c", b"d"]) for at in range(8)]
    mine = h.start_diff(1, wait_ms=1000, nodes=[b"writer", b"a", b"b", b"c", b"d"])
    h.append("second", record_node="writer")
    while h.store.reader.held:
        h.store.reader.release()
        h.engine.flush()
    assert all(answer.get().count == 1 for answer in waiting)
    assert not mine.given


@pytest.mark.parametrize("names", [1, 999])
def test_long_polls_that_one_write_wakes_look_in_several_passes(names: int) -> None:
    """800 of them with 999 nodes each took one pass of 66 ms."""
    h = Harness(pass_read_bytes=10 * 16_384)
    h.append("first")
    waiting = [h.start_diff(1, wait_ms=1000, nodes=[b"%d-%d" % (at, n) for n in range(names)]) for at in range(60)]
    h.start_append(records("second"))
    h.store.log.commit(None)
    h.flush_until_given(waiting, 14, in_order=True)


def test_long_polls_of_a_topic_that_goes_are_answered_some_a_pass() -> None:
    """All were answered in the pass of the delete."""
    h = Harness(pass_read_bytes=10 * 16_384)
    h.append("first")
    waiting = [h.start_diff(1, wait_ms=1000) for _ in range(60)]
    h.engine.delete_topic("t", if_empty=False, done=Answer())
    h.engine.flush()
    h.store.log.commit(None)
    h.flush_until_given(waiting, 14)
    for answer in waiting:
        with pytest.raises(RequestError, match="does not exist"):
            answer.get()


def test_many_small_answers_to_woken_readers_come_in_several_passes() -> None:
    h = Harness(pass_read_bytes=20_000)
    h.append("first")
    waiting = [h.start_diff(1, wait_ms=1000) for _ in range(50)]
    h.start_append(records("second"))
    h.store.log.commit(None)
    given = []
    while given[-1:] != [50]:
        h.engine.flush()
        given.append(sum(answer.given for answer in waiting))
    assert given[0] <= 20, "what is left of one budget, and the next"
    assert len(given) >= 4


def test_a_lone_long_poll_is_answered_in_the_pass_that_wakes_it() -> None:
    h = Harness(pass_read_bytes=1)
    h.append("first")
    answer = h.start_diff(1, wait_ms=1000)
    h.start_append(records("second"))
    h.engine.flush()
    h.store.log.commit(None)
    h.engine.flush()
    assert answer.get().count == 1


def test_a_woken_reader_may_leave_and_its_topic_go_before_its_turn() -> None:
    h = Harness(pass_read_bytes=1)
    h.append("first")
    first = h.start_diff(1, wait_ms=1000)
    second = h.start_diff(1, wait_ms=1000)
    h.cancel()
    before, third = h.start_diff(1, wait_ms=1000), h.start_diff(1, wait_ms=1000)
    h.start_append(records("second"))
    h.engine.flush()
    h.store.log.commit(None)
    while not before.given:
        h.engine.flush()
    assert (first.given, third.given) == (True, False)
    h.engine.delete_topic("t", if_empty=False, done=Answer())
    h.store.log.commit(None)
    h.engine.flush()
    assert not second.given
    while not third.given:
        h.engine.flush()
    with pytest.raises(RequestError, match="does not exist"):
        third.get()


def test_results_kept_between_passes_are_few() -> None:
    h = Harness(pass_read_bytes=1)
    h.append(*("z" * 100 for _ in range(200)))
    waiting = [h.start_diff(200, wait_ms=1000, limit=limit) for limit in range(1, 200)]
    h.start_append(records(*("z" for _ in range(200))))
    h.store.log.commit(None)
    kept = []
    while not waiting[-1].given:
        h.engine.flush()
        kept.append(len(h.engine._reads._results))
    assert 1 < max(kept) <= 64
    assert [answer.get().count for answer in waiting] == list(range(1, 200))
