"""Waits for a socket on a scripted ring: they end when the callback says so, and the loop closes the socket."""

from __future__ import annotations

import errno

from tests.loop.fake_ring import fake_loop


def test_it_waits_again_until_the_callback_has_had_enough() -> None:
    loop, ring = fake_loop()
    wanted = [True, True, False]
    loop.poll_socket(20, "the end of 20", lambda: wanted.pop(0))
    for _ in range(3):
        poll = ring.one("poll")
        assert poll.arguments == (20,)
        ring.complete(poll, 1)
        loop.run_pass(0)
    assert (wanted, ring.take("poll")) == ([], [])


def test_closing_cancels_the_wait_and_then_closes_the_socket() -> None:
    loop, ring = fake_loop()
    ring.answers.pop("close")
    called: list[bool] = []

    def called_back() -> bool:
        called.append(True)
        return True

    polls = loop.poll_socket(20, "the end of 20", called_back)
    poll = ring.one("poll")
    polls.stop_accepting()
    polls.stop_accepting()
    loop.run_pass(0)
    assert ring.one("cancel").arguments == (poll.user_data,)
    ring.complete(poll, -errno.ECANCELED)
    loop.run_pass(0)
    assert (ring.one("close").arguments, called) == ((20,), [])
