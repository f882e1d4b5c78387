"""The errors of the library, made of the answers of a server."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from topics.client.exchange import ServerAnswer
from topics.common.values import arguments
from topics.errors import (
    CorruptError,
    DiskFullError,
    LogReadOnlyError,
    NoAnswerError,
    NoLogFileError,
    NotCreatedError,
    RequestError,
    StorageError,
    TopicsError,
    WouldBlockError,
)

_STORAGE = {
    "read_only": LogReadOnlyError,
    "disk_full": DiskFullError,
    "no_log_file": NoLogFileError,
    "not_created": NotCreatedError,
}
_NOTHING_STORED = (NoLogFileError, NotCreatedError)


class Refusal(NamedTuple):
    """A refusal of a server."""

    error: TopicsError
    may_pass: bool
    """Whether the same request may succeed later."""
    is_certain: bool
    """Whether the request has changed nothing."""


class _Error(msgspec.Struct):
    code: str
    message: str
    detail: dict[str, Any] | None = None


class _Body(msgspec.Struct):
    error: _Error


_decoder = msgspec.json.Decoder(_Body)


def refusal_of(answer: ServerAnswer, url: str, *, has_key: bool = True) -> Refusal:
    """Return the refusal that an answer other than 2xx is. has_key: whether a key was sent."""
    if 300 <= answer.status < 400 and answer.location:
        sends = f"{url} answered {answer.status} and sends to {arguments.shown(answer.location)}"
        return Refusal(NoAnswerError(f"{sends}: give the address that answers itself as the url"), False, True)
    try:
        body = _decoder.decode(answer.body).error
    except (msgspec.DecodeError, RecursionError):
        what = f"{answer.status} {answer.content_type.partition(';')[0]}".strip()
        error = NoAnswerError(
            f"{url} answered {what}, which no topics server does: check the url, and proxies before it"
        )
        return Refusal(error, answer.status >= 500 or answer.status == 429, answer.status < 500)
    code, message, detail = body.code, body.message, body.detail
    if code == "unauthorized":
        message = f"{url} does not know the key that was sent" if has_key else f"{url} wants a key, and none was sent"
        message += ": give one of its keys as `key`"
    if answer.status == 503:
        return Refusal(RequestError(code, message, detail), True, True)
    if answer.status == 429:
        named = detail or {}
        retry_ms = named.get("retry_after_ms")
        if isinstance(retry_ms, int):
            return Refusal(WouldBlockError("admission", message, retry_ms), True, True)
        # a limit on how many there may be: it does not pass by itself
        return Refusal(RequestError(code, message, detail), "limit" not in named, True)
    if answer.status == 500:
        storage = _storage_error(message.removeprefix("storage failed: "), detail)
        nothing = isinstance(storage, _NOTHING_STORED)
        return Refusal(storage, nothing, nothing)
    return Refusal(RequestError(code, message, detail), False, True)


def _storage_error(message: str, detail: dict[str, Any] | None) -> StorageError:
    named = detail or {}
    kind = _STORAGE.get(named.get("reason", ""))
    if kind is not None:
        return kind(message)
    if "seq" in named:
        return CorruptError(message, detail)
    other = StorageError(message)
    other.detail = detail
    return other
