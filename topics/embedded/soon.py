"""Appends that nobody waits for one by one: gathered, and written as one request a topic.

A gathered batch leaves when it is full, when somebody asks for one of its results, or after a moment, whichever comes
first; then its records are one request, in the order they came. Each has a `Soon` that tells its seq once its
topic's class is met.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from topics.clock import Clock
from topics.embedded import arguments
from topics.embedded.interrupts import signals
from topics.engine.values.results import AppendResult, Done
from topics.engine.write.value_rows import encoded
from topics.errors import RequestError, TopicsError

if TYPE_CHECKING:
    from topics.embedded.calls import Start
    from topics.embedded.driver import Driver

_ROWS_MAX = 1000
_BYTES_MAX = 256 * 1024
_WAIT_NS = 1_000_000
_SENT_MAX = 8
"""Batches that may be under way; who gathers faster than the disk takes them waits for the oldest."""


Outcome = AppendResult | BaseException


class PendingRecords:
    """Records of one topic on their way. outcome: None until answered; a list when each has one of its own."""

    __slots__ = ("bytes", "outcome", "sent", "texts", "topic", "waiting")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.texts: list[bytes] = []
        self.bytes = 0
        self.sent = False
        self.outcome: Outcome | list[Outcome] | None = None
        self.waiting: list[Done[None]] = []
        """Calls of callers that wait; whoever drives answers them."""

    def answer(self, outcome: Outcome | list[Outcome]) -> None:
        """Called by whoever drives."""
        self.outcome = outcome
        for done in self.waiting:
            done(None)

    def when_answered(self, done: Done[None]) -> None:
        """Called by whoever drives."""
        if self.outcome is None:
            self.waiting.append(done)
        else:
            done(None)


class Soon:
    """One append on its way."""

    __slots__ = ("_batch", "_gatherer", "_index")

    def __init__(self, gatherer: Gatherer, batch: PendingRecords, index: int) -> None:
        self._gatherer = gatherer
        self._batch = batch
        self._index = index

    def done(self) -> bool:
        """Whether `result` would return, or raise, at once."""
        return self._batch.outcome is not None

    def result(self) -> int:
        """The record's seq, once its topic's class is met. Raises what `append` would have raised."""
        outcome = self._batch.outcome
        if outcome is None:
            outcome = self._gatherer.wait(self._batch)
        if isinstance(outcome, AppendResult):
            return outcome.first_seq + self._index
        if isinstance(outcome, list):
            one = outcome[self._index]
            if isinstance(one, AppendResult):
                return one.first_seq
            raise one
        raise outcome


class Gatherer:
    """Batches by topic, filled by any thread. appending(topic, texts): the call that writes them."""

    def __init__(
        self, driver: Driver, clock: Clock, appending: Callable[[str, list[bytes]], Start[AppendResult]]
    ) -> None:
        self._driver = driver
        self._clock = clock
        self._appending = appending
        self._lock = threading.RLock()
        self._filling: dict[str, PendingRecords] = {}
        self._sent: deque[PendingRecords] = deque()
        driver.maintenance.on_gathered = self.flush

    @property
    def gathers_here(self) -> bool:
        """This thread holds the lock: whoever asks was called from within, by a finalizer perhaps."""
        return self._lock._is_owned()  # type: ignore[attr-defined,no-any-return]

    def append(self, topic: str, value: Any) -> Soon:
        arguments.text("topic", topic)
        arguments.plain_value(value)
        text = encoded(value)
        if self._lock._is_owned():  # type: ignore[attr-defined]  # a signal's handler, in the midst of the lines below
            return self._append_by_itself(topic, text)
        with self._lock:
            batch = self._filling.get(topic)
            if batch is not None:
                texts = batch.texts
                index = len(texts)
                if index < _ROWS_MAX - 1 and batch.bytes + len(text) < _BYTES_MAX:
                    batch.bytes += len(text)
                    texts.append(text)
                    return Soon(self, batch, index)
        return self._append_last_or_first(topic, text)

    def _append_last_or_first(self, topic: str, text: bytes) -> Soon:
        """One that begins a batch, or fills it."""
        waits_for: PendingRecords | None = None
        signals.hold(_nothing)
        try:
            with self._lock:
                batch = self._filling.get(topic)
                if batch is None:
                    batch = self._filling[topic] = PendingRecords(topic)
                    if len(self._filling) == 1:
                        self._driver.maintenance.gather_until(self._clock.monotonic_ns() + _WAIT_NS)
                soon = Soon(self, batch, len(batch.texts))
                batch.texts.append(text)
                batch.bytes += len(text)
                if len(batch.texts) >= _ROWS_MAX or batch.bytes >= _BYTES_MAX:
                    del self._filling[topic]
                    waits_for = self._send(batch)
        finally:
            signals.release()
        if waits_for is not None and not self._driver.drives_here:
            self.wait(waits_for)
        return soon

    def _append_by_itself(self, topic: str, text: bytes) -> Soon:
        batch = PendingRecords(topic)
        batch.texts.append(text)
        self._send(batch)
        return Soon(self, batch, 0)

    def flush(self) -> None:
        """Sends all there is."""
        signals.hold(_nothing)
        try:
            with self._lock:
                filling, self._filling = self._filling, {}
                for batch in filling.values():
                    self._send(batch)
        finally:
            signals.release()

    def drain(self) -> None:
        """Sends all there is, and waits until it is answered. Raises as a call of the driver does."""
        self.flush()
        while (oldest := self._take_oldest()) is not None:
            self.wait(oldest)

    def _take_oldest(self) -> PendingRecords | None:
        with self._lock:  # others append, and take what is answered
            return self._sent.popleft() if self._sent else None

    def disown(self) -> None:
        """In a forked child, where nobody will write them."""
        self._lock = threading.RLock()
        self._filling.clear()
        self._sent.clear()

    def wait(self, batch: PendingRecords) -> Outcome | list[Outcome]:
        """Until it is answered; sends it first if it is being filled."""
        if not batch.sent:
            self._send_now(batch)
        if batch.outcome is None:
            self._driver.call(batch.when_answered)
        outcome = batch.outcome
        assert outcome is not None, "waited for"
        return outcome

    def _send_now(self, batch: PendingRecords) -> None:
        signals.hold(_nothing)
        try:
            with self._lock:
                if not batch.sent:
                    self._filling.pop(batch.topic, None)
                    self._send(batch)
        finally:
            signals.release()

    def _send(self, batch: PendingRecords) -> PendingRecords | None:
        """Hands it over, under the lock so that batches keep their order; returns one to wait for if too many are."""
        batch.sent = True

        def on_answer(outcome: Outcome) -> None:
            if isinstance(outcome, RequestError) and len(batch.texts) > 1:
                self._send_each(batch)
            else:
                batch.answer(outcome)

        try:
            start = self._appending(batch.topic, batch.texts)
        except TopicsError as error:
            on_answer(error)
        else:
            self._driver.hand_over(start, on_answer)
        sent = self._sent
        while sent and sent[0].outcome is not None:
            sent.popleft()
        if batch.outcome is None:
            sent.append(batch)
        return sent[0] if len(sent) > _SENT_MAX else None

    def _send_each(self, batch: PendingRecords) -> None:
        """The batch was refused as a whole, and nothing of it written: each by itself, in their order.

        So that none suffers for another; but they come behind what was sent since.
        """
        outcomes: list[Outcome | None] = [None] * len(batch.texts)
        left = len(outcomes)

        def on_answer(index: int, outcome: Outcome) -> None:
            nonlocal left
            outcomes[index] = outcome
            left -= 1
            if not left:
                batch.answer([each for each in outcomes if each is not None])

        for index, text in enumerate(batch.texts):
            try:
                self._driver.submit(self._appending(batch.topic, [text]), partial(on_answer, index))
            except TopicsError as error:
                on_answer(index, error)


def _nothing() -> None:
    pass
