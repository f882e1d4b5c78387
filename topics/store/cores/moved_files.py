"""Files of topics that move to other cores, handed over while the map is `MOVING`.

Nothing changes that counts for the owners before. Segments get a second name in the directory of
their topic's new core, and are copied where that is on another file system. Runs in packs are
copied into packs of the new core. The snapshots that list them are in next_snapshots.py.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence

from topics.errors import CorruptError
from topics.loop.loop import Loop
from topics.store.disk.whole_files import (
    FileCalls,
    in_place,
    make_directories,
    read_file,
    write_new_file,
)
from topics.store.format import codec
from topics.store.format.codec import ScanStop
from topics.store.layouts.directory_names import COLD, PACK_DIRECTORY, TOPICS_DIRECTORY, index_path
from topics.store.layouts.pack_format import RUN_HEADER_BYTES, RunHeader
from topics.store.segments.data_files import Pack, PackRun, Segment
from topics.store.segments.manifest import Manifest
from topics.store.segments.pack import ROWS_A_PACK, RUNS_A_PACK, PackWriter, read_pack
from topics.store.segments.snapshot_files import Loaded
from topics.store.segments.store_part import StorePart
from topics.store.segments.tiers import Tiers

_NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS)
"""Errors of a link on a file system, or between two, that has none, or no more of a file."""
_COPIED_BYTES = 1 << 20
_PACK_BYTES = 64 << 20


class CoreFiles:
    """All that the directory of one core has, and gets: the next snapshot lists it."""

    def __init__(self, tiers: Tiers, after: int, part: StorePart) -> None:
        """after: the number of its newest snapshot; 0: it has none."""
        self.tiers = tiers
        self.after = after
        self.part = part
        self.manifest = Manifest.of(part)

    @classmethod
    def of(cls, tiers: Tiers, loaded: Loaded) -> CoreFiles:
        """Return the files of a core that was closed."""
        return cls(tiers, loaded.number, loaded.store)

    @classmethod
    def new(cls, tiers: Tiers, boot: str, shards: int) -> CoreFiles:
        """Return the files of a core that has none yet."""
        return cls(tiers, 0, StorePart({}, [], [], boot, shards))


class HandOver:
    """Files on their way to the directories of other cores."""

    def __init__(self, loop: Loop, cores: Sequence[CoreFiles]) -> None:
        self._loop = loop
        self._files: FileCalls = loop.files
        self._cores = cores
        self._unsynced: dict[str, None] = {}
        """Directories with new entries."""
        self._packs: dict[int, _NewPack] = {}
        """By core, the pack that is being collected."""

    async def give(self, source: int, leaving: Mapping[int, int]) -> None:
        """Give the files of topics to the cores that they belong to, all but their names' sync.

        leaving: the new core of each topic that leaves this one, by id.
        Raises: CorruptError, a run in a pack is damaged; OSError.
        """
        core = self._cores[source]
        manifest = core.manifest
        for topic_id, target in leaving.items():
            for segment in manifest.segments.get(topic_id, ()):
                await self._give_segment(core, segment, self._cores[target])
            manifest.segments.pop(topic_id)
        for number in sorted(manifest.packs):
            await self._give_runs(core, manifest.packs[number], leaving)
        for target in list(self._packs):
            await self._end_pack(target)
        for topic_id in leaving:
            if topic_id in manifest.runs:
                manifest.drop_runs(topic_id)
        for pack in [pack for pack in manifest.packs.values() if not pack.runs]:
            del manifest.packs[pack.number]

    async def sync(self) -> None:
        """Make all new names durable."""
        for path in self._unsynced:
            await in_place(self._files.sync_directory(path))
        self._unsynced.clear()

    async def _give_segment(self, source: CoreFiles, segment: Segment, target: CoreFiles) -> None:
        old, new = source.tiers.path(segment), target.tiers.path(segment)
        root = target.tiers.cold if segment.tier == COLD else target.tiers.hot
        directory = os.path.dirname(segment.path)
        make_directories(self._files, root, directory, self._unsynced)
        # A process that was killed may have made any of them, and not have synced its name.
        self._unsynced |= dict.fromkeys([root, f"{root}/{TOPICS_DIRECTORY}", f"{root}/{directory}"])
        await self._place(old, new)
        if os.path.basename(index_path(old)) in self._files.list_directory(os.path.dirname(old)):
            await self._place(index_path(old), index_path(new))
        target.manifest.add_segment(segment)

    async def _place(self, old: str, new: str) -> None:
        """Give a file another name; copy it where that cannot be."""
        try:
            try:
                self._files.link(old, new)
            except FileExistsError:  # a power cut took back that it was removed
                await self._files.unlink(new)
                self._files.link(old, new)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            await _copy(self._files, old, new)

    async def _give_runs(self, source: CoreFiles, pack: Pack, leaving: Mapping[int, int]) -> None:
        runs = [run for run in pack.runs.values() if run.topic_id in leaving]
        if not runs:
            return
        path = f"{source.tiers.hot}/{pack.path}"
        table = (await read_pack(self._files, source.tiers.hot, pack)).table
        data = memoryview(await read_file(self._files, path))
        for run in sorted(runs, key=lambda run: run.number):
            position = int(table["position"][run.number])
            await self._give_run(leaving[run.topic_id], data[position:], f"{path}, byte {position}", pack.epoch, run)

    async def _give_run(self, target: int, data: memoryview, where: str, epoch: int, run: PackRun) -> None:
        header = RunHeader.unpack(data, where)
        begin = RUN_HEADER_BYTES + len(header.description)
        frames = data[begin : begin + header.frames_bytes]
        scan = codec.scan_frames(frames)
        is_whole = scan.reason is ScanStop.END and scan.sum == header.sum and len(scan.frames) == header.records
        if not is_whole or (header.epoch, header.topic_id, header.first_seq) != (epoch, run.topic_id, run.first_seq):
            raise CorruptError(
                f"{where}: the records of topic {run.topic_id} are damaged, and cannot be copied to another core: "
                "start with the number of cores as before"
            )
        new = self._packs.get(target)
        if new is not None and (new.is_full or run.topic_id in new.topic_ids):
            await self._end_pack(target)
            new = None
        if new is None:
            manifest = self._cores[target].manifest
            epoch = int.from_bytes(self._loop.random_bytes(8), "little") | 1
            new = self._packs[target] = _NewPack(PackWriter(manifest.next_pack, epoch, self._loop.clock.now_ms()))
            manifest.next_pack += 1
        added, _frames_at = new.writer.add_run(scan, frames, header.description)
        new.runs[added.number] = added
        new.rows += header.records
        new.topic_ids.add(run.topic_id)

    async def _end_pack(self, target: int) -> None:
        new, core = self._packs.pop(target), self._cores[target]
        before = new.writer.take()
        rest = new.writer.finish()
        make_directories(self._files, core.tiers.hot, PACK_DIRECTORY, self._unsynced)
        pack = Pack(new.writer.number, new.writer.epoch, new.writer.position, new.runs)
        await write_new_file(self._files, f"{core.tiers.hot}/{pack.path}", before, rest)
        self._unsynced |= dict.fromkeys([core.tiers.hot, f"{core.tiers.hot}/{PACK_DIRECTORY}"])
        core.manifest.add_pack(pack)


class _NewPack:
    """A pack that is being collected in memory."""

    def __init__(self, writer: PackWriter) -> None:
        self.writer = writer
        self.runs: dict[int, PackRun] = {}
        self.rows = 0
        self.topic_ids: set[int] = set()

    @property
    def is_full(self) -> bool:
        return len(self.runs) >= RUNS_A_PACK or self.rows >= ROWS_A_PACK or self.writer.position >= _PACK_BYTES


async def _copy(files: FileCalls, old: str, new: str) -> None:
    """Copy a file, and sync the copy."""
    source = await files.open(old, os.O_RDONLY)
    try:
        target = await files.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            buffer, at = memoryview(bytearray(_COPIED_BYTES)), 0
            while count := await files.read_into(source, buffer, at):
                await files.write_all(target, buffer[:count], at)
                at += count
            await in_place(files.fsync(target))
        finally:
            await files.close(target)
    finally:
        await files.close(source)
