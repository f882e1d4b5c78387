"""Requests of HTTP/2: from a header list to the values of its HTTP/1 form.

Source: RFC 9113 section 8.3. The h2 package has checked the rules of HTTP/2 itself: pseudo-headers
first, once and known; names in lower case; no CR, LF or NUL. This module checks what the wire
contract requires of a head beyond them.
"""

from __future__ import annotations

from collections.abc import Iterable

from hpack import HeaderTuple

from topics.http.wire.error_answers import BadRequestError
from topics.http.wire.head import EVERY_VALUE_COUNTS, FIELD_VALUE, METHOD, TARGET, HeadFraming, repeated
from topics.http.wire.request import Request, split_target

HeaderList = tuple[tuple[bytes, bytes], ...]

ENTRY_BYTES = 32
"""Bytes that RFC 9113 section 10.5.1 adds to name and value of each field."""

HOSTS_DIFFER = b"\1"
"""The separator of the hosts of a request that names several.

A field must not contain it, so no client can send it.
"""
_AUTHORITY, _HOST = b":authority", b"host"

SHORT_BODY = "the body is shorter than Content-Length says"
"""The message for a request that ends before its body is complete.

The h2 package checks the length where a body ends with DATA, but not where it ends with a head or a
trailer.
"""


def list_limit(max_head_bytes: int, max_head_fields: int) -> int:
    """Return the largest header list, as RFC 9113 counts its bytes, that is answered.

    A list over the limits of a head, up to this size, gets a 431; a larger one ends the connection.
    """
    return 2 * max_head_bytes + ENTRY_BYTES * max_head_fields


def with_one_authority(fields: list[HeaderTuple]) -> list[HeaderTuple]:
    """Return a header list that the h2 package accepts.

    The package would end the whole connection over a fault of one request. A request without
    `:authority` and Host gets an empty `:authority`. A request that names several hosts, or has
    several Host fields, gets all of them in its `:authority`, and `parse_header_list` refuses it.

    Source: wire contract, R-NET-12.
    """
    hosts = [value for name, value in fields if name == _HOST]
    authorities = [value for name, value in fields if name == _AUTHORITY]
    one = len(authorities) + len(hosts) == 1 or (hosts and authorities == hosts)
    if one or all(name != b":method" for name, _ in fields):  # lists without a method are trailers
        return fields
    named = HeaderTuple(_AUTHORITY, HOSTS_DIFFER.join(authorities[:1] + hosts))
    # The package refuses a second `:authority`.
    more = [HeaderTuple(_AUTHORITY, value) for value in authorities[1:]]
    return [named, *more, *(field for field in fields if field[0] not in (_AUTHORITY, _HOST))]


def parse_header_list(fields: HeaderList, whole: bool, max_bytes: int, max_fields: int) -> Request:
    """Return the request of a header list.

    Args: whole, no body follows; max_bytes and max_fields, the limits of a head.

    Raises: BadRequestError with the status to answer.
    """
    if sum(len(name) + len(value) + 4 for name, value in fields) > max_bytes:
        raise BadRequestError(f"the request head is over {max_bytes} bytes", 431)
    if len(fields) - 4 > max_fields:
        raise BadRequestError(f"the request head has more than {max_fields} fields", 431)
    headers: dict[bytes, bytes] = {}
    lengths = 0
    for name, value in fields:
        if name == _AUTHORITY and HOSTS_DIFFER in value:
            raise BadRequestError("a request has one Host: `:authority` or one Host field, or both with the same value")
        if FIELD_VALUE.fullmatch(value) is None:
            raise BadRequestError("a header field holds a control character")
        lengths += name == b"content-length"
        headers.setdefault(name, value)
    headers |= repeated((name, value) for name, value in fields if name in EVERY_VALUE_COUNTS)
    method = headers.pop(b":method", b"")
    target = headers.pop(b":path", b"")
    headers.pop(b":scheme", None)
    authority = headers.pop(_AUTHORITY, None)
    if METHOD.fullmatch(method) is None:
        raise BadRequestError("the :method is no token")
    if TARGET.fullmatch(target) is None or target.startswith(b"http"):
        raise BadRequestError("the :path must be a path, without a fragment")
    if authority:
        headers.setdefault(_HOST, authority)
    length = _length(headers, lengths)
    if whole and length:
        raise BadRequestError(SHORT_BODY)
    framing = HeadFraming(method, target, 1, length or 0, not whole and length is None, b"")
    _, path, query = split_target(target.decode("ascii"))
    return Request(
        method=method.decode("ascii"),
        path=path,
        query=query,
        authority="",
        headers=headers,
        framing=framing,
        keep_alive=True,
        expects_continue=headers.get(b"expect", b"").lower() == b"100-continue",
    )


def _length(headers: dict[bytes, bytes], given: int) -> int | None:
    if not given:
        return None
    text = headers[b"content-length"]
    if given > 1 or not text.isdigit() or len(text) > 19:
        raise BadRequestError("Content-Length must be one number")
    return int(text)


def answer_fields(
    status: int, date: bytes, content_type: bytes, headers: bytes, length: int | None
) -> list[tuple[bytes, bytes]]:
    """Return the header list of an answer.

    headers: whole HTTP/1 lines; fields about an HTTP/1 connection are left out. length: bytes of
    the body; None for a stream, whose length is unknown.
    """
    fields = [(b":status", b"%d" % status), (b"content-type", content_type)]
    if length is not None:
        fields.append((b"content-length", b"%d" % length))
    if date:
        fields.append((b"date", date))
    fields += _lines(headers)
    return fields


def _lines(headers: bytes) -> Iterable[tuple[bytes, bytes]]:
    for line in headers.split(b"\r\n"):
        name, _, value = line.partition(b":")
        name = name.strip().lower()
        if name and name not in (b"connection", b"transfer-encoding", b"keep-alive"):
            yield name, value.strip()
