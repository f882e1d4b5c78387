"""The answers of cores to their portions of a request, and the answer that a call gets for one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from topics.errors import RequestError
from topics.http.plan.call import Call

UNKNOWN = 0
"""In place of a status: the core was asked, and has ended before it answered."""
AWAY = 503
"""The status of a core that does not serve (yet, or any more)."""


class PortionAnswer(NamedTuple):
    """The answer of a core. status: `UNKNOWN`, if it was asked and has ended meanwhile."""

    core: int
    status: int
    body: bytes
    content_type: bytes
    headers: bytes


def is_away(answer: PortionAnswer) -> bool:
    """Return whether a core was not there, or does not serve, so that its portion is missing."""
    return answer.status in {UNKNOWN, AWAY}


def away(core: int) -> RequestError:
    """Return the refusal of a request that lacks the portion of a core (R-CORE-1)."""
    message = f"core {core} of the server does not serve now, and the answer needs all of them; try again in a second"
    return RequestError("not_ready", message, {"core": core})


def failed(call: Call, answers: Iterable[PortionAnswer]) -> bool:
    """Answer a call with the first portion that is an error. Return whether there is one."""
    for answer in answers:
        if is_away(answer) or answer.status >= 400:
            pass_on_or_name(call, answer)
            return True
    return False


def pass_on(call: Call, answer: PortionAnswer) -> None:
    """Answer a call as a core has answered its portion."""
    call.pass_on(answer.status, answer.body, answer.content_type, answer.headers)


def pass_on_or_name(call: Call, answer: PortionAnswer) -> None:
    """Answer a call as a core has answered its portion, or with the name of a core that is away.

    The core may have asked others itself, and then its answer has the name of that one.
    """
    if is_away(answer) and not _names_core(answer):
        call.fail(away(answer.core))
    else:
        pass_on(call, answer)


def _names_core(answer: PortionAnswer) -> bool:
    return answer.status == AWAY and "core" in (error_in(answer).detail or {})


class _Refusal(msgspec.Struct):
    code: str
    message: str
    detail: dict[str, object] | None = None


class _Envelope(msgspec.Struct):
    error: _Refusal


def error_in(answer: PortionAnswer) -> RequestError:
    """Return the error that a core has answered with."""
    refusal = msgspec.json.decode(answer.body, type=_Envelope).error
    return RequestError(refusal.code, refusal.message, refusal.detail)


def refusal_in(answer: PortionAnswer) -> RequestError:
    """Return the error that a core has answered with, and its number in the detail (R-CORE-2)."""
    if answer.status == UNKNOWN:
        return away(answer.core)
    error = error_in(answer)
    return RequestError(
        error.code, f"core {answer.core}: {error.message}", {"core": answer.core} | (error.detail or {})
    )
