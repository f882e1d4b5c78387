"""Publishes of a client by itself: answered, written and delivered as on the general path.

Two simulated servers get the same frames, one by one; on the first, a publish is committed in the call that receives
it, and leaves out the end of its pass. Nothing but what comes wakes them: what a pass leaves undone stays so.
"""

from __future__ import annotations

import errno
import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.amount import amount, examples, seeds
from tests.contract.world.sim_world import SimWorld
from tests.contract.world.sse_client import watch
from tests.contract.world.websocket_client import WebSocket
from tests.server.lane_streams import BODIES, KEYS, without_chance
from tests.server.test_lane import _frames
from tests.ws.frame_client import BINARY, CLOSE, PING, TEXT, frame
from tests.ws.odd_frames import pieces as odd_pieces
from topics.ws.lone_publishes import LonePublishes

TOPICS: dict[str, dict[str, Any]] = {
    "disk": {"durability": "disk"},
    "fsync": {"durability": "fsync"},
    "memory": {"durability": "memory", "cap_records": 3},
}
NAMES = ["disk", "disk", "disk", "fsync", "memory", "absent"]
LIMITS: dict[str, Any] = {"ws_max_frame_bytes": 30_000, "ws_max_message_bytes": 20_000, "ws_max_request_id_bytes": 20}
IDS = (b"1", b'"a"', b'"a  b\\u0041"', b"-2.50", b"[1, 2]", b"null", b"true", b"9" * 21, b"")


def message(topic: str, body: bytes, request_id: bytes = b"1", more: bytes = b"", op: bytes = b'"publish"') -> bytes:
    """A publish with the fields of a body of HTTP."""
    asked = b'"request_id": %b,' % request_id if request_id else b""
    name = json.dumps(topic).encode()
    return b'{"op":%b,"topic":%b,%b%b%b' % (op, name, asked, more, body.strip()[1:])


def publish(topic: str = "disk", data: object = 1) -> bytes:
    return frame(TEXT, message(topic, b'{"records":[{"data":%b}]}' % json.dumps(data).encode()))


def odd_frames(rng: random.Random) -> list[bytes]:
    """Two usual publishes, and a message that may be odd, cut into the pieces that arrive together."""
    body = rng.choice(BODIES)
    if not body.strip().startswith(b"{") or rng.random() < 0.02:
        body = b'{"records":[{"data":"%b"}]}' % (b"x" * rng.choice((0, 60, 70, 19_000, 21_000, 31_000, 66_000)))
    topic = rng.choice(NAMES)
    usual = rng.random() < 0.6
    request_id = b"7" if usual else rng.choice(IDS)
    fields = (b'"return_seqs":false,', b'"return_seqs":true,', b'"return_seqs":1,', b'"x":1,')
    more = b"" if usual else rng.choice(fields)
    op = b'"publish"' if usual or rng.random() < 0.8 else rng.choice((b'"pub\\u006cish"', b'"ping"', b'"publis"', b"1"))
    text = message(topic, body, request_id, more, op)
    whole = frame(TEXT, text, mask=rng.choice((b"\0\0\0\0", b"\1\2\3\4", b"\xff\x80\x7f\0")))
    first = [publish(topic)] * rng.choice((0, 2, 2))
    if rng.random() < 0.75:
        return [*first, whole]
    cut = rng.randrange(1, len(text))
    parts = frame(TEXT, text[:cut], fin=False), frame(0, text[cut:])
    odd = rng.choice(
        (
            [*parts], [parts[0], frame(PING, b"p"), parts[1]], [b"".join(parts)], [whole[:cut], whole[cut:]],
            [whole + whole], [whole + whole[:3], whole[3:]], [frame(PING, b"x")], [frame(BINARY, text)], [],
            [frame(TEXT, text, rsv=4)], [frame(TEXT, text, mask=b"")], [frame(TEXT, b"\xff")],
            [frame(CLOSE, b"\3\xe8")], [b"\x81\xfe\0\5" + bytes(9)],
            [b"\x81\xff" + bytes(6) + b"\1\0" + bytes(4) + b"{" * 256],
        )
    )  # fmt: skip
    return [*first, *odd]


class Pair:
    """Two servers; the first takes a publish by itself in the call that receives it."""

    def __init__(self, **settings: Any) -> None:
        self.worlds = [world_of(http_lane=lane, **settings) for lane in ("auto", "off")]
        for world in self.worlds:
            for name, config in TOPICS.items():
                world.put(name, **config)

    def run(self, rng: random.Random, frames: Callable[[random.Random], list[bytes]] = odd_frames) -> None:
        """The frames of one connection, each piece in a pass of its own. Both answer the same bytes."""
        pieces = [piece for _ in range(rng.randrange(1, 9)) for piece in frames(rng)]
        strict = {"Prefer": "handling=strict"} if rng.random() < 0.3 else {}
        answers = []
        for world in self.worlds:
            socket = WebSocket(world, **strict)
            for piece in pieces:
                socket.send(piece)
                world.settle()
            data = b""
            while more := socket.connection.receive():
                data += more
            answers.append((without_chance(data), socket.connection.ended))
            socket.connection.reset()
            world.settle()
        assert answers[0] == answers[1], f"{pieces}\n{answers[0]}\n{answers[1]}"

    def compare(self) -> int:
        """Topics, records and the frames of the log. Returns how many frames both have."""
        found = []
        for world in self.worlds:
            conn = world.connect()
            found.append(
                [
                    without_chance(conn.request(method, f"/v0/topics/{path}", body).body)
                    for name in TOPICS
                    for method, path, body in (
                        ("GET", f"{name}?touch=false", None),
                        ("POST", f"{name}/diff", {"include_tags": True, "limit": 1000}),
                    )
                ]
            )
        assert found[0] == found[1]
        lane, general = map(_frames, self.worlds)
        both = lane.keys() & general.keys()
        assert all(lane[key] == general[key] for key in both)
        return len(both)


def world_of(**settings: Any) -> SimWorld:
    """A server that nothing but what comes wakes, and for which every sender has the loop to itself."""
    world = SimWorld(only_woken=True, one_sender_passes=0, **{"http_lane": "auto"} | LIMITS | settings)
    world.start()
    return world


def taken(world: SimWorld) -> int:
    """Return the number of publishes that were parts of a streak."""
    lone = lone_of(world)
    return 0 if lone is None else lone.taken


def lone_of(world: SimWorld) -> LonePublishes | None:
    assert world.server is not None
    host = world.server._websockets._host
    return None if host is None else host.lone


@pytest.fixture(scope="module")
def pair() -> Pair:
    return Pair()


@examples(75)
@given(st.integers(0, 1 << 48))
def test_a_client_by_itself_is_answered_as_on_the_general_path(pair: Pair, seed: int) -> None:
    """R-WS-1, 11.3."""
    pair.run(random.Random(seed))


def test_what_a_client_by_itself_has_published_is_the_same_on_both_paths(pair: Pair) -> None:
    before = taken(pair.worlds[0])
    for seed in seeds(200):
        pair.run(random.Random(f"lone {seed}"))
    assert taken(pair.worlds[0]) > before + amount(40), "too little was taken for this test to mean anything"
    assert taken(pair.worlds[1]) == 0
    assert pair.compare() > 30
    for world in pair.worlds:
        world.crash()
        world.start()
    assert pair.compare() > 30


def test_damaged_frames_and_commands_of_every_kind_mean_the_same_on_both_paths() -> None:
    """R-WS-1, 11.3. `make fuzz-lane` tries more of them."""
    pair = Pair()
    for seed in seeds(200):
        pair.run(random.Random(f"odd {seed}"), odd_pieces)
    assert taken(pair.worlds[0]) > amount(40), "too little was taken for this test to mean anything"
    assert pair.compare() > amount(100)


Requests = tuple[tuple[str, str, Any], ...]
ANEW: Requests = (
    ("DELETE", "/v0/routers/out", None),
    ("DELETE", "/v0/routers/in", None),
    ("DELETE", "/v0/topics/t", None),
    ("PUT", "/v0/topics/t", {}),
)
OTHERS: Requests = (
    *ANEW,
    ("PUT", "/v0/topics/t", {"durability": "fsync"}),
    ("PUT", "/v0/topics/t", {"durability": "ephemeral"}),
    ("PUT", "/v0/topics/t", {"queue": True}),
    ("PATCH", "/v0/topics/t", {"cap_records": 2}),
    ("PATCH", "/v0/topics/t", {"cap_records": 3, "discard": "reject"}),
    ("PATCH", "/v0/topics/t", {"ttl_ms": 1}),
    ("POST", "/v0/topics/t/delete", {"before_seq": 3}),
    ("POST", "/v0/topics/t/delete", {"match": "*"}),
    ("PUT", "/v0/routers/out", {"source": "t", "dest": "disk"}),
    ("PUT", "/v0/routers/in", {"source": "disk", "dest": "t"}),
    ("POST", "/v0/topics/t", {"records": [{"data": "of another"}]}),
    ("POST", "/v0/topics/disk", {"records": [{"data": "of another"}]}),
    ("POST", "/v0/topics/t/claim", {"node": "n", "max": 1}),
    ("PUT", "/v0/topics/t/readers/r", {"from_seq": 1, "holds": True}),
    ("DELETE", "/v0/topics/t/readers/r", None),
    ("POST", "/v0/checkpoint", {}),
    ("POST", "/v0/topics/t/diff", {"limit": 10}),
    ("GET", "/v0/topics/t", None),
)


@pytest.mark.parametrize("seed", seeds(30))
def test_what_others_do_between_the_publishes_of_a_client_is_seen_by_the_next_one(seed: int) -> None:
    """R-WS-1: a streak ends with what it was found for, also if another connection has changed that."""
    pair, rng = Pair(), random.Random(f"others {seed}")
    for world in pair.worlds:
        world.put("t")
    sockets = [[WebSocket(world), WebSocket(world)] for world in pair.worlds]
    plain = [world.connect() for world in pair.worlds]
    for _ in range(40):
        publishes, who = rng.choice((1, 3, 3, 5)), rng.choice((0, 0, 0, 1))
        requests = ANEW if rng.random() < 0.25 else tuple(rng.sample(OTHERS, rng.randrange(3)))
        found: list[Any] = []
        for world, clients, conn in zip(pair.worlds, sockets, plain, strict=True):
            answers: list[Any] = []
            for number in range(publishes):
                clients[who].send(publish("t", number))
                (message,) = clients[who].frames(1)
                answers.append(without_chance(message[1]))
            answers += [without_chance(conn.request(*request).body) for request in requests]
            world.settle()
            found.append(answers)
        assert found[0] == found[1], (publishes, who, requests)
    assert taken(pair.worlds[1]) == 0
    assert taken(pair.worlds[0]) > 3, "too little was taken for this test to mean anything"


@pytest.mark.parametrize("ends", ["a stop", "a failed write", "a crash"])
@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_a_streak_acknowledges_no_publish_of_which_the_end_of_the_log_has_kept_nothing(
    ends: str, durability: str
) -> None:
    """R-WS-1, R-DUR-1."""
    world = world_of()
    world.put("t", durability=durability)
    client = WebSocket(world)
    for number in range(5):
        client.send(publish("t", number))
        assert client.next()["op"] == "ack"
    assert taken(world)
    if ends == "a failed write":
        world.fail_storage("write", errno.EIO, times=20)
    client.send(publish("t", 5))
    if ends == "a stop":
        assert world.server is not None
        world.server.stop()
    if ends != "a crash":
        world.settle()
    client._take()
    acked = [payload for opcode, payload in client.seen if opcode == TEXT and b'"op":"ack"' in payload]
    assert not acked or ends == "a stop"
    client.seen.clear()
    if ends == "a failed write":
        client.send(publish("t", 6))
        assert client.next()["op"] == "error"
        world.heal_storage()
    world.crash()
    world.start()
    head = world.connect().request("GET", "/v0/topics/t", None).json["head_seq"]
    assert head >= 5 + len(acked)


@pytest.mark.parametrize("durability", ["disk", "fsync", "memory"])
@pytest.mark.parametrize("watchers", [1, 3])
def test_the_publishes_of_a_client_by_itself_form_a_streak_beside_watchers_that_get_each_at_once(
    durability: str, watchers: int
) -> None:
    world = world_of()
    world.put("t", durability=durability)
    client, others = WebSocket(world), [WebSocket(world) for _ in range(watchers)]
    for other in others:
        other.subscribe("t")
        assert other.next()["op"] == "caught_up"
    for number in range(1, 10):
        client.send(publish("t", number))
        assert client.next()["op"] == "ack"
        for other in others:
            record, _ = other.take(2)
            assert [each["data"] for each in record["records"]] == [number]
    assert taken(world) >= 6


def test_a_watcher_that_publishes_by_itself_gets_the_ack_before_its_records() -> None:
    """R-WS-2, R-WATCH-9: all watchers get what was published in the pass of the write."""
    world = world_of()
    world.put("t")
    client, watcher = WebSocket(world), watch(world, {"t": {"from_seq": 0}})
    client.subscribe("t")
    assert client.next()["op"] == "caught_up"
    assert watcher.one().event == "caught-up"
    for number in range(1, 10):
        client.send(publish("t", number))
        assert [each["op"] for each in client.take(3)] == ["ack", "record", "caught_up"]
        found = [each for each in watcher.frames(2, within_ms=5) if each.event == "record"]
        assert [each["data"] for each in found[-1].data["records"]] == [number]


def test_a_poll_that_waits_gets_what_a_client_by_itself_publishes() -> None:
    """A poll ends with its answer, which is work for the end of the pass."""
    world = world_of()
    world.put("t")
    client, poll = WebSocket(world), world.connect()
    for number in range(1, 6):
        client.send(publish("t", number))
        assert client.next()["last_seq"] == number
    before = taken(world)
    poll.start("POST", "/v0/topics/t/diff", {"from_seq": 5, "wait_ms": 60_000})
    world.settle()
    for number in (6, 7, 8):
        client.send(publish("t", number))
        assert client.next()["last_seq"] == number
        if number == 6:
            assert [each["data"] for each in poll.answer("POST").json["records"]] == [6]
    assert taken(world) == before + 1


@pytest.mark.parametrize("strict", [False, True])
def test_what_is_no_plain_publish_of_the_topic_leaves_the_streak(strict: bool) -> None:
    """11.3, R-STRICT-5."""
    world = world_of()
    world.put("t1")
    world.put("t2")
    client = WebSocket(world, **{"Prefer": "handling=strict"} if strict else {})
    one = b'{"records":[{"data":1}]}'
    others = {
        message("t2", one): {"op": "ack", "topic": "t2"},
        message("t1", one, op=b'"ping"'): {"op": "error" if strict else "pong"},
        message("t1", one, b"[1, 2]"): {"op": "ack", "request_id": [1, 2]},
        message("t1", one, b"9" * 21): {"op": "error", "code": "invalid_json"},
        message("t1", one, more=b'"x":1,'): {"op": "error" if strict else "ack"},
        message("t1", b'{"records":[]}'): {"op": "error", "code": "invalid_request"},
        message("t1", b'{"records":[{"data":1}],"idempotency_key":"k"}'): {"op": "ack"},
    }
    for text, expected in others.items():
        for _ in range(4):
            client.send(publish("t1"))
            assert client.next()["topic"] == "t1"
        before = taken(world)
        assert before
        client.send(frame(TEXT, text))
        answer = client.next()
        assert {key: answer[key] for key in expected} == expected, text
        client.send(publish("t1"))
        assert client.next()["op"] == "ack"


def test_a_session_without_the_right_to_write_does_not_continue_the_streak_of_another() -> None:
    """R-AUTH-5."""
    world = world_of(api_keys=KEYS)
    bearer = {key: {"Authorization": f"Bearer {key}"} for key in ("writer", "reader")}
    sockets = {key: WebSocket(world, **headers) for key, headers in bearer.items()}
    for _ in range(4):
        sockets["writer"].send(publish("t0-0"))
        assert sockets["writer"].next()["op"] == "ack"
    assert taken(world)
    sockets["reader"].send(publish("t0-0"))
    assert sockets["reader"].next()["code"] == "forbidden"
    assert world.connect().request("GET", "/v0/topics/t0-0", None, bearer["writer"]).json["head_seq"] == 4


def test_the_streak_refers_to_no_session_that_has_ended() -> None:
    world = world_of()
    world.put("t")
    client = WebSocket(world)
    for _ in range(4):
        client.send(publish("t"))
        client.next()
    lone = lone_of(world)
    assert lone is not None
    assert lone.owner is not None
    client.connection.reset()
    world.settle()
    assert (lone.owner, lone._write) == (None, None)
