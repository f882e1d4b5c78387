"""Batches of the log that are missing, and how later ones of a file show it.

If a later batch knows a missing one to have been synced, that is damage.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from topics.errors import CorruptError, FormatError
from topics.store.format import codec
from topics.store.format.log_format import BATCH_ALIGN, BATCH_HEADER_BYTES, BatchHeader, WalHeader
from topics.store.recovery.direct_reader import DirectReader

REMEDY = "Nothing was changed. Run `topics fsck` to see what is damaged and what can be kept"


class LogFile(NamedTuple):
    """A file of the log that was taken into use."""

    path: str
    number: int
    size: int
    header: WalHeader


async def highest_synced(reader: DirectReader, fd: int, file: LogFile, offset: int) -> int:
    """Return the highest `synced_upto` of the file's sound batches from `offset` on; 0: none."""
    return (await later_batches(reader, fd, file, offset)).synced_upto


class LaterBatches(NamedTuple):
    """The statements of batches that come after a missing one in a file."""

    synced_upto: int
    """The highest of the sound batches; 0: there are none."""
    size: int
    """Bytes up to the end of the last batch that was begun, whole or not; 0: there is none."""


async def later_batches(reader: DirectReader, fd: int, file: LogFile, offset: int) -> LaterBatches:
    """Look at the batches of a file from `offset` on, where one is missing."""
    data = await reader.read(fd, offset, max(0, file.size - offset))
    epoch, highest, at = file.header.epoch, 0, 0
    size = _begun_bytes(data, 0, epoch)
    while (found := codec.find_batch(data, epoch=epoch, start=at)) is not None:
        highest = max(highest, found.synced_upto)
        size = max(size, found.position + _begun_bytes(data, found.position, epoch))
        at = found.position + BATCH_ALIGN
    return LaterBatches(highest, size)


def _begun_bytes(data: bytes | memoryview, at: int, epoch: int) -> int:
    """Return the length of the batch whose header is here, as far as there is room; 0: none."""
    try:
        header = BatchHeader.unpack(data[at : at + BATCH_HEADER_BYTES], "")
    except (FormatError, struct.error):
        return 0
    return min(len(data) - at, BATCH_HEADER_BYTES + header.body_bytes) if header.epoch == epoch else 0


def torn_middle(file: LogFile, offset: int, batch_no: int, known: int) -> CorruptError:
    """Return the error of a missing batch. known: the number up to which later ones were synced."""
    return CorruptError(
        f"{file.path}: damaged at byte {offset}: batch {batch_no} is missing, and a later one knows that batches up to "
        f"{known} were on stable storage. {REMEDY}",
        {"path": file.path, "offset": offset},
    )
