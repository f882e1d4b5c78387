"""A datagram socket on a scripted ring: what comes is given to its callback. `test_mailbox.py` has the rest."""

from __future__ import annotations

import errno
import logging

import pytest

from tests.loop.fake_ring import fake_loop
from topics.loop.doors.datagrams import TAKEN_MAX


def test_each_message_is_given_with_what_the_ring_says_of_it_a_few_in_each_pass() -> None:
    loop, ring = fake_loop()
    came: list[tuple[int, bytes]] = []
    loop.open_datagrams("/reports", 100, lambda fd, message: came.append((fd, message)))
    sent = [(-errno.EBADMSG, b"READY=%d" % number) for number in range(TAKEN_MAX + 2)] + [(-errno.EMSGSIZE, b"")]
    ring.mail.extend(sent)
    for taken in (TAKEN_MAX, len(sent)):
        ring.complete(ring.one("poll"), 1)
        loop.run_pass(0)
        assert came == sent[:taken]


def test_a_wait_that_fails_again_and_again_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    loop, ring = fake_loop()
    came: list[bytes] = []
    loop.open_datagrams("/reports", 100, lambda _fd, message: came.append(message))

    def fails() -> None:
        ring.complete(ring.one("poll"), -errno.ENOMEM)
        loop.run_pass(0)
        loop.run_pass(1_000_000_000)
        loop.run_pass(0)

    with caplog.at_level(logging.WARNING):
        fails()
        fails()
        assert [record.getMessage().partition(" cannot")[0] for record in caplog.records] == ["what comes to /reports"]
        ring.mail.append((-errno.EBADMSG, b"READY=1"))
        ring.complete(ring.one("poll"), 1)
        loop.run_pass(0)
        assert came == [b"READY=1"]
        fails()
    assert len(caplog.records) == 2
