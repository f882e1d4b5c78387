"""Heads by httptools (llhttp): the fast one."""

from __future__ import annotations

import httptools

from topics.http.wire.error_answers import BadRequestError
from topics.http.wire.head import Fields, HeadFraming

_KNOWN_METHODS = frozenset((b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PATCH"))


class _Collector:
    """llhttp's callbacks. `dict.setdefault` itself is the one for fields, so that none of them costs a Python frame."""

    __slots__ = ("on_header",)

    def __init__(self, fields: Fields) -> None:
        self.on_header = fields.setdefault


class HttptoolsParser:
    """One llhttp state a head; it cannot be reset, and is thrown away before it would wait for a body."""

    name = "httptools"

    def fields(self, head: bytes, framing: HeadFraming) -> Fields:
        if framing.method not in _KNOWN_METHODS:
            # llhttp knows a closed list of methods and gives some of them rules of their own. To this server any other
            # token is an unsupported method (405), so the fields are parsed as those of a GET.
            head = b"GET" + head[len(framing.method) :]
        sent: Fields = {}
        try:
            httptools.HttpRequestParser(_Collector(sent)).feed_data(head)
        except httptools.HttpParserUpgrade:
            pass  # the head is complete; upgrading is not the parser's business
        except httptools.HttpParserError as error:
            raise BadRequestError(f"the request head is malformed: {error}") from None
        # Backwards, so that of names that differ in case alone the first stays.
        return {name.lower(): value.rstrip(b" \t") for name, value in reversed(sent.items())}
