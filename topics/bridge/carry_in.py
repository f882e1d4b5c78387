"""The loop of a bridge into a server: read, append, and begin again after an error."""

from __future__ import annotations

import threading
from collections.abc import Callable

from topics.bridge.bridge_errors import SourceDownError, TargetDownError
from topics.bridge.bridge_numbers import BridgeNumbers
from topics.bridge.carry_out import Retries
from topics.bridge.incoming import BridgeMark, IncomingSession
from topics.bridge.topic_sink import TopicSink
from topics.clock import Clock

_WAIT_S = 0.5
Opened = Callable[[Callable[[str], BridgeMark | None]], IncomingSession]
"""Opens the other side, which continues where the marks say. Raises: SourceDownError."""


class CarryIn:
    """Carries batches into topics here until it is stopped, or the other side ends."""

    def __init__(
        self,
        opened: Opened,
        sink: TopicSink,
        *,
        numbers: BridgeNumbers,
        clock: Clock,
        retries: Retries,
        stop: threading.Event,
    ) -> None:
        self._opened = opened
        self._sink = sink
        self._numbers = numbers
        self._clock = clock
        self._retries = retries
        self._stop = stop

    def run(self) -> bool:
        """Carry. Return whether it is done; False: it was stopped before.

        Raises: FencedError, UsageError, RequestError; TopicsError, see `Retries`.
        """
        while not self._stop.is_set():
            try:
                session = self._opened(self._sink.mark)
            except (SourceDownError, TargetDownError) as error:
                self._retries.failed(error)
                continue
            try:
                if self._carry(session):
                    return True
            except (SourceDownError, TargetDownError) as error:
                self._retries.failed(error)
            finally:
                session.close()
        return False

    def _carry(self, session: IncomingSession) -> bool:
        """Carry in one session. Return whether the bridge is done."""
        numbers = self._numbers
        while not self._stop.is_set():
            batches = session.next(_WAIT_S)
            for batch in batches:
                began = self._clock.monotonic_ns()
                marks = self._sink.put(batch)
                numbers.seconds.observe((self._clock.monotonic_ns() - began) / 1e9)
                numbers.newest.set(self._clock.now_ms() / 1000)
                numbers.records.labels(batch.topic).inc(len(batch.messages) - marks)
                numbers.marks.labels(batch.topic).inc(marks)
                numbers.bytes.labels(batch.topic).inc(sum(len(message.value or b"") for message in batch.messages))
            for name, count in session.left().items():
                numbers.lag.labels(name).set(count)
            self._retries.succeeded(has_carried=bool(batches))
            if not batches and session.ended:
                return True
        return False
