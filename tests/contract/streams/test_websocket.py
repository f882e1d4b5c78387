"""The WebSocket: handshake, commands, order, deliveries, closing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.conftest import MakeWorld
from tests.contract.world.sim_world import SimWorld
from tests.contract.world.websocket_client import ACCEPT, HEADERS, WebSocket, upgrade
from tests.contract.world.world import World, request_bytes
from tests.ws import frame_client
from tests.ws.frame_client import close_code, frame, text

pytestmark = pytest.mark.http1

INVALID = (400, "invalid_request", None)
INVALID_JSON = {"op": "error", "request_id": None, "code": "invalid_json"}
ONE = [{"data": 1}]


def error(message: Any) -> Any:
    """An error message without its prose, which must be there."""
    assert message["op"] == "error"
    assert message.pop("message")
    return message


# --- handshake --------------------------------------------------------------------------------------------------------
def test_an_upgrade_is_accepted(world: World) -> None:
    """11.1: 101 with the key's answer; offers of subprotocols and extensions are ignored."""
    offers = {"Sec-WebSocket-Protocol": "chat", "Sec-WebSocket-Extensions": "permessage-deflate"}
    answer = world.connect().start("GET", "/v0/ws", headers={**HEADERS, **offers}).head()
    assert answer.status == 101
    assert answer.header("sec-websocket-accept") == ACCEPT
    assert (answer.header("upgrade"), answer.header("connection")) == ("websocket", "Upgrade")
    assert answer.header("sec-websocket-protocol") is None
    assert answer.header("sec-websocket-extensions") is None


@pytest.mark.parametrize(
    "headers",
    [
        {"Connection": None}, {"Connection": "close"}, {"Upgrade": None}, {"Upgrade": "h2c"},
        {"Sec-WebSocket-Version": None}, {"Sec-WebSocket-Version": "8"}, {"Sec-WebSocket-Key": None},
        {"Sec-WebSocket-Key": "short"},
    ],
)  # fmt: skip
def test_a_handshake_that_is_none_is_refused(world: World, headers: dict[str, str | None]) -> None:
    """11.1: 400 in the error envelope."""
    assert upgrade(world, **headers).refusal == INVALID


def test_only_get_is_taken(world: World) -> None:
    """11.1, 2.1: like an SSE path, no HEAD."""
    for method in ("POST", "HEAD", "PUT"):
        answer = world.connect().start(method, "/v0/ws", headers=HEADERS).answer(method)
        assert (answer.status, answer.header("allow")) == (405, "GET")


def test_what_is_sent_behind_the_request_is_the_first_input(world: World) -> None:
    """11.1: commands need not wait for the 101."""
    connection = world.connect().send(request_bytes("GET", "/v0/ws", headers=HEADERS) + text({"op": "ping"}))
    assert connection.head().status == 101
    world.settle()
    assert frame_client.Incoming().feed(connection.receive()) == [
        (frame_client.TEXT, b'{"op":"pong","request_id":null}')
    ]


def test_a_page_of_another_origin_cannot_connect(world: World) -> None:
    """11.1: no CORS covers WebSockets, so the Origin is looked at."""
    assert upgrade(world, Origin="http://evil.example").refusal == (403, "forbidden", None)
    answer = world.connect().start("GET", "/v0/ws", headers={**HEADERS, "Origin": "http://127.0.0.1"}).head()
    assert answer.status == 101


def test_any_valid_key_may_connect(make_world: MakeWorld) -> None:
    """11.1, R-AUTH-7: only by the header; the handshake is looked at after the key."""
    world = make_world(api_keys="d:d")
    assert upgrade(world).refusal == (401, "unauthorized", None)
    assert world.request("GET", "/v0/ws?token=d", headers=HEADERS).status == 401
    assert upgrade(world, Upgrade=None).status == 401
    assert upgrade(world, Authorization="Bearer d", Upgrade=None).refusal == INVALID
    assert WebSocket(world, Authorization="Bearer d").ask({"op": "ping"}) == {"op": "pong", "request_id": None}


def test_connections_are_counted_and_freed(make_world: MakeWorld) -> None:
    """11.1, R-SSE-5: after the handshake's check; the metric counts them too."""
    world = make_world(max_sse_connections=1)
    first = WebSocket(world)
    answer = upgrade(world)
    assert answer.refusal == (429, "throttled", None)
    assert answer.header("retry-after") == "1"
    assert upgrade(world, Upgrade=None).refusal == INVALID
    wait_for_connections(world, 1)
    first.send(frame(frame_client.CLOSE, b""))
    assert first.closed_with() is None
    second = WebSocket(world)
    second.connection.reset()
    wait_for_connections(world, 0)
    WebSocket(world)


def wait_for_connections(world: World, count: int) -> None:
    """The server knows of so many."""
    shown = f"\ntopics_sse_connections {count}.0\n"
    world.wait_until(lambda: shown in world.request("GET", "/v0/metrics").text, 5000)
    assert shown in world.request("GET", "/v0/metrics").text


# --- messages ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "message",
    [
        "", "{", "[]", "1", '"ping"', "{}", '{"op":"nothing"}', '{"op":1}', '{"op":null}', '{"op":"ping"} x',
        '{"op":"ping","op":"ping"}', '{"op":"ping","request_id":1,"request_id":2}', '{"op":"ping","x":1e400}',
        '{"op":"publish"}', '{"op":"publish","topic":"t"}', '{"op":"publish","records":[{"data":1}]}',
        '{"op":"publish","topic":1,"records":[{"data":1}]}', '{"op":"publish","topic":"t","records":{}}',
        '{"op":"publish","topic":"t","records":[{}]}', '{"op":"publish","topic":"t","records":[{"data":1}],"create":1}',
        '{"op":"publish","topic":"t","records":[{"data":1}],"return_seqs":null}',
        '{"op":"publish","topic":"t","records":[{"data":1}],"config":{"ttl_ms":-1}}',
        '{"op":"subscribe","topic":1}', '{"op":"subscribe","topics":[]}', '{"op":"subscribe","topics":null}',
        '{"op":"subscribe","topic":"t","from_seq":1.0}', '{"op":"subscribe","topic":"t","limit":-1}',
        '{"op":"subscribe","topics":{"t":1}}', '{"op":"subscribe","topics":{"t":{"from_seq":"1"}}}',
        '{"op":"subscribe","topics":{"t":{},"t":{}}}', '{"op":"subscribe","topic":"t","lenient":1}',
        '{"op":"subscribe","topic":"t","node":[1]}', '{"op":"unsubscribe","topics":"t"}',
        '{"op":"subscribe","topic":"t","from":"latest"}', '{"op":"subscribe","topic":"t","from":"now","from_seq":1}',
        '{"op":"subscribe","topics":{"t":{"from":"now","tail":true}}}',
        '{"op":"subscribe","topics":{"t":{"from":{"last":10001}}}}',
        '{"op":"unsubscribe","topics":[1]}', '{"op":"unsubscribe","topic":null}',
    ],
)  # fmt: skip
def test_what_is_no_command(world: World, message: str) -> None:
    """11.2, R-JSON-3: invalid_json without a request_id, whatever the message had; the connection stays."""
    socket = WebSocket(world)
    assert error(socket.ask(message)) == INVALID_JSON
    assert socket.ask({"op": "ping", "request_id": 7}) == {"op": "pong", "request_id": 7}


@pytest.mark.parametrize("request_id", [None, 1, "a", [1, {"b": None}], {"a": "\u20ac"}, 2**64, False])
def test_a_request_id_comes_back(world: World, request_id: Any) -> None:
    """11.2: any JSON value, compact."""
    socket = WebSocket(world)
    assert socket.ask({"op": "ping", "request_id": request_id, "other": 1}) == {"op": "pong", "request_id": request_id}
    found = socket.ask({"op": "subscribe", "topic": "absent", "request_id": request_id})
    assert error(found) == {"op": "error", "request_id": request_id, "code": "topic_not_found"}


def test_a_request_id_has_a_limit_of_bytes(make_world: MakeWorld) -> None:
    """R-WS-8: counted before it is copied; the command is not executed."""
    socket = WebSocket(make_world())
    longest = "x" * 1022
    assert socket.ask({"op": "ping", "request_id": longest}) == {"op": "pong", "request_id": longest}
    for too_long in (longest + "x", [0] * 1000):
        for command in ({"op": "publish", "topic": "t", "records": ONE}, {"op": "ping"}, {"op": "unsubscribe"}):
            assert error(socket.ask({**command, "request_id": too_long})) == INVALID_JSON
    assert error(socket.ask({"op": "subscribe", "topic": "t"}))["code"] == "topic_not_found"
    unlimited = WebSocket(make_world(ws_max_request_id_bytes=0))
    assert unlimited.ask({"op": "ping", "request_id": "x" * 5000}) == {"op": "pong", "request_id": "x" * 5000}


def test_binary_is_told_that_it_means_nothing(world: World) -> None:
    """11.2: no request_id key; the connection stays open."""
    socket = WebSocket(world).send(frame(frame_client.BINARY, b"\0"))
    assert error(socket.next()) == {"op": "error", "code": "unsupported_message"}
    assert socket.ask({"op": "ping"})["op"] == "pong"


def test_a_ping_gets_its_pong(world: World) -> None:
    """11.2: with its payload; a pong is ignored; fragments are one message."""
    socket = WebSocket(world)
    socket.send(
        frame(frame_client.PONG, b"x")
        + frame(frame_client.TEXT, b'{"op":', fin=False)
        + frame(frame_client.PING, b"beat")
    )
    socket.send(frame(0, b'"ping"}'))
    assert socket.frames(2) == [(frame_client.PONG, b"beat"), (frame_client.TEXT, b'{"op":"pong","request_id":null}')]


# --- publish ----------------------------------------------------------------------------------------------------------
def test_a_publish_is_a_write(world: World) -> None:
    """11.4: the ack has these fields, seqs null when not asked for."""
    socket = WebSocket(world)
    ack = socket.ask({"op": "publish", "topic": "t", "records": ONE, "request_id": "p1"})
    assert set(ack.pop("performance")) == {"server_total_ms", "wal_append_ms", "fsync_ms"}
    assert ack == {
        "op": "ack", "request_id": "p1", "topic": "t", "first_seq": 1, "last_seq": 1, "seqs": [1], "head_seq": 1,
        "count": 1, "created": True, "deduped": False,
    }  # fmt: skip
    ack = socket.ask({"op": "publish", "topic": "t", "records": ONE * 2, "return_seqs": False, "node": "n"})
    assert (ack["seqs"], ack["first_seq"], ack["last_seq"], ack["created"]) == (None, 2, 3, False)
    records = world.diff("t")["records"]
    assert [record.get("$node") for record in records] == [None, "n", "n"]


def test_publish_and_http_share_what_a_write_shares(world: World) -> None:
    """R-WS-4, R-IDEM-1: idempotency keys, caps and limits."""
    world.put("t", cap_records=2, discard="reject")
    world.write("t", 1, idempotency_key="k")
    socket = WebSocket(world)
    ack = socket.ask({"op": "publish", "topic": "t", "records": ONE, "idempotency_key": "k"})
    assert (ack["seqs"], ack["deduped"], set(ack["performance"])) == ([1], True, {"server_total_ms"})
    for records, code in (
        ([], "invalid_request"),
        ([{"data": 1, "tag": "x" * 257}], "invalid_request"),
        ([{"data": "x" * (1 << 20)}], "record_too_large"),
        (ONE * 10_001, "batch_too_large"),
        (ONE * 2, "topic_full"),
    ):
        found = socket.ask({"op": "publish", "topic": "t", "records": records, "request_id": code})
        assert error(found) == {"op": "error", "request_id": code, "code": code}
    found = socket.ask({"op": "publish", "topic": "new", "records": ONE, "create": False})
    assert error(found)["code"] == "topic_not_found"
    found = socket.ask({"op": "publish", "topic": "no name", "records": ONE})
    assert error(found)["code"] == "invalid_request"
    assert world.state("t")["head_seq"] == 1


def test_a_publish_brings_a_configuration(world: World) -> None:
    """11.4: as the config of a creating write."""
    socket = WebSocket(world)
    socket.ask({"op": "publish", "topic": "t", "records": ONE, "config": {"durability": "fsync", "cap_records": 7}})
    config = world.state("t")["config"]
    assert (config["durability"], config["cap_records"]) == ("fsync", 7)


def test_commands_need_their_scopes(make_world: MakeWorld) -> None:
    """11.3, 11.4, R-AUTH-5: read to subscribe, write to publish, admin for a config, and every name allowed."""
    world = make_world(api_keys="r:r,w:w,box:rw+a:box-")
    publish: dict[str, Any] = {"op": "publish", "topic": "t", "records": ONE, "request_id": 1}
    subscribe: dict[str, Any] = {"op": "subscribe", "topic": "t", "request_id": 1}
    forbidden = {"op": "error", "request_id": 1, "code": "forbidden"}
    writer = WebSocket(world, Authorization="Bearer w")
    assert error(writer.ask({**publish, "config": {}})) == forbidden
    assert writer.ask(publish)["op"] == "ack"
    assert error(writer.ask({**publish, "config": {}})) == forbidden
    assert error(writer.ask(subscribe)) == forbidden
    reader = WebSocket(world, Authorization="Bearer r")
    assert error(reader.ask(publish)) == forbidden
    assert error(reader.ask({"op": "subscribe", "topics": {}, "request_id": 1}))["code"] == "invalid_request"
    assert reader.ask(subscribe)["op"] == "subscribed"
    box = WebSocket(world, Authorization="Bearer box")
    assert error(box.ask(publish)) == forbidden
    assert error(box.ask({**subscribe, "topics": {"box-1": {}}, "lenient": True})) == forbidden
    assert box.ask({**publish, "topic": "box-1", "config": {}})["op"] == "ack"
    config = {"dead_letter": "t"}
    assert error(box.ask({**publish, "topic": "box-2", "config": config})) == forbidden
    assert box.ask({"op": "unsubscribe", "topic": "t"})["op"] == "unsubscribed"


# --- subscribe and deliveries -----------------------------------------------------------------------------------------
def record(topic: str, from_seq: int, to_seq: int, head_seq: int, *data: Any) -> dict[str, Any]:
    """A record frame, its records reduced to their data."""
    return {
        "op": "record",
        "topic": topic,
        "from_seq": from_seq,
        "to_seq": to_seq,
        "head_seq": head_seq,
        "data": [*data],
    }


def caught_up(topic: str, head_seq: int) -> dict[str, Any]:
    return {"op": "caught_up", "topic": topic, "head_seq": head_seq}


def shown(message: Any) -> Any:
    """A delivery frame as `record` and `caught_up` make them."""
    if message["op"] == "record":
        message["data"] = [each["data"] for each in message.pop("records")]
    return message


def deliveries(socket: WebSocket, count: int) -> list[Any]:
    return [shown(message) for message in socket.take(count)]


def test_a_subscription_delivers_what_is_there_and_what_comes(world: World) -> None:
    """11.3, 11.5, R-WS-2: subscribed first; then the frames of the watch, without ids."""
    world.write("t", "a", "b")
    socket = WebSocket(world)
    answer = socket.ask({"op": "subscribe", "topic": "t", "from_seq": 1, "request_id": 5})
    numbers = {"from_seq": 1, "head_seq": 2, "earliest_seq": 1}
    assert answer == {"op": "subscribed", "request_id": 5, "topics": {"t": numbers}}
    assert deliveries(socket, 2) == [record("t", 1, 2, 2, "b"), caught_up("t", 2)]
    world.write("t", "c")
    assert deliveries(socket, 2) == [record("t", 2, 3, 3, "c"), caught_up("t", 3)]
    assert socket.silent


def test_an_empty_topic_is_caught_up_at_once(world: World) -> None:
    """11.5: once, and again only after something came."""
    world.put("t")
    socket = WebSocket(world)
    socket.subscribe("t")
    assert deliveries(socket, 1) == [caught_up("t", 0)]
    assert socket.silent


def test_a_tail_begins_at_the_head(world: World) -> None:
    """11.3: `tail` ignores from_seq; an entry of `topics` wins over `topic`."""
    world.write("t", 1, 2)
    world.write("u", 1)
    socket = WebSocket(world)
    answer = socket.ask(
        {"op": "subscribe", "topic": "t", "from_seq": 1, "topics": {"t": {"tail": True}, "u": {"from_seq": 1}}}
    )
    assert {name: each["from_seq"] for name, each in answer["topics"].items()} == {"t": 2, "u": 1}
    assert deliveries(socket, 2) == [caught_up("t", 2), caught_up("u", 1)]


def test_a_subscription_may_begin_elsewhere(world: World) -> None:
    """R-FROM-4, R-FROM-7: taken when the command is executed, and answered as a cursor."""
    world.put("t", cap_records=3)
    world.write("t", 1, 2, 3, 4, 5)
    world.write("u", 1, 2)
    socket = WebSocket(world)
    answer = socket.ask({"op": "subscribe", "topic": "t", "from": {"last": 2}, "topics": {"u": {"from": "now"}}})
    assert answer["topics"] == {
        "t": {"from_seq": 3, "head_seq": 5, "earliest_seq": 3},
        "u": {"from_seq": 2, "head_seq": 2, "earliest_seq": 1},
    }
    records, *rest = socket.take(3)
    assert (records["op"], [record["data"] for record in records["records"]]) == ("record", [4, 5])
    assert rest == [caught_up("t", 5), caught_up("u", 2)]
    for begin, cursor in (("first", 2), ({"last": 10}, 2), ({"time": 0}, 2), ({"time": 2**63}, 5), ("now", 5)):
        again = WebSocket(world).ask({"op": "subscribe", "topic": "t", "from": begin})
        assert again["topics"]["t"]["from_seq"] == cursor


def test_subscribing_again_replaces(world: World) -> None:
    """11.3: options and cursor."""
    world.write_records("t", [{"data": 1, "tag": "x", "meta": {"a": 1}}])
    socket = WebSocket(world)
    socket.subscribe("t")
    (first, _) = socket.take(2)
    assert [set(each) for each in first["records"]] == [{"$seq", "$ts", "data", "meta"}]
    socket.subscribe("t", include_data=False, include_tags=True, include_meta=False)
    (again, _) = socket.take(2)
    assert [set(each) for each in again["records"]] == [{"$seq", "$ts", "$tag"}]
    world.write("t", 2)
    assert [message["op"] for message in socket.take(2)] == ["record", "caught_up"]
    assert socket.silent


def test_limit_and_node_filter(world: World) -> None:
    """11.3, R-NODE-1: as in a diff; a frame a pass."""
    world.write_records("t", [{"data": n, "node": "me" if n % 2 else "you"} for n in range(6)])
    socket = WebSocket(world)
    socket.subscribe("t", limit=2, node="me")
    found = deliveries(socket, 3)
    assert [each.get("data") for each in found] == [[0, 2], [4], None]
    assert [each.get("to_seq") for each in found[:2]] == [3, 6]


def test_a_topic_that_is_absent(world: World) -> None:
    """11.3: nothing is subscribed; with lenient it is left out."""
    world.write("t", 1)
    socket = WebSocket(world)
    command: dict[str, Any] = {"op": "subscribe", "topics": {"t": {}, "absent": {}}}
    assert error(socket.ask(command))["code"] == "topic_not_found"
    assert socket.silent
    assert list(socket.ask({**command, "lenient": True})["topics"]) == ["t"]
    assert socket.take(2)[1]["op"] == "caught_up"
    assert socket.ask({"op": "subscribe", "topic": "absent", "lenient": True})["topics"] == {}
    assert error(socket.ask({"op": "subscribe"}))["code"] == "invalid_request"


def test_losses_are_told_with_their_reason(world: World) -> None:
    """TV-13, 11.5: never from_seq_too_old on a WebSocket."""
    world.put("t", cap_records=3)
    world.write_singly("t", 1, 2, 3, 4, 5, 6)
    socket = WebSocket(world)
    socket.subscribe("t")
    assert deliveries(socket, 3) == [
        {
            "op": "tombstone",
            "topic": "t",
            "reason": "cap",
            "gap_from": 1,
            "gap_to": 3,
            "earliest_seq": 4,
            "head_seq": 6,
        },
        record("t", 0, 6, 6, 4, 5, 6),
        caught_up("t", 6),
    ]


def test_a_deleted_topic_ends_its_subscription_alone(world: World) -> None:
    """11.5: topic_deleted; the connection stays, and may subscribe again."""
    world.write("t", 1)
    socket = WebSocket(world)
    socket.subscribe("t", 1)
    assert deliveries(socket, 1) == [caught_up("t", 1)]
    world.drop("t")
    assert socket.next() == {"op": "topic_deleted", "topic": "t", "head_seq": 0, "reason": "deleted"}
    world.write("t", 2)
    assert socket.silent
    socket.subscribe("t")
    assert deliveries(socket, 2) == [record("t", 0, 1, 1, 2), caught_up("t", 1)]


def test_an_unsubscribed_topic_is_silent(world: World) -> None:
    """11.4, R-WS-2: names of topics, then topic; unknown ones are fine."""
    world.write("t", 1)
    socket = WebSocket(world)
    socket.subscribe("t", 1)
    socket.next()
    answer = socket.ask({"op": "unsubscribe", "topic": "t", "topics": ["u", "v"], "request_id": 0})
    assert answer == {"op": "unsubscribed", "request_id": 0, "topics": ["u", "v", "t"]}
    world.write("t", 2)
    assert socket.silent
    for nothing in ({}, {"topics": []}):
        assert error(socket.ask({"op": "unsubscribe", **nothing}))["code"] == "invalid_request"


def test_a_flood_of_frames_is_answered_in_order_and_others_between(make_world: MakeWorld) -> None:
    """R-WS-7."""
    world = make_world(ws_pass_frames=50)
    flood, other = WebSocket(world), WebSocket(world)
    pings = b"".join(frame(frame_client.PING, b"%d" % number) for number in range(3000))
    flood.send(pings + text({"op": "publish", "topic": "t", "records": ONE}) + text({"op": "ping"}))
    assert other.ask({"op": "ping"}) == {"op": "pong", "request_id": None}
    answers = flood.frames(3002)
    assert [payload for _, payload in answers[:3000]] == [b"%d" % number for number in range(3000)]
    assert [b'"op":"ack"' in answers[3000][1], b'"op":"pong"' in answers[3001][1]] == [True, True]


@pytest.mark.parametrize("op", ["subscribe", "unsubscribe"])
def test_a_command_names_256_topics_at_most(make_world: MakeWorld, op: str) -> None:
    """R-WS-5: `topic` included; nothing is done beyond that."""
    world = make_world(max_watch_topics=3)
    world.put("t")
    socket = WebSocket(world)
    refusal = {"op": "error", "request_id": 5, "code": "invalid_request"}
    for names in (["t", "u", "v", "w"], ["t"] + [f"n{number}" for number in range(20_000)]):
        topics: Any = {name: {} for name in names} if op == "subscribe" else names
        assert error(socket.ask({"op": op, "topics": topics, "request_id": 5, "lenient": True})) == refusal
        assert error(socket.ask({"op": op, "topics": topics, "topic": "x", "request_id": 5})) == refusal
    few: Any = {"t": {}, "u": {}, "v": {}} if op == "subscribe" else ["t", "u", "v"]
    assert error(socket.ask({"op": op, "topics": few, "topic": "w", "request_id": 5})) == refusal
    assert socket.ask({"op": op, "topics": few, "lenient": True})["op"] == f"{op}d"
    if op == "subscribe":
        assert socket.next()["op"] == "caught_up"
        assert socket.ask({"op": op, "topics": few, "topic": "t", "lenient": True})["op"] == "subscribed"


def test_a_connection_follows_so_many_topics_at_most(make_world: MakeWorld) -> None:
    """R-WS-6, R-LIM-1: those that are there; what is left frees its place, and what is followed may be replaced."""
    world = make_world(ws_max_subscriptions=2)
    for name in "tuv":
        world.put(name)
    socket, other = WebSocket(world), WebSocket(world)

    def subscribe(*names: str) -> Any:
        answer = socket.ask({"op": "subscribe", "topics": {name: {} for name in names}, "lenient": True})
        return answer if answer["op"] == "subscribed" else error(answer)["code"]

    assert subscribe("t", "u", "v") == "throttled"
    assert subscribe("t", "absent", "none")["op"] == "subscribed"
    assert socket.next()["op"] == "caught_up"
    assert subscribe("u", "v") == "throttled"
    assert subscribe("t", "u")["op"] == "subscribed"
    socket.frames(2)
    assert other.ask({"op": "subscribe", "topic": "v"})["op"] == "subscribed"
    assert socket.ask({"op": "unsubscribe", "topic": "t"})["op"] == "unsubscribed"
    assert subscribe("v")["op"] == "subscribed"


def test_a_subscription_names_so_many_nodes_at_most(make_world: MakeWorld) -> None:
    """R-NODE-6, 11.2: a limit, not a shape; the nodes of one within it are left out."""
    world = make_world(max_nodes=2)
    world.write_records("t", [{"data": 1, "node": "a"}, {"data": 2}])
    socket = WebSocket(world)
    refused = socket.ask({"op": "subscribe", "topic": "t", "node": ["a", "b", "c"], "request_id": 5})
    assert error(refused) == {"op": "error", "request_id": 5, "code": "invalid_request"}
    assert socket.ask({"op": "subscribe", "topic": "t", "node": ["a", "b"]})["op"] == "subscribed"
    assert [record["$seq"] for record in socket.next()["records"]] == [2]


def test_the_scope_comes_before_the_number_of_topics(make_world: MakeWorld) -> None:
    """11.3, R-WS-5."""
    world = make_world(api_keys="w:w", max_watch_topics=1)
    socket = WebSocket(world, Authorization="Bearer w")
    assert error(socket.ask({"op": "subscribe", "topics": {"t": {}, "u": {}}}))["code"] == "forbidden"


# --- order ------------------------------------------------------------------------------------------------------------
def test_replies_come_in_the_order_of_the_commands(world: World) -> None:
    """R-WS-1: whatever each has to wait for, and one sees what the one before it did."""
    for topic, durability in (("slow", "fsync"), ("fast", "ephemeral")):
        world.put(topic, durability=durability)
    socket = WebSocket(world)
    commands: list[dict[str, Any]] = []
    for _ in range(5):
        commands += [
            {"op": "publish", "topic": "slow", "records": ONE},
            {"op": "publish", "topic": "fast", "records": ONE},
            {"op": "publish", "topic": "slow", "records": []},
            {"op": "ping"},
            {"op": "subscribe", "topic": "slow", "tail": True},
            {"op": "unsubscribe", "topic": "slow"},
        ]
    for number, command in enumerate(commands):
        command["request_id"] = number
    socket.send(b"".join(text(command) for command in commands))
    replies = [message for message in socket.take(30 + 5) if message["op"] not in ("caught_up", "record")]
    if len(replies) < 30:
        replies += socket.take(30 - len(replies))
    assert [reply["request_id"] for reply in replies] == list(range(30))
    assert [reply["op"] for reply in replies[:6]] == ["ack", "ack", "error", "pong", "subscribed", "unsubscribed"]
    heads = [reply["topics"]["slow"]["head_seq"] for reply in replies if reply["op"] == "subscribed"]
    assert heads == [1, 2, 3, 4, 5]


def test_an_ack_comes_before_its_records(world: World) -> None:
    """R-WS-2: also when the ack has to wait for a slower one."""
    world.put("slow", durability="fsync")
    world.put("fast", durability="ephemeral")
    socket = WebSocket(world)
    socket.ask({"op": "subscribe", "topics": {"slow": {}, "fast": {}}})
    socket.take(2)
    acked = {"slow": 0, "fast": 0}
    socket.send(b"".join(text({"op": "publish", "topic": t, "records": ONE}) for t in ("slow", "fast") * 8))
    got = {"slow": 0, "fast": 0}
    while got != {"slow": 8, "fast": 8}:
        message = socket.next()
        if message["op"] == "ack":
            acked[message["topic"]] = message["last_seq"]
        elif message["op"] == "record":
            assert message["to_seq"] <= acked[message["topic"]]
            got[message["topic"]] = message["to_seq"]
    assert acked == {"slow": 8, "fast": 8}


def test_a_reader_that_stalls_holds_up_no_other(make_world: MakeWorld) -> None:
    """R-WS-3: its own deliveries and commands wait; it misses nothing once it reads."""
    world = make_world(stream_high_water_bytes=8192, stream_low_water_bytes=4096)
    world.put("t", durability="ephemeral")
    stalled = WebSocket(world)
    other = WebSocket(world)
    for socket in (stalled, other):
        socket.subscribe("t")
        socket.next()
    body = "x" * 20_000
    for number in range(60):
        ack = other.ask({"op": "publish", "topic": "t", "records": [{"data": [number, body]}]})
        assert ack["op"] == "ack"
        assert [message["op"] for message in other.take(2)] == ["record", "caught_up"]
    stalled.say({"op": "ping"})
    numbers: list[int] = []
    ops: list[str] = []
    while len(numbers) < 60 or "pong" not in ops:
        message = stalled.next()
        ops.append(message["op"])
        numbers += [record["data"][0] for record in message.get("records", ())]
    assert numbers == list(range(60))
    if isinstance(world, SimWorld):  # a real kernel's buffers hold all of it
        assert ops.count("record") < 60, "what waited came in frames of many records"


# --- closing ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("payload", [b"", b"\x03\xe8", b"\x03\xe9bye"])
def test_a_close_gets_its_reply(world: World, payload: bytes) -> None:
    """11.2: after what was asked before it."""
    socket = WebSocket(world)
    world.put("t", durability="fsync")
    socket.send(text({"op": "publish", "topic": "t", "records": ONE}) + frame(frame_client.CLOSE, payload))
    assert socket.next()["op"] == "ack"
    assert socket.closed_with() == close_code(payload)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(frame_client.TEXT, b"x", mask=b""), 1002),
        (frame(frame_client.TEXT, b"\xff"), 1007),
        (frame(frame_client.TEXT, b"x" * 1001), 1009),
        (frame(frame_client.TEXT, b"x" * 1000, fin=False) + frame(0, b"x" * 501), 1009),
    ],
)
def test_what_breaks_the_protocol_is_closed_with_its_code(make_world: MakeWorld, data: bytes, code: int) -> None:
    """11.6: protocol error, bad UTF-8, too long a message or frame."""
    world = make_world(ws_max_frame_bytes=1000, ws_max_message_bytes=1500)
    assert WebSocket(world).send(data).closed_with() == code


def test_a_large_message_is_taken(world: World) -> None:
    """11.6: 16 MiB a frame are allowed, one byte more is not."""
    socket = WebSocket(world)
    records = [{"data": "x" * 1_000_000}] * 16
    assert socket.ask({"op": "publish", "topic": "t", "records": records})["last_seq"] == 16
    too_long = (
        frame(frame_client.TEXT, b"x" * 200)[:2].replace(b"\xfe", b"\xff")
        + ((16 << 20) + 1).to_bytes(8, "big")
        + b"abcd"
    )
    assert socket.send(too_long).closed_with() == 1009


def test_a_shutdown_is_told_and_closed(world: World) -> None:
    """11.6, R-LIFE-7: server_shutting_down, then 1001; what was begun is finished."""
    world.put("t", durability="fsync")
    socket = WebSocket(world)
    socket.subscribe("t")
    socket.next()
    world.begin_stop()
    assert error(socket.next()) == {"op": "error", "code": "server_shutting_down"}
    assert socket.closed_with() == 1001
    assert world.finish_stop() == 0


def test_a_lost_connection_takes_its_subscriptions_along(make_world: MakeWorld) -> None:
    """11.6: and its slot."""
    world = make_world(max_sse_connections=2)
    world.put("t")
    for _ in range(5):
        socket = WebSocket(world)
        socket.subscribe("t")
        socket.connection.reset()
        wait_for_connections(world, 0)
    socket = WebSocket(world)
    socket.connection.finish_sending()
    assert socket.connection.ends()
    world.write("t", 1)
    assert WebSocket(world).ask({"op": "ping"})["op"] == "pong"
