"""Files of a newer version of topics, which a rebuild refuses to touch.

It would take their contents for damage, and leave their records out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import msgspec

from topics.errors import CorruptError, FormatError
from topics.store.disk.directory_format import NO_CORE, Marker, refused_marker
from topics.store.disk.whole_files import FileCalls, list_if_there, read_file
from topics.store.format.compressed_segment import HEADER_BYTES, MAGIC, CompressedHeader
from topics.store.format.log_format import WAL_HEADER_BYTES, WAL_MAGIC, WalHeader, shard_directory, wal_file_no
from topics.store.layouts.directory_names import MARKER_NAME, PACK_DIRECTORY, snapshot_path
from topics.store.layouts.pack_format import PACK_MAGIC, PackHeader
from topics.store.layouts.segment_format import SEGMENT_MAGIC, SegmentHeader
from topics.store.layouts.snapshot_format import SNAPSHOT_MAGIC
from topics.store.recovery.log_survey import shards_of
from topics.store.repair.salvage import HEADER_MAX_BYTES, unflipped
from topics.store.segments.snapshot_files import read_snapshot, snapshot_numbers
from topics.store.segments.tiers import Tiers, segment_files

_Unpack = Callable[[bytes | memoryview, str], object]
_KINDS: tuple[tuple[bytes, int, _Unpack], ...] = (
    (SEGMENT_MAGIC, HEADER_MAX_BYTES, SegmentHeader.unpack),
    (MAGIC, HEADER_BYTES, CompressedHeader.unpack),
    (PACK_MAGIC, HEADER_MAX_BYTES, PackHeader.unpack),
    (WAL_MAGIC, WAL_HEADER_BYTES, WalHeader.unpack),
)
"""Files with records: the mark, the bytes of a header at most, and the call that reads it."""


async def refuse_newer(files: FileCalls, tiers: Tiers, core: int = NO_CORE, core_number: int = 0) -> None:
    """Check that this version of topics knows all files of a data directory. Changes nothing.

    A version in which only a bit has flipped is damage, and passes.

    core: it is the directory of this core. core_number: that of the directory, from the slot map.
    Raises: FormatError, a file is of another version; OSError.
    """
    with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
        marker = msgspec.json.decode(await read_file(files, f"{tiers.hot}/{MARKER_NAME}"), type=Marker)
        refusal = refused_marker(marker, tiers.hot, core, core_number)
        if refusal:
            raise FormatError(refusal)
    for number in snapshot_numbers(files, tiers.hot):
        path = f"{tiers.hot}/{snapshot_path(number)}"
        try:
            await read_snapshot(files, path)
        except CorruptError:
            pass
        except FormatError:
            if await read_file(files, path, len(SNAPSHOT_MAGIC)) == SNAPSHOT_MAGIC:
                raise
    for path in (*_files_with_records(files, tiers), *_log_files(files, tiers.hot)):
        head = await read_file(files, path, HEADER_MAX_BYTES)
        for magic, size, unpack in _KINDS:
            if head.startswith(magic):
                _refuse(head[:size], path, magic, unpack)


def _refuse(head: bytes, path: str, magic: bytes, unpack: _Unpack) -> None:
    try:
        unpack(head, path)
    except CorruptError:
        pass
    except FormatError:
        if unflipped(head, magic, lambda data: unpack(data, path)) is None:
            raise


def _log_files(files: FileCalls, directory: str) -> Iterator[str]:
    for shard in shards_of(files, directory, {}):
        path = f"{directory}/{shard_directory(shard)}"
        for name in list_if_there(files, path):
            if wal_file_no(name) is not None:
                yield f"{path}/{name}"


def _files_with_records(files: FileCalls, tiers: Tiers) -> Iterator[str]:
    for file in segment_files(files, tiers):
        yield file.full_path
    for name in list_if_there(files, f"{tiers.hot}/{PACK_DIRECTORY}"):
        if name.endswith(".data"):
            yield f"{tiers.hot}/{PACK_DIRECTORY}/{name}"
