"""One record by its seq: its content, and the place of its bytes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from topics.engine.read.consumption import mark_read
from topics.engine.read.read_pass import ReadCore, ReadPass
from topics.engine.state import refusals
from topics.engine.state.tombstones import enter
from topics.engine.state.topic import Life, Topic
from topics.engine.state.wakes import CatchUpFirst
from topics.engine.values.results import DiffQuery, DiffResult, Done, Tombstone
from topics.engine.write.retention import when_retained
from topics.errors import TopicsError, UsageError
from topics.store.format.file_table import FileKind
from topics.store.layouts.directory_names import file_number

_SEALED = (FileKind.SEGMENT, FileKind.PACK)


class Location(NamedTuple):
    """The place of a record's frame at one instant; checkpoints and routers may move it."""

    path: str
    """Path of the file."""
    offset: int
    """Offset of the frame in the file, in bytes."""
    length: int
    """Bytes of the frame: payload, tag, node and meta, with their lengths and a checksum."""
    sealed: bool
    """Whether the file is a segment or a pack, not a file of the log."""

    @property
    def packed(self) -> int:
        """Number of the segment or pack, in its name, times 2**32, plus the offset.

        Raises: UsageError, the record is in the log still.
        """
        if not self.sealed:
            raise UsageError(
                f"{self.path} is a file of the log, whose name is used again: checkpoint, and locate again"
            )
        return file_number(self.path) << 32 | self.offset


def read_one(core: ReadCore, catch_up: CatchUpFirst, topic: Topic, seq: int, done: Done[DiffResult]) -> None:
    """Read the record `seq`, and mark the topic read.

    The result has no records if it is not live.
    """
    mark_read(topic, core.clock.now_ms())
    query = DiffQuery(seq - 1, 1, include_tags=True, max_batch_bytes=1, bytes_apart=True)
    catch_up(topic, ReadPass(core, topic, query, done).upto(seq).begin)


def locate_one(
    core: ReadCore, catch_up: CatchUpFirst, topic: Topic, seq: int, done: Done[Location | Tombstone | None]
) -> None:
    """Find the record's bytes, without reading them: see `Engine.locate`."""

    def on_retained(error: TopicsError | None) -> None:
        if topic.life is Life.GONE:
            error = refusals.topic_not_found(topic.name)
        done(_place(core, topic, seq) if error is None else error)

    catch_up(topic, lambda: when_retained(core, topic, core.clock.now_ms(), on_retained))


def _place(core: ReadCore, topic: Topic, seq: int) -> Location | Tombstone | UsageError | None:
    if seq > topic.head:
        return None
    tombstone = enter(topic.floors, seq - 1, topic.head, topic.earliest, topic.index.next_live).tombstone
    if tombstone is not None:
        return tombstone
    seqs = np.array([seq], np.uint64)
    if not topic.index.alive(seqs)[0]:
        return None
    rows = topic.index.at(seqs)
    file = core.files[int(rows.file_ids[0])]
    if file.kind is FileKind.MEMORY:
        return UsageError(
            f"seq {seq} of topic {topic.name} has no place: records of class ephemeral are only in memory; get reads it"
        )
    return Location(file.path, int(rows.offsets[0]), int(rows.lengths[0]), file.kind in _SEALED)
