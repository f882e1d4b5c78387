"""A head parser on h11: plain Python, the reference."""

from __future__ import annotations

import h11

from topics.http.wire.error_answers import BadRequestError
from topics.http.wire.head import Fields, HeadFraming

_MAX_EVENT_BYTES = 1 << 24
"""High enough to never apply: `check_head` enforces the limit."""


class H11Parser:
    """A parser that uses one h11 connection per head.

    It costs 40 times the work of httptools, but is readable.
    """

    name = "h11"

    def fields(self, head: bytes, framing: HeadFraming) -> Fields:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_EVENT_BYTES)
        connection.receive_data(head)
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError as error:
            raise BadRequestError(f"the request head is malformed: {error}") from None
        if not isinstance(event, h11.Request):
            raise BadRequestError("the request head is incomplete")
        fields: Fields = {}
        for name, value in event.headers:
            fields.setdefault(name, value)
        return fields
