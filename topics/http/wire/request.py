"""The head of one request as values, which routes and handlers read."""

from __future__ import annotations

from typing import NamedTuple

from topics.http.wire.head import HeadFraming, check_head, repeated_of_head
from topics.http.wire.parser import HeadParser


class Request(NamedTuple):
    """A parsed head.

    path: as sent, undecoded, without the query. query: the raw text after "?". headers: lower-case
    name to value; all values of repeated lists, the first value of other repeated fields.
    authority: the host in the target ("http://host/..."); "" without one.
    """

    method: str
    path: str
    query: str
    authority: str
    headers: dict[bytes, bytes]
    framing: HeadFraming
    keep_alive: bool
    expects_continue: bool


def parse_request(head: bytes, parser: HeadParser, max_bytes: int, max_fields: int) -> Request:
    """Return the request of a whole head.

    Raises: BadRequestError with the status to answer before the connection closes.
    """
    framing = check_head(head, max_bytes, max_fields)
    headers = parser.fields(head, framing) | repeated_of_head(head)
    authority, path, query = split_target(framing.target.decode("ascii"))
    options = framing.connection
    tokens = {token.strip().lower() for token in options.split(b",")} if options else ()
    keeps = framing.version_minor == 1 or b"keep-alive" in tokens
    return Request(
        method=framing.method.decode("ascii"),
        path=path,
        query=query,
        authority=authority,
        headers=headers,
        framing=framing,
        keep_alive=keeps and b"close" not in tokens,
        expects_continue=framing.version_minor == 1 and headers.get(b"expect", b"").lower() == b"100-continue",
    )


def split_target(target: str) -> tuple[str, str, str]:
    """Return (authority, path, query) of a request target."""
    authority = ""
    if target.startswith("http"):
        authority, slash, rest = target.partition("://")[2].partition("/")
        target = slash + rest or "/"
    path, _, query = target.partition("?")
    return authority, path, query
