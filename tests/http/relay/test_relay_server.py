"""Requests that a core answers for another one: each request once, in order, within the time of a pass."""

from __future__ import annotations

import random

import pytest

from tests.http.relay.linked_cores import LinkedCores
from tests.http.relay.test_relay_client import post
from topics.errors import RequestError
from topics.http.plan.plan import Plan
from topics.http.relay.relay_client import ASK, CANCEL
from topics.http.relay.relay_message import REQUESTS, DamagedRelayError, RelayDecoder, RelayRow, encoded


@pytest.fixture
def cores() -> LinkedCores:
    """Core 1 has a socket, with one request that waits and has number 1."""
    cores = LinkedCores()
    cores.http1().send(post("far/claim"))
    cores.work()
    return cores


def head_of(cores: LinkedCores) -> bytes:
    """The head of a request that the other core has sent."""
    cores.http1().send(post("far/claim", b"body"))
    cores.flush()
    (message,) = RelayDecoder(REQUESTS).feed(cores.ends[0][0].take())
    (head,) = message.heads
    return head


def receive(cores: LinkedCores, *rows: RelayRow) -> None:
    cores.ends[0][2].receive(memoryview(b"".join(encoded(REQUESTS, 0, rows))))


def test_requests_beyond_the_time_of_a_pass_wait_for_the_next_and_keep_their_order() -> None:
    cores = LinkedCores(pass_requests_us=20)
    for number in range(6):
        cores.http1().send(post("far/claim", b"%d" % number))
    cores.ask()
    begun = [len(cores.parked)]
    for _ in range(6):
        cores.end_pass()
        begun.append(len(cores.parked))
    assert 0 < begun[0] < begun[1]
    assert begun[-1] == 6
    assert [call.body for call in cores.parked] == [b"%d" % number for number in range(6)]


def test_none_is_begun_while_the_other_core_takes_no_answers(cores: LinkedCores) -> None:
    there = cores.ends[0][1]
    there.over_high_water = True
    cores.http1().send(post("far/claim"))
    cores.ask()
    assert (len(cores.parked), there.is_paused) == (1, True)
    there.over_high_water = False
    cores.ends[0][2].drained()
    assert (len(cores.parked), there.is_paused) == (2, False)


def test_the_server_s_state_refuses_there(cores: LinkedCores) -> None:
    def refuse(_plan: Plan) -> RequestError:
        return RequestError("not_ready", "recovering")

    cores.owner.gate = refuse
    peer = cores.http1()
    peer.send(post("far"))
    cores.work()
    (answer,) = peer.wire.take()
    assert (answer.code, answer.headers["retry-after"]) == ("not_ready", "1")


def test_a_core_whose_socket_ends_leaves_no_request_in_flight(cores: LinkedCores) -> None:
    cores.http1().send(post("far/diff"))
    cores.work()
    assert cores.owner.in_flight.requests == 2
    cores.die()
    assert cores.owner.in_flight.requests == 0
    assert cores.echo.abandoned == cores.parked[1:]
    cores.parked[0].reply(b"{}")
    cores.flush()
    assert not cores.ends[0][1].sent


def test_an_answer_counts_where_it_was_made(cores: LinkedCores) -> None:
    peer = cores.http1()
    peer.send(post("far"))
    cores.work()
    assert [answer.status for answer in peer.wire.take()] == [200]
    counted = {route.pattern: answers.statuses for route, answers in cores.owner.answered.by_route.items() if route}
    assert counted == {"/v0/topics/:topic": {200: 1}}


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([(1, ASK)], id="the same again"),
        pytest.param([(2, ASK), (4, ASK)], id="one is missing"),
        pytest.param([(3, ASK), (2, ASK)], id="another order"),
        pytest.param([(2, ASK), (2, CANCEL)], id="the end of one that comes with it"),
        pytest.param([(2, ASK), (3, 3)], id="neither a request nor an end"),
    ],
)
def test_a_request_that_cannot_follow_ends_the_pair_and_nothing_of_its_message_is_begun(
    cores: LinkedCores, rows: list[tuple[int, int]]
) -> None:
    head = head_of(cores)
    with pytest.raises(DamagedRelayError):
        receive(cores, *(RelayRow(number, code, head, b"body") for number, code in rows))
    assert len(cores.parked) == 1


@pytest.mark.parametrize("change", ["none", "garbage", "cut", "other path", "stream", "many"])
def test_a_head_that_is_none_ends_the_pair_and_nothing_of_its_message_is_begun(cores: LinkedCores, change: str) -> None:
    head = head_of(cores)
    chance = random.Random(1)
    heads = {
        "none": [b""],
        "garbage": [chance.randbytes(30) for _ in range(200)],
        "cut": [head[:end] for end in range(1, len(head))],
        "other path": [head.replace(b"/v0/topics/far/claim", b"/v0/topics?x=xxxxxxx")],
        "stream": [head.replace(b"/v0/topics/far/claim", b"/stream?xxxxxxxxxxxx")],
        "many": [head + b"\0"],
    }[change]
    for each in heads:
        with pytest.raises(DamagedRelayError):
            receive(cores, RelayRow(2, ASK, head, b""), RelayRow(3, ASK, each, b""))
        # the decoder is whole: the message was one, and its contents were not
    assert len(cores.parked) == 1
