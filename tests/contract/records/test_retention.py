"""Caps and expiry, and the tombstones that report them to readers."""

from __future__ import annotations

import pytest

from tests.contract.world.world import World, seqs, tombstone


def live(world: World, topic: str = "t") -> tuple[int, int, int]:
    """Head, earliest, count."""
    state = world.state(topic)
    return state["head_seq"], state["earliest_seq"], state["count"]


# --- caps -----------------------------------------------------------------------------------------------------------
def test_a_record_cap_keeps_the_newest(world: World) -> None:
    """R-CAP-1, TV-1: a loss is reported once to readers before it."""
    world.put("t", cap_records=3)
    world.write_singly("t", *range(1, 7))
    assert live(world) == (6, 4, 3)
    page = world.diff("t")
    expected = tombstone(1, 3, "cap", 6)
    assert expected["missed_estimate"] == 3
    assert expected["earliest_seq"] == 4
    assert (seqs(page), page["tombstone"]) == ([4, 5, 6], expected)
    assert (page["next_from_seq"], page["caught_up"]) == (6, True)
    page = world.diff("t", 3)
    assert (seqs(page), page["tombstone"]) == ([4, 5, 6], None)
    page = world.diff("t", 2)
    assert (seqs(page), page["tombstone"]) == ([4, 5, 6], tombstone(3, 3, "cap", 6))


def test_holes_use_up_no_room_under_a_cap(world: World) -> None:
    """R-CAP-1: live records are counted, not numbers."""
    world.put("t", cap_records=3)
    world.write_records("t", [{"data": n, "tag": str(n)} for n in (1, 2, 3)])
    world.delete("t", match="2")
    world.write("t", 4)
    assert world.data("t") == [1, 3, 4]
    assert world.diff("t")["tombstone"] is None
    world.write("t", 5)
    assert world.data("t") == [3, 4, 5]
    assert world.diff("t")["tombstone"] == tombstone(1, 1, "cap", 5)


def test_a_batch_above_the_cap_leaves_its_own_end(world: World) -> None:
    """R-CAP-1: acknowledged whole, the first of it gone at once."""
    world.put("t", cap_records=3)
    assert world.write("t", *range(1, 11))["last_seq"] == 10
    assert live(world) == (10, 8, 3)


def test_a_byte_cap_evicts_one_by_one(world: World) -> None:
    """R-CAP-3: the oldest first, until the rest fits."""
    world.put("t", cap_bytes=30)
    world.write("t", "x" * 8, "x" * 8, "x" * 8)
    assert live(world) == (3, 1, 3)
    world.write("t", 1)
    assert live(world) == (4, 2, 3)
    world.write("t", "x" * 17)
    assert live(world) == (5, 3, 3)
    assert world.state("t")["bytes"] == 30
    assert world.diff("t")["tombstone"] == tombstone(1, 2, "cap", 5)


def test_a_record_larger_than_the_byte_cap_is_acknowledged_and_gone(world: World) -> None:
    """R-CAP-3: it takes the others with it."""
    world.put("t", cap_bytes=10)
    world.write("t", 1, 2)
    assert world.write("t", "x" * 100)["last_seq"] == 3
    assert live(world) == (3, 4, 0)
    page = world.diff("t")
    assert (seqs(page), page["tombstone"], page["next_from_seq"]) == ([], tombstone(1, 3, "cap", 3), 3)


def test_two_caps_and_expiry_take_no_more_than_they_must(world: World) -> None:
    """R-CAP-4: neither empties a topic because of the other."""
    world.put("t", cap_records=4, cap_bytes=12)
    world.write("t", "a", "b", "c", "d", "e")
    assert live(world) == (5, 2, 4)
    world.write("t", "long long")
    assert live(world) == (6, 6, 1)
    world.put("u", cap_records=4, cap_bytes=12, ttl_ms=100)
    world.write("u", "aa", "bb")
    world.advance_ms(101)
    world.write("u", "cc", "dd", "ee")
    assert live(world, "u") == (5, 3, 3)


def test_no_reader_sees_more_than_the_cap(world: World) -> None:
    """R-CAP-4: while many write at once."""
    world.put("t", cap_records=5)
    writers = [world.ask("POST", "/v0/topics/t", {"records": [{"data": 1}] * 3}) for _ in range(10)]
    for writer in writers:
        assert live(world)[2] <= 5
        assert len(world.diff("t")["records"]) <= 5
        writer.answer()
    assert live(world) == (30, 26, 5)


def test_a_full_topic_refuses_when_told_to(world: World) -> None:
    """R-CAP-5: by records; exactly full is fine, more than the whole cap is another error."""
    world.put("t", discard="reject", cap_records=3)
    world.write("t", 1, 2)
    answer = world.request("POST", "/v0/topics/t", {"records": [{"data": 3}, {"data": 4}]})
    detail = {"topic": "t", "cap_records": 3, "cap_bytes": 0, "head_seq": 2, "earliest_seq": 1}
    assert answer.refusal == (422, "topic_full", detail)
    assert world.write("t", 3)["last_seq"] == 3
    assert world.request("POST", "/v0/topics/t", {"records": [{"data": 0}] * 4}).refusal[:2] == (
        400,
        "record_too_large",
    )


def test_a_topic_full_of_bytes_refuses_too(world: World) -> None:
    """R-CAP-5: to the byte."""
    world.put("t", discard="reject", cap_bytes=10)
    world.write("t", "x" * 6)
    detail = {"topic": "t", "cap_records": 0, "cap_bytes": 10, "head_seq": 1, "earliest_seq": 1}
    assert world.request("POST", "/v0/topics/t", {"records": [{"data": "x"}]}).refusal == (422, "topic_full", detail)
    assert world.write("t", 12)["last_seq"] == 2
    assert world.request("POST", "/v0/topics/t", {"records": [{"data": "x" * 9}]}).refusal[:2] == (
        400,
        "record_too_large",
    )


def test_many_writers_never_pass_a_refusing_cap_together(world: World) -> None:
    """R-CAP-5: what is in flight counts."""
    world.put("t", discard="reject", cap_records=10, durability="fsync")
    writers = [world.ask("POST", "/v0/topics/t", {"records": [{"data": 1}] * 3}) for _ in range(8)]
    assert sorted(writer.answer().status for writer in writers) == [200] * 3 + [422] * 5
    assert live(world) == (9, 1, 9)


def test_a_refusing_topic_never_evicts(world: World) -> None:
    """R-CAP-6: not when the cap shrinks below what is there; expiry still holds."""
    world.put("t", discard="reject", cap_records=5, ttl_ms=1000)
    world.write("t", 1, 2, 3, 4)
    world.put("t", discard="reject", cap_records=2, ttl_ms=1000)
    assert live(world) == (4, 1, 4)
    assert world.request("POST", "/v0/topics/t", {"records": [{"data": 5}]}).status == 422
    world.delete("t", before_seq=3)
    assert world.request("POST", "/v0/topics/t", {"records": [{"data": 5}]}).status == 422
    world.advance_ms(1001)
    assert live(world)[2] == 0
    assert world.write("t", 5)["first_seq"] == 5


def test_what_deletes_free_is_available_at_once(world: World) -> None:
    """R-CAP-7: by count and by bytes."""
    world.put("t", discard="reject", cap_records=3, cap_bytes=9)
    for _ in range(3):
        world.write_records("t", [{"data": "x", "tag": "go"}] * 3)
        assert world.request("POST", "/v0/topics/t", {"records": [{"data": "x"}]}).status == 422
        assert world.delete("t", match="go")["deleted"] == 3


# --- expiry ---------------------------------------------------------------------------------------------------------
def test_a_record_lives_to_the_last_millisecond(world: World) -> None:
    """R-TTL-1, R-TTL-2, TV-4: at exactly its age it is there, one later it is not; no write is needed."""
    world.put("t", ttl_ms=150)
    world.write("t", 1, 2, 3)
    stamp = world.diff("t")["records"][0]["$ts"]
    world.advance_to_ms(stamp + 150)
    assert live(world) == (3, 1, 3)
    world.advance_to_ms(stamp + 151)
    assert live(world) == (3, 4, 0)
    world.advance_to_ms(stamp + 200)
    world.write("t", 4)
    assert live(world) == (4, 4, 1)
    page = world.diff("t")
    assert (seqs(page), page["tombstone"]) == ([4], tombstone(1, 3, "ttl", 4))


@pytest.mark.parametrize("ttl_ms", [2**63, 2**64 - 1, 2**53])
def test_a_very_long_life_is_one(world: World, ttl_ms: int) -> None:
    """R-TTL-1: any u64."""
    world.put("t", ttl_ms=ttl_ms, idempotency_window_ms=ttl_ms)
    world.write("t", 1, idempotency_key="k")
    world.advance_ms(1000)
    assert world.data("t") == [1]
    assert world.write("t", 1, idempotency_key="k")["deduped"] is True


def test_the_expired_are_not_delivered_and_not_counted(world: World) -> None:
    """R-TTL-3: only those that are."""
    world.put("t", ttl_ms=1000)
    for number in range(5):
        world.write("t", number)
        world.advance_ms(300)
    assert world.data("t") == [2, 3, 4]
    assert live(world) == (5, 3, 3)


def test_deletes_among_the_expired_do_not_confuse_the_floor(world: World) -> None:
    """R-TTL-2: the highest number such that it and all older stored ones are expired."""
    world.put("t", ttl_ms=100)
    world.write_records("t", [{"data": n, "tag": str(n)} for n in range(1, 5)])
    world.delete("t", match="4")
    world.advance_ms(101)
    world.write("t", 5)
    page = world.diff("t")
    assert (seqs(page), page["earliest_seq"]) == ([5], 5)
    assert page["tombstone"] == tombstone(1, 3, "ttl", 5)


# --- tombstones -----------------------------------------------------------------------------------------------------
@pytest.fixture
def lossy(world: World) -> World:
    """Topic t: 1 to 6 written under a cap of 3; 4 lives no longer by a delete."""
    world.put("t", cap_records=3)
    world.write_records("t", [{"data": n, "tag": str(n)} for n in range(1, 7)])
    world.delete("t", before_seq=5)
    return world


def test_only_cursors_below_the_loss_get_a_tombstone(lossy: World) -> None:
    """R-TOMB-1, R-TOMB-2, R-TOMB-6: it ends at the loss; the delete after it is passed in silence."""
    for cursor in (0, 1, 2):
        page = lossy.diff("t", cursor)
        assert page["tombstone"] == tombstone(cursor + 1, 3, "cap", 6)
        assert page["tombstone"]["earliest_seq"] == 4
        assert (page["earliest_seq"], seqs(page)) == (5, [5, 6])
    for cursor in (3, 4, 5, 6):
        assert lossy.diff("t", cursor)["tombstone"] is None


def test_reading_goes_on_behind_the_tombstone(lossy: World) -> None:
    """R-TOMB-4, R-TOMB-8: in the same answer, with all its fields."""
    page = lossy.diff("t", 0, limit=1)
    assert (seqs(page), page["next_from_seq"], page["lag"], page["caught_up"]) == ([5], 5, 1, False)


def test_a_tombstone_is_told_once(lossy: World) -> None:
    """R-TOMB-5: the cursor that came with it is past it."""
    page = lossy.diff("t", 0, limit=1)
    assert page["tombstone"] is not None
    assert lossy.diff("t", page["next_from_seq"])["tombstone"] is None


def test_the_reason_says_what_took_them(world: World) -> None:
    """R-TOMB-3: cap, ttl, or both, as seen from the cursor."""
    world.put("t", ttl_ms=100, cap_records=4)
    world.write("t", 1, 2)
    world.advance_ms(101)
    world.write("t", 3, 4)
    assert world.diff("t")["tombstone"] == tombstone(1, 2, "ttl", 4)
    world.write("t", 5, 6, 7)
    assert world.diff("t", 0)["tombstone"] == tombstone(1, 3, "mixed", 7)
    assert world.diff("t", 1)["tombstone"] == tombstone(2, 3, "mixed", 7)
    assert world.diff("t", 2)["tombstone"] == tombstone(3, 3, "cap", 7)


def test_deletes_and_filters_cause_none(world: World) -> None:
    """R-TOMB-7: nor do they show in one."""
    world.write_records("t", [{"data": n, "tag": str(n), "node": "me"} for n in range(6)])
    world.delete("t", before_seq=3)
    world.delete("t", match="4")
    for cursor in range(7):
        assert world.diff("t", cursor)["tombstone"] is None
        assert world.diff("t", cursor, node="me")["tombstone"] is None


def test_a_cap_and_a_delete_meet(world: World) -> None:
    """TV-3, R-TOMB-3: one tombstone over what the cap took, though a delete had been there before."""
    world.put("t", cap_records=4)
    world.write("t", 1, 2, 3, 4)
    world.delete("t", before_seq=3)
    assert (world.diff("t")["tombstone"], world.state("t")["earliest_seq"]) == (None, 3)
    world.write("t", *range(5, 11))
    assert live(world) == (10, 7, 4)
    page = world.diff("t")
    assert (page["tombstone"], seqs(page)) == (tombstone(1, 6, "cap", 10), [7, 8, 9, 10])


# --- deleted and made again -----------------------------------------------------------------------------------------
def test_a_new_instance_has_nothing_of_the_old(world: World) -> None:
    """R-REC-1: by PUT or by a write; across a restart too."""
    world.put("t", cap_records=2)
    world.write("t", 1, 2, 3, idempotency_key="k")
    world.drop("t")
    world.put("t")
    assert live(world) == (0, 1, 0)
    assert world.write("t", "new", idempotency_key="k")["deduped"] is False
    page = world.diff("t")
    assert (seqs(page), page["records"][0]["data"], page["tombstone"]) == ([1], "new", None)
    world.drop("t")
    assert world.write("t", "newer")["created"] is True
    world.crash_and_start()
    assert world.data("t") == ["newer"]


def test_a_cursor_from_another_instance_is_told(world: World) -> None:
    """R-REC-2, R-REC-4, TV-8: above the head; at the head it is an ordinary tail read."""
    world.write("t", *range(5))
    world.drop("t")
    world.write("t", "a", "b")
    page = world.diff("t", 5)
    assert page["tombstone"] == tombstone(1, 2, "recreated", 2, earliest_seq=1)
    assert (seqs(page), page["next_from_seq"], page["caught_up"]) == ([1, 2], 2, True)
    page = world.diff("t", 2)
    assert (seqs(page), page["tombstone"]) == ([], None)


def test_a_cursor_above_an_empty_instance_is_told_too(world: World) -> None:
    """R-REC-2: a gap that ends at zero and is estimated at one."""
    world.put("t")
    page = world.diff("t", 7)
    expected = {
        "gap_from": 1, "gap_to": 0, "reason": "recreated", "missed_estimate": 1, "earliest_seq": 1, "head_seq": 0,
    }  # fmt: skip
    assert (page["tombstone"], page["next_from_seq"], page["caught_up"], page["lag"]) == (expected, 0, True, 0)


def test_a_recreated_tombstone_names_the_earliest_there_is(world: World) -> None:
    """R-REC-2: and reading continues from it, with a limit too."""
    world.put("t", cap_records=3)
    world.write("t", 1, 2, 3, 4, 5)
    page = world.diff("t", 99, limit=1)
    assert page["tombstone"] == tombstone(1, 5, "recreated", 5, earliest_seq=3)
    assert (seqs(page), page["next_from_seq"], page["lag"]) == ([3], 3, 2)


def test_a_stale_cursor_within_the_new_instance_just_goes_on(world: World) -> None:
    """R-REC-3: nothing distinguishes it."""
    world.write("t", 1, 2, 3)
    world.drop("t")
    world.write("t", "a", "b", "c", "d")
    page = world.diff("t", 3)
    assert (seqs(page), page["tombstone"]) == ([4], None)
