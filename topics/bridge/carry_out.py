"""The loop of a bridge out of a server: read, store, and begin again after an error."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from topics.bridge.bridge_errors import SourceDownError, TargetDownError
from topics.bridge.bridge_messages import BridgePosition, TopicBatch
from topics.bridge.bridge_numbers import BridgeNumbers
from topics.bridge.bridge_target import BridgeTarget, TargetSession
from topics.clock import Clock
from topics.errors import TopicsError

_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.1, 10.0
_TAKE_S = 0.5
_log = logging.getLogger("topics.bridge")


class TakenBatches(Protocol):
    """Batches as they come, see `Prefetch`."""

    @property
    def ended(self) -> bool: ...

    def take(self, wait_s: float, bytes_max: int, messages_max: int) -> list[TopicBatch]: ...

    def close(self) -> None: ...


class Retries:
    """Delays after errors: each twice as long as the one before, with jitter, until one succeeds.

    random: a number from 0 to 1. patience_s: how long after the last good step an error is still
    waited for. A step after an error is good once it has carried something.
    """

    def __init__(
        self,
        stop: threading.Event,
        numbers: BridgeNumbers,
        random: Callable[[], float],
        clock: Clock,
        patience_s: float = math.inf,
    ) -> None:
        self._stop = stop
        self._numbers = numbers
        self._random = random
        self._clock = clock
        self._patience_s = patience_s
        self._delay_s = _FIRST_DELAY_S
        self._good_ns = clock.monotonic_ns()
        self._is_failing = False

    def failed(self, error: TopicsError) -> None:
        """Count an error, and wait. Raises: TopicsError, it has waited for long enough."""
        side = "source" if isinstance(error, SourceDownError) else "target"
        self._numbers.failures.labels(side).inc()
        self._numbers.up.set(0)
        delay_s = self._delay_s * (0.5 + self._random() / 2)
        self._delay_s = min(self._delay_s * 2, _LONGEST_DELAY_S)
        self._is_failing = True
        lasts_s = (self._clock.monotonic_ns() - self._good_ns) / 1e9
        if lasts_s + delay_s > self._patience_s:
            raise TopicsError(
                f"{error}; nothing was carried for {self._patience_s:g} s (--timeout): start what does not answer, and "
                "run this again, which continues there"
            ) from error
        _log.warning("%s; next try in %.1f s", error, delay_s)
        self._stop.wait(delay_s)

    def succeeded(self, *, has_carried: bool) -> None:
        """Begin anew with short delays; has_carried: and with all of the patience."""
        self._delay_s = _FIRST_DELAY_S
        if has_carried or not self._is_failing:
            self._good_ns = self._clock.monotonic_ns()
            self._is_failing = False
        self._numbers.up.set(1)


class CarryOut:
    """Carries batches until it is stopped, or the source ends.

    source(locate): batches from where `locate` says that each topic continues.
    """

    def __init__(
        self,
        target: BridgeTarget,
        source: Callable[[Callable[[str], BridgePosition | None]], TakenBatches],
        *,
        numbers: BridgeNumbers,
        clock: Clock,
        retries: Retries,
        stop: threading.Event,
        batch_bytes: int,
        batch_messages: int,
    ) -> None:
        self._target = target
        self._source = source
        self._numbers = numbers
        self._clock = clock
        self._retries = retries
        self._stop = stop
        self._batch_bytes = batch_bytes
        self._batch_messages = batch_messages

    def run(self) -> bool:
        """Carry. Return whether it is done; False: it was stopped before.

        Raises: FencedError, OversizeError, UsageError, RequestError; TopicsError, see `Retries`.
        """
        while not self._stop.is_set():
            try:
                session = self._target.open()
            except TargetDownError as error:
                self._retries.failed(error)
                continue
            try:
                if self._carry(session):
                    return True
            except (TargetDownError, SourceDownError) as error:
                session.close()
                self._retries.failed(error)
            finally:
                session.close()
        return False

    def _carry(self, session: TargetSession) -> bool:
        """Carry in one session. Return whether the bridge is done."""
        source = self._source(session.position)
        try:
            while not self._stop.is_set():
                batches = source.take(_TAKE_S, self._batch_bytes, self._batch_messages)
                if batches:
                    began = self._clock.monotonic_ns()
                    session.put(batches)
                    self._count(batches, self._clock.monotonic_ns() - began)
                elif source.ended:
                    return True
                self._retries.succeeded(has_carried=bool(batches))
        finally:
            source.close()
        return False

    def _count(self, batches: Sequence[TopicBatch], ns: int) -> None:
        numbers = self._numbers
        numbers.seconds.observe(ns / 1e9)
        numbers.newest.set(self._clock.now_ms() / 1000)
        for batch in batches:
            marks = sum(message.is_mark for message in batch.messages)
            numbers.records.labels(batch.topic).inc(len(batch.messages) - marks)
            numbers.marks.labels(batch.topic).inc(marks)
            numbers.bytes.labels(batch.topic).inc(batch.size)
            numbers.lag.labels(batch.topic).set(max(0, batch.head_seq - batch.position.seq))
