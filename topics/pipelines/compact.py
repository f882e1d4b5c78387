"""`compact`: the newest record of each tag, as Parquet or in a topic. Its input stays unchanged.

    run(Options(origin=Origin(path="/data", subscribe=("accounts",)), to="/lake/accounts"))
    run(Options(origin=.., to_topic="accounts-newest", url="http://localhost:4000"))

A first pass over the indexes finds the newest seq of each tag; a second pass reads those records.
Memory: one row for each tag of a unit of work, then one for each tag.

A topic receives the records of CELL_SEQS seqs (a cell) at a time, in parts of at most CHUNK_BYTES.
Each part is an atomic append that the server identifies by the source topic, its incarnation and
head, and the numbers of cell and part. A killed run can therefore be repeated. If records were
deleted meanwhile, the server refuses a part that has other rows now, instead of appending it twice.
"""

from __future__ import annotations

import os
import secrets
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from topics.clock import Clock, SystemClock
from topics.errors import UsageError
from topics.files import Loss
from topics.pipelines.chunks import CHUNK_BYTES, cut
from topics.pipelines.engines import LocalEngine, PipelineEngine, Progress, RunContext, Stop, silent
from topics.pipelines.errors import PipelineError, disk_errors
from topics.pipelines.report import LISTED_MAX, Report, count, loss_as_json
from topics.pipelines.seqs import Seqs, seqs_of
from topics.pipelines.source import Origin, Slice, SourceTopic, open_selection, read, refuse_inside
from topics.pipelines.target.file_names import topic_directory
from topics.pipelines.target.layout import Shape
from topics.pipelines.target.part_files import COMPRESSIONS, arrow_schema
from topics.pipelines.target.whole import new_directory, refuse_unseen, replace_file, sync_directory
from topics.pipelines.values.checksum import WITH_BYTES
from topics.spark.client import SparkClient
from topics.spark.options import SinkOptions, parse_sink
from topics.spark.writing.parts import PartName, PartWriter

CHOICES = ("keep", "drop")
CELL_SEQS = 10_000
"""Seqs of a cell.

It must not change, because a server remembers the parts that were built from cells.
"""
_PARTS_OF_A_PRODUCER = 1 << 16
_SENT = ["data", "bytes", "tag", "node", "meta"]


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a compaction: the records to keep, and their destination.

    to: a directory that does not exist yet; or to_topic and url: a topic of a server.
    untagged: records without a tag, `keep` or `drop`.
    nulls: tags whose newest record has `null` as data, `keep` or `drop` (such a record marks its
        tag as deleted).
    bytes: files get the column `bytes`; without it a record of bytes fails the run.
    """

    origin: Origin
    to: str = ""
    untagged: str = "keep"
    nulls: str = "keep"
    compression: str = "zstd"
    to_topic: str = ""
    url: str = ""
    token_file: str = ""
    bytes: bool = False


@dataclass
class CompactedTopic:
    """Counts of a topic's records: read = written + superseded + untagged + nulls + vanished."""

    read: int = 0
    written: int = 0
    superseded: int = 0
    """Records whose tag a newer record has."""
    untagged: int = 0
    """Records dropped because they have no tag."""
    nulls: int = 0
    """Records dropped because they mark their tag as deleted."""
    vanished: int = 0
    """Records that were the newest of their tag, but were deleted or lost before the second pass.
    """


@dataclass
class CompactReport(Report):
    """Report of a compaction: the records kept."""

    pipeline: ClassVar[str] = "compact"

    path: str
    to: str
    snapshot: int = 0
    files: int = 0
    bytes: int = 0
    topics: dict[str, CompactedTopic] = field(default_factory=dict)
    losses: list[dict[str, Any]] = field(default_factory=list)
    """Records lost during the run: the first LISTED_MAX ranges."""

    def summary(self) -> str:
        """Return the result in one sentence."""
        read, written = (sum(getattr(one, name) for one in self.topics.values()) for name in ("read", "written"))
        return f"{self.to}: {written:,} of {count(read, 'record')} of {count(len(self.topics), 'topic')} kept"


def run(
    options: Options, *, engine: PipelineEngine | None = None, clock: Clock | None = None, progress: Progress = silent
) -> CompactReport:
    """Write the newest records.

    Raises: UsageError; TargetError, also for a target that exists; StoppedError; errors of reading.
        An error leaves no new directory; parts that a topic has received remain.
    """
    clock = clock or SystemClock()
    engine = engine or LocalEngine()
    began = clock.monotonic_ns()
    _check(options)
    selection = open_selection(options.origin)
    if options.to:
        refuse_inside(options.to, options.origin)
        for name in selection.topics:
            topic_directory(name)
    report = CompactReport(options.origin.path, options.to or f"topic {options.to_topic}", selection.snapshot)
    report.topics = {name: CompactedTopic() for name in selection.topics}
    sink = _sink(options) if options.to_topic else None
    if sink is not None and options.to_topic in selection.topics:
        _refuse_itself(sink, selection.topics[options.to_topic])
    ranges = [one for topic in selection.topics.values() for one in _ranges(topic, in_cells=sink is not None)]
    with Stop() as stop, new_directory(options.to) if sink is None else nullcontext("") as target:
        job = RunContext(engine, stop, progress)
        verify = options.origin.verify
        newest = _newest(report, list(job.results(partial(find_newest, verify), ranges, "looked through")))
        units = [
            CompactUnit(number, selection.topics[one[0].topic].head, one, _between(newest[one[0].topic], one))
            for number, one in enumerate(ranges)
        ]
        keeping = Keeping(target, options.untagged, options.nulls, options.compression, verify, sink, options.bytes)
        for kept in job.results(partial(keep_newest, keeping), units, "written"):
            _add(report, kept)
            refuse_unseen(target, [(kept.path, kept.bytes)] if kept.path else [])
        stop.check()
    report.seconds = (clock.monotonic_ns() - began) / 1e9
    return report


def _check(options: Options) -> None:
    for name, value, known in (
        ("untagged", options.untagged, CHOICES),
        ("nulls", options.nulls, CHOICES),
        ("compression", options.compression, COMPRESSIONS),
    ):
        if value not in known:
            raise UsageError(f"--{name} is {value!r}: use {' or '.join(known)}")
    if bool(options.to) == bool(options.to_topic) or "://" in options.to:
        raise UsageError("name either a new directory with --to (not a URL), or a topic with --to-topic")
    if options.to_topic and not options.url:
        raise UsageError("--to-topic is written through its server: name it with --url")


def _sink(options: Options) -> SinkOptions:
    raw = {"url": options.url, "tokenFile": options.token_file, "topic": options.to_topic}
    return parse_sink({name: value for name, value in raw.items() if value})


def _refuse_itself(sink: SinkOptions, topic: SourceTopic) -> None:
    """Raise UsageError if a topic would be appended to itself.

    A topic of another server may have the same name.
    """
    client = SparkClient(sink.connection)
    try:
        state = client.state(topic.name)
    finally:
        client.close()
    if state is not None and state.of == topic.incarnation:
        raise UsageError(
            f"--to-topic {topic.name} is one of the topics to read: name those with --subscribe, without it"
        )


def _ranges(topic: SourceTopic, *, in_cells: bool) -> Iterator[tuple[Slice, ...]]:
    """Yield the slices of a topic, one by one or in ranges of whole cells.

    No cell is shared by two units.
    """
    slices = topic.slices(topic.first, topic.head) if topic.first <= topic.head else []
    if not in_cells:
        yield from ((one,) for one in slices)
        return
    low = topic.first
    for high in sorted({-(-one.to_seq // CELL_SEQS) * CELL_SEQS for one in slices}):
        found = tuple(topic.slices(low, min(high, topic.head)))
        if found:
            yield found
        low = high + 1


# --- the first pass


class Newest(NamedTuple):
    """The newest seq of each tag in a slice: a table of `tag` and `seq`."""

    topic: str
    records: int
    untagged: int
    tags: pa.Table


def find_newest(verify: bool, slices: tuple[Slice, ...]) -> Newest:
    """Find the newest seq of each tag in slices of a topic, on an executor."""
    untagged = records = 0
    tables: list[pa.Table] = []
    for item in _items(slices, ("tag", "seq"), verify):
        if isinstance(item, Loss):
            continue  # the second pass reads the same seqs, and reports the loss
        records += item.num_rows
        untagged += item.column("tag").null_count
        tables.append(_newest_of_tags(pa.Table.from_batches([item])))
    return Newest(slices[0].topic, records, untagged, _newest_of_tags(_joined(tables)))


def _items(slices: tuple[Slice, ...], columns: tuple[str, ...], verify: bool) -> Iterator[pa.RecordBatch | Loss]:
    for one in slices:
        yield from read(one, columns, verify=verify)


def _newest_of_tags(table: pa.Table) -> pa.Table:
    found = table.filter(pc.is_valid(table.column("tag"))).group_by("tag").aggregate([("seq", "max")])
    return found.rename_columns(["tag", "seq"])


def _joined(tables: list[pa.Table]) -> pa.Table:
    empty = pa.table({"tag": pa.array([], pa.string()), "seq": pa.array([], pa.int64())})
    return pa.concat_tables([empty, *tables])


def _newest(report: CompactReport, found: list[Newest]) -> Mapping[str, Seqs]:
    """Return the seqs that are the newest of their tag, ascending, by topic."""
    by_topic: dict[str, list[Newest]] = defaultdict(list)
    for one in found:
        by_topic[one.topic].append(one)
    newest: dict[str, Seqs] = {}
    for name, about in report.topics.items():
        mine = by_topic[name]
        winners = _newest_of_tags(_joined([one.tags for one in mine])).column("seq")
        newest[name] = np.sort(winners.combine_chunks().to_numpy())
        about.superseded = sum(one.records - one.untagged for one in mine) - len(newest[name])
    return newest


def _between(seqs: Seqs, slices: tuple[Slice, ...]) -> Seqs:
    low, high = np.searchsorted(seqs, [slices[0].from_seq, slices[-1].to_seq + 1])
    return seqs[low:high]


# --- the second pass


class CompactUnit(NamedTuple):
    """Slices of a topic, and the seqs of their records that are the newest of their tag."""

    number: int
    head: int
    """The topic's head when the run began."""
    slices: tuple[Slice, ...]
    newest: Seqs


class Keeping(NamedTuple):
    """Options shared by all units."""

    target: str
    untagged: str
    nulls: str
    compression: str
    verify: bool
    sink: SinkOptions | None
    """The topic to append to; None to write files below `target`."""
    bytes: bool
    """Whether files have the column `bytes`."""


class Kept(NamedTuple):
    """The result of a unit. path: below the target; "" without a file."""

    topic: str
    path: str
    bytes: int
    written: int
    untagged: int
    nulls: int
    vanished: int
    losses: list[Loss]


def keep_newest(keeping: Keeping, unit: CompactUnit) -> Kept:
    """Write the records of some slices that are to be kept, on an executor."""
    topic = unit.slices[0].topic
    found = untagged = nulls = 0
    losses: list[Loss] = []
    parts: list[pa.RecordBatch] = []
    for item in _items(unit.slices, WITH_BYTES, keeping.verify):
        if isinstance(item, Loss):
            losses.append(item)
            continue
        without = np.asarray(pc.is_null(item.column("tag")))
        newest = np.isin(seqs_of(item), unit.newest, assume_unique=True)
        found += int(newest.sum())
        gone = newest & np.asarray(pc.fill_null(pc.equal(item.column("data"), "null"), False))
        if keeping.nulls == "drop":
            nulls += int(gone.sum())
            newest &= ~gone
        if keeping.untagged == "drop":
            untagged += int(without.sum())
        else:
            newest |= without
        kept = item.filter(pa.array(newest))
        parts += [kept] if kept.num_rows else []
    written = sum(part.num_rows for part in parts)
    vanished = len(unit.newest) - found
    path, size = "", 0
    if parts and keeping.sink is None:
        path = os.path.join(topic_directory(topic), f"part-{unit.number:05d}.parquet")
        size = _write(os.path.join(keeping.target, path), topic, parts, keeping)
    elif parts and keeping.sink is not None:
        _send(keeping, keeping.sink, unit, pa.Table.from_batches(parts))
    return Kept(topic, path, size, written, untagged, nulls, vanished, losses)


def _send(keeping: Keeping, sink: SinkOptions, unit: CompactUnit, rows: pa.Table) -> None:
    """Append the rows. Raises ServerError, RowError."""
    one = unit.slices[0]
    made_of = (one.topic, one.incarnation, str(unit.head), keeping.untagged, keeping.nulls)
    run = xxhash.xxh3_128_hexdigest("/".join(made_of).encode())
    attempt = secrets.token_hex(8)
    cells = (rows.column("seq").to_numpy() - 1) // CELL_SEQS
    starts = [0, *(np.flatnonzero(cells[1:] != cells[:-1]) + 1).tolist()]
    client = SparkClient(sink.connection)
    try:
        for start, end in zip(starts, [*starts[1:], rows.num_rows], strict=True):
            high, low = divmod(int(cells[start]), _PARTS_OF_A_PRODUCER)
            for number, part in enumerate(cut(rows.slice(start, end - start).select(_SENT), CHUNK_BYTES)):
                writer = PartWriter(
                    client, sink, PartName(f"compact:{run}:{high}:{number}", 1, low, attempt), is_stream=False
                )
                writer.add(_SENT, part)
                writer.finish()
    finally:
        client.close()


def _write(path: str, topic: str, parts: list[pa.RecordBatch], keeping: Keeping) -> int:
    """Write a file durably; return its size in bytes.

    A file that an earlier try of the same unit wrote is replaced. Raises: PipelineError for bytes
    without a column for them.
    """
    with disk_errors(f"target {path}"):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        table = pa.Table.from_batches(parts)
        octets = table.column("bytes")
        if not keeping.bytes and octets.null_count < len(octets):
            seq = table.column("seq")[pc.index(pc.is_valid(octets), True).as_py()]
            raise PipelineError(
                f"record {seq} of topic {topic} is bytes, and the files have no column for them: run again with "
                "--bytes, compact that topic into another one with --to-topic, or leave it out with --subscribe"
            )
        shape = arrow_schema(Shape(bytes=keeping.bytes))
        table = table.select(shape.names).cast(shape)
        options = {"compression": keeping.compression, "use_dictionary": ["tag", "node"]}
        replace_file(path, partial(pq.write_table, table, **options))
        sync_directory(os.path.dirname(path))
        return os.path.getsize(path)


def _add(report: CompactReport, kept: Kept) -> None:
    about = report.topics[kept.topic]
    about.written += kept.written
    about.untagged += kept.untagged
    about.nulls += kept.nulls
    about.vanished += kept.vanished
    about.read = about.written + about.superseded + about.untagged + about.nulls + about.vanished
    report.files += bool(kept.path)
    report.bytes += kept.bytes
    room = max(0, LISTED_MAX - len(report.losses))
    report.losses += [loss_as_json(loss) for loss in kept.losses[:room]]
