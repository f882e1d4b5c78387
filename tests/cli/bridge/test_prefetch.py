"""Batches that a thread reads: in order, bounded, and with the error where it belongs."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from topics.bridge import prefetch as prefetch_module
from topics.bridge.bridge_errors import SourceDownError
from topics.bridge.bridge_messages import BridgePosition, TopicBatch
from topics.bridge.prefetch import Prefetch

WAIT_S = 30.0


def batch(number: int) -> TopicBatch:
    return TopicBatch("orders", (), BridgePosition("00000000000000aa", number), number, 100)


class Numbered:
    """A source of so many batches, which then raises or ends."""

    def __init__(self, count: int, error: Exception | None = None) -> None:
        self.ended = False
        self.read = 0
        self.is_full = threading.Event()
        self._count = count
        self._error = error

    def next(self, wait_ms: int) -> TopicBatch | None:
        if self.read == self._count:
            if self._error is not None:
                raise self._error
            self.ended = True
            return None
        self.read += 1
        if self.read == 3:
            self.is_full.set()
        return batch(self.read)


def numbers(prefetch: Prefetch) -> Iterator[int]:
    while not prefetch.ended:
        yield from (taken.position.seq for taken in prefetch.take(WAIT_S, 150, 10))


def test_all_batches_come_in_their_order_and_then_the_end() -> None:
    assert list(numbers(Prefetch(Numbered(20), 300))) == list(range(1, 21))


def test_the_thread_stops_reading_where_enough_waits() -> None:
    source = Numbered(20)
    prefetch = Prefetch(source, 300)
    assert source.is_full.wait(WAIT_S)
    assert [taken.position.seq for taken in prefetch.take(WAIT_S, 200, 10)] == [1, 2]
    assert source.read <= 5
    prefetch.close()


def test_an_error_comes_after_the_batches_before_it() -> None:
    prefetch = Prefetch(Numbered(2, SourceDownError("gone")), 10_000)
    taken = numbers(prefetch)
    assert [next(taken), next(taken)] == [1, 2]
    with pytest.raises(SourceDownError):
        next(taken)
    prefetch.close()


class Behind:
    """A source that is not at its head yet, and reads its second batch once it is let go."""

    ended = False

    def __init__(self) -> None:
        self.is_asked, self.let_go = threading.Event(), threading.Event()
        self._read = 0

    def next(self, wait_ms: int) -> TopicBatch | None:
        if self._read == 1:
            self.is_asked.set()
            assert self.let_go.wait(WAIT_S)
        self._read += 1
        return batch(self._read)._replace(head_seq=100)


def test_a_batch_that_is_not_full_waits_for_what_the_source_is_known_to_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other side takes as long to store few records as many."""
    monkeypatch.setattr(prefetch_module, "_FILL_S", WAIT_S)
    source = Behind()
    prefetch = Prefetch(source, 10_000)
    assert source.is_asked.wait(WAIT_S), "one batch is there"
    wait = prefetch._changed.wait

    def waits(timeout: float | None = None) -> bool:
        source.let_go.set()
        return wait(timeout)

    monkeypatch.setattr(prefetch._changed, "wait", waits)
    assert [taken.position.seq for taken in prefetch.take(WAIT_S, 400, 10)] == [1, 2, 3, 4]
    prefetch.close()
