"""`compact`: the newest record of each tag, against a plain loop over the same records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import topics
from tests.pipelines.world import fill, log_rows, opened
from topics.clock import ManualClock
from topics.errors import UsageError
from topics.files import Loss
from topics.pipelines import compact
from topics.pipelines.compact import CompactReport, Options
from topics.pipelines.engines import LocalEngine, Stop
from topics.pipelines.errors import StoppedError, TargetError
from topics.pipelines.source import Origin


@pytest.fixture(params=[1, 128 << 20])
def unit_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many units of work, and one."""
    monkeypatch.setattr("topics.pipelines.source.UNIT_BYTES", request.param)


def run(data: Path, to: Path, **more: Any) -> CompactReport:
    engine = more.pop("engine", None)
    return compact.run(Options(Origin(path=str(data)), str(to), **more), clock=ManualClock(), engine=engine)


def kept_rows(to: Path, topic: str) -> list[dict[str, Any]]:
    tables = [pq.ParquetFile(path).read() for path in sorted(to.glob(f"topic={topic}/*.parquet"))]
    rows: list[dict[str, Any]] = pa.concat_tables(tables).to_pylist() if tables else []
    return rows


def newest(rows: list[dict[str, Any]], *, untagged: bool, nulls: bool) -> list[dict[str, Any]]:
    last = {row["tag"]: row["seq"] for row in rows}
    found = [row for row in rows if (untagged if row["tag"] is None else last[row["tag"]] == row["seq"])]
    return [row for row in found if nulls or row["tag"] is None or row["data"] != "null"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `fill`, and customer-1 and customer-6 are gone since."""
    path = fill(tmp_path_factory.mktemp("filled") / "data")
    with opened(path, 1_795_700_000_000) as log:
        log.append("orders", [topics.NewRecord(None, tag=f"customer-{n}") for n in (1, 6, 1)])
        log.append("orders", [topics.NewRecord(None)])
    return path


@pytest.mark.usefixtures("unit_bytes")
@pytest.mark.parametrize("untagged", ["keep", "drop"])
@pytest.mark.parametrize("nulls", ["keep", "drop"])
def test_what_is_kept_is_the_newest_record_of_each_tag(data: Path, tmp_path: Path, untagged: str, nulls: str) -> None:
    report = run(data, tmp_path / "out", untagged=untagged, nulls=nulls)
    for topic in ("orders", "prices:eur"):
        rows = log_rows(data, topic).to_pylist()
        kept = kept_rows(tmp_path / "out", topic.replace(":", "%3A"))
        assert kept == newest(rows, untagged=untagged == "keep", nulls=nulls == "keep")
        about = report.topics[topic]
        assert (about.written, about.read, about.vanished) == (len(kept), len(rows), 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_a_record_that_is_deleted_between_the_passes_is_counted_and_the_rest_is_kept(
    tmp_path: Path,
) -> None:
    with opened(tmp_path / "data") as log:
        log.append("orders", [topics.NewRecord(n, tag=str(n)) for n in range(10)])

    class Deleting(LocalEngine):
        passes = 0

        def run(self, function: Any, units: Any, stop: Stop) -> Any:
            self.passes += 1
            if self.passes == 2:
                with opened(tmp_path / "data") as log:
                    log.delete("orders", match="3")
                    log.put_topic("orders", cap_records=7)
            return super().run(function, units, stop)

    report = run(tmp_path / "data", tmp_path / "out", engine=Deleting())
    about = report.topics["orders"]
    assert about.written + about.vanished == about.read == 10
    assert about.vanished >= 1
    assert {row["data"] for row in kept_rows(tmp_path / "out", "orders")} < {str(n) for n in range(10)}


def test_a_run_that_fails_or_is_stopped_leaves_nothing(data: Path, tmp_path: Path) -> None:
    class Failing(LocalEngine):
        def run(self, function: Any, units: Any, stop: Stop) -> Any:
            yield from super().run(function, units, stop)
            if "keep_newest" in str(function):
                raise StoppedError("stopped")

    with pytest.raises(StoppedError):
        run(data, tmp_path / "out", engine=Failing())
    assert list(tmp_path.iterdir()) == []


def test_a_target_that_is_there_is_refused_unless_it_is_empty(data: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert run(data, tmp_path / "empty").files == 2
    with pytest.raises(TargetError, match="is there already: name a new directory with --to"):
        run(data, tmp_path / "empty")
    with pytest.raises(UsageError, match="--nulls is 'some': use keep or drop"):
        run(data, tmp_path / "x", nulls="some")
    with pytest.raises(UsageError, match="no target: name a new directory"):
        compact.run(Options(Origin(path=str(data)), ""))


def test_what_is_lost_while_it_runs_is_told() -> None:
    report = CompactReport("p", "t", topics={"orders": compact.TopicReport()})
    compact._add(report, compact.Kept("orders", "", 0, 0, 0, 0, 2, [Loss("orders", 1, 2, "cap")]))
    assert report.losses == [{"topic": "orders", "from_seq": 1, "to_seq": 2, "reason": "cap"}]
