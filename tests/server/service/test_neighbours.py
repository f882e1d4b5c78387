"""Servers that are the cores of one: connections that are handed over.

Goal: a client that asks for one topic is answered wherever it is accepted, and every record that it writes is there
once, also if a core is killed amid a hand-over, because the client repeats a write with its key.
Method: clients write to one topic each, and send requests in pieces. A core is killed after one of its effects, and
started again.
"""

from __future__ import annotations

from functools import partial

import pytest

from tests.amount import seeds, stride
from tests.server.service.two_cores import TwoCores, all_written, peers, request, write

# The coroutines of a process that was killed never end, and say so when they are collected.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.mark.parametrize("seed", seeds(12))
def test_clients_of_one_topic_are_at_home_after_their_first_request(seed: int) -> None:
    world = TwoCores(seed)
    clients = world.clients(6)
    world.run(lambda: all_written(clients))
    for client in clients:
        client.check()
        assert (client.connections, client.refusals) == (1, 0)
    taken = [server.mailbox.taken for server in world.servers if server.mailbox is not None]
    assert sum(taken) <= len(clients)


@pytest.mark.parametrize("accepts", [0, 1])
def test_a_request_is_answered_by_the_core_that_has_its_topic_and_later_ones_without_a_journey(accepts: int) -> None:
    world = TwoCores(3)
    tcp = world.connect(accepts)
    topic, own = world.topic_of(1 - accepts, "far"), world.topic_of(accepts, "near")
    mailbox = world.servers[1 - accepts].mailbox
    assert mailbox is not None
    for number in range(3):
        assert world.ask(tcp, write(topic, number)).status == (200 if number else 201)
        assert mailbox.taken == 1
    assert not peers(world.servers[accepts])
    assert tcp.address in peers(world.servers[1 - accepts]), "as if it had been accepted there"
    assert world.ask(tcp, write(own, 0)).status == 201, "it travels once, so this one is relayed"
    assert world.ask(tcp, write(topic, 3)).status == 200
    assert world.relayed == [accepts, 1 - accepts]


def test_a_request_that_spans_no_topic_is_answered_where_it_arrives() -> None:
    world = TwoCores(4)
    for core in range(2):
        tcp = world.connect(core)
        assert world.ask(tcp, request("GET", "/v0/health", {})).status == 200
        assert tcp.address in peers(world.servers[core])


def test_one_whose_core_has_stopped_is_refused_and_asks_again() -> None:
    world = TwoCores(5)
    world.servers[1].stop()
    world.run(lambda: world.codes == [0])
    tcp = world.connect(0)
    refusal = world.ask(tcp, write(world.topic_of(1, "far"), 0))
    assert refusal.code in ("not_ready", "shutting_down"), "its process may still have its sockets"
    assert refusal.headers["retry-after"] == "1"
    assert world.ask(tcp, write(world.topic_of(0, "near"), 0)).status == 201


@pytest.mark.parametrize("dies", [0, 1])
@pytest.mark.parametrize("seed", seeds(8))
def test_a_core_may_be_killed_amid_hand_overs_and_every_record_is_there_once(seed: int, dies: int) -> None:
    for effects in range(1, 1000, stride(1)):
        world = TwoCores(seed)
        clients = world.clients(4)
        ring = world.rings[dies]
        ring.stop_at(ring.effects + effects)
        world.run(partial(all_written, clients), dies)
        world.rings[dies].stop_at(0)
        world.run(partial(getattr, world, "is_ready"))
        for client in clients:
            client.check()
        if not world.killed:
            assert effects > 1, "there was a run to cut short"
            return
    raise AssertionError("it never ran to its end")
