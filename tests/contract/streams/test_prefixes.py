"""Watch streams, WebSockets and waits for topics by the beginning of their names."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.conftest import MakeWorld
from tests.contract.streams.test_watch import short, simulated
from tests.contract.world.answer import Answer
from tests.contract.world.sse_client import EventStream, Frame, encode_id, resume
from tests.contract.world.websocket_client import WebSocket
from tests.contract.world.world import World

INVALID = (400, "invalid_request", None)


def create(world: World, prefixes: Any, topics: Any = None, headers: dict[str, str] | None = None) -> Answer:
    """POST /v0/watch. prefixes: a list, each from its beginning, or a dict of prefix to start."""
    body: dict[str, Any] = {"prefixes": prefixes if isinstance(prefixes, dict) else {each: {} for each in prefixes}}
    if topics is not None:
        body["topics"] = topics
    return world.request("POST", "/v0/watch", body, headers)


def path_of(world: World, *prefixes: str, **topics: Any) -> str:
    answer = create(world, list(prefixes), topics or None)
    assert answer.status == 200, answer.text
    return str(answer.json["stream_url"])


def all_short(frames: list[Frame]) -> list[Any]:
    return [(frame.event, frame.data["topic"]) if frame.event == "left-out" else short(frame) for frame in frames]


def get(stream: EventStream, count: int) -> list[Any]:
    return all_short(stream.frames(count))


# --- streams ---------------------------------------------------------------------------------------------------------
def test_a_session_takes_in_the_topics_that_are_there(world: World) -> None:
    """R-PREFIX-2, R-PREFIX-3: each begins as its longest prefix says, one that is named as it is named."""
    for name in ("a.1", "a.2", "a.b.1", "other", "a"):
        world.write(name, 1, 2)
    answer = create(world, {"a.": {}, "a.b": {"tail": True}}, {"a.2": {"from_seq": 1}})
    assert {name: topic["from_seq"] for name, topic in answer.json["topics"].items()} == {
        "a.1": 0, "a.2": 1, "a.b.1": 2,
    }  # fmt: skip
    assert set(answer.json) == {"wid", "stream_url", "session_ttl_ms", "topics", "performance"}
    frames = EventStream(world, answer.json["stream_url"]).frames(5)
    assert all_short(frames) == [
        ("record", "a.1", 0, 2, [1, 2]), ("caught-up", "a.1", 2), ("record", "a.2", 1, 2, [2]), ("caught-up", "a.2", 2),
        ("caught-up", "a.b.1", 2),
    ]  # fmt: skip
    assert frames[-1].cursors == {"a.1": 2, "a.2": 2, "a.b.1": 2}


def test_a_topic_made_later_comes_from_its_first_record_on(world: World) -> None:
    """R-PREFIX-4: whatever the prefix says of those that were there, and whatever request makes it."""
    world.write("a.1", 1)
    stream = EventStream(world, create(world, {"a.": {"tail": True}}).json["stream_url"])
    assert get(stream, 1) == [("caught-up", "a.1", 1)]
    world.write("a.0", 1, 2)
    assert get(stream, 2) == [("record", "a.0", 0, 2, [1, 2]), ("caught-up", "a.0", 2)]
    world.put("b")
    world.put("a.2")
    assert get(stream, 1) == [("caught-up", "a.2", 0)]
    world.request("PUT", "/v0/routers/r", {"source": "a.1", "dest": "a.3", "create_dest": True})
    assert get(stream, 1) == [("caught-up", "a.3", 0)]
    world.write("a.1", "x")
    frames = stream.frames(4)
    assert all_short(frames) == [
        ("record", "a.1", 1, 2, [2]), ("caught-up", "a.1", 2), ("record", "a.3", 0, 1, [1]), ("caught-up", "a.3", 1),
    ]  # fmt: skip
    assert frames[-1].cursors == {"a.0": 2, "a.1": 2, "a.2": 0, "a.3": 1}


def test_a_stream_without_topics_waits_for_the_first(world: World) -> None:
    """R-PREFIX-4, R-PREFIX-7: it does not end, neither before nor after its topics."""
    stream = EventStream(world, path_of(world, ""))
    assert stream.rest() == []
    world.write("t", 1)
    assert get(stream, 2) == [("record", "t", 0, 1, [1]), ("caught-up", "t", 1)]
    world.drop("t")
    (gone,) = stream.frames(1)
    assert (short(gone), gone.cursors) == (("topic-deleted", "t", 0), {})
    assert not stream.ends(100)
    world.write("u", 1)
    assert get(stream, 2) == [("record", "u", 0, 1, [1]), ("caught-up", "u", 1)]


def test_a_topic_made_again_is_taken_in_again(world: World) -> None:
    """R-PREFIX-7: the end of the first comes before, and the other is whole, if its head is higher or not."""
    world.write("t", 1, 2)
    stream = EventStream(world, path_of(world, "t"))
    stream.frames(2)
    for count in (1, 2, 5):
        world.drop("t")
        world.write("t", *range(count))
        assert get(stream, 3) == [
            ("topic-deleted", "t", 0), ("record", "t", 0, count, [*range(1, count + 1)]), ("caught-up", "t", count),
        ]  # fmt: skip


@pytest.mark.http1  # a client of HTTP/2 that does not read answers no PING
def test_a_topic_made_again_is_whole_for_a_client_that_did_not_read(world: World) -> None:
    """R-PREFIX-7: the stream notices the other topic only when its client reads on."""
    world = simulated(world)
    world.put("t")
    stream = EventStream(world, path_of(world, "t"))
    stream.frames(1)
    world.ring.network.socket_buffer_bytes = 1 << 14
    for _ in range(20):
        world.write("t", "x" * 20_000)
    world.drop("t")
    world.write("t", *range(30))
    world.ring.network.socket_buffer_bytes = 1 << 20
    seen = get(stream, 1)
    while seen[-1] != ("caught-up", "t", 30):
        seen += get(stream, 1)
    assert seen[-3:-1] == [("topic-deleted", "t", 0), ("record", "t", 0, 30, [*range(1, 31)])]
    assert len(seen) < 20, "it did not read"


def test_a_named_topic_with_a_prefix_is_taken_in_once_it_has_ended(world: World) -> None:
    """R-PREFIX-3, R-PREFIX-7."""
    world.write("t", 1)
    stream = EventStream(world, path_of(world, "t", t={"from_seq": 1}))
    assert get(stream, 1) == [("caught-up", "t", 1)]
    world.drop("t")
    world.write("t", 1, 2)
    assert get(stream, 3) == [("topic-deleted", "t", 0), ("record", "t", 0, 2, [1, 2]), ("caught-up", "t", 2)]


def test_the_staging_area_of_producers_is_no_topic(world: World) -> None:
    """R-PREFIX-2: a watcher of all names does not see it."""
    stream = EventStream(world, path_of(world, ""))
    part = {"id": "p", "epoch": 1, "part": 1, "piece": 0, "last": False, "attempt": "a"}
    staged = world.request("POST", "/v0/topics/t", {"records": [{"data": 1}], "producer": part})
    assert staged.json["staged"], staged.text
    world.write("t2", 1)
    assert {frame.data["topic"] for frame in stream.rest()} <= {"t", "t2"}


# --- what is beyond --------------------------------------------------------------------------------------------------
def test_what_is_beyond_the_limit_is_reported(make_world: MakeWorld) -> None:
    """R-PREFIX-5: the first by name have a place; one frame, which says the limit."""
    world = make_world(max_watch_topics=2)
    for name in ("a", "b", "c", "d"):
        world.write(name, 1)
    stream = EventStream(world, path_of(world, ""))
    frames = stream.frames(5)
    assert all_short(frames) == [
        ("left-out", "c"),
        *(each for name in "ab" for each in (("record", name, 0, 1, [1]), ("caught-up", name, 1))),
    ]
    assert frames[0].data == {"topic": "c", "max": 2}
    assert frames[0].cursors == {"a": 0, "b": 0}
    world.write("e", 1)
    world.write("c", 1)
    assert stream.rest() == []


def test_a_topic_made_while_there_is_no_place_is_reported_once(make_world: MakeWorld) -> None:
    """R-PREFIX-5: and again after that one is gone."""
    world = make_world(max_watch_topics=1)
    world.write("a", 1)
    stream = EventStream(world, path_of(world, ""))
    stream.frames(2)
    world.write("b", 1)
    assert get(stream, 1) == [("left-out", "b")]
    world.write("c", 1)
    assert stream.rest() == []
    world.drop("b")
    world.drop("c")
    world.write("d", 1)
    assert get(stream, 1) == [("left-out", "d")]


def test_a_free_place_is_for_the_first_that_was_left_out(make_world: MakeWorld) -> None:
    """R-PREFIX-6: it begins with its first record, and the next one is reported."""
    world = make_world(max_watch_topics=2)
    for name in ("a", "b", "c", "d"):
        world.write(name, 1, 2)
    stream = EventStream(world, create(world, {"": {"tail": True}}).json["stream_url"])
    assert get(stream, 3) == [("left-out", "c"), ("caught-up", "a", 2), ("caught-up", "b", 2)]
    world.drop("a")
    assert get(stream, 4) == [
        ("topic-deleted", "a", 0), ("left-out", "d"), ("record", "c", 0, 2, [1, 2]), ("caught-up", "c", 2),
    ]  # fmt: skip
    world.drop("b")
    assert get(stream, 3) == [("topic-deleted", "b", 0), ("record", "d", 0, 2, [1, 2]), ("caught-up", "d", 2)]
    world.drop("c")
    assert get(stream, 1) == [("topic-deleted", "c", 0)]
    world.write("a", 1)
    assert get(stream, 2) == [("record", "a", 0, 1, [1]), ("caught-up", "a", 1)]
    world.write("e", 1)
    assert get(stream, 1) == [("left-out", "e")]


def test_an_absent_topic_that_is_named_takes_no_place(make_world: MakeWorld) -> None:
    """R-PREFIX-3: the topics that are there begin as their prefix says, as many as have a place."""
    world = make_world(max_watch_topics=1)
    world.write("a", 1, 2)
    body = {"topics": {"absent": {}}, "prefixes": {"a": {"tail": True}}}
    answer = world.request("POST", "/v0/watch?lenient=true", body)
    assert answer.json["topics"] == {"a": {"from_seq": 2, "head_seq": 2, "earliest_seq": 1}}
    assert get(EventStream(world, answer.json["stream_url"]), 1) == [("caught-up", "a", 2)]


# --- again -----------------------------------------------------------------------------------------------------------
def test_a_stream_resumes_with_topics_that_came_in_later(world: World) -> None:
    """R-PREFIX-8, R-WATCH-5: by its last id, and topics that were made while it was away come, too."""
    path = path_of(world, "")
    stream = EventStream(world, path)
    world.write("b", 1, 2)
    seen = stream.frames(2)[-1].id
    world.write("b", 3)
    stream.frames(2)
    stream.leave()
    world.write("a", 1)
    world.write("b", 4)
    assert get(resume(world, path, seen), 4) == [
        ("record", "a", 0, 1, [1]), ("caught-up", "a", 1), ("record", "b", 2, 4, [3, 4]), ("caught-up", "b", 4),
    ]  # fmt: skip
    assert get(resume(world, path), 2) == [("caught-up", "a", 1), ("caught-up", "b", 4)]


def test_a_topic_whose_end_was_not_seen_ends_again(world: World) -> None:
    """R-PREFIX-8: the id that a client comes back with has it; what no topic can be called, it may not have."""
    path = path_of(world, "t")
    stream = EventStream(world, path)
    world.write("t", 1)
    seen = stream.frames(2)[-1].id
    world.drop("t")
    stream.frames(1)
    stream.leave()
    again = resume(world, path, seen)
    assert get(again, 1) == [("topic-deleted", "t", 0)]
    again.leave()
    odd = encode_id({'t"\n': 1, "t*": 2, "u": 3, "t\ud800": 4})
    assert resume(world, path, odd).rest() == []


def test_another_session_continues_where_one_was(world: World) -> None:
    """R-PREFIX-8: the cursors of an id are topics of the next session, so that a restart loses nothing."""
    stream = EventStream(world, path_of(world, ""))
    world.write("b", 1, 2)
    seen = stream.frames(2)[-1].cursors
    world.write("b", 3)
    world.write("a", 1)
    world.restart()
    topics = {name: {"from_seq": seq} for name, seq in seen.items()}
    answer = create(world, [""], topics)
    assert get(EventStream(world, answer.json["stream_url"]), 4) == [
        ("record", "a", 0, 1, [1]), ("caught-up", "a", 1), ("record", "b", 2, 3, [3]), ("caught-up", "b", 3),
    ]  # fmt: skip


# --- rights and bad input --------------------------------------------------------------------------------------------
def test_a_key_gets_only_the_topics_that_it_may_name(make_world: MakeWorld) -> None:
    """R-PREFIX-2, R-AUTH-4: foreign topics are neither shown, nor reported as left out, nor refused."""
    world = make_world(api_keys="all,mine:r:mine.", max_watch_topics=2)
    key, own = {"Authorization": "Bearer all"}, {"Authorization": "Bearer mine"}

    def write(name: str) -> None:
        world.request("POST", f"/v0/topics/{name}", {"records": [{"data": 1}]}, key)

    for name in ("a", "mine.1", "z"):
        write(name)
    for prefixes in ([""], ["m", "a"], ["mine.1", "z"]):
        answer = create(world, prefixes, headers=own)
        assert list(answer.json["topics"]) == ["mine.1"]
    answer = create(world, [""], headers=own)
    stream = EventStream(world, answer.json["stream_url"], own | {"Accept": "text/event-stream"})
    for name in ("b", "mine", "mine.0", "zz"):
        write(name)
    assert get(stream, 4) == [
        each for name in ("mine.1", "mine.0") for each in (("record", name, 0, 1, [1]), ("caught-up", name, 1))
    ]
    write("mine.2")
    assert get(stream, 1) == [("left-out", "mine.2")]
    assert create(world, ["z"], headers=own).json["topics"] == {}
    assert list(wait(world, [""], headers=own).json["topics"]) == ["mine.0", "mine.1", "mine.2"]
    assert create(world, [""], {"z": {}}, headers=own).refusal == (403, "forbidden", {"topic": "z"})


@pytest.mark.parametrize(
    ("prefix", "words"),
    [
        ("orders*", "prefixes: 'orders*' is a pattern: give the beginning of the names, without *"),
        ("a b", "prefixes: 'a b' begins no topic's name: those have letters, digits and . _ : -"),
        ("-a", "prefixes: '-a' begins no topic's name"),
        ("a" * 256, f"prefixes: '{'a' * 61}...' has 256 characters: a topic's name has at most 255"),
    ],
)
def test_what_begins_no_name_is_refused(world: World, prefix: str, words: str) -> None:
    """R-PREFIX-1: with a sentence that names field, value and remedy."""
    for refused in (create(world, [prefix]), world.request("POST", "/v0/wait", {"prefixes": [prefix]})):
        assert refused.refusal == INVALID
        assert refused.json["error"]["message"].startswith(words)


@pytest.mark.parametrize(
    "prefixes", [None, 1, [], "a", {"a": 1}, {"a": None}, {"a": {"tail": 1}}, {f"p{n}": {} for n in range(65)}, {}]
)
def test_what_is_no_prefixes_of_a_session(world: World, prefixes: Any) -> None:
    """R-PREFIX-1, 10.2/1, 10.2/2: shapes, at most 64, and one at least without topics."""
    assert world.request("POST", "/v0/watch", {"prefixes": prefixes}).refusal == INVALID


# --- waits -----------------------------------------------------------------------------------------------------------
def wait(
    world: World, prefixes: Any, topics: Any = None, wait_ms: int = 0, headers: dict[str, str] | None = None
) -> Answer:
    body = {"prefixes": prefixes, "wait_ms": wait_ms} | ({} if topics is None else {"topics": topics})
    return world.request("POST", "/v0/wait", body, headers)


def heads(answer: Answer) -> tuple[dict[str, int | None], str | None]:
    assert answer.status == 200, answer.text
    assert set(answer.json) == {"topics", "left_out", "performance"}
    found = {name: None if head is None else head["head_seq"] for name, head in answer.json["topics"].items()}
    return found, answer.json["left_out"]


def test_a_wait_answers_topics_that_are_not_named(make_world: MakeWorld) -> None:
    """R-WAIT-7: at once, after those that are named, as far as there is room."""
    world = make_world(max_wait_topics=3)
    for name in ("a", "b", "c", "d"):
        world.write(name, 1)
    assert heads(wait(world, ["c", "z"])) == ({"c": 1}, None)
    assert heads(wait(world, [""], {"b": 1, "x": None}, 30_000)) == ({"b": 1, "x": None, "a": 1}, "c")
    assert heads(wait(world, [""], {}, 30_000)) == ({"a": 1, "b": 1, "c": 1}, "d")
    asked = world.ask("POST", "/v0/wait", {"prefixes": [""], "topics": {"a": 1, "b": 1, "c": 1}, "wait_ms": 300})
    assert asked.waiting, "one without a place is no news"
    world.write("e", 1)
    assert heads(asked.answer()) == ({"a": 1, "b": 1, "c": 1}, "d")


def test_a_topic_that_is_made_ends_a_wait_for_its_prefix(world: World) -> None:
    """R-WAIT-7, R-WAIT-2: with the records that made it; others do not."""
    world.write("a.1", 1)
    asked = world.ask("POST", "/v0/wait", {"prefixes": ["a."], "topics": {"a.1": 1}, "wait_ms": 30_000})
    world.write("b", 1)
    assert asked.waiting
    world.write("a.2", 1, 2)
    assert heads(asked.answer()) == ({"a.1": 1, "a.2": 2}, None)
    asked = world.ask("POST", "/v0/wait", {"prefixes": ["c"], "wait_ms": 30_000})
    assert asked.waiting
    world.put("c")
    assert heads(asked.answer()) == ({"c": 0}, None)


def test_waits_for_prefixes_end_with_the_server_and_with_their_time(make_world: MakeWorld) -> None:
    """R-WAIT-4."""
    world = make_world()
    asked = world.ask("POST", "/v0/wait", {"prefixes": ["a"], "wait_ms": 300})
    assert heads(asked.answer()) == ({}, None)


def test_what_is_no_wait_for_prefixes(make_world: MakeWorld) -> None:
    """7.8/1, R-PREFIX-1: shapes; nothing at all; too many."""
    world = make_world(max_prefixes=2)
    for prefixes in ("a", [1], {"a": 0}, None, [], ["a", "b", "c"]):
        assert wait(world, prefixes).refusal == INVALID


# --- WebSockets ------------------------------------------------------------------------------------------------------
def ops(messages: list[Any]) -> list[Any]:
    return [(message["op"], message["topic"]) for message in messages]


@pytest.mark.http1
def test_a_subscription_takes_in_topics(world: World) -> None:
    """R-PREFIX-9, 11.3: those that are there are in the reply, with the prefixes."""
    world.write("a.1", 1)
    socket = WebSocket(world)
    answer = socket.ask({"op": "subscribe", "prefixes": {"a.": {}, "b": {"tail": True}}, "request_id": 1})
    assert answer == {
        "op": "subscribed", "request_id": 1, "topics": {"a.1": {"from_seq": 0, "head_seq": 1, "earliest_seq": 1}},
        "prefixes": ["a.", "b"],
    }  # fmt: skip
    assert ops(socket.take(2)) == [("record", "a.1"), ("caught_up", "a.1")]
    world.write("b", 1)
    assert ops(socket.take(2)) == [("record", "b"), ("caught_up", "b")]
    world.drop("b")
    assert ops(socket.take(1)) == [("topic_deleted", "b")]
    world.put("b")
    world.put("c")
    assert ops(socket.take(1)) == [("caught_up", "b")]
    assert socket.silent


@pytest.mark.http1
def test_an_end_of_prefixes_ends_what_they_have_taken_in(world: World) -> None:
    """R-PREFIX-10: except what was named, or has another prefix; a name with a prefix cannot be left."""
    for name in ("a.1", "a.2", "a.b"):
        world.write(name, 1)
    socket = WebSocket(world)
    socket.ask({"op": "subscribe", "prefixes": {"a.": {"tail": True}, "a.b": {"tail": True}}, "topic": "a.1"})
    socket.take(4)
    refused = socket.ask({"op": "unsubscribe", "topic": "a.2", "prefixes": ["a.b"]})
    assert (refused["op"], refused["code"]) == ("error", "invalid_request")
    assert "'a.2' has a prefix that is followed" in refused["message"]
    answer = socket.ask({"op": "unsubscribe", "prefixes": ["a.", "z"], "request_id": 2})
    assert answer == {"op": "unsubscribed", "request_id": 2, "topics": [], "prefixes": ["a.", "z"]}
    for name in ("a.2", "a.3", "a.b", "a.1"):
        world.write(name, 2)
    assert ops(socket.take(4)) == [
        ("record", "a.b"), ("caught_up", "a.b"), ("record", "a.1"), ("caught_up", "a.1"),
    ]  # fmt: skip
    socket.ask({"op": "unsubscribe", "topic": "a.1", "prefixes": ["a.b"]})
    world.write("a.1", 3)
    world.write("a.bc", 3)
    assert socket.silent


@pytest.mark.http1
def test_a_connection_takes_in_as_many_as_a_session(make_world: MakeWorld) -> None:
    """R-PREFIX-5, R-PREFIX-9: beside those that it names; and what is beyond is reported."""
    world = make_world(max_watch_topics=2, ws_max_subscriptions=4, max_prefixes=2)
    for name in "abc":
        world.write(name, 1)
    socket = WebSocket(world)
    socket.subscribe("c")
    socket.take(2)
    answer = socket.ask({"op": "subscribe", "prefixes": {"": {"tail": True}}})
    assert list(answer["topics"]) == ["a", "b"]
    assert ops(socket.take(2)) == [("caught_up", "a"), ("caught_up", "b")]
    world.write("d", 1)
    assert socket.next() == {"op": "left_out", "topic": "d", "max": 2}
    world.drop("a")
    assert ops(socket.take(3)) == [("topic_deleted", "a"), ("record", "d"), ("caught_up", "d")]
    assert socket.ask({"op": "subscribe", "prefixes": {"x": {}, "y": {}}})["code"] == "throttled"
    three = {"op": "subscribe", "prefixes": {"x": {}, "y": {}, "z": {}}}
    assert socket.ask(three)["code"] == "invalid_request"
    assert socket.ask({"op": "subscribe", "prefixes": {"x*": {}}})["code"] == "invalid_json"


@pytest.mark.http1
@pytest.mark.parametrize("is_named_before", [False, True])
def test_named_topics_take_no_place_of_those_with_a_prefix(make_world: MakeWorld, is_named_before: bool) -> None:
    """R-PREFIX-3, R-PREFIX-9: as many begin as the prefix says, whether names were given before or with it."""
    world = make_world(max_watch_topics=2)
    for name in "abc":
        world.write(name, 1, 2)
    socket = WebSocket(world)
    command: dict[str, Any] = {"op": "subscribe", "prefixes": {"": {"tail": True}}}
    if is_named_before:
        socket.subscribe("a", 2)
        socket.take(1)
    else:
        command |= {"topic": "a", "from_seq": 2}
    answer = socket.ask(command)
    assert {name: topic["from_seq"] for name, topic in answer["topics"].items()} == {"a": 2, "b": 2, "c": 2}
    assert ops(socket.take(3)) == [("caught_up", "a"), ("caught_up", "b"), ("caught_up", "c")]


@pytest.mark.http1
def test_a_shorter_prefix_leaves_the_options_of_a_longer_one(world: World) -> None:
    """R-PREFIX-9: the options of the longest count, whichever came last."""
    world.request("POST", "/v0/topics/ab.1", {"records": [{"data": 1, "tag": "x"}]})
    socket = WebSocket(world)
    for prefix, tags in (("ab", True), ("a", False)):
        socket.ask({"op": "subscribe", "prefixes": {prefix: {}}, "include_tags": tags})
        record, _caught_up = socket.take(2)
        assert record["records"][0]["$tag"] == "x", prefix


@pytest.mark.http1
def test_a_name_that_leaves_its_place_lets_another_topic_in(make_world: MakeWorld) -> None:
    """R-PREFIX-5, R-PREFIX-9: named topics are beside those that are taken in."""
    world = make_world(max_watch_topics=2)
    for name in "abc":
        world.write(name, 1)
    socket = WebSocket(world)
    socket.ask({"op": "subscribe", "prefixes": {"": {}}})
    assert ops(socket.take(5))[0] == ("left_out", "c")
    socket.subscribe("a", 1)
    assert ops(socket.take(3)) == [("caught_up", "a"), ("record", "c"), ("caught_up", "c")]


@pytest.mark.http1
def test_a_name_that_is_left_makes_room_for_a_topic_with_a_prefix(make_world: MakeWorld) -> None:
    """R-PREFIX-9, R-WS-6."""
    world = make_world(ws_max_subscriptions=2)
    for name in ("a", "p.1", "p.2"):
        world.write(name, 1)
    socket = WebSocket(world)
    socket.subscribe("a", 1)
    socket.take(1)
    socket.ask({"op": "subscribe", "prefixes": {"p": {}}})
    assert ops(socket.take(3))[0] == ("left_out", "p.2")
    assert socket.ask({"op": "unsubscribe", "topic": "a"})["op"] == "unsubscribed"
    assert ops(socket.take(2)) == [("record", "p.2"), ("caught_up", "p.2")]
