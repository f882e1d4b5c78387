"""Verify a data directory: every checksum of snapshots, segments, packs, their indexes and the log.

Used by `topics fsck`; it changes nothing. A finding names path, byte, topic and seq as far as they
are known. Effects of an ordinary crash (a torn tail of the log, files that no snapshot lists) are
no damage and are reported as notes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from topics.errors import CorruptError, FormatError, StorageError, without_remedy
from topics.loop.loop import Loop
from topics.store.disk.directory_format import NO_CORE, Marker, refused_marker
from topics.store.disk.uncached_reads import is_direct
from topics.store.disk.whole_files import FileCalls, list_if_there, read_file
from topics.store.format import codec
from topics.store.format.codec import ScanStop
from topics.store.format.compressed_segment import image_of, surplus_bytes
from topics.store.format.file_table import FileTable
from topics.store.format.log_format import DELETED, DELETED_LIVE, FrameType, shard_directory
from topics.store.layouts.directory_names import PACK_DIRECTORY, SNAPSHOT_DIRECTORY, index_path, snapshot_path
from topics.store.layouts.file_kind import FOOTER_BYTES
from topics.store.layouts.index_format import IndexHeader
from topics.store.layouts.segment_format import SEGMENT_FOOTER_MAGIC, SegmentHeader
from topics.store.recovery.direct_reader import DirectReader
from topics.store.recovery.log_replay import ShardReplay
from topics.store.recovery.log_survey import shards_of, survey_shard
from topics.store.recovery.verified_batches import VerifiedBatches
from topics.store.segments.data_files import Pack, Segment
from topics.store.segments.manifest import Manifest
from topics.store.segments.pack import PackIndex, read_pack, scan_runs
from topics.store.segments.segment import read_footer
from topics.store.segments.snapshot_files import read_snapshot, snapshot_numbers
from topics.store.segments.store_part import ReplayStart, StorePart, unpack_store_part
from topics.store.segments.tiers import Tiers, require_cold, segment_files


@dataclass(frozen=True, slots=True)
class Damage:
    """One damaged place. offset, topic_id and seq (the first damaged one) are -1 if unknown.

    The seq is unknown where a block of a compressed segment is damaged.
    """

    path: str
    message: str
    offset: int = -1
    topic_id: int = -1
    seq: int = -1
    is_index: bool = False
    """Whether it is an index.

    No record is lost then, because it is derived again from the data when the store is opened.
    """
    topic: str = ""
    """Name of the topic; "" if unknown."""


class _Named(msgspec.Struct):
    """The one member of a description that a report needs."""

    name: str


@dataclass
class VerifyReport:
    """The findings of `verify`."""

    findings: list[Damage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    snapshots: int = 0
    segments: int = 0
    packs: int = 0
    records: int = 0
    """Number of records in segments and packs, deleted ones included."""
    log_batches: int = 0
    log_records: int = 0
    """Number of records in the log from where a start replays it, deleted ones included."""
    names: dict[int, str] = field(default_factory=dict)
    """Names of topics by id, as segments and packs state them."""

    def learn_name(self, topic_id: int, description: bytes) -> None:
        """Note the name in the description of a file's header or of a run, if it has one."""
        with contextlib.suppress(msgspec.DecodeError):
            self.names[topic_id] = msgspec.json.decode(description, type=_Named).name

    @property
    def sound(self) -> bool:
        return not self.findings

    def describe(self, finding: Damage) -> str:
        """Return a line: path, offset, topic and seq as far as known, and what is wrong."""
        parts = [finding.path]
        if finding.offset >= 0:
            parts.append(f"offset {finding.offset}")
        if finding.topic_id >= 0:
            name = self.names.get(finding.topic_id)
            parts.append(f"topic {name}" if name else f"topic number {finding.topic_id:x}")
        if finding.seq >= 0:
            parts.append(f"seq {finding.seq}")
        message = finding.message.removeprefix(f"{finding.path}: ")
        return f"{', '.join(parts)}: {message}"


async def verify(loop: Loop, directory: str, cold: str = "", *, core: int = NO_CORE, number: int = 0) -> VerifyReport:
    """Read and verify everything, in the cold directory, too.

    The caller holds the data directory's lock.

    core: it is the directory of this core. number: that of the directory, from the slot map.
    Raises: StorageError if the cold directory is not the data directory's own; OSError if a file
        cannot be read.
    """
    await require_cold(loop, Tiers(directory, cold))
    report = VerifyReport()
    await _verify_marker(loop.files, directory, report, core, number)
    part = await _verify_snapshots(loop.files, directory, report)
    manifest = Manifest.of(part) if part is not None else None
    await _verify_segments(loop.files, Tiers(directory, cold), manifest, report)
    await _verify_packs(loop.files, directory, manifest, report)
    await _verify_log(loop, directory, part, report)
    report.findings = [replace(each, topic=report.names.get(each.topic_id, "")) for each in report.findings]
    return report


async def _verify_marker(files: FileCalls, directory: str, report: VerifyReport, core: int, number: int) -> None:
    path = f"{directory}/topics.json"
    try:
        marker = msgspec.json.decode(await read_file(files, path), type=Marker)
        refusal = refused_marker(marker, directory, core, number)
        if refusal:
            report.findings.append(Damage(path, refusal, 0))
    except FileNotFoundError:
        report.notes.append(f"{path}: missing; it is written again when the directory is opened")
    except msgspec.DecodeError as error:
        report.findings.append(Damage(path, f"{error}: remove it, it is written again on opening", 0))


async def _verify_snapshots(files: FileCalls, directory: str, report: VerifyReport) -> StorePart | None:
    """Verify all snapshots; return the store's part of the newest sound one."""
    newest: StorePart | None = None
    numbers = snapshot_numbers(files, directory)
    for number in numbers:
        path = f"{directory}/{snapshot_path(number)}"
        report.snapshots += 1
        try:
            file = await read_snapshot(files, path)
            newest = newest or unpack_store_part(file.store)
        except StorageError as error:
            report.findings.append(Damage(path, without_remedy(error), 0))
    if not numbers and not any(
        list_if_there(files, f"{directory}/{name}") for name in ("topics", PACK_DIRECTORY, "wal")
    ):
        report.notes.append(f"{directory}: nothing was written here yet")
    elif newest is None:
        report.findings.append(Damage(f"{directory}/{SNAPSHOT_DIRECTORY}", "there is no sound snapshot"))
    return newest


# --- segments --------------------------------------------------------------------------------------------------------


async def _verify_segments(files: FileCalls, tiers: Tiers, manifest: Manifest | None, report: VerifyReport) -> None:
    segments = manifest.all_segments() if manifest is not None else ()
    listed = {(segment.tier, segment.path): segment for segment in segments}
    for file in segment_files(files, tiers):
        segment = listed.pop((file.tier, file.path), None)
        if segment is None and manifest is not None:
            report.notes.append(f"{file.full_path}: no snapshot lists it (a checkpoint was cut short)")
            continue  # its contents do not count, and the next start removes it
        report.segments += 1
        await _verify_segment(files, file.full_path, segment, report)
    for segment in listed.values():
        report.findings.append(
            Damage(tiers.path(segment), "the snapshot lists it, and it is missing", -1, segment.topic_id)
        )


async def _verify_segment(files: FileCalls, path: str, segment: Segment | None, report: VerifyReport) -> None:
    try:
        stored = await read_file(files, path)
        data, surplus = image_of(stored, path), surplus_bytes(stored, path)
        header = SegmentHeader.unpack(data, path)
        # The frames of an unsealed segment are followed by left-overs of a crash, perhaps half a
        # footer.
        footer = read_footer(data, path) if segment is None or segment.sealed else None
    except (CorruptError, FormatError) as error:
        topic_id = segment.topic_id if segment is not None else -1
        at = getattr(error, "detail", None) or {}
        report.findings.append(Damage(path, without_remedy(error), at.get("offset", 0), topic_id))
        return
    report.learn_name(header.topic_id, header.description)
    if surplus:
        text = f"{surplus} bytes follow the last block of the compressed segment; none of them is of a record"
        report.findings.append(Damage(path, text, len(stored) - surplus, header.topic_id))
    begin = header.header_bytes
    if segment is not None:
        end, total = segment.frames_end, segment.sum
    elif footer is not None:
        end, total = footer.frames_end, footer.sum
    else:
        end, total = len(data), -1
    scan = codec.scan_frames(memoryview(data)[begin:end], base=begin)
    report.records += len(scan.frames)
    _verify_flags(path, header.topic_id, scan.frames, report)
    if scan.reason is not ScanStop.END or (total >= 0 and scan.sum != total):
        before = int(scan.frames["seq"][-1]) if len(scan.frames) else header.first_seq - 1
        at = begin + scan.position
        report.findings.append(
            Damage(path, f"damaged at byte {at}, after seq {before}", at, header.topic_id, before + 1)
        )
    elif footer is None and segment is not None and segment.sealed and data[end:].strip(b"\0"):
        # A segment that a rebuild has mended has no footer, only zeros in its place.
        report.findings.append(Damage(path, "its footer is damaged", len(data) - FOOTER_BYTES, header.topic_id))
    elif footer is not None:
        if data[-FOOTER_BYTES:][:4] != SEGMENT_FOOTER_MAGIC:
            text = "bits of the footer's mark have flipped; what the footer says can still be read"
            report.findings.append(Damage(path, text, len(data) - FOOTER_BYTES, header.topic_id, is_index=True))
        await _verify_index(files, path, header, scan, report)


def _verify_flags(path: str, topic_id: int, frames: codec.Frames, report: VerifyReport) -> None:
    """Verify the bytes that mark records as deleted, which no checksum covers."""
    for row in frames[(frames["deleted"] != DELETED_LIVE) & (frames["deleted"] != DELETED)]:
        at = int(row["offset"]) + int(row["length"]) - 1
        seq = int(row["seq"])
        text = f"bits of the flag that says whether seq {seq} is deleted have flipped; what it said can still be read"
        report.findings.append(Damage(path, text, at, topic_id, seq, is_index=True))


async def _verify_index(
    files: FileCalls, path: str, header: SegmentHeader, scan: codec.FrameScan, report: VerifyReport
) -> None:
    index = index_path(path)
    try:
        head, columns = IndexHeader.unpack(await read_file(files, index), index)
    except FileNotFoundError:
        report.notes.append(f"{index}: missing; it will be derived from the data")
        return
    except (CorruptError, FormatError, ValueError) as error:
        report.findings.append(Damage(index, without_remedy(error), 0, header.topic_id, is_index=True))
        return
    at = np.searchsorted(scan.frames["offset"], columns.offsets)
    rows = scan.frames[np.minimum(at, len(scan.frames) - 1)]
    agrees = (
        (rows["offset"] == columns.offsets)
        & (rows["length"] == columns.lengths)
        & (rows["seq"] == columns.deltas.astype(np.uint64) + np.uint64(header.first_seq))
    )
    if head.epoch != header.epoch or not agrees.all():
        report.findings.append(Damage(index, "does not agree with its data", -1, header.topic_id, is_index=True))


# --- packs -----------------------------------------------------------------------------------------------------------


async def _verify_packs(files: FileCalls, directory: str, manifest: Manifest | None, report: VerifyReport) -> None:
    listed: dict[str, Pack] = {pack.path: pack for pack in manifest.packs.values()} if manifest is not None else {}
    for name in list_if_there(files, f"{directory}/{PACK_DIRECTORY}"):
        path = f"{PACK_DIRECTORY}/{name}"
        pack = listed.pop(path, None)
        if pack is None and manifest is not None:
            report.notes.append(f"{path}: no snapshot lists it (a checkpoint was cut short)")
            continue
        report.packs += 1
        full = f"{directory}/{path}"
        try:
            runs = scan_runs(await read_file(files, full), full)
            report.records += sum(len(run.frames) for run in runs)
            for run in runs:
                report.learn_name(run.header.topic_id, run.header.description)
                _verify_flags(full, run.header.topic_id, run.frames, report)
            index: PackIndex | None = await read_pack(files, directory, pack) if pack is not None else None
        except (CorruptError, FormatError) as error:
            detail = getattr(error, "detail", None) or {}
            place = (detail.get("offset", -1), detail.get("topic_id", -1), detail.get("seq", -1))
            report.findings.append(Damage(full, without_remedy(error), *place))
            continue
        if index is not None and index.derived:
            report.findings.append(Damage(full, "the index of the pack is damaged", is_index=True))
        if pack is not None and len(runs) <= max(pack.runs, default=-1):
            report.findings.append(Damage(full, f"holds {len(runs)} runs, fewer than the snapshot lists"))
        elif index is not None and len(runs) < len(index.table):
            row = index.table[len(runs)]
            text = "the mark of a run is damaged; none of its records is live, nor of those after it"
            place = (int(row["position"]), int(row["topic_id"]), int(row["first_seq"]))
            report.findings.append(Damage(full, text, *place))
    for path in listed:
        report.findings.append(Damage(f"{directory}/{path}", "the snapshot lists it, and it is missing"))


# --- log -------------------------------------------------------------------------------------------------------------


async def _verify_log(loop: Loop, directory: str, part: StorePart | None, report: VerifyReport) -> None:
    direct = is_direct(loop.files.direct_block_bytes(directory))
    reader = DirectReader(loop.files, direct=direct)
    starts = part.replay if part is not None else {}
    for shard in shards_of(loop.files, directory, starts):
        path = f"{directory}/{shard_directory(shard)}"
        start = starts.get(shard)

        def count(chunk: VerifiedBatches) -> None:
            report.log_records += int(np.count_nonzero(chunk.frames["type"] == FrameType.RECORD))

        try:
            replay = await replay_shard(loop, reader, path, start, count)
        except (CorruptError, FormatError) as error:
            detail = getattr(error, "detail", None) or {}
            report.findings.append(Damage(detail.get("path", path), without_remedy(error), detail.get("offset", -1)))
            continue
        report.log_batches += replay.batches
        if replay.last_batch_no > replay.synced_upto:
            report.notes.append(
                f"{path}: {_batches(replay.synced_upto + 1, replay.last_batch_no)} sound; whether synced is not "
                "recorded, which is normal for the last ones: the next write would record it"
            )
        if replay.lost:
            report.notes.append(f"{path}: a crash took batch {replay.last_batch_no + 1} and what follows it")


def _batches(first: int, last: int) -> str:
    return f"batch {first}, the last one, is" if first == last else f"batches {first} to {last}, the last ones, are"


async def replay_shard(
    loop: Loop,
    reader: DirectReader,
    path: str,
    start: ReplayStart | None,
    on_chunk: Callable[[VerifiedBatches], object] = lambda chunk: None,
) -> ShardReplay:
    """Read a shard to its end without applying anything. Raises CorruptError or FormatError."""
    table = FileTable()
    survey = await survey_shard(loop, reader, path, start.file_no if start is not None else 0, 0)
    if start is not None and start.marked and (not survey.used or survey.used[0].number != start.file_no):
        raise CorruptError(f"{path}: log file {start.file_no} is missing or unreadable", {"path": path})
    replay = ShardReplay(
        loop.files,
        reader,
        table,
        survey,
        whole=start is None,
        pause=loop.next_pass,
        on_bytes=lambda count: None,
    )
    try:
        while (chunk := await replay.next()) is not None:
            on_chunk(chunk)
    finally:
        for file in table:
            await loop.files.close(file.fd)
    return replay
