"""`compact`: the newest record of each tag, against a plain loop over the same records."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import topics
from tests.pipelines.pipeline_world import fill, log_rows, opened
from tests.spark.own_server import own_server
from topics.clock import ManualClock
from topics.errors import UsageError
from topics.files import Loss
from topics.pipelines import compact
from topics.pipelines.compact import CompactReport, Options
from topics.pipelines.engines import LocalEngine, Stop
from topics.pipelines.errors import PipelineError, StoppedError, TargetError
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
    """`fill`, then delete customer-1 and customer-6."""
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
    with pytest.raises(UsageError, match="name either a new directory with --to"):
        compact.run(Options(Origin(path=str(data)), ""))


def test_what_is_lost_while_it_runs_is_told() -> None:
    report = CompactReport("p", "t", topics={"orders": compact.CompactedTopic()})
    compact._add(report, compact.Kept("orders", "", 0, 0, 0, 0, 2, [Loss("orders", 1, 2, "cap")]))
    assert report.losses == [{"topic": "orders", "from_seq": 1, "to_seq": 2, "reason": "cap"}]


# --- into a topic


def test_a_topic_gets_the_newest_records_once_however_often_it_is_run(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compact, "CELL_SEQS", 16)
    monkeypatch.setattr("topics.pipelines.source.UNIT_BYTES", 1)
    wanted = newest(log_rows(data, "orders").to_pylist(), untagged=False, nulls=False)
    with own_server(tmp_path) as server:
        options = Options(
            Origin(path=str(data), subscribe=("orders",)), "", "drop", "drop", "zstd", "newest", server.url
        )
        for _ in range(2):
            report = compact.run(options, clock=ManualClock())
            assert (report.topics["orders"].written, report.files) == (len(wanted), 0)
            found = [(record["$tag"], record["data"]) for record in server.records("newest")]
            assert found == [(row["tag"], json.loads(row["data"])) for row in wanted]
        monkeypatch.setattr("topics.pipelines.source.UNIT_BYTES", 128 << 20)
        compact.run(options, clock=ManualClock())
        assert len(server.records("newest")) == len(wanted)


def test_records_of_bytes_stay_bytes_in_a_topic_and_in_files_with_a_column_for_them(tmp_path: Path) -> None:
    with opened(tmp_path / "data") as log:
        records = [("a", b"old"), ("a", b"\x00\xff"), ("b", {"n": 1}), ("c", None)]
        log.append("raw", [topics.NewRecord(value, tag=tag) for tag, value in records])
    with own_server(tmp_path / "server") as server:
        origin = Origin(path=str(tmp_path / "data"))
        options = Options(origin, "", "drop", "drop", "zstd", "newest", server.url)
        report = compact.run(options, clock=ManualClock())
        assert (report.topics["raw"].written, report.topics["raw"].nulls) == (2, 1)
        found = [(one["$tag"], one.get("data"), one.get("data_base64")) for one in server.records("newest")]
        assert found == [("a", None, "AP8="), ("b", {"n": 1}, None)]
    with pytest.raises(PipelineError, match="record 2 of topic raw is bytes, .* run again with --bytes, .* --to-topic"):
        run(tmp_path / "data", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    compact.run(Options(origin, str(tmp_path / "out"), nulls="drop", bytes=True), clock=ManualClock())
    written = pq.read_table(tmp_path / "out/topic=raw/part-00000.parquet", partitioning=None)
    assert written.column("bytes").to_pylist() == [b"\x00\xff", None]
    assert written.column("data").to_pylist() == [None, '{"n":1}']


def test_long_records_make_more_parts_each_sent_once(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part is one request, so that what a part in pieces may hold is no bound."""
    monkeypatch.setattr(compact, "CHUNK_BYTES", 100)
    options = Options(Origin(path=str(data)), to_topic="newest")
    wanted = len(newest(log_rows(data, "orders").to_pylist(), untagged=True, nulls=True)) + len(
        newest(log_rows(data, "prices:eur").to_pylist(), untagged=True, nulls=True)
    )
    with own_server(tmp_path) as server:
        for _ in range(2):
            compact.run(replace(options, url=server.url), clock=ManualClock())
            assert len(server.records("newest")) == wanted


def test_a_topic_is_not_compacted_into_itself(tmp_path: Path) -> None:
    with own_server(tmp_path) as server:
        server.put("orders", [1, 2], "a")
        server.call("POST", "/v0/checkpoint", {"wait_ms": 30_000})
        with pytest.raises(UsageError, match="--to-topic orders is one of the topics to read"):
            compact.run(Options(Origin(path=server.path), to_topic="orders", url=server.url), clock=ManualClock())


def test_a_topic_needs_its_server_and_excludes_a_directory(data: Path) -> None:
    origin = Origin(path=str(data))
    with pytest.raises(UsageError, match="--to-topic is written through its server: name it with --url"):
        compact.run(Options(origin, to_topic="x"))
    with pytest.raises(UsageError, match="name either a new directory with --to"):
        compact.run(Options(origin, "x", to_topic="x", url="http://127.0.0.1:1"))
