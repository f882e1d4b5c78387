"""`topics pipeline`: options in, a JSON report out, progress on stderr, and what the exit code says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.pipelines.pipeline_world import opened, order
from topics.cli.pipeline import write_report
from topics.cli.root_command import app
from topics.pipelines import engines, export
from topics.pipelines.target import delta

BLOCKED = "import sys; sys.modules['pyarrow'] = None; from topics.cli import main; sys.argv[0] = 'topics'; main()"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Ten records in topic orders."""
    with opened(tmp_path / "data") as log:
        log.append("orders", [order(n) for n in range(1, 11)])
    return tmp_path / "data"


def pipeline(*options: str | Path) -> Result:
    return CliRunner().invoke(app, ["pipeline", *map(str, options)])


def report_of(done: Result) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["exit_code"] == done.exit_code
    return report


def test_an_export_ends_with_0_its_report_on_stdout_and_one_sentence_on_stderr(data: Path, tmp_path: Path) -> None:
    done = pipeline("export", "--path", data, "--to", tmp_path / "lake", "--subscribe", "orders")
    report = report_of(done)
    assert (report["pipeline"], report["commit"], report["rows"]) == ("export", 0, 10)
    assert done.stderr.splitlines() == [
        "exported 1 of 1 unit, 10 rows",
        f"{tmp_path}/lake: commit 0 adds 10 rows of 1 topic in 1 file",
    ]


def test_all_options_of_an_export_reach_it(data: Path, tmp_path: Path) -> None:
    done = pipeline(
        "export", "--path", data, "--to", tmp_path / "lake", "--subscribe-pattern", "or.*", "--layout", "delta",
        "--schema", "id bigint", "--drop-data", "--on-data-loss", "record", "--compression", "snappy", "--no-verify",
        "--quiet",
    )  # fmt: skip
    assert (report_of(done)["schema"], report_of(done)["layout"], done.stderr) == ("id bigint", "delta", "")
    assert (tmp_path / "lake/_delta_log").is_dir()


def test_a_report_goes_into_a_file_as_a_whole_or_not_at_all(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    done = pipeline("export", "--path", data, "--to", tmp_path / "lake", "--report", file)
    assert (done.exit_code, done.stdout, json.loads(file.read_text())["rows"]) == (0, "", 10)
    before = file.read_text()
    assert pipeline("export", "--path", tmp_path / "no", "--to", tmp_path / "lake", "--report", file).exit_code == 2
    assert file.read_text() == before
    assert not list(tmp_path.glob("report.json.*"))
    done = pipeline("export", "--path", data, "--to", tmp_path / "x", "--report", tmp_path / "no" / "report.json")
    assert (done.exit_code, (tmp_path / "x").exists()) == (2, False)


def test_paths_need_not_be_utf_8(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "CHECKPOINT_EVERY", 1)
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    data.rename(odd)
    for layout in ("manifest", "delta"):
        lake = odd.with_name(odd.name + layout)
        for _ in range(2):
            assert report_of(pipeline("export", "--path", odd, "--to", lake, "--layout", layout))["target"] == str(lake)
            with opened(odd) as log:
                log.append("orders", [order(1)])
        assert report_of(pipeline("check", "--path", odd, "--export", lake))["export"]["wrong"] == 0
    assert report_of(pipeline("compact", "--path", odd, "--to", odd.with_name(odd.name + "c")))["files"] == 1
    report = tmp_path / "report.json"
    assert pipeline("rollup", "--path", odd, "--to", f"{odd}r", "--report", report).exit_code == 0
    assert json.loads(report.read_text())["to"] == f"{odd}r"


def test_an_interrupt_before_the_run_notes_signals_ends_with_2(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(export, "open_selection", interrupted)
    done = pipeline("export", "--path", data, "--to", data.with_name("lake"))
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", "topics: stopped by a signal: run it again\n")


def test_a_full_disk_is_told_with_the_name_of_the_report() -> None:
    with open("/dev/full", "wb", buffering=0) as full, pytest.raises(OSError, match="No space left.*report.json"):
        write_report(full, "{}", "report.json")


@pytest.mark.parametrize("name", ["export", "compact", "rollup"])
def test_a_target_inside_the_data_directory_is_refused(data: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "link").symlink_to(data)
    for target in (data, data / "topics" / "x", tmp_path / "link" / "topics"):
        done = pipeline(name, "--path", data, "--to", target)
        assert (done.exit_code, not (data / "topics" / "x").exists()) == (2, True)
        assert done.stderr in (
            f"topics: --to {target} is in {data}, which only the server may use: name one elsewhere\n",
            f"topics: --to {target}: it is there and no file: name a file, which is replaced if it is there\n",
        )
    assert pipeline(name, "--path", data, "--to", f"{data}-x").exit_code == 0


def test_a_report_leaves_devices_and_links_what_they_are(data: Path, tmp_path: Path) -> None:
    pipe, link, file = tmp_path / "pipe", tmp_path / "link", tmp_path / "report.json"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert pipeline("scrub", "--path", data, "--report", pipe).exit_code == 0
    assert (json.loads(os.read(reader, 65_536))["bad"], pipe.is_fifo()) == (0, True)
    os.close(reader)
    file.write_text("")
    link.symlink_to(file)
    assert pipeline("scrub", "--path", data, "--report", link).exit_code == 0
    assert (json.loads(file.read_text())["bad"], link.is_symlink()) == (0, True)
    done = pipeline("export", "--path", data, "--to", tmp_path / "lake", "--report", tmp_path)
    assert (done.exit_code, done.stderr) == (2, f"topics: {tmp_path}: Is a directory\n")
    assert not (tmp_path / "lake").exists()


def test_losses_that_are_not_allowed_end_with_1_and_what_cannot_run_with_2(data: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    assert pipeline("export", "--path", data, "--to", lake).exit_code == 0
    with opened(data) as log:
        log.append("orders", [order(n) for n in range(11, 31)])
        log.put_topic("orders", cap_records=5)
    done = pipeline("export", "--path", data, "--to", lake)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("topics: TOPICS_DATA_LOSS topic=orders seq 11..25 reason=cap: nothing was exported")
    assert report_of(pipeline("export", "--path", data, "--to", lake, "--on-data-loss", "record"))["rows"] == 5
    done = pipeline("export", "--path", data, "--to", lake, "--subscribe", "order")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "has no topic order (did you mean orders?)" in done.stderr


def test_a_machine_without_pyarrow_is_told_what_to_install(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BLOCKED, "pipeline", "export", "--path", str(tmp_path), "--to", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "topics: this pipeline needs pyarrow: install it by pip install 'topics-log[arrow]'\n"


def test_a_check_that_finds_broken_rules_ends_with_1(data: Path, tmp_path: Path) -> None:
    assert pipeline("export", "--path", data, "--to", tmp_path / "lake").exit_code == 0
    rules = tmp_path / "rules.json"
    rules.write_text('{"rules": [{"pointer": "/id", "range": [2, null]}]}')
    done = pipeline("check", "--path", data, "--rules", rules, "--export", tmp_path / "lake", "--fail-on", "loss")
    report = report_of(done)
    assert (done.exit_code, report["rules"][0]["broken"], report["export"]["wrong"]) == (1, {"range": 1}, 0)
    assert done.stderr.endswith("10 live records of 1 topic: 1 record broke rule 1 (/id: range 2 to any)\n")
    assert pipeline("check", "--path", data).exit_code == 0
    assert pipeline("check", "--path", data, "--fail-on", "los").exit_code == 2


def test_a_roll_up_is_a_report_or_a_table(data: Path, tmp_path: Path) -> None:
    assert report_of(pipeline("rollup", "--path", data, "--window", "1 day", "--tags", "approx"))["records"] == 10
    done = pipeline("rollup", "--path", data, "--table", "--tags", "none", "--report", tmp_path / "report.json")
    head, row = done.stdout.splitlines()
    assert head.split() == ["topic", "window_start", "window_end", "records", "bytes", "lost"]
    assert row.split()[:4] == ["orders", "2026-11-22T23:00:00Z", "2026-11-23T00:00:00Z", "10"]
    assert json.loads((tmp_path / "report.json").read_text())["rows"] == 1
    assert pipeline("rollup", "--path", data, "--to", tmp_path / "t.parquet", "--event-time", "/id").exit_code == 0
    assert (tmp_path / "t.parquet").exists()


def test_a_compaction_keeps_the_newest_of_each_tag(data: Path, tmp_path: Path) -> None:
    done = pipeline("compact", "--path", data, "--to", tmp_path / "out", "--untagged", "drop", "--nulls", "drop")
    assert report_of(done)["topics"]["orders"]["written"] == len({n % 7 for n in range(1, 11) if n % 5})
    assert pipeline("compact", "--path", data, "--to", tmp_path / "out").exit_code == 2


def test_a_scrub_beside_an_open_log_finds_damage(data: Path) -> None:
    with opened(data):
        done = pipeline("scrub", "--path", data, "--backup", data)
    assert (report_of(done)["records"], done.exit_code) == (10, 0)
    assert done.stderr.endswith("all sound; backup: no difference that is not explained\n")
    (file,) = data.rglob("*.data")
    content = bytearray(file.read_bytes())
    content[content.index(b'"amount"')] ^= 1
    file.write_bytes(content)
    done = pipeline("scrub", "--path", data)
    assert (done.exit_code, report_of(done)["findings"][0]["topic"]) == (1, "orders")
    assert pipeline("scrub", "--path", data / "no").exit_code == 2


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--engine", "local", "--master", "local[2]"], "--engine local runs in this process: leave out --master"),
        (["--engine", "flink"], "--engine is 'flink': use one of local, spark"),
        (["--conf", "spark.ui.enabled"], "--conf 'spark.ui.enabled' is no setting: write key=value"),
    ],
)
def test_options_of_engines_that_mean_nothing_are_refused(data: Path, options: list[str], told: str) -> None:
    done = pipeline("scrub", "--path", data, *options)
    assert (done.exit_code, told in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["rollup", "--window", "fortnight"], "--window"),
        (["check", "--fail-on", "los"], "--fail-on 'los' means nothing"),
        (["scrub", "--backup", "/no/such/directory"], "/no/such/directory"),
    ],
)
def test_what_a_pipeline_refuses_it_refuses_without_starting_spark(
    data: Path, options: list[str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_master: str, _settings: Mapping[str, str]) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(engines, "_start_spark", start)
    done = pipeline(options[0], "--path", data, *options[1:], "--master", "local[1]")
    assert (done.exit_code, told in done.stderr) == (2, True)
    assert isinstance(pipeline("scrub", "--path", data, "--master", "local[1]").exception, AssertionError)


def test_a_bundle_is_written_where_it_was_asked_for(tmp_path: Path) -> None:
    assert report_of(pipeline("bundle", tmp_path / "topics.zip"))["bytes"] == (tmp_path / "topics.zip").stat().st_size
    assert pipeline("bundle", tmp_path / "topics.tar").exit_code == 2


def test_a_replay_without_files_cannot_run(tmp_path: Path) -> None:
    done = pipeline("replay", tmp_path, "--url", "http://127.0.0.1:1", "--as", "data", "--tag", "/x", "--rate", "5")
    assert (done.exit_code, "no file that ends in .parquet, .jsonl, .ndjson" in done.stderr) == (2, True)
