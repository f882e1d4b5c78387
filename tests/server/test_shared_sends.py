"""Watchers of one topic that are sent the same bytes by one call: nothing but the calls is different."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.world.sim_world import SimWorld
from tests.contract.world.sse_client import EventStream, resume, session, watch
from tests.contract.world.websocket_client import WebSocket
from topics.http.streams import watch_stream
from topics.loop.connection import Connection

LANES = ("auto", "off")


def world_with(lane: str = "auto", **settings: Any) -> SimWorld:
    world = SimWorld(0, http_lane=lane, **settings)
    world.start()
    world.write("t", 0)
    return world


def sharing(world: SimWorld) -> list[Connection]:
    """The connections that a shared send may use now."""
    assert world.server is not None
    return [conn for conn in world.server.listener.connections if conn.shares]


def open_stream(world: SimWorld, **fields: Any) -> EventStream:
    stream = watch(world, {"t": {"tail": True}}, **fields)
    assert stream.one().event == "caught-up"
    return stream


@pytest.mark.parametrize("lane", LANES)
def test_watchers_get_the_same_frames_with_and_without_shared_sends(lane: str) -> None:
    world = world_with(lane)
    streams = [open_stream(world) for _ in range(4)]
    sockets = [WebSocket(world) for _ in range(3)]
    for socket in sockets:
        socket.subscribe("t", 1)
        assert socket.next()["op"] == "caught_up"
    for number in range(1, 6):
        world.write("t", number)
        for stream in streams:
            record, caught_up = stream.frames(2)
            assert [row["data"] for row in record.data["records"]] == [number]
            assert record.cursors == caught_up.cursors == {"t": number + 1}
        for socket in sockets:
            record_of_socket, end = socket.take(2)
            assert [row["data"] for row in record_of_socket["records"]] == [number]
            assert end["op"] == "caught_up"
    assert len(sharing(world)) == (7 if lane == "auto" else 0)


def test_a_burst_that_cannot_be_rendered_ends_its_watchers_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = world_with()
    streams = [open_stream(world) for _ in range(3)]
    world.write("t", 1)
    for stream in streams:
        stream.frames(2)

    def no_memory(*_args: object) -> bytes:
        raise MemoryError

    with monkeypatch.context() as broken:
        broken.setattr(watch_stream.sse, "frame", no_memory)
        world.write("t", 2)
        world.settle()
    assert world.request("GET", "/v0/topics/t").status == 200
    assert world.write("t", 3)
    assert [row["data"] for row in world.diff("t", 2)["records"]] == [2, 3]


def test_a_session_goes_on_after_the_frames_of_shared_sends() -> None:
    """R-WATCH-5: the cursors are those after the last frame, shared sends included."""
    world = world_with()
    paths = [session(world, {"t": {"tail": True}}) for _ in range(2)]
    streams = [resume(world, path) for path in paths]
    for stream in streams:
        stream.one()
    world.write("t", 1)
    world.write("t", 2)
    assert len(sharing(world)) == 2
    streams[0].leave()
    world.settle()
    world.write("t", 3)
    again = resume(world, paths[0])
    record = again.one()
    assert (record.data["from_seq"], [row["data"] for row in record.data["records"]]) == (3, [3])
    second = resume(world, paths[1])
    assert second.one().cursors == {"t": 4}, "what its first stream, which is open, has got"
    world.write("t", 4)
    assert second.one().cursors == again.frames(2)[1].cursors == {"t": 5}
    world.write("t", 5)
    (conn,) = sharing(world)
    assert conn.shares, "of two streams of a session, each notes what it sends"


def test_a_shared_send_counts_as_a_sign_of_life() -> None:
    """R-SSE-4."""
    world = world_with()
    streams = [open_stream(world, heartbeat_ms=1000) for _ in range(2)]
    for _ in range(4):
        world.advance_ms(700)
        world.write("t", 1)
        assert [stream.heartbeats for stream in streams] == [0, 0]
    assert len(sharing(world)) == 2
    world.advance_ms(1100)
    world.settle()
    for stream in streams:
        stream.pull()
    assert [stream.heartbeats for stream in streams] == [1, 1]
    assert not sharing(world), "a heartbeat is the connection's own"
    world.write("t", 2)
    assert len(sharing(world)) == 2


def test_a_watcher_that_does_not_read_is_left_behind_and_loses_nothing() -> None:
    world = world_with(send_high_water_bytes=3000, send_low_water_bytes=1000)
    slow, quick = open_stream(world), open_stream(world)
    world.ring.network.socket_buffer_bytes = 2000
    for number in range(1, 40):
        world.write("t", "x" * 300 + str(number))
        quick.frames(2)
    world.ring.network.socket_buffer_bytes = 1 << 20
    heard: list[int] = []
    while len(heard) < 39:
        frame = slow.one()
        if frame.event == "record":
            heard += [row["$seq"] for row in frame.data["records"]]
    assert heard == list(range(2, 41))


def test_streams_that_shared_their_sends_end_with_the_goodbye_of_the_server() -> None:
    """R-WATCH-15: with the cursors after the last shared send."""
    world = world_with()
    streams = [open_stream(world) for _ in range(2)]
    world.write("t", 1)
    world.write("t", 2)
    assert len(sharing(world)) == 2
    world.begin_stop()
    for stream in streams:
        goodbye = stream.frames(5)[4]
        assert (goodbye.event, goodbye.cursors) == ("error", {"t": 3})
    world.finish_stop()


def test_a_publisher_that_watches_gets_its_ack_before_the_record() -> None:
    """R-WS-2."""
    world = world_with()
    sockets = [WebSocket(world) for _ in range(3)]
    for socket in sockets:
        socket.subscribe("t", 1)
        assert socket.next()["op"] == "caught_up"
    for number in range(4):
        said = sockets[number % 3].say({"op": "publish", "topic": "t", "records": [{"data": number}]})
        assert [message["op"] for message in said.take(3)] == ["ack", "record", "caught_up"]
        for socket in sockets:
            if socket is not said:
                assert [message["op"] for message in socket.take(2)] == ["record", "caught_up"]
