"""Connections between the loops of several cores, on one simulated network.

Goal: a client gets one answer to each request, in order, from the core that owns it, wherever it was accepted and
whatever came meanwhile. If a core dies, no request is executed twice, and a connection that was there ends.
Method: a seed decides who accepts, the order of completions, and how streams are cut; a core is killed after each of
its effects in turn.
"""

from __future__ import annotations

import pytest

from tests.amount import seeds
from tests.loop.handover.cores_of_lines import Client, Cores, mailbox
from topics.loop.doors.departures import HAND_OVERS_MAX


def at_home(world: Cores, count: int = 6) -> list[Client]:
    """Clients that ask one core each, several times."""
    rng = world.rng
    cores = len(world.loops)
    return [world.client([number % cores] * rng.randint(1, 4), finishes=rng.random() < 0.3) for number in range(count)]


@pytest.mark.parametrize("seed", seeds(25))
@pytest.mark.parametrize("cores", [2, 3])
def test_every_client_is_answered_by_the_core_that_it_asks_wherever_it_was_accepted(seed: int, cores: int) -> None:
    world = Cores(seed, cores)
    clients = at_home(world)
    world.run(clients)
    world.check(clients)
    assert all(answer.startswith(b"ok") for client in clients for answer in client.answers)
    given = sum(loop._traffic.departures.given for loop in world.loops)
    assert given == sum(box.taken for box in world.mailboxes)
    assert given == sum(sum(client.socket.address in seen for seen in world.seen) - 1 for client in clients)
    world.close()


@pytest.mark.parametrize("seed", seeds(15))
def test_a_client_that_changes_between_cores_is_answered_in_order_and_travels_once(seed: int) -> None:
    world = Cores(seed)
    clients = [world.client([world.rng.randrange(2) for _ in range(6)]) for _ in range(5)]
    world.run(clients)
    world.check(clients)
    for client in clients:
        assert sum(client.socket.address in seen for seen in world.seen) <= 1 + HAND_OVERS_MAX
    world.close()


@pytest.mark.parametrize("killed", [0, 1])
@pytest.mark.parametrize("seed", seeds(12))
def test_a_core_may_die_after_any_of_its_effects(seed: int, killed: int) -> None:
    for effect in range(1, 1000):
        world = Cores(seed)
        clients = at_home(world, 5)
        world.rings[killed].stop_at(effect)
        world.run(clients, kill=killed)
        world.check(clients)
        if not world.killed:
            assert effect > 1, "there was a run to cut short"
            return
        world.killed.clear()
        later = at_home(world, 2)
        world.run(later)
        world.check(later)
        world.close()
    raise AssertionError("it never ran to its end")


@pytest.mark.parametrize("seed", seeds(40))
def test_clients_of_a_core_that_has_no_mailbox_are_answered_that_it_cannot_be(seed: int) -> None:
    world = Cores(seed)
    world.mailboxes[1].stop_accepting()
    while mailbox(1) in world.rings[1].network.mailboxes:
        world.loops[1].run_pass(0)
    clients = at_home(world)
    world.run(clients)
    world.check(clients)
    assert {answer[:4] for client in clients for answer in client.answers} <= {b"ok 0", b"ok 1", b"no 1", b"no 0"}
    assert world.mailboxes[1].taken == 0
    world.close()


@pytest.mark.parametrize("seed", seeds(40))
def test_a_core_without_descriptors_loses_connections_and_executes_nothing_of_them(seed: int) -> None:
    world = Cores(seed)
    clients = [world.client([1]) for _ in range(8)]
    while not all(any(client.socket.address in seen for seen in world.seen) for client in clients):
        world.rng.choice(world.loops).run_pass(0)
    world.rings[1].fd_limit = 3
    world.killed.add(1)  # a connection that it had no place for ends, as if it had died
    world.run(clients)
    world.check(clients)
    lost = [client for client in clients if client.socket.ended]
    assert world.mailboxes[1].lost == len([c for c in lost if c.socket.address not in world.seen[1]])
    for client in lost:
        assert not any(executed[client.lines[0]] for executed in world.executed)
    world.close()
