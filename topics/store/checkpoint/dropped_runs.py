"""Delete flags of runs that are no longer in use, in packs that stay for the runs of other topics.

A rebuild without a snapshot takes a pack's runs from the file itself. Without flags the records of
a run that was dropped would return: those of a deleted topic, or those that were deleted after a
later copy of them was made.

The snapshot that no longer lists a run names it among the dropped ones (`Pack.dropped`). Then all
its frames are flagged, and the next snapshot forgets it. After a crash in between, the next
checkpoint flags it again.

The index at the pack's end is left as it is. A reader of files that holds an earlier snapshot
(`files/`) finds live rows by that index, and the frames are still there. One that has to scan the
frames, because the index is damaged, looks into the newest snapshot whether the run was dropped.
"""

from __future__ import annotations

import logging
import os

import numpy as np
from numpy.typing import NDArray

from topics.errors import CorruptError, FormatError
from topics.store.checkpoint.capture import Captures
from topics.store.disk.time_slices import TimeSlices
from topics.store.disk.whole_files import FileCalls, in_place
from topics.store.format import codec
from topics.store.format.codec import ScanStop
from topics.store.format.log_format import BLOCK_BYTES, DELETED
from topics.store.layouts.file_kind import FOOTER_BYTES
from topics.store.layouts.pack_format import RUN_DTYPE, RUN_HEADER_BYTES, PackFooter, RunHeader
from topics.store.segments.data_files import Pack
from topics.store.segments.manifest import Manifest

log = logging.getLogger(__name__)


async def flag_dropped_runs(
    files: FileCalls, directory: str, manifest: Manifest, turns: TimeSlices, captures: Captures
) -> None:
    """Flag all frames of the dropped runs durably, once a snapshot names these runs as dropped.

    Raises: OSError.
    """
    turns.resume()
    for pack in list(manifest.packs.values()):
        if pack.dropped:
            await _flag_runs(files, f"{directory}/{pack.path}", pack, turns, captures)
            pack.dropped.clear()


async def _flag_runs(files: FileCalls, path: str, pack: Pack, turns: TimeSlices, captures: Captures) -> None:
    """Flag the dropped runs of one pack.

    Frames that cannot be found because of damage stay as they are.
    """
    fd = await files.open(path, os.O_RDWR)
    try:
        for start, end in await _ranges(files, fd, path, pack):
            data = bytearray(max(0, end - start))
            await files.read_into(fd, data, start)
            flagged = _flagged(data, f"{path}, byte {start}", pack.epoch)
            if flagged:
                begin, size, places, were = flagged
                captures.note(path, places + start, were)
                await files.write_all(fd, memoryview(data)[begin : begin + size], start + begin)
            if turns.over:
                await turns.rest()
        await in_place(files.fdatasync(fd))
    finally:
        await files.close(fd)


async def _ranges(files: FileCalls, fd: int, path: str, pack: Pack) -> list[tuple[int, int]]:
    """Return the bytes [start, end) of each dropped run, from its header to the next run.

    The checksum of the run table includes the whole index, so it is not compared: a run's header
    has a checksum of its own.
    """
    fixed = bytearray(FOOTER_BYTES)
    await files.read_into(fd, fixed, pack.size - FOOTER_BYTES)
    try:
        footer = PackFooter.unpack(memoryview(fixed), path)
        if not BLOCK_BYTES <= footer.table_offset <= footer.columns_offset <= pack.size - FOOTER_BYTES:
            raise CorruptError(f"{path}: the pack footer points outside the file")
    except (CorruptError, FormatError) as error:
        _report(error)
        return []
    table = bytearray(footer.columns_offset - footer.table_offset)
    await files.read_into(fd, table, footer.table_offset)
    positions = [*np.frombuffer(table, RUN_DTYPE)["position"].tolist(), footer.table_offset]
    rows = [row for row in sorted(pack.dropped) if row + 1 < len(positions)]
    if len(rows) < len(pack.dropped):
        _report(CorruptError(f"{path}: the table of the pack has {len(positions) - 1} runs, and lacks some"))
    return [(positions[row], min(positions[row + 1], pack.size)) for row in rows]


def _flagged(data: bytearray, where: str, epoch: int) -> tuple[int, int, NDArray[np.int64], NDArray[np.uint8]] | None:
    """Set the flags of a run's frames, up to one that is damaged.

    Returns: where the frames begin in `data`, and their bytes, because one write of them costs less
        than one per flag; the places of the flags in `data`, and what was there. None if the header
        is damaged.
    """
    try:
        header = RunHeader.unpack(memoryview(data), where)
    except (CorruptError, FormatError) as error:
        _report(error)
        return None
    if header.epoch != epoch:  # the table is damaged, or that part of the file
        _report(CorruptError(f"{where}: the run is of another pack, epoch {header.epoch:016x}"))
        return None
    begin = RUN_HEADER_BYTES + len(header.description)
    frames = memoryview(data)[begin : begin + header.frames_bytes]
    scan = codec.scan_frames(frames)
    if scan.reason is not ScanStop.END:
        _report(CorruptError(f"{where}: the frame at byte {begin + scan.position} of the run is damaged"))
    last_bytes = scan.frames["offset"].astype(np.int64) + scan.frames["length"] - 1
    column = np.frombuffer(frames, np.uint8)
    were = column[last_bytes]
    column[last_bytes] = DELETED
    return begin, scan.position, last_bytes + begin, were


def _report(error: CorruptError | FormatError) -> None:
    log.warning("records that are no longer in use stay without delete flags: %s", error)
