"""The pages that a newcomer sees first: pictures of ARCHITECTURE.md, and the order of perf/README.md."""

from __future__ import annotations

import re
from pathlib import Path

from tests.project.structure.test_layers import BELOW
from topics.config import DURABILITIES

ROOT = Path(__file__).resolve().parents[3]
_ROOM = re.compile(r"(?<![\w/])([a-z]+)/(?:\w+)?")


def picture(title: str) -> list[str]:
    """The lines of the first indented block of a section of ARCHITECTURE.md, and of those that follow it at once."""
    section = (ROOT / "ARCHITECTURE.md").read_text().partition(f"\n## {title}\n")[2]
    found = re.search(r"(?:^    .*\n|^\n(?=    ))+", section, re.M)
    assert found, f"{title} has no picture"
    return found[0].strip().splitlines()


def test_the_picture_of_the_rooms_has_each_of_them_above_what_it_imports() -> None:
    """Beside it is fine, to the left. Every room may use common/, and errors.py and its like."""
    at = {room[1]: (row, room.start()) for row, line in enumerate(picture("Rooms")) for room in _ROOM.finditer(line)}
    assert {room for room in BELOW if room != "common"} == set(at)
    wrong = [f"{room} -> {other}" for room in at for other in BELOW[room] if at[room] > at[other]]
    assert not wrong, f"an arrow that leads up, or to the left: {wrong}"


def test_the_picture_of_a_write_goes_through_rooms_that_there_are_and_knows_the_classes() -> None:
    lines = picture("A write, and a read")
    rooms = [room[0] for line in lines for room in _ROOM.finditer(line)]
    assert not [room for room in rooms if not (ROOT / "topics" / room).is_dir()]
    order = [room.partition("/")[0] for room in rooms]
    assert order == ["http", "engine", "store", "store", "engine", "http", "loop"], "from the socket and back to it"
    assert set(re.findall(r"`(\w+)`", "\n".join(lines))) == set(DURABILITIES) - {"ephemeral"}
    assert lines[0].startswith("socket --")
    assert lines[-1].strip().startswith("socket <--")


def test_the_measurements_begin_with_a_table_and_end_with_their_history() -> None:
    page = (ROOT / "perf" / "README.md").read_text()
    lines = page.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("| "))
    rows = [line for line in lines[: page[: page.index("\n## ")].count("\n")] if line.startswith("| ")]
    assert first < 10, "the table is what one sees first"
    assert len(rows) > 10
    titles = re.findall(r"^## (.*)$", page, re.M)
    assert titles == ["How to measure", "Figures", "What is left of a single write", "History"]
    earlier = re.findall(
        r"^#+ .*\b(?:[Ee]arlier|[Bb]efore and after|[Ww]hat won)\b.*$", page.partition("\n## History")[0], re.M
    )
    assert not earlier, f"it is history: {earlier}"
