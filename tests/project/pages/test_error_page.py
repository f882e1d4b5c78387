"""docs/errors.md lists every code of the wire and every exception class, and no other."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import topics
from topics.http.wire.error_answers import STATUS

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
OF_STREAMS = {"invalid_json", "server_shutting_down"}
"""Codes that only WebSockets and server-sent events have."""


def section(title: str) -> str:
    """The text below a heading, up to the next one."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", PAGE, re.M | re.S)
    assert found is not None, title
    return found[1]


def first_cells(text: str) -> list[str]:
    return re.findall(r"^\| (?:— )?`([^`|]+)` \|", text, re.M)


def test_every_code_is_in_the_table_with_its_status() -> None:
    assert dict(re.findall(r"^\| `(\w+)` \| (\d+) \|", section("Codes"), re.M)) == {
        code: str(status) for code, status in STATUS.items()
    }


def test_the_codes_of_streams_are_those_that_the_code_sends() -> None:
    assert set(first_cells(section("Only on WebSockets"))) == OF_STREAMS
    rooms = [*(ROOT / "topics" / "ws").rglob("*.py"), *(ROOT / "topics" / "http" / "streams").rglob("*.py")]
    sent = "\n".join(path.read_text(encoding="utf-8") for path in (*rooms, ROOT / "topics/server/websocket.py"))
    assert {code for code in OF_STREAMS if code not in sent} == set()


def test_every_limit_that_refuses_is_in_the_table() -> None:
    """3.2: the values of `detail.limit` of a 429."""
    contract = (ROOT / "docs" / "contract.md").read_text(encoding="utf-8")
    row = re.search(r"^\| `throttled` \| 429 \| ([^|]*) \|", contract, re.M)
    assert row is not None
    assert set(first_cells(section("throttled"))) - {"detail.limit"} == set(re.findall(r"`(\w+)`", row[1]))


def test_every_reason_of_a_storage_error_is_in_the_table() -> None:
    reasons = {error.detail["reason"] for error in vars(topics.errors).values() if getattr(error, "detail", None)}
    assert reasons
    assert set(re.findall(r'^\| `\{"reason": "(\w+)"\}`', section("internal"), re.M)) == reasons


def of_module(name: str) -> set[str]:
    return {
        found.__name__
        for found in vars(importlib.import_module(name)).values()
        if isinstance(found, type) and issubclass(found, BaseException) and found.__module__ == name
    }


def test_every_class_of_the_library_is_in_the_table() -> None:
    exported = {name for name in topics.__all__ if name.endswith("Error")}
    listed = first_cells(section("Classes in Python"))
    assert set(listed) == of_module("topics.errors") | exported
    assert of_module("topics.errors") <= set(topics.__all__), "the page names them as topics.X"
    assert len(listed) == len(set(listed))


def test_every_class_of_the_other_rooms_is_in_their_tables() -> None:
    """Each room with a module `errors` has a table."""
    rooms = {"files": "Reading the files of a data directory", "spark": "Spark", "pipelines": "Pipelines"}
    assert {path.parent.name for path in (ROOT / "topics").rglob("errors.py")} - {"topics"} == set(rooms)
    for room, title in rooms.items():
        assert set(first_cells(section(title))) == of_module(f"topics.{room}.errors"), room


def test_a_class_that_depends_on_another_is_listed_below_it() -> None:
    """`—` says so."""
    rows = re.findall(r"^\| (— )?`(\w+Error)` \|", section("Classes in Python"), re.M)
    above = ""
    for is_special, name in rows:
        error = getattr(topics, name, None) or getattr(topics.errors, name)
        if is_special:
            assert above in {base.__name__ for base in error.__mro__[1:]}, name
        else:
            above = name
