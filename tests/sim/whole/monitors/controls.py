"""Control frames that are durable in a file of the log, recognized by their payload."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from tests.sim.world.sim_file import SimFile
from topics.store.format.log_format import FRAME_HEADER_BYTES, FrameType

T = TypeVar("T")
_FRAME_HEAD = struct.Struct("<IBBQQ")
"""Length, type, flags, topic, seq."""


class Controls(Generic[T]):
    """The control frames of one kind. payload: matches that of such a frame; read: topic id, seq
    and match to its meaning.
    """

    def __init__(
        self, kind: FrameType, payload: re.Pattern[bytes], read: Callable[[int, int, re.Match[bytes]], Iterable[T]]
    ) -> None:
        self._kind = kind
        self._payload = payload
        self._read = read
        self._known: dict[int, tuple[SimFile, int, list[T]]] = {}
        """By the file's identity: the frames that are durable in it after so many syncs."""

    def clear(self) -> None:
        self._known.clear()

    def of(self, file: SimFile) -> list[T]:
        known = self._known.get(id(file))
        if known is None or known[1] != file.syncs:
            found: list[T] = []
            for match in self._payload.finditer(file.durable):
                if match.start() >= FRAME_HEADER_BYTES:
                    head = _FRAME_HEAD.unpack_from(file.durable, match.start() - FRAME_HEADER_BYTES)
                    if head[1] == self._kind:
                        found += self._read(head[3], head[4], match)
            known = self._known[id(file)] = file, file.syncs, found
        return known[2]
