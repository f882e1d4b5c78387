"""One suite over every Ring: what topics/loop/ring.py promises, asked of the ring itself.

A test module subclasses `RingConformance` and gives a fixture `make_world`: a function (keyword arguments
`receive_buffers`, `receive_buffer_bytes`) that returns a `World`: a fresh ring and its other side (clients, limits).
`tests/loop/rings/kernel_world.py` has the world of a real kernel; the simulator brings its own. The world closes its
ring.

    class TestUringRing(RingConformance):
        @pytest.fixture
        def make_world(self, tmp_path): ...
"""

from __future__ import annotations

import errno
import gc
import os
import random
import select
import stat
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

import pytest

from topics.loop.ring import F_BUFFER, F_MORE, Ring

STEP_NS = 10_000_000
STEPS = 3000
"""They are half a minute, because a sync of a busy disk takes seconds."""
RECEIVE, ACCEPT, SEND, CANCEL, FILE, SYNC = 0x11, 0x22, 0x33 << 56, 0x44, 2**64 - 2, 2**63 + 5
"""user_data of all sizes: the whole 64 bits come back."""


class Client(Protocol):
    """A peer of the ring's listener, that uses no ring. Nothing here waits."""

    address: tuple[str, int]

    def send(self, data: bytes) -> int:
        """Send as many bytes as fit now (0: none); raises OSError (EPIPE, ECONNRESET) when the connection is gone."""

    def receive(self) -> bytes:
        """The bytes there are now, b"" for none; sets `ended` at the end of the stream or a reset."""

    ended: bool

    def shutdown_send(self) -> None: ...

    def close(self) -> None: ...

    def reset(self) -> None:
        """Closes with an RST."""


class World(Protocol):
    ring: Ring
    directory: str
    """An empty directory on the ring's disk."""

    def client(self, address: tuple[str, int]) -> Client:
        """Connects to a listener of the ring (into its backlog)."""

    def datagram_socket(self) -> tuple[str, Callable[[], list[bytes]]]:
        """A new socket for datagrams: its address, and what takes those that have come."""

    def descriptors(self) -> list[int]:
        """The numbers of all that are open in the ring's process."""

    def file_limit(self, size: int) -> AbstractContextManager[None]:
        """Meanwhile no file takes a byte at or beyond `size`: a write across it is short, one beyond it -EFBIG."""

    def no_descriptors(self) -> AbstractContextManager[None]:
        """Meanwhile no new descriptor can be had: EMFILE."""

    def close(self) -> None: ...


MakeWorld = Callable[..., World]


class Driver:
    """Steps a ring and keeps its completions by user_data."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self.done: dict[int, list[tuple[int, int]]] = {}

    def step(self, timeout_ns: int | None = STEP_NS) -> None:
        self.ring.submit_and_wait(timeout_ns)
        for user_data, res, flags in zip(*self.ring.reap(), strict=True):
            self.done.setdefault(user_data, []).append((res, flags))

    def until(self, condition: Callable[[], object]) -> None:
        for _ in range(STEPS):
            if condition():
                return
            self.step()
        pytest.fail(f"nothing more came; completions so far: {self.done}")

    def res(self, user_data: int) -> int:
        """The result of a single-shot operation; it is forgotten, so that its user_data may be used again."""
        self.until(lambda: user_data in self.done)
        ((res, flags),) = self.done.pop(user_data)
        assert not flags & F_MORE
        return res

    def take(self, user_data: int) -> tuple[int, int]:
        """The next completion (res, flags) of a multishot."""
        self.until(lambda: self.done.get(user_data))
        return self.done[user_data].pop(0)

    def open(self, path: str, flags: int = os.O_RDWR | os.O_CREAT) -> int:
        self.ring.queue_open(FILE, path, flags, 0o600)
        return self.res(FILE)

    def read(self, fd: int, size: int, offset: int = 0) -> bytes:
        buffer = bytearray(size)
        self.ring.queue_read(FILE, fd, buffer, offset)
        count = self.res(FILE)
        assert count >= 0, errno.errorcode[-count]
        return bytes(buffer[:count])

    def receive_all(self, user_data: int, fd: int, size: int) -> bytes:
        """`size` bytes of a stream, re-arming a receive that ended and recycling each buffer at once."""
        data = bytearray()
        self.ring.queue_recv(user_data, fd)
        armed = True
        while len(data) < size:
            res, flags = self.take(user_data)
            assert res > 0 or res == -errno.ENOBUFS, res
            if flags & F_BUFFER:
                data += self.ring.received(flags, res)
                self.ring.recycle([flags])
            if not flags & F_MORE:
                armed = len(data) < size
                if armed:
                    self.ring.queue_recv(user_data, fd)
        if armed:
            self.ring.queue_cancel(CANCEL, user_data)
            self.res(CANCEL)
            self.until(lambda: self.done.get(user_data))
            self.done.pop(user_data)
        return bytes(data)


class Pair:
    """A connection between the ring (descriptor `fd`) and a client."""

    def __init__(self, world: World) -> None:
        self.ring = world.ring
        self.driver = Driver(self.ring)
        self.listener, self.address = self.ring.listen("127.0.0.1", 0, 64)
        self.ring.queue_accept(ACCEPT, self.listener)
        self.world = world
        self.fd, self.client = self.another()

    def another(self) -> tuple[int, Client]:
        client = self.world.client(self.address)
        fd, flags = self.driver.take(ACCEPT)
        assert fd >= 0
        assert flags & F_MORE
        return fd, client

    def client_receives(self, size: int, client: Client | None = None) -> bytes:
        client = client or self.client
        data = bytearray()
        for _ in range(STEPS):
            data += client.receive()
            if len(data) >= size or client.ended:
                return bytes(data)
            self.driver.step(STEP_NS // 10)
        pytest.fail(f"the client got {len(data)} of {size} bytes")


class Traffic:
    """Random traffic between the ring and its clients, and the bytes each side should see."""

    def __init__(self, ring: Ring, ends: list[tuple[int, Client]], rng: random.Random) -> None:
        self.ring, self.ends, self.rng = ring, ends, rng
        self.armed = dict.fromkeys(range(len(ends)), False)
        self.lent: list[int] = []
        self.to_client = [bytearray() for _ in ends]
        self.at_client = [bytearray() for _ in ends]
        self.to_ring = [bytearray() for _ in ends]
        self.at_ring = [bytearray() for _ in ends]
        self.sending: dict[int, bytes] = {}
        self.cancels = 0

    def run(self, steps: int) -> None:
        moves = (self.client_sends, self.client_receives, self.ring_sends, self.arm, self.cancel, self.give_back)
        for _ in range(steps):
            self.rng.choice(moves)(self.rng.randrange(len(self.ends)))
            if self.rng.random() < 0.5:
                self.step(0)
        for _ in range(STEPS):
            if not self.sending and self.at_ring == self.to_ring and self.at_client == self.to_client:
                return
            self.give_back(0)
            for number in range(len(self.ends)):
                self.arm(number)
                self.client_receives(number)
            self.step(STEP_NS // 10)
        assert (self.at_ring, self.at_client, self.sending) == (self.to_ring, self.to_client, {})

    def client_sends(self, number: int) -> None:
        data = self.rng.randbytes(self.rng.randrange(1, 300))
        self.to_ring[number] += data[: self.ends[number][1].send(data)]

    def client_receives(self, number: int) -> None:
        self.at_client[number] += self.ends[number][1].receive()

    def ring_sends(self, number: int) -> None:
        if number not in self.sending:
            data = self.rng.randbytes(self.rng.choice((10, 100, 5000)))
            self.to_client[number] += data
            self.sending[number] = data
            self.ring.queue_sends([(SEND + number, self.ends[number][0], data)])

    def arm(self, number: int) -> None:
        if not self.armed[number]:
            self.armed[number] = True
            self.ring.queue_recv(1000 + number, self.ends[number][0])

    def cancel(self, number: int) -> None:
        self.cancels += 1
        self.ring.queue_cancel(100_000 + self.cancels, 1000 + number)

    def give_back(self, _: int) -> None:
        self.ring.recycle(self.lent)
        self.lent = []

    def step(self, timeout_ns: int) -> None:
        if self.rng.random() < 0.5:
            self.ring.submit_and_wait(timeout_ns)
        else:
            single = self.ring.wait_single(timeout_ns)
            if single is not None and self.rng.random() < 0.5:
                self.at_ring[single[0] - 1000] += single[1]
                return
        for user_data, res, flags in zip(*self.ring.reap(), strict=True):
            if user_data >= SEND:
                number = user_data - SEND
                assert 0 < res <= len(self.sending[number])
                rest = self.sending.pop(number)[res:]
                if rest:
                    self.sending[number] = rest
                    self.ring.queue_sends([(user_data, self.ends[number][0], rest)])
            elif user_data >= 100_000:
                assert res in (0, -errno.ENOENT, -errno.EALREADY)
            else:
                number = user_data - 1000
                assert res > 0 or res in (-errno.ENOBUFS, -errno.ECANCELED)
                if flags & F_BUFFER:
                    self.at_ring[number] += self.ring.received(flags, res)
                    self.lent.append(flags)
                self.armed[number] = bool(flags & F_MORE)


class RingConformance:
    @pytest.fixture
    def world(self, make_world: MakeWorld) -> World:
        return make_world()

    @pytest.fixture
    def driver(self, world: World) -> Driver:
        return Driver(world.ring)

    @pytest.fixture
    def pair(self, world: World) -> Pair:
        return Pair(world)

    @pytest.fixture
    def path(self, world: World) -> str:
        return f"{world.directory}/file"

    # --- accepting and connecting -------------------------------------------------------------------------------
    def test_a_receive_that_comes_by_itself_is_returned_by_the_wait_or_by_reap_and_its_buffer_comes_back(
        self, make_world: MakeWorld
    ) -> None:
        world = make_world(receive_buffers=2)
        pair = Pair(world)
        ring = pair.ring
        ring.queue_recv(RECEIVE, pair.fd)
        for number in range(12):  # six times as many as there are buffers
            text = b"%03d" % number
            assert pair.client.send(text) == 3
            for _ in range(STEPS):
                single = ring.wait_single(STEP_NS)
                if single is not None and number % 3:
                    assert single == (RECEIVE, text)
                    break
                rows = list(zip(*ring.reap(), strict=True))
                if rows:
                    ((user_data, res, flags),) = rows
                    assert (user_data, bytes(ring.received(flags, res))) == (RECEIVE, text)
                    assert single is None or single == (RECEIVE, text)
                    ring.recycle([flags])
                    break
        ring.submit_and_wait(0)
        assert ring.reap() == ([], [], [])
        world.close()

    def test_one_accept_answers_many_clients_and_knows_each_peer(self, pair: Pair) -> None:
        others = [pair.another() for _ in range(3)]
        for fd, client in [(pair.fd, pair.client), *others]:
            assert pair.ring.peer_of(fd) == client.address

    def test_a_bogus_descriptor_has_no_peer(self, world: World) -> None:
        with pytest.raises(OSError, match="Errno"):
            world.ring.peer_of(12_345)

    def test_an_accept_out_of_descriptors_ends_and_goes_on_after_being_queued_again(self, world: World) -> None:
        ring, driver = world.ring, Driver(world.ring)
        listener, address = ring.listen("127.0.0.1", 0, 8)
        client = world.client(address)
        with world.no_descriptors():
            ring.queue_accept(ACCEPT, listener)
            res, flags = driver.take(ACCEPT)
            assert res == -errno.EMFILE
            assert not flags & F_MORE
        ring.queue_accept(ACCEPT, listener)
        fd, flags = driver.take(ACCEPT)
        assert flags & F_MORE
        assert ring.peer_of(fd) == client.address

    def test_a_connect_gives_a_descriptor_that_carries_bytes_both_ways(self, world: World) -> None:
        ring, driver = world.ring, Driver(world.ring)
        listener, address = ring.listen("127.0.0.1", 0, 8)
        ring.queue_accept(ACCEPT, listener)
        ring.queue_connect(CANCEL, *address)
        near, far = driver.res(CANCEL), driver.take(ACCEPT)[0]
        for source, target in ((near, far), (far, near)):
            ring.queue_sends([(SEND, source, b"there")])
            assert driver.res(SEND) == 5
            assert driver.receive_all(RECEIVE, target, 5) == b"there"

    def test_a_connect_without_a_listener_is_refused(self, world: World) -> None:
        driver = Driver(world.ring)
        listener, address = world.ring.listen("127.0.0.1", 0, 8)
        world.ring.queue_close(FILE, listener)
        assert driver.res(FILE) == 0
        world.ring.queue_connect(SYNC, *address)
        assert driver.res(SYNC) == -errno.ECONNREFUSED

    def test_an_address_in_use_cannot_be_listened_on(self, pair: Pair) -> None:
        with pytest.raises(OSError, match="Errno") as caught:
            pair.ring.listen("127.0.0.1", pair.address[1], 8)
        assert caught.value.errno == errno.EADDRINUSE

    def test_listeners_that_share_an_address_divide_its_connections_and_outlive_each_other(self, world: World) -> None:
        ring, driver = world.ring, Driver(world.ring)
        first, address = ring.listen("127.0.0.1", 0, 64, shared=True)
        second, same = ring.listen(*address, 64, shared=True)
        assert same == address
        accepts = {ACCEPT: first, RECEIVE: second}
        for accept, listener in accepts.items():
            ring.queue_accept(accept, listener)
        clients: list[Client] = []

        def accepted() -> int:
            return sum(len(driver.done.get(accept, [])) for accept in accepts)

        for _ in range(48):
            clients.append(world.client(address))
            driver.until(lambda: accepted() == len(clients))
        shares = [[ring.peer_of(fd) for fd, _ in driver.done.pop(accept)] for accept in accepts]
        assert all(shares), "each has some of 48"
        assert sorted(shares[0] + shares[1]) == sorted(client.address for client in clients)
        ring.queue_cancel(CANCEL, ACCEPT)
        assert driver.res(CANCEL) == 0
        assert driver.res(ACCEPT) == -errno.ECANCELED
        ring.queue_close(FILE, first)
        assert driver.res(FILE) == 0
        for _ in range(8):
            clients.append(world.client(address))
            assert driver.take(RECEIVE)[0] >= 0

    @pytest.mark.parametrize("shares", [(False, True), (True, False)])
    def test_an_address_is_shared_only_if_both_say_so(self, world: World, shares: tuple[bool, bool]) -> None:
        _, address = world.ring.listen("127.0.0.1", 0, 8, shared=shares[0])
        with pytest.raises(OSError, match="Errno") as caught:
            world.ring.listen(*address, 8, shared=shares[1])
        assert caught.value.errno == errno.EADDRINUSE

    def test_an_address_that_is_bound_gets_no_connection_and_only_shared_listeners_that_come_and_go(
        self, world: World
    ) -> None:
        ring, driver = world.ring, Driver(world.ring)
        holder, address = ring.bind_port("127.0.0.1", 0)
        for accept in (ACCEPT, RECEIVE):
            with pytest.raises(OSError, match="Errno") as caught:
                ring.listen(*address, 8)
            assert caught.value.errno == errno.EADDRINUSE
            ring.queue_connect(SYNC, *address)
            assert driver.res(SYNC) == -errno.ECONNREFUSED
            listener, same = ring.listen(*address, 8, shared=True)
            assert same == address
            ring.queue_accept(accept, listener)
            world.client(address)
            assert driver.take(accept)[0] >= 0
            ring.queue_cancel(CANCEL, accept)
            assert driver.res(CANCEL) == 0
            assert driver.take(accept)[0] == -errno.ECANCELED
            ring.queue_close(FILE, listener)
            assert driver.res(FILE) == 0
        ring.queue_close(FILE, holder)
        assert driver.res(FILE) == 0
        ring.listen(*address, 8)
        with pytest.raises(OSError, match="Errno") as caught:
            ring.bind_port(*address)
        assert caught.value.errno == errno.EADDRINUSE

    # --- receiving ----------------------------------------------------------------------------------------------
    def test_one_receive_answers_many_times_and_ends_with_the_stream(self, pair: Pair) -> None:
        pair.ring.queue_recv(RECEIVE, pair.fd)
        for text in (b"one", b"two", b"three"):
            pair.client.send(text)
            res, flags = pair.driver.take(RECEIVE)
            assert flags & (F_BUFFER | F_MORE) == F_BUFFER | F_MORE
            assert bytes(pair.ring.received(flags, res)) == text
            pair.ring.recycle([flags])
        pair.client.shutdown_send()
        res, flags = pair.driver.take(RECEIVE)
        assert res == 0
        assert not flags & F_MORE

    def test_a_reset_ends_a_receive(self, pair: Pair) -> None:
        pair.ring.queue_recv(RECEIVE, pair.fd)
        pair.driver.step(0)
        pair.client.reset()
        res, flags = pair.driver.take(RECEIVE)
        assert res == -errno.ECONNRESET
        assert not flags & F_MORE

    def test_without_a_free_buffer_a_receive_ends_and_goes_on_after_recycling(self, make_world: MakeWorld) -> None:
        world = make_world(receive_buffers=2, receive_buffer_bytes=64)
        pair = Pair(world)
        text = bytes(range(256)) * 2
        pair.client.send(text)
        pair.ring.queue_recv(RECEIVE, pair.fd)
        held = [pair.driver.take(RECEIVE) for _ in range(2)]
        res, flags = pair.driver.take(RECEIVE)
        assert (res, flags & (F_MORE | F_BUFFER)) == (-errno.ENOBUFS, 0)
        got = b"".join(bytes(pair.ring.received(flags, res)) for res, flags in held)
        pair.ring.recycle([flags for _, flags in held])
        assert got + pair.driver.receive_all(RECEIVE, pair.fd, len(text) - len(got)) == text

    def test_a_long_stream_arrives_whole_and_in_order(self, make_world: MakeWorld) -> None:
        pair = Pair(make_world(receive_buffers=4, receive_buffer_bytes=256))
        text = os.urandom(16_384)
        assert pair.client.send(text) == len(text)
        assert pair.driver.receive_all(RECEIVE, pair.fd, len(text)) == text

    def test_recycling_skips_completions_without_a_buffer(self, pair: Pair) -> None:
        pair.ring.recycle([])
        pair.ring.recycle([0, F_MORE])

    def test_received_bytes_stay_until_their_buffer_is_recycled(self, pair: Pair) -> None:
        pair.ring.queue_recv(RECEIVE, pair.fd)
        views = []
        for number in range(4):
            pair.client.send(b"message %d" % number)
            res, flags = pair.driver.take(RECEIVE)
            views.append(pair.ring.received(flags, res))
        assert [bytes(view) for view in views] == [b"message %d" % number for number in range(4)]

    # --- sending ------------------------------------------------------------------------------------------------
    def test_many_sends_in_one_call_reach_each_its_client(self, pair: Pair) -> None:
        ends = [(pair.fd, pair.client), *(pair.another() for _ in range(7))]
        texts = [b"%d " % number * (1 + 40 * number) for number in range(8)]
        texts[3] = b"large " * 5000
        pair.ring.queue_sends([(SEND + n, fd, text) for n, ((fd, _), text) in enumerate(zip(ends, texts, strict=True))])
        for n, ((_, client), text) in enumerate(zip(ends, texts, strict=True)):
            assert pair.driver.res(SEND + n) == len(text)
            assert pair.client_receives(len(text), client) == text
        assert pair.ring.pinned() == {}

    def test_sends_take_any_buffer_of_bytes_and_keep_it_alive(self, pair: Pair) -> None:
        for make in (bytes, bytearray, lambda data: memoryview(data)[:]):
            pair.ring.queue_sends([(SEND, pair.fd, make(b"x" * 100)), (SEND + 1, pair.another()[0], make(b"y" * 9000))])
            gc.collect()
            assert pair.driver.res(SEND) == 100
            assert pair.driver.res(SEND + 1) == 9000
            assert pair.client_receives(100) == b"x" * 100

    @pytest.mark.parametrize("size", [3, 5000])
    def test_one_buffer_may_go_to_many_beside_others(self, pair: Pair, size: int) -> None:
        ends = [(pair.fd, pair.client), *(pair.another() for _ in range(7))]
        shared = bytearray(os.urandom(size))
        texts = [shared, b"own 1", shared, b"own " * 1000, shared, shared, shared, shared]
        pair.ring.queue_sends([(SEND + n, fd, text) for n, ((fd, _), text) in enumerate(zip(ends, texts, strict=True))])
        gc.collect()
        for n, ((_, client), text) in enumerate(zip(ends, texts, strict=True)):
            assert pair.driver.res(SEND + n) == len(text)
            assert pair.client_receives(len(text), client) == text

    def test_queueing_no_sends_does_nothing(self, pair: Pair) -> None:
        pair.ring.queue_sends([])
        pair.driver.step(0)
        assert not any(pair.driver.done.values())

    def test_a_large_send_resumed_after_each_short_one_arrives_whole(self, pair: Pair) -> None:
        text = os.urandom(64) * 65_536
        sent, got = 0, bytearray()
        pair.ring.queue_sends([(SEND, pair.fd, text)])
        for _ in range(20 * STEPS):
            got += pair.client.receive()
            pair.driver.step(STEP_NS // 10)
            if SEND in pair.driver.done:
                sent += pair.driver.res(SEND)
                if sent < len(text):
                    pair.ring.queue_sends([(SEND, pair.fd, memoryview(text)[sent:])])
            if len(got) == len(text):
                break
        assert bytes(got) == text

    def test_a_send_to_a_client_that_is_gone_fails_without_a_signal(self, pair: Pair) -> None:
        pair.client.reset()
        for _ in range(STEPS):
            pair.ring.queue_sends([(SEND, pair.fd, b"anyone?")])
            if (res := pair.driver.res(SEND)) < 0:
                break
        assert res in (-errno.EPIPE, -errno.ECONNRESET)

    def test_a_send_in_place_arrives_before_what_is_queued_after_it(self, pair: Pair) -> None:
        sent = pair.ring.send_now(pair.fd, b"now, ")
        assert 0 < sent <= 5
        rest = b"now, then"[sent:]
        while rest:
            pair.ring.queue_sends([(SEND, pair.fd, rest)])
            rest = rest[pair.driver.res(SEND) :]
        assert pair.client_receives(9) == b"now, then"
        assert not pair.driver.done.get(SEND)

    def test_a_send_in_place_is_short_and_then_refused_when_the_socket_is_full(self, pair: Pair) -> None:
        text = os.urandom(64) * 65_536
        sent = 0
        for _ in range(100 * STEPS):
            res = pair.ring.send_now(pair.fd, text[sent:])
            if res < 0:
                break
            sent += res
        assert res == -errno.EAGAIN
        assert 0 < sent < len(text)
        assert pair.client_receives(sent) == text[:sent]

    def test_a_send_in_place_to_a_client_that_is_gone_fails_without_a_signal(self, pair: Pair) -> None:
        pair.client.reset()
        for _ in range(STEPS):
            if (res := pair.ring.send_now(pair.fd, b"anyone?")) < 0:
                break
            pair.driver.step(STEP_NS // 10)
        assert res in (-errno.EPIPE, -errno.ECONNRESET)
        assert pair.ring.send_now(-1, b"nobody") == -errno.EBADF

    def test_a_datagram_arrives_whole_and_one_without_a_receiver_is_an_error(self, make_world: MakeWorld) -> None:
        world = make_world()
        address, take = world.datagram_socket()
        assert world.ring.send_datagram(address, b"READY=1\nSTATUS=two lines") == 0
        assert world.ring.send_datagram(address, b"WATCHDOG=1") == 0
        assert take() == [b"READY=1\nSTATUS=two lines", b"WATCHDOG=1"]
        assert world.ring.send_datagram(world.directory + "/no-socket", b"anyone?") == -errno.ENOENT

    # --- descriptors to another loop ------------------------------------------------------------------------------
    def test_a_connection_goes_on_under_the_descriptor_that_came_with_its_first_bytes(self, pair: Pair) -> None:
        address = pair.world.directory + "/mailbox"
        mailbox = pair.ring.open_mailbox(address)
        assert pair.ring.take_descriptor(mailbox, 4096) == (-errno.EAGAIN, b"")
        pair.ring.queue_poll(RECEIVE, mailbox)
        pair.driver.step(0)
        assert RECEIVE not in pair.driver.done
        pair.client.send(b"the rest")
        assert pair.ring.send_descriptor(address, pair.fd, b"the first bytes, ") == 0
        assert pair.driver.res(RECEIVE) > 0
        fd, data = pair.ring.take_descriptor(mailbox, 4096)
        assert fd not in (pair.fd, mailbox, -1)
        assert data == b"the first bytes, "
        pair.ring.queue_close(CANCEL, pair.fd)
        assert pair.driver.res(CANCEL) == 0
        assert pair.driver.receive_all(RECEIVE, fd, 8) == b"the rest"
        assert pair.ring.send_now(fd, b"answer") == 6
        assert pair.client_receives(6) == b"answer"
        assert not pair.client.ended

    def test_a_poll_of_a_mailbox_that_has_something_ends_at_once_and_one_that_waits_can_be_cancelled(
        self, pair: Pair
    ) -> None:
        address = pair.world.directory + "/mailbox"
        mailbox = pair.ring.open_mailbox(address)
        assert pair.ring.send_descriptor(address, pair.fd, b"x") == 0
        for _ in range(2):
            pair.ring.queue_poll(RECEIVE, mailbox)
            assert pair.driver.res(RECEIVE) > 0
        assert pair.ring.take_descriptor(mailbox, 16)[1] == b"x"
        pair.ring.queue_poll(RECEIVE, mailbox)
        pair.driver.step(0)
        pair.ring.queue_cancel(CANCEL, RECEIVE)
        assert pair.driver.res(RECEIVE) == -errno.ECANCELED
        assert pair.driver.res(CANCEL) == 0

    def test_a_poll_of_one_end_of_a_pair_ends_with_the_other_end(self, pair: Pair) -> None:
        one, other = pair.ring.stream_pair()
        pair.ring.queue_poll(RECEIVE, one)
        pair.driver.step(0)
        assert RECEIVE not in pair.driver.done
        pair.ring.queue_close(CANCEL, other)
        assert pair.driver.res(CANCEL) == 0
        assert pair.driver.res(RECEIVE) > 0
        pair.ring.queue_poll(RECEIVE, one)
        assert pair.driver.res(RECEIVE) > 0

    def test_a_mailbox_takes_no_more_than_it_has_room_for(self, pair: Pair) -> None:
        address = pair.world.directory + "/mailbox"
        mailbox = pair.ring.open_mailbox(address)
        sent = 0
        while (res := pair.ring.send_descriptor(address, pair.fd, b"%d" % sent)) == 0:
            sent += 1
        assert res == -errno.EAGAIN
        assert sent > 1
        for number in range(sent):
            fd, data = pair.ring.take_descriptor(mailbox, 16)
            assert (fd >= 0, data) == (True, b"%d" % number)
        assert pair.ring.take_descriptor(mailbox, 16) == (-errno.EAGAIN, b"")
        assert pair.ring.send_descriptor(address, pair.fd, b"more than 16 bytes") == 0
        assert pair.ring.take_descriptor(mailbox, 16) == (-errno.EMSGSIZE, b"")
        assert pair.ring.send_descriptor(address, pair.fd, bytes(1 << 24)) == -errno.EMSGSIZE
        assert pair.ring.send_descriptor(address, -1, b"x") == -errno.EBADF

    def test_bytes_that_come_without_a_descriptor_are_given_with_the_error_that_says_so(self, pair: Pair) -> None:
        directory = f"{pair.world.directory}/{'long' * 30}"
        pair.ring.make_directory(directory)
        address = f"{directory}/mailbox"
        mailbox = pair.ring.open_mailbox(address)
        pair.ring.queue_poll(RECEIVE, mailbox)
        pair.driver.step(0)
        for data in (b"READY=1", b"", b"more than 16 bytes", b"STOPPING=1"):
            assert pair.ring.send_datagram(address, data) == 0
        assert pair.driver.res(RECEIVE) > 0
        taken = [pair.ring.take_descriptor(mailbox, 16) for _ in range(5)]
        assert taken == [
            (-errno.EBADMSG, b"READY=1"),
            (-errno.EBADMSG, b""),
            (-errno.EMSGSIZE, b""),
            (-errno.EBADMSG, b"STOPPING=1"),
            (-errno.EAGAIN, b""),
        ]
        while (res := pair.ring.send_datagram(address, b"x")) == 0:
            pass
        assert res == -errno.EAGAIN
        pair.ring.queue_close(CANCEL, mailbox)
        assert pair.driver.res(CANCEL) == 0
        assert pair.ring.send_datagram(address, b"x") == -errno.ECONNREFUSED

    def test_a_mailbox_that_no_process_has_open_takes_nothing_and_its_place_can_be_taken(self, pair: Pair) -> None:
        address = pair.world.directory + "/mailbox"
        assert pair.ring.send_descriptor(address, pair.fd, b"x") == -errno.ENOENT
        mailbox = pair.ring.open_mailbox(address)
        pair.ring.queue_close(CANCEL, mailbox)
        assert pair.driver.res(CANCEL) == 0
        assert pair.ring.send_descriptor(address, pair.fd, b"x") == -errno.ECONNREFUSED
        mailbox = pair.ring.open_mailbox(address)
        assert pair.ring.send_descriptor(address, pair.fd, b"y") == 0
        assert pair.ring.take_descriptor(mailbox, 16)[1] == b"y"

    def test_without_a_free_descriptor_the_connection_is_given_up_with_its_bytes(self, pair: Pair) -> None:
        address = pair.world.directory + "/mailbox"
        mailbox = pair.ring.open_mailbox(address)
        assert pair.ring.send_descriptor(address, pair.fd, b"x") == 0
        pair.ring.queue_close(CANCEL, pair.fd)
        assert pair.driver.res(CANCEL) == 0
        with pair.world.no_descriptors():
            assert pair.ring.take_descriptor(mailbox, 16) == (-errno.EMFILE, b"")
        assert pair.ring.take_descriptor(mailbox, 16) == (-errno.EAGAIN, b"")
        pair.client_receives(1)
        assert pair.client.ended

    def test_a_pair_carries_bytes_both_ways_also_if_one_end_came_in_a_mailbox(self, pair: Pair) -> None:
        address = pair.world.directory + "/mailbox"
        mailbox = pair.ring.open_mailbox(address)
        one, other = pair.ring.stream_pair()
        assert pair.ring.send_descriptor(address, other, b"x") == 0
        pair.ring.queue_close(CANCEL, other)
        assert pair.driver.res(CANCEL) == 0
        came, _ = pair.ring.take_descriptor(mailbox, 16)
        pair.ring.queue_sends([(SEND, one, b"there")])
        assert pair.driver.res(SEND) == 5
        assert pair.driver.receive_all(RECEIVE, came, 5) == b"there"
        assert pair.ring.send_now(came, b"and back") == 8
        assert pair.driver.receive_all(FILE, one, 8) == b"and back"
        with pair.world.no_descriptors(), pytest.raises(OSError, match="files"):
            pair.ring.stream_pair()

    def test_no_end_of_a_message_leaves_a_descriptor_open_or_closes_one_that_is_used(self, pair: Pair) -> None:
        ring, world, address = pair.ring, pair.world, pair.world.directory + "/mailbox"
        before = world.descriptors()
        mailbox = ring.open_mailbox(address)
        for data in (b"x", b"too much"):
            assert ring.send_descriptor(address, pair.fd, data) == 0
            fd, taken = ring.take_descriptor(mailbox, 4)
            assert (fd if fd < 0 else taken) == (-errno.EMSGSIZE if len(data) > 4 else b"x")
            if fd >= 0:
                ring.queue_close(CANCEL, fd)
                assert pair.driver.res(CANCEL) == 0
        for place, fd, data in (
            (address, -1, b"x"),
            (address, pair.fd, bytes(1 << 24)),
            (address + "s", pair.fd, b"x"),
        ):
            assert ring.send_descriptor(place, fd, data) < 0
        assert ring.send_descriptor(address, pair.fd, b"x") == 0
        with world.no_descriptors():
            assert ring.take_descriptor(mailbox, 4) == (-errno.EMFILE, b"")
        assert ring.send_descriptor(address, pair.fd, b"x") == 0
        ring.queue_close(CANCEL, mailbox)
        assert pair.driver.res(CANCEL) == 0
        assert world.descriptors() == before
        assert ring.send_now(pair.fd, b"still here") == 10
        assert pair.client_receives(10) == b"still here"
        ring.queue_close(CANCEL, pair.fd)
        assert pair.driver.res(CANCEL) == 0
        pair.client_receives(1)
        assert pair.client.ended, "no copy of the descriptor is left anywhere"

    @pytest.mark.parametrize("seed", range(4))
    def test_any_mix_of_traffic_cancels_and_scarce_buffers_keeps_every_stream_whole(
        self, make_world: MakeWorld, seed: int
    ) -> None:
        """Goal: no byte lost, doubled or reordered. Method: random steps against a model of each stream."""
        pair = Pair(make_world(receive_buffers=4, receive_buffer_bytes=64))
        ends = [(pair.fd, pair.client), *(pair.another() for _ in range(4))]
        Traffic(pair.ring, ends, random.Random(seed)).run(400)

    # --- ending a connection ------------------------------------------------------------------------------------
    def test_shutdown_ends_the_receive_and_both_directions(self, pair: Pair) -> None:
        pair.ring.queue_recv(RECEIVE, pair.fd)
        pair.driver.step(0)
        pair.ring.queue_shutdown(CANCEL, pair.fd)
        assert pair.driver.res(CANCEL) == 0
        res, flags = pair.driver.take(RECEIVE)
        assert res == 0
        assert not flags & F_MORE
        pair.client_receives(1)
        assert pair.client.ended
        pair.ring.queue_close(CANCEL, pair.fd)
        assert pair.driver.res(CANCEL) == 0

    def test_a_shutdown_of_the_sends_alone_leaves_the_receive(self, pair: Pair) -> None:
        pair.ring.queue_recv(RECEIVE, pair.fd)
        pair.ring.queue_shutdown(CANCEL, pair.fd, sends_only=True)
        assert pair.driver.res(CANCEL) == 0
        pair.client_receives(1)
        assert pair.client.ended
        assert pair.client.send(b"still here") == 10
        res, flags = pair.driver.take(RECEIVE)
        assert bytes(pair.ring.received(flags, res)) == b"still here"[:res]
        pair.ring.recycle([flags])

    def test_a_cancelled_receive_completes_by_itself(self, pair: Pair) -> None:
        pair.ring.queue_recv(RECEIVE, pair.fd)
        pair.driver.step(0)
        pair.ring.queue_cancel(CANCEL, RECEIVE)
        assert pair.driver.res(CANCEL) == 0
        res, flags = pair.driver.take(RECEIVE)
        assert res == -errno.ECANCELED
        assert not flags & F_MORE
        pair.client.send(b"still open")
        assert pair.driver.receive_all(RECEIVE, pair.fd, 10) == b"still open"

    def test_a_cancelled_accept_completes_by_itself(self, pair: Pair) -> None:
        pair.ring.queue_cancel(CANCEL, ACCEPT)
        assert pair.driver.res(CANCEL) == 0
        res, flags = pair.driver.take(ACCEPT)
        assert res == -errno.ECANCELED
        assert not flags & F_MORE

    def test_cancelling_what_is_not_there_says_so(self, driver: Driver) -> None:
        driver.ring.queue_cancel(CANCEL, 4711)
        assert driver.res(CANCEL) == -errno.ENOENT

    def test_a_closed_descriptor_is_bad(self, driver: Driver, path: str) -> None:
        fd = driver.open(path)
        driver.ring.queue_close(FILE, fd)
        assert driver.res(FILE) == 0
        driver.ring.queue_close(FILE, fd)
        assert driver.res(FILE) == -errno.EBADF

    # --- files --------------------------------------------------------------------------------------------------
    def test_what_was_written_is_read_back(self, driver: Driver, path: str) -> None:
        fd = driver.open(path)
        for offset, text in ((0, b"abcdef"), (6, b"ghi"), (2, b"CD")):
            driver.ring.queue_write(FILE, fd, text, offset)
            assert driver.res(FILE) == len(text)
        assert driver.read(fd, 9) == b"abCDefghi"
        assert driver.ring.file_size(path) == 9

    def test_without_an_offset_a_write_to_an_appended_file_is_at_its_end(self, driver: Driver, path: str) -> None:
        fd = driver.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for text in (b"abc", b"defg"):
            driver.ring.queue_write(FILE, fd, text, -1)
            assert driver.res(FILE) == len(text)
        assert driver.read(driver.open(path), 9) == b"abcdefg"

    def test_a_read_is_short_at_the_end_of_the_file_and_empty_beyond(self, driver: Driver, path: str) -> None:
        fd = driver.open(path)
        driver.ring.queue_write(FILE, fd, b"0123456789", 0)
        driver.res(FILE)
        assert driver.read(fd, 100, 4) == b"456789"
        assert driver.read(fd, 100, 10) == b""
        assert driver.read(fd, 100, 5000) == b""

    def test_a_written_buffer_may_be_forgotten_at_once(self, driver: Driver, path: str) -> None:
        fd = driver.open(path)
        driver.ring.queue_write(FILE, fd, b"".join([b"temporary "] * 1000), 0)
        driver.ring.queue_write(SYNC, fd, bytearray(b"another"), 10_000)
        gc.collect()
        assert driver.res(FILE) == 10_000
        assert driver.res(SYNC) == 7
        assert driver.read(fd, 20_000) == b"temporary " * 1000 + b"another"

    def test_a_read_only_buffer_cannot_be_read_into(self, driver: Driver, path: str) -> None:
        fd = driver.open(path)
        with pytest.raises((BufferError, TypeError, ValueError)):
            driver.ring.queue_read(FILE, fd, b"constant", 0)

    def test_a_file_that_is_not_there_cannot_be_opened(self, driver: Driver, path: str) -> None:
        assert driver.open(path, os.O_RDONLY) == -errno.ENOENT

    def test_an_exclusive_create_refuses_a_file_that_is_there(self, driver: Driver, path: str) -> None:
        assert driver.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL) >= 0
        assert driver.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL) == -errno.EEXIST

    def test_an_open_out_of_descriptors_makes_no_file_and_cuts_none(self, driver: Driver, world: World) -> None:
        there = f"{world.directory}/there"
        driver.ring.queue_write(FILE, driver.open(there), b"kept", 0)
        assert driver.res(FILE) == 4
        names = world.ring.list_directory(world.directory)
        with world.no_descriptors():
            assert driver.open(f"{world.directory}/new") == -errno.EMFILE
            assert driver.open(there, os.O_RDWR | os.O_TRUNC) == -errno.EMFILE
        assert world.ring.list_directory(world.directory) == names
        assert world.ring.file_size(there) == 4

    def test_renaming_replaces_and_unlinking_removes(self, driver: Driver, world: World) -> None:
        old, new = f"{world.directory}/old", f"{world.directory}/new"
        for name, text in ((old, b"old"), (new, b"new")):
            fd = driver.open(name)
            driver.ring.queue_write(FILE, fd, text, 0)
            driver.res(FILE)
        driver.ring.queue_rename(FILE, old, new)
        assert driver.res(FILE) == 0
        assert world.ring.list_directory(world.directory) == ["new"]
        assert driver.read(driver.open(new), 10) == b"old"
        driver.ring.queue_unlink(FILE, new)
        assert driver.res(FILE) == 0
        driver.ring.queue_unlink(FILE, new)
        assert driver.res(FILE) == -errno.ENOENT
        driver.ring.queue_rename(FILE, new, old)
        assert driver.res(FILE) == -errno.ENOENT

    def test_syncs_answer_zero_for_files_and_directories(self, driver: Driver, world: World, path: str) -> None:
        fd = driver.open(path)
        for data_only in (True, False):
            driver.ring.queue_fsync(SYNC, fd, data_only=data_only)
            assert driver.res(SYNC) == 0
        directory = driver.open(world.directory, os.O_RDONLY | os.O_DIRECTORY)
        driver.ring.queue_fsync(SYNC, directory, data_only=False)
        assert driver.res(SYNC) == 0

    def test_a_write_with_dsync_answers_its_count(self, driver: Driver, path: str) -> None:
        fd = driver.open(path)
        driver.ring.queue_write(FILE, fd, b"x" * 4096, 0, dsync=True)
        assert driver.res(FILE) == 4096
        assert driver.read(fd, 5000) == b"x" * 4096

    @pytest.mark.parametrize("dsync", [False, True])
    def test_a_write_that_is_waited_for_has_ended_when_it_returns(self, driver: Driver, path: str, dsync: bool) -> None:
        fd = driver.open(path)
        assert driver.ring.write_now(fd, memoryview(b"x" * 4096), 10, dsync=dsync) == 4096
        assert driver.read(fd, 5000, 10) == b"x" * 4096
        assert driver.ring.write_now(-1, b"x", 0, dsync=dsync) == -errno.EBADF

    def test_parts_are_written_one_after_the_other(self, driver: Driver, path: str) -> None:
        fd = driver.open(path)
        parts = (b"head", memoryview(b"x" * 5000)[1:], bytearray(b"end"))
        assert driver.ring.write_parts_now(fd, parts, 10) == 5006
        assert driver.read(fd, 6000, 10) == b"head" + b"x" * 4999 + b"end"
        assert driver.ring.write_parts_now(-1, parts, 0) == -errno.EBADF

    def test_a_sync_that_is_waited_for_has_ended_when_it_returns(self, driver: Driver, path: str) -> None:
        fd = driver.open(path)
        assert driver.ring.write_now(fd, b"x" * 4096, 0, dsync=False) == 4096
        assert driver.ring.sync_now(fd) == 0
        assert driver.ring.sync_now(1 << 20) == -errno.EBADF

    def test_a_read_that_is_waited_for_has_its_bytes_when_it_returns(self, driver: Driver, path: str) -> None:
        fd = driver.open(path)
        assert driver.ring.write_now(fd, b"0123456789", 0, dsync=False) == 10
        buffer = bytearray(6)
        assert driver.ring.read_now(fd, memoryview(buffer)[:4], 2) == 4
        assert buffer == b"2345\0\0"
        assert driver.ring.read_now(fd, buffer, 7) == 3, "short at the end of the file"
        assert driver.ring.read_now(-1, buffer, 0) == -errno.EBADF

    # --- the commit chain ---------------------------------------------------------------------------------------
    def test_a_commit_answers_both_its_write_and_its_sync(self, driver: Driver, path: str) -> None:
        fd = driver.open(path)
        driver.ring.queue_commit(FILE, SYNC, fd, b"c" * 8192, 4096)
        assert driver.res(FILE) == 8192
        assert driver.res(SYNC) == 0
        assert driver.read(fd, 8192, 4096) == b"c" * 8192

    def test_a_short_write_cancels_its_sync(self, driver: Driver, world: World, path: str) -> None:
        fd = driver.open(path)
        with world.file_limit(4096):
            driver.ring.queue_commit(FILE, SYNC, fd, b"c" * 8192, 0)
            assert driver.res(FILE) == 4096
            assert driver.res(SYNC) == -errno.ECANCELED

    def test_a_failed_write_cancels_its_sync(self, driver: Driver, world: World, path: str) -> None:
        fd = driver.open(path)
        with world.file_limit(4096):
            driver.ring.queue_commit(FILE, SYNC, fd, b"c" * 8192, 4096)
            assert driver.res(FILE) == -errno.EFBIG
            assert driver.res(SYNC) == -errno.ECANCELED
        read_only = driver.open(path, os.O_RDONLY)
        driver.ring.queue_commit(FILE, SYNC, read_only, b"c", 0)
        assert driver.res(FILE) == -errno.EBADF
        assert driver.res(SYNC) == -errno.ECANCELED

    def test_no_fill_of_the_queue_cuts_a_chain_in_two(self, driver: Driver, path: str) -> None:
        """A commit on a descriptor that cannot be written, after 0, 1, 2 ... other operations."""
        good = driver.open(path)
        bad = driver.open(path, os.O_RDONLY)
        for before in range(0, 20):
            for number in range(before):
                driver.ring.queue_fsync(1000 + number, good, data_only=True)
            driver.ring.queue_commit(FILE, SYNC, bad, b"c", 0)
            assert driver.res(FILE) == -errno.EBADF
            assert driver.res(SYNC) == -errno.ECANCELED, f"{before} operations before the chain"
            for number in range(before):
                assert driver.res(1000 + number) == 0

    # --- waiting ------------------------------------------------------------------------------------------------
    def test_more_operations_than_the_queues_hold_all_complete(self, driver: Driver) -> None:
        count = 3000
        for number in range(count):
            driver.ring.queue_cancel(1 + number, 2**40)
        driver.until(lambda: len(driver.done) == count)
        assert all(results == [(-errno.ENOENT, 0)] for results in driver.done.values())

    def test_a_wake_before_the_wait_ends_it_and_is_no_completion(self, driver: Driver) -> None:
        for _ in range(3):
            driver.ring.wake()
            driver.step(None)
        assert driver.done == {}

    def test_many_wakes_end_one_wait_at_least(self, driver: Driver) -> None:
        for _ in range(1000):
            driver.ring.wake()
        driver.step(None)
        assert driver.done == {}

    def test_a_wait_ends_at_its_timeout(self, driver: Driver) -> None:
        driver.step(0)
        driver.step(1)
        driver.step(2_000_000)
        assert driver.done == {}

    def test_a_wait_returns_at_once_while_completions_lie_unreaped(self, driver: Driver) -> None:
        driver.ring.queue_cancel(CANCEL, 4711)
        driver.ring.submit_and_wait(None)
        driver.ring.submit_and_wait(None)
        assert driver.ring.reap() == ([CANCEL], [-errno.ENOENT], [0])
        assert driver.ring.reap() == ([], [], [])

    # --- the end ------------------------------------------------------------------------------------------------
    def test_a_ring_is_closed_with_operations_in_flight_and_twice(self, pair: Pair) -> None:
        pair.ring.queue_recv(RECEIVE, pair.fd)
        pair.driver.step(0)
        pair.ring.close()
        pair.ring.close()
        pair.ring.wake()

    # --- blocking calls -----------------------------------------------------------------------------------------
    def test_a_directory_is_made_once_and_listed_in_order(self, driver: Driver, world: World) -> None:
        below = f"{world.directory}/below"
        assert world.ring.make_directory(below) is True
        assert world.ring.make_directory(below) is False
        for name in ("b", "a", "c"):
            assert driver.open(f"{below}/{name}") >= 0
        assert world.ring.list_directory(below) == ["a", "b", "c"]
        with pytest.raises(FileNotFoundError):
            world.ring.list_directory(f"{world.directory}/nowhere")
        with pytest.raises(FileNotFoundError):
            world.ring.file_size(f"{world.directory}/nowhere")

    def test_a_directory_is_removed_once_it_is_empty(self, driver: Driver, world: World) -> None:
        below = f"{world.directory}/below"
        world.ring.make_directory(f"{below}")
        world.ring.make_directory(f"{below}/in-it")
        with pytest.raises(OSError, match="not empty"):
            world.ring.remove_directory(below)
        world.ring.remove_directory(f"{below}/in-it")
        world.ring.remove_directory(below)
        assert world.ring.make_directory(below) is True
        with pytest.raises(FileNotFoundError):
            world.ring.remove_directory(f"{world.directory}/nowhere")

    def test_the_ready_descriptor_is_readable_while_completions_wait(self, driver: Driver, path: str) -> None:
        ring = driver.ring
        if ring.ready_fd < 0:
            pytest.skip("this ring has none")
        fd = driver.open(path)
        while select.select([ring.ready_fd], [], [], 0)[0]:
            ring.submit_and_wait(0)
            assert ring.reap()[0] == []
        ring.queue_write(FILE, fd, b"x", 0)
        ring.submit_and_wait(0)
        looks = 0
        while FILE not in ring.reap()[0]:
            # A ring of one thread is readable when looked at, and may not end a wait before.
            while not select.select([ring.ready_fd], [], [], 0.01)[0]:
                looks += 1
                assert looks < 2000
            ring.submit_and_wait(0)

    def test_a_lock_is_held_by_one(self, driver: Driver, world: World, path: str) -> None:
        fd = world.ring.lock(path)
        with pytest.raises(BlockingIOError):
            world.ring.lock(path)
        driver.ring.queue_close(FILE, fd)
        assert driver.res(FILE) == 0
        world.ring.lock(path)

    def test_a_shared_lock_is_held_by_many_and_excludes_the_one(self, world: World, path: str) -> None:
        with pytest.raises(FileNotFoundError):
            world.ring.lock(path, shared=True)
        world.ring.unlock(world.ring.lock(path))
        fds = [world.ring.lock(path, shared=True) for _ in range(2)]
        for fd in fds:
            with pytest.raises(BlockingIOError):
                world.ring.lock(path)
            world.ring.unlock(fd)
        fd = world.ring.lock(path)
        with pytest.raises(BlockingIOError):
            world.ring.lock(path, shared=True)
        world.ring.unlock(fd)

    def test_a_lock_is_given_up_at_once(self, world: World, path: str) -> None:
        world.ring.unlock(world.ring.lock(path))
        world.ring.unlock(world.ring.lock(path))

    def test_an_lstat_reports_kind_owner_and_identity(self, driver: Driver, world: World) -> None:
        ring, file, below = world.ring, f"{world.directory}/file", f"{world.directory}/below"
        assert driver.open(file) >= 0
        ring.make_directory(below)
        file_info, below_info = ring.lstat(file), ring.lstat(below)
        assert (stat.S_ISREG(file_info.st_mode), stat.S_ISDIR(below_info.st_mode)) == (True, True)
        assert (file_info.st_uid, below_info.st_uid) == (os.geteuid(), os.geteuid())
        assert stat.S_IMODE(below_info.st_mode) == 0o700
        names = (file, below, f"{world.directory}//below")
        first, second, third = ((info.st_dev, info.st_ino) for info in map(ring.lstat, names))
        assert first != second == third
        with pytest.raises(FileNotFoundError):
            ring.lstat(f"{world.directory}/nowhere")

    def test_allocated_space_reads_as_zeros(self, driver: Driver, world: World, path: str) -> None:
        fd = driver.open(path)
        world.ring.allocate(fd, 65_536)
        assert world.ring.file_size(path) == 65_536
        assert driver.read(fd, 65_536) == bytes(65_536)

    def test_the_machine_answers_its_numbers(self, world: World) -> None:
        block = world.ring.direct_block_bytes(world.directory)
        assert block == 0 or (block >= 512 and block & (block - 1) == 0)
        assert 0 < world.ring.free_bytes(world.directory) <= world.ring.volume_bytes(world.directory)
        assert world.ring.boot_id() == world.ring.boot_id() != ""
        first, second = world.ring.random_bytes(16), world.ring.random_bytes(16)
        assert len(first) == 16
        assert first != second
