"""Every path that a page or a comment writes is there, however much of it is written."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TREES = ("topics", "tests", "perf", "examples", "scripts")
NAMED = re.compile(r"(?<![\w./*{}<>~$-])((?:[\w-]+/)*[\w-]+\.(?:pyi|py|c|h))\b(?![\w/]|\.\w)")
FOLDER = re.compile(r"`((?:[\w-]+/)+)`")
OTHERS = {
    "http.h", "liburing.h", "io_uring.h", "xxhash.h", "Python.h", "worker.py",
}  # fmt: skip
"""Files that are not of this repository: of the system, or a reader's."""


def sources() -> list[Path]:
    found = [
        path for tree in TREES for path in (ROOT / tree).rglob("*") if path.suffix in (".py", ".pyi", ".c", ".h", ".sh")
    ]
    return [path for path in found if not (path.suffix == ".c" and path.name.startswith("_"))]  # made by cffi


FILES = frozenset(path.relative_to(ROOT).as_posix() for path in (*sources(), *ROOT.glob("*.py")))
FOLDERS = frozenset(
    {*TREES, "docs"}
    | {path.relative_to(ROOT).as_posix() for tree in TREES for path in (ROOT / tree).rglob("*") if path.is_dir()}
)


def is_there(named: str, known: frozenset[str]) -> bool:
    """From the root, or the end of a path."""
    return named in known or named in ends_of(known)


@cache
def ends_of(known: frozenset[str]) -> set[str]:
    """Return what paths end with, from each of their folders on."""
    return {path[at + 1 :] for path in known for at, sign in enumerate(path) if sign == "/"}


def texts(path: Path) -> Iterator[str]:
    """Comments and docstrings of a Python file; the whole of any other."""
    if path.suffix != ".py":
        yield path.read_text()
        return
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and token.string.startswith('"""')):
            yield token.string


PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("perf/*.md"), *ROOT.glob("tests/*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_in_a_page_is_there(page: Path) -> None:
    text = page.read_text()
    missing = missing_in(text)
    missing |= {named for named in FOLDER.findall(text) if not is_there(named.rstrip("/"), FOLDERS)}
    assert not missing


def test_every_path_in_a_comment_or_docstring_is_there() -> None:
    missing = {
        (str(path.relative_to(ROOT)), named)
        for path in sources()
        if path.suffix in (".py", ".c", ".h") and missing_in(path.read_text())  # to tokenize each takes long
        for text in texts(path)
        for named in missing_in(text)
    }
    assert not missing


def missing_in(text: str) -> set[str]:
    return {named for named in NAMED.findall(text) if not is_there(named, FILES)} - OTHERS
