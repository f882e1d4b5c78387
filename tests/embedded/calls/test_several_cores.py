"""A directory of several cores before all that opens one of one core: a sentence, and no change; fsck reads it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

import topics
from tests.cli.forked import run
from topics.cli.root_command import app
from topics.config import Config
from topics.embedded.own_loop import own_loop
from topics.files.directory import open_directory
from topics.store.cores.make_cores import make_cores

SENTENCE = "made for 2 cores: serve it by `topics serve --cores 2`, or make it one of one core by"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with topics.open(path, io="portable") as log:
        log.append("orders", [1, 2, 3])
    with own_loop(Config(io="portable")) as loop:
        loop.run_task(make_cores(loop, str(path), 2))
    return path


def contents(path: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in path.rglob("*") if each.is_file() and each.name != "lock"}


def invoked(*command: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, [*command])
    return done.exit_code, " ".join(done.output.split())


CALLS: dict[str, Callable[[str], object]] = {
    "open": lambda path: topics.open(path, io="portable"),
    "open read_only": lambda path: topics.open(path, io="portable", read_only=True),
    "open rebuild": lambda path: topics.open(path, io="portable", rebuild=True),
}


@pytest.mark.parametrize("call", CALLS)
def test_the_library_refuses_it(data: Path, call: str) -> None:
    before = contents(data)
    with pytest.raises(topics.FormatError, match=SENTENCE):
        CALLS[call](str(data))
    assert contents(data) == before


def test_readers_of_files_refuse_it_and_each_of_its_cores(data: Path) -> None:
    with pytest.raises(topics.FormatError, match="was made for 2 cores, and those of one are read here: `topics serve"):
        open_directory(str(data))
    with pytest.raises(topics.FormatError, match="core-01 holds core 1 of a directory of several cores, and no log by"):
        open_directory(str(data / "core-01"))


def fsck(data: Path, *options: str) -> tuple[int, str]:
    return invoked("fsck", *options, "--data-dir", str(data), "--io", "portable")


def test_fsck_checks_each_core_and_what_they_share(data: Path) -> None:
    before = contents(data)
    for options in ((), ("--rebuild",)):
        code, output = fsck(data, *options)
        assert (code, f"{data}: 2 cores, 2 snapshots, " in output, "all sound" in output) == (0, True, True), output
    shown = json.loads(fsck(data, "--json")[1])
    assert [core["data_dir"] for core in shown["cores"]] == [str(data / "core-00"), str(data / "core-01")]
    assert (shown["sound"], shown["report"]["records"]) == (True, 3)
    assert topics.fsck(data, rebuild=True).sound
    (data / "core-01").rename(data / "core-07")
    code, output = fsck(data)
    assert (code, "core-01 is missing, and the slot map has 2 cores: put it back" in output) == (1, True), output
    (data / "core-07").rename(data / "core-01")
    assert contents(data) == before


def test_fsck_writes_a_damaged_map_and_marker_anew(data: Path) -> None:
    before = contents(data)
    for name in ("topics.json", "slot-map"):
        (data / name).write_text("{")
    code, output = fsck(data)
    assert (code, "2 damaged; copy the directory, then" in output) == (1, True), output
    assert len(topics.fsck(data, rebuild=True).damage) == 2
    assert fsck(data)[0] == 0
    assert (data / "topics.json").read_bytes() == before[data / "topics.json"]


def test_doctor_names_it_beside_what_it_measures(data: Path) -> None:
    code, output = invoked("doctor", "--data-dir", str(data), "--io", "portable")
    assert (code, f"not opened: {data}: {SENTENCE}" in output) == (0, True), output
    assert "dsync" in output
    assert "cores: 2, which own 1024, 0 slots" in output
    (data / "core-01").rename(data / "core-07")
    code, output = invoked("doctor", "--data-dir", str(data), "--io", "portable")
    assert (code, "damaged: " in output, "core-07 is there" in output) == (0, True, True), output


@pytest.mark.parametrize(
    ("command", "code", "sentence"),
    [
        (("get", "orders", "--data-dir"), 1, SENTENCE),
        (("backup", "--data-dir"), 2, "no directory for backups is named"),
        (("verify",), 2, "there is no backup in"),
        (("serve", "--port", "0", "--io", "portable", "--data-dir"), 1, SENTENCE),
    ],
)
def test_commands_on_topics_the_server_and_backups_refuse_it(
    data: Path, command: tuple[str, ...], code: int, sentence: str
) -> None:
    before = contents(data)
    done = run([*command, str(data)], os.environ)
    assert (done.code, sentence in " ".join(done.stderr.split())) == (code, True), done.stderr
    assert contents(data) == before
