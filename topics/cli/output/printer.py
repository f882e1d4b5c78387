"""The output of a command: a table where a person reads it, JSON lines where a program does."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import topics
from topics.cli.output.record_text import (
    Formatter,
    data_bytes,
    data_text,
    formatter_of,
    json_bytes,
    printable,
    record_line,
    record_object,
)
from topics.common.values.time_texts import time_text
from topics.errors import UsageError

if TYPE_CHECKING:
    from typing import BinaryIO

FORMS = ("table", "json", "raw")


class Row(NamedTuple):
    """A row of a list: an object for programs, and its cells for people; the first is its name."""

    shown: dict[str, Any]
    cells: Sequence[str]


class Printer:
    """Writes what a command found to stdout, in one form."""

    def __init__(self, form: str | None, template: str | None = None) -> None:
        """form: None for a table on a terminal, and JSON elsewhere. Raises: UsageError."""
        if form is not None and form not in FORMS:
            raise UsageError(f"--output is {form!r}: use one of {', '.join(FORMS)}")
        if form is not None and template is not None:
            raise UsageError("--output and --format are given: leave out one of them")
        self._out: BinaryIO = sys.stdout.buffer
        self._form = form or ("table" if sys.stdout.isatty() else "json")
        self._formatter: Formatter | None = None if template is None else formatter_of(template)

    def rows(self, titles: Sequence[str], rows: Iterable[Row], *, none: str) -> None:
        """Write a list. none: the sentence for people if it is empty.

        titles: of the columns; one that begins with ">" has numbers, to the right.
        """
        if self._form == "json":
            self._lines(json_bytes(row.shown) for row in rows)
        elif self._form == "raw":
            self._lines(row.cells[0].encode() for row in rows)
        else:
            found = list(rows)
            self._lines(line.encode() for line in (table_lines(titles, found) if found else [none]))

    def card(self, shown: dict[str, Any], pairs: Iterable[tuple[str, object]]) -> None:
        """Write one thing: an object, or a line for each of its members."""
        if self._form != "table":
            self._lines([json_bytes(shown)])
            return
        found = [(name, printable(str(value))) for name, value in pairs]
        width = max(len(name) for name, _value in found)
        self._lines(f"{name:<{width}}  {value}".rstrip().encode() for name, value in found)

    def said(self, shown: dict[str, Any], sentence: str) -> None:
        """Write what was done: an object for programs, a sentence for people."""
        self._lines([printable(sentence).encode() if self._form == "table" else json_bytes(shown)])

    def record(self, topic: str, record: topics.Record, *, named: bool = False) -> None:
        """Write a record. named: with its topic, because there are several."""
        if self._formatter is not None:
            self._out.write(self._formatter(topic, record))
        elif self._form == "json":
            shown = record_object(record)
            self._out.write(json_bytes({"topic": topic, **shown} if named else shown) + b"\n")
        elif self._form == "raw":
            self._out.write(data_bytes(record.data) + b"\n")
        else:
            self._out.write(record_line(record, topic if named else "").encode() + b"\n")

    def jobs(self, jobs: Sequence[topics.Job], *, attempts: bool) -> None:
        """Write claimed jobs. attempts: with how their earlier leases ended."""
        rows = []
        for job in jobs:
            shown, cells = record_object(job), [str(job.seq), job.lease_id, str(job.deliveries)]
            if attempts:
                shown["attempts"] = job.attempts
                cells.append(attempt_text(job.attempts))
            rows.append(Row(shown, (*cells, data_text(job.data))))
        last = ("LAST ATTEMPT",) if attempts else ()
        self.rows((">SEQ", "LEASE", ">DELIVERIES", *last, "DATA"), rows, none="no jobs")

    def dead_letters(self, topic: str, letters: Iterable[topics.Record]) -> None:
        """Write dead letters, which are records of a topic."""
        if self._formatter is not None:
            for letter in letters:
                self._out.write(self._formatter(topic, letter))
            return
        titles = (">SEQ", "TIME", ">DELIVERIES", "REASON", "DATA")
        self.rows(titles, map(_dead_letter_row, letters), none="no dead letters")

    def flush(self) -> None:
        self._out.flush()

    def _lines(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            self._out.write(line + b"\n")
        self._out.flush()


def attempt_text(attempts: Sequence[topics.Attempt]) -> str:
    """Return how the last lease ended, as `nacked by w: exit code 3`; "-" for none."""
    if not attempts:
        return "-"
    last = attempts[-1]
    return f"{last.ended} by {last.node}" + (f": {last.reason}" if last.reason else "")


def _dead_letter_row(letter: topics.Record) -> Row:
    added = letter.meta if isinstance(letter.meta, dict) else {}
    deliveries, reason = (str(added.get(f"$dead_letter_{name}", "-")) for name in ("deliveries", "reason"))
    cells = (str(letter.seq), time_text(letter.ts), deliveries, reason, data_text(letter.data))
    return Row(record_object(letter), cells)


def table_lines(titles: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """Return a table as lines: as wide as its cells are, one space and one more between columns."""
    cells = [[title.removeprefix(">") for title in titles], *([printable(cell) for cell in row.cells] for row in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(titles))]
    right = [title.startswith(">") for title in titles]
    return [
        "  ".join(cell.rjust(width) if to_right else cell.ljust(width)
                  for cell, width, to_right in zip(row, widths, right, strict=True)).rstrip()
        for row in cells
    ]  # fmt: skip


def count_text(count: int, word: str) -> str:
    """Return `1 record`, `2 records`."""
    return f"{count} {word}{'' if count == 1 else 's'}"


def left_out_text(seqs: int, source: str) -> str:
    """Return what a report says of the seqs of a restored log. source: what knows those before."""
    count = count_text(seqs, "seq")
    return f"each topic leaves out at least {count} above those that the {source} knows, and has another incarnation"


def bytes_text(count: int) -> str:
    """Return a number of bytes with a unit, such as 1.5 MiB."""
    size, units = float(count), ("B", "KiB", "MiB", "GiB", "TiB")
    for unit in units:
        if size < 1024 or unit == units[-1]:
            break
        size /= 1024
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
