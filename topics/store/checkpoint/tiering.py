"""Moves of older sealed segments to the cold directory, compressed if `segment_codec` says so.

A move is a copy, a sync, a snapshot and a removal.

A crash at any point leaves at least the copy that the newest snapshot lists; the next start removes
the other one. A cold directory that is full or fails costs nothing but space in the data directory.
After an error other than a lack of space or descriptors nothing is moved until the next start:
another sync would not recover what a failed one has dropped.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Coroutine, Iterator
from functools import partial
from typing import Any

from topics.config import Config
from topics.loop.loop import Loop
from topics.store.disk.disk_space import is_full
from topics.store.disk.open_files import OpenFiles
from topics.store.disk.side_by_side import side_by_side
from topics.store.disk.time_slices import TimeSlices
from topics.store.disk.whole_files import lacks_descriptors, make_directories, unlink_if_there
from topics.store.format.compressed_segment import (
    CODEC_PLAIN,
    CODEC_ZSTD,
    HEADER_BYTES,
    CompressedHeader,
    compressor,
    packed_table,
)
from topics.store.format.file_table import FileTable, StoredFile
from topics.store.format.log_format import BLOCK_BYTES
from topics.store.layouts.directory_names import COLD, HOT, TOPICS_DIRECTORY, index_path, topic_directory
from topics.store.segments.data_files import Segment
from topics.store.segments.manifest import Manifest
from topics.store.segments.tiers import Tiers

log = logging.getLogger(__name__)

_BYTES_A_CHECKPOINT = 256 << 20
_SEGMENTS_A_CHECKPOINT = 512
"""Segments moved per checkpoint.

The next checkpoint waits for this one, so the rest is moved by the next.
"""
_COPIES_AT_A_TIME = 4


class Tiering:
    """The moves of a store: `copy` of what is `due`, a snapshot that lists it, then `drop_hot`."""

    def __init__(
        self,
        loop: Loop,
        config: Config,
        manifest: Manifest,
        table: FileTable,
        opener: OpenFiles,
    ) -> None:
        self._loop = loop
        self._files = loop.files
        self._tiers = Tiers.of(config)
        self._keep_segments = config.hot_retain_segments
        self._keep_bytes = config.hot_retain_bytes
        self._keep_ms = config.hot_retain_ms
        self._chunk_bytes = max(BLOCK_BYTES, config.checkpoint_bytes_per_pass)
        self._manifest = manifest
        self._table = table
        self._opener = opener
        self.compresses = config.segment_codec == "zstd"
        """Whether copies are compressed."""
        self._turns = TimeSlices(loop, config.checkpoint_us_per_pass * 1000)
        self.broken = False
        """The cold directory failed; nothing is moved until the next start."""
        self.stopped = False
        """No more copies are begun, because a task waits for the checkpoint to end."""

    # --- what --------------------------------------------------------------------------------------------------------
    def due(self) -> list[Segment]:
        """Return the sealed segments to move, oldest first in each topic.

        They are those beyond the newest ones that stay here, by count, bytes and age.
        """
        if not self._tiers.cold or self.broken:
            return []
        found: list[Segment] = []
        size = 0
        oldest_ts = self._loop.clock.now_ms() - self._keep_ms if self._keep_ms else 0
        for segments in self._manifest.segments.values():
            for segment in self._beyond(segments, oldest_ts):
                is_much = size + segment.frames_end > _BYTES_A_CHECKPOINT or len(found) == _SEGMENTS_A_CHECKPOINT
                if found and is_much:
                    return found
                size += segment.frames_end
                found.append(segment)
        return found

    def _beyond(self, segments: list[Segment], oldest_ts: int) -> list[Segment]:
        kept, kept_bytes = 0, 0
        sealed = [segment for segment in segments if segment.sealed]
        for segment in reversed(sealed):
            if kept == self._keep_segments or segment.last_ts < oldest_ts:
                break
            kept_bytes += segment.frames_end
            if self._keep_bytes and kept_bytes > self._keep_bytes:
                break
            kept += 1
        return [segment for segment in sealed[: len(sealed) - kept] if segment.tier == HOT]

    # --- how ---------------------------------------------------------------------------------------------------------
    async def copy(self, due: list[Segment]) -> list[Segment]:
        """Copy these segments durably; return those that were copied.

        An error is logged, and ends the round.
        """
        copied: list[Segment] = []
        try:
            await side_by_side(self._loop.spawn, self._copies(due), _COPIES_AT_A_TIME, copied.append)
        except OSError as error:
            self._on_error(error)
        try:
            await self._sync_directories(copied)
        except OSError as error:
            self._on_error(error)
            return []
        return copied

    def _on_error(self, error: OSError) -> None:
        self.broken |= not (is_full(error) or lacks_descriptors(error))
        when = "until the next start" if self.broken else "for now"
        log.warning("moving segments to %s failed, they stay here %s: %s", self._tiers.cold, when, error)

    def _copies(self, due: list[Segment]) -> Iterator[Coroutine[Any, Any, Segment]]:
        for segment in due:
            if self.stopped:
                return
            yield self._copy(segment)

    async def _copy(self, segment: Segment) -> Segment:
        """Copy a segment's files, whole and synced; their names are not."""
        source, target = f"{self._tiers.hot}/{segment.path}", f"{self._tiers.cold}/{segment.path}"
        make_directories(self._files, self._tiers.cold, topic_directory(segment.topic_id), {})
        try:
            await self._copy_file(index_path(source), index_path(target))
        except FileNotFoundError:
            # it is derived again from the segment, not from what an earlier move may have left
            await unlink_if_there(self._files, index_path(target))
        compresses = self.compresses and segment.codec == CODEC_PLAIN
        await (self._compress_file if compresses else self._copy_file)(source, target)
        return segment

    async def _sync_directories(self, copied: list[Segment]) -> None:
        """Sync all directories of the copies, from the bottom up.

        A killed process may have created one and not synced it.
        """
        cold = self._tiers.cold
        names = dict.fromkeys(topic_directory(segment.topic_id) for segment in copied)
        if names:
            for name in (*names, TOPICS_DIRECTORY):
                await self._files.sync_directory(f"{cold}/{name}")
            await self._files.sync_directory(cold)

    async def _copy_file(self, source: str, target: str) -> None:
        """Copy under a temporary name first, so that a file of the right name is whole."""
        files, temporary = self._files, f"{target}.tmp"
        read_fd = await files.open(source, os.O_RDONLY)
        try:
            size = files.file_size(source)
            write_fd = await files.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            try:
                buffer = memoryview(bytearray(min(self._chunk_bytes, size)))
                at = 0
                while at < size:
                    chunk = buffer[: size - at]
                    count = await files.read_into(read_fd, chunk, at)
                    if count != len(chunk):
                        raise OSError(f"{source} ends at byte {at + count} of {size}")
                    await files.write_all(write_fd, chunk, at)
                    at += count
                    await self._loop.next_pass()
                await files.fsync(write_fd)
            finally:
                await files.close(write_fd)
        finally:
            await files.close(read_fd)
        await files.rename(temporary, target)

    async def _compress_file(self, source: str, target: str) -> None:
        """Write a segment's file compressed, under a temporary name first; a block a time slice."""
        files, temporary = self._files, f"{target}.tmp"
        compress, sizes = compressor().compress, list[int]()
        read_fd = await files.open(source, os.O_RDONLY)
        try:
            header = CompressedHeader.of(files.file_size(source))
            write_fd = await files.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            try:
                buffer = memoryview(bytearray(header.block_bytes))
                end = header.blocks_at
                for at in range(0, header.image_bytes, header.block_bytes):
                    block = buffer[: header.image_bytes - at]
                    count = await files.read_into(read_fd, block, at)
                    if count != len(block):
                        raise OSError(f"{source} ends at byte {at + count} of {header.image_bytes}")
                    await self._turns.turn()
                    with self._turns.working():
                        packed = compress(block)
                    await files.write_all(write_fd, packed, end)
                    end += len(packed)
                    sizes.append(len(packed))
                table = packed_table(sizes)
                await files.write_all(write_fd, header.pack(table), 0)
                # zeros, not a hole: a flag needs no space later, on a full disk
                zeros = memoryview(bytes(min(self._chunk_bytes, header.flags_bytes)))
                for at in range(HEADER_BYTES, header.table_at, len(zeros)):
                    await files.write_all(write_fd, zeros[: header.table_at - at], at)
                await files.write_all(write_fd, table, header.table_at)
                await files.fsync(write_fd)
            finally:
                await files.close(write_fd)
        finally:
            await files.close(read_fd)
        await files.rename(temporary, target)

    def mark(self, moved: list[Segment]) -> list[int]:
        """Have the next snapshot list these segments as they are in the cold directory.

        Returns: their codecs in this directory, for `unmark`. A segment of a restored backup may be
            compressed here, too.
        """
        codecs = [segment.codec for segment in moved]
        for segment in moved:
            segment.tier = COLD
            segment.codec = CODEC_ZSTD if self.compresses else segment.codec
        return codecs

    def unmark(self, moved: list[Segment], codecs: list[int]) -> None:
        """Have the next snapshot list these segments in this directory again."""
        for segment, codec in zip(moved, codecs, strict=True):
            segment.tier, segment.codec = HOT, codec

    def drop_hot(self, moved: list[Segment]) -> None:
        """Let reads use the cold directory, each file once its last reader here has finished.

        The file here is removed then. Until then reads that begin use it, too: its descriptor may
        be open, and it is not stored as the copy is.
        """
        for segment in moved:
            stored = self._table.get(segment.file_id)
            if stored is not None:
                path, compressed = self._tiers.path(segment), segment.codec != CODEC_PLAIN
                stored.when_unread(partial(self._leave, stored, path, compressed=compressed))

    def _leave(self, stored: StoredFile, cold_path: str, *, compressed: bool) -> None:
        self._opener.forget(stored)
        path, stored.path, stored.cold, stored.compressed = stored.path, cold_path, True, compressed
        fd, stored.fd = stored.fd, -1
        self._loop.spawn(self._opener.remove(fd, path, index_path(path)), "move")
