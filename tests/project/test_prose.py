"""Prose for a stranger, as far as a program can check it: words, widths and first sentences.

Pages, every room of `topics/` and the folders beside it are checked. `python scripts/same_code.py main` shows that a
change of prose changed no code.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from scripts.same_code import code_of
from tests.project.structure.trees import nodes, tree

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(page for glob in ("*.md", "docs/**/*.md", "perf/*.md", "tests/*.md") for page in ROOT.glob(glob))
ROOMS = sorted(
    path.name for path in (ROOT / "topics").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
)
"""Folders and files below `topics/`."""
C_FILES = sorted(path for path in (ROOT / "topics").rglob("*.[ch]") if not path.name.startswith("_"))
COLUMNS = 100
USERS_PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/guides/*.md")])
WORDS_A_SENTENCE = 20
"""More than the mean number of words of a sentence, on each page for users."""
SENTENCE_END = re.compile(r"(?<=[.?!])\s+(?=[A-Z`\[*(])")

BETTER = {
    r"whoever|whomever": "name the actor: the caller, the client, a process that ...",
    r"nobody|no one": "name the actor (no client, no reader), or use the passive",
    r"somebody|someone|anybody|anyone": "name the actor: a client, another process",
    r"everybody|everyone": "name the actors: all clients, every reader",
    r"behind(?! (?:an? |the |your )?(?:proxy|proxies|nginx|HAProxy|Caddy)\b)": "after; lags",
    r"told|tells|tell": "reports, states, distinguishes",
    r"but for": "except",
    r"such a one|such ones?": "name the thing again",
    r"lies|lie|lying|lain": "is, is stored, is in",
    r"goes|go on|went on|gone on|going on": "continues; is sent; is written",
    r"alone": "only; by itself; exclusive",
    r"that (?:is|are) none": "does not exist; is no ...",
    r"at one go": "at once, in one step",
    r"hardly|seldom": "rarely, barely",
    r"as ever": "as before, unchanged",
    r"(?:is|are|was|were) over(?! \d| $)": "has ended",
    r"made again": "created again",
    r"brings? about": "creates, causes",
    r"let in": "admitted, accepted",
}
"""Words written by habit, as regular expressions, and what to write instead."""
WORDS = re.compile("|".join(rf"(?P<w{at}>\b(?:{words})\b)" for at, words in enumerate(BETTER)), re.IGNORECASE)
BEGINNINGS = re.compile(r"(?:So (?:is|are|do|does|did|has|have|was|were)|Such|Those|Whoever|Who)\b")
"""How no sentence begins: its subject is a word that a stranger has to look for."""


class Line(NamedTuple):
    number: int
    text: str


def prose(page: Path) -> Iterator[Line]:
    """Yield the lines of a page without its code: fenced and indented blocks left out, `code` and targets blanked."""
    fenced = False
    blank = in_list = code = False
    for number, text in enumerate(page.read_text().split("\n"), 1):
        if text.startswith("```"):
            fenced = not fenced
            continue
        if not fenced:
            if re.match(r"\s*(?:[-*]|\d+\.)\s", text):
                in_list = True
            elif text and not text.startswith(" "):
                in_list = False
            code = text.startswith("    ") and (code or (blank and not in_list) or not in_list)
            if not code:
                yield Line(number, re.sub(r"`[^`]*`", "`code`", re.sub(r"\]\([^)]*\)", "]", text)))
        blank = not text


def is_table(line: Line) -> bool:
    return line.text.lstrip().startswith("|")


def paragraphs(page: Path) -> Iterator[Line]:
    """Yield each paragraph, list item and heading as one line, numbered by its first."""
    start, words = 0, list[str]()
    for line in (*prose(page), Line(0, "")):
        if words and (not line.text.strip() or re.match(r"\s*(?:[-*]|\d+\.)\s|#|\|", line.text)):
            yield Line(start, " ".join(words))
            words = []
        if line.text.strip() and not is_table(line):
            start = start if words else line.number
            words.append(line.text.strip())


def better(text: str) -> list[str]:
    """Return `'behind': write after` for each word in a text that has a better one."""
    found = []
    for match in WORDS.finditer(text):
        assert match.lastgroup is not None
        found.append(f"{match[0]!r}: write {list(BETTER.values())[int(match.lastgroup[1:])]}")
    return found


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_page_uses_the_words_of_the_field(page: Path) -> None:
    faults = [f"{name(page)}:{line.number}: {fault}" for line in prose(page) for fault in better(line.text)]
    assert not faults, "\n" + "\n".join(faults)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_line_of_a_page_ends_by_column_100(page: Path) -> None:
    lines = page.read_text().split("\n")
    wide = [
        f"{name(page)}:{line.number}"
        for line in prose(page)
        if not is_table(line) and len(lines[line.number - 1]) > COLUMNS
    ]
    assert not wide, "\n" + "\n".join(wide)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_sentence_of_a_page_has_a_subject_of_its_own(page: Path) -> None:
    faults = []
    for line in paragraphs(page):
        text = re.sub(r"^(?:[-*]|\d+\.)\s+", "", line.text)
        for sentence in re.split(r"(?<=[.?!])\s+(?=[A-Z])", text):
            if match := BEGINNINGS.match(sentence.lstrip("*_( ")):
                faults.append(f"{name(page)}:{line.number}: begins with {match[0]!r}: {sentence[:60]}")
    assert not faults, "\n" + "\n".join(faults)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_page_begins_with_its_title_and_what_it_is_for(page: Path) -> None:
    lines = page.read_text().split("\n")
    assert re.match(r"# \S", lines[0]), "the first line is the title"
    first = [line.text for line in paragraphs(page)][1]
    assert re.match(r"[A-Z`*]", first), f"a sentence comes first, not {first[:40]!r}"
    assert len(first.split()) >= 6, f"a sentence comes first, not {first!r}"


@pytest.mark.parametrize("page", USERS_PAGES, ids=name)
def test_the_sentences_of_a_page_for_users_have_fewer_than_20_words_on_average(page: Path) -> None:
    words = []
    for line in paragraphs(page):
        if not line.text.startswith("#"):
            words += [len(sentence.split()) for sentence in SENTENCE_END.split(line.text)]
    assert sum(words) < WORDS_A_SENTENCE * len(words), f"{sum(words) / len(words):.1f}"


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/guides/*.md")), ids=name)
def test_a_guide_shows_a_command_on_its_first_screen(page: Path) -> None:
    screen = page.read_text().split("\n")[:24]
    assert any(line.startswith(("    ", "```")) for line in screen)


# --- docstrings and comments ---
DOCSTRING_BEGINNINGS = re.compile(
    r"(?:What|Of|The same|Those|Such|Whoever|Who|Whose|Nobody|Somebody|So|As|For who|None|Is|Does|Has)\b"
)


def blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield the lists of statements of a tree, without a look at its expressions, which are most of it."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        for kind in ("body", "orelse", "finalbody", "handlers", "cases"):
            if inside := getattr(node, kind, None):
                waiting += inside
                if kind == "body":
                    yield inside


def docstrings(tree: ast.AST) -> Iterator[Line]:
    """Yield docstrings of modules, classes and functions, and texts below attributes, by their first line."""
    for block in blocks(tree):
        for statement in block:
            if (
                isinstance(statement, ast.Expr)
                and isinstance(statement.value, ast.Constant)
                and isinstance(statement.value.value, str)
            ):
                yield Line(statement.lineno, statement.value.value)


PRAGMA = re.compile(r"# (?:type: \S+|noqa(?::(?: ?[A-Z]+\d+,?)+)?|fmt: \w+)(?: - )?")
"""The part of a comment that programs read. Prose may follow it."""


@cache
def comments(source: Path) -> list[Line]:
    """Return the comments of a file, or none if no line with one can have a fault: to find them takes long."""
    text = source.read_text()
    if not any("#" in line and (len(line) > COLUMNS or better(line)) for line in text.split("\n")):
        return []
    return [
        Line(token.start[0], PRAGMA.sub("", token.string))
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT and not re.match(r"#!|# ---", token.string)
        if not PRAGMA.fullmatch(token.string)
    ]


def faults_of(source: Path, found: list[Line]) -> list[str]:
    """The faults of words in a file's docstrings, which are `found`, and in its comments."""
    faults = []
    for line in found:
        if match := DOCSTRING_BEGINNINGS.match(line.text):
            faults.append(f"{name(source)}:{line.number}: begins with {match[0]!r}: {line.text[:60]!r}")
    for line in (*found, *comments(source)):
        text = re.sub(r"`[^`]*`", "`code`", line.text)
        faults += [f"{name(source)}:{line.number}: {fault}" for fault in better(text)]
    return faults


def files_of(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


@pytest.mark.parametrize("room", ROOMS)
def test_docstrings_and_comments_of_a_room_hold_to_the_same_rules(room: str) -> None:
    faults = []
    for source in files_of(ROOT / "topics" / room):
        lines = source.read_text().split("\n")
        found = list(docstrings(tree(source)))
        faults += faults_of(source, found)
        for line in (*found, *comments(source)):
            if "# noqa" in lines[line.number - 1] or "# type:" in lines[line.number - 1]:
                continue  # it has to stand on the line of its code
            for number in range(line.number, line.number + line.text.count("\n") + 1):
                if len(lines[number - 1]) > COLUMNS:
                    faults.append(f"{name(source)}:{number}: wider than {COLUMNS}")
    assert not faults, "\n" + "\n".join(faults)


BESIDE = sorted(
    name(path)
    for glob in ("perf", "scripts", "examples", "tests/*", "build_ffi.py", "setup.py")
    for path in ROOT.glob(glob)
    if path.suffix == ".py" or any(path.rglob("*.py"))
)
"""Folders and files beside `topics/` whose docstrings and comments are checked. Rule ids may come first."""


@pytest.mark.parametrize("folder", BESIDE)
def test_docstrings_and_comments_beside_the_rooms_hold_to_the_same_rules(folder: str) -> None:
    faults = []
    for source in files_of(ROOT / folder):
        faults += faults_of(source, list(docstrings(ast.parse(source.read_text()))))
        for number, line in enumerate(source.read_text().split("\n"), 1):
            if re.match(r"\s*# (?!---|noqa|type:|fmt:)", line) and len(line) > COLUMNS:
                faults.append(f"{name(source)}:{number}: wider than {COLUMNS}")
    assert not faults, "\n" + "\n".join(faults)


ACTORS = re.compile(r"(?:who(?:m)?ever|nobody|some(?:body|one)|any(?:body|one)|every(?:body|one))(?:_|\\b)")


def test_the_name_of_a_test_names_its_actors() -> None:
    named = {
        (name(source), test)
        for source in sorted((ROOT / "tests").rglob("*.py"))
        for test in re.findall(r"def (test_\w+)", source.read_text())
    }
    assert len(named) > 2000
    assert not {(path, test) for path, test in named if ACTORS.search(test)}


@pytest.mark.parametrize("room", ROOMS)
def test_messages_of_a_room_use_the_words_of_the_field(room: str) -> None:
    """Texts for people: messages of errors, asserts and the log."""
    faults = []
    for source in files_of(ROOT / "topics" / room):
        prose_at = {line.number for line in docstrings(tree(source))}
        constants = [node for node in nodes(source) if isinstance(node, ast.Constant) and node.lineno not in prose_at]
        for node in constants:
            if isinstance(node.value, str) and " " in node.value:
                faults += [f"{name(source)}:{node.lineno}: {fault}" for fault in better(node.value)]
    assert not faults, "\n" + "\n".join(faults)


def comments_of_c(source: Path) -> Iterator[Line]:
    """Yield each comment as one line, numbered by its first."""
    text = source.read_text()
    for match in re.finditer(r"/\*.*?\*/", text, re.DOTALL):
        words = re.sub(r"\n\s*\*?\s*", " ", match[0]).strip("/* -")
        yield Line(text.count("\n", 0, match.start()) + 1, words)


@pytest.mark.parametrize("source", C_FILES, ids=name)
def test_comments_of_c_files_hold_to_the_same_rules(source: Path) -> None:
    lines, faults = source.read_text().split("\n"), []
    for number, text in comments_of_c(source):
        if match := DOCSTRING_BEGINNINGS.match(text):
            faults.append(f"{name(source)}:{number}: begins with {match[0]!r}: {text[:60]!r}")
        faults += [f"{name(source)}:{number}: {fault}" for fault in better(re.sub(r"`[^`]*`", "`code`", text))]
    for number, line in enumerate(lines, 1):
        if re.match(r"\s*(?:/\*(?! -)| \*)", line) and not line.endswith("\\") and len(line) > COLUMNS:
            faults.append(f"{name(source)}:{number}: wider than {COLUMNS}")
    assert not faults, "\n" + "\n".join(faults)


def test_code_is_compared_without_its_prose() -> None:
    bare = "class A:\n    x = 1\n    def f(self): pass\n"
    commented = '"""A."""\nclass A:\n    """A."""\n    x = 1  # so\n    """X."""\n    def f(self):\n        """F."""\n'
    assert code_of(bare) == code_of(commented)
    assert code_of(bare) != code_of(bare.replace("1", "2"))


def test_the_changelog_is_one_that_a_user_reads() -> None:
    """Grouped by what a user can do, in bullets that have a subject: 75 at most for one release."""
    page = ROOT / "CHANGELOG.md"
    bullets = [line.text for line in paragraphs(page) if line.text.startswith("- ")]
    assert len(bullets) <= 75, f"{len(bullets)}: merge those about one thing"
    assert not [text for text in bullets if re.match(r"- (?:It|They|This|These|That|He|She)\b", text)]
