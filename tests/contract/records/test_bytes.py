"""Records of bytes over the wire: written, read, followed, claimed, forwarded."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.contract.routers.test_routers import route
from tests.contract.world.queue_client import Queue
from tests.contract.world.sse_client import EventStream
from tests.contract.world.websocket_client import WebSocket
from tests.contract.world.world import World

DATA = bytes(range(256))


def text_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def record_of(data: bytes, **more: Any) -> dict[str, Any]:
    return {"data_base64": text_of(data), **more}


def shown(page: Any) -> list[Any]:
    """The bytes, or the JSON, of each record; it has one of the two."""
    found = []
    for record in page["records"]:
        assert ("data" in record) != ("data_base64" in record)
        found.append(record["data"] if "data" in record else base64.b64decode(record["data_base64"], validate=True))
    return found


@pytest.fixture
def mixed(world: World) -> World:
    """A topic `t` of bytes and JSON in turns."""
    world.write_records("t", [record_of(DATA), {"data": "json"}, record_of(b"", tag="a", meta={"k": 1})])
    world.write_records("t", [record_of(b"\xff" * size) for size in range(1, 5)])
    return world


WRITTEN = [DATA, "json", b"", b"\xff", b"\xff\xff", b"\xff" * 3, b"\xff" * 4]


def test_bytes_come_back_as_they_were_written(mixed: World) -> None:
    """R-BYTES-1, R-BYTES-2: beside JSON, with the other fields unchanged."""
    page = mixed.diff("t", include_tags=True)
    assert shown(page) == WRITTEN
    assert page["records"][2] == {
        "$seq": 3, "$ts": page["records"][2]["$ts"], "$tag": "a", "data_base64": "", "meta": {"k": 1}
    }  # fmt: skip
    assert page["records"][0]["data_base64"] == text_of(DATA)


def test_they_survive_restarts_and_power_cuts(mixed: World) -> None:
    """R-BYTES-2."""
    mixed.restart()
    assert shown(mixed.diff("t")) == WRITTEN
    mixed.put("f", durability="fsync")
    mixed.write_records("f", [record_of(DATA)])
    mixed.power_cut()
    mixed.start()
    assert shown(mixed.diff("f")) == [DATA]


@pytest.mark.parametrize(
    "record",
    [{}, {"data": 1, "data_base64": ""}, {"data_base64": None}, {"data_base64": 1}, {"data_base64": "AA"},
     {"data_base64": "AB=="}, {"data_base64": "AA-_"}, {"data_base64": "AAAA "}],
)  # fmt: skip
def test_what_is_neither_is_refused_and_nothing_is_written(world: World, record: Any) -> None:
    """R-BYTES-1, 7.5/1."""
    answer = world.request("POST", "/v0/topics/t", {"records": [{"data": 1}, record]})
    assert answer.refusal == (400, "invalid_request", None)
    assert "records[1]" in answer.text
    assert world.request("GET", "/v0/topics/t").status == 404


def test_sizes_count_bytes_and_budgets_of_answers_their_text(world: World) -> None:
    """R-BYTES-3."""
    world.write_records("t", [record_of(bytes(300)) for _ in range(10)])
    assert world.state("t")["bytes"] == 3000
    assert len(world.diff("t", max_batch_bytes=1200)["records"]) == 3
    world.write("u", *["x" * 298] * 10)
    assert len(world.diff("u", max_batch_bytes=1200)["records"]) == 4
    page = world.diff("t", max_batch_bytes=1)
    assert (len(page["records"]), page["next_from_seq"]) == (1, 1)


def test_a_long_body_of_bytes_is_written_whole(world: World) -> None:
    """R-BYTES-1: more than one turn."""
    records = [record_of(bytes([at]) * 300_000) for at in range(5)]
    world.write_records("t", records)
    assert shown(world.diff("t", max_batch_bytes=1 << 23)) == [bytes([at]) * 300_000 for at in range(5)]


def test_streams_and_messages_have_them(mixed: World) -> None:
    """R-BYTES-2: of a watch, and of a WebSocket, which publishes them, too."""
    path = mixed.request("POST", "/v0/watch", {"topics": {"t": {"from_seq": 0}}}).json["stream_url"]
    frames = EventStream(mixed, path).frames(2)
    assert [record for frame in frames if frame.event == "record" for record in shown(frame.data)] == WRITTEN
    socket = WebSocket(mixed)
    assert socket.ask({"op": "publish", "topic": "u", "records": [record_of(DATA)]})["count"] == 1
    assert shown(mixed.diff("u")) == [DATA]
    assert socket.ask({"op": "subscribe", "topic": "u", "from_seq": 0})["op"] == "subscribed"
    assert shown(socket.next()) == [DATA]


def test_a_stream_without_data_has_neither(mixed: World) -> None:
    """R-BYTES-2: `include_data: false`."""
    body = {"topics": {"t": {"from_seq": 0}}, "include_data": False}
    path = mixed.request("POST", "/v0/watch", body).json["stream_url"]
    frames = [frame for frame in EventStream(mixed, path).frames(2) if frame.event == "record"]
    assert not any({"data", "data_base64"} & set(record) for frame in frames for record in frame.data["records"])


def test_jobs_are_claimed_and_end_as_dead_letters(world: World) -> None:
    """R-BYTES-2."""
    queue = Queue(world, max_deliveries=1, dead_letter="dead")
    world.write_records("jobs", [record_of(DATA), {"data": 1}])
    claimed = queue.claim(2)
    assert shown({"records": claimed["claimed"]}) == [DATA, 1]
    queue.nack(1, 2)
    assert queue.claim(2)["claimed"] == []
    dead = world.diff("dead")
    assert shown(dead) == [DATA, 1]
    size = len('{"$dead_letter_from":"jobs","$dead_letter_deliveries":"1","$dead_letter_src_seq":"1"}')
    assert world.state("dead")["bytes"] == len(DATA) + 1 + 2 * size


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
@pytest.mark.parametrize("dest", ["disk", "ephemeral"])
def test_routers_forward_bytes_as_bytes(world: World, guarantee: str, dest: str) -> None:
    """R-BYTES-2: copies by position, and copies that are written out; also after a restart."""
    world.put("to", durability=dest)
    route(world, "r", "t", "to", guarantee=guarantee)
    world.write_records("t", [record_of(DATA), {"data": "json"}, record_of(b"")])
    assert shown(world.diff("to")) == [DATA, "json", b""]
    if dest == "disk":
        world.restart()
        assert shown(world.diff("to")) == [DATA, "json", b""]


def test_a_part_of_bytes_is_another_one_than_of_json(world: World) -> None:
    """R-BYTES-4."""
    part = {"producer": {"id": "p", "epoch": 1, "part": 0}}
    world.write_records("t", [{"data": "x"}], **part)
    answer = world.request("POST", "/v0/topics/t", {"records": [record_of(b'"x"')], **part})
    assert answer.refusal[:2] == (409, "producer_diverged")
    part["producer"]["part"] = 1
    assert not world.write_records("t", [record_of(b'"x"')], **part)["deduped"]
    assert world.write_records("t", [record_of(b'"x"')], **part)["deduped"]


def test_a_key_makes_a_write_of_bytes_safe_to_repeat(world: World) -> None:
    """R-IDEM-3, R-BYTES-1: in the lane, too."""
    for deduped in (False, True):
        assert world.write_records("t", [record_of(DATA)], idempotency_key="k")["deduped"] is deduped
    assert shown(world.diff("t")) == [DATA]
