"""The log of a server as text and as JSON."""

from __future__ import annotations

import json
import logging
import os

import pytest

from tests.cli.forked import run
from topics.cli.output.log_lines import JsonLines


def made(message: str, *arguments: object, error: BaseException | None = None) -> logging.LogRecord:
    info = None if error is None else (type(error), error, error.__traceback__)
    record = logging.LogRecord("topics.server", logging.WARNING, __file__, 1, message, arguments, info)
    record.created, record.msecs = 1_700_000_000.25, 250.0
    return record


def test_a_line_is_an_object_whatever_the_message_holds() -> None:
    line = JsonLines().format(made('a "name"\nof %s', "café"))
    assert line.isascii()
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "warning",
        "logger": "topics.server",
        "message": 'a "name"\nof café',
    }


def test_each_line_of_one_of_several_processes_has_its_name() -> None:
    assert json.loads(JsonLines("core 1").format(made("ready")))["by"] == "core 1"


def test_an_exception_is_a_field_of_its_line() -> None:
    try:
        raise ValueError("broken")
    except ValueError as error:
        line = json.loads(JsonLines().format(made("failed", error=error)))
    assert line["exception"].startswith("Traceback")
    assert line["exception"].endswith("ValueError: broken")


@pytest.mark.parametrize(("form", "begins"), [("json", '{"time": "'), ("text", "20")])
def test_a_server_logs_in_the_format_of_its_setting(tmp_path: os.PathLike[str], form: str, begins: str) -> None:
    options = ["serve", "--data-dir", f"{tmp_path}/data", "--port", "0", "--log-format", form]
    unknown = {**os.environ, "TOPICS_PROT": "1", "TOPICS_LOG_LEVEL": "warning", "TOPICS_PORT_FILE": "/no/such/port"}
    lines = run(options, unknown).stderr.splitlines()
    assert lines[0].startswith(begins), lines
    assert "did you mean TOPICS_PORT?" in lines[0]
    assert lines[-1].startswith("topics: /no/such"), "the refusal stays a sentence"
