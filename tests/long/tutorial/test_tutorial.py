"""The one who follows the tutorial sees what is printed, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.long.tutorial import __main__ as follower
from tests.long.tutorial.page_steps import Await, Press, Save, See, Type, steps_of

PAGE = """# A page

In terminal 2:

    echo one
    cat note.txt

> one
> two

In terminal 1:

    echo "three"

> three
"""
NOTE = "Save this as `note.txt`:\n\n```text\ntwo\n```\n\n"


def test_the_tutorial_has_steps_of_every_kind() -> None:
    steps = steps_of((Path(__file__).resolve().parents[3] / "docs/tutorial.md").read_text())
    assert {type(step) for step in steps} == {Type, Press, Save, See, Await}
    assert steps[0] == Type(1, ("make serve",), stays=True)


def test_a_page_is_followed_in_its_terminals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "_STEP_S", 20)
    assert steps_of(NOTE) == [Save("note.txt", "two\n")]
    follower.follow(steps_of(NOTE + PAGE), str(tmp_path))


def test_what_is_not_printed_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "_STEP_S", 1)
    page = "In terminal 1:\n\n    echo one\n\n> two\n"
    with pytest.raises(TimeoutError, match="was not printed"):
        follower.follow(steps_of(page), str(tmp_path))
