"""A mailbox on a scripted ring: what a loop does with the connections that come in it."""

from __future__ import annotations

import errno
import logging

import pytest

from tests.loop.fake_ring import fake_loop
from tests.loop.handlers import Recorder
from topics.loop import Connection, StreamLimits
from topics.loop.doors.datagrams import TAKEN_MAX
from topics.loop.doors.hand_over_message import Carried, encoded, pair_message
from topics.loop.senders import ONE_SENDER_PASSES

LIMITS = StreamLimits(max_connections=2, refusal=b"full")
MESSAGE = encoded(Carried(("10.1.1.1", 77), 1, b"asked"))


class Taking:
    def __init__(self) -> None:
        self.loop, self.ring = fake_loop()
        self.handler = Recorder()
        self.listener = self.loop.listen("127.0.0.1", 0, self.handler, limits=LIMITS)
        self.mailbox = self.loop.open_mailbox("/mine", self.listener)

    def come(self, *mail: tuple[int, bytes]) -> list[tuple[object, ...]]:
        self.ring.mail.extend(mail)
        self.ring.complete(self.ring.one("poll"), 1)
        self.loop.run_pass(0)
        return self.handler.take()


@pytest.fixture
def on() -> Taking:
    return Taking()


def test_one_that_comes_begins_with_its_bytes_and_reads_after_them(on: Taking) -> None:
    assert on.come((20, MESSAGE)) == [("connected", 1), ("data", 1, b"asked")]
    conn = on.handler.conn
    assert (conn.peer, conn.fd, conn.hand_overs) == (("10.1.1.1", 77), 20, 1)
    assert on.listener.connections == [conn]
    recv = on.ring.one("recv")
    on.ring.receive(recv, b"next")
    on.loop.run_pass(0)
    assert on.handler.take() == [("data", 1, b"next")]
    on.ring.complete(recv, 0)
    on.loop.run_pass(0)
    assert on.handler.take() == [("end", 1)]


def test_one_that_comes_is_given_to_no_third_loop(on: Taking) -> None:
    begun = []

    def pass_on(conn: Connection, data: bytes) -> None:
        begun.append(on.loop.give_away(conn, "/third", lambda: data, lambda _error: None))

    on.handler.on_receive = pass_on
    on.come((20, MESSAGE))
    assert begun == [False]


def test_it_may_be_closed_or_paused_by_the_first_call_of_its_handler(on: Taking) -> None:
    on.handler.on_receive = lambda conn, data: conn.pause_reading()
    on.come((20, MESSAGE))
    assert on.ring.take("recv") == []
    on.handler.conn.resume_reading()
    on.loop.run_pass(0)
    assert on.ring.one("recv").arguments == (20,)


def test_a_pass_takes_a_few_and_the_next_ones_the_others(on: Taking) -> None:
    refused = [(-errno.EMSGSIZE, b"")] * (TAKEN_MAX + 3)
    on.come(*refused)
    assert on.mailbox.lost == TAKEN_MAX
    on.come((20, MESSAGE))
    assert (on.mailbox.lost, on.mailbox.taken) == (TAKEN_MAX + 3, 1)


def test_one_beyond_the_cap_is_refused_and_closed(on: Taking) -> None:
    on.come((20, MESSAGE), (21, MESSAGE), (22, MESSAGE))
    refusal = on.ring.one("send")
    assert refusal.arguments == (22, b"full")
    on.ring.answers.pop("close")
    on.ring.complete(refusal, 4)
    on.loop.run_pass(0)
    assert on.ring.one("close").arguments == (22,)
    assert (len(on.listener.connections), on.mailbox.taken, on.loop.stats().refused) == (2, 2, 1)


@pytest.mark.parametrize("mail", [(-errno.EMFILE, b""), (-errno.EBADMSG, MESSAGE), (20, MESSAGE[:-1])])
def test_what_cannot_be_taken_is_counted_and_executed_by_nobody(
    on: Taking, mail: tuple[int, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    on.ring.answers.pop("close")
    with caplog.at_level(logging.WARNING):
        assert on.come(mail, mail) == []
    assert (on.mailbox.lost, on.mailbox.taken) == (2, 0)
    assert [close.arguments for close in on.ring.take("close")] == [(fd,) for fd, _ in (mail, mail) if fd >= 0]
    assert len(caplog.records) == 1, "at most one line a second"
    assert on.come((21, MESSAGE)) != [], "the next one is taken"


def test_one_that_waits_for_mail_leaves_a_lone_client_the_loop(on: Taking) -> None:
    on.come((20, MESSAGE))
    recv = on.ring.one("recv")
    assert not on.loop.has_one_sender()
    for _ in range(ONE_SENDER_PASSES):
        on.ring.receive(recv, b"asked again")
        on.loop.run_pass(0)
    assert on.loop.has_one_sender()


def test_a_poll_that_fails_is_tried_again_later(on: Taking) -> None:
    on.ring.complete(on.ring.one("poll"), -errno.ENOMEM)
    on.loop.run_pass(0)
    assert on.ring.take("poll") == []
    on.loop.run_pass(1_000_000_000)
    on.loop.run_pass(0)
    assert on.come((20, MESSAGE)) != []


def test_closing_cancels_the_poll_and_then_closes_the_mailbox(on: Taking) -> None:
    poll = on.ring.one("poll")
    on.ring.answers.pop("close")
    on.mailbox.stop_accepting()
    on.mailbox.stop_accepting()
    on.loop.run_pass(0)
    cancel = on.ring.one("cancel")
    assert cancel.arguments == (poll.user_data,)
    assert on.ring.take("close") == []
    on.ring.complete(poll, -errno.ECANCELED)
    on.loop.run_pass(0)
    assert on.ring.one("close").arguments == (70,)


def test_closing_takes_what_has_come(on: Taking) -> None:
    on.ring.mail.append((20, MESSAGE))
    on.mailbox.stop_accepting()
    on.loop.run_pass(0)
    assert on.handler.take() == [("connected", 1), ("data", 1, b"asked")]
    on.mailbox.stop_accepting()
    assert on.mailbox.taken == 1


def test_the_end_of_a_loop_closes_its_mailboxes(on: Taking) -> None:
    on.ring.answers["cancel"] = lambda target: 0
    on.ring.complete(on.ring.one("poll"), -errno.ECANCELED)
    on.ring.answers["poll"] = lambda fd: -errno.ECANCELED
    on.ring.answers["accept"] = lambda fd: -errno.ECANCELED
    on.loop.close()
    assert on.ring.closed
    assert on.loop.operations_in_flight == 0


def test_one_end_of_a_pair_gets_a_handler_of_its_own() -> None:
    loop, ring = fake_loop()
    clients, cores = Recorder(), Recorder()
    loop.open_mailbox("/mine", loop.listen("127.0.0.1", 0, clients), cores)
    ring.mail.append((20, pair_message(3)))
    ring.complete(ring.one("poll"), 1)
    loop.run_pass(0)
    assert (cores.take(), clients.take()) == ([("connected", 1)], [])
    assert cores.conn.peer == ("", 3)


def test_without_a_handler_for_it_one_end_of_a_pair_is_lost(on: Taking) -> None:
    assert on.come((20, pair_message(3))) == []
    assert on.mailbox.lost == 1


def test_a_pair_is_opened_by_a_datagram_and_one_that_cannot_be_sent_leaves_no_descriptor() -> None:
    loop, ring = fake_loop()
    handler = Recorder()
    conn = loop.open_pair("/theirs", 2, handler)
    assert ring.given == [("/theirs", 72, pair_message(2))]
    assert (conn.fd, handler.take()) == (71, [("connected", 1)])
    ring.gives = -errno.ECONNREFUSED
    with pytest.raises(OSError, match="/theirs"):
        loop.open_pair("/theirs", 2, handler)
    assert sorted(call.arguments[0] for call in ring.queued if call.name == "close") == [71, 72, 72]
