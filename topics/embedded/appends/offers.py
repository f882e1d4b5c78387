"""The admission of appends: those that may wait for room in the log, and those that may not wait.

An append is admitted when it is handed to the engine. Before that nothing of it is there, so it can
be refused or cancelled; afterwards it is written. Appends that wait form a line, in their order.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from functools import partial

from topics.config import Config
from topics.embedded.appends.pending import Answer, Outcome, Pending
from topics.embedded.calls import Start
from topics.embedded.driver import Driver, closed_log
from topics.engine.engine import Engine
from topics.engine.state import refusals
from topics.engine.state.append_request import AppendRequest
from topics.engine.values.results import AppendResult, Done
from topics.errors import TopicsError, UsageError, WouldBlockError
from topics.loop import Loop
from topics.loop.timers import Timer
from topics.store.format.log_format import BATCH_HEADER_BYTES

_ORDER = 5
"""Place among the hooks at the end of a pass: before the engine's."""
_FRAME_BYTES = 128
"""Bytes of a frame beside its record, unless tag or node are unusually long."""


class Offer:
    """An append that is not admitted yet.

    wait_ms: the longest time in the line, None for as long as it takes; not used by a plain one.
    is_plain: waits for those before it only, and then gets what the engine answers.
    cancelled: set by any thread; an append that is not admitted by then leaves nothing.
    """

    __slots__ = (
        "cancelled",
        "counted",
        "done",
        "expired",
        "is_plain",
        "promised",
        "request",
        "size",
        "timer",
        "wait_ms",
    )

    def __init__(self, request: AppendRequest, wait_ms: int | None, *, is_plain: bool = False) -> None:
        self.request = request
        self.size = request.rows.size + _FRAME_BYTES * request.rows.count + BATCH_HEADER_BYTES
        self.wait_ms = wait_ms
        self.is_plain = is_plain
        self.cancelled = False
        self.promised = False
        """Whether it counts in `Admission._promised`."""
        self.counted = False
        """Whether it counts in `Admission._pendings`."""
        self.expired = False
        self.timer: Timer | None = None
        self.done: Done[AppendResult] = _nothing


class Admission:
    """The line of one log. The driving thread moves it; any thread may make offers."""

    def __init__(
        self,
        loop: Loop,
        engine: Engine,
        appending: Callable[[AppendRequest], Start[AppendResult]],
        driver: Driver,
        config: Config,
    ) -> None:
        """appending: returns the call that appends."""
        self._appending = appending
        self._loop = loop
        self._engine = engine
        self._driver = driver
        self._max_pendings = config.max_pendings
        self._bounds_unsynced = config.max_unsynced_bytes > 0
        self.line: deque[Offer] = deque()
        self._lock = threading.RLock()
        """Held for the two numbers below, for no operation and no other lock."""
        self._promised = 0
        """Bytes of `nowait` offers that the driving thread has not seen yet."""
        self._pendings = 0
        """Number of `nowait` offers without an answer."""
        self._wants_sync = False
        self._when_empty: list[Callable[[], None]] = []
        loop.on_pass_end(self._look, _ORDER)

    # --- any thread --------------------------------------------------------------------------------------------------
    def nowait(self, request: AppendRequest) -> Pending[AppendResult]:
        """Make an offer that is certain to be admitted.

        Waits for no operation, no thread and no pass. Raises: WouldBlockError, and nothing of it is
        there.
        """
        offer = Offer(request, None)
        self._driver.check()
        with self._lock:
            refusal = self._refusal_now(offer)
            if refusal is None:
                self._promised += offer.size
                self._pendings += 1
                offer.promised = offer.counted = True
        if refusal is not None:
            if self._bounds_unsynced and refusal.reason == "admission":
                self._wants_sync = True
                self._driver.maintenance.stir()
            raise refusal
        answer = Answer(self._driver)
        try:
            self._driver.submit_soon(partial(self.begin, offer), partial(self._on_answer, offer, answer))
        except BaseException:
            self._keep_promise(offer)
            self._stop_counting(offer)
            raise
        return Pending(answer)

    def _refusal_now(self, offer: Offer) -> WouldBlockError | None:
        if self._max_pendings and self._pendings >= self._max_pendings:
            return refusals.too_many_pendings(self._max_pendings)
        if self.line:
            return refusals.appends_before_it()
        return self._engine.refusal(offer.request.topic, offer.size, self._promised)

    def _on_answer(self, offer: Offer, answer: Answer, outcome: Outcome) -> None:
        self._stop_counting(offer)
        answer.answer(outcome)

    def _stop_counting(self, offer: Offer) -> None:
        with self._lock:
            if offer.counted:
                offer.counted = False
                self._pendings -= 1

    def _keep_promise(self, offer: Offer) -> None:
        with self._lock:
            if offer.promised:
                offer.promised = False
                self._promised -= offer.size

    def offering(self, offer: Offer) -> Start[AppendResult]:
        return lambda done: self.begin(offer, done)

    def drain(self, wait_ms: int) -> None:
        """Wait until the line is empty, at most so long. Raises as a call of the driver does."""
        self._driver.wait_for(self._call_when_empty, wait_ms)

    def disown(self) -> None:
        """Replace the lock in a forked child, because another thread may have held it."""
        self._lock = threading.RLock()

    # --- the driving thread ------------------------------------------------------------------------------------------
    def begin(self, offer: Offer, done: Done[AppendResult]) -> None:
        """Admit an offer, let it wait in the line, or refuse it."""
        self._keep_promise(offer)
        offer.done = done
        if not self.line and (offer.cancelled or self._refusal(offer) is None):
            self._admit(offer)
        elif offer.wait_ms == 0 and not offer.is_plain:
            self._refuse(offer)
        else:
            self.line.append(offer)
            if offer.wait_ms is not None:
                offer.timer = self._loop.call_later(offer.wait_ms * 1_000_000, partial(self._on_deadline, offer))

    def end(self) -> None:
        """Refuse what is left in the line, because the log is closed."""
        while self.line:
            self._answer(self.line.popleft(), closed_log())

    def _look(self) -> None:
        """Admit from the line what there is room for. Called at the end of each pass."""
        if self._wants_sync:
            self._wants_sync = False
            self._engine.begin_sync()
        line = self.line
        while line and (line[0].cancelled or self._refusal(line[0]) is None):
            self._admit(line.popleft())
        if not line and self._when_empty:
            calls, self._when_empty = self._when_empty, []
            for call in calls:
                call()

    def _call_when_empty(self, call: Callable[[], None]) -> None:
        if self.line:
            self._when_empty.append(call)
        else:
            call()

    def _refusal(self, offer: Offer) -> WouldBlockError | None:
        if offer.is_plain:
            return None
        refusal = self._engine.refusal(offer.request.topic, offer.size, 0)
        if refusal is not None and self._bounds_unsynced and refusal.reason == "admission":
            self._engine.begin_sync()
        return refusal

    def _admit(self, offer: Offer) -> None:
        if offer.cancelled:
            self._answer(offer, UsageError("this append was cancelled before it was admitted"))
        else:
            self._appending(offer.request)(partial(self._on_outcome, offer))

    def _on_outcome(self, offer: Offer, outcome: AppendResult | TopicsError) -> None:
        if isinstance(outcome, WouldBlockError) and not (offer.is_plain or offer.expired):
            self.line.appendleft(offer)  # it waited in the engine, and there is no room now
        else:
            self._answer(offer, outcome)

    def _on_deadline(self, offer: Offer) -> None:
        offer.expired, offer.timer = True, None
        with contextlib.suppress(ValueError):  # it is admitted, so it is waited for
            self.line.remove(offer)
            self._refuse(offer)

    def _refuse(self, offer: Offer) -> None:
        self._answer(offer, self._refusal(offer) or refusals.appends_before_it())

    @staticmethod
    def _answer(offer: Offer, outcome: AppendResult | TopicsError) -> None:
        if offer.timer is not None:
            offer.timer.cancel()
            offer.timer = None
        offer.done(outcome)


def _nothing(_outcome: AppendResult | TopicsError) -> None:
    pass
