"""`POST /v0/wait`: heads of several topics, as soon as one of them has news."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.conftest import MakeWorld
from tests.contract.records.test_incarnations import incarnation_of
from tests.contract.world.answer import Answer
from tests.contract.world.world import Connection, World

INVALID = (400, "invalid_request", None)
FOREVER = 60_000


def wait(world: World, topics: Any, wait_ms: int = 0) -> Answer:
    return world.request("POST", "/v0/wait", {"topics": topics, "wait_ms": wait_ms})


def park(world: World, topics: Any, wait_ms: int = FOREVER) -> Connection:
    """A wait that nothing has answered yet."""
    asked = world.ask("POST", "/v0/wait", {"topics": topics, "wait_ms": wait_ms})
    assert asked.waiting
    return asked


def heads(answer: Answer) -> dict[str, int | None]:
    assert answer.status == 200, answer.text
    return {name: None if head is None else head["head_seq"] for name, head in answer.json["topics"].items()}


# --- the answer -----------------------------------------------------------------------------------------------------
def test_an_answer_has_all_names_in_the_order_of_the_request(world: World) -> None:
    """7.8, R-INC-3: exactly these fields; null for what is not there."""
    world.write("b", 1, 2)
    world.put("a")
    answer = wait(world, {"z": None, "b": 0, "no such name": 5, "a": None})
    assert answer.status == 200
    assert set(answer.json) == {"topics", "performance"}
    assert list(answer.json["topics"].items()) == [
        ("z", None),
        ("b", {"head_seq": 2, "incarnation": incarnation_of(world, "b")}),
        ("no such name", None),
        ("a", {"head_seq": 0, "incarnation": incarnation_of(world, "a")}),
    ]
    assert set(answer.json["performance"]) == {"server_total_ms"}


@pytest.mark.parametrize(
    "known", [1, 3, None, {"seq": 2, "incarnation": "0" * 16}, {"seq": 5}, {"seq": 5, "incarnation": None}]
)
def test_what_is_known_wrongly_is_news_at_once(world: World, known: Any) -> None:
    """R-WAIT-1: a head below or above, another incarnation, a topic that was absent."""
    world.write("t", 1, 2)
    world.put("other")
    assert heads(wait(world, {"other": 0, "t": known}, FOREVER)) == {"other": 0, "t": 2}


def test_a_topic_that_has_gone_is_news_at_once(world: World) -> None:
    """R-WAIT-1: it was known with records, or by its incarnation."""
    for known in (1, {"seq": 0, "incarnation": "0" * 16}, {"seq": 1}):
        assert heads(wait(world, {"gone": known}, FOREVER)) == {"gone": None}


def test_what_is_known_rightly_is_waited_for(world: World) -> None:
    """R-WAIT-1, R-WAIT-4: until the time has passed, and with 0 not at all."""
    world.write("t", 1, 2)
    known = {"seq": 2, "incarnation": incarnation_of(world, "t")}
    topics = {"t": known, "absent": None, "new": 0, "none": {"seq": 0}}
    assert heads(wait(world, topics)) == {"t": 2, "absent": None, "new": None, "none": None}
    answer = wait(world, topics, 300)
    assert heads(answer) == {"t": 2, "absent": None, "new": None, "none": None}
    assert answer.json["performance"]["server_total_ms"] >= 300


def test_the_time_of_a_wait_is_clamped(world: World) -> None:
    """R-WAIT-4, 5.2: 30000 ms."""
    world.put("t")
    asked = park(world, {"t": 0}, 4_000_000_000)
    world.advance_ms(29_900)
    assert asked.waiting
    world.advance_ms(150)
    assert heads(asked.answer()) == {"t": 0}


# --- what ends a wait -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_a_record_ends_the_wait(world: World, durability: str) -> None:
    """R-WAIT-1: in any of the topics, once it is readable."""
    world.put("a", durability=durability)
    world.write("b", 1)
    asked = park(world, {"b": 1, "a": 0})
    world.write("a", 1, 2, 3)
    assert heads(asked.answer()) == {"b": 1, "a": 3}


def test_the_creation_of_an_absent_topic_ends_the_wait(world: World) -> None:
    """R-WAIT-2: by a request, by a write that brings its records along, by a router."""
    for known in (None, 0, {"seq": 0}):
        asked = park(world, {"t": known, "other": None})
        world.put("t")
        assert heads(asked.answer()) == {"t": 0, "other": None}
        world.drop("t")
    asked = park(world, {"t": None})
    world.write("t", 1, 2)
    assert heads(asked.answer()) == {"t": 2}
    asked = park(world, {"made": 0, "t": 2})
    world.request("PUT", "/v0/routers/r", {"source": "t", "dest": "made"})
    assert heads(asked.answer())["made"] == 0


def test_a_deletion_ends_the_wait(world: World) -> None:
    """R-WAIT-2: of an empty topic, too, and at once."""
    for values in ((), (1,)):
        world.put("t")
        for value in values:
            world.write("t", value)
        asked = park(world, {"other": None, "t": len(values)})
        world.drop("t")
        assert heads(asked.answer()) == {"other": None, "t": None}


def test_a_topic_created_again_before_any_look_ends_the_wait(world: World) -> None:
    """R-WAIT-2: with the head that was known, and perhaps in one pass."""
    world.write("t", 1)
    known = incarnation_of(world, "t")
    asked = park(world, {"t": 1})
    for each in [world.ask("DELETE", "/v0/topics/t"), world.ask("POST", "/v0/topics/t", {"records": [{"data": 2}]})]:
        each.answer()
    answer = asked.answer().json["topics"]["t"]
    assert answer is None or answer["incarnation"] != known


def test_what_leaves_the_head_alone_is_no_news(world: World) -> None:
    """R-WAIT-3: deletes, another config, what a cap takes, and expiry."""
    world.write("t", 1, 2, 3)
    asked = park(world, {"t": 3})
    world.delete("t", before_seq=2)
    world.put("t", cap_records=1)
    world.put("t", durability="memory")
    assert asked.waiting
    world.write("t", 4)
    assert heads(asked.answer()) == {"t": 4}


def test_expiry_is_no_news(world: World) -> None:
    """R-WAIT-3."""
    world.put("t", ttl_ms=100)
    world.write("t", 1)
    asked = park(world, {"t": 1})
    world.advance_ms(200)
    assert world.state("t")["count"] == 0
    assert asked.waiting


def test_all_who_wait_for_a_topic_are_answered(world: World) -> None:
    """R-WAIT-1: whatever else they wait for; who has been answered is not again."""
    world.put("t")
    asked = [park(world, {f"other-{number}": None, "t": 0}) for number in range(20)]
    world.write("t", 1)
    for number, each in enumerate(asked):
        assert heads(each.answer()) == {f"other-{number}": None, "t": 1}
    world.write("other-3", 1)
    assert all(each.nothing_came for each in asked)


def test_a_start_that_gives_another_incarnation_is_news(world: World) -> None:
    """R-WAIT-1: though the head is the one that is known."""
    world.put("t", durability="memory")
    known = {"seq": 0, "incarnation": incarnation_of(world, "t")}
    park(world, {"t": known}).reset()
    world.restart()
    answer = wait(world, {"t": known}, FOREVER)
    assert answer.json["topics"]["t"] == {"head_seq": 0, "incarnation": incarnation_of(world, "t")}
    assert answer.json["topics"]["t"]["incarnation"] != known["incarnation"]


# --- routers, priority ----------------------------------------------------------------------------------------------
def test_routers_catch_up_before_the_first_look(world: World) -> None:
    """R-WAIT-5: through a chain."""
    world.request("PUT", "/v0/routers/r", {"source": "a", "dest": "b"})
    world.request("PUT", "/v0/routers/s", {"source": "b", "dest": "c"})
    world.write("a", 1, 2)
    assert heads(wait(world, {"c": 0}, FOREVER)) == {"c": 2}


def test_what_a_router_brings_later_is_news(world: World) -> None:
    """R-WAIT-5."""
    world.request("PUT", "/v0/routers/r", {"source": "a", "dest": "b"})
    asked = park(world, {"b": 0})
    world.write("a", 1)
    assert heads(asked.answer(within_ms=1000)) == {"b": 1}


def test_a_wait_is_no_read(world: World) -> None:
    """R-WAIT-6, R-PRI-4."""
    world.write("t", 1)
    before = world.state("t")
    wait(world, {"t": 0})
    asked = park(world, {"t": 1})
    world.write("t", 2)
    asked.answer()
    after = world.state("t")
    assert (before["last_read_ts"], after["last_read_ts"]) == (None, None)
    assert (before["effective_priority"], after["effective_priority"]) == (0, 0)


# --- the end --------------------------------------------------------------------------------------------------------
def test_a_stopping_server_answers_at_once(world: World) -> None:
    """R-WAIT-4, R-LIFE-7: with the present heads, for topics there are and topics there are not."""
    world.write("t", 1)
    asked = [park(world, {"t": 1, "absent": None}), park(world, {"absent": 0})]
    world.begin_stop()
    assert [heads(each.answer(within_ms=2000)) for each in asked] == [{"t": 1, "absent": None}, {"absent": None}]
    assert world.finish_stop() == 0


def test_who_leaves_ends_the_wait(make_world: MakeWorld) -> None:
    """R-NET-11, 7.8/3, R-LIM-1: its place is free; so is that of one who was answered."""
    world = make_world(max_waits=1)
    full = (429, "throttled", {"limit": "max_waits", "max": 1})
    world.put("t")
    asked = park(world, {"t": 0, "absent": None})
    assert wait(world, {"absent": None}, FOREVER).refusal == full
    assert heads(wait(world, {"absent": None})) == {"absent": None}
    assert heads(wait(world, {"t": 1}, FOREVER)) == {"t": 0}
    asked.reset()
    asked = park(world, {"absent": None})
    world.put("absent")
    assert heads(asked.answer()) == {"absent": 0}
    park(world, {"absent": 0})
    assert wait(world, {"absent": 0}, FOREVER).refusal == full


def test_all_waits_together_name_so_many_topics_at_most(make_world: MakeWorld) -> None:
    """7.8/3: a wait that has ended frees its names; an answer that comes at once needs none."""
    world = make_world(max_waited_topics=3)
    full = (429, "throttled", {"limit": "max_waited_topics", "max": 3})
    asked = park(world, {"a": None, "b": None})
    assert wait(world, {"a": None, "c": None}, FOREVER).refusal == full
    assert heads(wait(world, {"a": None, "c": None})) == {"a": None, "c": None}
    world.put("b")
    assert heads(asked.answer()) == {"a": None, "b": 0}
    park(world, {"a": None, "c": None, "d": None})


# --- checks ---------------------------------------------------------------------------------------------------------
BAD = [
    {},
    {"topics": None},
    {"topics": []},
    {"topics": {}},
    {"topics": {f"t{number}": 0 for number in range(257)}},
    {"topics": {"t" * 256: 0}},
    {"topics": {"t": -1}},
    {"topics": {"t": 1.0}},
    {"topics": {"t": "1"}},
    {"topics": {"t": True}},
    {"topics": {"t": [1]}},
    {"topics": {"t": {}}},
    {"topics": {"t": {"seq": None}}},
    {"topics": {"t": {"incarnation": "0" * 16}}},
    {"topics": {"t": {"seq": 1, "incarnation": "0" * 15}}},
    {"topics": {"t": {"seq": 1, "incarnation": "A" * 16}}},
    {"topics": {"t": {"seq": 1, "incarnation": 1}}},
    {"topics": {"t": 1}, "wait_ms": None},
    {"topics": {"t": 1}, "wait_ms": -1},
    {"topics": {"t": 1}, "wait_ms": 2**32},
]


@pytest.mark.parametrize("body", BAD, ids=range(len(BAD)))
def test_what_is_no_wait_is_400(world: World, body: Any) -> None:
    """7.8/1."""
    assert world.request("POST", "/v0/wait", body).refusal == INVALID


def test_a_refusal_names_the_field(world: World) -> None:
    """7.8/1."""
    for body, words in (
        (
            {"topics": {f"t{number}": 0 for number in range(300)}},
            "topics has too many entries: at most 256 are allowed",
        ),
        ({"topics": {"t": {"seq": "1"}}}, "topics.t.seq must be a whole number"),
        ({"topics": {"t": {"seq": 1, "incarnation": "x"}}}, "topics.t.incarnation must be 16 lower-case hex digits"),
        ({"topics": {"t": []}}, "topics.t must be a seq, null, or an object"),
    ):
        assert words in world.request("POST", "/v0/wait", body).json["error"]["message"]
    twice = b'{"topics":{"t":1,"t":1}}'
    assert "given twice" in world.request("POST", "/v0/wait", twice, {"Content-Type": "application/json"}).text


def test_a_wait_needs_a_body(world: World) -> None:
    """7.8/1, 2.3."""
    assert world.request("POST", "/v0/wait").status == 415
    assert world.request("POST", "/v0/wait", b"", {"Content-Type": "application/json"}).refusal == INVALID
    assert world.request("GET", "/v0/wait").status == 405


def test_so_many_topics_as_are_allowed_may_be_waited_for(make_world: MakeWorld) -> None:
    """7.8/1: and as many bytes; both are a setting."""
    world = make_world(max_wait_topics=3)
    assert heads(wait(world, {"a": 0, "b": 0, "c": 0})) == {"a": None, "b": None, "c": None}
    assert wait(world, {"a": 0, "b": 0, "c": 0, "d": 0}).refusal == INVALID
    body = b'{"topics":{"a":0}' + b" " * 3072 + b"}"
    refused = world.request("POST", "/v0/wait", body, {"Content-Type": "application/json"})
    assert refused.refusal == (413, "payload_too_large", None)


def test_many_names_are_counted_and_not_looked_at(world: World) -> None:
    """7.8/1: before anything is said of one of them."""
    topics = ",".join([f'"{number}":[]' for number in range(10_000)]).encode()
    answer = world.request("POST", "/v0/wait", b'{"topics":{' + topics + b"}}", {"Content-Type": "application/json"})
    assert "topics has too many entries" in answer.json["error"]["message"]


def test_all_names_have_to_be_the_keys(make_world: MakeWorld) -> None:
    """R-AUTH-8, 7.8/2: absent ones too; after the shape of the body."""
    world = make_world(api_keys="narrow:read:box-,writer:write")
    narrow = {"Authorization": "Bearer narrow"}
    assert heads(world.request("POST", "/v0/wait", {"topics": {"box-1": None}}, narrow)) == {"box-1": None}
    refused = world.request("POST", "/v0/wait", {"topics": {"box-1": None, "other": None, "more": 1}}, narrow)
    assert refused.refusal == (403, "forbidden", {"topic": "other"})
    assert world.request("POST", "/v0/wait", {"topics": {"other": "x"}}, narrow).refusal == INVALID
    writer = {"Authorization": "Bearer writer"}
    assert world.request("POST", "/v0/wait", {"topics": {"box-1": 0}}, writer).refusal == (403, "forbidden", None)
