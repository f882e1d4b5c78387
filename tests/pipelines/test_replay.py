"""`replay`: files into topics of a real server, each row once, however often and wherever a run is cut short."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.pipelines.pipeline_world import fill, log_rows
from tests.spark.own_server import OwnServer, own_server
from topics.clock import ManualClock
from topics.errors import UsageError
from topics.pipelines import export, replay, replay_files
from topics.pipelines.errors import PipelineError, StoppedError
from topics.pipelines.replay import Options, ReplayReport
from topics.pipelines.replay_files import Input, RowForm
from topics.pipelines.source import Origin


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnServer]:
    with own_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_files, "CHUNK_ROWS", 10)


def run(server: OwnServer, *inputs: Path, **more: Any) -> ReplayReport:
    return replay.run(Options(tuple(map(str, inputs)), server.url, **more), clock=ManualClock())


def lines(path: Path, count: int, **more: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"data": {"n": n}, **more}) + "\n" for n in range(count)))
    return path


def test_an_export_is_replayed_as_it_was(server: OwnServer, tmp_path: Path) -> None:
    data = fill(tmp_path / "data")
    export.run(export.Options(Origin(path=str(data)), str(tmp_path / "lake"), "delta"), clock=ManualClock())
    report = run(server, tmp_path / "lake")
    for topic in ("orders", "prices:eur"):
        wanted = [(row["tag"], json.loads(row["data"])) for row in log_rows(data, topic).to_pylist()]
        assert [(record.get("$tag"), record["data"]) for record in server.records(topic)] == wanted
    again = run(server, tmp_path / "lake")
    assert (again.rows, again.known) == (0, report.rows)
    assert again.summary().endswith(f"{report.rows} rows were there already")


def test_a_replay_that_was_stopped_goes_on_where_it_was(server: OwnServer, tmp_path: Path) -> None:
    path = lines(tmp_path / "many.jsonl", 255, topic="stopped")
    sending = replay._sending(Options((), server.url))
    one = next(replay_files.find_inputs([str(path)]))
    left = 20

    def check() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise StoppedError("stopped")

    with pytest.raises(StoppedError):
        replay.replay_file(sending, one, check=check)
    assert len(server.records("stopped")) == 200
    report = run(server, path)
    assert (report.rows, report.known) == (55, 200)  # of 20 epochs the server remembers 16 by their rows
    assert [record["data"]["n"] for record in server.records("stopped")] == list(range(255))


def test_the_topic_comes_from_the_option_the_directory_or_the_row(server: OwnServer, tmp_path: Path) -> None:
    root = tmp_path / "in"
    lines(root / "topic=by-path" / "a.jsonl", 3)
    lines(root / "b.jsonl", 25, topic="by-row")
    run(server, root)
    assert (len(server.records("by-path")), len(server.records("by-row"))) == (3, 25)
    run(server, root / "b.jsonl", topic="by-option")
    assert len(server.records("by-option")) == 25
    with pytest.raises(PipelineError, match="its rows name no topic: give one with --topic"):
        run(server, lines(tmp_path / "none.jsonl", 1))


def test_whole_rows_become_data_and_a_pointer_names_the_tag(server: OwnServer, tmp_path: Path) -> None:
    table = pa.table({"id": [1, 2], "carrier": ["UA", None], "at": pa.array([0, 1], pa.timestamp("s"))})
    pq.write_table(table, tmp_path / "rows.parquet")
    run(server, tmp_path / "rows.parquet", topic="rows", form="data", tag="/carrier")
    assert [(record.get("$tag"), record["data"]) for record in server.records("rows")] == [
        ("UA", {"id": 1, "carrier": "UA", "at": "1970-01-01 00:00:00"}),
        (None, {"id": 2, "carrier": None, "at": "1970-01-01 00:00:01"}),
    ]


def test_rows_of_several_topics_in_a_chunk_are_each_sent_once(server: OwnServer, tmp_path: Path) -> None:
    path = tmp_path / "mixed.jsonl"
    path.write_text("".join(json.dumps({"data": {"n": n}, "topic": f"mixed-{n % 2}"}) + "\n" for n in range(400)))
    assert run(server, path).rows == 400
    assert run(server, path).known == 400
    for topic in (0, 1):
        assert [record["data"]["n"] for record in server.records(f"mixed-{topic}")] == list(range(topic, 400, 2))


def test_records_of_bytes_stay_bytes(server: OwnServer, tmp_path: Path) -> None:
    rows = {"data": ["1", None, "null"], "bytes": [None, b"\x00\xff", None], "tag": ["a", "b", None]}
    types = pa.schema([("data", pa.string()), ("bytes", pa.binary()), ("tag", pa.string())])
    pq.write_table(pa.table(rows, types), tmp_path / "rows.parquet")
    (tmp_path / "rows.jsonl").write_text('{"data":1,"tag":"a"}\n{"data_base64":"AP8=","tag":"b"}\n{"data":null}\n')
    for name in ("rows.parquet", "rows.jsonl"):
        topic = name.replace(".", "-")
        assert run(server, tmp_path / name, topic=topic).rows == 3
        assert run(server, tmp_path / name, topic=topic).known == 3
        found = [(one.get("$tag"), one.get("data_base64", one.get("data"))) for one in server.records(topic)]
        assert found == [("a", 1), ("b", "AP8="), (None, None)]


def test_what_is_no_record_of_bytes_is_named_and_a_column_of_numbers_is_left_out(
    server: OwnServer, tmp_path: Path
) -> None:
    for line, words in (
        ('{"data_base64":"%"}', "line 1: data_base64 is no base64"),
        ('{"data_base64":1}', "line 1: data_base64 is no base64"),
        ('{"data":1,"data_base64":"AA=="}', "line 1 is no record"),
    ):
        (tmp_path / "bad.jsonl").write_text(line)
        with pytest.raises(PipelineError, match=words):
            run(server, tmp_path / "bad.jsonl", topic="bad")
    pq.write_table(pa.table({"data": ["1"], "bytes": [17]}), tmp_path / "sizes.parquet")
    assert run(server, tmp_path / "sizes.parquet", topic="sizes").rows == 1


def test_lines_are_sent_as_they_are_written(server: OwnServer, tmp_path: Path) -> None:
    path = tmp_path / "exact.jsonl"
    path.write_text(
        '\ufeff{ "data" : {"price": 1.10, "n":1E3, "s":"\\u00e9"} , "meta":{"x": 2.50},"tag":true}\n\n {"data":"]}"}\n'
    )
    one = next(replay_files.find_inputs([str(path)]))
    [rows] = replay_files.chunks(one, RowForm("records", None))
    assert rows.to_pylist() == [
        {"data": '{"price": 1.10, "n":1E3, "s":"\\u00e9"}', "tag": "true", "meta": '{"x": 2.50}'},
        {"data": '"]}"', "tag": None, "meta": None},
    ]


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_long_rows_make_chunks_of_less_rows(
    server: OwnServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """A chunk is one request, so that what a part in pieces may hold is no bound."""
    monkeypatch.setattr(replay_files, "CHUNK_BYTES", 100)
    texts = ['"' + "x" * size + '"' for size in (30, 30, 300, 30, 90)]
    path = tmp_path / f"long.{ending}"
    if ending == "parquet":
        pq.write_table(pa.table({"data": texts}), path)
    else:
        path.write_text("".join(f'{{"data":{text}}}\n' for text in texts))
    one = next(replay_files.find_inputs([str(path)]))
    parts = list(replay_files.chunks(one, RowForm("records", None)))
    assert [part.num_rows for part in parts] == [2, 1, 1, 1]
    assert [row["data"] for part in parts for row in part.to_pylist()] == texts


def test_a_file_with_other_contents_is_another_one(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", 5)
    one = Input(str(path), "a.jsonl", "t")
    before = replay_files.producer_of(one)
    assert replay_files.producer_of(one) == before
    assert replay_files.producer_of(one._replace(name="b.jsonl")) != before
    path.write_bytes(path.read_bytes().replace(b'"n": 2', b'"n": 7'))
    assert replay_files.producer_of(one) != before


def test_rows_go_at_the_rate_that_was_asked_for(server: OwnServer, tmp_path: Path) -> None:
    clock = ManualClock()
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.advance_ns(round(seconds * 1e9))

    sending = replay._sending(Options((), server.url))._replace(rate=20.0)
    one = next(replay_files.find_inputs([str(lines(tmp_path / "r.jsonl", 45))], "rate"))
    assert replay.replay_file(sending, one, sleep=sleep, clock=clock) == (45, 0)
    assert sum(slept) == pytest.approx(45 / 20, abs=0.01)
    assert max(slept) <= 0.25


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[" * 100_000, "line 1 is no JSON"),
        ('{"data":1,"tag":"\\ud800"}\n', "cannot be read"),
        ('{"data":1}\n{"data":\n', "line 2 is no JSON"),
        ('{"date":1}\n', 'line 1 is no record: write {"data": .., "tag": ..}, or add --as data'),
        ("[1]\n", "line 1 is no record"),
    ],
)
def test_a_line_that_is_no_record_is_named(server: OwnServer, tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "bad.jsonl").write_text(text)
    with pytest.raises(PipelineError) as raised:
        run(server, tmp_path / "bad.jsonl", topic="bad")
    assert told in str(raised.value)


def test_options_that_mean_nothing_are_refused(server: OwnServer, tmp_path: Path) -> None:
    lines(tmp_path / "a.jsonl", 1)
    (tmp_path / "a.csv").write_text("x")
    (tmp_path / "empty").mkdir()
    for inputs, more, told in (
        (["nowhere"], {}, "nowhere does not exist"),
        (["empty"], {}, "no file that ends in .parquet, .jsonl, .ndjson in"),
        (["a.csv"], {}, "does not end in .parquet or .jsonl or .ndjson"),
        (["a.jsonl"], {"form": "rows"}, "--as is 'rows': use one of records, data"),
        (["a.jsonl"], {"tag": "/x"}, "--tag is for --as data"),
        (["a.jsonl"], {"rate": -1.0}, "--rate is -1"),
    ):
        with pytest.raises(UsageError) as raised:
            run(server, *[tmp_path / name for name in inputs], **more)
        assert told in str(raised.value)
    pq.write_table(pa.table({"x": [b"1"]}), tmp_path / "x.parquet")
    with pytest.raises(PipelineError, match="a value is binary"):
        run(server, tmp_path / "x.parquet", topic="t", form="data")
    with pytest.raises(PipelineError, match="has no column `data`: add --as data"):
        run(server, tmp_path / "x.parquet", topic="t")
