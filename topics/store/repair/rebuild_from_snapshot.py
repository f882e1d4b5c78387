"""A rebuild by a sound snapshot: the files that it lists count, and the damaged ones are mended.

Files that it does not list (from an interrupted checkpoint, of deleted topics, of merged runs) are
left out; the next start removes them.
"""

from __future__ import annotations

from topics.errors import CorruptError, FormatError
from topics.loop.loop import Loop
from topics.store.disk.whole_files import read_file, replace_file, unlink_if_there
from topics.store.format import codec
from topics.store.format.codec import ScanStop
from topics.store.layouts.directory_names import index_path
from topics.store.layouts.segment_format import SegmentHeader
from topics.store.repair.rebuild_files import hints_of, rewrite_pack
from topics.store.repair.salvage import SalvagedPack, SalvagedRun, codec_of, mend_segment, salvage_pack, salvaged_image
from topics.store.repair.set_aside import SetAside
from topics.store.segments.data_files import Pack, PackRun, Segment
from topics.store.segments.segment import describe_file, read_footer
from topics.store.segments.store_part import StorePart
from topics.store.segments.tiers import Tiers


class RebuildFromSnapshot:
    """The rebuild: `mend`, then the entries of the next snapshot."""

    def __init__(self, loop: Loop, tiers: Tiers, aside: SetAside) -> None:
        self._loop = loop
        self._files = loop.files
        self._tiers = tiers
        self._aside = aside
        self.segments: list[Segment] = []
        self.packs: list[Pack] = []
        self.records = 0
        """Number of frames kept."""

    async def mend(self, part: StorePart) -> None:
        """Mend the files that the snapshot lists. Raises OSError."""
        for listed in part.segments:
            segment = await self._segment(listed)
            if segment is not None:
                self.segments.append(segment)
                self.records += segment.records
        for pack in part.packs:
            await self._pack(pack)

    @property
    def topic_ids(self) -> set[int]:
        runs = (run.topic_id for pack in self.packs for run in pack.runs.values())
        return {segment.topic_id for segment in self.segments}.union(runs)

    # --- segments ----------------------------------------------------------------------------------------------------
    async def _segment(self, listed: Segment) -> Segment | None:
        """Return the segment as it is, or mended; None if nothing of it is left.

        A copy in the other directory may lack the latest deletes, so it is only used if the listed
        one yields nothing.
        """
        for tier, root in sorted(self._tiers.roots(), key=lambda entry: entry[0] != listed.tier):
            path = f"{root}/{listed.path}"
            try:
                stored = await read_file(self._files, path)
            except FileNotFoundError:
                continue
            hints = await hints_of(self._files, path)
            data, intact = salvaged_image(stored, path, listed.topic_id, hints)
            if intact and is_listed_segment(data, path, listed):
                listed.tier, listed.codec = tier, codec_of(stored)
                return listed
            await self._aside.copy(path, stored)
            mended = mend_segment(data, path, listed.topic_id, hints, listed)
            found = describe_file(mended, path).segment if mended is not None else None
            if mended is not None and found is not None and found.records and found.epoch == listed.epoch:
                await unlink_if_there(self._files, index_path(path))
                await replace_file(self._files, path, mended)
                found.tier, found.edition = tier, listed.edition
                # without a footer its index is derived once, and it does not grow
                found.sealed = True
                return found
        return None

    # --- packs -------------------------------------------------------------------------------------------------------
    async def _pack(self, listed: Pack) -> None:
        path = f"{self._tiers.hot}/{listed.path}"
        try:
            data = await read_file(self._files, path)
        except FileNotFoundError:
            return
        found = salvage_pack(data, path)
        runs = _runs_by_row(found, listed)
        if runs is not None:
            self.records += sum(len(run.scan.frames) for run in runs)
            self.packs.append(listed)
            return
        await self._aside.copy(path, data)
        kept = [run for run in found.runs if any(_is_listed_run(run, entry) for entry in listed.runs.values())]
        if not kept:
            await unlink_if_there(self._files, path)
            return
        self.packs.append(await rewrite_pack(self._loop, path, listed.number, kept, found.created_ms))
        self.records += sum(len(run.scan.frames) for run in kept)


def is_listed_segment(data: bytes, path: str, listed: Segment) -> bool:
    """Return whether these are the bytes that the snapshot lists.

    Left-overs of a crash may follow the frames.
    """
    try:
        header = SegmentHeader.unpack(data, path)
        footer = read_footer(data, path) if listed.sealed else None
    except (CorruptError, FormatError):
        return False
    if (header.topic_id, header.epoch) != (listed.topic_id, listed.epoch):
        return False
    scan = codec.scan_frames(memoryview(data)[header.header_bytes : listed.frames_end], base=header.header_bytes)
    is_whole = header.header_bytes + scan.position == listed.frames_end
    if scan.reason is not ScanStop.END or not is_whole or scan.sum != listed.sum:
        return False
    return not listed.sealed or footer is not None or not data[listed.frames_end :].strip(b"\0")


def _runs_by_row(found: SalvagedPack, listed: Pack) -> list[SalvagedRun] | None:
    """Return the listed runs; None if the pack is damaged or a run is not where it is listed.

    A damaged index would stay so: a start derives it, and leaves the pack as it is.
    """
    if not found.sound or not found.finished or found.epoch != listed.epoch:
        return None
    rows = [(found.runs[row], run) for row, run in listed.runs.items() if row < len(found.runs)]
    is_same = len(rows) == len(listed.runs) and all(_is_listed_run(found, run) for found, run in rows)
    return [found for found, _ in rows] if is_same else None


def _is_listed_run(found: SalvagedRun, listed: PackRun) -> bool:
    """Return whether this is the listed run, or what an interrupted rebuild has left of it."""
    header = found.header
    return (
        header.topic_id == listed.topic_id
        and listed.first_seq <= header.first_seq <= header.last_seq <= listed.last_seq
    )
