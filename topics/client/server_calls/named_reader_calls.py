"""Calls on named readers."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from topics.client import parsing
from topics.client.attempts import Repeat, ServerCall
from topics.client.exchange import ServerRequest
from topics.client.parsing import HandedOut
from topics.client.server_calls.request_parts import (
    MAX_BATCH_BYTES,
    MAX_LIMIT,
    MAX_WAIT_MS,
    encode,
    segment,
    shown_begin,
    topic_path,
)
from topics.common.values import arguments
from topics.common.values.answers import ReaderState
from topics.common.values.delivered import Page
from topics.common.values.reader_config import Opening

_RELEASE_S = 2.0


def _reader_path(topic: str, name: str) -> str:
    return f"{topic_path(topic)}/readers/{segment('name', name)}"


def put_reader(asked: Opening, known: ReaderState | None) -> ServerCall[tuple[ReaderState, str | None]]:
    """Return the call that makes a reader, or changes the settings that are given.

    Answer: its state, and the incarnation of its topic.
    """
    body: dict[str, Any] = {"incarnation": ""}
    config = None if known is None else known.config
    for name in ("delivery", "holds", "trims"):
        given = getattr(asked, name)
        value = given if given is not None or config is None else getattr(config, name)
        if value is not None:
            body[name] = value
    begin = asked.begin
    if begin.kind == "seq":
        body["from_seq"] = begin.number
    else:
        body["from"] = shown_begin(begin)
    request = ServerRequest("PUT", _reader_path(asked.topic, asked.name), encode(body))
    return ServerCall(request, parsing.reader_put, changes=True)


def reader_state(topic: str, name: str, *, incarnation: str | None = None) -> ServerCall[ReaderState]:
    query = "" if incarnation is None else f"?incarnation={quote(incarnation)}"
    return ServerCall(ServerRequest("GET", _reader_path(topic, name) + query), parsing.reader_state)


def readers(topic: str) -> ServerCall[list[ReaderState]]:
    return ServerCall(ServerRequest("GET", f"{topic_path(topic)}/readers"), parsing.reader_states)


def delete_reader(topic: str, name: str) -> ServerCall[bool]:
    return ServerCall(
        ServerRequest("DELETE", _reader_path(topic, name)), parsing.was_deleted, Repeat.NEVER, changes=True
    )


def read_reader(
    topic: str,
    name: str,
    *,
    limit: int,
    max_bytes: int,
    wait_ms: int,
    lease_ms: int,
    peek: bool,
    done: str | None = None,
    commit_every: int = 1,
    incarnation: str | None = None,
) -> ServerCall[tuple[Page, HandedOut]]:
    """Return the call for the next page of a named reader.

    A page whose answer is lost comes again once its lease has ended. One with a gap is only shown.
    """
    limit = arguments.count("limit", limit)
    max_bytes = arguments.count("max_bytes", max_bytes)
    wait_ms = arguments.count("wait_ms", wait_ms)
    wait_ms = min(wait_ms, MAX_WAIT_MS)
    body: dict[str, Any] = {"wait_ms": wait_ms, "lease_ms": lease_ms, "peek": peek, "incarnation": incarnation}
    body |= {"stop_at_gap": True, "done": done, "commit_every": commit_every}
    if limit or max_bytes:
        body["limit"] = min(limit or MAX_LIMIT, MAX_LIMIT)
    if max_bytes:
        body["max_batch_bytes"] = min(max_bytes, MAX_BATCH_BYTES)
    return ServerCall(
        ServerRequest("POST", f"{_reader_path(topic, name)}/read", encode(body)),
        lambda answer: parsing.handed_page(topic, answer),
        wait_s=wait_ms / 1000,
    )


def commit(
    topic: str, name: str, token: str | None, seq: int | None, *, incarnation: str | None = None
) -> ServerCall[int]:
    body = {"token": token, "seq": seq, "incarnation": incarnation}
    request = ServerRequest("POST", f"{_reader_path(topic, name)}/commit", encode(body))
    return ServerCall(request, parsing.committed_seq, changes=True)


def release(topic: str, name: str, token: str) -> ServerCall[int]:
    """Return the call that gives a page back. It takes no long time: a lease ends by itself."""
    request = ServerRequest("POST", f"{_reader_path(topic, name)}/commit", encode({"token": token, "release": True}))
    return ServerCall(request, parsing.committed_seq, within=_RELEASE_S)


def seek(topic: str, name: str, seq: int, *, incarnation: str | None = None) -> ServerCall[int]:
    seq = arguments.count("seq", seq)
    body = {"seq": seq, "incarnation": incarnation}
    request = ServerRequest("POST", f"{_reader_path(topic, name)}/seek", encode(body))
    return ServerCall(request, parsing.committed_seq, Repeat.NEVER, changes=True)
