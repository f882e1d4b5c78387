"""Steps on damaged files that both kinds of rebuild share, with or without a snapshot."""

from __future__ import annotations

import contextlib

from topics.errors import CorruptError, FormatError
from topics.loop.loop import Loop
from topics.store.disk.whole_files import FileCalls, read_file, replace_file
from topics.store.format.codec import Frames
from topics.store.format.log_format import FRAME_HEADER_BYTES, ProducerPart, unpack_extension
from topics.store.layouts.directory_names import index_path
from topics.store.layouts.index_format import IndexHeader
from topics.store.repair.salvage import SalvagedRun, pack_of
from topics.store.segments.data_files import Pack


def parts_in(data: bytes | memoryview, frames: Frames) -> list[tuple[int, int, bytes]]:
    """Return topic id, seq and extension area of frames that are parts of producers.

    frames: offsets count from data[0].
    """
    found = []
    extended = frames[frames["ext_len"] > 0]
    columns = (extended[name].tolist() for name in ("topic_id", "seq", "offset", "ext_len"))
    for topic_id, seq, offset, length in zip(*columns, strict=True):
        ext = bytes(data[offset + FRAME_HEADER_BYTES : offset + FRAME_HEADER_BYTES + length])
        with contextlib.suppress(CorruptError):
            if any(isinstance(entry, ProducerPart) for entry in unpack_extension(ext)):
                found.append((topic_id, seq, ext))
    return found


async def hints_of(files: FileCalls, path: str) -> list[int]:
    """Return the offsets of frames of the segment at `path`, by its index.

    Empty if that is missing or damaged.
    """
    try:
        _, columns = IndexHeader.unpack(await read_file(files, index_path(path)), path)
    except (CorruptError, FormatError, FileNotFoundError, ValueError):
        return []
    offsets: list[int] = columns.offsets.tolist()
    return offsets


async def rewrite_pack(loop: Loop, path: str, number: int, runs: list[SalvagedRun], created_ms: int) -> Pack:
    """Replace a damaged pack by these runs, at least one; return its entry for the manifest.

    created_ms: of the damaged pack. Raises OSError.
    """
    epoch = int.from_bytes(loop.random_bytes(8), "little") | 1
    data, written = pack_of(runs, number=number, epoch=epoch, created_ms=created_ms)
    await replace_file(loop.files, path, data)
    return Pack(number, epoch, len(data), {run.number: run for run in written})
