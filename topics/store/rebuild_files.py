"""What either kind of rebuild does to a damaged file, whoever says what counts."""

from __future__ import annotations

from topics.errors import CorruptError, FormatError
from topics.loop.loop import Loop
from topics.store.filecalls import FileCalls, read_file, replace_file
from topics.store.manifest import Pack
from topics.store.salvage import SalvagedRun, pack_of
from topics.store.segment_format import IndexHeader, index_path


async def hints_of(files: FileCalls, path: str) -> list[int]:
    """Where frames of the segment at `path` begin, by its index; nothing when that is missing or damaged."""
    try:
        _, columns = IndexHeader.unpack(await read_file(files, index_path(path)), path)
    except (CorruptError, FormatError, FileNotFoundError, ValueError):
        return []
    offsets: list[int] = columns.offsets.tolist()
    return offsets


async def rewrite_pack(loop: Loop, path: str, number: int, runs: list[SalvagedRun]) -> Pack:
    """Puts these runs, one at least, in the place of a damaged pack; what is listed of it. Raises OSError."""
    epoch = int.from_bytes(loop.ring.random_bytes(8), "little") | 1
    data, written = pack_of(runs, number=number, epoch=epoch, now_ms=loop.clock.now_ms())
    await replace_file(loop.files, path, data)
    return Pack(number, epoch, len(data), {run.number: run for run in written})
