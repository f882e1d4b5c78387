"""Delete flags in the index columns of segments and packs, set in place.

No checksum covers the flags column, and each of its bytes includes its parity.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from topics.errors import CorruptError, FormatError
from topics.store.disk.whole_files import FileCalls, in_place
from topics.store.layouts.file_kind import FOOTER_BYTES
from topics.store.layouts.index_format import FLAGS_OFFSET_PER_ROW, INDEX_DELETE, INDEX_DELETED
from topics.store.layouts.pack_format import PackFooter

_OFFSETS_PER_ROW = 12
"""Bytes per row of the index columns before the offsets: ts (8) and seq delta (4)."""
Note = Callable[[NDArray[np.int64], NDArray[np.uint8]], None]
"""Takes offsets in a file and the bytes there, which are about to be replaced."""


def _forget(_offsets: NDArray[np.int64], _were: NDArray[np.uint8]) -> None:
    pass


async def flag_pack_index(files: FileCalls, path: str, offsets: NDArray[np.uint32], *, note: Note = _forget) -> None:
    """Flag rows in the index at a pack's end, durably; a damaged index stays as it is.

    Raises: OSError.
    """
    fd = await files.open(path, os.O_RDWR)
    try:
        fixed = bytearray(FOOTER_BYTES)
        await files.read_into(fd, fixed, files.file_size(path) - FOOTER_BYTES)
        footer = PackFooter.unpack(memoryview(fixed), path)
        await flag_columns(files, fd, footer.columns_offset, footer.rows, offsets, note=note)
    except (CorruptError, FormatError):
        return
    finally:
        await files.close(fd)


async def flag_columns(
    files: FileCalls, fd: int, columns_at: int, rows: int, offsets: NDArray[np.uint32], *, note: Note = _forget
) -> None:
    """Flag the rows at these offsets in the index columns of a segment or a pack, durably.

    Raises: OSError.
    """
    stored_bytes = bytearray(4 * rows)
    await files.read_into(fd, stored_bytes, columns_at + _OFFSETS_PER_ROW * rows)
    stored = np.frombuffer(stored_bytes, "<u4")
    at = np.searchsorted(stored, offsets)
    at = at[(at < rows) & (stored[np.minimum(at, rows - 1)] == offsets)] if rows else at[:0]
    if not len(at):
        return
    flags = bytearray(rows)
    await files.read_into(fd, flags, columns_at + FLAGS_OFFSET_PER_ROW * rows)
    column = np.frombuffer(flags, np.uint8)
    at = np.unique(at)
    at = at[column[at] & INDEX_DELETED == 0]
    flags_at = columns_at + FLAGS_OFFSET_PER_ROW * rows
    note(at + flags_at, column[at])
    column[at] ^= INDEX_DELETE
    await files.write_all(fd, flags, flags_at)
    await in_place(files.fdatasync(fd))
