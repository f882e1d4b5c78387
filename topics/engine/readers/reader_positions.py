"""Positions of named readers, in the log at the class of their topic. Source: R-READER-4 to -9.

A position is staged in the shard of its topic, after the records that it covers, so what a power
cut leaves of the log has no position without its records.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from topics.engine.state import refusals
from topics.engine.state.named_reader import NamedReader
from topics.engine.state.staged_operations import Notice, Operation
from topics.engine.state.topic import Life, Topic
from topics.engine.state.wakes import wake
from topics.engine.write.delete import RecordDeletionCore, trim
from topics.engine.write.evictions import log_caps
from topics.engine.write.reader_frames import log_position
from topics.errors import RequestError, TopicsError
from topics.store.commits.write_batch import Commit

Then = Callable[[TopicsError | None], None]


class PositionCore(RecordDeletionCore, Protocol):
    """The part of the core that the positions of readers need."""

    quiet_until_ms: int


class PositionChange(Operation[PositionCore]):
    """A position that is in the log."""

    __slots__ = ("position", "reader", "then")

    def __init__(self, core: PositionCore, topic: Topic, reader: NamedReader, position: int, then: Then) -> None:
        super().__init__(core, topic)
        self.reader = reader
        self.position = position
        self.then = then

    def apply(self, commit: Commit) -> None:
        self.reader.settle(self.position)
        release(self.core, self.topic, self.reader)
        self.then(None)

    def fail(self, error: TopicsError) -> None:
        self.reader.settle(None)
        self.then(error)


def release(core: PositionCore, topic: Topic, reader: NamedReader) -> None:
    """Let caps and expiry take what the reader no longer holds."""
    readers = topic.readers
    if reader.config.holds and readers is not None:
        before = topic.floors.lost
        readers.hold(reader)
        core.quiet_until_ms = 0
        topic.retain_caps()
        if topic.floors.lost != before:
            wake(core, topic)


def refusal_of_gone(topic: Topic, reader: NamedReader) -> RequestError:
    """Return the error of a call that was in progress when its reader, or the topic, went."""
    if topic.life is Life.GONE:
        return refusals.topic_not_found(topic.name)
    return refusals.reader_not_found(topic.name, reader.name)


def stage_position(
    core: PositionCore, topic: Topic, reader: NamedReader, then: Then, position: int | None = None
) -> None:
    """Commit a position; call `then` at the class of the topic. A reader that trims deletes it.

    position: None for what is done.

    Raises: StorageError, the log accepts nothing; RequestError, the reader is gone. Nothing is
    staged then.
    """
    if topic.life is Life.DELETING:
        topic.parked.append(lambda: _stage_parked(core, topic, reader, then, position))
        return
    if reader.gone or topic.life is Life.GONE:
        raise refusal_of_gone(topic, reader)
    if position is None:
        position = reader.done_through
    if position == reader.staged:
        reader.done_records = reader.done_above(position)
        if reader.is_settled:
            then(None)
        else:
            Notice(core, topic, then).stage_unlogged()
        return
    change = PositionChange(core, topic, reader, position, then)
    if topic.stage_class == "ephemeral":
        reader.stage(position)
        change.stage_unlogged()
    else:
        now_ms = core.clock.now_ms()
        with reserve_for(core, reader):
            if reader.config.holds and position < max(reader.staged, reader.committed):
                log_caps(core.log, topic, now_ms, counted=False)
            log_position(core.log, topic, reader, position, now_ms)
        reader.stage(position)
        change.stage(synced=topic.stage_class == "fsync")
    if reader.config.trims:
        trim(core, topic)


def _stage_parked(core: PositionCore, topic: Topic, reader: NamedReader, then: Then, position: int | None) -> None:
    """Commit after a deletion that failed, or report it."""
    try:
        stage_position(core, topic, reader, then, position)
    except TopicsError as error:
        then(error)


def reserve_for(core: PositionCore, reader: NamedReader | None) -> AbstractContextManager[None]:
    """Accept a change of the reader on a full disk, too, if it may free space."""
    frees = reader is not None and (reader.config.trims or reader.config.holds)
    return core.log.use_reserve() if frees else nullcontext()
