"""Records as text: templates, times, and what a terminal may get."""

from __future__ import annotations

import io

import pytest

import topics
from topics.cli.commands.beginning import time_of
from topics.cli.commands.input_records import lines_as_they_come
from topics.cli.output.printer import bytes_text
from topics.cli.output.progress_bar import progress_bar
from topics.cli.output.record_text import formatter_of, record_line
from topics.clock import ManualClock
from topics.common.values.time_texts import time_text
from topics.errors import UsageError

RECORD = topics.Record(seq=7, ts=1_700_000_000_123, data={"a": "\u202e\x9b"}, meta=[1], tag="t", node="n")


def test_a_template_has_all_fields_and_escapes() -> None:
    made = formatter_of(r"%t|%s|%T|%e|%g|%n|%m|%%|\t\0\\|\r\n")("topic", RECORD)
    assert made == b"topic|7|2023-11-14T22:13:20.123Z|1700000000123|t|n|[1]|%|\t\0\\|\r\n"
    assert formatter_of("%v%m")("t", topics.Record(seq=1, ts=0, data=b"\xff")) == b"\xff"
    assert formatter_of("%v")("t", topics.Record(seq=1, ts=0, data="a b")) == b"a b"


@pytest.mark.parametrize(
    ("template", "told"), [("%", "%, which"), ("%x", "%x"), ("a\\", "\\, which"), ("\\x41", "\\x")]
)
def test_an_unknown_field_or_escape_is_named(template: str, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        formatter_of(template)
    assert told in str(refused.value)


def test_data_commands_no_terminal() -> None:
    assert record_line(RECORD).isprintable()
    assert r"\u202e\x9b" in record_line(RECORD)


def test_times_and_sizes_are_for_people() -> None:
    assert time_text(None) == "-"
    assert time_text(1 << 62) == str(1 << 62)
    assert [bytes_text(size) for size in (0, 1023, 1536, 5 << 30, 1 << 60)] == [
        "0 B", "1023 B", "1.5 KiB", "5.0 GiB", "1048576.0 TiB",
    ]  # fmt: skip


def test_a_time_is_ago_or_a_date_or_a_number() -> None:
    clock = ManualClock(1_000_000_000_000)
    assert time_of("90s", clock) == 1_000_000_000_000 - 90_000
    assert time_of("2d", clock) == 1_000_000_000_000 - 2 * 86_400_000
    assert time_of("2001-09-09T01:46:40", clock) == time_of("2001-09-09T03:46:40+02:00", clock) == 1_000_000_000_000
    assert time_of("12345", clock) == 12345
    for text in ("", "5x", "yesterday", "-5m", "2026-13-01"):
        with pytest.raises(UsageError, match="--since is"):
            time_of(text, clock)


class Trickle(io.RawIOBase):
    """A pipe whose writer is slow: each read gets one piece."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)

    def read(self, _size: int = -1) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


def test_the_whole_lines_of_a_slow_writer_come_at_once() -> None:
    """Each with its number, which counts empty lines."""
    pipe = Trickle(b"one\ntw", b"o\r\n\n", b"thr", b"ee", b"\nfo", b"ur")
    expected = [[(1, b"one")], [(2, b"two")], [(4, b"three")], [(5, b"four")]]
    assert list(lines_as_they_come(pipe)) == expected  # type: ignore[arg-type]


def test_a_bar_begins_when_work_takes_long_and_is_taken_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = ManualClock()
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_bar("work", 10, clock) as advance:
        advance(3)
        assert capsys.readouterr().err == ""
        clock.advance_ns(1_000_000_000)
        advance(4)
        advance(1)
    assert "work" in capsys.readouterr().err
