"""A head parser on httptools (llhttp): the fast one."""

from __future__ import annotations

import httptools

from topics.http.wire.error_answers import BadRequestError
from topics.http.wire.head import Fields, HeadFraming

_KNOWN_METHODS = frozenset((b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PATCH"))


class _Collector:
    """The callbacks of llhttp.

    `dict.setdefault` itself is the callback for fields, so that no field costs a Python frame.
    """

    __slots__ = ("on_header",)

    def __init__(self, fields: Fields) -> None:
        self.on_header = fields.setdefault


class HttptoolsParser:
    """A parser that uses one llhttp state per head.

    The state cannot be reset; it is dropped before it would wait for a body.
    """

    name = "httptools"

    def fields(self, head: bytes, framing: HeadFraming) -> Fields:
        if framing.method not in _KNOWN_METHODS:
            # llhttp knows a closed list of methods and gives some of them rules of their own. For
            # this server every other token is an unsupported method (405), so the fields are parsed
            # as those of a GET.
            head = b"GET" + head[len(framing.method) :]
        sent: Fields = {}
        try:
            httptools.HttpRequestParser(_Collector(sent)).feed_data(head)
        except httptools.HttpParserUpgrade:
            pass  # the head is complete; the caller handles upgrades
        except httptools.HttpParserError as error:
            raise BadRequestError(f"the request head is malformed: {error}") from None
        # Reversed, so that of names that differ only in case the first one wins.
        return {name.lower(): value.rstrip(b" \t") for name, value in reversed(sent.items())}
