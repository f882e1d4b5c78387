"""The admission of appends: those that may wait for room in the log, and those that may not wait.

An append is admitted when it is handed to the engine. Before that nothing of it is there, so it can
be refused or cancelled; afterwards it is written. Appends that wait form a line, in their order.
"""

from __future__ import annotations

import contextlib
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from topics.config import Config
from topics.embedded.appends.joined import BYTES_MAX, ROWS_MAX, JoinedAppends
from topics.embedded.appends.pending import Outcome, Pending
from topics.embedded.driving.calls import Start
from topics.embedded.driving.driver import Driver, closed_log
from topics.embedded.driving.interrupts import signals
from topics.engine.engine import Engine
from topics.engine.state import refusals
from topics.engine.state.append_request import PLAIN, AppendRequest
from topics.engine.values.results import AppendResult, Done
from topics.errors import RequestError, TopicsError, UsageError, WouldBlockError
from topics.loop import Loop, PassEnd
from topics.loop.timers import Timer
from topics.store.format.log_format import BATCH_HEADER_BYTES, FRAME_ROOM_BYTES
from topics.store.format.rows import NO_ROWS, Rows

_ADMITTED_A_PASS = 100
"""Most appends that leave the line in a pass."""
_NEVER_ADMITTED = 1 << 63


def bytes_in_log(rows: Rows) -> int:
    return rows.size + FRAME_ROOM_BYTES * rows.count + BATCH_HEADER_BYTES


class Offer:
    """An append that is not admitted yet.

    wait_ms: the longest time in the line, None for as long as it takes; not used by a plain one.
    is_plain: waits for those before it only, and then gets what the engine answers.
    cancelled: set by any thread; an append that is not admitted by then leaves nothing.
    turn: the number of its first admission, or `_NEVER_ADMITTED`.
    """

    __slots__ = (
        "cancelled",
        "done",
        "expired",
        "is_plain",
        "request",
        "size",
        "timer",
        "turn",
        "wait_ms",
    )

    def __init__(self, request: AppendRequest, wait_ms: int | None, *, is_plain: bool = False) -> None:
        self.request = request
        self.size = bytes_in_log(request.rows)
        self.wait_ms = wait_ms
        self.is_plain = is_plain
        self.cancelled = False
        self.expired = False
        self.turn = _NEVER_ADMITTED
        self.timer: Timer | None = None
        self.done: Done[AppendResult] = _nothing


class JoinedOffer(Offer):
    """An offer of `nowait`, which others may join until it is begun. It waits as long as it takes.

    promised: it counts in `Admission._promised`, and is not begun.
    posted: `Driver.posted` when it was made. key: its place in `Admission._joinable`.
    """

    __slots__ = ("joined", "key", "posted", "promised")

    def __init__(self, request: AppendRequest, driver: Driver) -> None:
        super().__init__(request, None)
        self.joined = JoinedAppends(driver, request)
        self.promised = False
        self.posted = driver.posted
        self.key: tuple[str, int] | None = None


class PlaceInLine(Offer):
    """A place in the line. `then` is called once the appends before it are admitted or refused."""

    __slots__ = ("then",)

    def __init__(self, then: Callable[[], None]) -> None:
        super().__init__(AppendRequest("", NO_ROWS), None, is_plain=True)
        self.then = then


class OneByOne(Offer):
    """Appends that are admitted one by one, because their topic may refuse some of them.

    each: their offers, made as they are admitted.
    """

    __slots__ = ("each",)

    def __init__(self, each: Iterator[Offer]) -> None:
        super().__init__(AppendRequest("", NO_ROWS), None, is_plain=True)
        self.each = each
        self.done = self._answer_each

    def _answer_each(self, outcome: AppendResult | TopicsError) -> None:
        """Answer those that are left, because the log is closed."""
        for offer in self.each:
            offer.done(outcome)


class Admission:
    """The line of one log. The driving thread moves it; any thread may make offers."""

    def __init__(
        self,
        loop: Loop,
        engine: Engine,
        appending: Callable[[AppendRequest], Start[AppendResult]],
        driver: Driver,
        config: Config,
        *,
        line: deque[Offer],
    ) -> None:
        """appending: returns the call that appends. line: empty; the driver looks at it, too."""
        self._appending = appending
        self._loop = loop
        self._engine = engine
        self._driver = driver
        self._max_pendings = config.max_pendings
        self._bounds_unsynced = config.max_unsynced_bytes > 0
        self.line = line
        self._lock = threading.RLock()
        """Held for the values below, for no operation and no other lock."""
        self._promised = 0
        """Bytes of `nowait` offers that the driving thread has not seen yet."""
        self._pendings = 0
        """Number of `nowait` appends without an answer."""
        self._joined = 0
        """Number of those that joined another one's offer."""
        self.refused = {"admission": 0, "rollover": 0}
        """Number of appends that were refused here, by reason."""
        self._joinable: dict[tuple[str, int], JoinedOffer] = {}
        """By topic and thread the latest offer of plain `nowait` appends, until it is begun."""
        self._wants_sync = False
        self._when_empty: list[Callable[[], None]] = []
        self._lacks_room = False
        """Whether the first append of the line waits for room, and not only for its turn."""
        self._pass = 0
        """Number of the pass in which appends left the line last."""
        self._left = 0
        """Number of appends that may still leave it in that pass."""
        self._turns = 0
        """Number of appends that were admitted."""
        loop.on_pass_end(self._look, PassEnd.TURNS)

    # --- any thread --------------------------------------------------------------------------------------------------
    def nowait(self, request: AppendRequest) -> Pending[AppendResult]:
        """Make an offer that is certain to be admitted, or join the latest one of this thread.

        Waits for no operation, no thread and no pass. Raises: WouldBlockError, and nothing of it is
        there.
        """
        inside, thread = self._driver.inside, threading.get_ident()
        signals.hold()
        is_nested = thread in inside  # a finalizer runs in the midst of another append
        inside.add(thread)
        try:
            return self._join_or_offer(request, (request.topic, thread), is_nested=is_nested)
        finally:
            if not is_nested:
                inside.discard(thread)
            signals.release()

    def _join_or_offer(self, request: AppendRequest, key: tuple[str, int], *, is_nested: bool) -> Pending[AppendResult]:
        driver, rows, size = self._driver, request.rows, bytes_in_log(request.rows)
        driver.check()
        is_plain = request[2:] == PLAIN and not is_nested
        part, count = (rows.buffer, rows.spans), rows.count
        with self._lock:
            refusal = self._refusal_now(request.topic, size)
            latest = self._joinable.get(key) if is_plain else None
            if refusal is None:
                if latest is not None:
                    joined = latest.joined
                    others, index, posted = joined.others, joined.count, driver.posted
                    # A finalizer may begin the offer at any call: there is none until it is joined.
                    if (
                        latest.promised
                        and latest.posted == posted  # no call has been posted since
                        and joined.rows + count <= ROWS_MAX
                        and latest.size + size <= BYTES_MAX
                    ):
                        self._promised += size
                        self._pendings += 1
                        self._joined += 1
                        latest.size += size
                        joined.rows += count
                        others.append(part)
                        return Pending(joined, index)
                offer = JoinedOffer(request, driver)
                self._promised += size
                self._pendings += 1
                offer.promised = True
        if refusal is not None:
            if self._bounds_unsynced and refusal.reason == "admission":
                self._wants_sync = True
                driver.maintenance.stir()
            self.refused[refusal.reason] += 1
            try:
                raise refusal
            finally:
                refusal = None  # its traceback holds this frame: it would be a cycle
        if not is_plain:
            driver.posted += 1  # later ones do not overtake it
        try:
            driver.submit_soon(partial(self.begin, offer), partial(self._on_answer, offer))
        except BaseException as error:
            self._on_answer(offer, error)
            raise
        if is_plain:
            with self._lock:
                if offer.promised:
                    offer.key = key
                    self._joinable[key] = offer
        return Pending(offer.joined, 0)

    def appending(self, request: AppendRequest) -> Start[AppendResult]:
        """Return the call of an append that is admitted at once, unless others wait before it."""

        def start(done: Done[AppendResult]) -> None:
            if self.line:
                self.begin(Offer(request, None, is_plain=True), done)
            else:
                self._appending(request)(done)

        return start

    def appending_or_each(
        self, request: AppendRequest, count: int, request_of: Callable[[int], AppendRequest]
    ) -> Start[AppendResult]:
        """Return the call of `appending`, which appends one by one if all together are refused.

        Its answer is then as that of `appending_each`. They are the next in the line, but do not
        wait for room, because it was found for the refused request.
        """

        def start(done: Done[AppendResult]) -> None:
            def on_outcome(outcome: AppendResult | TopicsError) -> None:
                if isinstance(outcome, RequestError):
                    self._admit_each(_offers(count, request_of, done))
                else:
                    done(outcome)

            self.appending(request)(on_outcome)

        return start

    def appending_each(self, count: int, request_of: Callable[[int], AppendRequest]) -> Start[AppendResult]:
        """Return the call that appends `count` records one by one, after the appends in the line.

        request_of: returns the request for one of them, or raises the error that is its outcome.
        The answer is a list of outcomes.
        """

        def start(done: Done[AppendResult]) -> None:
            self.line.append(OneByOne(_offers(count, request_of, done)))
            self._admit_line()

        return start

    def _refusal_now(self, topic: str, size: int) -> WouldBlockError | None:
        if self._max_pendings and self._pendings >= self._max_pendings:
            return refusals.too_many_pendings(self._max_pendings)
        if self.line and self._lacks_room:
            return refusals.appends_before_it()
        return self._engine.refusal(topic, size, self._promised + self._driver.quick.bytes)

    def _on_answer(self, offer: JoinedOffer, outcome: Outcome | list[Outcome]) -> None:
        if offer.joined.outcome is not None:
            return  # it was posted, and then posting it failed
        self._keep_promise(offer)
        with self._lock:
            self._pendings -= offer.joined.count
            self._joined -= len(offer.joined.others)
        offer.joined.answer(outcome)

    def _keep_promise(self, offer: Offer) -> None:
        """Count an offer of `nowait` no longer as promised. From here on no append joins it."""
        if not isinstance(offer, JoinedOffer):
            return
        with self._lock:
            if offer.promised:
                offer.promised = False
                self._promised -= offer.size
                if offer.key is not None and self._joinable.get(offer.key) is offer:
                    del self._joinable[offer.key]

    @property
    def pendings(self) -> int:
        """Appends and other calls without a waiting caller that have no answer yet."""
        return self._driver.pendings + self._joined

    def offering(self, offer: Offer) -> Start[AppendResult]:
        return lambda done: self.begin(offer, done)

    def drain(self, wait_ms: int) -> None:
        """Wait until the line is empty, at most so long. Raises as a call of the driver does."""
        self._driver.wait_for(self._call_when_empty, wait_ms)

    def disown(self) -> None:
        """Replace the lock in a forked child, because another thread may have held it.

        No append joins an offer of before.
        """
        self._lock = threading.RLock()
        self._joinable.clear()

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
            self._lacks_room |= not self.line
            self.line.append(offer)
            if offer.wait_ms is not None:
                offer.timer = self._loop.call_later(offer.wait_ms * 1_000_000, partial(self._on_deadline, offer))

    def after_line(self, then: Callable[[], None]) -> None:
        """Call `then` once the appends that are in the line now have left it; not after `end`."""
        if self.line:
            self.line.append(PlaceInLine(then))
        else:
            then()

    def end(self) -> None:
        """Refuse what is left in the line, because the log is closed."""
        while self.line:
            self._answer(self.line.popleft(), closed_log())

    def _look(self) -> None:
        """Admit from the line what there is room for. Called at the end of each pass."""
        if self._wants_sync:
            self._wants_sync = False
            self._engine.begin_sync()
        if self.line:
            self._admit_line()
        if not self.line and self._when_empty:
            calls, self._when_empty = self._when_empty, []
            for call in calls:
                call()

    def _admit_line(self) -> None:
        """Admit from the line what there is room for, some a pass."""
        line, passes = self.line, self._loop.stats().passes
        if passes != self._pass:
            self._pass, self._left = passes, _ADMITTED_A_PASS
        while line and (line[0].cancelled or self._refusal(line[0]) is None):
            if not self._left:
                self._lacks_room = False
                self._loop.another_pass()
                return
            self._left -= 1
            self._admit(line.popleft())
        self._lacks_room = bool(line)

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
        if isinstance(offer, PlaceInLine):
            offer.then()
            return
        if isinstance(offer, OneByOne):
            self._admit_next(offer)
            return
        if offer.cancelled:
            self._answer(offer, UsageError("this append was cancelled before it was admitted"))
            return
        if offer.turn == _NEVER_ADMITTED:
            self._turns += 1
            offer.turn = self._turns
        request = offer.request
        if isinstance(offer, JoinedOffer) and offer.joined.others:
            if not self._engine.takes_plain(request.topic):
                self._admit_each(_offers_of(offer))
                return
            request = offer.joined.request()
        self._appending(request)(partial(self._on_outcome, offer))

    def _admit_each(self, offers: Iterator[Offer]) -> None:
        """Let appends be the next in the line, and admit some of them."""
        self.line.appendleft(OneByOne(offers))
        self._admit_line()

    def _admit_next(self, several: OneByOne) -> None:
        """Admit one of several appends. If there is no room for it, it is before the others."""
        offer = next(several.each, None)
        if offer is None:
            several.done = _nothing
            return
        self.line.appendleft(several)
        if offer.cancelled or self._refusal(offer) is None:
            self._admit(offer)
        else:
            self.line.appendleft(offer)

    def _on_outcome(self, offer: Offer, outcome: AppendResult | TopicsError) -> None:
        if isinstance(outcome, WouldBlockError) and not (offer.is_plain or offer.expired):
            self._lacks_room = True
            # It waited in the engine, and there is no room now. Those before it stay before it.
            self.line.insert(bisect_left(self.line, offer.turn, key=_turn), offer)
        else:
            self._answer(offer, outcome)

    def _on_deadline(self, offer: Offer) -> None:
        offer.expired, offer.timer = True, None
        with contextlib.suppress(ValueError):  # it is admitted, so it is waited for
            self.line.remove(offer)
            self._refuse(offer)

    def _refuse(self, offer: Offer) -> None:
        refusal = self._refusal(offer) or refusals.appends_before_it()
        self.refused[refusal.reason] += 1
        self._answer(offer, refusal)

    @staticmethod
    def _answer(offer: Offer, outcome: AppendResult | TopicsError) -> None:
        if offer.timer is not None:
            offer.timer.cancel()
            offer.timer = None
        done, offer.done = offer.done, _nothing  # no cycle is left for Python's collector
        done(outcome)


def _turn(offer: Offer) -> int:
    return offer.turn


def _offers_of(offer: JoinedOffer) -> Iterator[Offer]:
    """Yield an offer for each joined append. Their outcomes are that of `offer`."""
    on_answer = _collector(offer.joined.count, offer.done)
    offer.done = _nothing
    for index, request in enumerate(offer.joined.requests()):
        each = Offer(request, None)
        each.done = partial(on_answer, index)
        yield each


def _offers(count: int, request_of: Callable[[int], AppendRequest], done: Done[AppendResult]) -> Iterator[Offer]:
    """Yield an offer for each of `count` records, which waits for no room."""
    on_answer = _collector(count, done)
    for index in range(count):
        try:
            offer = Offer(request_of(index), None, is_plain=True)
            offer.done = partial(on_answer, index)
        except TopicsError as error:
            offer = Offer(AppendRequest("", NO_ROWS), None, is_plain=True)
            offer.cancelled, offer.done = True, partial(_answer_with, on_answer, index, error)
        yield offer


def _answer_with(
    on_answer: Callable[[int, Outcome], None], index: int, error: TopicsError, _outcome: AppendResult | TopicsError
) -> None:
    on_answer(index, error)


def _collector(count: int, done: Done[AppendResult]) -> Callable[[int, Outcome], None]:
    """Return the function that takes each outcome by its index; `done` is called with all."""
    outcomes: list[Outcome | None] = [None] * count
    left = count

    def on_answer(index: int, outcome: Outcome) -> None:
        nonlocal left
        outcomes[index] = outcome
        left -= 1
        if not left:
            done([each for each in outcomes if each is not None])  # type: ignore[arg-type]  # those of several take a list

    return on_answer


def _nothing(_outcome: AppendResult | TopicsError) -> None:
    pass
