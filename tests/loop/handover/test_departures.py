"""A connection leaves on a scripted ring: when its descriptor is sent, with which bytes, and what follows."""

from __future__ import annotations

import errno

import pytest

from tests.loop.fake_ring import Call, fake_loop
from tests.loop.handlers import Recorder
from topics.loop import Connection
from topics.loop.doors.hand_over_message import UNREAD_BYTES_MAX, Carried, decoded
from topics.loop.ring import F_MORE


class Leaving:
    """A connection of which `ask` was received, and whose handler then gives it away."""

    def __init__(self) -> None:
        self.loop, self.ring = fake_loop()
        self.handler = Recorder()
        self.handler.on_receive = self._on_receive
        self.listener = self.loop.listen("127.0.0.1", 0, self.handler)
        self.ring.complete(self.ring.one("accept"), 10, F_MORE)
        self.loop.run_pass(0)
        self.conn: Connection = self.handler.conn
        self.recv = self.ring.one("recv")
        self.pending = b""
        self.begun: list[bool] = []
        self.stayed: list[int] = []
        self.handler.take()

    def _on_receive(self, conn: Connection, data: bytes) -> None:
        self.pending += data
        if data.startswith(b"away"):
            self.begun.append(self.loop.give_away(conn, "/other", self._unread, self.stayed.append))

    def _unread(self) -> bytes:
        data, self.pending = self.pending, b""
        return data

    def run(self) -> list[tuple[object, ...]]:
        self.loop.run_pass(0)
        return self.handler.take()

    def ask(self, data: bytes = b"away", *, more: bool = True) -> Call | None:
        """Receive it; return the cancel of the receive, if it is in flight."""
        self.ring.receive(self.recv, data, more=more)
        self.run()
        cancels = self.ring.take("cancel")
        return cancels[0] if cancels else None

    def receive_ends(self) -> list[tuple[object, ...]]:
        self.ring.complete(self.recv, -errno.ECANCELED)
        return self.run()

    def sent(self) -> Carried:
        ((address, fd, message),) = self.ring.given
        assert (address, fd) == ("/other", 10)
        return decoded(message)


@pytest.fixture
def on() -> Leaving:
    return Leaving()


def test_it_is_sent_once_its_receive_has_ended_and_is_closed_without_a_shutdown(on: Leaving) -> None:
    cancel = on.ask()
    assert cancel is not None
    assert cancel.arguments == (on.recv.user_data,)
    on.ring.complete(cancel, 0)
    assert on.run() == []
    assert on.ring.given == [], "bytes may still come"
    assert on.receive_ends() == [("lost", on.conn.id, 0)]
    assert on.sent() == Carried(("10.0.0.1", 1010), 1, b"away")
    on.loop.run_pass(0)
    assert on.listener.connections == []
    assert on.ring.take("shutdown") == []
    assert (on.stayed, on.ring.take("recv")) == ([], [])


def test_what_comes_before_the_end_of_the_receive_goes_with_it(on: Leaving) -> None:
    on.ring.receive(on.recv, b"away")
    on.ring.receive(on.recv, b", in the same pass")
    on.run()
    on.ring.receive(on.recv, b", in the next one")
    on.run()
    on.ring.receive(on.recv, b", with the end", more=False)
    assert on.run() == [("lost", on.conn.id, 0)]
    assert on.sent().unread == b"away, in the same pass, in the next one, with the end"


def test_a_receive_that_has_ended_by_itself_is_not_awaited(on: Leaving) -> None:
    assert on.ask(more=False) is None
    assert on.sent().unread == b"away"
    assert on.handler.conns == [on.conn]
    assert on.listener.connections == []


def test_the_end_of_the_stream_is_left_to_the_other_loop(on: Leaving) -> None:
    on.ask()
    on.ring.complete(on.recv, 0)
    assert on.run() == [("lost", on.conn.id, 0)]
    assert on.sent().unread == b"away"


def test_one_with_something_to_send_stays(on: Leaving) -> None:
    on.conn.write(b"an answer")
    on.ask()
    assert on.begun == [False]
    send = on.ring.one("send")
    on.ring.complete(send, 9)
    on.run()
    on.ask()
    assert on.begun == [False, True]


@pytest.mark.parametrize("error", [errno.EAGAIN, errno.ECONNREFUSED, errno.ENOENT, errno.EMFILE])
def test_one_that_cannot_be_sent_stays_and_reads_on_after_the_bytes_that_it_holds(on: Leaving, error: int) -> None:
    on.ring.gives = -error
    on.ask()
    on.ring.receive(on.recv, b"held")
    on.run()
    assert on.receive_ends() == []
    assert on.stayed == [error]
    assert on.run() == [("data", on.conn.id, b"held")]
    on.recv = on.ring.one("recv")
    on.ring.gives = 0
    on.ask(b"away again")
    on.receive_ends()
    assert on.sent().unread == b"heldaway again", "it may try again"


def test_one_that_stayed_without_bytes_held_ends_its_receive_at_the_next_attempt_too(on: Leaving) -> None:
    on.ring.gives = -errno.EAGAIN
    on.ask()
    on.receive_ends()
    on.run()
    on.recv = on.ring.one("recv")
    on.ring.gives, on.pending = 0, b""
    cancel = on.ask()
    assert cancel is not None
    assert cancel.arguments == (on.recv.user_data,)
    on.receive_ends()
    assert on.sent().unread == b"away"


def test_one_that_cannot_be_sent_gets_the_end_of_the_stream_that_came_meanwhile(on: Leaving) -> None:
    on.ring.gives = -errno.EAGAIN
    on.ask()
    on.ring.complete(on.recv, 0)
    assert on.run() == [("end", on.conn.id)]
    on.ring.gives = 0
    on.conn.close()
    assert on.run() == [("lost", on.conn.id, 0)]
    assert on.ring.given == []


def test_the_end_follows_bytes_that_are_held(on: Leaving) -> None:
    on.ring.gives = -errno.EAGAIN
    on.ask()
    on.ring.receive(on.recv, b"held")
    on.ring.complete(on.recv, 0)
    on.run()
    assert on.run() == [("data", on.conn.id, b"held"), ("end", on.conn.id)]


def test_one_that_was_paused_leaves_without_reading_and_stays_paused(on: Leaving) -> None:
    on.conn.pause_reading()
    on.ring.receive(on.recv, b"held")
    on.run()
    on.ring.take("cancel")
    on.receive_ends()
    on.ring.gives = -errno.EAGAIN
    on.pending = b"asked"
    assert on.loop.give_away(on.conn, "/other", on._unread, on.stayed.append)
    assert on.run() == []
    assert on.stayed == [errno.EAGAIN]
    assert on.conn.paused
    on.pending, on.ring.gives = b"asked", 0
    assert on.loop.give_away(on.conn, "/other", on._unread, on.stayed.append)
    assert on.run() == [("lost", on.conn.id, 0)]
    assert on.sent().unread == b"askedheld"


@pytest.mark.parametrize("end", ["close", "abort", "reset"])
def test_one_that_ends_here_meanwhile_is_not_sent(on: Leaving, end: str) -> None:
    on.ask()
    if end == "reset":
        on.ring.complete(on.recv, -errno.ECONNRESET)
        on.run()
    else:
        getattr(on.conn, end)()
        on.run()
        on.ring.complete(on.recv, 0)
    for _ in range(2):
        for cancel in on.ring.take("cancel"):
            on.ring.complete(cancel, 0)
        on.run()
    assert on.listener.connections == []
    assert on.ring.given == []
    assert on.stayed == []


def test_more_bytes_than_travel_stay_here(on: Leaving) -> None:
    on.ask(b"away" + bytes(UNREAD_BYTES_MAX - 3))
    on.receive_ends()
    assert on.stayed == [errno.EMSGSIZE]
    assert on.ring.given == []


def test_a_handler_that_fails_loses_its_connection_and_no_other(on: Leaving) -> None:
    errors: list[BaseException] = []
    on.loop.on_error = lambda error, _where: errors.append(error)

    def fail(_error: int) -> None:
        raise ValueError("a bug")

    on.ring.gives = -errno.EAGAIN
    on.stayed = []
    on.handler.on_receive = lambda conn, data: None
    on.pending = b"asked"
    assert on.loop.give_away(on.conn, "/other", on._unread, fail)
    on.receive_ends()
    assert [str(error) for error in errors] == ["a bug"]
    on.run()
    assert on.listener.connections == []
