"""Where frames end in what an HTTP/2 peer sends, so that each can be handed over by itself. Source: RFC 9113 4.1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

GOAWAY: Final = 7
PART: Final = -1
"""In the place of a kind: the frame goes on in the next piece, or the head it is a part of does."""
_HEADERS, _CONTINUATION = 1, 9
_END_HEADERS = 4
PREFACE_END: Final = -2
_HEAD_BYTES = 9


class FrameCutter:
    """One connection's input, from the preface on. Nothing is kept but the head of a frame that is not whole."""

    __slots__ = ("_head", "_kind", "_left")

    def __init__(self, preface_bytes: int) -> None:
        self._head = b""
        self._kind: int = PREFACE_END
        self._left = preface_bytes
        """Bytes to come of the frame whose head is here."""

    def cut(self, data: bytes | memoryview) -> Iterator[tuple[memoryview, int]]:
        """`data` in pieces, each with the kind of the frame it ends, or PART; the preface ends with PREFACE_END."""
        view = memoryview(data)
        start = at = 0
        while at < len(view):
            if self._kind == PART:
                head = self._head + bytes(view[at : at + _HEAD_BYTES - len(self._head)])
                at += len(head) - len(self._head)
                self._head = head
                if len(head) < _HEAD_BYTES:
                    break
                self._left, self._kind = int.from_bytes(head[:3], "big"), head[3]
            step = min(self._left, len(view) - at)
            at += step
            self._left -= step
            if self._left:
                break
            kind, head, self._kind, self._head = self._kind, self._head, PART, b""
            goes_on = kind in {_HEADERS, _CONTINUATION} and not head[4] & _END_HEADERS
            yield view[start:at], PART if goes_on else kind
            start = at
        if start < len(view):
            yield view[start:], PART
