"""Reading from a cursor: paging, budgets, the fields of an answer, and waiting for more."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.conftest import MakeWorld
from tests.contract.world.world import Connection, World, seqs, tombstone


def poll(world: World, from_seq: int = 0, wait_ms: int = 10_000, topic: str = "t", **fields: Any) -> Connection:
    """A long poll under way."""
    return world.ask("POST", f"/v0/topics/{topic}/diff", {"from_seq": from_seq, "wait_ms": wait_ms, **fields})


# --- at once --------------------------------------------------------------------------------------------------------
def test_a_read_answers_records_and_where_to_go_on(world: World) -> None:
    """7.6: exactly these fields."""
    world.write("t", "a", "b", "c")
    page = world.diff("t", 1)
    stamp = page["records"][0]["$ts"]
    page.pop("performance")
    assert page == {
        "topic": "t", "records": [{"$seq": 2, "$ts": stamp, "data": "b"}, {"$seq": 3, "$ts": stamp, "data": "c"}],
        "next_from_seq": 3, "head_seq": 3, "earliest_seq": 1, "caught_up": True, "tombstone": None, "lag": 0,
    }  # fmt: skip


def test_a_read_of_an_empty_topic_is_caught_up(world: World) -> None:
    """7.6: at zero."""
    world.put("t")
    page = world.diff("t")
    page.pop("performance")
    assert page == {
        "topic": "t", "records": [], "next_from_seq": 0, "head_seq": 0, "earliest_seq": 1, "caught_up": True,
        "tombstone": None, "lag": 0,
    }  # fmt: skip


def test_a_read_never_creates(world: World) -> None:
    """7.6: 404 with the name, waiting or not."""
    for body in ({}, {"wait_ms": 30_000}):
        answer = world.request("POST", "/v0/topics/t/diff", body)
        assert answer.refusal == (404, "topic_not_found", {"topic": "t"})


def test_pages_have_256_records_unless_asked_otherwise(world: World) -> None:
    """TV-7, 5.2: 0 means the default, more than 1000 means 1000."""
    world.write("t", *range(300))
    page = world.diff("t")
    assert (len(page["records"]), page["next_from_seq"], page["lag"], page["caught_up"]) == (256, 256, 44, False)
    assert len(world.diff("t", limit=0)["records"]) == 256
    world.write("t", *range(900))
    assert len(world.diff("t", limit=5000)["records"]) == 1000
    assert len(world.diff("t", limit=2**32 - 1)["records"]) == 1000


def test_a_limit_leaves_a_lag(world: World) -> None:
    """TV-7, 7.6: two of three."""
    world.write("t", 1, 2, 3)
    page = world.diff("t", limit=2)
    assert (page["next_from_seq"], page["lag"], page["caught_up"]) == (2, 1, False)
    page = world.diff("t", limit=3)
    assert (page["next_from_seq"], page["lag"], page["caught_up"]) == (3, 0, True)


def test_a_byte_budget_is_met_from_below_and_the_first_record_always_comes(world: World) -> None:
    """7.6: sizes as accounted, meta included."""
    world.write("t", "x" * 8, "x" * 8, "x" * 8)
    for budget, count in [(1, 1), (10, 1), (19, 1), (20, 2), (29, 2), (30, 3), (1000, 3)]:
        page = world.diff("t", max_batch_bytes=budget)
        assert (len(page["records"]), page["next_from_seq"], page["caught_up"]) == (count, count, count == 3)
    world.write_records("u", [{"data": 1, "meta": "x" * 7}, {"data": 1}])
    assert len(world.diff("u", max_batch_bytes=10)["records"]) == 1
    assert len(world.diff("u", max_batch_bytes=11)["records"]) == 2


def test_the_default_budget_is_a_mebibyte_and_the_most_is_eight(world: World) -> None:
    """5.2, 7.6: 0 means the default."""
    for _ in range(10):
        world.write("t", "x" * 999_998)
    assert len(world.diff("t")["records"]) == 1
    assert len(world.diff("t", max_batch_bytes=0)["records"]) == 1
    assert len(world.diff("t", max_batch_bytes=2_999_999)["records"]) == 2
    assert len(world.diff("t", max_batch_bytes=2**40)["records"]) == 8


def test_a_cursor_ends_at_the_last_record_delivered_or_passed(world: World) -> None:
    """7.6: it skips what is deleted at the end, and never a record that could be had."""
    world.write_records("t", [{"data": n, "tag": "x" if n in (2, 5, 6) else "y"} for n in range(1, 7)])
    world.delete("t", match="x")
    page = world.diff("t", limit=1)
    assert (seqs(page), page["next_from_seq"]) == ([1], 1)
    page = world.diff("t", 1, limit=2)
    assert seqs(page) == [3, 4]
    assert page["next_from_seq"] in (4, 6)
    assert world.diff("t", 4)["next_from_seq"] == 6


def test_a_reader_that_is_not_caught_up_always_moves(world: World) -> None:
    """7.6: whatever its limit, budget, filter and start."""
    world.put("t", cap_records=60)
    world.write_records("t", [{"data": "x" * (n % 9), "tag": str(n % 5), "node": f"n{n % 3}"} for n in range(90)])
    world.delete("t", match="3")
    for node in (None, "n1", ["n0", "n1", "n2"]):
        for limit, budget in [(1, 0), (7, 0), (1000, 1), (1000, 20)]:
            cursor, found = 0, []
            while True:
                page = world.diff("t", cursor, node=node, limit=limit, max_batch_bytes=budget)
                found += seqs(page)
                assert page["lag"] == page["head_seq"] - page["next_from_seq"]
                assert page["caught_up"] is (page["next_from_seq"] == page["head_seq"])
                if page["caught_up"]:
                    break
                assert page["next_from_seq"] > cursor
                assert page["tombstone"] is None or page["next_from_seq"] > page["tombstone"]["gap_to"]
                cursor = page["next_from_seq"]
            assert found == sorted(set(found))
            assert found[:1] == seqs(world.diff("t", 0, node=node, limit=1))


def test_an_old_reader_reads_segments_as_it_reads_news(world: World) -> None:
    """7.6, R-DUR-13: from files long sealed, after restarts, in pages of any size."""
    for start in range(0, 1000, 50):
        world.write_records("t", [{"data": n, "tag": f"t{n}", "meta": {"n": n}} for n in range(start, start + 50)])
    for _ in range(2):
        world.restart()
        for limit in (1000, 97):
            cursor, found = 0, []
            while cursor < 1000:
                page = world.diff("t", cursor, limit=limit, include_tags=True)
                found += [(r["$seq"], r["data"], r["$tag"], r["meta"]["n"]) for r in page["records"]]
                cursor = page["next_from_seq"]
            assert found == [(n + 1, n, f"t{n}", n) for n in range(1000)]


# --- waiting --------------------------------------------------------------------------------------------------------
def test_a_poll_that_has_something_to_say_does_not_wait(world: World) -> None:
    """7.6: records, a tombstone, or more to examine."""
    world.put("t", cap_records=2)
    world.write("t", 1, 2, 3)
    for from_seq in (0, 1, 2, 99):
        assert poll(world, from_seq).answer(within_ms=50).status == 200
    world.delete("t", before_seq=9)
    assert poll(world, 0).answer(within_ms=50).json["tombstone"] == tombstone(1, 1, "cap", 3)


def test_a_poll_waits_for_the_next_record(world: World) -> None:
    """7.6: then it has it at once, from its own cursor."""
    world.write("t", 1)
    waiting = poll(world, 1)
    assert waiting.waiting
    world.write("t", 2, 3)
    page = waiting.answer(within_ms=50).json
    assert (seqs(page), page["next_from_seq"], page["caught_up"]) == ([2, 3], 3, True)


def test_a_poll_ends_empty_when_its_time_is_over(world: World) -> None:
    """7.6: caught up at the head there is now; not before."""
    world.write("t", 1)
    waiting = poll(world, 1, 1000)
    world.advance_ms(900)
    assert waiting.waiting
    page = waiting.answer(within_ms=200).json
    assert (page["records"], page["tombstone"], page["next_from_seq"], page["caught_up"]) == ([], None, 1, True)


def test_no_wait_is_longer_than_half_a_minute(world: World) -> None:
    """7.6, 5.2: whatever they ask for."""
    world.put("t")
    waiting = poll(world, 0, 2**32 - 1)
    world.advance_ms(29_500)
    assert waiting.waiting
    assert waiting.answer(within_ms=1000).json["caught_up"] is True


def test_a_poll_of_zero_answers_at_once(world: World) -> None:
    """7.6: the default."""
    world.put("t")
    assert poll(world, 0, 0).answer(within_ms=50).json["records"] == []


def test_news_that_are_none_for_this_reader_do_not_end_its_wait(world: World) -> None:
    """7.6: its own records, deletes, new configurations; the next for it does, and the cursor is past the others."""
    world.put("t")
    waiting = poll(world, 0, node="me")
    world.write("t", 1, node="me")
    assert waiting.waiting
    world.delete("t", before_seq=2)
    world.put("t", cap_records=100)
    assert waiting.waiting
    world.write("t", 2, node="me")
    world.write("t", 3, node="you")
    page = waiting.answer(within_ms=50).json
    assert (seqs(page), page["next_from_seq"], page["caught_up"]) == ([3], 3, True)


def test_at_its_deadline_a_filtered_poll_has_passed_its_own(world: World) -> None:
    """7.6: the empty result is at the head of then."""
    world.put("t")
    waiting = poll(world, 0, 1000, node="me")
    world.write("t", 1, 2, node="me")
    page = waiting.answer(within_ms=2000).json
    assert (page["records"], page["next_from_seq"], page["head_seq"], page["caught_up"]) == ([], 2, 2, True)


def test_a_poll_is_woken_by_a_loss_it_must_be_told_of(world: World) -> None:
    """7.6: a record written and evicted at once leaves a tombstone."""
    world.put("t", cap_bytes=5)
    waiting = poll(world, 0)
    world.write("t", "too large")
    page = waiting.answer(within_ms=50).json
    assert (page["records"], page["tombstone"]) == ([], tombstone(1, 1, "cap", 1))


def test_every_waiter_is_woken_by_one_write(world: World) -> None:
    """7.6: at once, each with its own view."""
    world.put("t")
    waiting = [poll(world, 0, include_tags=n % 2 == 0) for n in range(20)]
    world.write_records("t", [{"data": 1, "tag": "x"}])
    for number, poller in enumerate(waiting):
        assert ("$tag" in poller.answer(within_ms=50).json["records"][0]) is (number % 2 == 0)


def test_deleting_the_topic_ends_a_wait(world: World) -> None:
    """7.6, 7.4: with 404, also when it is created again at once."""
    world.put("t")
    first = poll(world)
    world.drop("t")
    assert first.answer(within_ms=50).refusal == (404, "topic_not_found", {"topic": "t"})
    world.put("t")
    second = poll(world)
    assert second.waiting
    connection = world.connect()
    connection.start("DELETE", "/v0/topics/t").start("PUT", "/v0/topics/t")
    assert (connection.answer().status, connection.answer().status) == (200, 201)
    assert second.answer(within_ms=50).status == 404


@pytest.mark.http1
def test_a_stop_ends_a_wait_with_the_empty_result(world: World) -> None:
    """7.6, R-LIFE-7: at once, and the connection closes."""
    world.write("t", 1)
    waiting = poll(world, 1, 30_000)
    assert waiting.waiting
    world.begin_stop()
    answer = waiting.answer(within_ms=1000)
    assert (answer.status, answer.json["records"], answer.json["next_from_seq"]) == (200, [], 1)
    assert answer.header("connection") == "close"
    assert world.finish_stop() == 0


def test_a_wait_holds_up_no_request_on_its_own_connection_for_ever(world: World) -> None:
    """R-NET-3, 7.6: what is pipelined after it is answered after it."""
    world.put("t")
    connection = poll(world, 0, 500)
    connection.start("GET", "/healthz")
    assert connection.waiting
    assert connection.answer(within_ms=1000).json["records"] == []
    assert connection.answer(within_ms=50).json["status"] == "ok"


def test_a_record_that_expires_while_a_reader_waits_is_reported_as_lost(world: World) -> None:
    """7.6, R-TTL-2: to a cursor before it, when it looks again."""
    world.put("t", ttl_ms=100)
    world.write("t", 1)
    world.delete("t", before_seq=2)
    waiting = poll(world, 1)
    world.advance_ms(200)
    assert waiting.waiting
    world.write("t", 2)
    assert seqs(waiting.answer(within_ms=50).json) == [2]


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_a_waiter_is_woken_in_every_class(world: World, durability: str) -> None:
    """7.6, R-SEQ-3: once the record is committed."""
    world.put("t", durability=durability)
    waiting = poll(world)
    world.write("t", durability)
    assert waiting.answer(within_ms=50).json["records"][0]["data"] == durability


# --- from a time ----------------------------------------------------------------------------------------------------
def since(world: World, time: int, **fields: Any) -> Any:
    return world.request("POST", "/v0/topics/t/diff", {"from": {"time": time}, **fields}).json


def write_at_times(world: World, *batches: int) -> list[int]:
    """Writes so many records at a time; returns the `$ts` of each batch."""
    stamps = []
    for count in batches:
        stamps.append(world.diff("t", world.write("t", *range(count))["first_seq"] - 1)["records"][0]["$ts"])
        world.advance_ms(50)
    return stamps


def test_a_read_may_begin_at_a_time(world: World) -> None:
    """R-FROM-1: with all records of that very time, or else the next later one, or else at the head."""
    first, second, third = write_at_times(world, 2, 3, 1)
    for time, expected in (
        (0, [1, 2, 3, 4, 5, 6]), (first, [1, 2, 3, 4, 5, 6]), (first + 1, [3, 4, 5, 6]), (second, [3, 4, 5, 6]),
        (second + 1, [6]), (third, [6]), (third + 1, []), (2**64 - 1, []),
    ):  # fmt: skip
        page = since(world, time)
        assert (seqs(page), page["next_from_seq"], page["tombstone"]) == (expected, 6, None), time
    page = since(world, first + 1, limit=2)
    assert (seqs(page), page["next_from_seq"], page["caught_up"], page["lag"]) == ([3, 4], 4, False, 2)
    world.delete("t", before_seq=5)
    assert seqs(since(world, second)) == [5, 6]


def test_a_read_from_a_time_tells_of_no_loss_before(world: World) -> None:
    """R-FROM-2: neither by the floor nor by a gap, also when nothing is left; and later ones as before."""
    first, second, _third = write_at_times(world, 2, 3, 1)
    world.put("t", cap_records=2)
    world.write("t", 7)
    for time, expected in ((0, [6, 7]), (first, [6, 7]), (second, [6, 7])):
        page = since(world, time)
        assert (seqs(page), page["tombstone"]) == (expected, None)
    assert world.diff("t")["tombstone"]["gap_to"] == 5
    assert since(world, 2**63)["next_from_seq"] == 7


def test_a_read_from_a_time_of_an_empty_topic_is_at_its_head(world: World) -> None:
    """R-FROM-1."""
    world.put("t")
    assert (seqs(since(world, 5)), since(world, 5)["next_from_seq"]) == ([], 0)
    world.write("t", 1, 2)
    world.delete("t", before_seq=3)
    assert (seqs(since(world, 5)), since(world, 5)["next_from_seq"]) == ([], 2)


def test_copies_have_times_of_their_own(world: World) -> None:
    """R-FROM-1: in a router's destination."""
    world.put("source")
    world.request("PUT", "/v0/routers/r", {"source": "source", "dest": "t"})
    for _ in range(2):
        world.write("source", 1, 2)
        world.advance_ms(50)
    stamps = [record["$ts"] for record in world.diff("t")["records"]]
    assert seqs(since(world, stamps[0])) == [1, 2, 3, 4]
    assert seqs(since(world, stamps[0] + 1)) == [3, 4]
    assert seqs(since(world, stamps[-1] + 1)) == []


def test_times_are_found_after_a_restart(make_world: MakeWorld) -> None:
    """R-FROM-1: in the log, and in files."""
    world = make_world(segment_max_events=2)
    _first, second, _third = write_at_times(world, 2, 3, 1)
    world.crash_and_start()
    assert seqs(since(world, second)) == [3, 4, 5, 6]
    world.restart()
    assert seqs(since(world, second)) == [3, 4, 5, 6]
    assert seqs(since(world, second + 1)) == [6]


def test_a_poll_from_a_time_to_come_passes_what_is_earlier(world: World) -> None:
    """R-FROM-3."""
    world.write("t", 1)
    time = world.diff("t")["records"][0]["$ts"] + 1000
    waiting = world.ask("POST", "/v0/topics/t/diff", {"from": {"time": time}, "wait_ms": 10_000})
    world.write("t", 2)
    world.delete("t", before_seq=2)
    world.put("t", cap_records=1)
    world.write("t", 3)  # evicts
    assert waiting.nothing_came
    world.advance_ms(1200)
    assert waiting.nothing_came
    world.write("t", 4, 5)
    page = waiting.answer().json
    assert (seqs(page), page["tombstone"]) == ([5], None)


def test_a_poll_from_a_time_ends_at_the_head(world: World) -> None:
    """R-FROM-3, 7.6."""
    world.write("t", 1)
    waiting = world.ask("POST", "/v0/topics/t/diff", {"from": {"time": 2**60}, "wait_ms": 500})
    world.write("t", 2)
    page = waiting.answer().json
    assert (seqs(page), page["next_from_seq"], page["caught_up"]) == ([], 2, True)


def test_a_poll_from_a_time_waits_for_others(world: World) -> None:
    """R-FROM-3, R-NODE: what the filter hides does not end the wait, nor does its expiry."""
    world.put("t", ttl_ms=300)
    world.write("t", 1, node="me")
    body = {"from": {"time": 1}, "wait_ms": 10_000, "node": "me"}
    waiting = world.ask("POST", "/v0/topics/t/diff", body)
    world.advance_ms(500)
    assert waiting.nothing_came
    world.write("t", 2, node="me")
    assert waiting.nothing_came
    world.write("t", 3, node="other")
    page = waiting.answer().json
    assert (seqs(page), page["tombstone"]) == ([3], None)


# --- from other places ----------------------------------------------------------------------------------------------
def begin_at(world: World, begin: Any, **fields: Any) -> Any:
    return world.request("POST", "/v0/topics/t/diff", {"from": begin, **fields}).json


def test_a_read_may_begin_with_the_first_record_that_is_there(world: World) -> None:
    """R-FROM-4, R-FROM-2: without a report of what is gone, lost or deleted."""
    world.put("t", cap_records=4)
    world.write("t", *range(6))
    page = begin_at(world, "first")
    assert (seqs(page), page["next_from_seq"], page["tombstone"]) == ([3, 4, 5, 6], 6, None)
    assert world.diff("t")["tombstone"]["gap_to"] == 2
    world.delete("t", before_seq=5)
    assert seqs(begin_at(world, "first", limit=1)) == [5]
    world.delete("t", before_seq=7)
    page = begin_at(world, "first")
    assert (seqs(page), page["next_from_seq"], page["caught_up"]) == ([], 6, True)


def test_a_read_may_begin_at_the_head(world: World) -> None:
    """R-FROM-4."""
    world.put("t")
    assert begin_at(world, "now")["next_from_seq"] == 0
    world.write("t", 1, 2, 3)
    page = begin_at(world, "now")
    assert (seqs(page), page["next_from_seq"], page["caught_up"], page["tombstone"]) == ([], 3, True, None)


def test_a_read_may_begin_with_the_last_live_records(world: World) -> None:
    """R-FROM-4: counted by records and not by seqs, through holes, and all of them if there are fewer."""
    world.put("t")
    assert begin_at(world, {"last": 3})["next_from_seq"] == 0
    for number in range(1, 9):
        world.write_records("t", [{"data": number, "tag": "odd" if number % 2 else "even"}])
    world.delete("t", match="even")
    for count, expected in (
        (0, []),
        (1, [7]),
        (2, [5, 7]),
        (4, [1, 3, 5, 7]),
        (5, [1, 3, 5, 7]),
        (10_000, [1, 3, 5, 7]),
    ):
        page = begin_at(world, {"last": count})
        assert (seqs(page), page["next_from_seq"], page["tombstone"]) == (expected, 8, None), count
    page = begin_at(world, {"last": 3}, limit=2)
    assert (seqs(page), page["next_from_seq"], page["caught_up"], page["lag"]) == ([3, 5], 5, False, 3)


def test_the_last_records_are_those_that_were_not_lost(world: World) -> None:
    """R-FROM-2, R-FROM-4: in a topic with a cap, and one with expiry."""
    world.put("t", cap_records=3)
    world.write("t", *range(9))
    page = begin_at(world, {"last": 5})
    assert (seqs(page), page["tombstone"]) == ([7, 8, 9], None)
    world.put("t", ttl_ms=100)
    world.advance_ms(200)
    page = begin_at(world, {"last": 5})
    assert (seqs(page), page["next_from_seq"], page["tombstone"]) == ([], 9, None)


def test_the_last_records_of_a_router_s_destination_and_of_a_restarted_topic(make_world: MakeWorld) -> None:
    """R-FROM-4, R-RTR-4: copies of what is acknowledged are there; wherever the records are stored."""
    world = make_world(segment_max_events=2)
    world.put("source")
    world.request("PUT", "/v0/routers/r", {"source": "source", "dest": "t"})
    world.write("source", *range(5))
    assert seqs(begin_at(world, {"last": 2})) == [4, 5]
    world.crash_and_start()
    assert seqs(begin_at(world, {"last": 2})) == [4, 5]
    world.restart()
    assert seqs(begin_at(world, {"last": 3})) == [3, 4, 5]
    assert seqs(begin_at(world, "first")) == [1, 2, 3, 4, 5]


def test_the_last_records_of_many_chunks_of_an_index_are_found(world: World) -> None:
    """R-FROM-4."""
    for _ in range(3):
        world.write("t", *([0] * 9000))
    world.delete("t", before_seq=100)
    for count in (1, 2615, 2616, 2617, 9000, 10_000):
        assert begin_at(world, {"last": count}, limit=1)["records"][0]["$seq"] == 27_001 - count


def test_records_of_a_node_that_is_left_out_count_among_the_last(world: World) -> None:
    """R-FROM-5."""
    for number in range(1, 7):
        world.write("t", number, node="me" if number % 2 else "other")
    page = begin_at(world, {"last": 3}, node="me")
    assert (seqs(page), page["next_from_seq"]) == ([4, 6], 6)


@pytest.mark.parametrize("begin", ["first", "now", {"last": 2}])
def test_a_poll_waits_from_the_cursor_of_its_first_look(world: World, begin: Any) -> None:
    """R-FROM-6: and so reports what is lost after it."""
    world.put("t", cap_records=2)
    world.write("t", 1, 2)
    world.delete("t", before_seq=3)
    waiting = world.ask("POST", "/v0/topics/t/diff", {"from": begin, "wait_ms": 10_000})
    assert waiting.nothing_came
    world.write("t", 3, 4, 5)
    page = waiting.answer().json
    assert (seqs(page), page["tombstone"]["gap_from"], page["tombstone"]["gap_to"]) == ([4, 5], 3, 3)


@pytest.mark.parametrize("begin", ["first", {"last": 2}])
def test_a_poll_with_something_to_deliver_is_answered_at_once(world: World, begin: Any) -> None:
    """R-FROM-6, 7.6."""
    world.write("t", 1, 2)
    assert seqs(begin_at(world, begin, wait_ms=10_000)) == [1, 2]


def test_a_poll_from_the_head_that_hears_nothing_ends_where_a_cursor_would(world: World) -> None:
    """R-FROM-6, R-NODE-2."""
    world.write("t", 1)
    waiting = world.ask("POST", "/v0/topics/t/diff", {"from": "now", "wait_ms": 500, "node": "me"})
    world.write("t", 2, node="me")
    page = waiting.answer().json
    assert (seqs(page), page["next_from_seq"], page["caught_up"]) == ([], 2, True)


def test_how_many_last_records_a_read_may_ask_for_is_a_setting(make_world: MakeWorld) -> None:
    """R-FROM-4."""
    world = make_world(max_last=2)
    world.write("t", 1, 2, 3)
    assert seqs(begin_at(world, {"last": 2})) == [2, 3]
    refused = world.request("POST", "/v0/topics/t/diff", {"from": {"last": 3}})
    assert refused.refusal == (400, "invalid_request", None)
    assert refused.json["error"]["message"] == "from.last must be a whole number from 0 to 2, not the number 3"


BAD_BEGINNINGS: list[tuple[dict[str, Any], str]] = [
    ({"from": {"time": 1}, "from_seq": 0}, "from and from_seq both say where to begin: send one of them"),
    ({"from": "now", "from_seq": 0}, "from and from_seq both say where to begin: send one of them"),
    ({"from": 5}, 'from must be "first", "now", {"last": 10} or {"time": 1795325238494}, not'),
    ({"from": None}, 'from must be "first", "now", {"last": 10} or {"time": 1795325238494}, not'),
    (
        {"from": "latest"},
        'from must be "first", "now", {"last": 10} or {"time": 1795325238494}, not the string "latest"',
    ),
    ({"from": "l" * 39}, 'from must be "first", "now", {"last": 10} or {"time": 1795325238494}, not a string'),
    ({"from": ["now"]}, 'from must be "first", "now", {"last": 10} or {"time": 1795325238494}, not'),
    ({"from": {}}, 'from must be "first", "now", {"last": 10} or {"time": 1795325238494}, not another object'),
    ({"from": {"time": 1, "other": 2}}, '{"last": 10} or {"time": 1795325238494}, not several members'),
    ({"from": {"time": 1, "last": 2}}, '{"last": 10} or {"time": 1795325238494}, not several members'),
    ({"from": {"seq": 1}}, 'from must be "first", "now", {"last": 10} or {"time": 1795325238494}, not another object'),
    ({"from": {"last": -1}}, "from.last must be a whole number from 0 to 10000"),
    ({"from": {"last": 10_001}}, "from.last must be a whole number from 0 to 10000, not the number 10001"),
    ({"from": {"last": "1"}}, "from.last must be a whole number from 0 to 10000"),
    ({"from": {"last": 1.0}}, "from.last must be a whole number from 0 to 10000"),
    ({"from": {"last": None}}, "from.last must be a whole number from 0 to 10000"),
    ({"from": {"time": "1"}}, "from.time must be a whole number from 0 to"),
    ({"from": {"time": -1}}, "from.time must be a whole number from 0 to"),
    ({"from": {"time": 1.5}}, "from.time must be a whole number from 0 to"),
    ({"from": {"time": None}}, "from.time must be a whole number from 0 to"),
    ({"from": {"time": 2**64}}, "from.time must be a whole number from 0 to"),
]


@pytest.mark.parametrize(("body", "words"), BAD_BEGINNINGS, ids=range(len(BAD_BEGINNINGS)))
def test_what_is_no_beginning_is_400(world: World, body: dict[str, Any], words: str) -> None:
    """R-FROM-1: with a sentence that names it."""
    world.put("t")
    refused = world.request("POST", "/v0/topics/t/diff", body)
    assert refused.refusal == (400, "invalid_request", None)
    assert words in refused.json["error"]["message"]
