"""Scrubbing: comparing every checksum of a piece's file, and naming each damaged place.

The log is not scrubbed, because only its server can read it while the server runs; `topics fsck`
reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topics.errors import CorruptError, FormatError, StorageError, without_remedy
from topics.files.file_calls import SYSTEM, FileReads, opened, read_file, read_range
from topics.files.newest_snapshot import read_snapshot, snapshot_numbers
from topics.files.piece import Kind, Location, Piece
from topics.files.piece_files import OpenPack, PieceSource, VanishedError, reading
from topics.files.scanning import Frames, Scanner, StopReason, scan_range
from topics.store.format.log_format import (
    BLOCK_BYTES,
    DELETED,
    DELETED_LIVE,
    FRAME_MIN_BYTES,
    FRAME_START,
    FRAME_TOPIC_AT,
    FrameType,
)
from topics.store.layouts.directory_names import index_path, snapshot_path
from topics.store.layouts.file_kind import FOOTER_BYTES
from topics.store.layouts.index_format import IndexColumns, IndexHeader
from topics.store.layouts.pack_format import RUN_HEADER_BYTES, PackHeader
from topics.store.layouts.segment_format import (
    SEGMENT_FOOTER_MAGIC,
    SEGMENT_HEADER_FIXED,
    SegmentFooter,
    SegmentHeader,
    footer_description_bytes,
    header_description_bytes,
)

_SEARCH_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Finding:
    """A place in a file whose bytes are not those that were written."""

    path: str
    """Path of the file, with its directory."""
    offset: int
    """Bytes from the start of the file; -1 for the file as a whole."""
    topic: str
    """"" for damage that concerns several topics: of a snapshot or a pack."""
    seq: int
    """The seq of the record whose frame is damaged; -1 if the damage is not that of one record.

    Without an index, it is the lowest seq that the record may have.
    """
    message: str
    derived: bool = False
    """No record is lost, because the damaged bytes can be derived from others.

    That is so for an index, a magic and a delete flag.
    """


@dataclass(slots=True)
class PieceScan:
    """The result of scrubbing a piece: what was read, and the damage."""

    path: str
    tier: int
    frames: int = 0
    """Number of sound frames, deleted ones included."""
    live: int = 0
    bytes: int = 0
    """Bytes that were read, the index included."""
    findings: list[Finding] = field(default_factory=list)


class _Known(NamedTuple):
    """Columns of an index, all of shape (n,).

    Records that were dead when the index was made are not in it: deleted ones, and those at or
    below a floor, which have no flag in their frames.
    """

    offsets: NDArray[np.uint32]
    lengths: NDArray[np.uint32]
    seqs: NDArray[np.uint64]
    ts: NDArray[np.uint64]
    sizes: NDArray[np.uint32]

    def agrees(self, parts: list[Frames]) -> bool:
        """Return whether the frames agree with the index."""
        if not len(self.offsets):
            return True
        if not parts:
            return False
        offsets, lengths, seqs, ts, sizes = (
            np.concatenate([getattr(frames, name) for frames in parts]) for name in self._fields
        )
        live = np.concatenate([~frames.says_deleted() for frames in parts])
        listed = np.isin(offsets, self.offsets)
        return (
            bool(listed[live & (offsets >= self.offsets[0])].all())
            and np.array_equal(offsets[listed], self.offsets)
            and np.array_equal(lengths[listed], self.lengths)
            and np.array_equal(seqs[listed], self.seqs)
            and np.array_equal(ts[listed], self.ts)
            and np.array_equal(sizes[listed], self.sizes)
        )


def scan_piece(location: Location, piece: Piece, *, calls: FileReads | None = None) -> PieceScan | None:
    """Compare every checksum of one piece's file, like `scan_pieces`."""
    return next(scan_pieces(location, [piece], calls=calls))


def scan_pieces(
    location: Location, pieces: Iterable[Piece], *, calls: FileReads | None = None, scan: Scanner | None = None
) -> Iterator[PieceScan | None]:
    """Compare every checksum of each piece's file: of header, frames, footer and index.

    The whole segment or run is read, even if the piece is only a part of it. Header and index of a
    pack are read once, with its first run.

    calls, scan: for tests.
    Yields: a result for each piece, in order; None if its file is gone, because a checkpoint has
        dropped or merged it since. The newest snapshot states where its records are.
    Raises: NotReadableError, NoColdDirectoryError. A failing disk is reported as a finding.
    """
    with closing(PieceSource(location, calls or SYSTEM, scan=scan)) as source:
        scrub = _Scrub(source)
        for piece in pieces:
            yield scrub.run(piece) if piece.kind is Kind.RUN else scrub.segment(piece)


def scan_snapshots(location: Location, *, calls: FileReads | None = None) -> list[Finding]:
    """Compare the checksum of each snapshot. Raises: NotReadableError, StorageError."""
    calls, findings = calls or SYSTEM, list[Finding]()
    with reading(location, calls):
        for number in snapshot_numbers(calls, location.path):
            path = f"{location.path}/{snapshot_path(number)}"
            try:
                read_snapshot(calls, path)
            except FileNotFoundError:
                continue  # a newer snapshot has replaced it
            except (CorruptError, FormatError) as error:
                findings.append(Finding(path, 0, "", -1, without_remedy(error)))
    return findings


class _Scrub:
    """Scrubs pieces one after the other, and remembers the packs that it has read."""

    def __init__(self, source: PieceSource) -> None:
        self._source = source
        self._calls = source.calls
        self._packs: set[tuple[str, int]] = set()
        """(path, epoch) of the packs whose header and index were compared."""

    # --- segments ----------------------------------------------------------------------------------------------------
    def segment(self, piece: Piece) -> PieceScan | None:
        for path in self._source.paths(piece):
            tier = piece.tier if path.startswith(f"{self._source.root(piece.tier)}/") else 1 - piece.tier
            report = PieceScan(path, tier)
            try:
                with self._source.reading(path), opened(self._calls, path) as fd:
                    if self._segment(fd, piece, report):
                        return report
            except FileNotFoundError:
                continue
            except StorageError as error:
                if type(error) not in (StorageError, CorruptError, FormatError):
                    raise
                report.findings.append(Finding(path, -1, piece.topic, -1, without_remedy(error)))
                return report
        return None

    def _segment(self, fd: int, piece: Piece, report: PieceScan) -> bool:
        """Scrub an open segment. Return False if the file belongs to another piece."""
        path, start = report.path, 0
        fixed = read_range(self._calls, fd, 0, SEGMENT_HEADER_FIXED)
        more = header_description_bytes(fixed) if len(fixed) == SEGMENT_HEADER_FIXED else 0
        described = read_range(self._calls, fd, len(fixed), min(more, piece.end))
        try:
            header = SegmentHeader.unpack(memoryview(fixed + described), path)
            if (header.topic_id, header.epoch) != (piece.topic_id, piece.epoch):
                return False
            start = header.header_bytes
        except (CorruptError, FormatError) as error:
            report.findings.append(Finding(path, 0, piece.topic, -1, without_remedy(error)))
        known = self._index(piece, report) if piece.sealed else None
        if not start:
            start = int(known.offsets[0]) if known is not None and len(known.offsets) else BLOCK_BYTES
        report.bytes += piece.end
        _Stretch(self._source, fd, piece, report, known).scan(start, piece.end, piece.sum)
        if piece.sealed:
            self._footer(fd, piece, report)
        return True

    def _index(self, piece: Piece, report: PieceScan) -> _Known | None:
        path = index_path(report.path)
        try:
            with self._source.reading(path):
                data = read_file(self._calls, path)
            report.bytes += len(data)
            header, columns = IndexHeader.unpack(memoryview(data), path)
        except FileNotFoundError:
            return None  # the server rebuilds the index when it opens the segment
        except (CorruptError, FormatError, ValueError) as error:
            report.findings.append(Finding(path, 0, piece.topic, -1, without_remedy(error), derived=True))
            return None
        if (header.topic_id, header.epoch, header.sum) != (piece.topic_id, piece.epoch, piece.sum):
            text = f"{path}: the index of another segment"
            report.findings.append(Finding(path, 0, piece.topic, -1, text, derived=True))
            return None
        return _known(columns, slice(None), header.first_seq)

    def _footer(self, fd: int, piece: Piece, report: PieceScan) -> None:
        path, size = report.path, self._calls.size(fd)
        if size < piece.end:
            return  # the file ends within its frames, and the first missing frame was reported
        at = max(piece.end, size - FOOTER_BYTES)
        fixed = read_range(self._calls, fd, at, size - at)
        report.bytes += size - piece.end
        if len(fixed) == FOOTER_BYTES:
            described = min(footer_description_bytes(memoryview(fixed)), at - piece.end)
            tail = read_range(self._calls, fd, at - described, described + FOOTER_BYTES)
            # The checksum decides whether this is a footer, even if its magic is damaged.
            tail[described : described + 4] = SEGMENT_FOOTER_MAGIC
            try:
                footer = SegmentFooter.unpack(memoryview(tail), path)
            except (CorruptError, FormatError):
                pass
            else:
                says = (footer.topic_id, footer.epoch, footer.frames_end, footer.sum)
                if says != (piece.topic_id, piece.epoch, piece.end, piece.sum):
                    text = f"{path}: the footer of another segment"
                    report.findings.append(Finding(path, at, piece.topic, -1, text))
                elif fixed[:4] != SEGMENT_FOOTER_MAGIC:
                    text = f"{path}: bits of the footer's mark have flipped; what it says can still be read"
                    report.findings.append(Finding(path, at, piece.topic, -1, text, derived=True))
                return
        # A segment that a rebuild has repaired has only zeros in the place of its footer.
        behind = piece.end
        while behind < size:
            some = read_range(self._calls, fd, behind, min(_SEARCH_BYTES, size - behind))
            if some.count(0) < len(some):
                report.findings.append(Finding(path, at, piece.topic, -1, f"{path}: the footer is damaged"))
                return
            behind += max(1, len(some))

    # --- runs --------------------------------------------------------------------------------------------------------
    def run(self, piece: Piece) -> PieceScan | None:
        path = f"{self._source.location.path}/{piece.path}"
        report = PieceScan(path, piece.tier)
        try:
            pack = self._source.pack(piece)
            with self._source.reading(path):
                self._pack(pack, piece, report)
                self._run(pack, piece, report)
        except VanishedError:
            return None
        except StorageError as error:
            if type(error) not in (StorageError, CorruptError, FormatError):
                raise
            place = (error.detail or {}).get("offset", -1)
            report.findings.append(Finding(path, place, piece.topic, -1, without_remedy(error)))
        return report

    def _pack(self, pack: OpenPack, piece: Piece, report: PieceScan) -> None:
        """Report damage of the header and the index, which all runs of a pack share."""
        if (piece.path, piece.epoch) in self._packs:
            return
        self._packs.add((piece.path, piece.epoch))
        head = read_range(self._calls, pack.fd, 0, BLOCK_BYTES)
        report.bytes += len(head) + pack.index_bytes
        try:
            PackHeader.unpack(memoryview(head), pack.path)
        except (CorruptError, FormatError) as error:
            report.findings.append(Finding(pack.path, 0, "", -1, without_remedy(error)))
        if pack.table is None:
            text = f"{pack.path}: the index of the pack is damaged"
            report.findings.append(Finding(pack.path, -1, "", -1, text, derived=True))

    def _run(self, pack: OpenPack, piece: Piece, report: PieceScan) -> None:
        if pack.table is None or pack.columns is None:
            known = None
            at, header = self._source.find_run(pack, piece)
        else:
            known = _known(pack.columns, self._source.rows_of_run(pack, piece), piece.first_seq)
            at = int(pack.table[piece.run]["position"])
            try:
                header = self._source.run_header(pack, at, piece)
            except CorruptError as error:
                report.findings.append(Finding(pack.path, at, piece.topic, -1, without_remedy(error)))
                start, end = int(known.offsets[0]), int(known.offsets[-1]) + int(known.lengths[-1])
                _Stretch(self._source, pack.fd, piece, report, known).scan(start, end, None)
                report.bytes += end - at
                return
        start = at + RUN_HEADER_BYTES + len(header.description)
        end = start + header.frames_bytes
        report.bytes += end - at
        _Stretch(self._source, pack.fd, piece, report, known).scan(start, end, header.sum)


class _Stretch:
    """Frames of one topic, back to back in an open file."""

    def __init__(self, source: PieceSource, fd: int, piece: Piece, report: PieceScan, known: _Known | None) -> None:
        self._source = source
        self._fd = fd
        self._piece = piece
        self._report = report
        self._known = known
        self._last_seq = piece.first_seq - 1
        """The seq of the last sound frame."""

    def scan(self, start: int, end: int, written_sum: int | None) -> None:
        """Verify the frames in bytes [start, end).

        written_sum: the checksum over the checksums of the frames; None if it is lost.
        """
        at, before, parts = start, len(self._report.findings), list[Frames]()
        found_sum = 0
        while at < end:
            for scan in scan_range(self._source.calls, self._fd, at, end, self._source.scan):
                parts.append(scan.frames)
                self._look_at(scan.frames)
            found_sum = scan.sum
            if scan.stop is StopReason.END and scan.position == end:
                break
            at = self._pass_over(scan.position, end)
        if len(self._report.findings) > before:
            return
        if written_sum is not None and found_sum != written_sum:
            self._found(start, self._piece.first_seq, "the frames are sound, but not those that were written")
        elif self._known is not None and not self._known.agrees(parts):
            self._found(-1, -1, "the index does not match the frames", derived=True)

    def _look_at(self, frames: Frames) -> None:
        """Report sound frames of another topic, and delete flags with neither of the two values."""
        if not len(frames.seqs):
            return
        report, piece = self._report, self._piece
        self._last_seq = int(frames.seqs[-1])
        report.frames += len(frames.seqs)
        report.live += int(np.count_nonzero(~frames.says_deleted() & (frames.types == FrameType.RECORD)))
        for row in np.flatnonzero(frames.topic_ids != np.uint64(piece.topic_id)).tolist():
            at, seq = int(frames.offsets[row]), int(frames.seqs[row])
            self._found(at, seq, f"the record at byte {at} is of another topic, id {int(frames.topic_ids[row])}")
        for row in np.flatnonzero((frames.deleted != DELETED_LIVE) & (frames.deleted != DELETED)).tolist():
            at, seq = int(frames.offsets[row]) + int(frames.lengths[row]) - 1, int(frames.seqs[row])
            text = f"bits of the flag that says whether seq {seq} is deleted have flipped; what it said can be read"
            self._found(at, seq, text, derived=True)

    def _found(self, offset: int, seq: int, what: str, *, derived: bool = False) -> None:
        report = self._report
        text = f"{report.path}: {what} (topic {self._piece.topic})"
        report.findings.append(Finding(report.path, offset, self._piece.topic, seq, text, derived))

    # --- after a damaged frame ---------------------------------------------------------------------------------------
    def _pass_over(self, at: int, end: int) -> int:
        """Report the damaged frame at this byte, and return where the next one begins."""
        known, row = self._known, -1
        if known is not None:
            row = int(np.searchsorted(known.offsets, np.uint32(at)))
            if row < len(known.offsets) and int(known.offsets[row]) > at:
                # A deleted record, which the index does not list; it ends here at the latest.
                end = int(known.offsets[row])
                row = -1
        if known is not None and 0 <= row < len(known.offsets):
            seq, behind = int(known.seqs[row]), at + int(known.lengths[row])
        else:
            behind = self._next_sound(at, end)
            head = read_range(self._source.calls, self._fd, at, FRAME_START.size)
            said = FRAME_START.unpack(head)[4] if len(head) == FRAME_START.size else 0
            seq = said if self._last_seq < said <= self._piece.last_seq else self._last_seq + 1
        self._last_seq = seq
        self._found(at, seq, f"the record at byte {at}, seq {seq}, is damaged")
        return behind

    def _next_sound(self, at: int, end: int) -> int:
        """Return the first byte after `at` where a sound frame of a later seq begins, or `end`."""
        mark = self._piece.topic_id.to_bytes(8, "little")
        begin = at + 1
        while begin + len(mark) <= end:
            data = read_range(self._source.calls, self._fd, begin, min(_SEARCH_BYTES, end - begin))
            place = data.find(mark)
            while place >= 0:
                start = begin + place - FRAME_TOPIC_AT
                if start > at and self._is_sound(start, end):
                    return start
                place = data.find(mark, place + 1)
            if len(data) <= len(mark):
                break
            begin += len(data) - len(mark) + 1  # two reads may each have a part of a mark
        return end

    def _is_sound(self, at: int, end: int) -> bool:
        head = read_range(self._source.calls, self._fd, at, min(FRAME_START.size, end - at))
        if len(head) < FRAME_START.size:
            return False
        length, _type, _flags, _topic, seq = FRAME_START.unpack(head)
        if not FRAME_MIN_BYTES - 4 <= length <= end - at - 4 or not self._last_seq < seq <= self._piece.last_seq:
            return False
        frame = read_range(self._source.calls, self._fd, at, length + 4)
        return len(self._source.scan(memoryview(frame), at, 0).frames.seqs) == 1


def _known(columns: IndexColumns, part: slice, first_seq: int) -> _Known:
    return _Known(
        columns.offsets[part],
        columns.lengths[part],
        columns.deltas[part].astype(np.uint64) + np.uint64(first_seq),
        columns.ts[part],
        columns.sizes[part],
    )
