"""When a request is sent, repeated and given up: a generator without socket and clock.

It yields what is to be done: a `Send`, whose outcome is sent back, or a pause in seconds. A call of
the client is one such generator, which `return`s the result, or raises the error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeVar

from topics.client.client_options import ClientOptions
from topics.client.exchange import ServerAnswer, ServerRequest
from topics.client.refusal import refusal_of
from topics.errors import NoAnswerError, OutcomeUnknown, RequestError, TopicsError, UsageError, WouldBlockError

R = TypeVar("R")
_SHARE = 0.5
"""Share of its window within which a key is repeated: networks delay what was sent."""
_DEFAULT_WINDOW_MS = 120_000
"""The window of a topic that a write creates."""
_QUIET_S = 1.0
"""How long a call repeats before one line is logged: a restarted server answers sooner."""
_log = logging.getLogger("topics.client")
_SETTLING = {400, 413, 422}
"""Statuses of refusals that a write which was done would not get: its key or part answers first."""


class Repeat(Enum):
    """Whether a request may be sent again once bytes of it were sent."""

    ALWAYS = 1
    """It changes nothing, or sets a state, which then holds as of the last time."""
    BY_KEY = 2
    """Within the topic's idempotency window."""
    NEVER = 3
    """A repetition could do it twice, or undo later changes of other clients."""


class ServerCall(NamedTuple, Generic[R]):
    """One request, and what its answer means."""

    request: ServerRequest
    parse: Callable[[bytes], R]
    repeat: Repeat = Repeat.ALWAYS
    changes: bool = False
    """Whether the request changes something, so that its outcome matters."""
    window: ServerCall[int] | None = None
    """Asks for the window of a call that is repeated by key, in ms."""
    is_misuse: bool = False
    """Whether `invalid_request` is of an argument for which the library raises UsageError."""
    wait_s: float = 0.0
    """How long the server may wait before it answers."""
    within: float | None = None
    """Seconds that it may take, if that is less than `timeout`; None: as long as other calls."""
    patience: float | None = None
    """Seconds for which it waits for room in the server's log; None: as long as for all else."""
    as_repeated: Callable[[R], R] | None = None
    """Marks the result of a request whose first try may have been done."""


class Send(NamedTuple):
    """A request to send, and to wait so long for its answer without a byte of it."""

    request: ServerRequest
    quiet_s: float
    whole_s: float
    """How long all of it may take."""


class Lost(NamedTuple):
    """A request without an answer."""

    was_sent: bool
    """Whether the server may have got it."""
    why: str
    is_final: bool = False
    """Whether another try would end as this one did."""


Steps = Generator["Send | float", "ServerAnswer | Lost | None", R]


class Attempts:
    """How the calls of one client are sent and repeated.

    now: seconds of a clock that never steps back. random: a number from 0 to 1.
    """

    def __init__(self, url: str, options: ClientOptions, now: Callable[[], float], random: Callable[[], float]) -> None:
        self.url = url
        self._options = options
        self._now = now
        self._random = random

    def steps(self, call: ServerCall[R]) -> Steps[R]:
        """Send a call until it is answered.

        Raises: the refusal of the server; NoAnswerError, there is none; OutcomeUnknown, there is
        none, and it may be done.
        """
        began, most = self._now(), self._options.timeout + call.wait_s
        result = yield from self._until(call, began, began + min(most, most if call.within is None else call.within))
        return result

    def _until(self, call: ServerCall[R], began: float, deadline: float) -> Steps[R]:
        options = self._options
        pause, tries, in_doubt, why, is_noted = options.first_pause, 0, False, "", False
        while True:
            tries += 1
            left = max(deadline - self._now(), 0.001)
            outcome = yield Send(call.request, min(options.attempt_timeout + call.wait_s, left), left)
            wait, refusal, until = 0.0, None, deadline
            if isinstance(outcome, ServerAnswer):
                if 200 <= outcome.status < 300:
                    result = self._parsed(call, outcome)
                    return result if call.as_repeated is None or not in_doubt else call.as_repeated(result)
                refused = refusal_of(outcome, self.url, has_key=options.key is not None)
                refusal, wait, why = refused.error, outcome.retry_after, str(refused.error)
                if not refused.may_pass:
                    if in_doubt and call.window is not None and outcome.status not in _SETTLING:
                        raise self._unknown(tries, why, "the last one was refused") from refusal
                    if call.is_misuse and isinstance(refusal, RequestError) and refusal.code == "invalid_request":
                        raise UsageError(refusal.message)
                    raise refusal
                may_be_done = not refused.is_certain
                if call.patience is not None and isinstance(refusal, WouldBlockError):
                    until = min(deadline, began + call.patience)
            else:
                assert outcome is not None, "a request has an outcome"
                if outcome.is_final:
                    raise _without_answer(call, f"{self.url} was asked, and {outcome.why}")
                may_be_done, why = outcome.was_sent, outcome.why
            in_doubt = in_doubt or (may_be_done and call.changes)
            if in_doubt and call.repeat is Repeat.NEVER:
                raise self._unknown(tries, why, "to repeat it might do it twice, or undo what was done since")
            if may_be_done and call.repeat is Repeat.BY_KEY:  # each time: topics change
                window_ms = yield from self._window_of(call, deadline)
                if window_ms is None:
                    raise self._unknown(tries, why, "its topic's idempotency window could not be asked for in time")
                if not window_ms:
                    reason = "its topic has no idempotency window, or none that this key may read (window_ms)"
                    raise self._unknown(tries, why, reason)
                deadline = min(deadline, began + window_ms / 1000 * _SHARE)
                until = min(until, deadline)
            wait = max(wait, pause * (0.5 + self._random() / 2))
            pause = min(pause * 2, options.longest_pause)
            if self._now() + wait >= until:
                if in_doubt:
                    raise self._unknown(tries, why, "there is no time to repeat it")
                raise refusal or NoAnswerError(
                    f"no answer from {self.url} after {_times(tries)}: {why}: start the server, or correct the url"
                )
            if not is_noted and self._now() - began >= _QUIET_S:
                is_noted = True
                _log.warning("waiting for %s: %s", self.url, why)
            yield wait

    def _window_of(self, call: ServerCall[R], deadline: float) -> Steps[int | None]:
        """Ask for the window of a call's topic, until that deadline. None: there is no answer."""
        if call.window is None:
            return _DEFAULT_WINDOW_MS
        try:
            window = yield from self._until(call.window, self._now(), deadline)
        except RequestError as error:
            if error.code == "topic_not_found":
                return _DEFAULT_WINDOW_MS
            return self._options.window_ms or 0
        except NoAnswerError:
            return self._options.window_ms
        except TopicsError:
            return self._options.window_ms or 0
        return window

    def _parsed(self, call: ServerCall[R], answer: ServerAnswer) -> R:
        try:
            return call.parse(answer.body)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise _without_answer(
                call,
                f"{self.url} answered {answer.status} with what no topics server says ({error}): "
                "check the url, and whether this client is as new as the server",
            ) from None

    def _unknown(self, tries: int, why: str, reason: str) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"no answer from {self.url} after {_times(tries)} ({why}), and {reason}: it may be done, or not"
        )


def _without_answer(call: ServerCall[Any], message: str) -> NoAnswerError:
    return OutcomeUnknown(message) if call.changes else NoAnswerError(message)


def _times(tries: int) -> str:
    return "one try" if tries == 1 else f"{tries} tries"


def closed() -> UsageError:
    """Return the error of a call of a client that was closed."""
    return UsageError("this client is closed: connect again")
