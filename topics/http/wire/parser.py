"""The interface of the two HTTP parsers: a checked head in, its fields out.

Framing is decided elsewhere (`head.py`, `chunked.py`), so the fast parser and the one in plain
Python are interchangeable. The tests run over both, and a fuzz compares them.
"""

from __future__ import annotations

from typing import Protocol

from topics.http.wire.head import Fields, HeadFraming


class HeadParser(Protocol):
    """A parser of heads that `check_head` has passed."""

    name: str

    def fields(self, head: bytes, framing: HeadFraming) -> Fields:
        """Return the fields of a head.

        Raises: BadRequestError, the parser does not accept the head.
        """


def open_parser(choice: str) -> HeadParser:
    """Return a parser. choice: "auto" (httptools), "httptools" or "h11"."""
    if choice == "h11":
        from topics.http.wire.h11_parser import H11Parser  # noqa: PLC0415 - the one not chosen need not be installed

        return H11Parser()
    from topics.http.wire.httptools_parser import HttptoolsParser  # noqa: PLC0415 - likewise

    return HttptoolsParser()
