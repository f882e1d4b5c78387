"""Documents that must agree with the code."""

import os
import re
import subprocess
import sys
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

from topics.config import Config
from topics.server.cores.supervisor import PAUSE_MOST_NS, PAUSE_NS, STEADY_NS

ROOT = Path(__file__).resolve().parents[2]
CODE = (".py", ".pyi", ".c", ".h")


def test_every_setting_is_documented_and_every_documented_setting_exists() -> None:
    documented = set(re.findall(r"`TOPICS_([A-Z0-9_]+)`", (ROOT / "docs" / "settings.md").read_text()))
    assert documented == {field.name.upper() for field in fields(Config)} | {"CONFIG"}


def test_pages_install_an_extra_from_a_checkout() -> None:
    """The package is in no index: its name does only where it is installed already, as in error messages."""
    texts = {path.name: path.read_text() for path in (ROOT / "docs").rglob("*.md")}
    named = {(name, found) for name, text in texts.items() for found in re.findall(r"pip install '([^'\[]*)\[", text)}
    assert {found for _name, found in named} == {"/path/to/checkout"}
    assert ("backup.md", "/path/to/checkout") in named


def test_the_documented_default_of_a_setting_is_its_default() -> None:
    rows = re.findall(r"^\| `TOPICS_([A-Z0-9_]+)` \| ([^|]*)\|", (ROOT / "docs" / "settings.md").read_text(), re.M)
    assert rows
    for name, text in rows:
        default = getattr(Config(), name.lower())
        if isinstance(default, bool):
            default = "on" if default else "off"
        assert text.strip() == ("" if default == () else str(default)), name


def headings(page: Path) -> set[str]:
    """Return headings as the anchors that are made of them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_link_in_the_documents_leads_somewhere() -> None:
    for page in [page for glob in ("*.md", "docs/**/*.md", "perf/*.md", "tests/*.md") for page in ROOT.glob(glob)]:
        for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text()):
            goal = page.parent / target if target else page
            assert goal.exists(), f"{page.name} links to {target}"
            assert not anchor or anchor in headings(goal), f"{page.name} links to {target}#{anchor}"


def test_the_index_leads_to_every_page() -> None:
    """Pages of internals have an index of their own, and so have those of cores."""
    indexes = {"docs/index.md": ("*.md", "guides/*.md"), "docs/internals/README.md": ("*.md",)}
    for index, pages in {**indexes, "docs/internals/cores.md": ("cores/*.md",)}.items():
        folder = (ROOT / index).parent
        linked = {folder / target for target in re.findall(r"\]\(([^)#:]*\.md)", (ROOT / index).read_text())}
        assert {page for glob in pages for page in folder.glob(glob)} - linked <= {ROOT / index}, index


@pytest.mark.parametrize(("times", "command"), [("0.25", "make test"), ("1", "make many")])
def test_the_pages_say_how_many_seeds_of_whole_servers_a_command_runs(times: str, command: str) -> None:
    show = "from tests.sim.whole.scenarios.test_whole import CHUNK, SEEDS; print(len(SEEDS[::CHUNK]) * CHUNK)"
    env = {**os.environ, "TOPICS_TEST_TIMES": times}
    done = subprocess.run([sys.executable, "-c", show], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    seeds = int(done.stdout)
    reliability = " ".join((ROOT / "docs/reliability.md").read_text().split())
    simulation = " ".join((ROOT / "docs/internals/simulation.md").read_text().split())
    if command == "make test":
        assert f"`make test` runs {seeds} of each" in reliability
        assert f"`make test` adds the {2 * seeds} that it always runs" in reliability
        assert f"{seeds} whole and {seeds} short seeds" in simulation
    else:
        assert f"`make many` {seeds}." in reliability
        assert f"`make many` runs {seeds}, {seeds} and " in simulation


def test_the_pages_say_how_long_the_supervisor_pauses_before_a_core_starts_again() -> None:
    least, most, steady = (f"{ns / 1e9:g} s" for ns in (PAUSE_NS, PAUSE_MOST_NS, STEADY_NS))
    internals = (ROOT / "docs/internals/cores/core_processes.md").read_text()
    row = f"after {least} (`PAUSE_NS`), twice as long each time up to {most} (`PAUSE_MOST_NS`); {steady} of being ready"
    assert row in internals
    operations = " ".join((ROOT / "docs/operations.md").read_text().split())
    again = f"up to {most}, and is {least} again once the core was ready for {steady}."
    assert f"it is started again in {least}`. The pause doubles with each end {again}" in operations


def test_an_answer_that_curl_prints_ends_its_line() -> None:
    """The prompt comes after it: streams, and what ends with a line, aside."""
    for page in [page for glob in ("*.md", "docs/**/*.md") for page in ROOT.glob(glob)]:
        for command in re.findall(r"^ *(curl .*)$", page.read_text(), re.M):
            ends = "w '\\n'" in command or re.search(r" -s?N | -v |/v0/metrics", command)
            assert ends, f"{page.name}: {command}"


def test_every_file_that_the_code_or_a_page_names_is_there() -> None:
    """In comments, docstrings and pages: paths below one of the folders of this repository."""
    named = re.compile(
        r"(?<![\w/.*{}<>-])((?:topics|tests|perf|docs|examples|scripts)/[\w/.-]+\.(?:py|c|h|md|txt|pyi))\b"
    )
    sources = [
        page
        for folder in ("topics", "tests", "perf", "docs", "examples", "scripts")
        for page in (ROOT / folder).rglob("*")
    ]
    for page in [*sources, *ROOT.glob("*.md")]:
        if page.suffix in (".py", ".c", ".h", ".md", ".sh"):
            for path in named.findall(page.read_text()):
                assert (ROOT / path).exists(), f"{page.relative_to(ROOT)} names {path}"


def test_every_heading_that_the_code_names_is_there() -> None:
    """References such as `docs/internals/loop.md, "A pass"`."""
    for folder in ("topics", "tests", "perf", "examples"):
        for source in (ROOT / folder).rglob("*.py"):
            for page, title in re.findall(r"(docs/[\w/]+\.md), \"([^\"]+)\"", source.read_text()):
                assert f" {title}\n" in (ROOT / page).read_text(), f"{source.relative_to(ROOT)} names {page}, {title}"


NAME = re.compile(r"`([A-Za-z_][\w.]*)(?:\([^`]*\))?`")


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/internals/**/*.md")), ids=lambda page: page.name)
def test_every_name_of_code_in_a_page_of_internals_is_in_the_code(page: Path) -> None:
    """Names with an underscore, a dot or capitals within; settings have a test of their own."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    names = {name for name in NAME.findall(text) if re.search(r"\w[_.]\w|[a-z][A-Z]", name)}
    names = {name for name in names if not re.search(r"^TOPICS_|\.(?:py|pyi|c|h|json|md|idx)$", name)}
    assert not {name for name in names if not set(name.split(".")) <= words_of_code()}


@cache
def words_of_code() -> frozenset[str]:
    files = [path for tree in ("topics", "tests", "perf") for path in (ROOT / tree).rglob("*") if path.suffix in CODE]
    return frozenset(word for path in files for word in re.findall(r"\w+", path.read_text()))


def test_the_architecture_is_read_in_ten_minutes() -> None:
    """Two or three pages: details belong to docs/internals/."""
    page = (ROOT / "ARCHITECTURE.md").read_text()
    assert len(page.split()) < 2500
    assert page.count("\n") < 190


def test_the_names_that_the_map_of_changes_gives_are_in_their_files() -> None:
    """A row says in which file to make a change, and often in which function of it."""
    rows = re.findall(r"^\|.*\|$", (ROOT / "docs/internals/rooms.md").read_text(), re.M)
    path = r"`((?:\w+/)*\w+\.(?:py|c|h))`"
    named = [(file, name) for row in rows for name, file in re.findall(rf"`([\w.]+)` in {path}", row)]
    for row in rows:
        for file, names in re.findall(rf"{path} \(([^)]*)\)", row):
            named += [(file, name) for name in re.findall(r"`(\w+)`", names)]
    assert len(named) > 20, "the names are written in another way"
    missing = [
        (file, name)
        for file, name in named
        if not re.search(
            rf"\b{name.rpartition('.')[2]}\b", (ROOT / "topics" / file.removeprefix("topics/")).read_text()
        )
    ]
    assert not missing


def test_the_architecture_has_a_picture_of_the_rooms_and_one_of_a_write() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    drawn = re.findall(r"(?:^    .*\n|^\n(?=    ))+", page, re.M)
    assert any("engine/" in picture and "kernel" in picture for picture in drawn), "a picture of the rooms"
    assert any("commit" in picture and "answer" in picture for picture in drawn), "a picture of a write"


def test_the_pages_are_ordered_as_people_need_them_and_the_main_ones_keep_their_paths() -> None:
    sections = re.findall(r"^## (.*)$", (ROOT / "docs/index.md").read_text(), re.M)
    assert sections == ["Guides", "Reference", "Operations", "Internals"]
    fixed = ("contract", "reliability", "operations", "settings", "security", "get-started", "concepts")
    inside = ("write", "read", "checkpoint", "recovery", "routers", "lane")
    for page in (*(f"{name}.md" for name in fixed), *(f"internals/{name}.md" for name in inside)):
        assert (ROOT / "docs" / page).exists(), page


def test_the_first_screen_of_the_measurements_is_a_table() -> None:
    screen = (ROOT / "perf/README.md").read_text().split("\n")[:24]
    assert sum(line.startswith("|") for line in screen) >= 12
