"""Nothing that has ended waits for the garbage collector: a server that looks at its whole heap stops for seconds.

What lives is taken out of the collector's sight as the server grows, so a cycle among what dies later would stay.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import pytest

from tests.contract.world.http2_bytes import Http2Connection
from tests.contract.world.sim_world import SimWorld
from tests.contract.world.websocket_client import WebSocket
from tests.contract.world.world import Connection, World

STREAM = {"Accept": "text/event-stream"}
POLL = {"from_seq": 999, "wait_ms": 30_000}


def reads_and_writes(world: World) -> None:
    connection = world.connect()
    connection.request("POST", "/v0/topics/a", {"records": [{"data": 1, "tag": "x"}], "idempotency_key": "k"})
    connection.request("GET", "/v0/topics/a")
    connection.request("POST", "/v0/topics/a/diff", {"from_seq": 0})
    connection.request("GET", "/v0/topics")
    connection.request("GET", "/v0/metrics")
    connection.reset()


def refusals(world: World) -> None:
    connection = world.connect()
    connection.request("GET", "/v0/topics/none")
    connection.request("POST", "/v0/topics/a", {"records": 7})
    connection.request("POST", "/v0/topics/a", b"nonsense")
    connection.reset()


def bytes_that_are_no_request(world: World) -> None:
    connection = world.connect()
    connection.send(b"NONSENSE\r\n\r\n")
    world.settle()
    connection.reset()


def a_body_that_breaks_off(world: World) -> None:
    connection = world.connect()
    connection.send(b"POST /v0/topics/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
    world.settle()
    connection.reset()


def reads_of_files(world: World) -> None:
    a_checkpoint(world)
    world.write("a", *["x" * 500] * 40)
    a_checkpoint(world)
    for from_seq in (0, 10, 30):
        world.request("POST", "/v0/topics/a/diff", {"from_seq": from_seq, "limit": 5})


def a_long_poll_that_is_left(world: World) -> None:
    connection = world.ask("POST", "/v0/topics/a/diff", POLL)
    world.settle()
    connection.reset()


def a_long_poll_that_is_woken(world: World) -> None:
    head = world.request("GET", "/v0/topics/a").json["head_seq"]
    connection = world.ask("POST", "/v0/topics/a/diff", {**POLL, "from_seq": head})
    world.settle()
    world.write("a", 5)
    connection.answer()
    connection.reset()


def a_wait_for_heads(world: World) -> None:
    connection = world.ask("POST", "/v0/wait", {"topics": {"a": 9999, "none": None}, "wait_ms": 30_000})
    world.settle()
    connection.reset()


def a_claim_that_waits(world: World) -> None:
    world.put("idle", type="queue")
    connection = world.ask("POST", "/v0/topics/idle/claim", {"node": "n", "wait_ms": 30_000})
    world.settle()
    connection.reset()


def a_watch_stream(world: World) -> None:
    wid = world.request("POST", "/v0/watch", {"topics": {"a": {}}}).json["wid"]
    connection = world.ask("GET", f"/v0/watch/{wid}", headers=STREAM)
    world.settle()
    world.write("a", 5)
    connection.reset()
    world.request("DELETE", f"/v0/watch/{wid}")


def a_work_stream(world: World) -> None:
    connection = world.ask("GET", "/v0/topics/jobs/work?node=w", headers=STREAM)
    world.settle()
    connection.reset()


def a_websocket(world: World) -> None:
    websocket = WebSocket(world)
    websocket.subscribe("a")
    websocket.say({"op": "publish", "topic": "a", "records": [{"data": 1}]})
    websocket.say("nonsense")
    world.settle()
    websocket.connection.reset()


def topics_and_routers_that_are_deleted(world: World) -> None:
    world.put("b", type="queue")
    world.write("b", 1, 2)
    world.request("PUT", "/v0/routers/r", {"source": "b", "dest": "c"})
    world.request("POST", "/v0/topics/b/claim", {"node": "n", "max": 2})
    world.request("DELETE", "/v0/routers/r")
    world.request("PUT", "/v0/routers/r", {"source": "b", "dest": "c"})
    world.request("DELETE", "/v0/topics/b")
    world.request("DELETE", "/v0/topics/c")


def parts_of_producers(world: World) -> None:
    for piece in range(2):
        producer = {"id": "p", "epoch": 1, "part": 0, "piece": piece, "last": piece == 1, "attempt": "x"}
        world.request("POST", "/v0/topics/made", {"records": [{"data": piece}], "producer": producer})
    world.request("DELETE", "/v0/topics/made")


def deletes(world: World) -> None:
    world.write_records("a", [{"data": 1, "tag": "gone"}])
    world.request("DELETE", "/v0/topics/a/records?match=gone")


def a_checkpoint(world: World) -> None:
    world.request("POST", "/v0/checkpoint", {})


KINDS = [
    reads_and_writes, reads_of_files, refusals, a_long_poll_that_is_left, a_long_poll_that_is_woken, a_wait_for_heads,
    a_claim_that_waits, a_watch_stream, a_work_stream, topics_and_routers_that_are_deleted, parts_of_producers,
    deletes, a_checkpoint,
]  # fmt: skip
OF_HTTP_1 = [bytes_that_are_no_request, a_body_that_breaks_off, a_websocket]


def collect_all() -> None:
    """Free the garbage of earlier tests: a coroutine that never began keeps its own for another turn."""
    for _ in range(10):
        if not gc.collect():
            return


def left_by(action: Callable[[], None]) -> Counter[str]:
    """Types of ours among what only the collector could free."""
    gc.disable()
    try:
        action()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        return Counter(type(found).__qualname__ for found in gc.garbage if type(found).__module__.startswith("topics"))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize(
    ("connection_type", "kind"),
    [(Connection, kind) for kind in (*KINDS, *OF_HTTP_1)] + [(Http2Connection, kind) for kind in KINDS],
)
def test_what_is_over_leaves_nothing_to_the_garbage_collector(
    connection_type: type[Connection], kind: Callable[[World], None]
) -> None:
    world = SimWorld(hot_tail_bytes=4096)
    world.connection_type = connection_type
    world.start()
    try:
        world.put("a")
        world.put("jobs", type="queue")
        for _ in range(2):
            kind(world)
            world.settle()
        collect_all()

        def again() -> None:
            for _ in range(3):
                kind(world)
            world.settle()
            world.advance_ms(2_000)

        assert not left_by(again)
    finally:
        with suppress(Exception):
            world.close()


def test_a_recovery_leaves_nothing_to_the_garbage_collector() -> None:
    world = SimWorld()
    world.start()
    for name in ("a", "b"):
        world.put(name)
        world.write(name, 1, 2, 3)
    a_checkpoint(world)
    world.put("q", type="queue", leases_durable=True)
    world.write("q", 1)
    world.request("POST", "/v0/topics/q/claim", {"node": "n"})
    world.request("PUT", "/v0/routers/r", {"source": "a", "dest": "z"})
    world.write("a", 4)
    world.crash()
    collect_all()
    assert not left_by(world.start)
    world.close()
