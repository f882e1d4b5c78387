"""`export`: new records of topics since the last run, as Parquet by topic and UTC day.

    run(Options(origin=Origin(path="/var/lib/topics"), target="/data/lake"))

A run commits completely or not at all. Only the target records how far a run came
(target/target_manifest.py, target/delta.py). A killed or refused run therefore changes nothing, and
the next run continues from the newest commit.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, ClassVar, NamedTuple

from topics.clock import Clock, SystemClock
from topics.errors import UsageError
from topics.files import BytesRecordError, Loss
from topics.pipelines.engines import LocalEngine, PipelineEngine, Progress, Stop, silent
from topics.pipelines.errors import DataLossError, PipelineError, TargetError
from topics.pipelines.report import Report, count, loss_as_json, loss_sentence
from topics.pipelines.source import (
    UNIT_BYTES,
    Origin,
    Selection,
    Slice,
    SourceTopic,
    grouped,
    open_selection,
    read,
    refuse_inside,
)
from topics.pipelines.target.delta import BAD_NAME, DeltaLayout
from topics.pipelines.target.file_names import topic_directory
from topics.pipelines.target.layout import Addition, Exported, Layout, PartFile, Shape, TargetState
from topics.pipelines.target.part_files import COMPRESSIONS, PartFileWriter, Parts
from topics.pipelines.target.runs import begin
from topics.pipelines.target.target_manifest import ManifestLayout
from topics.pipelines.target.whole import refuse_unseen
from topics.pipelines.values import ddl
from topics.pipelines.values.infer import infer

LAYOUTS = ("manifest", "delta")
POLICIES = ("fail", "skip", "record")
INFER = "infer"
SAMPLE_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Options:
    """Options of an export.

    schema: the DDL of a column `value` parsed from `data`; "infer"; or "" for the target's schema.
    drop_data: keep `data` only of rows that do not fit the schema.
    on_data_loss: `fail`, `skip` (continue), or `record` (continue, with the ranges in the commit).
    bytes: a new target gets the column `bytes`; without it a record of bytes fails the run.
    """

    origin: Origin
    target: str
    layout: str = "manifest"
    schema: str = ""
    drop_data: bool = False
    on_data_loss: str = "fail"
    compression: str = "zstd"
    bytes: bool = False


@dataclass
class ExportReport(Report):
    """Report of an export: the additions of the run.

    commit: the number of its commit; None without new records.
    """

    pipeline: ClassVar[str] = "export"

    target: str
    layout: str
    commit: int | None = None
    topics: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: int = 0
    rows: int = 0
    bytes: int = 0
    losses: list[dict[str, Any]] = field(default_factory=list)
    schema: str = ""
    misfits: int = 0
    """Rows whose `value` is null because they do not fit the schema."""
    left_out: list[str] = field(default_factory=list)
    """Fields for which `--schema infer` found no type."""

    def summary(self) -> str:
        """Return the result in one sentence."""
        if self.commit is None:
            return f"{self.target}: nothing new"
        done = (
            f"{self.target}: commit {self.commit} adds {count(self.rows, 'row')} of {count(len(self.topics), 'topic')}"
        )
        done += f" in {count(self.files, 'file')}"
        if self.losses:
            done += f"; {count(len(self.losses), 'loss', 'losses')} reported"
        if self.misfits:
            done += f"; {count(self.misfits, 'row')} did not fit the schema"
        return done


class ExportUnit(NamedTuple):
    """The slices that one task exports."""

    number: int
    slices: tuple[Slice, ...]


class UnitResult(NamedTuple):
    """The result of a unit: the files written, and the losses found."""

    files: list[PartFile]
    losses: list[Loss]


class _Range(NamedTuple):
    """The new seqs of a topic, from_seq to its head, and the losses among them."""

    topic: SourceTopic
    from_seq: int
    losses: list[Loss]


def run(
    options: Options,
    *,
    engine: PipelineEngine | None = None,
    clock: Clock | None = None,
    progress: Progress = silent,
    selection: Selection | None = None,
) -> ExportReport:
    """Export the new records.

    selection: topics that are already open, instead of those that the options name.
    Raises: DataLossError, records were lost and the policy is `fail`; TargetError, UsageError,
        StoppedError; errors of reading. Nothing is committed after an error.
    """
    clock = clock or SystemClock()
    engine = engine or LocalEngine()
    began = clock.monotonic_ns()

    _check(options)
    selection = selection or open_selection(options.origin)
    refuse_inside(options.target, options.origin)
    for name in selection.topics:
        topic_directory(name)  # refuses a name too long for a directory, before anything is written
    layout = open_layout(options.layout, options.target)
    _refuse_foreign(options)
    report = ExportReport(options.target, options.layout)
    with Stop() as stop, begin(options.target, selection.topics, clock, layout.is_committed) as announced:
        state = layout.load()
        ranges = [new for topic in selection.topics.values() if (new := _new_of(topic, state, options)) is not None]
        losses = [loss for one in ranges for loss in one.losses]
        _refuse_losses(losses, options)
        shape = _shape(options, state, ranges, report)
        if ranges:
            announced.wrote = True
            parts = Parts(os.path.abspath(options.target), announced.id, options.compression, shape)
            work = partial(export_unit, parts, options.origin.verify, options.on_data_loss)
            results = _write(work, units_of(ranges), engine, stop, progress)
            files = [file for result in results for file in result.files]
            losses += [loss for result in results for loss in result.losses]
            announced.refuse_taken()
            refuse_unseen(options.target, ((file.path, file.bytes) for file in files))
            kept = losses if options.on_data_loss == "record" else []
            topics = _exported(ranges, files, kept)
            stop.check()
            addition = Addition(shape, topics, files, clock.now_ms())
            report.commit = layout.commit(announced, state, addition)
            _tell(report, topics, files)
        report.losses = [loss_as_json(loss) for loss in losses]
    report.schema = shape.schema
    report.seconds = (clock.monotonic_ns() - began) / 1e9
    return report


def open_layout(name: str, target: str) -> Layout:
    """Return the layout of that name."""
    return DeltaLayout(target) if name == "delta" else ManifestLayout(target)


def _check(options: Options) -> None:
    for name, value, known in (
        ("layout", options.layout, LAYOUTS),
        ("on-data-loss", options.on_data_loss, POLICIES),
        ("compression", options.compression, COMPRESSIONS),
    ):
        if value not in known:
            raise UsageError(f"--{name} is {value!r}: use one of {', '.join(known)}")
    if not options.target:
        raise UsageError("no target: name a directory with --to")
    if "://" in options.target:
        raise UsageError(f"--to {options.target}: a commit takes hard links, so the target is a directory, not a URL")
    if options.drop_data and not options.schema:
        raise UsageError("--drop-data without --schema would leave nothing of `data`: name its fields with --schema")
    if options.schema and options.schema != INFER:
        ddl.parse(options.schema)
        if options.layout == "delta":
            from topics.pipelines.target.delta import refuse_names  # noqa: PLC0415 - needs pyarrow

            refuse_names(options.schema)


def _refuse_foreign(options: Options) -> None:
    """Raise TargetError for a directory with other content or a target of the other layout."""
    try:
        names = set(os.listdir(options.target))
    except FileNotFoundError:
        return
    except OSError as error:
        raise TargetError(
            f"target {options.target} cannot be read ({error.strerror}): name another with --to"
        ) from None
    if "_delta_log" in names and options.layout != "delta":
        raise TargetError(f"target {options.target} is a Delta table: add --layout delta, or name another with --to")
    if options.layout == "delta" and os.path.isdir(os.path.join(options.target, "_topics", "commits")):
        raise TargetError(f"target {options.target} has layout manifest: leave out --layout delta, or name another")
    if names and not names & {"_topics", "_delta_log"}:
        raise TargetError(f"target {options.target} is not empty and no target of an export: name another with --to")


def _new_of(topic: SourceTopic, state: TargetState, options: Options) -> _Range | None:
    """Return the seqs of a topic that the target does not have; None if it has all."""
    mark = state.marks.get(topic.name)
    losses: list[Loss] = []
    if mark is None:
        from_seq = topic.first
    elif mark.incarnation != topic.incarnation:
        losses.append(Loss(topic.name, 1, max(topic.head, 1), "recreated"))
        from_seq = topic.first
    else:
        from_seq = mark.next_seq
        if from_seq > topic.seen_head + 1:
            raise TargetError(
                f"topic {topic.name} is exported up to seq {from_seq - 1}, and {options.origin.path} ends with "
                f"{topic.seen_head}: it is an older copy; name the directory in use"
            )
    if from_seq > topic.head and not losses:
        return None
    if from_seq <= topic.head:
        losses += topic.losses(from_seq, topic.head)
    return _Range(topic, from_seq, losses)


def _refuse_losses(losses: list[Loss], options: Options) -> None:
    if losses and options.on_data_loss == "fail":
        more = f" (and {len(losses) - 1} more)" if len(losses) > 1 else ""
        raise DataLossError(
            f"{loss_sentence(losses[0])}{more}: nothing was exported; to export without these records add "
            "--on-data-loss record, or skip"
        )


def _shape(options: Options, state: TargetState, ranges: list[_Range], report: ExportReport) -> Shape:
    """Return the columns of this run: the target's, or those of the options for a new target."""
    data = "misfits" if options.drop_data else "all"
    if state.shape is not None:
        wanted = state.shape.schema if options.schema == INFER and state.shape.schema else options.schema
        state.shape.refuse_another(Shape(wanted, data, options.bytes))
        return state.shape
    if options.schema != INFER:
        return Shape(ddl.text_of(ddl.parse(options.schema)) if options.schema else "", data, options.bytes)
    if not ranges:
        return Shape("", data, options.bytes)

    found = infer(_sample(options, ranges), BAD_NAME if options.layout == "delta" else None)
    report.left_out = found.left_out
    text = ddl.text_of(found.schema)
    return Shape(text, data, options.bytes)


def _sample(options: Options, ranges: list[_Range]) -> Iterator[str]:
    """Yield `data` of the first records of each topic, SAMPLE_ROWS in all."""
    share = max(1, SAMPLE_ROWS // len(ranges))
    for one in ranges:
        yield from islice(_texts(options, one), share)


def _texts(options: Options, one: _Range) -> Iterator[str]:
    for piece in one.topic.slices(one.from_seq, one.topic.head):
        for item in _read(piece, ["data", "bytes"] if options.bytes else ["data"], options.origin.verify):
            if not isinstance(item, Loss):
                yield from item.column("data").drop_null().to_pylist()


def _read(piece: Slice, columns: Sequence[str], verify: bool) -> Iterator[Any]:
    """Yield what `read` does. Raises: PipelineError for bytes without a column for them."""
    try:
        yield from read(piece, columns, verify=verify)
    except BytesRecordError as error:
        about = error.detail or {}
        raise PipelineError(
            f"record {about.get('seq')} of topic {about.get('topic')} is bytes, and this target has no column for "
            "them: name a new target with --to and --bytes, or leave the topic out with --subscribe"
        ) from None


def units_of(ranges: list[_Range]) -> list[ExportUnit]:
    """Return the slices of all topics as units of about UNIT_BYTES, small slices together."""
    slices = (piece for one in ranges for piece in one.topic.slices(one.from_seq, one.topic.head))
    return [ExportUnit(number, group) for number, group in enumerate(grouped(slices, UNIT_BYTES))]


def _write(
    work: Callable[[ExportUnit], UnitResult],
    units: list[ExportUnit],
    engine: PipelineEngine,
    stop: Stop,
    progress: Progress,
) -> list[UnitResult]:
    results: list[UnitResult] = []
    rows = 0
    for result in engine.run(work, units, stop):
        results.append(result)
        rows += sum(file.rows for file in result.files)
        progress(f"exported {len(results)} of {count(len(units), 'unit')}, {count(rows, 'row')}")
    return results


def export_unit(parts: Parts, verify: bool, on_data_loss: str, unit: ExportUnit) -> UnitResult:
    """Write the rows of a unit's slices, on an executor.

    Raises: DataLossError, TargetError, PipelineError, errors of reading.
    """

    files: list[PartFile] = []
    losses: list[Loss] = []
    with PartFileWriter(parts, unit.number) as writer:
        for piece in unit.slices:
            writer.begin(piece.topic, piece.incarnation)
            for item in _read(piece, parts.shape.columns, verify):
                if isinstance(item, Loss):
                    if on_data_loss == "fail":
                        raise DataLossError(
                            f"{loss_sentence(item)}, while it was exported: nothing was committed; to export "
                            "without these records add --on-data-loss record, or skip"
                        )
                    losses.append(item)
                else:
                    writer.add(item)
        files = writer.finish()
    return UnitResult(files, losses)


def _exported(ranges: list[_Range], files: list[PartFile], losses: list[Loss]) -> dict[str, Exported]:
    """Return the range that the run adds to each topic."""
    rows: Counter[str] = Counter()
    for file in files:
        rows[file.topic] += file.rows
    lost: dict[str, list[Loss]] = defaultdict(list)
    for loss in losses:
        lost[loss.topic].append(loss)
    return {
        (name := one.topic.name): Exported(
            one.topic.incarnation, one.from_seq, one.topic.head, rows[name], tuple(lost[name])
        )
        for one in ranges
    }


def _tell(report: ExportReport, topics: dict[str, Exported], files: list[PartFile]) -> None:
    report.topics = {
        name: {"from_seq": one.from_seq, "to_seq": one.to_seq, "rows": one.rows} for name, one in topics.items()
    }
    report.files = len(files)
    report.rows = sum(file.rows for file in files)
    report.bytes = sum(file.bytes for file in files)
    report.misfits = sum(file.misfits for file in files)
