"""Incarnations: how a reader sees that a seq names another record now."""

from __future__ import annotations

import re

import pytest

from tests.contract.world.websocket_client import WebSocket
from tests.contract.world.world import World, tombstone


def incarnation_of(world: World, topic: str) -> str:
    found: str = world.request("GET", f"/v0/topics/{topic}?touch=false&incarnation=true").json["incarnation"]
    assert re.fullmatch("[0-9a-f]{16}", found)
    return found


# --- shown ----------------------------------------------------------------------------------------------------------
def test_it_is_shown_where_the_query_asks_for_it(world: World) -> None:
    """R-INC-3, 7.2, 7.3: as one more field, and to no other reader."""
    world.put("t")
    world.put("q", type="queue")
    for name in ("t", "q"):
        plain = world.request("GET", f"/v0/topics/{name}").json
        asked = world.request("GET", f"/v0/topics/{name}?incarnation=1").json
        assert set(asked) - set(plain) == {"incarnation"}
        assert "incarnation" not in world.request("GET", f"/v0/topics/{name}?incarnation=no").json
    rows = world.request("GET", "/v0/topics").json["topics"]
    shown = world.request("GET", "/v0/topics?incarnation=true").json["topics"]
    assert [set(one) - set(other) for one, other in zip(shown, rows, strict=True)] == [{"incarnation"}] * 2
    assert [row["incarnation"] for row in shown] == [incarnation_of(world, name) for name in ("q", "t")]


# --- when it changes ------------------------------------------------------------------------------------------------
def test_a_topic_made_again_has_another_one(world: World) -> None:
    """R-INC-2: by a request as by a write."""
    seen = set()
    for _ in range(2):
        world.put("t")
        seen.add(incarnation_of(world, "t"))
        world.drop("t")
        world.write("t", 1)
        seen.add(incarnation_of(world, "t"))
        world.drop("t")
    assert len(seen) == 4


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_it_stays_over_restarts_and_changes_of_the_config(world: World, durability: str) -> None:
    """R-INC-2: stops and kills, records and deletes, another class and back."""
    world.put("t", durability=durability)
    known = incarnation_of(world, "t")
    world.write("t", 1, 2)
    world.delete("t", before_seq=3)
    world.put("t", durability="memory", cap_records=4)
    world.put("t", durability=durability)
    assert incarnation_of(world, "t") == known
    world.restart()
    assert incarnation_of(world, "t") == known
    world.crash_and_start()
    assert incarnation_of(world, "t") == known


def test_it_stays_over_a_power_cut(world: World) -> None:
    """R-INC-2: in class `disk` the seqs that were lost are skipped."""
    world.put("t")
    known = incarnation_of(world, "t")
    world.write("t", 1)
    world.power_cut()
    world.start()
    assert incarnation_of(world, "t") == known
    assert world.write("t", 2)["first_seq"] > 1


@pytest.mark.parametrize("durability", ["memory", "ephemeral"])
def test_each_start_gives_another_one_below_disk(world: World, durability: str) -> None:
    """R-INC-2: also after a graceful stop; from a stronger class on it lasts."""
    world.put("t", durability=durability)
    seen = {incarnation_of(world, "t")}
    world.restart()
    seen.add(incarnation_of(world, "t"))
    world.crash_and_start()
    seen.add(incarnation_of(world, "t"))
    world.crash_and_start()
    world.put("t", durability="disk")
    last = incarnation_of(world, "t")
    assert len(seen | {last}) == 4
    world.crash_and_start()
    assert incarnation_of(world, "t") == last


def test_no_seq_names_two_records_of_one_incarnation(world: World) -> None:
    """R-INC-1: after a power cut in class `memory`, which gives seqs out again."""
    world.put("t", durability="memory")
    named: dict[tuple[str, int], int] = {}
    for life in range(4):
        for number in range(3):
            wrote = world.write("t", 10 * life + number)
            key = incarnation_of(world, "t"), wrote["first_seq"]
            assert named.setdefault(key, 10 * life + number) == 10 * life + number
        world.power_cut()
        world.start()
    assert len({seq for _incarnation, seq in named}) < len(named), "seqs came again"


# --- named by a write -----------------------------------------------------------------------------------------------
def test_a_write_that_means_the_topic_there_is_is_done(world: World) -> None:
    """R-INC-4, 7.5: as any other write, with or without a key."""
    world.write("t", 1)
    known = incarnation_of(world, "t")
    assert world.write("t", 2, incarnation=known)["seqs"] == [2]
    assert world.write("t", 3, incarnation=known, idempotency_key="k")["deduped"] is False
    assert world.write("t", 3, incarnation=known, idempotency_key="k")["deduped"] is True
    assert world.write("t", 4, incarnation=None)["seqs"] == [4]
    assert world.data("t") == [1, 2, 3, 4]


def test_a_write_that_means_another_one_changes_nothing(world: World) -> None:
    """R-INC-4: the refusal has the one there is."""
    world.write("t", "old", idempotency_key="k")
    known = incarnation_of(world, "t")
    world.drop("t")
    body = {"records": [{"data": "new"}], "incarnation": known}
    for more in ({}, {"create": True}, {"config": {"ttl_ms": 5}}, {"idempotency_key": "k"}):
        refusal = world.request("POST", "/v0/topics/t", body | more).refusal
        assert refusal == (409, "incarnation_mismatch", {"topic": "t", "incarnation": None})
    assert world.request("GET", "/v0/topics/t").status == 404
    world.write("t", "made again", idempotency_key="k")
    present = incarnation_of(world, "t")
    for more in ({}, {"idempotency_key": "k"}):
        refusal = world.request("POST", "/v0/topics/t", body | more).refusal
        assert refusal == (409, "incarnation_mismatch", {"topic": "t", "incarnation": present})
    assert world.data("t") == ["made again"]


def test_a_write_behind_a_deletion_on_its_way_means_what_was_deleted(world: World) -> None:
    """R-INC-4: it is refused whatever comes first, a new topic of that name included."""
    world.write("t", 1)
    known = incarnation_of(world, "t")
    pending = [
        world.ask("DELETE", "/v0/topics/t"),
        world.ask("POST", "/v0/topics/t", {"records": [{"data": 2}]}),
        world.ask("POST", "/v0/topics/t", {"records": [{"data": 3}], "incarnation": known}),
    ]
    deleted, _other, meant = (each.answer().status for each in pending)
    assert deleted == 200
    assert meant in (200, 409)
    world.write("t", 4)
    assert 3 not in world.data("t")


# --- named by a read ------------------------------------------------------------------------------------------------
def test_a_cursor_of_another_topic_of_its_name_is_told_though_it_fits(world: World) -> None:
    """R-INC-5, R-REC-3, 7.6: as one above the head, once, whatever the cursor is."""
    world.write("t", 1, 2, 3)
    first = world.diff("t", 0, incarnation="")
    known = first["incarnation"]
    assert known == incarnation_of(world, "t")
    assert "incarnation" not in world.diff("t", 3)
    assert set(first) - set(world.diff("t", 0, incarnation=None)) == {"incarnation"}
    same = world.diff("t", 3, incarnation=known)
    assert (same["records"], same["tombstone"], same["incarnation"]) == ([], None, known)
    world.drop("t")
    world.write("t", 4, 5, 6, 7)
    assert world.diff("t", 3)["tombstone"] is None
    for cursor in (0, 3, 4):
        page = world.diff("t", cursor, incarnation=known, wait_ms=3000)
        assert page["tombstone"] == tombstone(1, 4, "recreated", 4, earliest_seq=1)
        assert [record["data"] for record in page["records"]] == [4, 5, 6, 7]
        assert page["incarnation"] == incarnation_of(world, "t") != known
    after = world.diff("t", page["next_from_seq"], incarnation=page["incarnation"])
    assert (after["records"], after["tombstone"]) == ([], None)
    body = {"from": "first", "incarnation": known}
    begun = world.request("POST", "/v0/topics/t/diff", body).json
    assert (begun["tombstone"], len(begun["records"]), begun["incarnation"]) == (None, 4, page["incarnation"])


def test_an_incarnation_of_another_shape_is_refused_by_a_read(world: World) -> None:
    """R-INC-5"""
    world.write("t", 1)
    for wrong in ("0", "0123456789ABCDEF", 5):
        refused = world.request("POST", "/v0/topics/t/diff", {"incarnation": wrong})
        assert refused.refusal[:2] == (400, "invalid_request")
    assert world.request("POST", "/v0/topics/absent/diff", {"incarnation": ""}).status == 404


@pytest.mark.http1
def test_a_publish_may_name_an_incarnation(world: World) -> None:
    """R-INC-4, 11.4."""
    world.write("t", 1)
    socket = WebSocket(world)
    known = incarnation_of(world, "t")
    publish = {"op": "publish", "topic": "t", "records": [{"data": 2}], "request_id": 1}
    assert socket.ask(publish | {"incarnation": known})["seqs"] == [2]
    refused = socket.ask(publish | {"incarnation": "0" * 16})
    assert (refused["op"], refused["code"], refused["request_id"]) == ("error", "incarnation_mismatch", 1)
    malformed = socket.ask(publish | {"incarnation": "0"})
    assert (malformed["code"], malformed["request_id"]) == ("invalid_json", None)
    assert world.data("t") == [1, 2]
