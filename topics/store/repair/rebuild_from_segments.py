"""A rebuild without a snapshot: segments and packs state their topics and their contents.

Names, configs, heads and floors come from descriptions; deleted records stay deleted, because their
flags are in the files. Records in several files (after an interrupted checkpoint, or a merge of
runs) are taken from one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from topics.errors import CorruptError, FormatError
from topics.loop.loop import Loop
from topics.store.disk.whole_files import list_if_there, read_file, replace_file, unlink_if_there
from topics.store.format import codec
from topics.store.format.catalog import SEQ_MAX
from topics.store.layouts.directory_names import PACK_DIRECTORY, edition_of, index_path, numbered, pack_path
from topics.store.layouts.segment_format import SegmentHeader
from topics.store.repair.owned_topics import EVERY_TOPIC, OwnedTopics
from topics.store.repair.rebuild_files import hints_of, parts_in, rewrite_pack
from topics.store.repair.salvage import codec_of, mend_segment, salvage_pack, salvaged_image
from topics.store.repair.set_aside import SetAside
from topics.store.segments.data_files import Pack, PackRun, Segment
from topics.store.segments.index_flags import flag_pack_index
from topics.store.segments.pack import scan_runs
from topics.store.segments.segment import describe_file, read_segment
from topics.store.segments.tiers import SegmentFile, Tiers, segment_files


@dataclass
class _Source:
    """A topic's records in one file, as the file describes them."""

    topic_id: int
    first_seq: int
    last_seq: int
    live_upto: int
    """Highest seq that is not deleted."""
    description: bytes
    described_ms: int
    """Time of the description; 0: it is unknown."""
    rank: tuple[int, int]
    """Order in which sources of equal seqs win.

    Segments come first, later editions of them before earlier ones; then newer packs, then packs
    that were not written to their ends.
    """
    records: int
    parts: list[tuple[int, int, bytes]]
    """Parts of producers: topic id, seq and extension area."""
    segment: Segment | None = None
    pack: int = 0
    run: int = 0


class RebuildFromSegments:
    """The rebuild: `mend`, then the entries of the first snapshot."""

    def __init__(self, loop: Loop, tiers: Tiers, aside: SetAside, owned: OwnedTopics = EVERY_TOPIC) -> None:
        self._loop = loop
        self._files = loop.files
        self._tiers = tiers
        self._aside = aside
        self._owned = owned
        self._sources: list[_Source] = []
        self._packs: dict[int, Pack] = {}
        self._unfinished: set[int] = set()
        """Numbers of packs with sound runs and without a sound index."""
        self.segments: list[Segment] = []
        self.descriptions: list[tuple[int, bytes]] = []
        """Descriptions (topic id, JSON), the oldest of a topic first."""
        self.described_ms: list[int] = []
        """The time of each."""
        self.records = 0
        """Number of frames kept."""
        self.extensions: list[tuple[int, int, bytes]] = []
        """Parts of producers in the kept frames, see StorePart."""

    @property
    def packs(self) -> list[Pack]:
        return [pack for pack in self._packs.values() if pack.runs]

    @property
    def topic_ids(self) -> set[int]:
        return {topic_id for topic_id, _ in self.descriptions}

    async def mend(self, in_log: Mapping[int, NDArray[np.uint64]]) -> None:
        """Mend all segments and packs.

        in_log: the seqs of records in the log, by topic, ascending. Raises OSError.
        """
        # a segment that was being moved is in both: the first one found wins
        for file in segment_files(self._files, self._tiers):
            await self._read_segment(file)
        await self._read_packs()
        await self._choose(in_log)

    # --- segments ----------------------------------------------------------------------------------------------------
    async def _read_segment(self, file: SegmentFile) -> None:
        topic_id = numbered(file.topic, "")
        if topic_id is None:
            return
        path = file.full_path
        stored = await read_file(self._files, path)
        hints = await hints_of(self._files, path)
        data, intact = salvaged_image(stored, path, topic_id, hints)
        try:
            found = describe_file(data, path)
            is_sound = found.segment.sealed or not data[found.segment.frames_end :].strip(b"\0")
            is_sound &= intact
        except (CorruptError, FormatError):
            is_sound = False
        if is_sound:
            found.segment.codec = codec_of(stored)
        else:
            await self._aside.copy(path, stored)
            mended = mend_segment(data, path, topic_id, hints)
            if mended is None:
                await unlink_if_there(self._files, path)
                return
            data = mended
            found = describe_file(data, path)
            await unlink_if_there(self._files, index_path(path))
            await replace_file(self._files, path, data)
        if not self._owned.has(found.description):
            await self._aside.copy(path, stored)  # a start removes what no snapshot lists
            return
        segment = found.segment
        if not segment.sealed:  # an index beside it may be older than its latest deletes
            await unlink_if_there(self._files, index_path(path))
        if segment.records:
            segment.tier = file.tier
            segment.edition = edition_of(file.name)
            # A later edition without a footer may not have been written to its end, so
            # those that it was to replace win.
            is_whole = segment.sealed
            # without a footer its index is derived once, and it does not grow
            segment.sealed = True
            self._sources.append(
                _Source(
                    segment.topic_id,
                    segment.first_seq,
                    segment.last_seq,
                    segment.last_seq,
                    found.description,
                    found.described_ms,
                    (1, segment.edition if is_whole else -segment.edition),
                    segment.records,
                    _parts_of(data, path, segment.frames_end),
                    segment,
                )
            )

    # --- packs -------------------------------------------------------------------------------------------------------
    async def _read_packs(self) -> None:
        numbers = []
        for name in list_if_there(self._files, f"{self._tiers.hot}/{PACK_DIRECTORY}"):
            number = numbered(name, "pack-", ".data")
            if number is not None:
                numbers.append(number)
        for number in sorted(numbers):
            path = f"{self._tiers.hot}/{pack_path(number)}"
            data = await read_file(self._files, path)
            found = salvage_pack(data, path)
            pack = Pack(number, found.epoch, len(data), {})
            if not found.sound:
                await self._aside.copy(path, data)
                if not found.runs:
                    await unlink_if_there(self._files, path)
                    continue
                pack = await rewrite_pack(self._loop, path, number, found.runs, found.created_ms)
                pack.runs.clear()  # which of them count is chosen later
            elif found.finished:
                await flag_pack_index(self._files, path, _deleted_in(data, path))
            else:
                self._unfinished.add(number)
            self._packs[number] = pack
            if not any(self._owned.has(run.header.description) for run in found.runs):
                await self._aside.copy(path, data)
            rank = (0, number) if found.finished else (-1, number)
            for row, run in enumerate(found.runs):
                if not self._owned.has(run.header.description):
                    continue
                seqs = run.scan.frames["seq"]
                live = seqs[~codec.deleted(run.scan.frames)]
                live_upto = int(live[-1]) if len(live) else 0
                self._sources.append(
                    _Source(
                        run.header.topic_id,
                        int(seqs[0]),
                        int(seqs[-1]),
                        live_upto,
                        run.header.description,
                        found.created_ms,
                        rank,
                        len(seqs),
                        parts_in(run.frames, run.scan.frames),
                        None,
                        number,
                        row,
                    )
                )

    # --- what wins ---------------------------------------------------------------------------------------------------
    async def _choose(self, in_log: Mapping[int, NDArray[np.uint64]]) -> None:
        by_topic: dict[int, list[_Source]] = {}
        for source in self._sources:
            by_topic.setdefault(source.topic_id, []).append(source)
        # Runs that end early: by pack, by row of the run table, the seq before which they end
        ends: dict[int, dict[int, int]] = {}
        for topic_id, sources in sorted(by_topic.items()):
            kept: list[_Source] = []
            for source in sorted(_without_begun_merge(sources), key=lambda source: source.rank, reverse=True):
                if all(source.last_seq < other.first_seq or other.last_seq < source.first_seq for other in kept):
                    kept.append(source)
            end = await self._end(kept, in_log[topic_id]) if topic_id in in_log else SEQ_MAX
            # A file that is left out, or one of low seqs that was written anew, may be the latest.
            for source in sorted(sources, key=lambda source: (source.described_ms, source.first_seq)):
                self.descriptions.append((topic_id, source.description))
                self.described_ms.append(source.described_ms)
            for source in sorted(kept, key=lambda source: source.first_seq):
                if source.first_seq >= end:
                    continue
                self.extensions += [part for part in source.parts if part[1] < end]
                if source.segment is not None:
                    segment = source.segment
                    if source.last_seq >= end:
                        segment = await self._ended(segment, source, end)
                    self.segments.append(segment)
                    self.records += segment.records
                    continue
                run = PackRun(topic_id, source.first_seq, source.last_seq, source.run)
                self._packs[source.pack].runs[source.run] = run
                self.records += source.records
                if source.last_seq >= end:
                    ends.setdefault(source.pack, {})[source.run] = end
        for number in self._unfinished:
            if self._packs[number].runs:
                ends.setdefault(number, {})
        for number, ends_by_row in ends.items():
            await self._end_runs(number, ends_by_row)

    async def _end(self, kept: list[_Source], logged: NDArray[np.uint64]) -> int:
        """Return the seq from which on a topic is left to the log.

        From there on the log has everything that the files have, and more: a checkpoint was
        interrupted, and its files had holes where they were not synced. Recovery takes nothing from
        the log up to the highest seq in files. A record that was deleted before the copy is missing
        in the files, too; the log then records that delete again.
        """
        above = [source for source in kept if source.last_seq >= int(logged[0])]
        if not above:
            return SEQ_MAX
        held = np.unique(np.concatenate([await self._seqs(source) for source in above]))
        only_held = held[~np.isin(held, logged, assume_unique=False)]
        missing = logged[(logged < held[-1]) & ~np.isin(logged, held)]
        if len(only_held):
            missing = missing[missing > only_held[-1]]
        return int(missing[0]) if len(missing) else SEQ_MAX

    async def _seqs(self, source: _Source) -> NDArray[np.uint64]:
        """Return the seqs of all frames of a source, including those of deleted records."""
        if source.segment is not None:
            data = await read_segment(self._files, self._tiers.path(source.segment), source.segment.frames_end)
            begin = SegmentHeader.unpack(data, source.segment.path).header_bytes
            return codec.scan_frames(memoryview(data)[begin:]).frames["seq"].astype(np.uint64)
        path = f"{self._tiers.hot}/{pack_path(source.pack)}"
        run = salvage_pack(await read_file(self._files, path), path).runs[source.run]
        return run.scan.frames["seq"].astype(np.uint64)

    async def _ended(self, segment: Segment, source: _Source, end: int) -> Segment:
        """Return a segment rebuilt from its frames before this seq, at least one."""
        path = self._tiers.path(segment)
        data = await read_segment(self._files, path)
        await self._aside.copy(path, data)
        header = SegmentHeader.unpack(data, path)
        frames = memoryview(data)[header.header_bytes : segment.frames_end]
        await unlink_if_there(self._files, index_path(path))
        data = (
            header._replace(created_ms=source.described_ms, description=source.description).pack()
            + frames[: _bytes_before(codec.scan_frames(frames).frames, end)]
        )
        await replace_file(self._files, path, data)
        found = describe_file(data, path).segment
        found.tier, found.edition = segment.tier, segment.edition
        found.sealed = True  # like any other without a footer here
        return found

    async def _end_runs(self, number: int, ends: Mapping[int, int]) -> None:
        """Rebuild a pack, with its index, so that some of its runs end before these seqs."""
        path = f"{self._tiers.hot}/{pack_path(number)}"
        data = await read_file(self._files, path)
        await self._aside.copy(path, data)
        found, runs = salvage_pack(data, path), []
        for row, run in enumerate(found.runs):
            if row in ends:
                frames = run.frames[: _bytes_before(run.scan.frames, ends[row])]
                run = run._replace(frames=frames, scan=codec.scan_frames(frames))
            runs.append(run)
        rows = self._packs[number].runs
        pack = await rewrite_pack(self._loop, path, number, runs, found.created_ms)
        pack.runs = {row: run for row, run in pack.runs.items() if row in rows}
        self._packs[number] = pack


def _deleted_in(data: bytes, path: str) -> NDArray[np.uint32]:
    """Return the offsets of the deleted frames of a sound pack, ascending.

    Its index lacks those of runs that were dropped (dropped_runs.py), and a start believes it.
    """
    runs = [run.frames for run in scan_runs(data, path)]
    return np.concatenate([frames["offset"][codec.deleted(frames)] for frames in runs]).astype(np.uint32)


def _bytes_before(frames: codec.Frames, seq: int) -> int:
    """Return the bytes of the frames before this seq.

    Frames follow each other without gaps from 0 on.
    """
    count = int(np.searchsorted(frames["seq"].astype(np.uint64), np.uint64(seq)))
    return int(frames["length"][:count].sum(dtype=np.int64))


def _parts_of(data: bytes, path: str, frames_end: int) -> list[tuple[int, int, bytes]]:
    """Return the parts of producers in the frames of a sound segment, deleted ones included."""
    begin = SegmentHeader.unpack(data, path).header_bytes
    frames = memoryview(data)[begin:frames_end]
    return parts_in(frames, codec.scan_frames(frames).frames)


def _without_begun_merge(sources: list[_Source]) -> list[_Source]:
    """Return a topic's sources without the segments of an interrupted merge of its runs.

    Those segments do not extend to the last run's end. A merge takes all runs of a topic, the
    oldest record first, and its segments are above those that stay runs.
    """
    runs_upto = max((source.live_upto for source in sources if source.segment is None), default=0)
    merged = [source for source in sources if source.segment is not None and source.first_seq <= runs_upto]
    if max((source.last_seq for source in merged), default=runs_upto) >= runs_upto:
        return sources
    return [source for source in sources if source not in merged]
