"""One step of an archive: the new part of the log is copied to a timeline, durably."""

from __future__ import annotations

import os
from collections import defaultdict

from topics.common.values.archive_state import HOLE
from topics.loop.loop import Loop
from topics.store.archive.archive_note import ShardEnd
from topics.store.archive.archived_log import archived_name, scan, survey
from topics.store.archive.log_sources import LogEnds, LogSource, SourceReader
from topics.store.backup.backup_files import NewTree, Original, copy_in_turns
from topics.store.disk.whole_files import unlink_if_there
from topics.store.format.log_format import (
    BLOCK_BYTES,
    WAL_HEADER_BYTES,
    WalHeader,
)


class MissingLogError(Exception):
    """A part of the log is in no file any more: the one before a file of a shard."""

    def __init__(self, shard: int, number: int) -> None:
        super().__init__(shard, number)
        self.shard = shard
        self.number = number


class OtherLogError(Exception):
    """Nothing can be added to the timeline. The text states why, after its path."""


class LogCopy:
    """The copy of a log in one timeline."""

    def __init__(self, loop: Loop, data_dir: str, timeline: str) -> None:
        self._loop = loop
        self._files = loop.files
        self._data_dir = data_dir
        self.timeline = timeline
        self._tree = NewTree(loop.files, timeline)
        self._has_new_names = False
        """Whether files were made that no directory was synced for."""
        self.copied_bytes = 0
        self._compared = False
        """Whether the timeline was found to be of this log, which is done once."""

    async def step(self, ends: LogEnds, known: dict[int, ShardEnd]) -> dict[int, ShardEnd]:
        """Copy the part of a synced log that is not archived; return how far the archive is then.

        known: how far it is now, by shard.
        Raises: MissingLogError, OtherLogError, OSError.
        """
        shards: defaultdict[int, list[LogSource]] = defaultdict(list)
        for source in ends.sources:
            shards[source.shard].append(source)
        reader = SourceReader(self._loop, self._data_dir)
        # A shard that holds nothing has an end, too: what it gets next must follow.
        found = {shard: ShardEnd(0, 0, batch_no) for shard, batch_no in enumerate(ends.batch_nos)} | known
        for shard, sources in shards.items():
            batch_no = ends.batch_nos[shard] if shard < len(ends.batch_nos) else 0
            end = await self._copy_shard(reader, sources, known.get(shard), batch_no)
            if end is not None:
                found[shard] = end
        if self._has_new_names:
            await self._tree.sync()
        self._has_new_names, self._compared = False, True
        return found

    async def _copy_shard(
        self, reader: SourceReader, sources: list[LogSource], known: ShardEnd | None, batch_no: int
    ) -> ShardEnd | None:
        """Copy the files of one shard. batch_no: of the last batch, if the log is in use."""
        # Number up to which there are all batches; None if it need not be compared.
        last_batch_no = known.batch_no if known is not None and known.batch_no != HOLE else None
        end = known
        for source in sources:
            if known is not None and source.number <= known.file_no and not self._compared:
                await self._compare(source, await self._header(reader, source))
            if known is not None and source.number < known.file_no:
                continue
            is_known = known is not None and source.number == known.file_no
            done = known.size if known is not None and is_known else 0
            if done < source.size:
                header = await self._header(reader, source)
                if header is None:
                    continue  # it was prepared, and never used
                if not is_known and last_batch_no is not None and header.first_batch_no > last_batch_no + 1:
                    raise MissingLogError(source.shard, source.number)
                name = archived_name(source.shard, source.number)
                path = await self._tree.place(name)
                if not done:
                    self._has_new_names = True
                    await unlink_if_there(self._files, path)  # an attempt left it, perhaps unsynced
                await self._copy(reader, source, path, done)
            last_batch_no = None if source.stored is not None else await self._last_batch_of(source)
            # A start may have joined the batches of a waiting file in one of the file after it.
            end_batch_no = batch_no if last_batch_no is None else last_batch_no
            end = ShardEnd(source.number, max(done, source.size), end_batch_no)
        return end

    async def _header(self, reader: SourceReader, source: LogSource) -> WalHeader | None:
        """Return a file's header; None if it has none of its own."""
        reads, fd = await reader.open(source)
        try:
            block = bytearray(BLOCK_BYTES)
            count = await reads.read_into(fd, memoryview(block)[: source.size], 0)
        finally:
            await reader.close(source, reads, fd)
        if count < WAL_HEADER_BYTES or block[:4] == bytes(4):
            return None
        header = WalHeader.unpack(bytes(block), source.path)
        return header if header.file_no == source.number else None

    async def _compare(self, source: LogSource, header: WalHeader | None) -> None:
        """Compare with the archived file of this number, if there is one. Raises: OtherLogError."""
        files, path = self._files, f"{self.timeline}/{archived_name(source.shard, source.number)}"
        try:
            await files.to_thread(files.file_size, path)  # which refuses a pipe
            fd = await files.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            there = await files.read(fd, WAL_HEADER_BYTES, 0)
        finally:
            await files.close(fd)
        if header is not None and there != header.pack():
            raise OtherLogError("has the log of another data directory")

    async def _copy(self, reader: SourceReader, source: LogSource, path: str, done: int) -> None:
        """Copy a file's bytes from `done` on, synced, with zeros up to a whole block."""
        files = self._files
        try:
            write_fd = await files.open(path, os.O_RDWR | (0 if done else os.O_CREAT))
        except FileNotFoundError:
            if not done:
                raise
            raise OtherLogError("lacks log that was archived") from None
        if await files.to_thread(files.file_size, path) < done:
            await files.close(write_fd)
            raise OtherLogError("lacks log that was archived")
        reads, fd = await reader.open(source)
        try:
            original = Original(reads, fd, source.path, source.size)
            await copy_in_turns(self._loop, original, write_fd, self._count, begin=done)
            if padding := bytes(-source.size % BLOCK_BYTES):
                await files.write_all(write_fd, padding, source.size)
            await files.fdatasync(write_fd)
        finally:
            await reader.close(source, reads, fd)
            await files.close(write_fd)

    def _count(self, piece: memoryview, _offset: int) -> None:
        self.copied_bytes += len(piece)

    async def _last_batch_of(self, source: LogSource) -> int:
        used = await survey(self._loop, self.timeline, source.shard, source.number)
        return (await scan(self._loop, used[:1], lambda _path, _batches: None)).last_batch_no
