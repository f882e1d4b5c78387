"""The seam between the two HTTP parsers: a checked head in, its fields out.

Framing is not theirs (`head.py`, `chunked.py`), so one that is fast and one that is plain Python can stand in for each
other; the tests run over both, and a fuzz compares them.
"""

from __future__ import annotations

from typing import Protocol

from topics.http.wire.head import Fields, HeadFraming


class HeadParser(Protocol):
    """Parses heads that `check_head` has passed."""

    name: str

    def fields(self, head: bytes, framing: HeadFraming) -> Fields:
        """Raises BadRequestError for a head the parser does not take."""


def open_parser(choice: str) -> HeadParser:
    """choice: "auto" (httptools), "httptools" or "h11"."""
    if choice == "h11":
        from topics.http.wire.h11_parser import H11Parser  # noqa: PLC0415 - the one not chosen need not be installed

        return H11Parser()
    from topics.http.wire.httptools_parser import HttptoolsParser  # noqa: PLC0415 - likewise

    return HttptoolsParser()
