"""Frames of records, and a disk to put them on: what tests of segments and packs have in common."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

from tests.sim import SimRing
from topics.loop import Loop
from topics.store.disk.whole_files import make_directories, write_new_file
from topics.store.format.log_format import DELETED, Frame, FrameType

DIRECTORY = "data"


def record(topic_id: int, seq: int, *, tag: bytes | None = None, is_deleted: bool = False) -> bytes:
    """One record frame; its time is `1000 + seq`, its accounted size the length of its data."""
    data = b'"%d/%d"' % (topic_id, seq)
    frame = bytearray(Frame(FrameType.RECORD, topic_id, seq, 1000 + seq, data, tag=tag, size=len(data)).pack())
    if is_deleted:
        frame[-1] = DELETED
    return bytes(frame)


def records(topic_id: int, seqs: Sequence[int], *, tag: bytes | None = None, deleted: Sequence[int] = ()) -> bytes:
    """Record frames back to back."""
    return b"".join(record(topic_id, seq, tag=tag, is_deleted=seq in deleted) for seq in seqs)


class Disk:
    """A data directory on a simulated disk."""

    def __init__(self) -> None:
        self.ring = SimRing(0)
        self.loop = Loop(self.ring, self.ring.clock)
        self.files = self.loop.files

    def run(self, coro: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_task(coro)

    def write(self, path: str, data: bytes) -> None:
        """path: below the data directory."""
        make_directories(self.files, ".", f"{DIRECTORY}/{path.rpartition('/')[0]}", {})
        self.run(write_new_file(self.files, f"{DIRECTORY}/{path}", data))

    def read(self, path: str) -> bytes:
        return self.ring.file_bytes(f"{DIRECTORY}/{path}")
