"""`rollup`: counts, bytes, distinct tags, losses and lateness of topics, by window of time.

    run(Options(origin=Origin(path="/var/lib/topics"), window="1 hour", to="hours.parquet"))

A window covers records by the time at which they were written, and begins at a multiple of its
length since 1970. A loss has no time. It counts in the window of the next live record; a loss
without a live record before it (by caps and expiry) or after it counts in a row without a window.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from topics.clock import Clock, SystemClock
from topics.errors import UsageError
from topics.files import Loss
from topics.pipelines.engines import LocalEngine, PipelineEngine, Progress, RunContext, Stop, silent
from topics.pipelines.errors import disk_errors
from topics.pipelines.report import LISTED_MAX, Report, count
from topics.pipelines.seqs import Seqs, Span, numbers_of, seqs_of
from topics.pipelines.source import Origin, Slice, SourceTopic, open_selection, read, refuse_inside
from topics.pipelines.target.part_files import COMPRESSIONS
from topics.pipelines.target.whole import replace_file
from topics.pipelines.values import pointer
from topics.pipelines.values.distinct import Distinct
from topics.pipelines.values.rules import document
from topics.pipelines.values.typed import timestamp_us

TAGS = ("exact", "approx", "none")
_EVENT_MS_MAX = 253_402_300_800_000
"""The year 10000, in milliseconds since 1970."""
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_WINDOW_DAYS_MAX = 365_000
"""Times end with the year 9999, and the first window begins in 1970."""
_WINDOW = re.compile(rf"\s*([1-9][0-9]{{0,8}})\s*({'|'.join(_SECONDS)})s?\s*\Z", re.I | re.A)


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a roll-up.

    to: a Parquet file.
    tags: how distinct tags are counted, one of TAGS.
    event_time: a JSON pointer to the time in `data` from which lateness is measured.
    """

    origin: Origin
    window: str = "1 hour"
    to: str = ""
    tags: str = "exact"
    event_time: str = ""
    compression: str = "zstd"


@dataclass
class RollupReport(Report):
    """Report of a roll-up.

    windows: the first LISTED_MAX rows of the table, each a window of one topic.
    """

    pipeline: ClassVar[str] = "rollup"

    path: str
    snapshot: int = 0
    to: str = ""
    topics: int = 0
    records: int = 0
    bytes: int = 0
    lost: int = 0
    rows: int = 0
    windows: list[dict[str, Any]] = field(default_factory=list)

    def summary(self) -> str:
        """Return the result in one sentence."""
        told = f"{count(self.records, 'record')} of {count(self.topics, 'topic')} in {count(self.rows, 'window')}"
        return f"{self.path}: {told}, {count(self.lost, 'seq')} lost"


@dataclass
class Window:
    """Counts of one window of one topic."""

    tags: Distinct | None
    records: int = 0
    bytes: int = 0
    lost: int = 0
    timed: int = 0
    """Records with an event time."""
    late_sum_ms: float = 0.0
    late_max_ms: float = 0.0

    def merge(self, other: Window) -> None:
        """Add another part of the same window."""
        if other.timed:
            self.late_max_ms = max(self.late_max_ms, other.late_max_ms) if self.timed else other.late_max_ms
        self.records += other.records
        self.bytes += other.bytes
        self.lost += other.lost
        self.timed += other.timed
        self.late_sum_ms += other.late_sum_ms
        if self.tags is not None and other.tags is not None:
            self.tags.merge(other.tags)


class RollupUnit(NamedTuple):
    """A slice, and the losses that end after the previous slice and not after this one."""

    slice: Slice
    losses: tuple[Span, ...]


class Counting(NamedTuple):
    """Options shared by all units. event_time: None without lateness."""

    window_us: int
    tags: str
    event_time: pointer.Pointer | None
    verify: bool


class Counted(NamedTuple):
    """The result of a unit.

    windows: by number since 1970, in order.
    lost_before, lost_behind: seqs lost before the first, and after the last record of this unit.
    """

    topic: str
    windows: dict[int, Window]
    lost_before: int
    lost_behind: int


def run(
    options: Options, *, engine: PipelineEngine | None = None, clock: Clock | None = None, progress: Progress = silent
) -> RollupReport:
    """Count the records of the options' topics.

    Raises: UsageError, TargetError, StoppedError; errors of reading.
    """
    clock = clock or SystemClock()
    engine = engine or LocalEngine()
    began = clock.monotonic_ns()
    counting = _counting(options)
    selection = open_selection(options.origin)
    if options.to:
        refuse_inside(options.to, options.origin)
    units: list[RollupUnit] = []
    table: dict[str, dict[int | None, Window]] = {}
    for topic in selection.topics.values():
        mine, behind = _units(topic)
        units += mine
        table[topic.name] = {None: Window(None, lost=behind)} if behind else {}
    carried: dict[str, int] = {}
    with Stop() as stop:
        job = RunContext(engine, stop, progress)
        for found in job.results(partial(count_unit, counting), units, "counted"):
            carried[found.topic] = _add(table[found.topic], found, carried.get(found.topic, 0))
    for name, lost in carried.items():
        _merge(table[name], None, Window(None, lost=lost))
    rows = _table(table, counting)
    if options.to:
        with disk_errors(f"target {options.to}"):
            replace_file(os.path.abspath(options.to), partial(pq.write_table, rows, compression=options.compression))
    report = RollupReport(
        options.origin.path, selection.snapshot, options.to, len(selection.topics), rows=rows.num_rows
    )
    report.windows = [_as_json(row) for row in rows.slice(0, LISTED_MAX).to_pylist()]
    for name in ("records", "bytes", "lost"):
        setattr(report, name, pc.sum(rows.column(name)).as_py() or 0)
    report.seconds = (clock.monotonic_ns() - began) / 1e9
    return report


def _counting(options: Options) -> Counting:
    """Return the options as values. Raises UsageError."""
    match = _WINDOW.match(options.window)
    if match is None:
        raise UsageError(f"--window {options.window!r} is no length of time: write '15 minutes', '1 hour' or '1 day'")
    for name, value, known in (("tags", options.tags, TAGS), ("compression", options.compression, COMPRESSIONS)):
        if value not in known:
            raise UsageError(f"--{name} is {value!r}: use one of {', '.join(known)}")
    if options.to and not os.path.isdir(os.path.dirname(os.path.abspath(options.to))):
        raise UsageError(f"--to {options.to}: its directory does not exist: make it, or name another file")
    if os.path.exists(options.to) and not os.path.isfile(options.to):
        raise UsageError(f"--to {options.to}: it is there and no file: name a file, which is replaced if it is there")
    event_time = pointer.parse(options.event_time, "--event-time") if options.event_time else None
    seconds = int(match.group(1)) * _SECONDS[match.group(2).lower()]
    if seconds > _WINDOW_DAYS_MAX * 86_400:
        raise UsageError(f"--window {options.window!r} is too long: {_WINDOW_DAYS_MAX:,} days is the most")
    return Counting(seconds * 1_000_000, options.tags, event_time, options.origin.verify)


def _units(topic: SourceTopic) -> tuple[list[RollupUnit], int]:
    """Return the slices of a topic as units, and the number of seqs lost after the last slice.

    A unit has the losses up to its end that no earlier unit has.
    """
    units: list[RollupUnit] = []
    losses = topic.losses(1, topic.head)
    at = 0
    for one in topic.slices(topic.first, topic.head) if topic.first <= topic.head else []:
        start = at
        while at < len(losses) and losses[at].to_seq <= one.to_seq:
            at += 1
        units.append(RollupUnit(one, tuple((loss.from_seq, loss.to_seq) for loss in losses[start:at])))
    return units, sum(loss.to_seq - loss.from_seq + 1 for loss in losses[at:])


def _add(windows: dict[int | None, Window], found: Counted, carried: int) -> int:
    """Add the counts of a unit; return the seqs lost since the last live record."""
    if not found.windows:
        return carried + found.lost_before
    has_lived = any(number is not None for number in windows)
    first = next(iter(found.windows)) if has_lived else None
    if carried + found.lost_before:
        _merge(windows, first, Window(None, lost=carried + found.lost_before))
    for number, window in found.windows.items():
        _merge(windows, number, window)
    return found.lost_behind


def _merge(windows: dict[int | None, Window], number: int | None, window: Window) -> None:
    if not window.records and not window.lost:
        return
    there = windows.get(number)
    if there is None:
        windows[number] = window
        return
    if there.tags is None:
        there.tags, window.tags = window.tags, None
    there.merge(window)


def count_unit(counting: Counting, unit: RollupUnit) -> Counted:
    """Count the records of a slice, on an executor."""
    one = unit.slice
    names = ["seq", "ts", "size"]
    names += ["tag"] if counting.tags != "none" else []
    names += ["data", "bytes"] if counting.event_time is not None else []
    windows: dict[int, Window] = {}
    seqs: list[Seqs] = []
    numbers: list[Seqs] = []
    losses = list(unit.losses)
    for item in read(one, names, verify=counting.verify):
        if isinstance(item, Loss):
            losses.append((item.from_seq, item.to_seq))
            continue
        window_of = numbers_of(item.column("ts")) // counting.window_us
        seqs.append(seqs_of(item).copy())
        numbers.append(window_of)
        starts = [0, *(np.flatnonzero(window_of[1:] != window_of[:-1]) + 1).tolist()]
        for start, end in zip(starts, [*starts[1:], item.num_rows], strict=True):
            number = int(window_of[start])
            if number not in windows:
                windows[number] = Window(Distinct(exact=counting.tags == "exact") if counting.tags != "none" else None)
            _count(windows[number], item.slice(start, end - start), counting)
    if not seqs:
        return Counted(one.topic, {}, sum(high - low + 1 for low, high in losses), 0)
    all_seqs, all_numbers = np.concatenate(seqs), np.concatenate(numbers)
    before = behind = 0
    for low, high in losses:
        at = int(np.searchsorted(all_seqs, high, "right"))
        if at == 0:
            before += high - low + 1
        elif at == len(all_seqs):
            behind += high - low + 1
        else:
            windows[int(all_numbers[at])].lost += high - low + 1
    return Counted(one.topic, windows, before, behind)


def _count(window: Window, rows: pa.RecordBatch, counting: Counting) -> None:
    window.records += rows.num_rows
    window.bytes += int(numbers_of(rows.column("size")).sum())
    if window.tags is not None:
        window.tags.add(pc.unique(rows.column("tag")).drop_null().to_pylist())
    if counting.event_time is not None:
        written = numbers_of(rows.column("ts")).tolist()
        for text, ts in zip(rows.column("data").to_pylist(), written, strict=True):
            event_us = _event_us(text, counting.event_time)
            if event_us is not None:
                late_ms = (ts - event_us) / 1000
                window.late_max_ms = max(window.late_max_ms, late_ms) if window.timed else late_ms
                window.late_sum_ms += late_ms
                window.timed += 1


def _event_us(text: str | None, place: pointer.Pointer) -> int | None:
    """Return the event time of one record in microseconds since 1970; None without one.

    The document has milliseconds since 1970, or ISO 8601.
    """
    value = document(text)
    found = value if value is pointer.MISSING else pointer.find(value, place)
    if isinstance(found, (int, float)) and not isinstance(found, bool):
        return int(found * 1000) if abs(found) < _EVENT_MS_MAX else None
    try:
        return timestamp_us(found) if isinstance(found, str) else None
    except (ValueError, OverflowError):
        return None


def _table(table: dict[str, dict[int | None, Window]], counting: Counting) -> pa.Table:
    """Return a row for each window, by topic and time; the row without a window is first."""
    rows = [
        (name, number, window)
        for name, windows in sorted(table.items())
        for number, window in sorted(windows.items(), key=lambda item: (item[0] is not None, item[0] or 0))
    ]
    moment = pa.timestamp("us", tz="UTC")
    starts = [None if number is None else number * counting.window_us for _, number, _ in rows]
    columns: dict[str, pa.Array] = {
        "topic": pa.array([name for name, _, _ in rows], pa.string()),
        "window_start": pa.array(starts, moment),
        "window_end": pa.array([None if start is None else start + counting.window_us for start in starts], moment),
    }
    for field_name in ("records", "bytes", "lost"):
        columns[field_name] = pa.array([getattr(window, field_name) for _, _, window in rows], pa.int64())
    if counting.tags != "none":
        tags = [0 if window.tags is None else window.tags.count() for _, _, window in rows]
        columns["tags"] = pa.array(tags, pa.int64())
    if counting.event_time is not None:
        columns["event_times"] = pa.array([window.timed for _, _, window in rows], pa.int64())
        means = [window.late_sum_ms / window.timed if window.timed else None for _, _, window in rows]
        columns["late_mean_ms"] = pa.array(means, pa.float64())
        latest = [window.late_max_ms if window.timed else None for _, _, window in rows]
        columns["late_max_ms"] = pa.array(latest, pa.float64())
    return pa.table(columns)


def _as_json(row: dict[str, Any]) -> dict[str, Any]:
    for name in ("window_start", "window_end"):
        if row[name] is not None:
            row[name] = row[name].strftime("%Y-%m-%dT%H:%M:%SZ")
    return row
