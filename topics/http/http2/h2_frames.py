"""Where frames end in what an HTTP/2 peer sends, so that each can be handed over by itself. Source: RFC 9113 4.1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from h2.exceptions import DenialOfServiceError, FrameTooLargeError

GOAWAY: Final = 7
PART: Final = -1
"""In the place of a kind: the frame goes on in the next piece, or the head it is a part of does."""
_HEADERS, _CONTINUATION = 1, 9
_END_HEADERS = 4
PREFACE_END: Final = -2
_HEAD_BYTES = 9


class FrameCutter:
    """One connection's input, from the preface on. Nothing is kept but the head of a frame that is not whole.

    The package waits for the whole of a frame before it looks at its length, and for all frames of a request's head
    before it looks at that; so both have their limits here.
    """

    __slots__ = ("_frame_bytes_max", "_head", "_head_bytes_max", "_kind", "_left", "held_bytes")

    def __init__(self, preface_bytes: int, frame_bytes_max: int, head_bytes_max: int) -> None:
        """frame_bytes_max: of a frame's payload. head_bytes_max: of the frames of one request's head."""
        self._frame_bytes_max = frame_bytes_max
        self._head_bytes_max = head_bytes_max
        self.held_bytes = 0
        """That have come of what is not whole: the package has them."""
        self._head = b""
        self._kind: int = PREFACE_END
        self._left = preface_bytes
        """Bytes to come of the frame whose head is here."""

    def cut(self, data: bytes | memoryview) -> Iterator[tuple[memoryview, int]]:
        """`data` in pieces, each with the kind of the frame it ends, or PART; the preface ends with PREFACE_END.

        Raises: ProtocolError, what comes is too long; the package knows nothing of it.
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
            goes_on = kind in {_HEADERS, _CONTINUATION} and not head[4] & _END_HEADERS
            self.held_bytes = self.held_bytes + at - start if goes_on else 0
            if self.held_bytes > self._head_bytes_max:
                raise DenialOfServiceError
            yield view[start:at], PART if goes_on else kind
            start = at
        if start < len(view):
            self.held_bytes += len(view) - start
            yield view[start:], PART
