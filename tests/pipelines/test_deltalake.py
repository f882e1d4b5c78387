"""A target of layout delta, read by the `deltalake` of PyPI: another implementation of the same protocol."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.pipelines.pipeline_world import DAY_MS, START_MS, fill, log_rows, opened, order
from topics.clock import ManualClock
from topics.pipelines import check, export
from topics.pipelines.source import Origin
from topics.pipelines.target import delta

deltalake = pytest.importorskip("deltalake", reason="deltalake is missing: pip install deltalake")
pytestmark = pytest.mark.slow


def run(data: Path, lake: Path, schema: str = "") -> None:
    export.run(export.Options(Origin(path=str(data)), str(lake), "delta", schema), clock=ManualClock())


def read(lake: Path, topic: str) -> pa.Table:
    table = pa.table(deltalake.DeltaTable(str(lake)).to_pyarrow_table(filters=[("topic", "=", topic)]))
    return table.sort_by("seq")


def same(found: pa.Table, wanted: pa.Table) -> bool:
    return bool(found.select(wanted.schema.names).cast(wanted.schema).equals(wanted))


def test_all_rows_of_several_commits_and_of_a_checkpoint_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta, "CHECKPOINT_EVERY", 3)
    data, lake = fill(tmp_path / "data"), tmp_path / "lake"
    for day in range(5):
        run(data, lake)
        with opened(data, START_MS + (4 + day) * DAY_MS) as log:
            log.append("orders", [order(n) for n in range(300 + day, 305 + day)])
    run(data, lake)
    assert list((lake / "_delta_log").glob("*.checkpoint.parquet"))
    for topic in ("orders", "prices:eur"):
        assert same(read(lake, topic), log_rows(data, topic))
    assert deltalake.DeltaTable(str(lake)).version() == 5


def test_a_column_of_typed_fields_is_read_as_such(tmp_path: Path) -> None:
    data, lake = fill(tmp_path / "data"), tmp_path / "lake"
    run(data, lake, "id bigint, amount double")
    values = read(lake, "orders").column("value").to_pylist()
    assert values[0] == {"id": 1, "amount": 0.25}


def test_a_table_that_deltalake_has_compacted_is_checked_and_exported_to_as_before(tmp_path: Path) -> None:
    data, lake = fill(tmp_path / "data"), tmp_path / "lake"
    for day in range(3):
        run(data, lake)
        with opened(data, START_MS + (2 * DAY_MS) + day * 1000) as log:
            log.append("orders", [order(n) for n in range(300 + day, 305 + day)])
    deltalake.DeltaTable(str(lake)).optimize.compact()
    run(data, lake)
    assert same(read(lake, "orders"), log_rows(data, "orders"))
    report = check.run(check.Options(Origin(path=str(data)), export=str(lake)), clock=ManualClock())
    assert report.export is not None
    assert (report.export["wrong"], report.export["topics"]["orders"]["same"]) == (0, log_rows(data, "orders").num_rows)
