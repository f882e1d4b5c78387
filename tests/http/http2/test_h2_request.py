"""Header lists of HTTP/2 requests as plans."""

from __future__ import annotations

import pytest

from topics.http.wire.error_answers import BadRequestError
from topics.http.wire.h2_request import HeaderList, parse_header_list
from topics.http.wire.request import Request

GET: HeaderList = (
    (b":method", b"GET"),
    (b":scheme", b"http"),
    (b":path", b"/v0/topics"),
    (b":authority", b"localhost"),
)


def parsed(*more: tuple[bytes, bytes]) -> Request:
    return parse_header_list(GET + more, whole=True, max_bytes=65_536, max_fields=100)


@pytest.mark.parametrize("name", [b"content-type", b"authorization", b"idempotency-key", b"last-event-id", b"origin"])
def test_fields_that_mean_one_thing_have_one_value(name: bytes) -> None:
    """R-NET-2, R-NET-8."""
    assert parsed((name, b"a"), (b"x", b"y"), (name, b"a")).headers[name] == b"a"
    with pytest.raises(BadRequestError, match="twice"):
        parsed((name, b"a"), (name, b"b"))


def test_several_fields_of_a_list_are_one() -> None:
    """R-NET-2: as over HTTP/1."""
    found = parsed((b"accept", b"a"), (b"accept-encoding", b"br"), (b"accept", b"b"), (b"accept-encoding", b"gzip"))
    assert (found.headers[b"accept"], found.headers[b"accept-encoding"]) == (b"a, b", b"br, gzip")


@pytest.mark.parametrize("path", [b"/v0/topics#a", b"#", b"/#", b"/a?b#c"])
def test_a_target_has_no_fragment(path: bytes) -> None:
    """R-NET-9."""
    with pytest.raises(BadRequestError, match="fragment"):
        parse_header_list((GET[0], GET[1], (b":path", path), GET[3]), whole=True, max_bytes=65_536, max_fields=100)
