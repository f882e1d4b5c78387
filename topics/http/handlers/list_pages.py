"""One page of a list: its parameters and its answer. Source: wire contract, section 3.4."""

from __future__ import annotations

from topics.http.plan.call import Call
from topics.http.wire.cursor import decode_cursor, encode_cursor
from topics.http.wire.query import Query, unsigned

_SIZE, _SIZE_MAX = 100, 1000


def asked_page(query: Query) -> tuple[str, int]:
    """Return the name after which the page begins ("" for the first page), and its most items.

    Raises: RequestError invalid_request, the cursor is corrupt.
    """
    return decode_cursor(query.get("cursor", "")), min(max(unsigned(query, "page_size", _SIZE), 1), _SIZE_MAX)


def reply_page(call: Call, what: bytes, items: list[bytes], next_after: str | None) -> None:
    """Answer one page. items: JSON objects. next_after: the last name, if another page follows."""
    cursor = b"" if next_after is None else b'"next_cursor":"%b",' % encode_cursor(next_after).encode()
    call.reply(
        b'{"%b":[%b],%b"performance":{"server_total_ms":%b}}' % (what, b",".join(items), cursor, call.total_ms())
    )
