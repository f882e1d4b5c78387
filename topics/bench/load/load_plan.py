"""A load as values: groups of connections, their requests, and how their answers end."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import IntEnum

from topics.bench.load._load import lib

LABEL = b'"n":1000000000000000,"t":1000000000000000000'
"""A record's number and when it was due, as a request has them before the client fills them in."""
TOPIC_NUMBER = b"########"


class AnswerEnd(IntEnum):
    """How an answer ends: by Content-Length, after lines or bytes, or with a pattern."""

    HTTP = lib.TP_END_HTTP
    LINES = lib.TP_END_LINES
    BYTES = lib.TP_END_BYTES
    PATTERN = lib.TP_END_PATTERN


class Take(IntEnum):
    """The part of the last answer that a request repeats: nothing, all seqs, the next cursor."""

    NOTHING = lib.TP_TAKE_NOTHING
    SEQS = lib.TP_TAKE_SEQS
    NEXT = lib.TP_TAKE_NEXT


@dataclass(frozen=True, slots=True)
class LoadMessage:
    """One request.

    head: all of it. With `take`, the head up to the value of Content-Length; `body` and `rest` are
    the body before and after what is taken. first: taken before there is an answer. asks: how many
    records its answer has, whose numbers begin at `asks_from`; 0: it is not known.
    """

    head: bytes
    body: bytes = b""
    rest: bytes = b""
    take: Take = Take.NOTHING
    first: bytes | None = None
    asks_from: int = 0
    asks: int = 0


@dataclass(frozen=True, slots=True)
class LoadGroup:
    """Connections that do the same. topics/bench/load/load.h explains each field.

    record_bytes: what the records that it hears may have, as `labelled_json` takes it.
    """

    name: str
    connections: int
    messages: tuple[LoadMessage, ...] = ()
    steps: tuple[str, ...] = ("answer",)
    rate: float = 0.0
    topics: int = 0
    first_topic: int = 0
    openings: tuple[bytes, ...] = ()
    ready: bytes = b""
    end: AnswerEnd = AnswerEnd.HTTP
    size: int = 0
    answer: bytes = b""
    refused: bytes = b""
    ping: bytes = b""
    pong: bytes = b""
    channel: int = 0
    hears: bool = False
    hears_itself: bool = True
    record_bytes: tuple[int, ...] = ()
    shares: bool = False
    marks: bool = False
    waits: bool = False
    stops_empty: bool = False
    may_be_throttled: bool = False
    most_requests: int = 0
    samples: int = 0


def http_request(method: str, path: str, body: bytes, host: str = "127.0.0.1", key: str = "") -> bytes:
    """Return the exact bytes of one keep-alive request. key: a bearer token."""
    return _head(method, path, host, key) + str(len(body)).encode() + b"\r\n\r\n" + body


def taking_request(
    path: str,
    body: tuple[bytes, bytes],
    take: Take,
    first: bytes | None = None,
    *,
    host: str = "127.0.0.1",
    key: str = "",
) -> LoadMessage:
    """Return a POST whose body has a part of the last answer between its two parts."""
    return LoadMessage(_head("POST", path, host, key), body[0], body[1], take, first)


def _head(method: str, path: str, host: str, key: str) -> bytes:
    token = f"Authorization: Bearer {key}\r\n" if key else ""
    lines = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{token}Content-Type: application/json\r\nContent-Length: "
    return lines.encode()


def labelled_json(size: int) -> bytes:
    """Return a JSON object with a label, padded to `size` bytes."""
    bare = b"{" + LABEL + b"}"
    room = size - len(bare) - len(b',"x":""')
    return bare if room < 0 else b"{" + LABEL + b',"x":"' + b"x" * room + b'"}'


def write_body(size: int, count: int) -> bytes:
    """Return the body of a write of `count` records, each `labelled_json`."""
    rows = b",".join([b'{"data":' + labelled_json(size) + b"}"] * count)
    return b'{"records":[' + rows + b"]}"


def json_sizes(sizes: Collection[int]) -> list[int]:
    """Return what records of these sizes take: the smallest is its label."""
    return [len(labelled_json(size)) for size in sizes]


def numbered_json(size: int, number: int) -> bytes:
    """Return `labelled_json` with a number, and with no time."""
    return labelled_json(size).replace(b'"n":1000000000000000', b'"n":%d' % (10**15 + number), 1)
