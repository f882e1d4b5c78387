"""Appends without a wait for each: gathered, and written as one request a topic.

A gathered batch is written when it is full, when a caller asks for one of its results, or after a
moment, whichever comes first. Its records are then one request, in the order they came. Each has a
`Pending` that gives its seq once its topic's durability class is met.
"""

from __future__ import annotations

import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from topics.clock import Clock
from topics.common.values import arguments
from topics.common.values.record_json import bytes_of, encoded
from topics.common.values.written import BYTES_TYPES
from topics.embedded.appends.joined import BYTES_MAX, ROWS_MAX
from topics.embedded.appends.offers import Admission
from topics.embedded.appends.pending import Answer, Pending
from topics.embedded.driving.calls import Start
from topics.embedded.driving.interrupts import signals
from topics.engine.state.append_request import AppendRequest
from topics.engine.values.results import AppendResult
from topics.errors import RequestError, TopicsError

if TYPE_CHECKING:
    from topics.embedded.driving.driver import Driver

_WAIT_NS = 1_000_000
_SENT_MAX = 8
"""Cap on batches in progress; at the cap, a caller waits for the oldest."""


class PendingRecords(Answer):
    """Records of one topic that are gathered, and then written as one request."""

    __slots__ = ("_gatherer", "are_json", "bytes", "sent", "texts", "topic")

    def __init__(self, gatherer: Gatherer, driver: Driver, topic: str, *, are_json: bool) -> None:
        super().__init__(driver)
        self._gatherer = gatherer
        self.topic = topic
        self.are_json = are_json
        """Whether the records are JSON texts, or all of them are bytes."""
        self.texts: list[bytes] = []
        self.bytes = 0
        self.sent = False

    def hurry(self, *, here: bool = True) -> None:
        if not self.sent:
            self._gatherer.send_now(self, here=here)

    def outcome_of(self, index: int) -> Any:
        """Return the seq of a record, or why it has none."""
        if isinstance(self.outcome, AppendResult):
            return self.outcome.first_seq + index
        outcome = super().outcome_of(index)
        return outcome.first_seq if isinstance(outcome, AppendResult) else outcome


class Requests(Protocol):
    """The maker of requests that append gathered records. Raises: TopicsError."""

    def __call__(self, topic: str, payloads: list[bytes], *, are_json: bool) -> AppendRequest: ...


class Gatherer:
    """Batches by topic, filled by any thread.

    A batch is admitted as an append that a thread waits for: after those that wait for room.
    """

    def __init__(self, driver: Driver, clock: Clock, requests: Requests, admission: Admission) -> None:
        self._driver = driver
        self._clock = clock
        self._requests = requests
        self._admission = admission
        self._lock = threading.RLock()
        self._filling: dict[str, PendingRecords] = {}
        self._sent: deque[PendingRecords] = deque()

    @property
    def gathers_here(self) -> bool:
        """Whether this thread holds the lock: the caller runs within it, in a finalizer perhaps."""
        return self._lock._is_owned()  # type: ignore[attr-defined,no-any-return]

    def append(self, topic: str, value: Any) -> Pending[int]:
        self._driver.check()  # a program that takes no results would miss that nothing is written
        if type(topic) is not str:
            topic = arguments.text("topic", topic)
        if type(value) is dict:  # nearly always: the checks below are a tenth of an append
            are_json = True
            text = encoded(value)
        else:
            arguments.plain_value(value)
            are_json = not isinstance(value, BYTES_TYPES)
            text = encoded(value) if are_json else bytes_of(value)
        # a signal's handler, in the midst of the lines below
        if self._lock._is_owned():  # type: ignore[attr-defined]
            return self._append_by_itself(topic, text, are_json=are_json)
        with self._lock:
            batch = self._filling.get(topic)
            if batch is not None and batch.are_json is are_json:
                texts = batch.texts
                index = len(texts)
                if index < ROWS_MAX - 1 and batch.bytes + len(text) < BYTES_MAX:
                    batch.bytes += len(text)
                    texts.append(text)
                    return Pending(batch, index)
        return self._append_last_or_first(topic, text, are_json=are_json)

    def _append_last_or_first(self, topic: str, text: bytes, *, are_json: bool) -> Pending[int]:
        """Append a record that begins a batch, or fills it.

        A record of the other kind ends the batch before it.
        """
        waits_for: PendingRecords | None = None
        signals.hold()
        try:
            with self._lock:
                batch = self._filling.get(topic)
                if batch is not None and batch.are_json is not are_json:
                    del self._filling[topic]
                    waits_for = self._send(batch)
                    batch = None
                if batch is None:
                    batch = self._filling[topic] = PendingRecords(self, self._driver, topic, are_json=are_json)
                    if len(self._filling) == 1:
                        self._driver.maintenance.gather_until(self._clock.monotonic_ns() + _WAIT_NS, self.flush)
                soon: Pending[int] = Pending(batch, len(batch.texts))
                batch.texts.append(text)
                batch.bytes += len(text)
                if len(batch.texts) >= ROWS_MAX or batch.bytes >= BYTES_MAX:
                    del self._filling[topic]
                    waits_for = self._send(batch) or waits_for
        finally:
            signals.release()
        if waits_for is not None and not self._driver.drives_here:
            waits_for.wait(None)
        return soon

    def _append_by_itself(self, topic: str, text: bytes, *, are_json: bool) -> Pending[int]:
        batch = PendingRecords(self, self._driver, topic, are_json=are_json)
        batch.texts.append(text)
        self._send(batch)
        return Pending(batch, 0)

    def flush(self) -> None:
        """Write all gathered records."""
        with self._lock:  # other threads may be handing some over
            if not self._filling:
                return
        signals.hold()
        try:
            with self._lock:
                filling, self._filling = self._filling, {}
                for batch in filling.values():
                    self._send(batch)
        finally:
            signals.release()

    def drain(self, wait_ms: int) -> None:
        """Write all gathered records, and wait for their answers and for an empty line of appends.

        wait_ms: the longest time for either. Raises as a call of the driver does.
        """
        self.flush()
        self._admission.drain(wait_ms)
        if self._admission.line:
            return  # there was no room in that time
        until_ns = self._clock.monotonic_ns() + wait_ms * 1_000_000
        while (oldest := self._take_oldest()) is not None:
            oldest.wait(max(0, until_ns - self._clock.monotonic_ns()) // 1_000_000)

    def _take_oldest(self) -> PendingRecords | None:
        with self._lock:  # other threads append, and take answered batches
            return self._sent.popleft() if self._sent else None

    def disown(self) -> None:
        """Drop all records in a forked child, which does not write them."""
        self._lock = threading.RLock()
        self._filling.clear()
        self._sent.clear()

    def send_now(self, batch: PendingRecords, *, here: bool) -> None:
        """Write a batch that is still being filled. here: by this thread, if no other drives."""
        signals.hold()
        try:
            with self._lock:
                if not batch.sent:
                    self._filling.pop(batch.topic, None)
                    self._send(batch, here=here)
        finally:
            signals.release()

    def _send(self, batch: PendingRecords, *, here: bool = True) -> PendingRecords | None:
        """Hand a batch over, under the lock so that batches keep their order.

        here: to this thread, if no other drives.
        Returns: a batch to wait for if too many are in progress, else None.
        """
        batch.sent = True
        start = self._start_of(batch)
        if start is not None:
            (self._driver.hand_over if here else self._driver.submit)(start, batch.answer)
        sent = self._sent
        while sent and sent[0].outcome is not None:
            sent.popleft()
        if batch.outcome is None:
            sent.append(batch)
        return sent[0] if len(sent) > _SENT_MAX else None

    def _start_of(self, batch: PendingRecords) -> Start[AppendResult] | None:
        """Return the call that appends a batch; None if it has got an error."""
        count, request_of = len(batch.texts), partial(self._request_of, batch)
        try:
            request = self._requests(batch.topic, batch.texts, are_json=batch.are_json)
        except TopicsError as error:
            if isinstance(error, RequestError) and count > 1:  # there is no request for all of them
                return self._admission.appending_each(count, request_of)
            batch.answer(error)
            return None
        if count > 1:
            return self._admission.appending_or_each(request, count, request_of)
        return self._admission.appending(request)

    def _request_of(self, batch: PendingRecords, index: int) -> AppendRequest:
        """Return the request for one record of a batch, so that a bad one fails only itself."""
        return self._requests(batch.topic, [batch.texts[index]], are_json=batch.are_json)
