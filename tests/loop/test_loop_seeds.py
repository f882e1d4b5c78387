"""Seeded traffic in the simulator.

Goal: no byte lost, doubled or reordered, and every operation and descriptor ended, whatever the kernel's order.
Method: an echo server that pauses at random, three clients, scarce receive buffers, sends and receives in pieces; then
every end closes or aborts by the seed's choice.
"""

from __future__ import annotations

import random

import pytest

from tests.amount import seeds
from tests.loop.handlers import Recorder
from tests.loop.rings.test_loop_on_rings import join, until
from tests.sim import SimRing
from topics.loop import Connection, Loop, StreamLimits

LIMITS = StreamLimits(send_high_water_bytes=500, send_low_water_bytes=100)


@pytest.mark.parametrize("seed", seeds(40))
def test_every_stream_stays_whole_and_everything_ends(seed: int) -> None:
    rng = random.Random(seed)
    ring = SimRing(
        seed, shuffle=True, split=True, receive_buffers=rng.choice([2, 4, 16]), receive_buffer_bytes=64, fd_limit=64
    )
    loop = Loop(ring, ring.clock)
    server = Recorder()
    clients = [Recorder() for _ in range(3)]
    sent = [b""] * len(clients)

    def echo(conn: Connection, data: bytes) -> None:
        conn.write(data)
        if conn.over_high_water:
            conn.pause_reading()
        elif rng.random() < 0.1:
            conn.pause_reading()
            loop.call_later(rng.randrange(5000), conn.resume_reading)

    server.on_receive = echo
    server.drained = lambda conn: conn.resume_reading()  # type: ignore[method-assign]
    listener = loop.listen("127.0.0.1", 0, server, limits=LIMITS)
    for client in clients:
        join(loop, listener, server, client)
    for _ in range(30):
        number = rng.randrange(len(clients))
        data = rng.randbytes(rng.randrange(1, 400))
        clients[number].conn.write(data)
        sent[number] += data
        loop.run_pass(rng.choice([0, 1000]))
    until(loop, lambda: all(len(client.data()) >= len(data) for client, data in zip(clients, sent, strict=True)), 5000)
    assert [client.data() for client in clients] == sent
    for conn in [*server.conns, *(client.conn for client in clients)]:
        rng.choice([conn.close, conn.abort])()
    until(loop, lambda: all(client.has("lost") for client in clients) and not listener.connections, 5000)
    listener.stop_accepting()
    until(loop, lambda: loop._operations.in_flight == 0)
    assert ring.open_fds == []
