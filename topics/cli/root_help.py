"""The text of `topics --help`: it needs only the table of commands, so it comes at once."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterable

from topics.cli.exit_codes import GAP, INTERRUPTED, REFUSED, USAGE
from topics.cli.known_commands import COMMANDS, SECTIONS

ABOUT = (
    "An event log for one machine.",
    "Commands on topics work on the server at --url, TOPICS_URL, a context or http://localhost:4000, or on the "
    "--data-dir of a stopped one. They print tables on a terminal and JSON lines elsewhere. Exit codes: 0 done, "
    f"{REFUSED} refused, {USAGE} usage, {GAP} records were lost, {INTERRUPTED} interrupted.",
)
OPTIONS = {"--version": "Print the version.", "--help": "Show this message and exit."}


def root_help() -> str:
    """Return the help of `topics` itself, at most as wide as the terminal and 78 columns."""
    width = max(50, min(_columns(), 80) - 2)

    def wrapped(text: str, first: str, next_: str) -> str:
        return textwrap.fill(text, width, initial_indent=first, subsequent_indent=next_, break_on_hyphens=False)

    def section(title: str, rows: list[tuple[str, str]], names: Iterable[str]) -> str:
        column = max(map(len, names)) + 4
        lines = [wrapped(text, f"  {name}".ljust(column), " " * column) for name, text in rows]
        return "\n".join([f"{title}:", *lines])

    parts = ["Usage: topics [OPTIONS] COMMAND [ARGS]...", *(wrapped(text, "  ", "  ") for text in ABOUT)]
    parts.append(section("Options", list(OPTIONS.items()), OPTIONS))
    parts += [section(title, [(row.name, row.help) for row in rows], COMMANDS) for title, rows in SECTIONS.items()]
    return "\n\n".join(parts)


def _columns() -> int:
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size().columns or 80
    except OSError:
        return 80
