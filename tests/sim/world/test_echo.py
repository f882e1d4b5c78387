"""The real loop's connections on the simulated network: an echo server under split, short, reset and starved streams.

Goal: every byte of a well-behaved client comes back in order, and every connection ends with its descriptor closed,
whatever order completions take. Method: a seed decides sizes, cuts, order and who misbehaves.
"""

import random

import pytest

from tests.sim import SimClient, SimRing
from topics.loop import Connection, Loop


class Echo:
    def __init__(self) -> None:
        self.lost_errors: list[int] = []
        self.open = 0

    def connected(self, conn: Connection) -> None:
        self.open += 1

    def receive(self, batch: list[tuple[Connection, memoryview]]) -> None:
        for conn, view in batch:
            conn.write(bytes(view))

    def end_of_stream(self, conn: Connection) -> None:
        conn.close()

    def drained(self, conn: Connection) -> None:
        pass

    def lost(self, conn: Connection, error: int) -> None:
        self.open -= 1
        self.lost_errors.append(error)


@pytest.mark.parametrize("seed", range(12))
def test_every_byte_comes_back_in_order_and_every_descriptor_is_closed(seed: int) -> None:
    rng = random.Random(seed)
    ring = SimRing(seed, shuffle=True, split=True, receive_buffers=4, receive_buffer_bytes=64)
    for _ in range(5):
        ring.faults.fail("more", 1, nth=rng.randint(1, 100))
    loop = Loop(ring, ring.clock)
    echo = Echo()
    listener = loop.listen("127.0.0.1", 0, echo)
    port = listener.address[1]
    clients = [ring.network.client(port) for _ in range(6)]
    texts = [rng.randbytes(rng.randint(1, 3000)) for _ in clients]
    got = [bytearray() for _ in clients]
    rude: dict[int, SimClient] = {number: ring.network.client(port) for number in range(3)}
    for client, text in zip(clients, texts, strict=True):
        client.send(text)
    for _ in range(10_000):
        loop.run_pass(1_000_000)
        for number, (client, text) in enumerate(zip(clients, texts, strict=True)):
            got[number] += client.receive(rng.randint(1, 500))
            if len(got[number]) == len(text) and not client.endpoint.write_closed:
                client.finish_sending()
        for number in list(rude):
            rude[number].send(b"!" * 10)
            if rng.random() < 0.1:
                rude.pop(number).reset()
        if not rude and all(client.ended for client in clients) and not echo.open:
            break
    assert [bytes(each) for each in got] == texts
    assert echo.open == 0
    loop.close()
    assert ring.open_fds == []


def test_a_client_that_does_not_read_stops_the_server_reading_nothing_else() -> None:
    ring = SimRing()
    loop = Loop(ring, ring.clock)
    listener = loop.listen("127.0.0.1", 0, Echo())
    slow, quick = (ring.network.client(listener.address[1]) for _ in range(2))
    slow.send(bytes(3 * ring.network.socket_buffer_bytes))
    quick.send(b"quick")
    for _ in range(200):
        loop.run_pass(1_000_000)
    assert quick.receive() == b"quick"
    assert len(slow.endpoint.incoming) == ring.network.socket_buffer_bytes, "as much as the socket holds"
    loop.close()


@pytest.mark.parametrize("seed", range(12))
def test_an_aborted_connection_is_closed_whichever_of_its_operations_completes_last(seed: int) -> None:
    ring = SimRing(seed, shuffle=True)
    loop = Loop(ring, ring.clock)
    echo = Echo()
    listener = loop.listen("127.0.0.1", 0, echo)
    clients = [ring.network.client(listener.address[1]) for _ in range(8)]
    for client in clients[:4]:
        client.send(bytes(3 * ring.network.socket_buffer_bytes))  # never taken back: a send is in flight, too
    loop.run_until(lambda: len(listener.connections) == len(clients))
    for _ in range(100):
        loop.run_pass(100_000)
    for conn in listener.connections:
        conn.abort()
    for _ in range(100):
        loop.run_pass(100_000)
    assert (echo.open, listener.connections) == (0, [])
    loop.close()
    assert ring.open_fds == []
