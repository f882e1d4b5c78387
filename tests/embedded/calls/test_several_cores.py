"""A directory of several cores before everything that opens one of one core: a sentence, and no change."""

from __future__ import annotations

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

SENTENCE = "made for 2 cores, and this version runs 1: use the version of topics that made it"


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
    "fsck": topics.fsck,
    "fsck rebuild": lambda path: topics.fsck(path, rebuild=True),
}


@pytest.mark.parametrize("call", CALLS)
def test_the_library_refuses_it(data: Path, call: str) -> None:
    before = contents(data)
    with pytest.raises(topics.FormatError, match=SENTENCE):
        CALLS[call](str(data))
    assert contents(data) == before


def test_readers_of_files_refuse_it_and_each_of_its_cores(data: Path) -> None:
    with pytest.raises(topics.FormatError, match="was made for 2 cores, and this version reads those of one: use the"):
        open_directory(str(data))
    with pytest.raises(topics.FormatError, match="core-01 holds core 1 of a directory of several cores, and no log by"):
        open_directory(str(data / "core-01"))


@pytest.mark.parametrize("command", [("fsck",), ("fsck", "--rebuild"), ("fsck", "--json")])
def test_fsck_cannot_look_and_names_the_cores_or_what_is_wrong_with_them(data: Path, command: tuple[str, ...]) -> None:
    before = contents(data)
    code, output = invoked(*command, "--data-dir", str(data), "--io", "portable")
    assert (code, SENTENCE in output) == (2, True), output
    (data / "core-01").rename(data / "core-07")
    code, output = invoked(*command, "--data-dir", str(data), "--io", "portable")
    assert (code, "core-01 is missing, and the slot map has 2 cores: put it back" in output) == (2, True), output
    (data / "core-07").rename(data / "core-01")
    for name in ("topics.json", "slot-map"):
        (data / name).write_text("{")
    code, output = invoked(*command, "--data-dir", str(data), "--io", "portable")
    assert (code, "made for several cores, as its slot-map says" in output) == (2, True), output
    for name in ("topics.json", "slot-map"):
        (data / name).write_bytes(before[data / name])
    assert contents(data) == before


def test_doctor_names_it_beside_what_it_measures(data: Path) -> None:
    code, output = invoked("doctor", "--data-dir", str(data), "--io", "portable")
    assert (code, f"not opened: {data}: {SENTENCE}" in output) == (0, True), output
    assert "dsync" in output


@pytest.mark.parametrize(
    ("command", "code", "sentence"),
    [
        (("get", "orders", "--data-dir"), 1, SENTENCE),
        (("backup", "--data-dir"), 1, SENTENCE),
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
