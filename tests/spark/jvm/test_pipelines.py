"""Pipelines on Spark do what they do in this process, because the executors run the same functions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.pipeline_world import exported_rows, fill, log_rows
from tests.spark.own_server import own_server
from topics.clock import ManualClock
from topics.errors import CorruptError
from topics.pipelines import check, compact, export, replay, rollup, scrub
from topics.pipelines.engines import SparkEngine
from topics.pipelines.export import open_layout
from topics.pipelines.source import Origin

pytestmark = pytest.mark.spark


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In many units of work."""
    monkeypatch.setattr("topics.pipelines.source.UNIT_BYTES", 8192)
    monkeypatch.setattr("topics.pipelines.export.UNIT_BYTES", 8192)
    return fill(tmp_path / "data")


@pytest.mark.parametrize("layout", ["manifest", "delta"])
def test_an_export_writes_the_same_rows(spark: Any, data: Path, tmp_path: Path, layout: str) -> None:
    options = export.Options(Origin(path=str(data)), str(tmp_path / "lake"), layout, "id bigint, amount double")
    here = export.run(replace(options, target=str(tmp_path / "here")), clock=ManualClock())
    there = export.run(options, engine=SparkEngine(lambda: spark), clock=ManualClock())
    assert (there.rows, there.misfits, there.files >= here.files) == (here.rows, here.misfits, True)
    found = open_layout(layout, str(tmp_path / "lake"))
    for topic in ("orders", "prices:eur"):
        rows = exported_rows(tmp_path / "lake", found, topic)
        assert rows.drop_columns(["value"]).equals(log_rows(data, topic))
    again = export.run(options, engine=SparkEngine(lambda: spark), clock=ManualClock())
    assert again.commit is None


def test_reports_are_those_of_this_process(spark: Any, data: Path, tmp_path: Path) -> None:
    origin = Origin(path=str(data))
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\npointer = "/id"\nunique = true\nrange = [3, ""]\n')
    lake = str(tmp_path / "lake")
    export.run(export.Options(origin, lake), clock=ManualClock())
    for pipeline, options in (
        (scrub, scrub.Options(str(data), backup=str(data))),
        (check, check.Options(origin, str(rules), lake)),
        (rollup, rollup.Options(origin, "1 day", event_time="/id")),
    ):
        here = pipeline.run(options, clock=ManualClock())
        there = pipeline.run(options, engine=SparkEngine(lambda: spark), clock=ManualClock())
        assert there.as_json() == here.as_json()
    kept = compact.run(
        compact.Options(origin, str(tmp_path / "kept")), engine=SparkEngine(lambda: spark), clock=ManualClock()
    )
    assert (
        kept.topics["orders"].written
        == len({row["tag"] for row in log_rows(data, "orders").to_pylist() if row["tag"]})
        + log_rows(data, "orders").column("tag").null_count
    )


def test_a_replay_sends_each_row_once_from_executors(spark: Any, data: Path, tmp_path: Path) -> None:
    export.run(export.Options(Origin(path=str(data)), str(tmp_path / "lake")), clock=ManualClock())
    home = tmp_path / "server"
    home.mkdir()
    with own_server(home) as server:
        options = replay.Options((str(tmp_path / "lake"),), server.url)
        first, second = (replay.run(options, engine=SparkEngine(lambda: spark), clock=ManualClock()) for _ in range(2))
        assert first.rows == second.known
        assert (first.known, second.rows) == (0, 0)
        for topic in ("orders", "prices:eur"):
            wanted = [(row["tag"], row["data"]) for row in log_rows(data, topic).to_pylist()]
            found = [(record.get("$tag"), record["data"]) for record in server.records(topic)]
            assert sorted(found, key=str) == sorted([(tag, json.loads(text)) for tag, text in wanted], key=str)


def test_an_error_of_an_executor_is_the_one_of_this_process(spark: Any, data: Path, tmp_path: Path) -> None:
    path = sorted((data / "topics").rglob("*.data"))[0]
    content = bytearray(path.read_bytes())
    content[content.index(b'"id":30')] ^= 1
    path.write_bytes(content)
    options = export.Options(Origin(path=str(data)), str(tmp_path / "lake"))
    with pytest.raises(CorruptError) as here:
        export.run(replace(options, target=str(tmp_path / "here")), clock=ManualClock())
    with pytest.raises(CorruptError) as there:
        export.run(options, engine=SparkEngine(lambda: spark), clock=ManualClock())
    assert str(there.value) == str(here.value)
    assert not list((tmp_path / "lake").rglob("*.parquet"))
