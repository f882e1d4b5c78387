"""`scrub`: all checksums of a data directory, beside a running server; or two directories compared.

    run(Options(path="/var/lib/topics"))
    run(Options(path="/var/lib/topics", backup="/mnt/backup/topics"))

The hot and the cold directory are both read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple

from topics.clock import Clock, SystemClock
from topics.errors import CorruptError
from topics.files import (
    Directory,
    DirectoryBusyError,
    Finding,
    Location,
    Piece,
    open_directory,
    scan_pieces,
    scan_snapshots,
)
from topics.pipelines.compare import Comparison, as_json, as_run, compare, covering, only_batches, why_gone
from topics.pipelines.engines import LocalEngine, PipelineEngine, Progress, RunContext, Stop, silent
from topics.pipelines.report import LISTED_MAX, WELL, WRONG, Report, count
from topics.pipelines.source import UNIT_BYTES, FileTopic, Slice, grouped, read
from topics.pipelines.values.checksum import WITH_BYTES

_PLANS_MAX = 16
"""How often pieces whose files have vanished are planned again, at most."""

NEWER = "newer than the backup's last checkpoint"
MISSING = "missing in the backup"
BEYOND = "beyond the end of this directory, which is the older one"


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a scrub. backup: another directory, to compare record by record."""

    path: str
    cold: str = ""
    backup: str = ""
    backup_cold: str = ""


@dataclass
class ScrubReport(Report):
    """Report of a scrub: the data read, and the damage found."""

    pipeline: ClassVar[str] = "scrub"

    path: str
    snapshot: int = 0
    topics: int = 0
    pieces: int = 0
    """Segments, and runs of packs."""
    records: int = 0
    """Live records."""
    frames: int = 0
    bytes: int = 0
    bad: int = 0
    findings: list[dict[str, Any]] = field(default_factory=list)
    """The first LISTED_MAX, each with path, offset, topic, seq, message and derived."""
    backup: dict[str, Any] | None = None

    @property
    def exit_code(self) -> int:
        """Return WRONG if there is damage or the backup differs, else WELL."""
        return WRONG if self.bad or (self.backup is not None and self.backup["wrong"]) else WELL

    def summary(self) -> str:
        """Return the result in one sentence."""
        read = f"{self.path}: {count(self.pieces, 'piece')} of {count(self.topics, 'topic')}, {self.bytes:,} bytes"
        told = f"{count(self.bad, 'damaged place')}" if self.bad else "all sound"
        if self.backup is not None:
            told += f"; backup: {'differs' if self.backup['wrong'] else 'no difference that is not explained'}"
        return f"{read}: {told}"


class _Scanned(NamedTuple):
    """The result of a unit."""

    frames: int
    live: int
    bytes: int
    bad: int
    findings: list[Finding]
    gone: list[Piece]
    """Pieces whose files have vanished: a checkpoint moved, merged or dropped them."""


_Key = tuple[str, int, int, int]
"""Path, epoch, run and end of a piece, which identify it."""


def run(
    options: Options, *, engine: PipelineEngine | None = None, clock: Clock | None = None, progress: Progress = silent
) -> ScrubReport:
    """Compare every checksum, and with `backup` every record.

    Raises: errors of `files.open_directory`; StorageError, a disk fails; StoppedError.
    """
    clock = clock or SystemClock()
    engine = engine or LocalEngine()
    began = clock.monotonic_ns()
    directory = open_directory(options.path, options.cold or None)
    backup = open_directory(options.backup, options.backup_cold or None) if options.backup else None
    report = ScrubReport(options.path, directory.snapshot, len(directory.topics))
    with Stop() as stop:
        job = RunContext(engine, stop, progress)
        _note(report, scan_snapshots(directory.location))
        _scan(report, directory, job)
        if backup is not None:
            report.backup = _compare(directory, backup, job)
    report.seconds = (clock.monotonic_ns() - began) / 1e9
    return report


def _note(report: ScrubReport, findings: Iterable[Finding]) -> None:
    for finding in findings:
        report.bad += 1
        if len(report.findings) < LISTED_MAX:
            place = asdict(finding)
            report.findings.append({key: None if value == -1 else value for key, value in place.items()})


def _scan(report: ScrubReport, directory: Directory, job: RunContext) -> None:
    pieces = [piece for topic in directory.topics.values() for piece in topic.whole_pieces]
    done: set[_Key] = set()
    missed: dict[_Key, int] = {}
    for _ in range(_PLANS_MAX):
        gone: dict[_Key, Piece] = {}
        by_place = sorted(pieces, key=lambda piece: (piece.path, piece.run))
        # All runs of one pack are in the same unit, because they share its index.
        units = list(grouped(by_place, UNIT_BYTES, key=lambda piece: piece.path))
        for found in job.results(partial(scan_unit, directory.location), units, "scrubbed"):
            report.frames += found.frames
            report.records += found.live
            report.bytes += found.bytes
            report.bad += found.bad - len(found.findings)
            _note(report, found.findings)
            gone.update((_key(piece), piece) for piece in found.gone)
        done.update(key for key in map(_key, pieces) if key not in gone)
        report.pieces += len(pieces) - len(gone)
        if not gone:
            return
        directory = directory.refresh()
        planned = {_key(piece): piece for piece in _planned_again(directory, gone.values())}
        missing = [piece for key, piece in planned.items() if missed.get(key) == directory.snapshot]
        _note(report, (_missing(directory, piece) for piece in missing))
        done.update(map(_key, missing))
        pieces = [piece for key, piece in planned.items() if key not in done]
        missed.update((_key(piece), directory.snapshot) for piece in pieces)
        if not pieces:
            return
    raise DirectoryBusyError(
        f"data directory {directory.path}: files vanished {_PLANS_MAX} times before they could be scrubbed: run it "
        "again when fewer checkpoints are made"
    )


def _missing(directory: Directory, piece: Piece) -> Finding:
    """Return the finding for a file that the newest snapshot lists, and that is missing."""
    path = f"{directory.path}/{piece.path}"
    return Finding(
        path,
        -1,
        piece.topic,
        piece.first_seq,
        f"{path}: snapshot {directory.snapshot} lists it, and it is missing or another file",
    )


def _key(piece: Piece) -> _Key:
    return piece.path, piece.epoch, piece.run, piece.end


def _planned_again(directory: Directory, gone: Iterable[Piece]) -> Iterator[Piece]:
    """Yield the pieces that now hold the seqs of vanished ones; none for seqs that are removed."""
    for piece in gone:
        topic = directory.topics.get(piece.topic)
        if topic is not None and topic.incarnation == piece.incarnation:
            yield from (one for one in topic.whole_pieces if one.clip(piece.first_seq, piece.last_seq) is not None)


def scan_unit(location: Location, pieces: tuple[Piece, ...]) -> _Scanned:
    """Compare the checksums of some pieces, on an executor."""
    frames = live = size = bad = 0
    findings: list[Finding] = []
    gone: list[Piece] = []
    for piece, scan in zip(pieces, scan_pieces(location, pieces), strict=True):
        if scan is None:
            gone.append(piece)
            continue
        frames += scan.frames
        live += scan.live
        size += scan.bytes
        bad += len(scan.findings)
        findings += scan.findings[: max(0, LISTED_MAX - len(findings))]
    return _Scanned(frames, live, size, bad, findings, gone)


# --- against a backup


class _Pair(NamedTuple):
    """A range of seqs of one topic, as slices of both directories."""

    topic: str
    ours: tuple[Slice, ...]
    theirs: tuple[Slice, ...]


class _ComparedTopic(NamedTuple):
    topic: str
    comparison: Comparison
    unreadable: str
    """The error that ended the comparison; "" if it is complete."""


def _compare(directory: Directory, backup: Directory, job: RunContext) -> dict[str, Any]:
    topics: dict[str, dict[str, Any]] = {}
    both: dict[str, tuple[FileTopic, FileTopic]] = {}
    pairs: list[_Pair] = []
    unreadable: list[str] = []
    for name in sorted({*directory.topics, *backup.topics}):
        ours, theirs = directory.topics.get(name), backup.topics.get(name)
        if theirs is None:
            topics[name] = {"state": "not in the backup: created since, or left out of it"}
        elif ours is None:
            topics[name] = {"state": "only in the backup: deleted since"}
        elif ours.incarnation != theirs.incarnation:
            topics[name] = {"state": "another topic of that name: created again since, so that seqs name other records"}
        else:
            try:
                both[name] = FileTopic(ours, directory.location), FileTopic(theirs, backup.location)
                pairs += list(_pairs(*both[name]))
            except CorruptError as error:  # indexes are read to find expired records
                unreadable.append(str(error))
    totals: dict[str, Comparison] = {}
    for found in job.results(compare_pair, pairs, "compared with the backup"):
        totals.setdefault(found.topic, Comparison()).add(found.comparison)
        unreadable += [found.unreadable] if found.unreadable else []
    wrong = len(unreadable)
    for name, total in totals.items():
        told = _explained(*both[name], total)
        topics[name] = told
        wrong += told["wrong"]
    return {
        "path": backup.path,
        "snapshot": backup.snapshot,
        "wrong": wrong,
        "unreadable": unreadable[:LISTED_MAX],
        "topics": topics,
    }


def _pairs(ours: FileTopic, theirs: FileTopic) -> Iterator[_Pair]:
    """Yield all seqs of a topic in ranges that end where the slices of `ours` end."""
    end = max(ours.head, theirs.head)
    cuts = {one.to_seq for one in ours.slices(1, end)} | {ours.head, theirs.head}
    low = 1
    for high in sorted({*(cut for cut in cuts if 0 < cut < end), end}):
        pair = _Pair(ours.name, tuple(ours.slices(low, high)), tuple(theirs.slices(low, high)))
        if pair.ours or pair.theirs:
            yield pair
        low = high + 1


def compare_pair(pair: _Pair) -> _ComparedTopic:
    """Compare the records of one range, on an executor."""
    try:
        left, right = (
            only_batches(item for one in slices for item in read(one, WITH_BYTES))
            for slices in (pair.ours, pair.theirs)
        )
        return _ComparedTopic(pair.topic, compare(left, right, WITH_BYTES), "")
    except CorruptError as error:
        return _ComparedTopic(pair.topic, Comparison(), str(error))


def _explained(ours: FileTopic, theirs: FileTopic, total: Comparison) -> dict[str, Any]:
    """Return a topic's differences, with a reason for each run that only one side has."""
    gone = [
        as_run(run, BEYOND if run[0] > ours.seen_head else why_gone(run, ours.losses(run[0], run[1])))
        for run in total.right_only.runs
    ]
    new = [
        as_run(run, NEWER if run[0] > theirs.head else covering(run, theirs.losses(run[0], run[1])) or MISSING)
        for run in total.left_only.runs
    ]
    wrong = sum(one["records"] for one in (*new, *gone) if one["reason"] in (MISSING, BEYOND))
    return {
        "wrong": wrong + total.differing,
        "same": total.same,
        "differing": total.differing,
        "differing_seqs": total.differing_seqs,
        "here_only": as_json(total.left_only, new),
        "backup_only": as_json(total.right_only, gone),
    }
