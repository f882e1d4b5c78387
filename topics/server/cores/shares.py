"""Questions for room: a request for which a share has none waits until other cores were asked.

    refused -> gathered with others -> one question to all other cores -> executed again, once

Source: R-CORE-7. There is one question at a time. What is refused meanwhile waits for the next one.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

import msgspec

from topics.engine.shared.limits import Limits, ShareSpentError
from topics.http.access.principal import UNAUTHENTICATED
from topics.http.plan.call import Call
from topics.http.plan.service import Service, Waiting
from topics.http.relay.relayed_head import inner_plan
from topics.http.spanning.portion_answers import PortionAnswer
from topics.http.spanning.portions import AskedCores, Destination, Portion
from topics.server.cores.share_ledger import ShareLedger, ShareReport

ANSWER_NS = 1_000_000_000
"""The longest time for which requests wait for an answer.

A core answers within a pass, which takes 20 ms at most, also while it recovers, or once a busy
machine has a CPU for it. What it gives later counts, too.
"""
WAITING_MAX = 1024
"""Requests that wait for one question. Others are refused, as if nothing was left.

Those of one limit, which may be that of one key, leave as many places as they take.
"""

_REPORT = msgspec.json.Decoder(ShareReport)
_ENCODER = msgspec.json.Encoder()


class _Timer(Protocol):
    def cancel(self) -> None: ...


class _Asking(Portion):
    """The question to one other core."""

    __slots__ = ()

    is_of_client = False


class _Question:
    """One question. calls: those that wait for it. added: by them, by limit. wanted: of the others.

    is_last: whether none follows for the same calls. knew_all: whether it was known what this core
    may use.
    """

    def __init__(
        self, calls: list[Waiting], added: dict[str, int], wanted: dict[str, int], *, is_last: bool, knew_all: bool
    ) -> None:
        self.calls = calls
        self.added = added
        self.wanted = wanted
        self.is_last = is_last
        self.knew_all = knew_all
        self.unanswered = 0
        self.timer: _Timer | None = None


class CoreShares:
    """The shares of one core, and its questions for more."""

    def __init__(self, cores: AskedCores, call_later: Callable[[int, Callable[[], None]], _Timer], life: int) -> None:
        """life: a number that is higher in each life of this core."""
        self._cores = cores
        self._others = [core for core in range(cores.count) if core != cores.own]
        self._call_later = call_later
        self._ledger = ShareLedger(cores.own, cores.count, life)
        self._service: Service | None = None
        self._calls: list[Waiting] = []
        """Calls that wait for the next question."""
        self._waiting_for: Counter[str] = Counter()
        """How many of them wait, by limit."""
        self._added: dict[str, int] = {}
        """Their additions, by limit."""
        self._asked: _Question | None = None
        """The question that is being asked."""
        self._reports = False
        """Whether the next question is asked in any case, so that the others know of this core."""
        self._is_due = False
        """Whether the next question begins in the next pass, or after the one that is asked."""
        self._executed: deque[Waiting] = deque()
        """Calls that are to be executed again."""
        self._has_turn = False
        """Whether a turn is waited for."""
        self.questions = 0
        """Questions that were asked."""

    def join(self, service: Service) -> None:
        """Share the limits of streams and sessions, and ask what others gave to this core."""
        self._service = service
        slots, sessions = service.streams.slots, service.streams.sessions
        self._ledger.add((slots.limit, sessions.limit))
        self._ledger.add_of_keys(slots.of_keys)
        self._ledger.add_of_keys(sessions.of_keys)
        self._report()

    def serve(self, limits: Limits) -> None:
        """Share the limits of an engine, and report what it uses."""
        self._ledger.add(limits.passing)
        self._ledger.add_stored(limits.stored)
        self._report()

    def ask(self, error: ShareSpentError, call: Waiting) -> bool:
        """See `topics.http.plan.service.AsksForRoom`."""
        left = WAITING_MAX - len(self._calls)
        if not self._others or self._waiting_for[error.limit] >= left:
            return False
        call.held_bytes = len(call.body)
        self._calls.append(call)
        self._waiting_for[error.limit] += 1
        self.ask_for_room(error.limit, error.more)
        return True

    def ask_for_room(self, limit: str, more: int) -> None:
        """See `topics.http.plan.service.AsksForRoom`."""
        self._added[limit] = self._added.get(limit, 0) + more
        self._note_due()

    def answer(self, call: Call) -> None:
        """Answer the question of another core."""
        call.reply(_ENCODER.encode(self._ledger.take_question(_REPORT.decode(call.body))))

    def _report(self) -> None:
        self._reports = True
        self._note_due()

    # --- a question --------------------------------------------------------------------------------------------------
    def _note_due(self) -> None:
        if self._others and not self._is_due:
            self._is_due = True
            if self._asked is None:
                self._call_later(0, self._begin)

    def _begin(self) -> None:
        assert self._asked is None, "two questions at a time"
        self._is_due = False
        calls, self._calls = self._calls, []
        self._waiting_for.clear()
        added, self._added = self._added, {}
        self._put(calls, added)

    def _put(self, calls: list[Waiting], added: dict[str, int], *, is_last: bool = False) -> None:
        """Ask all other cores."""
        service, cores, ledger = self._service, self._cores, self._ledger
        assert service is not None, "a question before the server was built"
        wanted = ledger.wanted(added)
        question = self._asked = _Question(calls, added, wanted, is_last=is_last, knew_all=ledger.knows_all)
        if not (wanted or self._reports) and ledger.admits(added):
            self._end(question)  # what was in use is free meanwhile
            return
        self._reports = False
        self.questions += 1
        question.unanswered = len(self._others)
        question.timer = self._call_later(ANSWER_NS, partial(self._end, question))
        plan = inner_plan(cores.inner, "POST", "shares", UNAUTHENTICATED, {})
        for core in self._others:
            body = _ENCODER.encode(ledger.report(core, wanted))
            took = Destination(core, partial(self._took, question))
            cores.ask(core, _Asking(service, took, plan, body, service.now_ns()))

    def _took(self, question: _Question, answer: PortionAnswer) -> None:
        if answer.status == 200:
            self._ledger.take_answer(_REPORT.decode(answer.body))
        question.unanswered -= 1
        if not question.unanswered:
            self._end(question)

    def _end(self, question: _Question) -> None:
        """Execute what has waited again, in turns; then ask for what was refused meanwhile."""
        if question is not self._asked:
            return  # it took too long, and these are its last answers
        if question.timer is not None:
            question.timer.cancel()
        ledger, added = self._ledger, question.added
        knows_now = ledger.knows_all and not question.knew_all
        if not question.is_last and (knows_now or (ledger.wanted(added) and not question.wanted)):
            self._reports |= knows_now
            self._put(question.calls, added, is_last=True)
            return
        self._asked = None
        if self._is_due:
            self._call_later(0, self._begin)
        self._executed += question.calls  # what they lack now is noted anew
        if not self._has_turn:
            self._execute()

    def _execute(self) -> None:
        """Execute calls again, as far as the pass has time."""
        service, executed = self._service, self._executed
        while executed and service is not None:
            if service.turns.over:
                self._has_turn = True
                service.turns.wait(self._on_turn)
                return
            call = executed.popleft()
            if not call.answered:
                call.execute_again()
                service.turns.charge()

    def _on_turn(self) -> None:
        self._has_turn = False
        if self._service is not None:
            self._service.turns.begin()
        self._execute()
