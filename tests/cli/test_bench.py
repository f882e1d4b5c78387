"""`topics bench`: what the command prints and returns."""

from __future__ import annotations

import json
import os
import re
import select
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.cli.bench.results_of_rounds import outcome, result
from tests.cli.bench.scripted_server import http_answer, scripted_server
from topics.bench.hidden_keys import hidden_words
from topics.cli.root_command import app

RUNNER = CliRunner()
SHORT = '[run]\nseconds = 0.1\nwarmup = 0\nrounds = 1\n[[load]]\nkind = "write"\n[server]\nverify = true\n'


def test_list_shows_each_workload_with_its_question() -> None:
    done = RUNNER.invoke(app, ["bench", "list"])
    assert done.exit_code == 0
    assert "write-lone" in done.stdout
    assert "How long does one write take if nothing else happens?" in done.stdout


def test_help_names_the_guide_and_a_first_command() -> None:
    done = RUNNER.invoke(app, ["bench", "--help"])
    assert "topics bench run write-lone" in " ".join(done.stdout.split())
    assert "docs/guides/bench.md" in done.stdout


def test_a_run_prints_its_figures_and_writes_a_result(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(SHORT)
    done = RUNNER.invoke(app, ["bench", "run", str(mine), "--out", str(tmp_path / "out"), "--dir", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "checks hold: topics: what was acknowledged was read back" in done.stdout
    (path,) = (tmp_path / "out").glob("mine-*.json")
    assert json.loads(path.read_text())["workload"]["text"] == SHORT


def test_names_of_a_file_are_no_markup(tmp_path: Path) -> None:
    """A title such as [/x] ended the command after the measurement, and before a file was written."""
    mine = tmp_path / "[_x].toml"
    mine.write_text(
        SHORT.replace("[run]", 'title = "[/x] y"\nquestion = "[/z]?"\n[run]') + '[[load]]\nname = "[/load]"\n'
    )
    done = RUNNER.invoke(app, ["bench", "run", str(mine), "--out", str(tmp_path / "out"), "--dir", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "[/x] y: [/z]?" in done.stdout
    assert "[/load]" in done.stdout
    assert len(list((tmp_path / "out").iterdir())) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "wirte-lone"], "there is no workload 'wirte-lone'"),
        (["run", "write-lone", "--url", "https://x"], "--url is 'https://x': use http://HOST:PORT"),
        (["run", "write-lone", "--url", "http://x", "--set", "port=1"], "--set changes a server of this command's own"),
        (["run", "write-lone", "--key", "k"], "--key is for a server of --url: leave it out"),
        (["run", "write-lone", "--set", "spinus=5"], "TOPICS_SPINUS is not a setting (did you mean TOPICS_SPIN_US?)"),
        (["run", "write-lone", "--set", "spinus=5"], "did you mean TOPICS_SPIN_US?)\n"),
        (["run", "write-lone", "--set", "spin_us"], "--set is 'spin_us': use NAME=VALUE"),
        (["run", "write-lone", "--set", "spin_us=5", "--set", "TOPICS_SPIN_US=5"], "--set has TOPICS_SPIN_US twice"),
        (["run", "write-lone", "--peers", "reddis"], "there is no peer 'reddis'"),
        (["run", "write-lone", "--peers", ","], "--peers is ',': it names no peer: use one of redis"),
        (["run", "write-lone", "--peers", ""], "--peers is '': it names no peer"),
        (["run", "deliver-sse", "--peers", "commit"], "--peers names bare write and sync: it is called in a process"),
        (["run", "write-lone", "--dir", "/nowhere"], "--dir is '/nowhere': name a directory that exists"),
        (["run", "write-lone", "--seconds", "inf"], "--seconds is inf: use a number from 0.05 to 3,600"),
        (["run", "write-lone", "--seconds", "1e12"], "--seconds is 1000000000000.0: use a number from 0.05"),
        (["run", "write-lone", "--warmup", "1e7"], "--warmup is 10000000.0: use a number from 0 to 600"),
        (["run", "write-lone", "--rounds", "1001"], "--rounds is 1001: use a whole number from 1 to 1,000"),
        (["run", "write-lone", "--url", "http://x:99999"], "--url is 'http://x:99999': Port out of range"),
        (["run", "write-lone", "--url", "http://x:abc"], "--url is 'http://x:abc': Port could not be cast"),
        (["run", "write-lone", "--url", "http://x/a?x=1"], "--url is 'http://x/a?x=1': leave out what is not"),
        (["run", "write-lone", "--set", "data_dir=/mnt"], "has data_dir, which this command chooses itself: leave it"),
        (["run", "write-lone", "--set", "spin_us=zzz"], "TOPICS_SPIN_US is 'zzz': use auto, or a number from 0"),
        (["run", "embedded-append", "--url", "http://x"], "--url is 'http://x': embedded-append calls the library"),
        (["run", "recovery", "--url", "http://x"], "recovery: the server at http://x is not this command's to kill"),
        (["run", "write-lone", "--out", "/proc/x"], "--out is '/proc/x': No such file or directory: name a directory"),
        (["compare", "a.json", "b.json"], "a.json: No such file"),
    ],
)  # fmt: skip
def test_a_command_that_cannot_begin_says_why_and_returns_2(arguments: list[str], said: str) -> None:
    done = RUNNER.invoke(app, ["bench", *arguments])
    assert done.exit_code == 2
    assert said in done.stderr


def test_no_file_of_a_result_has_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tmp_path / "my file.toml"
    mine.write_text(SHORT + 'api_keys = "filed-secret"\n')
    words = ["bench", "run", str(mine), "--out", str(tmp_path / "out"), "--dir", str(tmp_path)]
    words += ["--set", "api_keys=set-secret"]
    monkeypatch.setattr(sys, "argv", ["topics", *words])
    assert RUNNER.invoke(app, words).exit_code == 0
    path, page = sorted((tmp_path / "out").iterdir(), reverse=True)
    for file in path, page:
        assert "secret" not in file.read_text()
    document = json.loads(path.read_text())
    assert document["settings"]["TOPICS_API_KEYS"] == "***"
    shown = shlex.split(document["command"])
    assert shown == [re.sub("set-secret", "***", word) for word in ["topics", *words]]
    words = ["--key", "s", "--key=s", "--set=TOPICS_API_KEYS=s", "--set", "spin_us=5"]
    assert hidden_words(words) == ["--key", "***", "--key=***", "--set=TOPICS_API_KEYS=***", "--set", "spin_us=5"]


def test_the_key_of_a_server_at_a_url_may_be_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[bytes] = []

    def answer(data: bytes) -> bytes:
        sent.append(data)
        return http_answer(b"no", 401)

    monkeypatch.setenv("TOPICS_KEY", "from-the-variable")
    with scripted_server(answer) as port:
        url = f"http://127.0.0.1:{port}"
        for more, key in (([], b"from-the-variable"), (["--key", "given"], b"given")):
            sent.clear()
            done = RUNNER.invoke(app, ["bench", "run", "write-lone", "--url", url, *more])
            assert (done.exit_code, b"Bearer " + key in sent[0]) == (2, True)


def command_of(process: str) -> str:
    """The command line of a process; empty if it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace")
    return ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_a_run_with_its_server_and_its_directory(number: signal.Signals, tmp_path: Path) -> None:
    """SIGTERM left `topics serve` running, and its directory."""
    mine, data = tmp_path / "mine.toml", tmp_path / "data"
    mine.write_text(SHORT.replace("0.1", "60"))
    data.mkdir()
    words = [sys.executable, "-m", "topics", "bench", "run", str(mine), "--dir", str(data), "--out", str(tmp_path)]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background jobs
    try:
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        while not (started := list(data.glob("topics-bench-*/*/data.port"))) or not started[0].read_text().strip():
            with pytest.raises(subprocess.TimeoutExpired):  # and no turn after turn beside what is waited for
                process.wait(0.02)
        programs = [number for number in os.listdir("/proc") if number.isdigit() and str(data) in command_of(number)]
        process.send_signal(number)
        said = process.communicate()[1]
        assert process.returncode == 128 + number
        assert b"topics: mine was ended: 0 finished rounds are in no file" in said
    assert list(data.iterdir()) == []
    assert len(programs) == 2
    assert [number for number in programs if str(data) in command_of(number)] == []


def test_a_program_ends_with_a_command_that_is_killed(tmp_path: Path) -> None:
    """kill -9 of the command left `topics serve` running."""
    script = (
        "import sys\nfrom pathlib import Path\nfrom topics.bench.processes import start_process\n"
        f"process = start_process(['sleep', '1000'], Path({str(tmp_path / 'log')!r}), 'sleep')\n"
        "print(process.popen.pid, flush=True)\nsys.stdin.read()\n"
    )
    words = [sys.executable, "-c", script]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as command:
        assert command.stdout is not None
        program = os.pidfd_open(int(command.stdout.readline()))
        try:
            command.kill()
            assert select.select([program], [], [], 120)[0], "it runs on"
        finally:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(program, signal.SIGKILL)
            os.close(program)


def test_compare_returns_1_for_a_worse_figure_if_it_is_asked_to(tmp_path: Path) -> None:
    paths = []
    for name, rate in (("a", 2000), ("b", 1000)):
        paths.append(str(tmp_path / f"{name}.json"))
        rounds = [outcome(rate + number) for number in range(4)]
        Path(paths[-1]).write_text(json.dumps(result({"topics": rounds}).document))
    done = RUNNER.invoke(app, ["bench", "compare", *paths])
    assert (done.exit_code, "worse" in done.stdout) == (0, True)
    assert RUNNER.invoke(app, ["bench", "compare", *paths, "--fail"]).exit_code == 1
    assert RUNNER.invoke(app, ["bench", "compare", *reversed(paths), "--fail"]).exit_code == 0


def test_compare_returns_1_for_failed_checks_of_the_second_if_it_is_asked_to(tmp_path: Path) -> None:
    """They were only "doubtful", and a script continued."""
    paths = []
    for name, ok in (("a", True), ("b", False)):
        paths.append(str(tmp_path / f"{name}.json"))
        rounds = [outcome(1000, ok=ok) for _ in range(4)]
        Path(paths[-1]).write_text(json.dumps(result({"topics": rounds}).document))
    assert RUNNER.invoke(app, ["bench", "compare", *paths]).exit_code == 0
    assert RUNNER.invoke(app, ["bench", "compare", *paths, "--fail"]).exit_code == 1
    assert RUNNER.invoke(app, ["bench", "compare", *reversed(paths), "--fail"]).exit_code == 0


def test_compare_spells_out_hidden_characters_of_a_result(tmp_path: Path) -> None:
    """A result of another could clear the screen, or colour its figures."""
    document = result({"to\x1b[2Jpics": [outcome(1000)]}, label="a\x1b[31m").document
    document["sides"][0]["version"] = "b\x07"
    path = tmp_path / "a.json"
    path.write_text(json.dumps(document))
    done = RUNNER.invoke(app, ["bench", "compare", str(path), str(path)])
    assert "a\\x1b[31m" in done.stdout
    assert "\x1b" not in done.stdout
    document["sides"][0]["version"] = "c"
    document["workload"] |= {"name": "mine", "text": "title = 'y'"}
    other = tmp_path / "b.json"
    other.write_text(json.dumps(document))
    done = RUNNER.invoke(app, ["bench", "compare", str(path), str(other)])
    assert (done.exit_code, "compare results of one workload" in done.stderr) == (2, True)
