"""Writes that may be sent again: keys, windows, duplicates in flight, and keys across restarts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.world.world import World


def keyed(world: World, key: str | None, *data: Any, topic: str = "t", header: str | None = None, **fields: Any) -> Any:
    body = {"records": [{"data": each} for each in data], "idempotency_key": key, **fields}
    headers = {} if header is None else {"Idempotency-Key": header}
    return world.request("POST", f"/v0/topics/{topic}", body, headers)


def test_a_repeated_write_answers_what_it_answered_first(world: World) -> None:
    """R-IDEM-2, R-IDEM-3, TV-21: seqs and head of then; nothing is appended, whatever the payload."""
    assert keyed(world, "k", 1, 2).json["seqs"] == [1, 2]
    world.write("t", "other")
    again = keyed(world, "k", "something else")
    answer = again.json
    answer.pop("performance")
    assert again.status == 200
    assert answer == {
        "topic": "t", "first_seq": 1, "last_seq": 2, "seqs": [1, 2], "head_seq": 2, "count": 2, "created": False,
        "deduped": True,
    }  # fmt: skip
    assert world.state("t")["head_seq"] == 3


def test_a_key_comes_from_the_body_or_else_from_the_header(world: World) -> None:
    """R-IDEM-1: null in the body means the header; the empty key is a key."""
    assert keyed(world, "body", 1, header="head").json["deduped"] is False
    assert keyed(world, "head", 1).json["deduped"] is False
    assert keyed(world, None, 1, header="body").json["deduped"] is True
    assert keyed(world, "body", 1, header="new").json["deduped"] is True
    assert keyed(world, "", 1, header="body").json["deduped"] is False
    assert keyed(world, None, 1, header="").json["deduped"] is True
    assert keyed(world, None, 1).json["deduped"] is False


def test_a_header_that_is_not_visible_ascii_is_no_key(world: World) -> None:
    """R-IDEM-1: ignored, not refused."""
    for header in ("clé", "\x7f"):
        data = {"records": [{"data": 1}]}
        for _ in range(2):
            answer = world.request("POST", "/v0/topics/t", data, {"Idempotency-Key": header})
            if answer.status == 400 and header == "\x7f":
                continue  # not even an HTTP header
            assert (answer.status in (200, 201), answer.json["deduped"]) == (True, False)


def test_any_string_of_256_bytes_is_a_key(world: World) -> None:
    """R-IDEM-1: in the body."""
    for key in ("k" * 256, "é" * 128, "\n", "a b", "😀"):
        assert keyed(world, key, 1).json["deduped"] is False
        assert keyed(world, key, 1).json["deduped"] is True


def test_a_key_belongs_to_one_topic(world: World) -> None:
    """R-IDEM-1: the same one elsewhere is another."""
    assert keyed(world, "k", 1, topic="a").json["deduped"] is False
    assert keyed(world, "k", 1, topic="b").json["deduped"] is False


def test_the_window_ends_after_its_last_millisecond(world: World) -> None:
    """R-IDEM-3, R-IDEM-4: then the key is forgotten and starts anew."""
    world.put("t", idempotency_window_ms=1000)
    keyed(world, "k", "first")
    stamp = world.diff("t")["records"][0]["$ts"]
    world.advance_to_ms(stamp + 1000)
    assert keyed(world, "k", "x").json["deduped"] is True
    world.advance_to_ms(stamp + 1003)
    assert keyed(world, "k", "second").json["seqs"] == [2]
    world.advance_to_ms(stamp + 2000)
    assert keyed(world, "k", "x").json["seqs"] == [2]
    assert world.data("t") == ["first", "second"]


def test_the_window_is_the_current_one(world: World) -> None:
    """R-IDEM-3: shorter or longer than when the key came; 0 remembers no further than its millisecond."""
    world.put("t", idempotency_window_ms=10_000)
    keyed(world, "k", 1)
    world.advance_ms(500)
    world.put("t", idempotency_window_ms=400)
    assert keyed(world, "k", 2).json["deduped"] is False
    world.put("t", idempotency_window_ms=0)
    world.advance_ms(10)
    assert keyed(world, "k", 3).json["deduped"] is False


def test_a_window_of_nothing_is_no_trouble(world: World) -> None:
    """R-IDEM-4: a key may be forgotten before its write is committed."""
    world.put("t", idempotency_window_ms=0, durability="fsync")
    writers = []
    for number in range(30):
        writers.append(world.ask("POST", "/v0/topics/t", {"records": [{"data": number}], "idempotency_key": "k"}))
        world.advance_ms(2)
    answers = [writer.answer() for writer in writers]
    assert {answer.status for answer in answers} == {200}
    # On a machine with slow syncs one may come while the one before is under way: then it is its
    # duplicate (R-IDEM-5).
    appended = [number for number, answer in enumerate(answers) if not answer.json["deduped"]]
    assert world.data("t") == appended
    assert len(appended) > 20


def test_of_concurrent_duplicates_one_appends(world: World) -> None:
    """R-IDEM-5: the others wait for it and answer as it did."""
    world.put("t", durability="fsync")
    body = {"records": [{"data": 1}, {"data": 2}], "idempotency_key": "k"}
    answers = [writer.answer() for writer in [world.ask("POST", "/v0/topics/t", body) for _ in range(10)]]
    assert {answer.status for answer in answers} == {200}
    assert sorted(answer.json["deduped"] for answer in answers) == [False] + [True] * 9
    assert all(answer.json["seqs"] == [1, 2] for answer in answers)
    assert world.state("t")["head_seq"] == 2


def test_a_failed_write_stores_no_key(world: World) -> None:
    """R-IDEM-6: refused, too large, or not stored by the disk."""
    world.put("t", discard="reject", cap_records=1)
    assert keyed(world, "k", 1, 2).status == 400
    assert keyed(world, "other", 1).status == 200
    assert keyed(world, "k", 1).status == 422
    world.delete("t", before_seq=2)
    assert keyed(world, "k", 1).json["deduped"] is False


def test_a_write_that_met_a_broken_disk_stores_no_key(world: World) -> None:
    """R-IDEM-6: the retry after the restart is the first."""
    world.put("t", durability="fsync")
    world.fail_storage("write", 5, times=10)
    assert keyed(world, "k", 1).status == 500
    world.heal_storage()
    world.crash_and_start()
    assert keyed(world, "k", 1).json["deduped"] is False
    assert world.data("t") == [1]


def test_checks_before_the_lookup_hold_for_duplicates(world: World) -> None:
    """R-IDEM-7: an empty list, a wrong record, a missing topic."""
    keyed(world, "k", 1)
    assert keyed(world, "k").refusal == (400, "invalid_request", None)
    body = {"records": [{"data": 1, "tag": "t" * 257}], "idempotency_key": "k"}
    assert world.request("POST", "/v0/topics/t", body).status == 400


def test_a_duplicate_succeeds_on_a_full_topic(world: World) -> None:
    """R-IDEM-7: room is asked for after the lookup."""
    world.put("t", discard="reject", cap_records=1)
    keyed(world, "k", 1)
    assert keyed(world, "k", 1).json["deduped"] is True
    assert keyed(world, "k", 1, 2, 3).json["deduped"] is True
    assert keyed(world, "new", 1).status == 422


def test_a_new_instance_knows_no_keys(world: World) -> None:
    """R-IDEM-8: the same key appends at its beginning."""
    keyed(world, "k", 1, 2)
    world.drop("t")
    answer = keyed(world, "k", 3)
    assert (answer.status, answer.json["deduped"], answer.json["seqs"]) == (201, False, [1])


@pytest.mark.parametrize("durability", ["disk", "fsync"])
@pytest.mark.parametrize("end", ["restart", "crash", "crash twice", "restart and crash"])
def test_keys_survive_with_their_records(world: World, durability: str, end: str) -> None:
    """R-IDEM-8, R-DUR-12: a retry after the crash finds them."""
    world.put("t", durability=durability)
    keyed(world, "k", 1, 2)
    keyed(world, "gone", 3)
    world.delete("t", before_seq=4)
    for step in end.split():
        if step == "restart":
            world.restart()
        elif step in ("crash", "twice"):
            world.crash_and_start()
    answer = keyed(world, "k", 9).json
    assert (answer["deduped"], answer["seqs"], answer["head_seq"]) == (True, [1, 2], 2)
    assert keyed(world, "gone", 9).json["seqs"] == [3]
    assert keyed(world, "fresh", 4).json["seqs"] == [4]


def test_a_window_goes_on_over_a_restart(world: World) -> None:
    """R-DUR-12, R-IDEM-4: the time that passed before it counts."""
    world.put("t", idempotency_window_ms=10_000)
    keyed(world, "k", 1)
    world.advance_ms(6000)
    world.crash_and_start()
    assert keyed(world, "k", 1).json["deduped"] is True
    world.advance_ms(6000)
    assert keyed(world, "k", 2).json["deduped"] is False


def test_a_duplicate_of_the_creating_write_created_nothing(world: World) -> None:
    """R-IDEM-9: 200 and false."""
    first = keyed(world, "k", 1)
    assert (first.status, first.json["created"]) == (201, True)
    again = keyed(world, "k", 1)
    assert (again.status, again.json["created"], again.json["deduped"]) == (200, False, True)
