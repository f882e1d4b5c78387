"""Watch sessions and their streams over the wire."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.contract.conftest import MakeWorld
from tests.contract.world.sim_world import SimWorld
from tests.contract.world.sse_client import ACCEPT, EventStream, Frame, create, encode_id, resume, session, watch
from tests.contract.world.world import World, seqs


def short(frame: Frame) -> Any:
    """Event, topic, and what matters of the rest."""
    data = frame.data
    if frame.event == "record":
        return "record", data["topic"], data["from_seq"], data["to_seq"], seqs(data)
    if frame.event == "tombstone":
        return "tombstone", data["topic"], data["reason"], data["gap_from"], data["gap_to"]
    return frame.event, data["topic"], data["head_seq"]


def all_short(frames: list[Frame]) -> list[Any]:
    return [short(frame) for frame in frames]


def simulated(world: World) -> SimWorld:
    """The world as one that stops in any moment, with a network that can be held back; others skip the test."""
    if not isinstance(world, SimWorld):
        pytest.skip("only a simulated world can do this")
    return world


# --- sessions -------------------------------------------------------------------------------------------------------
def test_a_session_tells_where_each_topic_begins(world: World) -> None:
    """10.2: from_seq as given, even stale or beyond the head; the head with `tail`."""
    world.write("jobs", 1, 2, 3)
    world.delete("jobs", before_seq=2)
    world.write("mail", "x")
    topics = {"mail": {"tail": True, "from_seq": 7}, "jobs": {"from_seq": 99}}
    answer = create(world, topics)
    assert answer.status == 200
    body = answer.json
    assert set(body) == {"wid", "stream_url", "session_ttl_ms", "topics", "performance"}
    assert re.fullmatch(r"wid_[A-Za-z0-9_-]{22}", body["wid"])
    assert body["stream_url"] == f"/v0/watch/{body['wid']}"
    assert body["session_ttl_ms"] == 300_000
    assert body["topics"] == {
        "jobs": {"from_seq": 99, "head_seq": 3, "earliest_seq": 2},
        "mail": {"from_seq": 1, "head_seq": 1, "earliest_seq": 1},
    }
    assert set(body["performance"]) == {"server_total_ms"}
    assert create(world, "jobs").json["wid"] != body["wid"]


def test_a_session_may_begin_elsewhere(world: World) -> None:
    """R-FROM-4, R-FROM-7: each topic by itself; its cursor is in the answer, and a time to come is the head."""
    for name in ("first", "now", "last", "past", "future", "empty"):
        world.put(name, cap_records=4)
        if name != "empty":
            world.write(name, *range(6))
    starts = {
        "first": "first", "now": "now", "last": {"last": 3}, "past": {"time": 0}, "future": {"time": 2**63},
        "empty": {"last": 5},
    }  # fmt: skip
    answer = create(world, {name: {"from": begin} for name, begin in starts.items()}).json
    found = {name: tuple(topic.values()) for name, topic in answer["topics"].items()}
    expected = {"first": 2, "now": 6, "last": 3, "past": 2, "future": 6, "empty": 0}
    assert found == {name: (cursor, 6, 3) if name != "empty" else (0, 0, 1) for name, cursor in expected.items()}
    frames = EventStream(world, answer["stream_url"]).frames(9)
    assert [short(frame) for frame in frames if frame.event != "caught-up"] == [
        ("record", "first", 2, 6, [3, 4, 5, 6]),
        ("record", "last", 3, 6, [4, 5, 6]),
        ("record", "past", 2, 6, [3, 4, 5, 6]),
    ], "without a tombstone"


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"from": "now", "from_seq": 0}, "topics.jobs.from and from_seq both say where to begin: send one of them"),
        ({"from": "now", "tail": False}, "topics.jobs.from and tail both say where to begin: send one of them"),
        ({"from": "newest"}, 'topics.jobs.from must be "first", "now", {"last": 10} or {"time": 1795325238494}, not'),
        ({"from": {"last": 10_001}}, "topics.jobs.from.last must be a whole number from 0 to 10000, not the number"),
        ({"from": {}}, 'topics.jobs.from must be "first", "now", {"last": 10} or {"time": 1795325238494}, not another'),
    ],
)
def test_what_is_no_beginning_of_a_session_is_400(world: World, entry: Any, words: str) -> None:
    """R-FROM-1, R-FROM-7: with a sentence that names topic and field."""
    world.put("jobs")
    refused = create(world, {"jobs": entry})
    assert refused.refusal == (400, "invalid_request", None)
    assert refused.json["error"]["message"].startswith(words)


@pytest.mark.parametrize(
    "fields",
    [
        {}, {"topics": None}, {"topics": []}, {"topics": "jobs"}, {"topics": ["jobs"]}, {"topics": {"jobs": None}},
        {"topics": {"jobs": 1}}, {"topics": {"jobs": []}}, {"topics": {"jobs": {"from_seq": -1}}},
        {"topics": {"jobs": {"from_seq": 1.0}}}, {"topics": {"jobs": {"tail": 1}}},
        {"topics": {"jobs": {"tail": None}}},
        {"topics": {}}, {"topics": {f"t{n}": {} for n in range(257)}},
        {"topics": {"jobs": {}}, "limit": "1"}, {"topics": {"jobs": {}}, "limit": -1},
        {"topics": {"jobs": {}}, "node": 1},
        {"topics": {"jobs": {}}, "node": [1]}, {"topics": {"jobs": {}}, "heartbeat_ms": None},
        {"topics": {"jobs": {}}, "include_data": 1}, {"topics": {"jobs": {}}, "consistency": "weak"},
        {"topics": {"jobs": {}}, "consistency": None}, {"topics": {"jobs": {}}, "max_batch_bytes": 1.5},
    ],
)  # fmt: skip
def test_what_is_no_session(world: World, fields: Any) -> None:
    """10.2/1, 10.2/2: shapes, and 1 to 256 topics."""
    world.write("jobs", 1)
    assert world.request("POST", "/v0/watch", fields).refusal == (400, "invalid_request", None)


def test_what_is_a_session(world: World) -> None:
    """10.2: every field, unknown ones ignored."""
    world.write("jobs", 1)
    body = {
        "topics": {"jobs": {"from_seq": 0, "tail": False, "unknown": {}}},
        "node": None,
        "limit": 5000,
        "max_batch_bytes": 2**64 - 1,
        "heartbeat_ms": 0,
        "include_meta": False,
        "include_tags": True,
        "include_data": False,
        "consistency": "strong",
        "unknown": None,
    }
    assert world.request("POST", "/v0/watch", body).status == 200
    for name in [f"t{n}" for n in range(256)]:
        world.write(name, 1)
    assert create(world, [f"t{n}" for n in range(256)]).status == 200


def test_absent_topics_fail_the_session_or_are_dropped(world: World) -> None:
    """10.2/4, 10.2: 404 with the topic; with `lenient` it is left out, all of them if need be."""
    world.write("jobs", 1)
    assert create(world, ["jobs", "nope"]).refusal == (404, "topic_not_found", {"topic": "nope"})
    answer = create(world, ["jobs", "nope"], query="?lenient=true")
    assert list(answer.json["topics"]) == ["jobs"]
    none = create(world, ["nope"], query="?lenient=1")
    assert none.json["topics"] == {}
    stream = EventStream(world, none.json["stream_url"])
    assert stream.ends()
    assert bytes(stream.text) == b"retry: 2000\n\n"


def test_sessions_are_capped_and_the_cap_frees(make_world: MakeWorld) -> None:
    """10.2/5, R-LIM-1: 429 with the limit; an idle session makes room."""
    world = make_world(max_watch_sessions=2)
    world.write("jobs", 1)
    session(world, "jobs")
    stream = watch(world, "jobs")
    stream.frames(2)
    full = (429, "throttled", {"limit": "max_watch_sessions", "max": 2})
    refused = create(world, "jobs")
    assert refused.refusal == full
    assert refused.header("retry-after") == "1"
    world.advance_ms(299_000)
    assert create(world, "jobs").refusal == full
    world.advance_ms(1100)
    assert create(world, "jobs").status == 200
    assert create(world, "jobs").refusal == full


def test_one_key_cannot_take_the_sessions_of_others(make_world: MakeWorld) -> None:
    """10.2/5, R-LIM-1."""
    world = make_world(max_watch_sessions=5, max_watch_sessions_per_key=2, api_keys="a,b")
    one, other = ({"Authorization": f"Bearer {key}"} for key in "ab")
    world.request("POST", "/v0/topics/jobs", {"records": [{"data": 1}]}, one)
    for key in (one, other):
        assert [create(world, "jobs", headers=key).status for _ in range(2)] == [200, 200]
    full = (429, "throttled", {"limit": "max_watch_sessions_per_key", "max": 2})
    assert create(world, "jobs", headers=one).refusal == full
    world.advance_ms(301_000)
    assert create(world, "jobs", headers=one).status == 200


def test_names_that_sessions_keep_are_bounded_together(make_world: MakeWorld) -> None:
    """10.2/5, R-LIM-1: those of nodes and topics; a session that is forgotten makes room."""
    world = make_world(max_client_bytes=100_000)
    world.write("jobs", 1)
    nodes = [f"{number:0100}" for number in range(400)]
    assert [create(world, "jobs", node=nodes).status for _ in range(2)] == [200, 200]
    full = (429, "throttled", {"limit": "max_client_bytes", "max": 100_000})
    assert create(world, "jobs", node=nodes).refusal == full
    assert create(world, "jobs").status == 200
    world.advance_ms(300_001)
    assert [create(world, "jobs", node=nodes).status for _ in range(3)] == [200, 200, 429]


@pytest.mark.http1  # a client of HTTP/2 that does not read answers no PING
def test_idle_sessions_are_forgotten_and_used_ones_are_not(make_world: MakeWorld) -> None:
    """R-WATCH-1: after 300 s without a stream; a stream's end counts as use."""
    world = make_world()
    world.write("jobs", 1)
    idle, used, streaming = (session(world, "jobs") for _ in range(3))
    stream = EventStream(world, streaming)
    stream.frames(2)
    world.advance_ms(200_000)
    visit = EventStream(world, used)
    visit.frames(2)
    visit.leave()
    world.advance_ms(101_000)
    assert world.request("GET", idle, headers=ACCEPT).refusal == (404, "not_found", None)
    EventStream(world, used).frames(1)
    world.advance_ms(400_000)
    stream.leave()
    EventStream(world, streaming).frames(1)


def test_sessions_do_not_survive_a_restart(world: World) -> None:
    """R-WATCH-1, R-DUR-12: nor their cursors."""
    world.write("jobs", 1)
    path = session(world, "jobs")
    world.restart()
    assert world.request("GET", path, headers=ACCEPT).refusal == (404, "not_found", None)


# --- opening a stream -----------------------------------------------------------------------------------------------
@pytest.mark.http1
def test_the_head_of_a_stream(world: World) -> None:
    """R-SSE-2, 10.1: its type, never cached, never buffered, of no length."""
    world.write("jobs", 1)
    stream = watch(world, "jobs")
    stream.frames(2)
    head = stream.head.decode().lower()
    assert head.startswith("http/1.1 200 ")
    for line in ("content-type: text/event-stream", "cache-control: no-store", "x-accel-buffering: no"):
        assert f"\r\n{line}\r\n" in head
    assert "content-length" not in head
    assert "content-encoding" not in head


@pytest.mark.parametrize(
    "accept", [None, "", "*/*", "text/event-stream", "text/html, */*;q=0.1", "text/event-stream;q=1"]
)
def test_what_a_client_may_accept(world: World, accept: str | None) -> None:
    """R-SSE-1: nothing, anything, or event streams among others."""
    world.write("jobs", 1)
    headers = {} if accept is None else {"Accept": accept}
    EventStream(world, session(world, "jobs"), headers).frames(2)


def test_a_client_that_takes_no_event_stream_is_told_first(world: World) -> None:
    """R-SSE-1, 10.3/1: 406, whatever the session."""
    world.write("jobs", 1)
    for path in (session(world, "jobs"), "/v0/watch/wid_unknown"):
        answer = world.request("GET", path, headers={"Accept": "application/json"})
        assert answer.refusal == (406, "not_acceptable", None)


def test_only_get_opens_a_stream(world: World) -> None:
    """10.3/2, 2.1: unknown wids are 404, other methods 405, HEAD among them."""
    world.write("jobs", 1)
    path = session(world, "jobs")
    assert world.request("GET", "/v0/watch/wid_BwgJCgsMDQ4PEBESExQVFg").refusal == (404, "not_found", None)
    for method in ("HEAD", "POST", "PUT", "DELETE", "OPTIONS"):
        answer = world.request(method, path)
        assert answer.status == 405
        assert answer.header("allow") == "GET"
    assert world.request("GET", "/v0/watch").status == 405


def test_streams_are_capped_and_give_their_place_back(make_world: MakeWorld) -> None:
    """R-SSE-5, 10.3/4: counted from the 200 to the end; a refused attempt holds nothing."""
    world = make_world(max_sse_connections=2)
    world.write("jobs", 1)
    paths = [session(world, "jobs") for _ in range(3)]
    first, second = (EventStream(world, path) for path in paths[:2])
    first.frames(2)
    second.frames(2)
    for _ in range(3):
        refused = world.request("GET", paths[2], headers=ACCEPT)
        assert refused.refusal == (429, "throttled", None)
        assert refused.header("retry-after") == "1"
    assert world.request("GET", "/v0/metrics", headers={"Accept": "application/json"}).json["sse_connections"] == 2
    first.leave()
    world.settle()
    EventStream(world, paths[2]).frames(2)
    page = world.request("GET", "/v0/metrics").text
    assert "topics_sse_connections 2" in page
    assert "topics_watch_sessions 3" in page


def test_streams_per_key_are_capped_by_the_sessions_key(make_world: MakeWorld) -> None:
    """R-SSE-5: other keys have their own."""
    world = make_world(api_keys="one,two", max_sse_connections_per_key=1)
    keys = {name: {"Authorization": f"Bearer {name}"} for name in ("one", "two")}
    world.request("POST", "/v0/topics/t", {"records": [{"data": 1}]}, headers=keys["one"])
    path = create(world, "t", headers=keys["one"]).json["stream_url"]
    EventStream(world, path, keys["one"]).frames(2)
    assert world.request("GET", path, headers=keys["one"]).refusal == (429, "throttled", None)
    other = create(world, "t", headers=keys["two"]).json["stream_url"]
    EventStream(world, other, keys["two"]).frames(2)


def test_a_stream_belongs_to_the_key_that_made_its_session(make_world: MakeWorld) -> None:
    """R-WATCH-3, R-WATCH-4, 4.3/2, 10.3/3: by header or token, no other key, and no scope is asked for."""
    world = make_world(api_keys="maker:r+w,other,blind:write")
    maker = {"Authorization": "Bearer maker"}
    world.request("POST", "/v0/topics/t", {"records": [{"data": 1}]}, headers={"Authorization": "Bearer other"})
    path = create(world, "t", headers=maker).json["stream_url"]
    unauthorized = (401, "unauthorized", None)
    for headers in (
        {},
        {"Authorization": "Bearer other"},
        {"Authorization": "Bearer nobody"},
        {"Authorization": "maker"},
    ):
        assert world.request("GET", path, headers=headers).refusal == unauthorized
    assert world.request("GET", f"{path}?token=other").refusal == unauthorized
    assert (
        world.request("GET", f"{path}?token=maker", headers={"Authorization": "Bearer other"}).refusal == unauthorized
    )
    EventStream(world, path, maker).frames(2)
    EventStream(world, f"{path}?token=maker", {}).rest()
    assert world.request("GET", "/v0/watch/wid_none").refusal == (404, "not_found", None)
    assert create(world, "t", headers={"Authorization": "Bearer blind"}).refusal == (403, "forbidden", None)


def test_every_name_of_a_session_must_be_allowed(make_world: MakeWorld) -> None:
    """R-AUTH-1, 10.2/3: else nothing is created."""
    world = make_world(api_keys="root,box:rw:box-")
    root, box = ({"Authorization": f"Bearer {name}"} for name in ("root", "box"))
    for name in ("box-a", "other"):
        world.request("POST", f"/v0/topics/{name}", {"records": [{"data": 1}]}, headers=root)
    assert create(world, ["box-a", "other"], headers=box).refusal == (403, "forbidden", {"topic": "other"})
    assert create(world, ["box-a"], headers=box).status == 200


def test_without_keys_the_wid_is_enough(world: World) -> None:
    """R-WATCH-2: credentials are ignored."""
    world.write("t", 1)
    path = session(world, "t")
    EventStream(world, f"{path}?token=x", ACCEPT | {"Authorization": "Bearer y"}).frames(2)


# --- content --------------------------------------------------------------------------------------------------------
def test_the_bytes_of_a_stream(make_world: MakeWorld) -> None:
    """TV-11, R-SSE-3, R-SSE-4, R-WATCH-9, R-WATCH-12: two records, idle, a live write."""
    world = make_world(test_min_heartbeat_ms=100)
    assert world.write("jobs", "r1", "r2")["head_seq"] == 2
    ts = world.diff("jobs")["records"][0]["$ts"]
    stream = watch(world, "jobs", heartbeat_ms=200)
    world.wait_until(lambda: stream.heartbeats > 0, 5000)
    assert (
        bytes(stream.text)
        == (
            "retry: 2000\n\n"
            "id: eyJqb2JzIjoyfQ\n"
            "event: record\n"
            'data: {"topic":"jobs","from_seq":0,"to_seq":2,"head_seq":2,"records":['
            f'{{"$seq":1,"$ts":{ts},"data":"r1"}},{{"$seq":2,"$ts":{ts},"data":"r2"}}]}}\n\n'
            "id: eyJqb2JzIjoyfQ\n"
            "event: caught-up\n"
            'data: {"topic":"jobs","head_seq":2}\n\n'
            ": hb\n\n"
        ).encode()
    )
    stream.frames(2)
    world.write("jobs", "r3")
    assert all_short(stream.frames(2)) == [("record", "jobs", 2, 3, [3]), ("caught-up", "jobs", 3)]


def test_cursor_ids(world: World) -> None:
    """TV-10, R-WATCH-7: all topics of the session, ascending, compact, without padding."""
    world.write("jobs", *range(95))
    world.write("mail", *range(1200))
    frames = watch(world, {"mail": {"tail": True}, "jobs": {"tail": True}}).frames(2)
    assert all_short(frames) == [("caught-up", "jobs", 95), ("caught-up", "mail", 1200)]
    assert [frame.id for frame in frames] == ["eyJqb2JzIjo5NSwibWFpbCI6MTIwMH0"] * 2


def test_a_stream_resumes_after_its_last_frame_or_further_back(world: World) -> None:
    """TV-12, R-WATCH-5, R-WATCH-6, R-WATCH-16: an id rewinds and never advances."""
    world.write("jobs", "r1", "r2")
    path = session(world, "jobs")
    first = EventStream(world, path)
    assert first.frames(2)[-1].id == "eyJqb2JzIjoyfQ"
    first.leave()
    back = resume(world, path, "eyJqb2JzIjoxfQ")
    assert all_short(back.frames(2)) == [("record", "jobs", 1, 2, [2]), ("caught-up", "jobs", 2)]
    back.leave()
    beyond = resume(world, path, encode_id({"jobs": 500}))
    assert all_short(beyond.frames(1)) == [("caught-up", "jobs", 2)]
    beyond.leave()
    wrong = [[1], {"jobs": -1}, {"jobs": "1"}, {"jobs": 0.5}, {"jobs": True}, {"jobs": 2**64}, {"x": 0}]
    for nonsense in ("?", "bm9wZQ", "eyJ!qb2JzIjowfQ", *map(encode_id, wrong)):
        plain = resume(world, path, nonsense)
        assert all_short(plain.frames(1)) == [("caught-up", "jobs", 2)], nonsense
        plain.leave()


def test_an_id_moves_only_the_topics_in_it(world: World) -> None:
    """R-WATCH-5: others continue from the session."""
    world.write("a", 1, 2)
    world.write("b", 1, 2)
    path = session(world, ["a", "b"])
    first = EventStream(world, path)
    first.frames(4)
    first.leave()
    again = resume(world, path, encode_id({"b": 0, "c": 0}))
    assert all_short(again.frames(3)) == [("caught-up", "a", 2), ("record", "b", 0, 2, [1, 2]), ("caught-up", "b", 2)]


def test_an_id_may_come_padded(world: World) -> None:
    world.write("jobs", 1, 2)
    path = session(world, {"jobs": {"tail": True}})
    assert short(resume(world, path, "eyJqb2JzIjoxfQ==").one()) == ("record", "jobs", 1, 2, [2])


def test_a_loss_is_a_frame_before_the_records(world: World) -> None:
    """TV-13, R-WATCH-10, R-WATCH-11: its first reason is from_seq_too_old, its id the end of the gap."""
    world.put("t", cap_records=3)
    world.write_singly("t", *range(1, 7))
    stream = watch(world, "t")
    lost, record, caught_up = stream.frames(3)
    gap = {"gap_from": 1, "gap_to": 3, "earliest_seq": 4, "head_seq": 6}
    assert lost.data == {"topic": "t", "reason": "from_seq_too_old", **gap}
    assert [lost.event, lost.cursors] == ["tombstone", {"t": 3}]
    assert short(record) == ("record", "t", 0, 6, [4, 5, 6])
    assert record.cursors == caught_up.cursors == {"t": 6}
    assert short(caught_up) == ("caught-up", "t", 6)


@pytest.mark.http1  # a client of HTTP/2 that does not read answers no PING
def test_a_later_loss_has_its_own_reason(make_world: MakeWorld) -> None:
    """R-WATCH-11, R-SSE-6: to a reader that stood still meanwhile."""
    world = make_world(stream_high_water_bytes=1000, stream_low_water_bytes=100)
    world = simulated(world)
    world.ring.network.socket_buffer_bytes = 2000
    world.put("t", cap_records=3)
    stream = watch(world, "t")
    stream.one()
    for number in range(40):
        world.write("t", "x" * 500 + str(number))
    world.ring.network.socket_buffer_bytes = 1 << 18
    seen = all_short(stream.frames(6))
    while seen[-1] != ("caught-up", "t", 40):
        seen += all_short(stream.frames(1))
    lost = [frame for frame in seen if frame[0] == "tombstone"]
    assert lost
    assert {frame[2] for frame in lost} == {"cap"}
    delivered = [seq for frame in seen if frame[0] == "record" for seq in frame[4]]
    missed = [seq for frame in lost for seq in range(frame[3], frame[4] + 1)]
    assert sorted(delivered + missed) == list(range(1, 41))


def test_a_recreated_topic_is_told_and_resumed_without_a_gap(world: World) -> None:
    """R-WATCH-10, R-REC-2: its id stands before the new instance's first record."""
    world.write("t", *range(5))
    path = session(world, {"t": {"tail": True}})
    world.drop("t")
    world.write("t", "a", "b", "c")
    world.delete("t", before_seq=2)
    lost = EventStream(world, path).frames(2)[0]
    assert lost.data == {
        "topic": "t", "reason": "from_seq_too_old", "gap_from": 1, "gap_to": 3, "earliest_seq": 2, "head_seq": 3,
    }  # fmt: skip
    assert lost.cursors == {"t": 1}
    assert lost.id is not None
    assert short(resume(world, path, lost.id).one()) == ("record", "t", 1, 3, [2, 3])


def test_options_are_those_of_diff(world: World) -> None:
    """10.4, 5.3, R-NODE-1, R-NODE-2: node, limit, bytes, and what records show."""
    world.put("t")
    world.write_records(
        "t",
        [
            {"data": "mine", "node": "me"},
            {"data": "a", "tag": "x", "meta": {"k": 1}, "node": "you"},
            {"data": "b"},
            {"data": "mine", "node": "me"},
        ],
    )
    frames = watch(world, "t", node="me", limit=1, include_tags=True, include_meta=False, include_data=False).frames(3)
    records = [record for frame in frames[:2] for record in frame.data["records"]]
    assert [set(record) for record in records] == [{"$seq", "$ts", "$node", "$tag"}, {"$seq", "$ts"}]
    assert all_short(frames) == [("record", "t", 0, 2, [2]), ("record", "t", 2, 3, [3]), ("caught-up", "t", 4)]
    plain = watch(world, "t").one().data["records"]
    assert [set(record) for record in plain][1:3] == [{"$seq", "$ts", "$node", "data", "meta"}, {"$seq", "$ts", "data"}]
    small = watch(world, "t", max_batch_bytes=1).frames(5)
    assert [seqs(frame.data) for frame in small[:4]] == [[1], [2], [3], [4]]


def test_the_reader_s_own_records_pass_silently(world: World) -> None:
    """R-WATCH-12, R-NODE-2: nothing is reported of what is only skipped, and later cursors are past it."""
    world.put("t")
    stream = watch(world, "t", node=["me", "also me"])
    assert short(stream.one()) == ("caught-up", "t", 0)
    world.write_records("t", [{"data": 1, "node": "me"}, {"data": 2, "node": "also me"}])
    assert stream.rest() == []
    world.write("t", "theirs")
    assert all_short(stream.frames(2)) == [("record", "t", 2, 3, [3]), ("caught-up", "t", 3)]


def test_topics_are_drained_in_order_of_their_names(world: World) -> None:
    """10.4: each to its head before the next."""
    for name in ("b", "c", "a"):
        world.write(name, 1, 2)
    frames = watch(world, ["c", "a", "b"], limit=1).frames(9)
    assert [frame.data["topic"] for frame in frames] == ["a"] * 3 + ["b"] * 3 + ["c"] * 3
    assert [frame.cursors for frame in frames[::4]] == [
        {"a": 1, "b": 0, "c": 0}, {"a": 2, "b": 2, "c": 0}, {"a": 2, "b": 2, "c": 2},
    ]  # fmt: skip


def test_a_deleted_topic_ends_alone_and_the_last_one_ends_the_stream(world: World) -> None:
    """R-WATCH-13: reported once; a topic created anew under its name is another one."""
    world.write("a", 1)
    world.write("b", 1)
    stream = watch(world, ["a", "b"])
    stream.frames(4)
    world.drop("a")
    gone = stream.one()
    assert gone.event == "topic-deleted"
    assert gone.data == {"topic": "a", "head_seq": 0, "reason": "deleted"}
    assert gone.cursors == {"a": 1, "b": 1}
    world.write("a", "reborn")
    world.write("b", 2)
    assert all_short(stream.frames(2)) == [("record", "b", 1, 2, [2]), ("caught-up", "b", 2)]
    world.drop("b")
    assert stream.one().event == "topic-deleted"
    assert stream.ends()


def test_a_topic_deleted_between_session_and_stream_is_told(world: World) -> None:
    """R-WATCH-13: the stream begins with it."""
    world.write("t", 1)
    path = session(world, "t")
    world.drop("t")
    stream = EventStream(world, path)
    assert stream.one().event == "topic-deleted"
    assert stream.ends()


def test_two_streams_of_a_session_get_everything_between_them(world: World) -> None:
    """R-WATCH-8: they share its cursors."""
    world.write("t", 1)
    path = session(world, "t")
    first, second = EventStream(world, path), EventStream(world, path)
    first.rest()
    second.rest()
    world.write("t", 2)
    seen = [short(frame) for stream in (first, second) for frame in stream.rest()]
    assert ("record", "t", 1, 2, [2]) in seen
    first.leave()
    second.leave()
    assert all_short(resume(world, path).frames(1)) == [("caught-up", "t", 2)]


def test_a_write_is_pushed_at_once(world: World) -> None:
    """R-WATCH-14, R-NET-6: without any polling delay, after a long silence too."""
    world.put("t")
    streams = [watch(world, "t") for _ in range(3)]
    for stream in streams:
        stream.frames(1)
    if isinstance(world, SimWorld):
        world.advance_ms(14_000)
    for number in range(1, 4):
        world.write("t", number)
        for stream in streams:
            frames = stream.frames(2, within_ms=50 if isinstance(world, SimWorld) else 5000)
            assert all_short(frames) == [("record", "t", number - 1, number, [number]), ("caught-up", "t", number)]


def test_a_wake_up_that_races_a_read_is_not_lost(make_world: MakeWorld) -> None:
    """R-WATCH-14: writes in every moment of a read from the disk, delivered within 50 ms."""
    for moment_us in range(0, 400, 25):
        world = make_world(hot_tail_bytes=4096, wal_file_bytes=65_536)
        world = simulated(world)
        for _ in range(40):
            world.write("t", "x" * 2000)
        stream = watch(world, "t")
        world.advance_us(moment_us)
        world.write("t", "the last")

        def delivered(stream: EventStream = stream) -> bool:
            stream.pull()
            return b'"the last"' in bytes(stream.text)

        world.wait_until(delivered, 50)
        assert delivered(), moment_us
        world.close()


@pytest.mark.http1  # a client of HTTP/2 that does not read answers no PING
def test_heartbeats_come_when_nothing_else_does(make_world: MakeWorld) -> None:
    """R-SSE-4: after the interval without a frame, at 1 s at the least, and 60 s at most."""
    world = make_world()
    world.put("t")
    stream, slow = watch(world, "t", heartbeat_ms=1), watch(world, "t", heartbeat_ms=10**9)
    stream.frames(1)
    world.advance_ms(950)
    assert stream.heartbeats == 0
    world.advance_ms(100)
    assert stream.heartbeats == 1
    world.advance_ms(600)
    world.write("t", 1)
    stream.frames(2)
    world.advance_ms(900)
    assert stream.heartbeats == 1
    world.advance_ms(150)
    assert stream.heartbeats == 2
    world.advance_ms(10_000)
    assert 11 <= stream.heartbeats <= 12
    assert slow.heartbeats == 0
    world.advance_ms(61_000)
    assert slow.heartbeats == 1


@pytest.mark.http1  # a client of HTTP/2 that does not read answers no PING
def test_a_stalled_reader_costs_no_other_anything_and_reads_on_at_once(make_world: MakeWorld) -> None:
    """R-SSE-6: what is held for it is bounded; when it reads it continues, not at a heartbeat."""
    world = make_world()
    world = simulated(world)
    world.put("t")
    stalled, lively = watch(world, "t"), watch(world, "t")
    stalled.frames(1)
    lively.frames(1)
    world.ring.network.socket_buffer_bytes = 1 << 16
    seen = 0
    for number in range(100):
        world.write("t", "x" * 20_000, str(number))
        assert seqs(lively.frames(2)[0].data) == [2 * number + 1, 2 * number + 2]
        seen = 2 * number + 2
    assert world.server is not None
    held = max(conn.outbound_bytes for conn in world.server.listener.connections)
    assert 0 < held < 200_000
    world.advance_ms(120_000)
    assert max(conn.outbound_bytes for conn in world.server.listener.connections) < 200_000
    delivered: list[int] = []
    started_ms = world.now_ms()
    while not delivered or delivered[-1] < seen:
        frame = stalled.one(within_ms=50)
        if frame.event == "record":
            delivered += seqs(frame.data)
    assert delivered == list(range(1, seen + 1))
    assert world.now_ms() - started_ms < 1000


def test_a_client_that_leaves_gives_everything_back(make_world: MakeWorld) -> None:
    """R-NET-11: slot, session, waiter; by a reset and by a mere end."""
    world = make_world()
    world.put("t")
    for end in ("reset", "half-close"):
        stream = watch(world, "t")
        stream.frames(1)
        if end == "reset":
            stream.leave()
        else:
            stream.connection.finish_sending()
            assert stream.connection.ends()
    metrics = world.request("GET", "/v0/metrics", headers={"Accept": "application/json"}).json
    assert metrics["sse_connections"] == 0
    if isinstance(world, SimWorld):
        assert world.server is not None
        assert not len(world.server.service.streams.heartbeats)


def test_shutdown_is_told_to_every_stream(world: World) -> None:
    """R-WATCH-15, R-LIFE-7, R-LIFE-8: an error frame with an id, the end, and no delay."""
    world.write("t", 1)
    streams = [watch(world, "t"), watch(world, "t", heartbeat_ms=60_000)]
    for stream in streams:
        stream.frames(2)
    started_ms = world.now_ms()
    world.begin_stop()
    for stream in streams:
        goodbye = stream.one()
        assert goodbye.event == "error"
        assert goodbye.data["code"] == "server_shutting_down"
        assert set(goodbye.data) == {"code", "message"}
        assert goodbye.cursors == {"t": 1}
        assert stream.ends()
    assert world.finish_stop() == 0
    assert world.now_ms() - started_ms < 5000


@pytest.mark.http1
def test_http_1_0_clients_watch_until_the_close(world: World) -> None:
    """R-NET-3, 10.3: without chunks."""
    world.write("t", 1)
    path = session(world, "t")
    text = world.raw(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode()).decode()
    head, _, body = text.partition("\r\n\r\n")
    assert "chunked" not in head
    assert body.startswith("retry: 2000\n\nid: ")
    world.drop("t")


def test_records_are_pushed_when_they_are_committed_and_not_before(make_world: MakeWorld) -> None:
    """R-SEQ-3, R-WATCH-14: a frame never shows what a crash could still take from its class."""
    world = make_world()
    world = simulated(world)
    world.put("t", durability="fsync")
    stream = watch(world, "t")
    stream.frames(1)
    for number in range(20):
        writer = world.ask("POST", "/v0/topics/t", {"records": [{"data": number}]})
        while writer.nothing_came:
            world.advance_us(20)
            stream.pull()
        assert writer.answer().status == 200
        stream.frames(2, within_ms=50)


def test_a_watcher_of_destinations_sees_what_a_source_was_told(world: World) -> None:
    """R-RTR-4, R-RTR-5, R-WATCH-14: at once, through a chain of two."""
    for name in ("a", "b", "c"):
        world.put(name)
    for router, source, dest in (("r1", "a", "b"), ("r2", "b", "c")):
        world.request("PUT", f"/v0/routers/{router}", {"source": source, "dest": dest})
    stream = watch(world, ["b", "c"])
    stream.frames(2)
    world.write("a", "x", "y")
    frames = stream.frames(4, within_ms=100 if isinstance(world, SimWorld) else 5000)
    assert [seqs(frame.data) for frame in frames if frame.event == "record"] == [[1, 2], [1, 2]]
