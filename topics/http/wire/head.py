"""The check of a request head before a parser sees it.

Source: wire contract R-NET-3, R-NET-8, R-NET-9. Both parsers accept more than the contract does
(h11 takes a bare LF, and Content-Length beside chunked), each in its own way. This module therefore
decides once, over the raw bytes, what a head may contain and how its body is framed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from topics.http.wire.error_answers import BadRequestError

HEAD_END = b"\r\n\r\n"

Fields = dict[bytes, bytes]
"""Lower-case names, and values without white space around them; the first of repeated fields."""

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_REQUEST_LINE = re.compile(rb"(" + _TOKEN + rb") ([\x21-\x7e]+) HTTP/1\.([01])\r\n")
_FIELDS = re.compile(rb"(?:" + _TOKEN + rb":[\t\x20-\x7e\x80-\xff]*\r\n)*\r\n")
_TARGET = re.compile(rb"/|\*\Z|https?://(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?(?:/|\Z)")
_FRAMING = re.compile(rb"\r\n(content-length|transfer-encoding|connection|host):[ \t]*([^\r]*)", re.IGNORECASE)
_SINGLE = (b"authorization", b"content-type", b"idempotency-key", b"last-event-id", b"origin", b"sec-websocket-key")
"""Fields with one meaning: a request that gives one of them two values is refused as ambiguous."""
_LISTS = (
    b"accept",
    b"accept-encoding",
    b"connection",
    b"content-encoding",
    b"prefer",
    b"sec-websocket-version",
    b"upgrade",
)
"""Fields that are lists: several count as one with all values (RFC 9110 section 5.3)."""
EVERY_VALUE_COUNTS = frozenset(_SINGLE + _LISTS)
"""Fields whose later values count, too. Of any other field the first one is taken."""
_EVERY_VALUE_COUNTS = re.compile(rb"\r\n(" + b"|".join(_SINGLE + _LISTS) + rb"):[ \t]*([^\r]*)", re.IGNORECASE)
METHOD = re.compile(_TOKEN)
TARGET = re.compile(rb"(?:/[\x21\x22\x24-\x7e]*|\*)")
"""A target of HTTP/2: a path, or the "*" of OPTIONS."""
FIELD_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_CR = 13
_STARTS_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]")


class HeadFraming(NamedTuple):
    """The request line, and the framing of the body.

    target: as sent, starting with "/", "*" or an http scheme. version_minor: 0 or 1.
    content_length: 0 without a body and when `chunked`. connection: the options of all Connection
    fields, joined by commas.
    """

    method: bytes
    target: bytes
    version_minor: int
    content_length: int
    chunked: bool
    connection: bytes


def check_head(head: bytes, max_bytes: int, max_fields: int) -> HeadFraming:
    """Return the framing of a whole head, from the request line through the empty line.

    Raises: BadRequestError, 431 when the head or its number of fields exceeds the limit, else 400.
    """
    if len(head) > max_bytes:
        raise BadRequestError(f"the request head is over {max_bytes} bytes", 431)
    line = _REQUEST_LINE.match(head)
    if line is None:
        raise _bad_request_line()
    if head.count(b"\n") - 2 > max_fields:
        raise BadRequestError(f"the request head has more than {max_fields} fields", 431)
    if _FIELDS.fullmatch(head, line.end()) is None:
        raise BadRequestError("a header field is malformed: one `name: value` a line, ended by CR LF, never folded")
    method, target, minor = line.groups()
    if _TARGET.match(target) is None or b"#" in target:
        raise BadRequestError("the request target must be a path, without a fragment")
    length = encoding = None
    connection = b""
    hosts = 0
    for name, value in _FRAMING.findall(head, line.end() - 2):
        kind = len(name)
        if kind == 4:
            hosts += 1
        elif kind == 10:
            connection = connection + b"," + value if connection else value
        elif kind == 14:
            if length is not None:
                raise BadRequestError("Content-Length must be given once")
            length = value
        elif encoding is not None:
            raise BadRequestError("Transfer-Encoding must be given once")
        else:
            encoding = value
    version_minor = minor[0] - 48
    if hosts != 1 and (hosts or version_minor):
        raise BadRequestError("a request has one Host field")
    if encoding is not None:
        _check_encoding(encoding, version_minor, with_length=length is not None)
        return HeadFraming(method, target, version_minor, 0, True, connection)
    if length is None:
        return HeadFraming(method, target, version_minor, 0, False, connection)
    length = length.rstrip(b" \t")
    if not length.isdigit() or len(length) > 19:
        raise BadRequestError("Content-Length must be one number")
    return HeadFraming(method, target, version_minor, int(length), False, connection)


def repeated_of_head(head: bytes) -> Fields:
    """Return `repeated` of a whole head that `check_head` has passed."""
    found = _EVERY_VALUE_COUNTS.findall(head)
    return repeated((name.lower(), value.rstrip(b" \t")) for name, value in found) if len(found) > 1 else {}


def repeated(fields: Iterable[tuple[bytes, bytes]]) -> Fields:
    """Return the joined values of list fields that are given several times.

    fields: only fields of `EVERY_VALUE_COUNTS`.

    Raises: BadRequestError, a field that is no list has two different values.
    """
    first: Fields = {}
    joined: Fields = {}
    for name, value in fields:
        if name not in first:
            first[name] = value
        elif name in _LISTS:
            joined[name] = joined.get(name, first[name]) + b", " + value
        elif first[name] != value:
            raise BadRequestError(f"{name.decode()} is given twice, with different values")
    return joined


def _check_encoding(encoding: bytes, version_minor: int, *, with_length: bool) -> None:
    """Check that Transfer-Encoding is exactly `chunked`, in HTTP/1.1, without a Content-Length.

    White space after `chunked` is refused, because implementations differ in whether it still
    counts.

    Raises: BadRequestError.
    """
    if with_length:
        raise BadRequestError("Content-Length and Transfer-Encoding exclude each other")
    if encoding.lower() != b"chunked":
        raise BadRequestError("the only Transfer-Encoding is chunked")
    if not version_minor:
        raise BadRequestError("HTTP/1.0 has no Transfer-Encoding")


def _bad_request_line() -> BadRequestError:
    return BadRequestError("the request line is not `METHOD target HTTP/1.0` or `HTTP/1.1`")


def check_partial_head(data: bytes, max_bytes: int, looked: int = 0) -> None:
    """Refuse data that can no longer become a head, before the rest of it arrives.

    Args: data, the bytes received, without an empty line; looked, the number of leading bytes that
    have passed an earlier call, so that each byte is searched once however small the pieces are.

    Raises: BadRequestError as `check_head` does.
    """
    if len(data) > max_bytes:
        raise BadRequestError(f"the request head is over {max_bytes} bytes", 431)
    if not looked and _STARTS_TOKEN.match(data) is None:
        raise BadRequestError("this is not an HTTP request")
    if looked and data[looked - 1] == _CR:
        looked -= 1  # the next byte decides whether the CR is legal
    lines = data.count(b"\r\n", looked)
    if lines and data.find(b"\r\n") >= looked and _REQUEST_LINE.match(data) is None:
        raise _bad_request_line()
    if data.count(b"\n", looked) != lines or data.count(b"\r", looked) - data.endswith(b"\r") != lines:
        raise BadRequestError("a bare CR or LF in the request head")
