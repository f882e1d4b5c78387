"""Frames of the positions of named readers. Source: R-READER-4."""

from __future__ import annotations

from topics.engine.state.control_frames import ReaderPayload, encode
from topics.engine.state.named_reader import NamedReader
from topics.engine.state.topic import Topic
from topics.engine.values.ports import LogPort
from topics.store.format.log_format import FrameType


def log_position(log: LogPort, topic: Topic, reader: NamedReader, position: int, now_ms: int) -> None:
    """Stage the frame of a position. Raises: StorageError."""
    payload = encode(ReaderPayload(reader.name))
    log.stage_control(topic.id, FrameType.READER_POSITION, position, now_ms, payload, counted=False)


def log_positions(log: LogPort, topic: Topic, now_ms: int) -> None:
    """Stage the positions of all readers of a topic that leaves class `ephemeral`.

    Raises: StorageError.
    """
    if topic.readers is not None:
        for reader in topic.readers.by_name.values():
            position = reader.staged if reader.staged >= 0 else reader.committed
            log_position(log, topic, reader, position, now_ms)
