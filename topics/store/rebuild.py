"""Rebuild a data directory from what segments and packs say of themselves: `topics fsck --rebuild`.

Names, configs, heads and floors come from descriptions; deleted records stay deleted, their flags lie in the files. The
log is replayed behind that as far as it is sound. Damaged files are copied to `set-aside-<ms>` first, then replaced by
one with the sound records; a snapshot is written last, so that an interrupted rebuild is simply begun again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from topics.errors import CorruptError, FormatError
from topics.loop.loop import Loop
from topics.store import codec
from topics.store.codec import Stop
from topics.store.directory import Marker
from topics.store.filecalls import list_if_there, read_file, replace_file, unlink_if_there, write_new_file
from topics.store.format import BLOCK_BYTES, FRAME_MIN_BYTES, wal_file_no
from topics.store.fsck import replay_shard
from topics.store.manifest import COLD, Pack, ReplayStart, Run, Segment, StorePart, pack_store_part
from topics.store.pack import PackWriter
from topics.store.past_cache import goes_direct
from topics.store.replay import DirectReader
from topics.store.segment import describe_file
from topics.store.segment_format import (
    PACK_DIRECTORY,
    RUN_HEADER_BYTES,
    RUN_MAGIC,
    SNAPSHOT_DIRECTORY,
    IndexHeader,
    PackHeader,
    RunHeader,
    SegmentHeader,
    index_path,
    numbered,
)
from topics.store.snapshot import snapshot_numbers, write_snapshot
from topics.store.tiers import Tiers, require_cold


@dataclass
class Rebuilt:
    """What came of it."""

    topics: int = 0
    records: int = 0
    """Frames kept in segments and packs."""
    set_aside: list[str] = field(default_factory=list)
    """Damaged files: where their copies are."""
    snapshot: int = 0


@dataclass
class _Source:
    """A topic's records in one file, as the file tells it."""

    topic_id: int
    first_seq: int
    last_seq: int
    description: bytes
    rank: tuple[int, int]
    """Which wins where two hold the same seqs: segments first, then newer packs."""
    segment: Segment | None = None
    pack: int = 0
    run: int = 0
    records: int = 0


class _Rebuild:
    def __init__(self, loop: Loop, directory: str, cold: str) -> None:
        self._loop = loop
        self._files = loop.files
        self._directory = directory
        self._tiers = Tiers(directory, cold)
        self._aside = f"set-aside-{loop.clock.now_ms()}"
        self.result = Rebuilt()
        self._sources: list[_Source] = []
        self._packs: dict[int, Pack] = {}

    async def run(self) -> Rebuilt:
        await self._drop_unreadable_marker()
        for tier, root in self._tiers.roots():  # what was being moved lies in both: the first one found wins
            await self._read_segments(tier, root)
        await self._read_packs()
        segments, descriptions = self._choose()
        part = StorePart(
            replay=await self._log_starts(),
            segments=segments,
            packs=[pack for pack in self._packs.values() if pack.runs],
            boot="",
            shards=1,
            rebuilt=True,
        )
        for changed in self._make(SNAPSHOT_DIRECTORY):
            await self._files.sync_directory(changed)
        numbers = snapshot_numbers(self._files, self._directory)
        self.result.topics = len({topic_id for topic_id, _ in descriptions})
        self.result.snapshot = await write_snapshot(
            self._files,
            self._directory,
            after=max(numbers, default=0),
            now_ms=self._loop.clock.now_ms(),
            store=pack_store_part(part),
            catalog=msgspec.json.encode([(topic_id, msgspec.Raw(text)) for topic_id, text in descriptions]),
        )
        return self.result

    async def _drop_unreadable_marker(self) -> None:
        """It is written again when the directory is opened. One of another format stays: it says something."""
        path = f"{self._directory}/topics.json"
        try:
            data = await read_file(self._files, path)
            msgspec.json.decode(data, type=Marker)
        except FileNotFoundError:
            pass
        except msgspec.DecodeError:
            await self._copy_aside(path, data)
            await unlink_if_there(self._files, path)
            await self._files.sync_directory(self._directory)

    # --- segments ----------------------------------------------------------------------------------------------------
    async def _read_segments(self, tier: int, root: str) -> None:
        for topic in list_if_there(self._files, f"{root}/topics"):
            for name in list_if_there(self._files, f"{root}/topics/{topic}"):
                if not name.endswith(".data"):
                    continue
                path = f"{root}/topics/{topic}/{name}"
                data = await read_file(self._files, path)
                try:
                    found = describe_file(data, path)
                except (CorruptError, FormatError):
                    mended = await self._mend_segment(path, data)
                    if mended is None:
                        continue
                    found = describe_file(mended, path)
                if found.segment.records:
                    found.segment.tier = tier
                    found.segment.sealed = True  # without a footer its index is derived once, and it does not grow
                    self._sources.append(
                        _Source(
                            found.segment.topic_id,
                            found.segment.first_seq,
                            found.segment.last_seq,
                            found.description,
                            (1, 0),
                            found.segment,
                            records=found.segment.records,
                        )
                    )

    async def _mend_segment(self, path: str, data: bytes) -> bytes | None:
        """The header and the sound frames, put in the place of a damaged segment; None when not even that is sound."""
        await self._copy_aside(path, data)
        try:
            header = SegmentHeader.unpack(data, path)
        except (CorruptError, FormatError):
            await unlink_if_there(self._files, path)
            return None
        hints: list[int] = []
        try:
            _, columns = IndexHeader.unpack(await read_file(self._files, index_path(path)), path)
            hints = columns.offsets.tolist()
        except (CorruptError, FormatError, FileNotFoundError, ValueError):
            pass
        mended = header.pack() + sound_frames(data, header.header_bytes, header.topic_id, hints)
        await unlink_if_there(self._files, index_path(path))
        await replace_file(self._files, path, mended)
        return mended

    # --- packs -------------------------------------------------------------------------------------------------------
    async def _read_packs(self) -> None:
        numbers = []
        for name in list_if_there(self._files, f"{self._directory}/{PACK_DIRECTORY}"):
            number = numbered(name, "pack-", ".data")
            if number is not None:
                numbers.append(number)
        for number in sorted(numbers):
            pack = Pack(number, 0, 0, {})
            path = f"{self._directory}/{pack.path}"
            data = await read_file(self._files, path)
            runs, sound = salvage_runs(data)
            if not sound:
                await self._copy_aside(path, data)
                if not runs:
                    await unlink_if_there(self._files, path)
                    continue
                data = _pack_of(runs, number, self._loop)
                await replace_file(self._files, path, data)
                runs, _ = salvage_runs(data)
            pack.epoch, pack.size = PackHeader.unpack(data, path).epoch, len(data)
            self._packs[number] = pack
            for row, (header, _) in enumerate(runs):
                self._sources.append(
                    _Source(
                        header.topic_id,
                        header.first_seq,
                        header.last_seq,
                        header.description,
                        (0, number),
                        None,
                        number,
                        row,
                        header.records,
                    )
                )

    # --- what wins ---------------------------------------------------------------------------------------------------
    def _choose(self) -> tuple[list[Segment], list[tuple[int, bytes]]]:
        """The segments in use and the descriptions, oldest first; runs in use go into their packs.

        A checkpoint that was cut short, or runs that were merged, leave the same records twice.
        """
        by_topic: dict[int, list[_Source]] = {}
        for source in sorted(self._sources, key=lambda source: source.rank, reverse=True):
            kept = by_topic.setdefault(source.topic_id, [])
            if all(source.last_seq < other.first_seq or other.last_seq < source.first_seq for other in kept):
                kept.append(source)
        segments, descriptions = [], []
        for topic_id, kept in sorted(by_topic.items()):
            for source in sorted(kept, key=lambda source: source.first_seq):
                descriptions.append((topic_id, source.description))
                self.result.records += source.records
                if source.segment is not None:
                    segments.append(source.segment)
                else:
                    run = Run(topic_id, source.first_seq, source.last_seq, source.run)
                    self._packs[source.pack].runs[source.run] = run
        return segments, descriptions

    # --- log ---------------------------------------------------------------------------------------------------------
    async def _log_starts(self) -> dict[int, ReplayStart]:
        """Where each shard's replay begins: its first file. Damage ends the log: what lies behind is set aside."""
        direct = goes_direct(self._files.direct_block_bytes(self._directory))
        reader = DirectReader(self._files, direct=direct)
        starts: dict[int, ReplayStart] = {}
        for name in list_if_there(self._files, f"{self._directory}/wal"):
            if not (name.startswith("shard-") and name[6:].isdigit()):
                continue
            path = f"{self._directory}/wal/{name}"
            start = starts[int(name[6:])] = ReplayStart(0, marked=False)
            while True:
                try:
                    await replay_shard(self._loop, reader, path, start)
                    break
                except (CorruptError, FormatError) as error:
                    if not await self._cut_log(path, getattr(error, "detail", None) or {}):
                        raise
        return starts

    async def _cut_log(self, shard: str, detail: dict[str, object]) -> bool:
        """Keeps the damaged file up to the damage and sets aside the files behind it; False: nothing to cut."""
        damaged, offset = str(detail.get("path", "")), detail.get("offset")
        number = wal_file_no(damaged.rpartition("/")[2])
        if number is None or not isinstance(offset, int):
            return False
        for name in list_if_there(self._files, shard):
            other = wal_file_no(name)
            if other is None or other < number:
                continue
            path = f"{shard}/{name}"
            data = await read_file(self._files, path)
            await self._copy_aside(path, data)
            if other == number and offset > BLOCK_BYTES:
                await replace_file(self._files, path, data[:offset] + bytes(len(data) - offset))
            else:
                await unlink_if_there(self._files, path)
        return True

    # --- small things ------------------------------------------------------------------------------------------------
    async def _copy_aside(self, path: str, data: bytes) -> None:
        for changed in self._make(self._aside):
            await self._files.sync_directory(changed)
        tier, root = next((tier, root) for tier, root in self._tiers.roots() if path.startswith(f"{root}/"))
        name = ("cold/" if tier == COLD else "") + path[len(root) + 1 :]
        copy = f"{self._directory}/{self._aside}/{name.replace('/', '-')}"
        await write_new_file(self._files, copy, data)
        await self._files.sync_directory(f"{self._directory}/{self._aside}")
        self.result.set_aside.append(copy)

    def _make(self, name: str) -> list[str]:
        return [self._directory] if self._files.make_directory(f"{self._directory}/{name}") else []


async def rebuild(loop: Loop, directory: str, cold: str = "") -> Rebuilt:
    """Of what lies in the data directory and in the cold one.

    The caller holds the lock, and opens the store afterwards. Raises StorageError for a cold directory that is not the
    right one, OSError.
    """
    await require_cold(loop, Tiers(directory, cold))
    return await _Rebuild(loop, directory, cold).run()


def sound_frames(data: bytes, start: int, topic_id: int, hints: list[int]) -> bytes:
    """Every sound frame of a topic from `start` on, back to back, passing over damaged ones.

    Behind a damaged frame the next one is where its length says, or else at the next of `hints` (offsets, increasing).
    """
    view = memoryview(data)
    parts: list[memoryview] = []
    at, last_seq = start, 0
    while at < len(data):
        scan = codec.scan_frames(view[at:], base=at)
        for frame in scan.frames:
            if int(frame["topic_id"]) == topic_id and int(frame["seq"]) > last_seq:
                begin = int(frame["offset"])
                parts.append(view[begin : begin + int(frame["length"])])
                last_seq = int(frame["seq"])
        at += scan.position
        if scan.reason is Stop.END:
            break
        following = at + 4 + int.from_bytes(data[at : at + 4], "little")
        if not _looks_like_frame(data, following, topic_id):
            following = next((hint for hint in hints if hint > at), len(data))
        at = following
    return b"".join(parts)


def _looks_like_frame(data: bytes, at: int, topic_id: int) -> bool:
    """Whether a frame of this topic, or the end of the frames, seems to lie here."""
    if at == len(data):
        return True
    if at + FRAME_MIN_BYTES > len(data):
        return False
    return int.from_bytes(data[at + 6 : at + 14], "little") == topic_id or data[at : at + 4] == bytes(4)


def salvage_runs(data: bytes) -> tuple[list[tuple[RunHeader, bytes]], bool]:
    """(header, sound frames) of every run with any, and whether all were sound."""
    view = memoryview(data)
    runs: list[tuple[RunHeader, bytes]] = []
    sound = data[:4] == b"TPPK"
    at = data.find(RUN_MAGIC, BLOCK_BYTES)
    while at >= 0:
        try:
            header = RunHeader.unpack(view[at:], "pack")
        except (CorruptError, FormatError):
            sound = False
            at = data.find(RUN_MAGIC, at + 8)
            continue
        start = at + RUN_HEADER_BYTES + len(header.description)
        frames = bytes(view[start : start + header.frames_bytes])
        scan = codec.scan_frames(frames)
        if scan.reason is not Stop.END or scan.sum != header.sum:
            sound = False
            frames = sound_frames(frames, 0, header.topic_id, [])
        if frames:
            runs.append((header, frames))
        at = data.find(RUN_MAGIC, start + header.frames_bytes)
    return runs, sound


def _pack_of(runs: list[tuple[RunHeader, bytes]], number: int, loop: Loop) -> bytes:
    writer = PackWriter(number, int.from_bytes(loop.ring.random_bytes(8), "little") | 1, loop.clock.now_ms())
    for header, frames in runs:
        scan = codec.scan_frames(frames)
        writer.add_run(scan, frames, header.description)
    return writer.finish()
