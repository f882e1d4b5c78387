"""The comparison of an export with the log: every row of every listed file, and missing records."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from topics.errors import CorruptError
from topics.pipelines.compare import Comparison, as_json, as_run, compare, only_batches, why_gone
from topics.pipelines.engines import RunContext
from topics.pipelines.errors import TargetError, disk_error
from topics.pipelines.report import LISTED_MAX
from topics.pipelines.seqs import Seqs, Span, holes, seqs_of
from topics.pipelines.source import Origin, Slice, SourceTopic, read
from topics.pipelines.target.delta import LOG, DeltaLayout
from topics.pipelines.target.layout import Layout, PartFile, Shape, TargetState
from topics.pipelines.target.target_manifest import COMMITS, ManifestLayout
from topics.pipelines.values.checksum import COLUMNS, WITH_BYTES, RowSum

BATCH_ROWS = 65_536
BEYOND = "beyond the end of the log, which is an older copy"


def layout_of(target: str) -> Layout:
    """Return the layout of a directory.

    Raises: TargetError, the directory has no export or cannot be read.
    """
    for place, layout in ((LOG, DeltaLayout), (COMMITS, ManifestLayout)):
        try:
            os.listdir(os.path.join(target, place))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise disk_error(f"export {target} cannot be read", error) from error
        return layout(target)
    raise TargetError(f"{target} is no target of an export: name the directory that `export --to` named")


@dataclass
class _TopicDifference:
    """Differences between the export of one topic and the log."""

    files: int = 0
    rows: int = 0
    next_seq: int = 0
    total: Comparison = field(default_factory=Comparison)
    repeated: int = 0
    """Rows whose record another row already has."""
    repeated_seqs: list[int] = field(default_factory=list)
    """The first LISTED_MAX seqs of these rows."""
    told: list[str] = field(default_factory=list)
    """Sentences about files that are damaged, missing or unlike their commit.

    The first LISTED_MAX are listed.
    """
    bad_files: int = 0


class _Group(NamedTuple):
    """Files of one topic with overlapping seqs (usually one file), and the log's slices."""

    topic: str
    files: tuple[PartFile, ...]
    slices: tuple[Slice, ...]


class _ComparedRows(NamedTuple):
    topic: str
    comparison: Comparison
    told: list[str]
    rows: int
    repeated: Seqs


def check_export(
    layout: Layout, target: str, topics: Mapping[str, SourceTopic], origin: Origin, job: RunContext
) -> dict[str, Any]:
    """Compare a target of this layout with topics; return the differences, as part of the report.

    Raises: TargetError, FormatError, StoppedError.
    """
    state = layout.load()
    files: dict[str, list[PartFile]] = defaultdict(list)
    for file in layout.files():
        files[file.topic].append(file)
    found: dict[str, _TopicDifference] = {}
    skipped: dict[str, str] = {}
    units: list[_Group] = []
    for name, topic in topics.items():
        mark = state.marks.get(name)
        if mark is None:
            skipped[name] = "not exported yet"
            continue
        if mark.incarnation != topic.incarnation:
            skipped[name] = "created again since it was exported, so that seqs name other records"
            continue
        ours = [file for file in files[name] if file.incarnation in ("", topic.incarnation)]
        found[name] = _TopicDifference(len(ours), next_seq=mark.next_seq)
        units += _units(topic, mark.next_seq, ours)
    work = partial(compare_group, os.path.abspath(target), _columns(state), origin.verify)
    for result in job.results(work, units, "compared with the export"):
        about = found[result.topic]
        about.total.add(result.comparison)
        about.rows += result.rows
        about.repeated += len(result.repeated)
        about.repeated_seqs += result.repeated[: max(0, LISTED_MAX - len(about.repeated_seqs))].tolist()
        about.bad_files += len(result.told)
        about.told += result.told[: max(0, LISTED_MAX - len(about.told))]
    told = {name: _as_json(topics[name], about) for name, about in found.items()}
    return {
        "target": target,
        "layout": layout.name,
        "commit": state.number,
        "wrong": sum(one["wrong"] for one in told.values()),
        "topics": told,
        "skipped": skipped,
    }


def _columns(state: TargetState) -> tuple[str, ...]:
    """Return the columns to compare: `data` only if all rows have it."""
    shape = state.shape or Shape()
    return tuple(name for name in shape.columns if name != "data" or shape.data == "all")


def _as_json(topic: SourceTopic, about: _TopicDifference) -> dict[str, Any]:
    total = about.total
    gone = [
        as_run(run, why_gone(run, topic.losses(run[0], run[1])) if run[0] <= topic.seen_head else BEYOND)
        for run in total.right_only.runs
    ]
    missing = [as_run(run, "in no file of the export") for run in total.left_only.runs]
    beyond = sum(run["records"] for run in gone if run["reason"] == BEYOND)
    return {
        "wrong": total.differing + total.left_only.records + beyond + about.repeated + about.bad_files,
        "files": about.files,
        "rows": about.rows,
        "next_seq": about.next_seq,
        "not_exported_yet": max(0, topic.head - about.next_seq + 1),
        "same": total.same,
        "differing": total.differing,
        "differing_seqs": total.differing_seqs,
        "repeated": about.repeated,
        "repeated_seqs": about.repeated_seqs,
        "missing": as_json(total.left_only, missing),
        "deleted_since": as_json(total.right_only, gone),
        "bad_files": about.bad_files,
        "findings": about.told,
    }


def _units(topic: SourceTopic, next_seq: int, files: list[PartFile]) -> Iterator[_Group]:
    """Yield the files of a topic with the log's slices of their seqs, and uncovered slices.

    A file of another writer may not state its seqs.
    """
    last = min(next_seq - 1, topic.head)
    covered: list[Span] = []
    files = [file if file.first_seq else file._replace(first_seq=1, last_seq=max(last, 1)) for file in files]
    for group in _overlapping(files):
        span = (group[0].first_seq, max(file.last_seq for file in group))
        covered.append(span)
        yield _Group(topic.name, group, tuple(topic.slices(*span)))
    if topic.first <= last:
        for low, high in holes((topic.first, last), np.empty(0, np.int64), covered):
            for one in topic.slices(low, high):
                yield _Group(topic.name, (), (one,))


def _overlapping(files: list[PartFile]) -> Iterator[tuple[PartFile, ...]]:
    """Yield files in groups, by first seq: files of a group overlap, and groups do not."""
    group: list[PartFile] = []
    reached = 0
    for file in sorted(files, key=lambda file: (file.first_seq, file.last_seq)):
        if group and file.first_seq > reached:
            yield tuple(group)
            group = []
        group.append(file)
        reached = max(reached, file.last_seq)
    if group:
        yield tuple(group)


def compare_group(target: str, columns: tuple[str, ...], verify: bool, group: _Group) -> _ComparedRows:
    """Compare the rows of files with the log's, on an executor."""
    told: list[str] = []
    every = WITH_BYTES if "bytes" in columns else COLUMNS
    sums = [RowSum(every)]
    files = _FileRows(target, group.files, columns, told)
    try:
        log = only_batches(item for one in group.slices for item in read(one, every, verify=verify))
        found = compare(_summed(log, sums[0]), files.rows(), columns)
    except CorruptError as error:
        told.append(f"the log could not be read: {error}")
        return _ComparedRows(group.topic, Comparison(), told, files.count, files.repeated())
    repeated = files.repeated()
    whole = not (found.differing or found.left_only.records or found.right_only.records or len(repeated) or told)
    if whole and len(group.files) == 1:
        (file,) = group.files
        if file.checksum and (file.checksum, file.rows) != (sums[0].hexdigest(), sums[0].rows):
            told.append(f"{file.path}: the commit's checksum or number of rows is not that of its rows")
    return _ComparedRows(group.topic, found, told, files.count, repeated)


def _summed(batches: Iterator[pa.RecordBatch], total: RowSum) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        total.add(batch)
        yield batch


class _FileRows:
    """Rows of some files by seq, each seq once. A file that cannot be read is reported."""

    def __init__(self, target: str, files: tuple[PartFile, ...], columns: tuple[str, ...], told: list[str]) -> None:
        self._target = target
        self._files = files
        self._columns = list(columns)
        self._told = told
        self.count = 0
        self._repeated: list[Seqs] = []

    def repeated(self) -> Seqs:
        """Return the seqs of rows left out because an earlier row has the same seq; ascending."""
        return np.concatenate([np.empty(0, np.int64), *self._repeated])

    def rows(self) -> Iterator[pa.RecordBatch]:
        last = -1
        for batch in self._sorted():
            seqs = seqs_of(batch)
            again = np.diff(seqs, prepend=last) == 0
            last = int(seqs[-1])
            if again.any():
                self._repeated.append(seqs[again])
                batch = batch.filter(pa.array(~again))
            if batch.num_rows:
                yield batch

    def _sorted(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all files by seq, in batches that are not empty."""
        if len(self._files) == 1 and self._files[0].checksum:  # an export wrote it in order of seq
            yield from self._batches(self._files[0])
            return
        batches = [batch for file in self._files for batch in self._batches(file)]
        if batches:
            yield from pa.Table.from_batches(batches).sort_by("seq").combine_chunks().to_batches()

    def _batches(self, file: PartFile) -> Iterator[pa.RecordBatch]:
        rows = 0
        try:
            path = os.path.join(self._target, file.path)
            # pyarrow rejects paths that are not UTF-8.
            with open(path, "rb") as raw, pq.ParquetFile(raw) as opened:
                for batch in opened.iter_batches(BATCH_ROWS, columns=self._columns):
                    rows += batch.num_rows
                    if batch.num_rows:
                        yield _plain(batch)
        except FileNotFoundError:
            self._told.append(f"{file.path}: missing")
            return
        except (OSError, pa.ArrowException) as error:
            self._told.append(f"{file.path}: cannot be read: {error}")
        self.count += rows
        if file.rows not in (-1, rows) and not self._told:
            self._told.append(f"{file.path}: {rows} rows, and its commit says {file.rows}")


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with the types of the log's columns, whatever another writer chose."""
    fields = []
    for name in batch.schema.names:
        kind = {"seq": pa.int64(), "ts": pa.timestamp("us", tz="UTC"), "bytes": pa.binary()}.get(name, pa.string())
        fields.append(pa.field(name, kind))
    return batch.cast(pa.schema(fields))
