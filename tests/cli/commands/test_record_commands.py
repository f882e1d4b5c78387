"""Records of a named reader, as `topics tail --reader` prints them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import topics
from tests.cli.commands.command_runs import run
from tests.embedded.conftest import SMALL
from topics.cli.exit_codes import GAP, USAGE
from topics.cli.output.record_text import formatter_of
from topics.common.reader_tail import ReaderTail, tail_reader
from topics.errors import RequestError


class LateOnce:
    """A log whose readers take longer to print their first page than its lease lasts."""

    def __init__(self, log: topics.Log) -> None:
        self._log = log
        self.is_late = True

    def reader(self, topic: str, name: str) -> Any:
        reader: Any = self._log.reader(topic, name)
        commit = reader.commit

        def commit_late() -> int:
            if self.is_late:
                self.is_late = False
                reader.seek(reader.committed)
                raise RequestError("reader_fenced", "the page's lease has ended")
            return int(commit())

        reader.commit = commit_late
        return reader


def test_a_page_that_was_printed_too_late_is_printed_again(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data", **SMALL) as log:
        log.append("t", [1, 2])
        late: Any = LateOnce(log)
        tail = ReaderTail(lambda: False, "raise", ends=True, commits=True)
        printed = [record.data for record in tail_reader(lambda: late.reader("t", "r"), tail)]
        assert printed == [1, 2, 1, 2]
        assert log.readers("t")[0].committed == 2


def test_a_gap_names_only_options_that_the_command_has(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with topics.open(data, **SMALL) as log:
        log.put_topic("t", cap_records=2)
        log.append("t", [1])
        log.reader("t", "r").close()
        log.append("t", [2, 3, 4])
    lost = "topics: records 1 to 2 of t were lost (cap): add --skip-gaps\n"
    for command in (["get", "t", "1"], ["tail", "t", "--reader", "r"], ["tail", "t*", "--after", "0"]):
        ran = run([*command, "--data-dir", str(data)], tmp_path)  # --after would be of all topics
        assert (ran.code, ran.err) == (GAP, lost)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["put", "t", "1", "--ttl", "inf"], "--ttl is inf: use a number of seconds"),
        (["put", "t", "1", "--ttl", "1e308"], "--ttl is 1e+308: use a number of seconds, 1e+15 at most"),
        (["put", "t", "[" * 3000 + "]" * 3000], "is nested too deeply: use a flatter value, or add --as text"),
        (["get", "t", "--since", "9" * 5000 + "d"], "9': use 30s, 10m, 2h or 3d"),
        (["set", "t", "ttl_ms=" + "9" * 5000], "ttl_ms is a number of 5000 digits: use a smaller one"),
        (["set", "t", "ttl_ms=" + "9" * 5000 + "d"], "use a number of ms, or a time as 1500ms, 30s, 10m, 2h or 3d"),
        (["queue", "ack", "q", "9" * 5000], "is no seq: use 17, or 17:lease_2a"),
        (["put", "t", "1", "--delay", "inf"], "--delay is inf: use a number of seconds"),
        (["put", "t", "1", "--meta", os.fsdecode(b'"\xff"')], "--meta is no JSON"),
        (["get", "t", "--since", "9" * 20], "--since is '99999999999999999999': use 30s"),
        (["context", "set", "here", "http://s", "--key-file", os.fsdecode(b"/\xff")], "a path that is no UTF-8"),
        (["ls", "--url", "http://s", "--key-file", "HOME/key"], "HOME/key is no text: name the file"),
        (["mirror", "http://s", "--to", "HOME/m", "--key-file", "HOME"], "HOME cannot be read: Is a directory: name"),
        (["restore", "--from", "a\nb", "--to", "HOME/new"], "/a\\nb: name the directory"),
        (["mirror", "--status", "--to", "a\nb"], "--to is 'a\\nb', and there is no mirror in it: name"),
    ],
)
def test_an_odd_value_is_one_sentence(arguments: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"\xff\xfe")
    ran = run([each.replace("HOME", str(tmp_path)) for each in arguments], tmp_path, env={"TOPICS_URL": "http://s"})
    assert (ran.code, ran.err.count("\n")) == (USAGE, 1)
    assert said.replace("HOME", str(tmp_path)) in ran.err


@pytest.mark.parametrize(
    ("options", "env", "said"),
    [
        (["--url", "x"], {}, "--url is 'x': begin with http"),
        ([], {"TOPICS_URL": "x"}, "TOPICS_URL is 'x': begin with http"),
        (["--context", "here"], {}, "context here is 'http://s?x': leave out what follows the path"),
        (["--url", "http://s"], {"TOPICS_KEY": "a\nb"}, "--key-file or TOPICS_KEY is no key of a server"),
    ],
)
def test_a_place_that_cannot_be_used_is_named_by_what_gave_it(
    options: list[str], env: dict[str, str], said: str, tmp_path: Path
) -> None:
    """The arguments of the library were named, which a command does not have."""
    assert run(["context", "set", "here", "http://s?x"], tmp_path).code == 0
    ran = run(["ls", *options], tmp_path, env=env)
    assert (ran.code, ran.err.startswith(f"topics: {said}")) == (USAGE, True), ran


@pytest.mark.parametrize("seconds", ["inf", "nan", "1e300"])
def test_the_pause_of_top_is_a_day_at_most(seconds: str, tmp_path: Path) -> None:
    ran = run(["top", "--every", seconds], tmp_path, env={"TOPICS_URL": "http://s"})
    assert (ran.code, "--every" in ran.err, "86400" in ran.err) == (USAGE, True, True)


def test_a_limit_above_any_number_of_records_is_none(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with topics.open(data, **SMALL) as log:
        log.append("t", [1, 2])
    log_of = ["--first", "-n", "9" * 20, "-f", "%v ", "--data-dir", str(data)]
    assert run(["tail", "t", *log_of], tmp_path) == (0, "1 2 ", "")


def test_a_key_file_of_a_user_that_is_not_there_is_named(tmp_path: Path) -> None:
    ran = run(["ls", "--url", "http://s", "--key-file", "~nobody-here/key"], tmp_path)
    remedy = "name the file that the key was written into"
    assert (ran.code, ran.err) == (
        USAGE,
        f"topics: key file ~nobody-here/key cannot be read: No such file or directory: {remedy}\n",
    )


def test_a_beginning_before_1970_is_the_first_record_and_a_format_may_have_any_bytes(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with topics.open(data, **SMALL) as log:
        log.append("t", [1, 2])
    ran = run(["get", "t", "--since", "1969-01-01", "-f", "%v\\n", "--data-dir", str(data)], tmp_path)
    assert ran == (0, "1\n2\n", "")
    assert formatter_of(os.fsdecode(b"%v\xff"))("t", topics.Record(seq=1, ts=2, data=3)) == b"3\xff"
