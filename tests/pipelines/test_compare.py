"""Two copies of records, compared: against a plain comparison of dicts, however both are cut into batches."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.amount import examples
from topics.files import Loss
from topics.pipelines import compare as module
from topics.pipelines.compare import compare, covering, why_gone
from topics.pipelines.values.checksum import COLUMNS

Side = dict[int, tuple[str | None, str]]
"""Tag and data by seq."""
SIDES = st.dictionaries(
    st.integers(1, 30), st.tuples(st.sampled_from([None, "", "a"]), st.sampled_from(["1", "2"])), max_size=20
)


def batches(side: Side, cut: int) -> Iterator[pa.RecordBatch]:
    seqs = sorted(side)
    for start in range(0, len(seqs), cut):
        part = seqs[start : start + cut]
        yield pa.record_batch(
            {
                "data": pa.array([side[seq][1] for seq in part]),
                "seq": pa.array(part, pa.int64()),
                "ts": pa.array(part, pa.timestamp("us", tz="UTC")),
                "tag": pa.array([side[seq][0] for seq in part], pa.string()),
                "node": pa.array([None] * len(part), pa.string()),
                "meta": pa.array([None] * len(part), pa.string()),
            }
        )
        yield pa.RecordBatch.from_pylist([], schema=pa.schema([("seq", pa.int64())]))


def runs(mine: set[int], other: set[int]) -> list[tuple[int, int, int]]:
    found: list[list[int]] = []
    for seq in sorted(mine | other):
        if seq in mine and seq not in other:
            if not found or any(found[-1][-1] < between < seq for between in other):
                found.append([])
            found[-1].append(seq)
    return [(run[0], run[-1], len(run)) for run in found]


@examples(50)
@given(SIDES, SIDES, st.integers(1, 9), st.integers(1, 9))
def test_what_is_equal_different_or_on_one_side_alone_is_found(left: Side, right: Side, cut: int, other: int) -> None:
    found = compare(batches(left, cut), batches(right, other))
    common = sorted({*left} & {*right})
    assert found.differing_seqs == [seq for seq in common if left[seq] != right[seq]]
    assert (found.differing, found.same) == (len(found.differing_seqs), len(common) - len(found.differing_seqs))
    assert found.left_only.runs == runs({*left}, {*right})
    assert found.right_only.runs == runs({*right}, {*left})
    assert found.left_only.records == len({*left} - {*right})


def test_columns_that_do_not_count_may_differ() -> None:
    columns = tuple(name for name in COLUMNS if name != "data")
    found = compare(batches({1: ("a", "1")}, 5), batches({1: ("a", "2")}, 5), columns)
    assert (found.same, found.differing) == (1, 0)


def test_lists_are_bounded_and_counts_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LISTED_MAX", 2)
    left: Side = dict.fromkeys(range(1, 20), ("a", "1"))
    right: Side = {seq: ("a", "2" if seq % 3 else "1") for seq in range(1, 20) if seq % 4}
    found = compare(batches(left, 3), batches(right, 4))
    assert (found.differing_seqs, found.differing) == ([1, 2], sum(1 for seq in right if seq % 3))
    assert (found.left_only.runs, found.left_only.more, found.left_only.records) == ([(4, 4, 1), (8, 8, 1)], 2, 4)
    total = module.Comparison()
    total.add(found)
    total.add(found)
    assert (total.left_only.more, total.left_only.records, len(total.left_only.runs)) == (6, 8, 2)


def test_a_run_is_lost_when_losses_take_all_of_it_and_deleted_otherwise() -> None:
    losses = [Loss("t", 1, 10, "cap"), Loss("t", 11, 12, "crash")]
    assert covering((5, 12, 8), losses) == "lost: cap, crash"
    assert covering((5, 13, 9), losses) == ""
    assert covering((5, 6, 2), []) == ""
    assert why_gone((5, 13, 9), losses) == "lost (cap, crash) or deleted since"
    assert why_gone((5, 13, 9), []) == "deleted since"
