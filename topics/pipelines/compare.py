"""Two copies of a topic's records, compared by seq: log and export, or directory and backup."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from topics.files import Loss
from topics.pipelines.report import LISTED_MAX
from topics.pipelines.seqs import Seqs, seqs_of
from topics.pipelines.values.checksum import COLUMNS


@dataclass
class Ranges:
    """Seqs that only one side has, as runs without a record of the other side in between."""

    records: int = 0
    runs: list[tuple[int, int, int]] = field(default_factory=list)
    """(first seq, last seq, records), ascending; the first LISTED_MAX runs."""
    more: int = 0
    """The number of runs that are not listed."""

    def add(self, first: int, last: int, records: int, *, joins: bool) -> None:
        """Add a run. joins: no record of the other side is between it and the previous run."""
        self.records += records
        if joins and self.runs and not self.more:
            before = self.runs[-1]
            self.runs[-1] = (before[0], last, before[2] + records)
        elif joins and self.more:
            return
        elif len(self.runs) < LISTED_MAX:
            self.runs.append((first, last, records))
        else:
            self.more += 1


@dataclass
class Comparison:
    """Differences between two copies, left and right."""

    same: int = 0
    """Records that are equal in all columns."""
    differing: int = 0
    differing_seqs: list[int] = field(default_factory=list)
    """The first LISTED_MAX seqs of differing records."""
    left_only: Ranges = field(default_factory=Ranges)
    right_only: Ranges = field(default_factory=Ranges)

    def add(self, other: Comparison) -> None:
        """Add the result of a range that follows."""
        self.same += other.same
        self.differing += other.differing
        room = max(0, LISTED_MAX - len(self.differing_seqs))
        self.differing_seqs += other.differing_seqs[:room]
        for mine, theirs in ((self.left_only, other.left_only), (self.right_only, other.right_only)):
            for first, last, records in theirs.runs:
                mine.add(first, last, records, joins=False)
            mine.more += theirs.more
            mine.records += theirs.records - sum(records for _, _, records in theirs.runs)


class _ComparedBatches:
    """The batches of one side, from which rows are taken up to a seq."""

    def __init__(self, batches: Iterable[pa.RecordBatch], columns: tuple[str, ...]) -> None:
        self._batches = iter(batches)
        self._columns = columns
        self._rows: pa.RecordBatch | None = None
        self._fill()

    def _fill(self) -> None:
        for batch in self._batches:
            if batch.num_rows:
                self._rows = batch.select(list(self._columns))
                return
        self._rows = None

    @property
    def last(self) -> int | None:
        """The last seq of the current batch; None at the end."""
        return None if self._rows is None else int(self._rows.column("seq")[-1].as_py())

    def take(self, up_to: int | None) -> pa.RecordBatch:
        """Take the rows of the current batch with seqs up to `up_to`; all of them if it is None."""
        assert self._rows is not None
        rows = self._rows
        count = rows.num_rows
        if up_to is not None:
            count = int(np.searchsorted(seqs_of(rows), up_to, "right"))
        if count == rows.num_rows:
            self._fill()
        else:
            self._rows = rows.slice(count)
        return rows.slice(0, count)


def compare(
    left: Iterable[pa.RecordBatch], right: Iterable[pa.RecordBatch], columns: tuple[str, ...] = COLUMNS
) -> Comparison:
    """Compare batches of one topic, each side ascending by seq.

    columns: the columns to compare, with `seq`.
    """
    found = Comparison()
    sides = _ComparedBatches(left, columns), _ComparedBatches(right, columns)
    before = 0  # the side of the last record: 1 left, 2 right, 0 both
    while (lasts := [side.last for side in sides]) != [None, None]:
        both = [last for last in lasts if last is not None]
        up_to = min(both) if len(both) == 2 else None
        rows = [side.take(up_to) if side.last is not None else None for side in sides]
        before = _compare_rows(found, rows[0], rows[1], before)
    return found


def _compare_rows(found: Comparison, left: pa.RecordBatch | None, right: pa.RecordBatch | None, before: int) -> int:
    """Compare rows of the same range of seqs; return the side of the last record."""
    ours = seqs_of(left) if left is not None else np.empty(0, np.int64)
    theirs = seqs_of(right) if right is not None else np.empty(0, np.int64)
    if left is not None and right is not None and len(ours) == len(theirs) and (ours == theirs).all():
        _compare_common(found, left, right)
        return 0 if len(ours) else before
    common = np.intersect1d(ours, theirs, assume_unique=True)
    if left is not None and right is not None and len(common):
        _compare_common(
            found,
            left.filter(pa.array(np.isin(ours, common))),
            right.filter(pa.array(np.isin(theirs, common))),
        )
    return _one_sided(found, ours, theirs, before)


def _one_sided(found: Comparison, ours: Seqs, theirs: Seqs, before: int) -> int:
    """Note the runs of records that only one side has."""
    every = np.union1d(ours, theirs)
    if not len(every):
        return before
    side = np.isin(every, ours).astype(np.int8) + 2 * np.isin(every, theirs).astype(np.int8)
    starts = [0, *(np.flatnonzero(side[1:] != side[:-1]) + 1).tolist()]
    for start, end in zip(starts, [*starts[1:], len(every)], strict=True):
        which = int(side[start]) % 3
        if which:
            ranges = found.left_only if which == 1 else found.right_only
            joins = start == 0 and before == which
            ranges.add(int(every[start]), int(every[end - 1]), end - start, joins=joins)
    return int(side[-1]) % 3


def _compare_common(found: Comparison, left: pa.RecordBatch, right: pa.RecordBatch) -> None:
    """Compare rows of the same seqs."""
    unlike = np.zeros(left.num_rows, bool)
    for name in left.schema.names:
        ours, theirs = left.column(name), right.column(name)
        if not ours.equals(theirs):
            other = pc.fill_null(pc.not_equal(ours, theirs), False)
            unlike |= np.asarray(other) | (np.asarray(ours.is_null()) != np.asarray(theirs.is_null()))
    count = int(unlike.sum())
    found.same += left.num_rows - count
    found.differing += count
    if count and len(found.differing_seqs) < LISTED_MAX:
        room = LISTED_MAX - len(found.differing_seqs)
        found.differing_seqs += seqs_of(left)[unlike][:room].tolist()


def only_batches(items: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a read, without the losses in between, which the caller knows."""
    for item in items:
        if isinstance(item, pa.RecordBatch):
            yield item


# --- why only one side has some


def covering(run: tuple[int, int, int], losses: Iterable[Loss]) -> str:
    """Return why a run is missing if losses cover all of it; "" otherwise.

    losses: ascending, without overlap.
    """
    at = run[0]
    reasons: dict[str, None] = {}
    for loss in losses:
        if loss.from_seq > at:
            break
        reasons[loss.reason] = None
        at = max(at, loss.to_seq + 1)
    return f"lost: {', '.join(reasons)}" if reasons and at > run[1] else ""


def why_gone(run: tuple[int, int, int], losses: list[Loss]) -> str:
    """Return the reason why the log lacks the seqs of a run: those not lost were deleted."""
    reasons = ", ".join(dict.fromkeys(loss.reason for loss in losses))
    return covering(run, losses) or (f"lost ({reasons}) or deleted since" if reasons else "deleted since")


def as_run(run: tuple[int, int, int], reason: str) -> dict[str, Any]:
    """Return a run in the form of a report."""
    return {"from_seq": run[0], "to_seq": run[1], "records": run[2], "reason": reason}


def as_json(ranges: Ranges, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the records of one side in the form of a report: count, first runs, further runs."""
    return {"records": ranges.records, "ranges": runs, "more": ranges.more}
