"""Heartbeats of very many streams: a pass sends some of them."""

from __future__ import annotations

from tests.engine.fake_store import FakeLoop
from topics.http.streams.heartbeats import BEATS_A_PASS, Heartbeats

INTERVAL_MS = 10_000


class Stream:
    def __init__(self, heartbeats: Heartbeats, beats: list[int], number: int) -> None:
        self.interval_ns = INTERVAL_MS * 1_000_000
        self.last_ns = 0
        self._number = number
        self._beats = beats
        self._heartbeats = heartbeats
        self.ends: list[Stream] = []
        """Streams that end with its heartbeat."""

    def beat(self) -> None:
        self._beats.append(self._number)
        for stream in self.ends:
            self._heartbeats.remove(stream)


def test_streams_that_are_due_at_once_beat_some_a_pass() -> None:
    """R-SSE-4."""
    loop, beats = FakeLoop(), list[int]()
    heartbeats = Heartbeats(loop)
    streams = [Stream(heartbeats, beats, number) for number in range(2 * BEATS_A_PASS + 5)]
    for stream in streams:
        stream.last_ns = loop.clock.monotonic_ns()
        heartbeats.add(stream)
    for _ in range(2):
        beats.clear()
        loop.advance_ms(INTERVAL_MS)
        counts = [len(beats)]
        while loop.next_due_ms() == 0:
            loop.advance_ms(0)
            counts.append(len(beats))
        assert counts == [BEATS_A_PASS, 2 * BEATS_A_PASS, 2 * BEATS_A_PASS + 5]
        assert beats == list(range(len(streams)))
    assert (len(heartbeats), loop.waiting) == (len(streams), 1)


def test_a_stream_that_ends_while_others_beat_has_no_heartbeat() -> None:
    """R-SSE-4: itself, one of this pass, and one of the next."""
    loop, beats = FakeLoop(), list[int]()
    heartbeats = Heartbeats(loop)
    streams = [Stream(heartbeats, beats, number) for number in range(BEATS_A_PASS + 5)]
    for stream in streams:
        stream.last_ns = loop.clock.monotonic_ns()
        heartbeats.add(stream)
    streams[0].ends = [streams[0], streams[1], streams[BEATS_A_PASS + 1]]
    for _ in range(3):
        loop.advance_ms(INTERVAL_MS)
        loop.advance_ms(0)
    assert beats.count(0) == 1
    assert not {1, BEATS_A_PASS + 1} & set(beats)
    assert beats.count(2) == 3
    assert len(heartbeats) == len(streams) - 3
