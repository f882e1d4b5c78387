"""Replies to commands, as compact JSON texts. Source: wire contract 11.2 to 11.4."""

from __future__ import annotations

import msgspec

from topics.engine.values.results import AppendResult
from topics.engine.values.write_answer import (
    NO_LIST,
    STAGED,
    WRITTEN,
    listed,
    repeat_times,
    with_null_list,
    write_times,
)
from topics.errors import RequestError

ACK = b'{"op":"ack","request_id":%b,'
"""The beginning of an ack, up to the members of the answer to a write. Value: request_id, JSON."""


def error(request_id: bytes | None, code: str, message: str) -> bytes:
    """Build an error frame. request_id: JSON, or None if the error answers no command."""
    echo = b"" if request_id is None else b'"request_id":%b,' % request_id
    return b'{"op":"error",%b"code":"%b","message":%b}' % (echo, code.encode(), msgspec.json.encode(message or code))


def refusal(request_id: bytes, cause: RequestError) -> bytes:
    """Build the error reply of a command."""
    return error(request_id, cause.code, cause.message)


def pong(request_id: bytes) -> bytes:
    return b'{"op":"pong","request_id":%b}' % request_id


def unsubscribed(request_id: bytes, topics: list[str], prefixes: list[str]) -> bytes:
    """Build the reply of an unsubscribe. prefixes: not shown if there are none."""
    names = msgspec.json.encode(topics)
    return b'{"op":"unsubscribed","request_id":%b,"topics":%b%b}' % (request_id, names, _prefixes_member(prefixes))


def subscribed(request_id: bytes, topics: dict[str, dict[str, int]], prefixes: list[str]) -> bytes:
    """Build the reply of a subscribe. topics: name to from_seq, head_seq and earliest_seq.

    prefixes: not shown if there are none.
    """
    named = msgspec.json.encode(topics)
    return b'{"op":"subscribed","request_id":%b,"topics":%b%b}' % (request_id, named, _prefixes_member(prefixes))


def _prefixes_member(prefixes: list[str]) -> bytes:
    return b',"prefixes":' + msgspec.json.encode(prefixes) if prefixes else b""


def ack(
    request_id: bytes,
    topic: str,
    result: AppendResult,
    total_ns: int,
    window_ns: int,
    *,
    with_seqs: bool,
    piece: int = 0,
) -> bytes:
    """Build the reply of a publish that is committed for its class, or of a staged piece of a part.

    window_ns: how long commits are delayed under pressure, or 0.
    """
    first, last, head, count, created, deduped, append_ns, sync_ns = result
    times = repeat_times(total_ns) if deduped else write_times(total_ns, append_ns, sync_ns, window_ns)
    ended = (b"true" if created else b"false", b"true" if deduped else b"false", times)
    if result.staged:
        return _STAGED % (request_id, msgspec.json.encode(topic), piece, count, *ended)
    seqs = listed(first, last) if with_seqs else NO_LIST
    return _ACK % (request_id, msgspec.json.encode(topic), first, last, seqs, head, count, *ended)


def far_ack(request_id: bytes, answer: bytes) -> bytes:
    """Build the ack of a publish by the answer of 7.5, which another core has given.

    It has all members of an ack, except `seqs` where none are listed.
    """
    return ACK % request_id + with_null_list(answer)[1:]


_ACK, _STAGED = (ACK + members + b"}" for members in (WRITTEN, STAGED))
