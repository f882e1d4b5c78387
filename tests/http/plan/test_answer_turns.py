"""Goal: answers that one event decides take turns, in every way that a write comes."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from tests.contract.world.sim_world import SimWorld
from tests.contract.world.world import Connection
from tests.sim.world.ring_core import LATENCY_NS
from topics.engine.values.results import AppendResult
from topics.engine.write.plain_appends import PlainAppended
from topics.errors import TopicsError
from topics.http.lane import group_answers
from topics.http.lane.group_answers import Group, GroupAnswers, Groups
from topics.http.plan import answer_turns
from topics.http.relay.relay_server import RelayServer
from topics.loop.loop import Loop
from topics.server.app import Server

FEW = 4
_BODY = b'{"records":[{"data":1}]}'


@pytest.fixture(autouse=True)
def _few_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_turns, "ANSWERS_A_PASS", FEW)


def write(name: str) -> bytes:
    head = b"POST /v0/topics/%b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" % name.encode()
    return head + b"Content-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY)


def failing(world: SimWorld, requests: list[bytes]) -> tuple[Server, list[Connection]]:
    """Send each request on a connection of its own; return once the first one has failed."""
    server = world.server
    assert server is not None
    conns = [world.connect() for _ in requests]
    world.settle()
    world.fail_storage("write", errno.ENOSPC, path_part="wal")
    for conn, request in zip(conns, requests, strict=True):
        conn.send(request)
    world.wait_until(lambda: server.service.refused_total > 0, 1000)
    return server, conns


def refused_a_pass(world: SimWorld, server: Server, all_of_them: int) -> list[int]:
    """Run passes until so many requests were refused; return how many each of them refused."""
    loop, counts = world.loop, [server.service.refused_total]
    assert loop is not None
    while sum(counts) < all_of_them:
        assert server.service.in_flight.requests == all_of_them - sum(counts), "a stop waits for the others"
        before = server.service.refused_total
        loop.run_pass(0)
        counts.append(server.service.refused_total - before)
    return counts


def with_topic(in_lane: bool) -> SimWorld:
    """A server that has the topic t."""
    world = SimWorld(0 if in_lane else 1, all_in_lane=in_lane)
    world.start()
    world.connect().send(write("t")).answer("POST")
    return world


@pytest.mark.parametrize("in_lane", [False, True])
@pytest.mark.parametrize("kind", ["one topic", "a topic each", "creations"])
def test_so_many_writes_that_fail_together_are_answered_in_a_pass(in_lane: bool, kind: str) -> None:
    """10,000 of them were answered in one pass."""
    world = SimWorld(0 if in_lane else 1, all_in_lane=in_lane)
    world.start()
    names = ["t" if kind == "one topic" else f"t{number}" for number in range(30)]
    if kind != "creations":
        for name in names:
            world.connect().send(write(name)).answer("POST")
    server, conns = failing(world, [write(name) for name in names])
    counts = refused_a_pass(world, server, len(names))
    assert max(counts) <= 2 * FEW, "at its beginning, and again at its end"
    world.settle()
    assert [conn.answer("POST").status for conn in conns] == [500] * len(names)
    assert server.service.in_flight.requests == 0
    world.heal_storage()
    world.advance_ms(5000)
    assert conns[0].send(write(names[0])).answer("POST").status in {200, 201}


@pytest.mark.parametrize("in_lane", [False, True])
def test_a_connection_whose_failure_waits_for_its_turn_gets_its_answers_in_order(in_lane: bool) -> None:
    world = with_topic(in_lane)
    _server, conns = failing(world, [write("t") for _ in range(20)])
    world.heal_storage()
    for conn in conns:
        conn.send(b"GET /v0/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    world.advance_ms(100)
    for conn in conns:
        assert conn.answer("POST").status == 500
        assert conn.answer("GET").status == 200


@pytest.mark.parametrize("in_lane", [False, True])
def test_a_client_that_leaves_before_its_turn_delays_nobody(in_lane: bool) -> None:
    world = with_topic(in_lane)
    server, conns = failing(world, [write("t") for _ in range(20)])
    for conn in conns[::2]:
        conn.reset()
    world.advance_ms(100)
    assert [conn.answer("POST").status for conn in conns[1::2]] == [500] * 10
    assert server.service.in_flight.requests == 0


@pytest.mark.parametrize("in_lane", [False, True])
def test_a_stop_waits_for_those_whose_turn_has_not_come(in_lane: bool) -> None:
    world = with_topic(in_lane)
    _server, conns = failing(world, [write("t") for _ in range(20)])
    world.heal_storage()
    world.begin_stop()
    answers = [conn.answer("POST") for conn in conns]
    assert world.finish_stop() == 0
    assert [answer.status for answer in answers] == [500] * 20
    assert answers[-1].header("connection") == "close"


@pytest.mark.parametrize("fails", [False, True])
def test_writes_of_one_pass_to_many_topics_are_looked_at_some_a_pass(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """They are one operation. That of 10,000 topics took 50 ms in the pass that failed it, and more in a stop."""
    looks = [0]
    one_by_one = Groups.one_by_one

    def looked_at(groups: Groups, appended: PlainAppended) -> Iterator[tuple[Group, AppendResult | TopicsError]]:
        for each in one_by_one(groups, appended):
            looks[-1] += 1
            yield each

    monkeypatch.setattr(Groups, "one_by_one", looked_at)
    world = SimWorld(all_in_lane=True, commit_in_place_max_us=0)
    world.start()
    names = [f"t{number}" for number in range(30)]
    for name in names:
        world.connect().send(write(name)).answer("POST")
    world.advance_ms(1000)
    conns = [world.connect() for _ in names]
    world.settle()
    if fails:
        world.fail_storage("write", errno.ENOSPC, path_part="wal")
    for conn, name in zip(conns, names, strict=True):
        conn.send(write(name))
    if not fails:
        monkeypatch.setitem(LATENCY_NS, "write", 100_000_000)
        world.advance_ms(10)
        world.begin_stop()
    loop, server = world.loop, world.server
    assert loop is not None
    assert server is not None
    while sum(looks) < 30 or server.service.in_flight.requests:
        looks.append(0)
        loop.run_pass(1_000_000)
        assert server.service.in_flight.requests >= 30 - sum(looks), "a stop waits for the others"
    assert 0 < max(looks) <= 2 * FEW
    world.settle()
    assert [conn.answer("POST").status for conn in conns] == [500 if fails else 200] * 30


def committing(world: SimWorld, requests: list[bytes], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Send each request on a connection of its own while a commit takes long. Return the answers by pass."""
    server, loop = world.server, world.loop
    assert server is not None
    assert loop is not None
    conns = [world.connect() for _ in requests]
    world.settle()
    monkeypatch.setitem(LATENCY_NS, "write", 100_000_000)
    for conn, request in zip(conns, requests, strict=True):
        conn.send(request)
    counts = [0]
    world.advance_ms(10)
    while sum(counts) < len(requests):
        before = server.service.in_flight.requests
        loop.run_pass(1_000_000)
        counts.append(before - server.service.in_flight.requests)
    world.settle()
    assert [conn.answer("POST").status for conn in conns] == [200] * len(requests)
    return counts


def test_so_many_writes_that_one_commit_ends_are_answered_in_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """4,000 writes to one topic that waited for one commit were answered in a pass of 33 ms."""
    world = SimWorld(1, http_lane="off", commit_in_place_max_us=0)
    world.start()
    world.connect().send(write("t")).answer("POST")
    world.advance_ms(1000)
    assert max(committing(world, [write("t")] * 40, monkeypatch)) <= 2 * FEW


def test_so_many_groups_of_the_lane_are_answered_in_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each write with an idempotency key is a group: 4,000 of one commit took 34 ms."""
    monkeypatch.setattr(group_answers, "GROUPS_A_PASS", FEW)
    world = SimWorld(all_in_lane=True, commit_in_place_max_us=0)
    world.start()
    keyed = [write("t").replace(b"Host:", b"Idempotency-Key: k%d\r\nHost:" % number) for number in range(50)]
    for request in keyed[40:]:
        world.connect().send(request).answer("POST")
    world.advance_ms(1000)
    server = world.server
    assert server is not None
    assert server.lane is not None
    before = server.lane.taken
    assert max(committing(world, keyed[:40], monkeypatch)) <= 2 * FEW
    assert server.lane.taken - before > 20


def answers_of(server: Server, loop: Loop, relayed: bool) -> GroupAnswers:
    """The answers of the lane; relayed: those to the lane of another core, which is this one."""
    assert server.lane is not None
    if not relayed:
        return server.lane.answers
    (found,) = [conn.state for conn in loop._traffic.connections() if isinstance(conn.state, RelayServer)]
    assert found._writes is not None
    return found._writes.answers


@pytest.mark.parametrize("relayed", [False, True])
def test_so_many_requests_of_the_lane_are_answered_in_a_pass(monkeypatch: pytest.MonkeyPatch, relayed: bool) -> None:
    """65,536 pipelined writes of one commit took 28 ms of a pass of 46."""
    world = SimWorld(all_in_lane=True, commit_in_place_max_us=0, relayed=relayed)
    world.start()
    names = [f"t{number}" for number in range(10)]
    conns = [[world.connect() for _ in names] for _ in range(4)]
    for name, conn in zip(names, conns[0], strict=True):
        conn.send(write(name)).answer("POST")
    world.advance_ms(1000)
    server, loop = world.server, world.loop
    assert server is not None
    assert loop is not None
    answers = answers_of(server, loop, relayed)
    done, taken = answers._answer, list[list[int]]()

    def answer(finished: list[tuple[Group, AppendResult]], many: list[tuple[Groups, PlainAppended]]) -> None:
        taken[-1] += [group.taken for group, _ in finished] + [sum(appended.groups.taken) for _, appended in many]
        done(finished, many)
        loop.again()  # as an answer to a connection that has left the table does

    monkeypatch.setattr(group_answers, "REQUESTS_A_PASS", FEW)
    monkeypatch.setattr(answers, "_answer", answer)
    monkeypatch.setitem(LATENCY_NS, "write", 100_000_000)
    for scan in conns:  # The first one is in flight while the others come, which are the next batch.
        for name, conn in zip(names, scan, strict=True):
            conn.send(write(name))
        world.advance_ms(5)
    while server.service.in_flight.requests:
        taken.append([])
        loop.run_pass(1_000_000)
    world.settle()
    assert [conn.answer("POST").status for scan in conns for conn in scan] == [200] * 40
    assert sum(map(sum, taken)) > 30, "most came through the lane"
    assert all(sum(sizes[:-1]) <= FEW for sizes in taken), taken
