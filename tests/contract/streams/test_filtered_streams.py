"""Watch streams and WebSockets of the records of some tags or nodes."""

from __future__ import annotations

import pytest

from tests.contract.conftest import MakeWorld
from tests.contract.streams.test_watch import all_short, short
from tests.contract.world.sse_client import EventStream, create, resume, session, watch
from tests.contract.world.websocket_client import WebSocket
from tests.contract.world.world import World, seqs


def tagged(world: World, *tags: str | None, topic: str = "t") -> None:
    world.write_records(topic, [{"data": n, "tag": tag, "node": tag} for n, tag in enumerate(tags, 1)])


@pytest.mark.parametrize("fields", [{"match": "a"}, {"match": "a*"}, {"only_node": ["a", "none"]}])
def test_a_watcher_gets_what_matches_and_nothing_of_the_rest(world: World, fields: dict[str, object]) -> None:
    """R-MATCH-4, R-WATCH-12: others make no frame, and the next one is past them."""
    tagged(world, "b", "a", None)
    stream = watch(world, "t", **fields)
    assert all_short(stream.frames(2)) == [("record", "t", 0, 3, [2]), ("caught-up", "t", 3)]
    tagged(world, "b", None)
    assert stream.rest() == []
    tagged(world, "b", "a")
    assert all_short(stream.frames(2)) == [("record", "t", 5, 7, [7]), ("caught-up", "t", 7)]


def test_each_watcher_has_its_own_filter(world: World) -> None:
    """10.4, R-MATCH-3: those who ask for the same get the same, and no watcher what another asks for."""
    world.put("t")
    asked = [{"match": "a"}, {"match": "a*"}, {}, {"match": "a"}, {"only_node": "ab"}, {"match": "a*", "node": "ab"}]
    streams = [watch(world, "t", **fields) for fields in asked]
    for stream in streams:
        assert short(stream.one()) == ("caught-up", "t", 0)
    for _ in range(2):
        tagged(world, "ab", "b", "a")
        found = [seqs(stream.frames(2)[0].data) for stream in streams]
        head = world.state("t")["head_seq"]
        assert found == [
            [number + head - 3 for number in numbers] for numbers in ([3], [1, 3], [1, 2, 3], [3], [1], [3])
        ]


def test_a_watcher_with_a_filter_hears_of_every_loss(world: World) -> None:
    """R-MATCH-5, R-WATCH-10."""
    world.put("t", cap_records=2)
    tagged(world, "b", "b", "b", "a")
    stream = watch(world, "t", match="a")
    assert all_short(stream.frames(3)) == [
        ("tombstone", "t", "from_seq_too_old", 1, 2), ("record", "t", 0, 4, [4]), ("caught-up", "t", 4),
    ]  # fmt: skip


def test_a_stream_with_a_filter_resumes_by_its_last_id(world: World) -> None:
    """R-WATCH-5, R-MATCH-4: nothing that matches is skipped, and nothing comes twice."""
    tagged(world, "a", "b", "a", "b")
    path = session(world, "t", match="a", limit=1)
    stream = EventStream(world, path)
    first = stream.one()
    assert seqs(first.data) == [1]
    stream.leave()
    tagged(world, "b", "a")
    again = resume(world, path, first.id)
    assert [seqs(frame.data) for frame in again.frames(2)] == [[3], [6]]


def test_a_watcher_passes_a_long_run_of_others(make_world: MakeWorld) -> None:
    """R-MATCH-6: it reads on by itself."""
    world = make_world(max_filter_records=1000)
    for _ in range(2):
        world.write_records("t", [{"data": 1, "tag": "b", "node": "b"}] * 5000)
    tagged(world, "a")
    for fields in ({"match": "a"}, {"match": "a*"}, {"only_node": "a"}):
        assert seqs(watch(world, "t", **fields).frames(2)[0].data) == [10_001]


def test_a_session_with_both_kinds_of_nodes_is_refused(world: World) -> None:
    """R-MATCH-2, 10.2/1."""
    world.put("t")
    assert create(world, "t", node="a", only_node="b").refusal == (400, "invalid_request", None)


@pytest.mark.http1
def test_a_subscription_gets_what_matches(world: World) -> None:
    """11.3, R-MATCH: with the fields of a watch."""
    tagged(world, "b", "a", "ab", None)
    socket = WebSocket(world)
    for fields, found in (({"match": "a*"}, [2, 3]), ({"only_node": "a"}, [2]), ({"match": "a*", "node": "a"}, [3])):
        socket.subscribe("t", **fields)
        record, caught_up = socket.take(2)
        assert (seqs(record), record["to_seq"], caught_up["op"]) == (found, 4, "caught_up")
    tagged(world, "b")
    assert socket.silent
    tagged(world, "ab")
    assert seqs(socket.take(2)[0]) == [6]


@pytest.mark.http1
@pytest.mark.parametrize("fields", ['"match":5', '"match":["tag","Eq"]', '"only_node":1', '"node":"a","only_node":"b"'])
def test_a_filter_of_another_shape_is_no_command(world: World, fields: str) -> None:
    """11.2: a field of the wrong type, or two that exclude each other."""
    world.put("t")
    socket = WebSocket(world).say(f'{{"op":"subscribe","topic":"t",{fields}}}')
    assert socket.next()["code"] == "invalid_json"
