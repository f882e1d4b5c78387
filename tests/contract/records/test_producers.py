"""Parts of producers: written once, known for long, and as durable as their records."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.world.websocket_client import WebSocket
from tests.contract.world.world import World

MakeWorld = Callable[..., World]
_DAY_MS = 86_400_000
_CHECKPOINT_MS = 1100


def body(data: tuple[Any, ...], epoch: int = 0, part: int = 0, producer: str = "p", **fields: Any) -> dict[str, Any]:
    named = {"id": producer, "epoch": epoch, "part": part}
    return {"records": [{"data": each} for each in data], "producer": named, **fields}


def send(world: World, *data: Any, topic: str = "t", **part: Any) -> Any:
    return world.request("POST", f"/v0/topics/{topic}", body(data, **part))


def written(world: World, *data: Any, **part: Any) -> Any:
    """The answer to a write that succeeds."""
    answer = send(world, *data, **part)
    assert answer.status in (200, 201), f"{answer.status} {answer.text[:300]}"
    return answer.json


def stale(epoch: int, newest: int, producer: str = "p") -> tuple[int, str, Any]:
    detail = {"topic": "t", "producer": producer, "epoch": epoch, "newest": newest}
    return 409, "producer_stale", detail


def test_a_part_is_appended_once(world: World) -> None:
    """R-PROD-1, R-PROD-2: the first answer, whatever came between."""
    first = send(world, 1, 2)
    assert (first.status, first.json["deduped"], first.json["created"]) == (201, False, True)
    world.write("t", "other")
    again = send(world, 1, 2)
    answer = again.json
    answer.pop("performance")
    assert again.status == 200
    assert answer == {
        "topic": "t", "first_seq": 1, "last_seq": 2, "seqs": [1, 2], "head_seq": 2, "count": 2, "created": False,
        "deduped": True,
    }  # fmt: skip
    assert world.data("t") == [1, 2, "other"]


def test_a_name_is_of_all_its_members_and_of_one_topic(world: World) -> None:
    """R-PROD-1: another producer, epoch, part or topic is another part."""
    for seq, name in enumerate(({}, {"producer": "q"}, {"epoch": 1}, {"part": 1}), 1):
        assert written(world, "x", **name)["first_seq"] == seq
    assert written(world, "x", topic="u")["deduped"] is False
    assert written(world, "x", part=1)["first_seq"] == 4


def test_the_order_of_the_records_does_not_count(world: World) -> None:
    """R-PROD-2."""
    written(world, 1, 2, 3)
    assert written(world, 3, 1, 2)["deduped"] is True
    assert world.data("t") == [1, 2, 3]


def test_a_part_with_other_records_is_refused(world: World) -> None:
    """R-PROD-2: another value, one more, one fewer."""
    written(world, 1, 2)
    detail = {"topic": "t", "producer": "p", "epoch": 0, "part": 0}
    for data in ((1, 3), (1, 2, 2), (1,), (1, 2, 3)):
        assert send(world, *data).refusal == (409, "producer_diverged", detail)
    assert world.state("t")["head_seq"] == 2
    assert written(world, 1, 2)["deduped"] is True


def test_what_a_record_says_besides_its_data_counts_and_blanks_do_not(world: World) -> None:
    """R-PROD-2: tag, node and meta; a node of the whole write is that of its records."""
    record: dict[str, Any] = {"data": {"a": 1}, "tag": "x", "node": "n", "meta": [2]}
    name = {"id": "p", "epoch": 0, "part": 0}

    def status(*changes: dict[str, Any], **fields: Any) -> int:
        records = [{**record, **change} for change in changes or ({},)]
        return world.request("POST", "/v0/topics/t", {"records": records, "producer": name, **fields}).status

    assert status() == 201
    assert status({"node": None}, node="n") == 200
    for change in ({"tag": None}, {"tag": ""}, {"node": None}, {"node": "m"}, {"meta": None}, {"meta": [3]}):
        assert status(change) == 409, change
    spaced = (
        b'{"producer": {"part":0, "epoch":0, "id":"\\u0070", "new": null}, "records": '
        b'[ {"meta" : [ 2 ], "data" : { "a" : 1 }, "node": "n", "tag" : "\\u0078"} ] }'
    )
    headers = {"Content-Type": "application/json"}
    assert world.request("POST", "/v0/topics/t", spaced, headers).json["deduped"] is True


@pytest.mark.parametrize(
    ("producer", "words"),
    [
        ("p", "producer must be an object or null"),
        ([], "producer must be an object or null"),
        ({"epoch": 0, "part": 0}, "producer.id is missing"),
        ({"id": 1, "epoch": 0, "part": 0}, "producer.id must be a string"),
        ({"id": "", "epoch": 0, "part": 0}, "producer.id is empty"),
        ({"id": "é" * 129, "epoch": 0, "part": 0}, "producer.id has 258 bytes: use at most 256"),
        ({"id": "p", "part": 0}, "producer.epoch is missing"),
        ({"id": "p", "epoch": -1, "part": 0}, "whole number from 0 to 9223372036854775807, not the number -1"),
        ({"id": "p", "epoch": 1.0, "part": 0}, "producer.epoch must be a whole number"),
        (
            {"id": "p", "epoch": 2**63, "part": 0},
            "producer.epoch must be a whole number from 0 to 9223372036854775807,",
        ),
        ({"id": "p", "epoch": 0}, "producer.part is missing"),
        ({"id": "p", "epoch": 0, "part": None}, "producer.part must be a whole number from 0 to 65535, not null"),
        ({"id": "p", "epoch": 0, "part": 65536}, "producer.part must be a whole number from 0 to 65535, not"),
    ],
)
def test_a_producer_of_another_shape_is_refused_by_the_name_of_the_member(
    world: World, producer: Any, words: str
) -> None:
    """7.5/1: nothing is made."""
    answer = world.request("POST", "/v0/topics/t", {"records": [{"data": 1}], "producer": producer})
    assert answer.refusal[:2] == (400, "invalid_request")
    assert words in answer.error["message"]
    assert world.request("GET", "/v0/topics/t").status == 404


def test_members_at_their_bounds_are_taken_and_a_null_producer_is_none(world: World) -> None:
    """7.5: 256 bytes, 2^63-1 and 65535."""
    bounds = {"producer": "é" * 128, "epoch": 2**63 - 1, "part": 65_535}
    assert written(world, 1, **bounds)["deduped"] is False
    assert written(world, 1, **bounds)["deduped"] is True
    for _ in range(2):
        assert world.write("t", 1, producer=None)["deduped"] is False


def test_a_part_with_an_idempotency_key_is_refused(world: World) -> None:
    """7.5/3: in the body or in the header. A header that is no key is ignored."""
    assert send(world, 1, idempotency_key="k").refusal == (400, "invalid_request", None)
    for key, status in (("k", 400), ("", 400), ("\xe9", 201)):
        answer = world.request("POST", "/v0/topics/t", body((1,)), {"Idempotency-Key": key})
        assert answer.status == status


def test_sixteen_epochs_are_known(world: World) -> None:
    """R-PROD-3: the lowest is dropped when a new one comes, wherever that is, and is never appended again."""
    for epoch in range(10, 42, 2):
        written(world, epoch, epoch=epoch)
    assert written(world, 10, epoch=10)["deduped"] is True
    assert send(world, "low", epoch=9).refusal == stale(9, 40)
    assert written(world, "between", epoch=21)["deduped"] is False
    assert send(world, 10, epoch=10).refusal == stale(10, 40)
    assert send(world, "new", epoch=10, part=1).refusal == stale(10, 40)
    assert send(world, "new", epoch=11).refusal == stale(11, 40)
    assert written(world, 12, epoch=12)["deduped"] is True
    assert written(world, "more", epoch=12, part=1)["deduped"] is False
    assert written(world, "x", producer="q")["deduped"] is False
    assert world.state("t")["head_seq"] == 19


def test_a_producer_that_was_silent_goes_on_above_its_newest_epoch(make_world: MakeWorld) -> None:
    """R-PROD-4: the parts of other epochs are forgotten, after a restart, too, and never appended again."""
    world = make_world(producer_silence_ms=1000)
    written(world, 1, epoch=3)
    written(world, 2, epoch=7)
    written(world, 1, producer="q", epoch=7)
    world.advance_ms(900)
    written(world, 3, epoch=7, part=1)
    world.advance_ms(200)
    assert written(world, 1, epoch=3)["deduped"] is True
    assert send(world, 1, producer="q", epoch=7).refusal == stale(7, 7, "q")
    world.advance_ms(1000)
    for restart in (False, True):
        if restart:
            world.restart()
        for epoch in (0, 3, 7):
            assert send(world, 1, epoch=epoch).refusal == stale(epoch, 7)
    assert written(world, 1, epoch=8)["first_seq"] == 5
    assert written(world, 1, epoch=8)["deduped"] is True
    assert send(world, 2, epoch=7).refusal == stale(7, 7 + 1)


def test_the_limit_of_producers_is_over_all_topics(make_world: MakeWorld) -> None:
    """R-PROD-5: producers with only their newest epoch count; known ones continue, dropped ones free their place."""
    world = make_world(max_producers=2, producer_silence_ms=1000)
    written(world, 1)
    written(world, 1, topic="u")
    world.advance_ms(1100)
    refusal = (429, "throttled", {"limit": "max_producers", "max": 2})
    for restart in (False, True):
        if restart:
            world.crash_and_start()
        assert send(world, 1, producer="q").refusal == refusal
        assert send(world, 1, topic="v").refusal == refusal
        assert send(world, 1, epoch=0).status == 409
        assert written(world, 1, topic="u", epoch=5 + restart)["deduped"] is False
    world.drop("u")
    assert written(world, 1, producer="q")["deduped"] is False
    assert send(world, 1, producer="r").refusal == refusal
    world.delete("t", before_seq=100)
    assert send(world, 1, producer="r").refusal == refusal
    world.crash_and_start(max_producers=0)
    assert written(world, 1, producer="r")["deduped"] is False


def test_the_limit_of_known_parts_is_over_all_topics(make_world: MakeWorld) -> None:
    """R-PROD-5: an epoch that is forgotten frees the place of its parts."""
    world = make_world(max_producer_parts=4, producer_epochs=2)
    for name in ({}, {"part": 1}, {"producer": "q"}, {"epoch": 1}):
        written(world, 1, **name)
    refusal = (429, "throttled", {"limit": "max_producer_parts", "max": 4})
    assert send(world, 1, epoch=1, part=1).refusal == refusal
    assert send(world, 1, producer="r").refusal == refusal
    assert written(world, 1, part=1)["deduped"] is True
    world.crash_and_start(max_producer_parts=5)
    written(world, 1, epoch=2)  # epoch 0 and its two parts go
    assert written(world, 1, producer="r")["deduped"] is False
    assert written(world, 1, producer="r", part=1)["deduped"] is False
    assert send(world, 1, producer="r", part=2).refusal[:2] == refusal[:2]


def test_writes_on_their_way_count_for_the_limits(make_world: MakeWorld) -> None:
    """R-PROD-5, R-LIM-1: requests in flight at the same time do not exceed a limit together."""
    world = make_world(max_producers=3, max_producer_parts=5)
    world.put("t", durability="fsync")
    asked = [world.ask("POST", "/v0/topics/t", body((1,), producer=f"p{number}")) for number in range(6)]
    assert sorted(each.answer().status for each in asked) == [200] * 3 + [429] * 3
    names = [number for number, each in enumerate(asked) if send(world, 1, producer=f"p{number}").status == 200]
    assert len(names) == 3
    asked = [world.ask("POST", "/v0/topics/t", body((1,), producer=f"p{names[0]}", part=part)) for part in range(1, 6)]
    assert sorted(each.answer().status for each in asked) == [200] * 2 + [429] * 3


def test_a_write_that_fails_frees_its_place(world: World) -> None:
    """R-PROD-5, R-LIM-1: of its producer and of its part, as the metrics of 12.3 show."""
    world.put("t", durability="fsync")
    written(world, 1)
    world.fail_storage("write", 5)
    asked = [world.ask("POST", "/v0/topics/t", body((1,), producer="q", part=part)) for part in range(3)]
    assert {each.answer().status for each in asked} == {500}
    metrics = world.request("GET", "/v0/metrics").text
    assert re.findall(r"^topics_producer(?:s|_parts) (\d+)", metrics, re.MULTILINE) == ["1", "1"]


def test_of_writes_of_one_part_at_the_same_time_one_appends(world: World) -> None:
    """R-PROD-6: the others are compared with it."""
    world.put("t", durability="fsync")
    asked = [world.ask("POST", "/v0/topics/t", body((1, 2))) for _ in range(6)]
    others = [world.ask("POST", "/v0/topics/t", body((1, 3))) for _ in range(3)]
    answers = [each.answer() for each in (*asked, *others)]
    appended = [answer for answer in answers if answer.status == 200 and not answer.json["deduped"]]
    assert len(appended) == 1
    wins = world.data("t")
    assert wins in ([1, 2], [1, 3])
    same, different = (answers[:6], answers[6:]) if wins == [1, 2] else (answers[6:], answers[:6])
    assert {answer.status for answer in same} == {200}
    assert all(answer.json["seqs"] == [1, 2] for answer in same)
    assert {answer.refusal[:2] for answer in different} == {(409, "producer_diverged")}


def test_a_part_that_the_cap_refused_appends_once_there_is_room(world: World) -> None:
    """R-PROD-6: too large for the whole cap, or the topic was full."""
    world.put("t", discard="reject", cap_records=2, durability="fsync")
    assert send(world, 1, 2, 3).refusal[:2] == (400, "record_too_large")
    written(world, 1, part=1)
    assert send(world, 1, 2).refusal[:2] == (422, "topic_full")
    world.delete("t", before_seq=2)
    assert written(world, 1, 2)["deduped"] is False


def test_a_part_that_met_a_broken_disk_is_not_known(world: World) -> None:
    """R-PROD-6, R-PROD-7: nor are those that waited for it; after the restart it is the first."""
    world.put("t", durability="fsync")
    world.fail_storage("write", 5, times=10)
    asked = [world.ask("POST", "/v0/topics/t", body((1,))) for _ in range(3)]
    assert {each.answer().status for each in asked} == {500}
    world.heal_storage()
    world.crash_and_start()
    assert written(world, 1)["deduped"] is False
    assert world.data("t") == [1]


def test_checks_before_the_lookup_hold_for_known_parts_and_room_is_asked_for_after_it(world: World) -> None:
    """R-PROD-6, 7.5/6: a full topic answers a known part; a wrong record is refused."""
    world.put("t", discard="reject", cap_records=2)
    written(world, 1, 2)
    assert written(world, 1, 2)["deduped"] is True
    assert send(world, 1, 3).refusal[:2] == (409, "producer_diverged")
    assert send(world, 1, part=1).refusal[:2] == (422, "topic_full")
    assert send(world).refusal == (400, "invalid_request", None)
    long = {"records": [{"data": 1, "tag": "t" * 257}], "producer": {"id": "p", "epoch": 0, "part": 0}}
    assert world.request("POST", "/v0/topics/t", long).status == 400


def test_a_known_part_is_answered_under_a_full_quota(make_world: MakeWorld) -> None:
    """R-PROD-6."""
    world = make_world(max_total_bytes=10)
    written(world, "x" * 8)
    assert written(world, "x" * 8)["deduped"] is True
    assert send(world, "y", part=1).refusal[:2] == (429, "throttled")


@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
@pytest.mark.parametrize(
    "ends", [("restart",), ("crash",), ("checkpoint", "crash"), ("checkpoint", "crash", "restart")]
)
def test_parts_outlive_restarts_and_their_records(
    make_world: MakeWorld, durability: str, ends: tuple[str, ...]
) -> None:
    """R-PROD-7, R-DUR-12: evicted, expired, deleted or there."""
    world = make_world(checkpoint_wal_bytes=1)
    world.put("t", durability=durability, cap_records=3)
    world.put("u", durability=durability)
    for part in range(5):
        written(world, part, part, part=part)
        written(world, part, part=part, topic="u")
    world.delete("u", before_seq=3)
    world.put("u", durability=durability, ttl_ms=10)
    world.advance_ms(50)
    assert world.state("u")["count"] == 0
    for end in ends:
        if end == "checkpoint":
            world.advance_ms(_CHECKPOINT_MS)
        elif end == "crash":
            world.crash_and_start()
        else:
            world.restart()
    for part in range(5):
        assert written(world, part, part, part=part)["seqs"] == [2 * part + 1, 2 * part + 2]
        assert send(world, part, "other", part=part).refusal[:2] == (409, "producer_diverged")
        assert written(world, part, part=part, topic="u")["deduped"] is True
    assert world.data("t") == [3, 4, 4]


def test_epochs_that_are_forgotten_stay_so_over_restarts(make_world: MakeWorld) -> None:
    """R-PROD-3, R-PROD-7: with more of them to know, too; fewer are known at once."""
    world = make_world(producer_epochs=3)
    for epoch in range(5):
        written(world, epoch, epoch=epoch)
    world.restart(producer_epochs=10)
    assert send(world, 1, epoch=1).refusal == stale(1, 4)
    assert written(world, 2, epoch=2)["deduped"] is True
    world.restart(producer_epochs=2)
    assert send(world, 2, epoch=2).refusal == stale(2, 4)
    assert written(world, 3, epoch=3)["deduped"] is True
    world.restart(producer_epochs=16)
    assert send(world, 2, epoch=2).refusal == stale(2, 4)


def test_an_ephemeral_topic_forgets_parts_with_their_records(world: World) -> None:
    """R-PROD-7: those written in another class, too, and a change of class brings none of them back."""
    world.put("t")
    written(world, "of disk")
    world.put("t", durability="ephemeral")
    assert written(world, "of disk")["deduped"] is True
    written(world, 1, epoch=5)
    assert written(world, 1, epoch=5)["deduped"] is True
    world.restart()
    assert written(world, 1, epoch=5)["deduped"] is False
    assert written(world, "of disk")["deduped"] is False
    world.put("t", durability="disk")
    written(world, 2, epoch=6)
    assert written(world, 1, epoch=5)["deduped"] is True
    world.crash_and_start()
    assert written(world, 2, epoch=6)["deduped"] is True
    assert written(world, 1, epoch=5)["deduped"] is False
    assert written(world, "of disk")["deduped"] is False


def test_a_power_cut_takes_parts_with_their_records(world: World) -> None:
    """R-PROD-7: what is left of a topic is a beginning, and of its parts those that are in it."""
    world.put("t", durability="disk")
    for part in range(8):
        written(world, part, part=part)
    world.power_cut()
    world.start()
    there = world.data("t")
    assert there == list(range(len(there)))
    for part in range(8):
        assert written(world, part, part=part)["deduped"] is (part < len(there))
    assert world.data("t") == list(range(8))


def test_a_new_instance_knows_no_producers(world: World) -> None:
    """R-PROD-8, R-REC-1: not those of before, whatever ended."""
    written(world, 1, epoch=9)
    world.drop("t")
    answer = send(world, 2, epoch=9)
    assert (answer.status, answer.json["deduped"], answer.json["seqs"]) == (201, False, [1])
    assert written(world, 2, epoch=9)["deduped"] is True
    world.crash_and_start()
    assert written(world, 2, epoch=9)["deduped"] is True
    assert send(world, 1, epoch=9).refusal[:2] == (409, "producer_diverged")


def test_a_router_forwards_records_and_no_parts(world: World) -> None:
    """R-PROD-8: the same name is another part in its destination, after a crash and a checkpoint, too."""
    assert world.request("PUT", "/v0/routers/r", {"source": "t", "dest": "u"}).status == 201
    written(world, 1)
    assert world.data("u") == [1]
    assert written(world, 2, topic="u")["deduped"] is False
    world.crash_and_start()
    assert world.data("u") == [1, 2]
    assert written(world, 1)["deduped"] is True
    assert written(world, 2, topic="u")["deduped"] is True
    assert world.data("u") == [1, 2]


def test_a_websocket_and_http_share_parts(world: World) -> None:
    """R-PROD-2, 11.4: its errors have no detail."""
    socket = WebSocket(world)
    publish = {"op": "publish", "topic": "t", **body((1, 2), epoch=3)}
    assert socket.ask(publish)["deduped"] is False
    assert written(world, 2, 1, epoch=3)["deduped"] is True
    assert socket.ask(publish)["seqs"] == [1, 2]
    refused = socket.ask({"op": "publish", "topic": "t", **body((1, 3), epoch=3)})
    assert (refused["op"], refused["code"]) == ("error", "producer_diverged")
    wrong = socket.ask({"op": "publish", "topic": "t", "records": [{"data": 1}], "producer": {"id": "p"}})
    assert (wrong["code"], wrong["request_id"]) == ("invalid_json", None)
    both = socket.ask({**publish, "idempotency_key": "k"})
    assert both["code"] == "invalid_request"


def test_a_part_for_another_incarnation_is_refused_also_a_known_one(world: World) -> None:
    """R-INC-4, 7.5/5: nothing is made, and nothing of the part is known afterwards."""
    refusal = (409, "incarnation_mismatch", {"topic": "t", "incarnation": None})
    assert send(world, 1, incarnation="0" * 16).refusal == refusal
    written(world, 1)
    present = world.request("GET", "/v0/topics/t?incarnation=true").json["incarnation"]
    refusal = (409, "incarnation_mismatch", {"topic": "t", "incarnation": present})
    for part in (0, 1):
        assert send(world, 1, part=part, incarnation="0" * 16).refusal == refusal
    assert written(world, 1, incarnation=present)["deduped"] is True
    assert written(world, 1, part=1, incarnation=present)["deduped"] is False


# --- parts in pieces --------------------------------------------------------------------------------------------------
def piece(world: World, number: int, *data: Any, last: bool = False, **fields: Any) -> Any:
    named = {"id": "p", "epoch": 0, "part": 0, "piece": number, "last": last, "attempt": "a", **fields}
    return world.request("POST", "/v0/topics/t", {"records": [{"data": each} for each in data], "producer": named})


def test_staged_pieces_are_seen_nowhere_and_appended_together(world: World) -> None:
    """R-PROD-9: their answers have no seqs; the last one answers for all."""
    first = piece(world, 0, 1, 2)
    assert first.status == 201
    answer = first.json
    assert answer.pop("performance").keys() == {"server_total_ms", "wal_append_ms", "fsync_ms"}
    assert answer == {"topic": "t", "staged": True, "piece": 0, "count": 2, "created": True, "deduped": False}
    again = piece(world, 0, 1, 2)
    assert (again.status, again.json["deduped"], again.json["staged"]) == (200, True, True)
    assert world.request("GET", "/v0/topics").json["topics"][0]["count"] == 0
    assert len(world.request("GET", "/v0/topics").json["topics"]) == 1
    metrics = world.request("GET", "/v0/metrics").text
    assert "topics_records_live 0" in metrics.replace(".0", "")
    world.write("t", "other")
    answer = piece(world, 1, 3, last=True).json
    answer.pop("performance")
    assert answer == {
        "topic": "t", "first_seq": 2, "last_seq": 4, "head_seq": 4, "count": 3, "created": False, "deduped": False,
    }  # fmt: skip
    assert world.data("t") == ["other", 1, 2, 3]
    assert written(world, 3, 2, 1)["seqs"] == [2, 3, 4]


def test_pieces_that_do_not_come_next_or_differ_are_refused(world: World) -> None:
    """R-PROD-10."""
    detail = {"topic": "t", "producer": "p", "epoch": 0, "part": 0}
    world.put("t")
    assert piece(world, 1, 1).refusal == (409, "producer_incomplete", {**detail, "piece": 0})
    piece(world, 0, 1)
    assert piece(world, 2, 1, last=True).refusal == (409, "producer_incomplete", {**detail, "piece": 1})
    assert piece(world, 1, 1, attempt="b").refusal == (409, "producer_incomplete", {**detail, "piece": 0})
    piece(world, 1, 2)
    assert piece(world, 1, 3).refusal == (409, "producer_diverged", detail)
    assert piece(world, 0, 5, attempt="b").json["deduped"] is False
    assert piece(world, 1, 6, attempt="b", last=True).json["count"] == 2
    assert world.data("t") == [5, 6]


def test_pieces_of_a_known_part_are_compared(world: World) -> None:
    """R-PROD-11: cut in another way."""
    written(world, 1, 2, 3)
    assert piece(world, 0, 3).json["deduped"] is True
    answer = piece(world, 1, 2, 1, last=True).json
    assert (answer["first_seq"], answer["count"], answer["deduped"]) == (1, 3, True)
    piece(world, 0, 3, attempt="b")
    assert piece(world, 1, 2, 2, attempt="b", last=True).refusal[:2] == (409, "producer_diverged")
    assert world.data("t") == [1, 2, 3]


def test_what_is_staged_has_bounds(make_world: MakeWorld) -> None:
    """R-PROD-12."""
    world = make_world(max_part_records=3, max_part_bytes=30, max_staged_bytes=1300)
    piece(world, 0, 1, 2)
    assert piece(world, 1, 3, 4).refusal == (400, "part_too_large", {"limit": "max_part_records", "max": 3})
    assert piece(world, 1, "x" * 30).refusal == (400, "part_too_large", {"limit": "max_part_bytes", "max": 30})
    assert piece(world, 0, "x" * 20, part=1).status == 200
    refusal = (429, "throttled", {"limit": "max_staged_bytes", "max": 1300})
    assert piece(world, 0, 1, part=2).refusal == refusal
    assert piece(world, 1, 3, last=True).status == 200
    world.advance_ms(100)
    assert piece(world, 0, 1, part=2).status == 200


def test_staged_pieces_are_dropped_by_age(make_world: MakeWorld) -> None:
    """R-PROD-12, R-PROD-10."""
    world = make_world(staged_ttl_ms=2000)
    piece(world, 0, 1)
    world.advance_ms(1500)
    assert piece(world, 1, 2).status == 200
    world.advance_ms(1500)
    assert piece(world, 2, 3).status == 200
    world.advance_ms(3000)
    assert piece(world, 3, 4, last=True).refusal[:2] == (409, "producer_incomplete")


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
@pytest.mark.parametrize("end", ["kill", "checkpoint", "stop"])
def test_staged_pieces_outlive_kills_in_every_class(make_world: MakeWorld, durability: str, end: str) -> None:
    """R-PROD-13."""
    world = make_world(checkpoint_wal_bytes=1)
    world.put("t", durability=durability)
    piece(world, 0, 1)
    piece(world, 1, 2)
    if end == "checkpoint":
        world.advance_ms(_CHECKPOINT_MS)
    if end == "stop":
        world.restart()
    else:
        world.crash_and_start()
    assert piece(world, 1, 2).json["deduped"] is True
    assert piece(world, 2, 3, last=True).json["count"] == 3
    assert world.data("t") == [1, 2, 3]


def test_deleting_the_topic_drops_what_is_staged_for_it(world: World) -> None:
    """R-PROD-8."""
    piece(world, 0, 1)
    world.drop("t")
    world.put("t")
    assert piece(world, 1, 2, last=True).refusal[:2] == (409, "producer_incomplete")


@pytest.mark.parametrize(
    ("member", "words"),
    [
        ({"piece": 65_536}, "producer.piece must be a whole number from 0 to 65535, not"),
        ({"last": 1}, "producer.last must be true or false"),
        ({"attempt": None}, "producer.attempt must be a string"),
        ({"attempt": "x" * 257}, "producer.attempt has 257 bytes: use at most 256"),
    ],
)
def test_members_of_a_piece_have_their_types(world: World, member: dict[str, Any], words: str) -> None:
    """7.5/1."""
    answer = piece(world, 0, 1, **member)
    assert answer.refusal[:2] == (400, "invalid_request")
    assert words in answer.error["message"]


def test_a_websocket_stages_pieces(world: World) -> None:
    """R-PROD-9, 11.4."""
    socket = WebSocket(world)
    producer = {"id": "p", "epoch": 0, "part": 0, "piece": 0, "last": False}
    told = socket.ask({"op": "publish", "topic": "t", "records": [{"data": 1}], "producer": producer})
    assert {**told, "performance": None, "request_id": None} == {
        "op": "ack", "request_id": None, "topic": "t", "staged": True, "piece": 0, "count": 1, "created": True,
        "deduped": False, "performance": None,
    }  # fmt: skip
    told = socket.ask(
        {"op": "publish", "topic": "t", "records": [{"data": 2}], "producer": {**producer, "piece": 1, "last": True}}
    )
    assert (told["first_seq"], told["last_seq"], told["seqs"], told["count"]) == (1, 2, None, 2)


def test_metrics_count_producers_their_parts_and_what_is_staged(world: World) -> None:
    """12.3."""
    names = ("topics_producers", "topics_producer_parts", "topics_staged_bytes")

    def found() -> list[int]:
        text = world.request("GET", "/v0/metrics").text
        return [int(float(re.findall(rf"^{name} (\S+)$", text, re.MULTILINE)[0])) for name in names]

    world.put("t")
    assert found() == [0, 0, 0]
    for epoch in range(2):
        written(world, 1, epoch=epoch)
    assert found() == [1, 2, 0]
    assert piece(world, 0, 1, epoch=2).status == 200
    assert found() == [1, 2, 1 + 512]
