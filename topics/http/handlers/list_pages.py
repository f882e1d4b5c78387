"""One page of a list: what was asked for, and its answer. Source: wire contract, section 3.4."""

from __future__ import annotations

from topics.http.plan.call import Call
from topics.http.wire.cursor import decode_cursor, encode_cursor
from topics.http.wire.query import Query, unsigned

_SIZE, _SIZE_MAX = 100, 1000


def asked_page(query: Query) -> tuple[str, int]:
    """The name the page begins after, "" for the first one, and how many items it may hold.

    Raises: RequestError invalid_request, a cursor that is none.
    """
    return decode_cursor(query.get("cursor", "")), min(max(unsigned(query, "page_size", _SIZE), 1), _SIZE_MAX)


def reply_page(call: Call, what: bytes, items: list[bytes], next_after: str | None) -> None:
    """items: JSON objects; next_after: the last name of a page that is followed by another one."""
    cursor = b"" if next_after is None else b'"next_cursor":"%b",' % encode_cursor(next_after).encode()
    call.reply(
        b'{"%b":[%b],%b"performance":{"server_total_ms":%b}}' % (what, b",".join(items), cursor, call.total_ms())
    )
