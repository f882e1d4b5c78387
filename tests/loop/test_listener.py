"""Listeners: out of descriptors, over the cap, bogus descriptors, stopping."""

from __future__ import annotations

import errno
import logging

import pytest

from tests.loop.fake_ring import FakeRing, fake_loop
from tests.loop.handlers import Recorder
from topics.loop import Listener, Loop, StreamLimits
from topics.loop.ring import F_MORE

MS = 1_000_000


def listening(limits: StreamLimits | None = None) -> tuple[Loop, FakeRing, Recorder, Listener]:
    loop, ring = fake_loop()
    handler = Recorder()
    listener = loop.listen("127.0.0.1", 0, handler, limits=limits or StreamLimits())
    loop.run_pass(0)
    loop.run_pass(0)
    return loop, ring, handler, listener


def closed(ring: FakeRing) -> list[int]:
    fds: list[int] = []
    ring.answers["close"] = lambda fd: fds.append(fd) or 0
    return fds


def test_out_of_descriptors_it_waits_gives_up_its_spare_refuses_one_and_goes_on() -> None:
    loop, ring, handler, listener = listening(StreamLimits(refusal=b"busy"))
    closes = closed(ring)
    ring.complete(ring.one("accept"), -errno.EMFILE)
    loop.run_pass(0)
    assert ring.take("accept") == [], "no accept until the back-off has passed"
    loop.run_pass(None)
    assert ring.waits[-1] == 10 * MS
    loop.run_pass(0)
    assert closes == [90], "the spare"
    accept = ring.one("accept")
    opened = ring.answers.pop("open")
    ring.complete(accept, 50, F_MORE)
    loop.run_pass(0)
    ring.complete(ring.one("open"), -errno.EMFILE)
    loop.run_pass(0)
    ring.answers["open"] = opened
    refusal = ring.one("send")
    assert refusal.arguments == (50, b"busy")
    ring.complete(refusal, 4)
    loop.run_pass(0)
    loop.run_pass(0)
    assert closes == [90, 50]
    ring.complete(accept, 51, F_MORE)
    loop.run_pass(0)
    assert handler.take() == [("connected", 1)]
    stats = loop.stats()
    assert (stats.emfile, stats.refused, stats.accepts) == (1, 1, 1)
    assert listener.accepting


def test_when_descriptors_came_back_meanwhile_no_client_is_refused() -> None:
    loop, ring, handler, _ = listening()
    ring.complete(ring.one("accept"), -errno.EMFILE)
    loop.run_pass(0)
    loop.run_pass(None)
    loop.run_pass(0)
    ring.complete(ring.one("accept"), 50, F_MORE)
    loop.run_pass(0)
    loop.run_pass(0)
    assert handler.take() == [("connected", 1)]
    assert loop.stats().refused == 0


def test_the_back_off_doubles_to_100_ms_and_is_logged_once_a_second(caplog: pytest.LogCaptureFixture) -> None:
    loop, ring, _, _ = listening()
    ring.answers["accept"] = lambda fd: -errno.EMFILE
    ring.answers["open"] = lambda *_: -errno.EMFILE
    start_ns = loop.clock.monotonic_ns()
    with caplog.at_level(logging.WARNING):
        loop.run_until(lambda: loop.clock.monotonic_ns() - start_ns > 2000 * MS)
    assert 20 <= loop.stats().emfile <= 26
    assert 2 <= len(caplog.records) <= 3
    assert "Too many open files" in caplog.text


def test_connections_over_the_cap_are_refused() -> None:
    loop, ring, handler, listener = listening(StreamLimits(max_connections=1))
    closes = closed(ring)
    accept = ring.one("accept")
    ring.complete(accept, 10, F_MORE)
    ring.complete(accept, 11, F_MORE)
    loop.run_pass(0)
    loop.run_pass(0)
    assert handler.take() == [("connected", 1)]
    assert (closes, len(listener.connections)) == ([11], 1)


def test_a_bogus_descriptor_is_closed_and_counted() -> None:
    loop, ring, handler, _ = listening()
    closes = closed(ring)
    ring.bogus.add(66)
    ring.complete(ring.one("accept"), 66, F_MORE)
    loop.run_pass(0)
    loop.run_pass(0)
    assert (handler.take(), closes, loop.stats().bogus_accepts) == ([], [66], 1)


def test_an_accept_that_ended_is_armed_again_whatever_its_result() -> None:
    loop, ring, _, _ = listening()
    ring.complete(ring.one("accept"), 10)
    loop.run_pass(0)
    ring.complete(ring.one("accept"), -errno.ECONNABORTED)
    loop.run_pass(0)
    assert ring.one("accept").arguments == (3,)


def test_stopping_waits_for_the_accept_and_keeps_open_connections() -> None:
    loop, ring, handler, listener = listening()
    closes = closed(ring)
    accept = ring.one("accept")
    ring.complete(accept, 10, F_MORE)
    loop.run_pass(0)
    listener.stop_accepting()
    listener.stop_accepting()
    loop.run_pass(0)
    assert closes == []
    ring.complete(ring.one("cancel"), 0)
    ring.complete(accept, 11, F_MORE)
    ring.complete(accept, -errno.ECANCELED)
    loop.run_pass(0)
    loop.run_pass(0)
    assert sorted(closes) == [3, 11, 90]
    assert handler.take() == [("connected", 1)]
    assert len(listener.connections) == 1
    assert not listener.accepting


def test_who_was_accepted_before_a_stop_and_waits_for_the_spare_is_refused() -> None:
    loop, ring, handler, listener = listening(StreamLimits(refusal=b"busy"))
    closes = closed(ring)
    ring.complete(ring.one("accept"), -errno.EMFILE)
    loop.run_pass(0)
    loop.run_pass(None)
    loop.run_pass(0)
    del ring.answers["open"]
    accept = ring.one("accept")
    ring.complete(accept, 50, F_MORE)
    loop.run_pass(0)
    listener.stop_accepting()
    ring.complete(ring.one("open"), 91)
    ring.complete(accept, -errno.ECANCELED)
    loop.run_pass(0)
    refusal = ring.one("send")
    assert refusal.arguments == (50, b"busy")
    ring.complete(refusal, 4)
    loop.run_pass(0)
    loop.run_pass(0)
    assert handler.take() == []
    assert sorted(closes) == [3, 50, 90, 91]
