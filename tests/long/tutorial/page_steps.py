"""The steps of the tutorial's page, as the one who follows it takes them.

A paragraph that names a terminal is about it and what follows. Indented lines are typed there, one
after the other. A quote is what they print. A paragraph that names a file in backquotes after "Save
this as" has its text in the block below.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Type(NamedTuple):
    """Lines to type into a terminal. stays: the last one does not end."""

    terminal: int
    lines: tuple[str, ...]
    stays: bool


class Press(NamedTuple):
    """Ctrl-C in a terminal."""

    terminal: int


class Save(NamedTuple):
    """A file to write."""

    name: str
    text: str


class See(NamedTuple):
    """Lines that a terminal has printed, since the last that were typed there."""

    terminal: int
    lines: tuple[str, ...]


class Await(NamedTuple):
    """An empty queue."""


Step = Type | Press | Save | See | Await
_TERMINAL = re.compile(r"\b[Tt]erminal (\d)")


def steps_of(page: str) -> list[Step]:
    """Return the steps of a page, in its order."""
    steps: list[Step] = []
    terminal, name = 1, ""
    for block in _blocks(page):
        if block.startswith("    "):
            lines = tuple(line[4:] for line in block.splitlines())
            steps.append(Type(terminal, lines, stays=False))
        elif block.startswith("```"):
            steps.append(Save(name, block.split("\n", 1)[1].removesuffix("```")))
        elif block.startswith("> "):
            steps.append(See(terminal, tuple(line[2:] for line in block.splitlines())))
        elif not block.startswith(("#", "|", "- ")):
            text = " ".join(block.split())
            if "Leave it running" in text and isinstance(steps[-1], Type):
                steps[-1] = steps[-1]._replace(stays=True)
            if found := _TERMINAL.search(text):
                terminal = int(found[1])
            if "Press Ctrl-C" in text:
                steps.append(Press(terminal))
            if "wait until the queue is empty" in text:
                steps.append(Await())
            if found := re.search(r"Save this as `([\w.]+)`", text):
                name = found[1]
    return steps


def _blocks(page: str) -> list[str]:
    """Return paragraphs and blocks; a fenced one is whole."""
    blocks: list[str] = []
    for at, part in enumerate(re.split(r"^(```[^`]*^```)$", page, flags=re.M)):
        blocks += [part] if at % 2 else [block.strip("\n") for block in re.split(r"\n{2,}", part) if block.strip()]
    return blocks
