"""The log's part of a rebuild: the log is kept up to the first damage, and the rest is set aside.

A sound snapshot states where it begins: files below that may be left over from an interrupted
checkpoint, and some of them were reused. Without a snapshot it begins with the first file there is.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from topics.errors import CorruptError, FormatError
from topics.loop.loop import Loop
from topics.store.disk.uncached_reads import is_direct
from topics.store.disk.whole_files import list_if_there, read_file, replace_file, unlink_if_there
from topics.store.format.log_format import (
    BLOCK_BYTES,
    WAL_HEADER_BYTES,
    WAL_MAGIC,
    FrameType,
    WalHeader,
    align_up,
    shard_directory,
    wal_file_name,
    wal_file_no,
)
from topics.store.recovery.direct_reader import DirectReader
from topics.store.recovery.log_survey import is_whole_blocks, shards_of
from topics.store.recovery.verified_batches import VerifiedBatches
from topics.store.repair.salvage import unflipped
from topics.store.repair.set_aside import SetAside
from topics.store.repair.verify_directory import replay_shard
from topics.store.segments.snapshot_files import Loaded
from topics.store.segments.store_part import ReplayStart


class RebuildLog:
    """The rebuild of the log: `mend`, then `starts` and `cut`."""

    def __init__(self, loop: Loop, directory: str, aside: SetAside) -> None:
        self._loop = loop
        self._files = loop.files
        self._directory = directory
        self._aside = aside
        self.starts: dict[int, ReplayStart] = {}
        """Start by shard, for the new snapshot; a shard that is not named is replayed whole."""
        self.cut = False
        """Whether part of the log was given up."""

    def is_older(self, found: Loaded) -> bool:
        """Return whether newer snapshots are damaged, and the log of this one is recycled.

        It is then left over, because its unlink did not survive a power cut, and does not state
        what counts.
        """
        return bool(found.skipped) and any(
            start.marked and wal_file_name(start.file_no) not in list_if_there(self._files, self._path(shard))
            for shard, start in found.store.replay.items()
        )

    def _path(self, shard: int) -> str:
        return f"{self._directory}/{shard_directory(shard)}"

    async def mend(self, listed: Mapping[int, ReplayStart] | None) -> None:
        """Mend the log of every shard.

        listed: where replay begins by a sound snapshot; None: there is none.
        Raises: OSError, or StorageError for damage that has no place.
        """
        direct = is_direct(self._files.direct_block_bytes(self._directory))
        reader = DirectReader(self._files, direct=direct)
        for shard in shards_of(self._files, self._directory, listed or {}):
            start = listed.get(shard) if listed is not None else ReplayStart(0, marked=False)
            start = await self._mend_shard(reader, self._path(shard), start)
            if start is not None:
                self.starts[shard] = start

    async def seqs(self) -> dict[int, NDArray[np.uint64]]:
        """Return the seqs of all records in the log, by topic, ascending.

        After `mend`. Raises OSError.
        """
        direct = is_direct(self._files.direct_block_bytes(self._directory))
        reader = DirectReader(self._files, direct=direct)
        topic_ids: list[NDArray[np.uint64]] = []
        seqs: list[NDArray[np.uint64]] = []

        def take(chunk: VerifiedBatches) -> None:
            records = chunk.frames[chunk.frames["type"] == FrameType.RECORD]
            topic_ids.append(records["topic_id"].astype(np.uint64))
            seqs.append(records["seq"].astype(np.uint64))

        for shard in shards_of(self._files, self._directory, {}):
            await replay_shard(self._loop, reader, self._path(shard), self.starts.get(shard), take)
        if not any(map(len, seqs)):
            return {}
        topic_column, seq_column = np.concatenate(topic_ids), np.concatenate(seqs)
        order = np.lexsort((seq_column, topic_column))
        found, begins = np.unique(topic_column[order], return_index=True)
        return dict(zip(found.tolist(), np.split(seq_column[order], begins[1:]), strict=True))

    async def _mend_shard(self, reader: DirectReader, path: str, start: ReplayStart | None) -> ReplayStart | None:
        first = start.file_no if start is not None else 0
        await self._mend_sizes(path, first)
        unreadable = await self._mend_headers(path, first)
        while True:
            try:
                await replay_shard(self._loop, reader, path, start)
                return start
            except (CorruptError, FormatError) as error:
                place = getattr(error, "detail", None) or {"path": unreadable, "offset": 0}
                if not await self._cut(path, place):
                    if start is None or not start.marked:
                        raise
                    # The file it begins in is missing, or was cut off whole: it begins with the
                    # next existing one.
                    start = ReplayStart(start.file_no, marked=False)
                self.cut = True

    def _files_from(self, shard: str, first: int) -> list[tuple[int, str]]:
        """Return (number, path) of the files of a shard from this number on, ascending."""
        named = ((wal_file_no(name), f"{shard}/{name}") for name in list_if_there(self._files, shard))
        return sorted((number, path) for number, path in named if number is not None and number >= first)

    async def _mend_sizes(self, shard: str, first: int) -> None:
        """Extend each file that was cut short to whole blocks, with zeros.

        The replay then finds whether records are missing. Any may be, so the log counts as cut.
        """
        for _number, path in self._files_from(shard, first):
            size = self._files.file_size(path)
            if is_whole_blocks(size):
                continue
            data = await read_file(self._files, path)
            await self._aside.copy(path, data)
            await replace_file(self._files, path, data.ljust(align_up(max(size, 1), BLOCK_BYTES), b"\0"))
            self.cut = True

    async def _mend_headers(self, shard: str, first: int) -> str:
        """Correct a flipped bit in the header of each file.

        Return the first path with other damage.
        """
        unreadable = ""
        for _number, path in self._files_from(shard, first):
            block = await read_file(self._files, path, BLOCK_BYTES)
            try:
                WalHeader.unpack(block, path)
                continue
            except (CorruptError, FormatError):
                header = unflipped(block, WAL_MAGIC, lambda head: WalHeader.unpack(head, ""))
            if header is not None:
                data = await read_file(self._files, path)
                await self._aside.copy(path, data)
                await replace_file(self._files, path, header.pack() + data[WAL_HEADER_BYTES:])
            elif block[:4] != bytes(4):
                unreadable = unreadable or path
        return unreadable

    async def _cut(self, shard: str, detail: dict[str, object]) -> bool:
        """Keep the damaged file up to the damage and set aside the files after it.

        Return False if that changes nothing.
        """
        damaged, offset = str(detail.get("path", "")), detail.get("offset")
        number = wal_file_no(damaged.rpartition("/")[2])
        if number is None or not isinstance(offset, int):
            return False
        changed = False
        for other, path in self._files_from(shard, number):
            data = await read_file(self._files, path)
            kept = data[:offset].ljust(len(data), b"\0") if other == number and offset > BLOCK_BYTES else None
            if kept == data:
                continue
            await self._aside.copy(path, data)
            if kept is not None:
                await replace_file(self._files, path, kept)
            else:
                await unlink_if_there(self._files, path)
            changed = True
        return changed
