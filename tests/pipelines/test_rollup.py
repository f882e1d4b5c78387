"""`rollup`: what is counted by topic and window, against a plain count of the same records."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import topics
from tests.pipelines.pipeline_world import DAY_MS, START_MS, fill, log_rows, opened
from topics.clock import ManualClock
from topics.errors import UsageError
from topics.pipelines import rollup
from topics.pipelines.rollup import Options, RollupReport
from topics.pipelines.source import Origin
from topics.pipelines.values.distinct import SKETCH_FROM, Distinct


def run(data: Path, **more: Any) -> RollupReport:
    return rollup.run(Options(Origin(path=str(data)), **more), clock=ManualClock())


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("filled") / "data")


@pytest.mark.parametrize("unit_bytes", [1, 128 << 20])
@pytest.mark.parametrize("tags", ["exact", "approx"])
def test_windows_have_the_counts_of_their_records(
    filled: Path, monkeypatch: pytest.MonkeyPatch, unit_bytes: int, tags: str
) -> None:
    monkeypatch.setattr("topics.pipelines.source.UNIT_BYTES", unit_bytes)
    report = run(filled, window="1 day", tags=tags)
    wanted: dict[tuple[str, str], list[Any]] = defaultdict(lambda: [0, set()])
    for topic in ("orders", "prices:eur"):
        for row in log_rows(filled, topic).to_pylist():
            about = wanted[topic, f"{row['ts']:%Y-%m-%dT00:00:00Z}"]
            about[0] += 1
            about[1] |= {row["tag"]} - {None}
    found = {
        (row["topic"], row["window_start"]): [row["records"], row["tags"]] for row in report.windows if row["records"]
    }
    assert found == {key: [records, len(names)] for key, (records, names) in wanted.items()}
    assert (report.records, report.rows, report.lost) == (sum(about[0] for about in wanted.values()), 4, 0)


def test_bytes_are_those_that_the_server_accounts(tmp_path: Path) -> None:
    with opened(tmp_path / "data") as log:
        log.append("orders", [{"n": n} for n in range(10)])
        accounted = log.state("orders").bytes
    assert run(tmp_path / "data").bytes == accounted


@pytest.mark.parametrize("unit_bytes", [1, 128 << 20])
def test_a_loss_counts_in_the_window_of_the_next_record_and_one_before_all_records_in_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unit_bytes: int
) -> None:
    monkeypatch.setattr("topics.pipelines.source.UNIT_BYTES", unit_bytes)
    data = tmp_path / "data"
    for day in range(3):
        with opened(data, START_MS + day * DAY_MS) as log:
            log.append("orders", [day] * 60)
    with opened(data, START_MS + 3 * DAY_MS) as log:
        log.put_topic("orders", cap_records=90)
    rows = run(data, window="1 day").windows
    assert [(row["window_start"], row["records"], row["lost"]) for row in rows] == [
        (None, 0, 90), ("2026-11-23T00:00:00Z", 30, 0), ("2026-11-24T00:00:00Z", 60, 0),
    ]  # fmt: skip


def test_losses_between_records_go_to_the_records_behind_them() -> None:
    add, window = rollup._add, rollup.Window
    windows: dict[int | None, rollup.Window] = {}
    assert add(windows, rollup.Counted("t", {}, 3, 0), 0) == 3
    assert add(windows, rollup.Counted("t", {5: window(None, records=1)}, 2, 7), 3) == 7
    assert add(windows, rollup.Counted("t", {5: window(None, records=1), 6: window(None, records=1)}, 1, 0), 7) == 0
    assert {number: (one.records, one.lost) for number, one in windows.items()} == {
        None: (0, 5), 5: (2, 8), 6: (1, 0),
    }  # fmt: skip


def test_lateness_is_the_time_between_an_event_and_its_record(tmp_path: Path) -> None:
    with opened(tmp_path / "data", START_MS) as log:
        texts = ["2026-11-22T22:59:59.500Z", "2026-11-23T00:59:58+02:00", "soon", None]
        log.append("orders", [{"at": text} for text in texts])
        log.append("orders", [{"at": START_MS - 3000}, {"at": START_MS + 0.5}, {"at": True}, {"at": 1e300}, 7])
    (row,) = run(tmp_path / "data", event_time="/at").windows
    assert (row["records"], row["event_times"], row["late_max_ms"]) == (9, 4, 3000)
    assert row["late_mean_ms"] == (500 + 2000 + 3000 - 0.5) / 4


def test_a_record_of_bytes_is_counted_and_has_no_event_time(tmp_path: Path) -> None:
    with opened(tmp_path / "data", START_MS) as log:
        log.append("orders", [{"at": START_MS}, b"\x00\xff\x01"])
    (row,) = run(tmp_path / "data", event_time="/at").windows
    assert (row["records"], row["event_times"]) == (2, 1)


def test_a_table_is_written_as_a_whole(filled: Path, tmp_path: Path) -> None:
    path = tmp_path / "days.parquet"
    path.write_text("before")
    report = run(filled, window="1 day", to=str(path))
    table = pq.read_table(path)
    assert table.schema.names == ["topic", "window_start", "window_end", "records", "bytes", "lost", "tags"]
    assert table.num_rows == report.rows
    assert [entry.name for entry in tmp_path.iterdir()] == ["days.parquet"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"window": "an hour"}, "--window 'an hour' is no length of time: write '15 minutes'"),
        ({"window": "0 hours"}, "is no length of time"),
        ({"window": "999999999 weeks"}, "is too long: 365,000 days is the most"),
        ({"tags": "some"}, "--tags is 'some': use one of exact, approx, none"),
        ({"event_time": "at"}, "--event-time: 'at' is no JSON pointer"),
        ({"to": "/nowhere/at/all.parquet"}, "its directory does not exist"),
        ({"to": "/"}, "it is there and no file"),
    ],
)
def test_options_that_mean_nothing_are_refused(filled: Path, options: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        run(filled, **options)


def test_the_length_of_a_window_is_read_whatever_its_case_and_plural() -> None:
    assert rollup._counting(Options(Origin(), window=" 15 Minutes ")).window_us == 15 * 60_000_000
    assert rollup._counting(Options(Origin(), window="1 week")).window_us == 7 * DAY_MS * 1000


def test_an_empty_directory_has_no_windows(tmp_path: Path) -> None:
    with opened(tmp_path / "data") as log:
        log.put_topic("nothing")
    report = run(tmp_path / "data")
    assert (report.rows, report.summary()) == (0, f"{tmp_path}/data: 0 records of 1 topic in 0 windows, 0 seqs lost")


# --- distinct texts


def test_an_exact_count_is_exact_and_an_approximate_one_close() -> None:
    exact, approximate = Distinct(exact=True), Distinct(exact=False)
    for counted in (exact, approximate):
        for start in range(0, 60_000, 5000):
            part = Distinct(exact=counted is exact)
            part.add(f"tag-{n}" for n in range(start, start + 6000))
            counted.merge(part)
            counted.add(["tag-1", "tag-1"])
    assert exact.count() == 61_000
    assert abs(approximate.count() - 61_000) < 61_000 * 0.03


def test_few_texts_are_counted_exactly_either_way() -> None:
    few = Distinct(exact=False)
    few.add(str(n) for n in range(SKETCH_FROM))
    assert few.count() == SKETCH_FROM
    few.add(["one more"])
    assert abs(few.count() - SKETCH_FROM) < SKETCH_FROM * 0.03


def test_a_topic_of_one_hour_is_one_window(tmp_path: Path) -> None:
    for minutes in (0, 59):
        with opened(tmp_path / "data", START_MS + minutes * 60_000) as log:
            log.append("orders", [topics.NewRecord(1, tag="a")])
    (row,) = run(tmp_path / "data").windows
    assert (row["window_start"], row["window_end"]) == ("2026-11-22T23:00:00Z", "2026-11-23T00:00:00Z")
