"""A cutter of an HTTP/2 peer's input at the ends of frames. Source: RFC 9113 4.1.

Each frame is then passed to the h2 package by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from h2.exceptions import DenialOfServiceError, FrameTooLargeError

GOAWAY: Final = 7
PART: Final = -1
"""Stands for a kind: the frame, or the request head that it belongs to, continues."""
_HEADERS, _CONTINUATION = 1, 9
_END_HEADERS = 4
PREFACE_END: Final = -2
_HEAD_BYTES = 9


class FrameCutter:
    """The input of one connection, from the preface on. It holds only the head of a partial frame.

    The package waits for a whole frame before it checks its length, and for all frames of a
    request's head before it checks their size, so both limits are enforced here.
    """

    __slots__ = ("_frame_bytes_max", "_head", "_head_bytes_max", "_kind", "_left", "held_bytes")

    def __init__(self, preface_bytes: int, frame_bytes_max: int, head_bytes_max: int) -> None:
        """Set the limits.

        frame_bytes_max: payload of a frame. head_bytes_max: all frames of one request's head.
        """
        self._frame_bytes_max = frame_bytes_max
        self._head_bytes_max = head_bytes_max
        self.held_bytes = 0
        """Bytes received of partial frames and heads; the package holds them."""
        self._head = b""
        self._kind: int = PREFACE_END
        self._left = preface_bytes
        """Number of bytes that the frame in progress lacks."""

    def cut(self, data: bytes | memoryview) -> Iterator[tuple[memoryview, int]]:
        """Yield `data` in pieces, each with the kind of the frame that it ends, or PART.

        The preface ends with PREFACE_END.

        Raises: ProtocolError, a frame or head is too long; the package has not seen it.
        """
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
                if self._left > self._frame_bytes_max:
                    raise FrameTooLargeError
            step = min(self._left, len(view) - at)
            at += step
            self._left -= step
            if self._left:
                break
            kind, head, self._kind, self._head = self._kind, self._head, PART, b""
            continues = kind in {_HEADERS, _CONTINUATION} and not head[4] & _END_HEADERS
            self.held_bytes = self.held_bytes + at - start if continues else 0
            if self.held_bytes > self._head_bytes_max:
                raise DenialOfServiceError
            yield view[start:at], PART if continues else kind
            start = at
        if start < len(view):
            self.held_bytes += len(view) - start
            yield view[start:], PART
