"""`check`: broken rules, seqs and what became of them, and an export that differs from the log."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import topics
from tests.pipelines.pipeline_world import DAY_MS, START_MS, fill, opened, order
from topics.clock import ManualClock
from topics.errors import UsageError
from topics.pipelines import check, check_export, export
from topics.pipelines.check import CheckReport, Options
from topics.pipelines.check_export import layout_of
from topics.pipelines.errors import TargetError
from topics.pipelines.seqs import holes
from topics.pipelines.source import Origin

LAYOUTS = pytest.mark.parametrize("layout", ["manifest", "delta"])


def run(data: Path, **more: Any) -> CheckReport:
    subscribe = more.pop("subscribe", ())
    return check.run(Options(Origin(path=str(data), subscribe=subscribe), **more), clock=ManualClock())


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """100 records in topic orders, written on two days; 20 to 22 deleted by tag, all below 5 at once."""
    for day in range(2):
        with opened(tmp_path / "data", START_MS + day * DAY_MS) as log:
            first = 1 + day * 50
            tagged = [
                topics.NewRecord(order(n).data, tag="gone" if 20 <= n <= 22 else None) for n in range(first, first + 50)
            ]
            log.append("orders", tagged)
    with opened(tmp_path / "data", START_MS + 2 * DAY_MS) as log:
        log.delete("orders", match="gone")
        log.delete("orders", before_seq=5)
    return tmp_path / "data"


def rules(tmp_path: Path, *tables: str) -> str:
    path = tmp_path / "rules.toml"
    path.write_text("".join(f"[[rule]]\n{table}\n" for table in tables))
    return str(path)


# --- seqs


def test_seqs_that_are_live_deleted_or_cut_off_are_explained(data: Path) -> None:
    report = run(data)
    about = report.topics["orders"]
    assert (about.head, about.live, about.deleted, about.unexplained, about.lost) == (100, 93, 3, 0, 0)
    assert (report.exit_code, report.summary()) == (0, f"{data}: 93 live records of 1 topic: nothing wrong")


def test_losses_are_told_and_wrong_when_asked(data: Path) -> None:
    with opened(data, START_MS + 3 * DAY_MS) as log:
        log.put_topic("orders", cap_records=10)
    report = run(data)
    assert report.topics["orders"].losses == [{"from_seq": 1, "to_seq": 90, "reason": "cap"}]
    assert (report.topics["orders"].live, report.exit_code) == (10, 0)
    report = run(data, fail_on=("loss",))
    assert (report.exit_code, report.wrong) == (1, ["90 seqs lost"])


def test_seqs_that_left_no_trace_are_listed_and_wrong_when_asked(tmp_path: Path) -> None:
    with opened(tmp_path / "data") as log:
        log.append("orders", [topics.NewRecord(n, tag="x" if n in {4, 5, 8} else None) for n in range(1, 11)])
        log.append("orders", [topics.NewRecord(n, tag="x") for n in range(11, 14)])
        log.delete("orders", match="x")
        log.append("orders", [topics.NewRecord(14)])
    report = run(tmp_path / "data")
    about = report.topics["orders"]
    assert about.live == 8
    assert about.deleted + about.unexplained == 6
    found = {seq for low, high in about.unexplained_ranges for seq in range(low, high + 1)}
    assert found <= {4, 5, 8, 11, 12, 13}
    assert len(found) == about.unexplained
    assert run(tmp_path / "data", fail_on=("unexplained",)).exit_code == (1 if found else 0)


def test_holes_are_what_neither_a_seq_nor_a_span_takes() -> None:
    present = np.array([7, 3, 4], np.int64)
    assert holes((1, 10), present) == [(1, 2), (5, 6), (8, 10)]
    assert holes((1, 10), present, [(1, 5), (2, 2), (9, 20)]) == [(6, 6), (8, 8)]
    assert holes((3, 4), present) == []
    assert holes((5, 6), np.empty(0, np.int64)) == [(5, 6)]


# --- rules


def test_each_part_of_a_rule_that_is_broken_is_counted_with_examples(data: Path, tmp_path: Path) -> None:
    with opened(data, START_MS + 3 * DAY_MS) as log:
        log.append("orders", [{"id": 50, "amount": 1}, {"id": 51}, {"id": "x", "amount": 2}, "text"])
        log.append("other", [{"id": 50}])
    path = rules(
        tmp_path,
        'topics = "orders"\npointer = "/id"\nrequired = true\ntype = "integer"\nunique = true',
        'topics = "orders"\npointer = "/amount"\nrange = [1.5, 25]',
    )
    report = run(data, rules=path)
    first, second = report.rules
    assert (first.checked, first.broken) == (97, {"required": 1, "type": 1, "unique": 2})
    assert {"topic": "orders", "seq": 101, "broke": "unique", "same_as_seq": 50} in first.examples
    assert {"topic": "orders", "seq": 104, "broke": "required"} in first.examples
    assert {"topic": "orders", "seq": 103, "broke": "type"} in first.examples
    assert second.broken == {"range": 2}  # 1.25 of seq 5, and 1 of seq 101
    assert [example["seq"] for example in second.examples] == [5, 101]
    assert report.exit_code == 1
    assert report.wrong[0].startswith("4 records broke rule 1 (/id: required, unique, type integer")


def test_a_record_of_bytes_has_no_place_that_a_rule_could_name(tmp_path: Path) -> None:
    with opened(tmp_path / "data") as log:
        log.append("orders", [{"id": 1}, b"\xff", b'{"id":1}'])
    path = rules(tmp_path, 'pointer = "/id"\nunique = true', 'pointer = "/id"\nrequired = true')
    unique, required = run(tmp_path / "data", rules=path).rules
    assert (unique.checked, unique.broken) == (3, {})
    assert (required.broken, [one["seq"] for one in required.examples]) == ({"required": 2}, [2, 3])


def test_the_same_value_in_another_unit_is_not_unique(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topics.pipelines.source.UNIT_BYTES", 1)
    with opened(data, START_MS + 3 * DAY_MS) as log:
        log.append("orders", [{"id": 7}, {"id": 7.0}])
    (rule,) = run(data, rules=rules(tmp_path, 'pointer = "/id"\nunique = true')).rules
    assert rule.examples == [
        {"topic": "orders", "seq": seq, "broke": "unique", "same_as_seq": 7} for seq in (101, 102)
    ]  # fmt: skip


def test_damage_is_wrong_and_the_rest_is_checked(data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("topics.pipelines.source.UNIT_BYTES", 1)
    path = sorted((data / "topics").rglob("*.data"))[0]
    content = bytearray(path.read_bytes())
    content[content.index(b'"id":30')] ^= 1
    path.write_bytes(content)
    report = run(data, rules=rules(tmp_path, 'pointer = ""\nrequired = true'))
    assert (report.exit_code, len(report.unreadable)) == (1, 1)
    assert f"{path}" in report.unreadable[0]
    assert report.topics["orders"].live >= 40


def test_options_that_mean_nothing_are_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--fail-on 'losses' means nothing: use loss or unexplained"):
        run(data, fail_on=("losses",))
    with pytest.raises(TargetError, match="is no target of an export: name the directory that `export --to` named"):
        run(data, export=str(tmp_path))


def test_an_export_that_cannot_be_compared_is_refused_before_any_record_is_read(data: Path, tmp_path: Path) -> None:
    told: list[str] = []
    with pytest.raises(TargetError, match="is no target of an export"):
        check.run(Options(Origin(path=str(data)), export=str(tmp_path)), clock=ManualClock(), progress=told.append)
    assert told == []
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(TargetError, match="loop cannot be read: Too many levels of symbolic links"):
        run(data, export=str(loop))


# --- an export


@pytest.fixture
def lake(data: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    target = tmp_path / "lake"
    export.run(export.Options(Origin(path=str(data)), str(target), request.param), clock=ManualClock())
    return target


WITH_LAKE = pytest.mark.parametrize("lake", ["manifest", "delta"], indirect=True)


def exported(data: Path, lake: Path) -> dict[str, Any]:
    report = run(data, export=str(lake))
    assert report.export is not None
    assert report.exit_code == (1 if report.export["wrong"] else 0)
    json.dumps(report.as_json())
    return report.export


@WITH_LAKE
def test_an_export_of_these_records_has_no_difference(data: Path, lake: Path) -> None:
    found = exported(data, lake)
    about = found["topics"]["orders"]
    assert (found["wrong"], about["files"], about["rows"], about["same"]) == (0, 2, 93, 93)


@WITH_LAKE
def test_what_was_deleted_or_written_since_is_told_and_not_wrong(data: Path, lake: Path) -> None:
    with opened(data, START_MS + 3 * DAY_MS) as log:
        log.append("orders", [order(101)])
        log.append("later", [1])
        log.delete("orders", before_seq=11)
        log.put_topic("orders", cap_records=60)
    found = exported(data, lake)
    about = found["topics"]["orders"]
    assert (found["wrong"], about["same"], about["not_exported_yet"]) == (0, 59, 1)
    assert about["deleted_since"]["ranges"] == [{"from_seq": 5, "to_seq": 41, "records": 34, "reason": "lost: cap"}]
    assert found["skipped"] == {"later": "not exported yet"}


def rewrite(path: Path, change: Any) -> None:
    table = pq.ParquetFile(path).read()
    pq.write_table(change(table), path)


@WITH_LAKE
def test_a_row_that_differs_or_is_missing_is_wrong(data: Path, lake: Path) -> None:
    first, second = sorted(lake.rglob("part-*.parquet"), key=lambda path: path.parent.name)

    def change(table: pa.Table) -> pa.Table:
        texts = table.column("data").to_pylist()
        texts[3] = '"changed"'
        return table.set_column(table.schema.get_field_index("data"), "data", pa.array(texts)).slice(2)

    rewrite(first, change)
    second.unlink()
    about = exported(data, lake)["topics"]["orders"]
    assert (about["differing"], about["differing_seqs"]) == (1, [8])
    assert about["missing"]["records"] == 2 + 50
    assert {told.partition(": ")[2] for told in about["findings"]} == {"41 rows, and its commit says 43", "missing"}


@WITH_LAKE
def test_a_commit_whose_checksum_is_another_is_wrong(data: Path, lake: Path) -> None:
    name = next(iter([*lake.glob("_topics/commits/*.json"), *lake.glob("_delta_log/*.json")]))
    text = name.read_text()
    checksum = layout_of(str(lake)).files()[0].checksum
    name.write_text(text.replace(checksum, "0" * 16))
    about = exported(data, lake)["topics"]["orders"]
    assert (about["wrong"], about["same"]) == (1, 93)
    assert "checksum" in about["findings"][0]


@WITH_LAKE
def test_seqs_that_no_file_covers_are_missing(data: Path, lake: Path) -> None:
    for name in [*lake.glob("_topics/commits/*.json"), *lake.glob("_delta_log/*.json")]:
        if name.parent.name == "commits":
            commit = json.loads(name.read_text())
            del commit["files"][0]
            name.write_text(json.dumps(commit))
        else:
            lines = [json.loads(line) for line in name.read_text().splitlines()]
            kept = [
                line for line in lines if line.get("add", {}).get("partitionValues", {}).get("date") != "2026-11-22"
            ]
            name.write_text("".join(json.dumps(line) + "\n" for line in kept))
    about = exported(data, lake)["topics"]["orders"]
    assert about["missing"]["ranges"] == [
        {"from_seq": 5, "to_seq": 50, "records": 43, "reason": "in no file of the export"}
    ]


def test_files_that_another_writer_compacted_are_compared_too(data: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    for end in (30, 60):
        export.run(export.Options(Origin(path=str(data)), str(lake), "delta"), clock=ManualClock())
        with opened(data, START_MS + 2 * DAY_MS) as log:
            log.append("orders", [order(n) for n in range(end, end + 5)])
    log_file = lake / "_delta_log" / f"{0:020d}.json"
    added = [json.loads(line) for line in log_file.read_text().splitlines()]
    (first, second) = [line["add"] for line in added if "add" in line]
    tables = [pq.ParquetFile(lake / name["path"]).read() for name in (second, first)]
    path = "topic=orders/date=2026-11-22/optimized.parquet"
    pq.write_table(pa.concat_tables(tables), lake / path)
    one = {**first, "path": path, "tags": None, "stats": None}
    kept = [line for line in added if "add" not in line]
    log_file.write_text("".join(json.dumps(line) + "\n" for line in [*kept, {"add": one}]))
    found = exported(data, lake)
    assert (found["wrong"], found["topics"]["orders"]["same"]) == (0, 98)


@WITH_LAKE
@pytest.mark.parametrize("batch_rows", [7, 65_536])
def test_records_that_are_there_more_than_once_are_wrong(
    data: Path, lake: Path, batch_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_export, "BATCH_ROWS", batch_rows)
    file = layout_of(str(lake)).files()[0]
    (lake / "copy.parquet").write_bytes((lake / file.path).read_bytes())
    log = lake / ("_delta_log" if (lake / "_delta_log").exists() else "_topics/commits")
    first = log / f"{0:020d}.json"
    if log.name == "_delta_log":
        adds = [line for line in map(json.loads, first.read_text().splitlines()) if "add" in line]
        (log / f"{1:020d}.json").write_text(json.dumps({"add": {**adds[0]["add"], "path": "copy.parquet"}}))
    else:
        commit = json.loads(first.read_text())
        second = {**commit, "number": 1, "files": [{**file._asdict(), "path": "copy.parquet"}]}
        (log / f"{1:020d}.json").write_text(json.dumps(second))
    orders = exported(data, lake)["topics"]["orders"]
    assert (orders["wrong"], orders["repeated"], orders["repeated_seqs"][:2]) == (file.rows, file.rows, [5, 6])
    assert (orders["same"], orders["deleted_since"]["records"]) == (93, 0)


@WITH_LAKE
def test_a_topic_made_again_is_not_compared(data: Path, lake: Path) -> None:
    with opened(data, START_MS + 3 * DAY_MS) as log:
        log.delete_topic("orders")
        log.append("orders", [1])
    assert "created again" in exported(data, lake)["skipped"]["orders"]


@pytest.mark.parametrize("lake", ["manifest"], indirect=True)
def test_a_log_that_ends_before_its_export_is_an_older_copy(data: Path, lake: Path, tmp_path: Path) -> None:
    shutil.copytree(data, tmp_path / "old")
    with opened(data, START_MS + 3 * DAY_MS) as log:
        log.append("orders", [order(n) for n in range(101, 106)])
    export.run(export.Options(Origin(path=str(data)), str(lake)), clock=ManualClock())
    about = exported(tmp_path / "old", lake)["topics"]["orders"]
    assert about["wrong"] == 5
    assert about["deleted_since"]["ranges"][0]["reason"] == check_export.BEYOND


@pytest.mark.parametrize("layout", ["manifest", "delta"])
def test_an_export_with_bytes_is_compared_by_its_bytes(tmp_path: Path, layout: str) -> None:
    data, lake = tmp_path / "data", tmp_path / "lake"
    with opened(data) as log:
        log.append("raw", [{"id": 1}, b"\x00\xff", b""])
    export.run(export.Options(Origin(path=str(data)), str(lake), layout, bytes=True), clock=ManualClock())
    assert exported(data, lake)["topics"]["raw"]["same"] == 3
    (path,) = lake.rglob("part-*.parquet")
    octets = pa.array([None, b"\x00\xfe", b""], pa.binary())
    rewrite(path, lambda table: table.set_column(table.schema.get_field_index("bytes"), "bytes", octets))
    assert exported(data, lake)["topics"]["raw"]["differing_seqs"] == [2]


def test_without_data_the_other_columns_are_compared(data: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    export.run(
        export.Options(Origin(path=str(data)), str(lake), schema="id bigint", drop_data=True), clock=ManualClock()
    )
    found = exported(data, lake)
    assert (found["wrong"], found["topics"]["orders"]["same"]) == (0, 93)


def test_a_directory_filled_over_days_is_compared_in_many_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topics.pipelines.source.UNIT_BYTES", 2000)
    data = fill(tmp_path / "data")
    export.run(export.Options(Origin(path=str(data)), str(tmp_path / "lake")), clock=ManualClock())
    found = exported(data, tmp_path / "lake")
    assert (found["wrong"], found["topics"]["orders"]["differing"]) == (0, 0)
