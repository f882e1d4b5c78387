"""`export`: new records are written to files by topic and day; a target states its own progress."""

from __future__ import annotations

import errno
import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.pipelines.pipeline_world import DAY_MS, START_MS, exported_rows, fill, log_rows, opened, order, parquet_files
from topics import NewRecord
from topics.clock import ManualClock
from topics.errors import FormatError, TopicsError, UsageError
from topics.pipelines import export
from topics.pipelines.errors import DataLossError, PipelineError, StoppedError, TargetError
from topics.pipelines.export import ExportReport, Options, open_layout
from topics.pipelines.source import Origin, open_selection
from topics.pipelines.target import delta, part_files, runs
from topics.pipelines.target.delta import DeltaLayout
from topics.pipelines.target.file_names import as_uri, from_uri, run_of, topic_of
from topics.pipelines.values.checksum import RowSum

LAYOUTS = pytest.mark.parametrize("layout", ["manifest", "delta"])


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("filled") / "data")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory of the test's own, with ten records in topic orders."""
    with opened(tmp_path / "data") as log:
        log.append("orders", [order(n) for n in range(1, 11)])
    return tmp_path / "data"


def options(data: Path, target: Path, **more: Any) -> Options:
    return Options(Origin(path=str(data)), str(target), **more)


def run(data: Path, target: Path, **more: Any) -> ExportReport:
    return export.run(options(data, target, **more), clock=ManualClock())


def append(data: Path, first: int, last: int, now_ms: int = START_MS) -> None:
    with opened(data, now_ms) as log:
        log.append("orders", [order(n) for n in range(first, last + 1)])


@LAYOUTS
def test_the_files_of_a_target_hold_the_records_of_the_log_by_topic_and_day(
    filled: Path, tmp_path: Path, layout: str
) -> None:
    report = run(filled, tmp_path / "lake", layout=layout)
    found = open_layout(layout, str(tmp_path / "lake"))
    for topic in ("orders", "prices:eur"):
        assert exported_rows(tmp_path / "lake", found, topic).equals(log_rows(filled, topic))
    assert report.topics["orders"] == {"from_seq": 1, "to_seq": 200, "rows": log_rows(filled, "orders").num_rows}
    assert {file.path.rpartition("/")[0] for file in found.files()} == {
        "topic=orders/date=2026-11-22", "topic=orders/date=2026-11-23", "topic=orders/date=2026-11-24",
        "topic=prices%3Aeur/date=2026-11-22",
    }  # fmt: skip
    for file in found.files():
        days = pc.unique(pc.strftime(pq.ParquetFile(tmp_path / "lake" / file.path).read(["ts"]).column(0), "%Y-%m-%d"))
        assert days.to_pylist() == [file.date]


@LAYOUTS
def test_a_commit_has_the_checksum_of_each_files_rows(filled: Path, tmp_path: Path, layout: str) -> None:
    run(filled, tmp_path / "lake", layout=layout)
    for file in open_layout(layout, str(tmp_path / "lake")).files():
        rows = log_rows(filled, file.topic)
        total = RowSum()
        seqs = rows.column("seq")
        wanted = rows.filter(pc.and_(pc.greater_equal(seqs, file.first_seq), pc.less_equal(seqs, file.last_seq)))
        for batch in wanted.to_batches():
            total.add(batch)
        assert (total.hexdigest(), total.rows) == (file.checksum, file.rows)


@LAYOUTS
def test_a_second_run_adds_what_is_new_and_a_third_adds_nothing(data: Path, tmp_path: Path, layout: str) -> None:
    lake = tmp_path / "lake"
    assert run(data, lake, layout=layout).commit == 0
    append(data, 11, 15, START_MS + DAY_MS)
    second = run(data, lake, layout=layout)
    assert (second.commit, second.topics) == (1, {"orders": {"from_seq": 11, "to_seq": 15, "rows": 5}})
    third = run(data, lake, layout=layout)
    assert (third.commit, third.files, third.summary()) == (None, 0, f"{lake}: nothing new")
    assert exported_rows(lake, open_layout(layout, str(lake)), "orders").equals(log_rows(data, "orders"))


@LAYOUTS
def test_a_range_without_a_live_record_is_passed_once(data: Path, tmp_path: Path, layout: str) -> None:
    with opened(data) as log:
        log.delete("orders", before_seq=11)
    first = run(data, tmp_path / "lake", layout=layout)
    assert (first.commit, first.rows, first.files) == (None, 0, 0)
    with opened(data) as log:
        log.append("orders", [order(11)])
        log.append("orders", [topics_tagged(12)])
        log.delete("orders", match="gone")
    second = run(data, tmp_path / "lake", layout=layout)
    assert (second.rows, second.topics["orders"]["to_seq"]) == (1, 11)  # the files do not answer for seq 12
    assert run(data, tmp_path / "lake", layout=layout).commit is None


def topics_tagged(number: int) -> Any:
    return replace_tag(order(number), "gone")


def replace_tag(record: Any, tag: str) -> Any:
    return type(record)(record.data, tag=tag)


def test_a_commit_of_layout_manifest_is_as_the_documentation_says(data: Path, tmp_path: Path) -> None:
    report = run(data, tmp_path / "lake", schema="id bigint, missing string")
    commit = json.loads((tmp_path / "lake/_topics/commits" / f"{0:020d}.json").read_text())
    (file,) = commit.pop("files")
    incarnation = commit["state"]["orders"]["incarnation"]
    assert len(incarnation) == 16
    assert len(commit.pop("run")) == 22
    assert commit == {
        "format": "topics-export", "version": 1, "number": 0, "created_ms": 1_700_000_000_000,
        "schema": "id bigint, missing string", "data": "all",
        "topics": {"orders": {"incarnation": incarnation, "from_seq": 1, "to_seq": 10, "rows": 10, "losses": []}},
        "state": {"orders": {"incarnation": incarnation, "next_seq": 11}},
    }  # fmt: skip
    assert file["path"] in parquet_files(tmp_path / "lake")
    assert (file["bytes"], file["rows"], file["first_ts_ms"]) == (report.bytes, 10, START_MS)
    assert file["nulls"] == {"tag": 2, "node": 3, "data": 0, "meta": 0, "value": 0}


# --- losses, deletes, topics made again


def lose_some(data: Path) -> None:
    """Seqs 11 to 15 come and are lost by a cap before any export sees them."""
    append(data, 11, 15)
    with opened(data) as log:
        log.put_topic("orders", cap_records=3)
        log.append("orders", [order(n) for n in range(16, 19)])


@LAYOUTS
def test_a_loss_ends_a_run_unless_it_is_asked_to_go_on(data: Path, tmp_path: Path, layout: str) -> None:
    lake = tmp_path / "lake"
    run(data, lake, layout=layout)
    lose_some(data)
    told = "TOPICS_DATA_LOSS topic=orders seq 11..15 reason=cap: .*--on-data-loss record"
    with pytest.raises(DataLossError, match=told):
        run(data, lake, layout=layout)
    assert open_layout(layout, str(lake)).load().number == 0
    report = run(data, lake, layout=layout, on_data_loss="record")
    loss = {"from_seq": 11, "to_seq": 15, "reason": "cap"}
    assert report.losses == [{"topic": "orders", **loss}]
    assert (report.exit_code, report.rows) == (0, 3)
    log = (lake / ("_delta_log" if layout == "delta" else "_topics/commits") / f"{1:020d}.json").read_text()
    assert json.dumps(loss) in log


def test_a_loss_that_is_skipped_is_in_the_report_alone(data: Path, tmp_path: Path) -> None:
    run(data, tmp_path / "lake")
    lose_some(data)
    report = run(data, tmp_path / "lake", on_data_loss="skip")
    assert len(report.losses) == 1
    commit = json.loads((tmp_path / "lake/_topics/commits" / f"{1:020d}.json").read_text())
    assert commit["topics"]["orders"]["losses"] == []


def test_what_was_lost_before_the_first_run_is_no_loss(data: Path, tmp_path: Path) -> None:
    lose_some(data)
    report = run(data, tmp_path / "lake")
    assert (report.topics["orders"], report.losses) == ({"from_seq": 16, "to_seq": 18, "rows": 3}, [])


@LAYOUTS
def test_a_topic_that_was_made_again_is_told_and_then_exported_from_its_start(
    data: Path, tmp_path: Path, layout: str
) -> None:
    lake = tmp_path / "lake"
    run(data, lake, layout=layout)
    with opened(data) as log:
        log.delete_topic("orders")
        log.append("orders", [order(n) for n in range(100, 104)])
    with pytest.raises(DataLossError, match="reason=recreated"):
        run(data, lake, layout=layout)
    report = run(data, lake, layout=layout, on_data_loss="record")
    assert report.topics["orders"] == {"from_seq": 1, "to_seq": 4, "rows": 4}
    assert run(data, lake, layout=layout).commit is None
    lives = {file.incarnation for file in open_layout(layout, str(lake)).files()}
    assert len(lives) == 2


def test_an_older_copy_of_the_directory_is_refused(data: Path, tmp_path: Path) -> None:
    os.system(f"cp -r {data} {tmp_path / 'old'}")
    append(data, 11, 12)
    run(data, tmp_path / "lake")
    with pytest.raises(TargetError, match="older copy"):
        run(tmp_path / "old", tmp_path / "lake")


def test_an_end_that_went_down_since_the_last_run_is_no_older_copy(data: Path, tmp_path: Path) -> None:
    """The newest records were deleted, and the checkpoint of a running server does not answer for their seqs."""
    run(data, tmp_path / "lake")
    selection = open_selection(Origin(path=str(data)))
    selection.topics["orders"].head = 7
    again = export.run(options(data, tmp_path / "lake"), selection=selection, clock=ManualClock())
    assert (again.commit, again.losses) == (None, [])


# --- schemas


def test_a_schema_adds_a_column_and_counts_what_does_not_fit(filled: Path, tmp_path: Path) -> None:
    report = run(filled, tmp_path / "lake", schema="id bigint, amount double")
    rows = exported_rows(tmp_path / "lake", open_layout("manifest", str(tmp_path / "lake")), "prices:eur")
    assert rows.column("value").to_pylist() == [None, None, None]
    assert report.misfits == 3
    orders = exported_rows(tmp_path / "lake", open_layout("manifest", str(tmp_path / "lake")), "orders")
    assert orders.column("value").to_pylist()[0] == {"id": 1, "amount": 0.25}


def test_dropped_data_stays_where_a_row_does_not_fit(filled: Path, tmp_path: Path) -> None:
    run(filled, tmp_path / "lake", schema="id bigint", drop_data=True)
    found = open_layout("manifest", str(tmp_path / "lake"))
    assert set(exported_rows(tmp_path / "lake", found, "orders").column("data").to_pylist()) == {None}
    assert exported_rows(tmp_path / "lake", found, "prices:eur").column("data").to_pylist()[0] == '"x"'


@LAYOUTS
def test_later_runs_have_the_schema_of_the_first_or_fail_with_the_difference(
    data: Path, tmp_path: Path, layout: str
) -> None:
    lake = tmp_path / "lake"
    first = run(data, lake, layout=layout, schema="infer")
    assert first.schema == "id bigint, amount double"
    append(data, 11, 12)
    with pytest.raises(TargetError, match="value.amount is double in the target and int now"):
        run(data, lake, layout=layout, schema="id bigint, amount int")
    with pytest.raises(TargetError, match="--drop-data"):
        run(data, lake, layout=layout, schema="id bigint, amount double", drop_data=True)
    assert run(data, lake, layout=layout).schema == first.schema
    append(data, 13, 13)
    assert run(data, lake, layout=layout, schema="infer").rows == 1
    append(data, 14, 14)
    assert run(data, lake, layout=layout, schema="id long, amount double").rows == 1
    rows = exported_rows(lake, open_layout(layout, str(lake)), "orders")
    assert rows.column("value").to_pylist()[-1] == {"id": 14, "amount": 3.5}


@LAYOUTS
def test_records_of_bytes_are_in_a_column_of_a_target_that_was_made_with_it(tmp_path: Path, layout: str) -> None:
    data, lake = tmp_path / "data", tmp_path / "lake"
    with opened(data) as log:
        log.append("raw", [{"id": 1}, b"\x00\xff", None, b""])
    report = run(data, lake, layout=layout, bytes=True)
    found = open_layout(layout, str(lake))
    rows = exported_rows(lake, found, "raw")
    assert rows.column("data").to_pylist() == ['{"id":1}', None, "null", None]
    assert rows.column("bytes").to_pylist() == [None, b"\x00\xff", None, b""]
    assert report.rows == 4
    with opened(data) as log:
        log.append("raw", [b"later"])
    assert run(data, lake, layout=layout).rows == 1, "later runs need no option"
    assert exported_rows(lake, found, "raw").column("bytes").to_pylist()[-1] == b"later"


@LAYOUTS
def test_a_target_without_the_column_refuses_records_of_bytes_with_the_remedy(
    data: Path, tmp_path: Path, layout: str
) -> None:
    lake = tmp_path / "lake"
    run(data, lake, layout=layout)
    with pytest.raises(TargetError, match="--bytes: this target has no column `bytes`"):
        run(data, lake, layout=layout, bytes=True)
    with opened(data) as log:
        log.append("orders", [b"\xff"])
    words = "record 11 of topic orders is bytes, .* name a new target with --to and --bytes"
    for target, more in ((lake, {}), (tmp_path / "inferred", {"schema": "infer"})):
        with pytest.raises(PipelineError, match=words):
            run(data, target, layout=layout, **more)
    assert exported_rows(lake, open_layout(layout, str(lake)), "orders").num_rows == 10


def test_a_record_of_bytes_has_no_value_and_is_no_misfit(tmp_path: Path) -> None:
    with opened(tmp_path / "data") as log:
        log.append("raw", [b"\xff", {"id": 1}, b"", "text"])
    report = run(tmp_path / "data", tmp_path / "lake", schema="infer", bytes=True, drop_data=True)
    rows = exported_rows(tmp_path / "lake", open_layout("manifest", str(tmp_path / "lake")), "raw").to_pylist()
    assert (report.schema, report.misfits) == ("id bigint", 1)
    assert [row["bytes"] for row in rows] == [b"\xff", None, b"", None]
    assert [row["value"] for row in rows] == [None, {"id": 1}, None, None]
    assert [row["data"] for row in rows] == [None, None, None, '"text"']


def test_an_inferred_schema_leaves_out_names_that_a_delta_table_refuses(tmp_path: Path) -> None:
    with opened(tmp_path / "data") as log:
        log.append("orders", [NewRecord({"id": 1, "unit price": 2, "to": {"first name": "x", "zip": 5}})])
    report = run(tmp_path / "data", tmp_path / "delta", layout="delta", schema="infer")
    assert (report.rows, report.schema) == (1, "id bigint, to struct<zip: bigint>")
    assert report.left_out == [
        "unit price has ' ' in its name, which the target refuses",
        "to.first name has ' ' in its name, which the target refuses",
    ]
    assert "unit price" in run(tmp_path / "data", tmp_path / "lake", schema="infer").schema


def test_a_target_without_a_schema_refuses_one_later(data: Path, tmp_path: Path) -> None:
    run(data, tmp_path / "lake")
    with pytest.raises(TargetError, match="no column `value`"):
        run(data, tmp_path / "lake", schema="id bigint")


# --- two at once, and what went wrong


def begin_another(work: Callable[[], object]) -> Callable[[str], None]:
    """A progress that does something when the first unit is done, before the commit."""
    return lambda _: work() and None


@LAYOUTS
def test_a_run_beside_another_is_refused_before_it_works(data: Path, tmp_path: Path, layout: str) -> None:
    refused: list[str] = []

    def other() -> None:
        with pytest.raises(TargetError) as caught:
            run(data, tmp_path / "lake", layout=layout)
        refused.append(str(caught.value))

    report = export.run(options(data, tmp_path / "lake", layout=layout), progress=begin_another(other))
    assert report.commit == 0
    assert f"another export (process {os.getpid()}" in refused[0]


@LAYOUTS
def test_of_two_runs_one_commits_and_the_other_removes_its_files(
    data: Path, tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(runs.fcntl, "flock", no_locks)
    lake = tmp_path / "lake"
    with pytest.raises(TargetError, match="another export has committed"):
        export.run(options(data, lake, layout=layout), progress=begin_another(lambda: run(data, lake, layout=layout)))
    found = open_layout(layout, str(lake))
    assert parquet_files(lake) == {file.path for file in found.files()}
    assert exported_rows(lake, found, "orders").equals(log_rows(data, "orders"))
    assert not list((lake / "_topics/runs").iterdir())


@LAYOUTS
def test_a_run_that_looks_dead_to_another_cannot_commit_any_more(
    data: Path, tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Locks that do not reach other machines: each run believes that the other was killed."""
    monkeypatch.setattr(runs.fcntl, "flock", lambda *_: None)
    lake = tmp_path / "lake"
    with pytest.raises(TargetError, match="another export has taken over"):
        export.run(options(data, lake, layout=layout), progress=begin_another(lambda: run(data, lake, layout=layout)))
    assert exported_rows(lake, open_layout(layout, str(lake)), "orders").equals(log_rows(data, "orders"))
    assert parquet_files(lake) == {file.path for file in open_layout(layout, str(lake)).files()}


def fail_at(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, code: int) -> None:
    def failing(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(module, name, failing)


class FullFile:
    """A file that takes no byte, as on a full disk."""

    closed = False

    def __init__(self, path: str) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).touch()

    def write(self, _: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        self.closed = True

    def flush(self) -> None: ...

    def tell(self) -> int:
        return 0

    readable = seekable = lambda self: False
    writable = lambda self: True  # noqa: E731


@pytest.mark.parametrize("place", ["file", "sync", "commit", "link"])
def test_a_full_target_is_told_in_a_sentence_and_keeps_nothing(
    data: Path, tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "lake"
    run(data, lake)
    append(data, 11, 12)
    before = parquet_files(lake)
    with monkeypatch.context() as patch:
        if place == "file":
            patch.setattr(part_files, "_create", FullFile)
        elif place == "sync":
            fail_at(patch, part_files.os, "fsync", errno.ENOSPC)
        elif place == "commit":
            patch.setattr(runs, "_write_all", commits_fail(runs._write_all))
        else:
            fail_at(patch, runs.os, "link", errno.ENOSPC)
        with pytest.raises(TargetError, match="no space left: free some, then run it again"):
            run(data, lake)
    assert parquet_files(lake) == before
    assert not list((lake / "_topics/runs").iterdir())
    assert run(data, lake).rows == 2


def commits_fail(write: Callable[[int, bytes], None]) -> Callable[[int, bytes], None]:
    def failing(fd: int, content: bytes) -> None:
        if b'"format"' in content:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(fd, content)

    return failing


def test_a_file_system_without_hard_links_is_refused(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_at(monkeypatch, runs.os, "link", errno.EPERM)
    with pytest.raises(TargetError, match="without hard links"):
        run(data, tmp_path / "lake")


def test_a_signal_ends_a_run_between_two_units_and_nothing_counts(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(StoppedError, match="stopped by a signal"):
        export.run(
            options(data, tmp_path / "lake"),
            progress=begin_another(lambda: os.kill(os.getpid(), signal.SIGTERM)),
        )
    assert signal.getsignal(signal.SIGTERM) is before
    assert parquet_files(tmp_path / "lake") == set()
    assert run(data, tmp_path / "lake").rows == 10


def test_a_file_that_the_driver_does_not_see_is_told(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def elsewhere(*arguments: Any) -> Any:
        result = real(*arguments)
        for file in result.files:
            (tmp_path / "lake" / file.path).unlink()
        return result

    real = export.export_unit
    monkeypatch.setattr(export, "export_unit", elsewhere)
    with pytest.raises(TargetError, match="a directory that all machines share"):
        run(data, tmp_path / "lake")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "layout": ({"layout": "iceberg"}, "use one of manifest, delta"),
    "policy": ({"on_data_loss": "ignore"}, "use one of fail, skip, record"),
    "compression": ({"compression": "zip"}, "use one of zstd"),
    "schema": ({"schema": "id bigin"}, "did you mean bigint?"),
    "drop": ({"drop_data": True}, "--drop-data without --schema"),
    "delta name": ({"schema": "`order id` int", "layout": "delta"}, "Delta refuses"),
    "target": ({"target": ""}, "no target"),
    "url": ({"target": "s3://bucket/lake"}, "not a URL"),
    "topic": ({"origin": {"subscribe": ("order",)}}, "did you mean orders?"),
    "pattern": ({"origin": {"pattern": "("}}, "no regular expression"),
    "both": ({"origin": {"subscribe": ("orders",), "pattern": "o.*"}}, "choose one"),
    "no source": ({"origin": {"path": ""}}, "no source"),
    "no directory": ({"origin": {"path": "/nonexistent"}}, "/nonexistent"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_options_are_refused_before_anything_is_written(data: Path, tmp_path: Path, case: str) -> None:
    change, told = REFUSED[case]
    bad = options(data, tmp_path / "lake")
    bad = replace(bad, origin=replace(bad.origin, **change["origin"])) if "origin" in change else replace(bad, **change)
    with pytest.raises(TopicsError) as caught:
        export.run(bad)
    assert told in str(caught.value)
    assert not (tmp_path / "lake").exists()


def test_a_directory_with_other_things_is_no_target(data: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").touch()
    with pytest.raises(TargetError, match="is not empty and no target"):
        run(data, tmp_path / "other")
    (tmp_path / "file").touch()
    with pytest.raises(TargetError, match="file"):
        run(data, tmp_path / "file")
    run(data, tmp_path / "a")
    with pytest.raises(TargetError, match="has layout manifest"):
        run(data, tmp_path / "a", layout="delta")
    run(data, tmp_path / "b", layout="delta")
    with pytest.raises(TargetError, match="is a Delta table"):
        run(data, tmp_path / "b")


def test_a_topic_with_too_long_a_name_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "data") as log:
        log.append("a" + ":" * 100, [1])
    with pytest.raises(TargetError, match="too long a name"):
        run(tmp_path / "data", tmp_path / "lake")


def test_a_torn_commit_is_refused_with_its_path(data: Path, tmp_path: Path) -> None:
    run(data, tmp_path / "lake")
    path = tmp_path / "lake/_topics/commits" / f"{0:020d}.json"
    whole = path.read_text()
    for content, told in (
        (whole[:50], "is not sound"),
        ("[]", "no commit of an export"),
        (whole.replace('"version": 1', '"version": 9'), "version 9"),
        (whole.replace('"state"', '"stat"'), "'state'"),
    ):
        path.write_text(content)
        with pytest.raises(FormatError, match=told):
            run(data, tmp_path / "lake")


# --- Delta


def test_a_delta_log_is_read_again_from_its_checkpoint(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta, "CHECKPOINT_EVERY", 3)
    lake = tmp_path / "lake"
    for number in range(4):
        run(data, lake, layout="delta", schema="id bigint")
        append(data, 11 + number, 11 + number)
    log = lake / "_delta_log"
    assert json.loads((log / "_last_checkpoint").read_text())["version"] == 2
    state, files = DeltaLayout(str(lake)).load(), DeltaLayout(str(lake)).files()
    for number in range(3):
        (log / f"{number:020d}.json").unlink()
    again = DeltaLayout(str(lake)).load()
    assert (again.number, again.marks, again.shape) == (state.number, state.marks, state.shape)
    assert DeltaLayout(str(lake)).files() == files
    assert run(data, lake, layout="delta").commit == 4


def test_a_commit_goes_behind_those_of_other_writers(data: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    run(data, lake, layout="delta")
    append(data, 11, 12)

    def optimize() -> None:
        (file, *_) = DeltaLayout(str(lake)).files()
        actions: list[dict[str, Any]] = [
            {"commitInfo": {"operation": "OPTIMIZE"}},
            {"remove": {"path": as_uri(file.path), "deletionTimestamp": 1, "dataChange": False}},
            {"add": {"path": "x.parquet", "partitionValues": {"topic": file.topic, "date": file.date}, "size": 1,
                     "modificationTime": 1, "dataChange": False}},
        ]  # fmt: skip
        text = "".join(json.dumps(action) + "\n" for action in actions)
        (lake / "_delta_log" / f"{1:020d}.json").write_text(text)

    report = export.run(options(data, lake, layout="delta"), progress=begin_another(optimize))
    assert report.commit == 2
    assert [file.path for file in DeltaLayout(str(lake)).files() if file.path == "x.parquet"] == ["x.parquet"]


def test_a_commit_does_not_go_behind_a_change_of_columns(data: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    run(data, lake, layout="delta")
    append(data, 11, 12)
    log = lake / "_delta_log"

    def alter() -> None:
        metadata = json.loads((log / f"{0:020d}.json").read_text().splitlines()[2])
        metadata["metaData"]["description"] = "mine"
        (log / f"{1:020d}.json").write_text(json.dumps(metadata) + "\n")

    with pytest.raises(TargetError, match="changed columns or protocol"):
        export.run(options(data, lake, layout="delta"), progress=begin_another(alter))
    assert run(data, lake, layout="delta").rows == 2


NO_ACTIONS = [
    "7",
    '{"add":{}}',
    '{"add":{"path":5,"partitionValues":{},"size":"x"}}',
    '{"txn":{"appId":5,"version":1}}',
    '{"protocol":{"minReaderVersion":"a"}}',
    '{"metaData":{"schemaString":"{"}}',
    '{"metaData":{"schemaString":"[]","partitionColumns":["topic","date"]}}',
    '{"metaData":{"configuration":5}}',
    "[" * 100_000,
]
NO_FILES = [None, 5, [5], [{"path": 5}], [{"rows": "x"}]]


@pytest.mark.parametrize("text", NO_ACTIONS, ids=range(len(NO_ACTIONS)))
def test_a_delta_log_with_values_of_other_kinds_is_refused_with_its_path(data: Path, tmp_path: Path, text: str) -> None:
    lake = tmp_path / "lake"
    run(data, lake, layout="delta")
    (lake / "_delta_log" / f"{1:020d}.json").write_text(text)
    layout = DeltaLayout(str(lake))
    with pytest.raises(FormatError, match="_delta_log.* is not sound"):
        layout.files() if "add" in text else layout.load()


@pytest.mark.parametrize("files", NO_FILES)
def test_a_commit_with_files_of_other_kinds_is_refused_with_its_path(data: Path, tmp_path: Path, files: Any) -> None:
    run(data, tmp_path / "lake")
    path = tmp_path / "lake/_topics/commits" / f"{0:020d}.json"
    commit = json.loads(path.read_text())
    if isinstance(files, list):
        files = [{**commit["files"][0], **file} if isinstance(file, dict) else file for file in files]
    path.write_text(json.dumps({**commit, "files": files}))
    with pytest.raises(FormatError, match=f"{path.name} is not sound"):
        open_layout("manifest", str(tmp_path / "lake")).files()


DELTA_REFUSED = {
    "hole": (lambda log: (log / f"{2:020d}.json").write_text("{}"), "its log has a hole"),
    "torn": (lambda log: (log / f"{1:020d}.json").write_text('{"add":'), "is not sound"),
    "protocol": (
        lambda log: (log / f"{1:020d}.json").write_text('{"protocol":{"minReaderVersion":3,"minWriterVersion":7}}'),
        "asks for reader 3 and writer 7",
    ),
    "columns": (
        lambda log: (log / f"{0:020d}.json").write_text(
            '{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}\n'
            '{"metaData":{"schemaString":"{\\"fields\\":[]}","partitionColumns":["topic","date"]}}'
        ),
        "other columns than an export has (topic)",
    ),
    "partitions": (
        lambda log: (log / f"{0:020d}.json").write_text(
            '{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}\n'
            '{"metaData":{"schemaString":"{}","partitionColumns":["day"]}}'
        ),
        "partitioned by day",
    ),
    "checkpoint": (lambda log: (log / f"{0:020d}.checkpoint.parquet").write_text("no"), "is not sound"),
}


@pytest.mark.parametrize("case", DELTA_REFUSED)
def test_a_delta_table_that_this_build_cannot_continue_is_refused(data: Path, tmp_path: Path, case: str) -> None:
    run(data, tmp_path / "lake", layout="delta")
    damage, told = DELTA_REFUSED[case]
    damage(tmp_path / "lake" / "_delta_log")
    with pytest.raises(TopicsError) as caught:
        run(data, tmp_path / "lake", layout="delta")
    assert told in str(caught.value)


def test_names_in_a_target_are_read_again() -> None:
    assert topic_of("topic=prices%3Aeur") == "prices:eur"
    assert topic_of("date=2026-11-22") is None
    assert as_uri("topic=prices%3Aeur/a.parquet") == "topic=prices%253Aeur/a.parquet"
    assert from_uri("topic=prices%253Aeur/a.parquet") == "topic=prices%3Aeur/a.parquet"
    assert run_of("part-" + "0" * 22 + "-00001-01234567-002.parquet") == "0" * 22
    assert run_of("part-00000-mine.parquet") is None


def test_columns_of_a_file_have_the_types_that_spark_and_delta_take(filled: Path, tmp_path: Path) -> None:
    run(filled, tmp_path / "lake")
    path = next(iter(parquet_files(tmp_path / "lake")))
    schema = pq.ParquetFile(tmp_path / "lake" / path).schema_arrow
    assert schema.field("ts").type == pa.timestamp("us", tz="UTC")
    assert schema.names == ["seq", "ts", "tag", "node", "data", "meta"]


def test_options_that_mean_nothing_raise_usage_errors(data: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        run(data, tmp_path / "lake", layout="")
