"""The cases of a commit that `topics doctor` prints are those of the choice itself."""

from __future__ import annotations

import pytest

from tests.store.commits.test_commit_choice import QUICK, SMALL, Facts
from topics.cli.doctor import commit_cases
from topics.store.commits.commit_choice import BARE_DIRECT_BYTES_MIN, Choice, choose
from topics.store.commits.primitive import Primitive

CASES = [
    ("no writer waits for a sync", QUICK, SMALL, False, True, Primitive.BARE, "a bare write"),
    ("a lone commit", QUICK, SMALL, True, True, Primitive.DSYNC, "dsync:"),
    ("a group", Facts(quick=False), SMALL, True, False, Primitive.LINK, "dsync or link"),
    ("unsynced bytes precede it", Facts(unsynced=True), SMALL, True, True, Primitive.LINK, "link:"),
    ("64 KiB and more", Facts(quick=False), BARE_DIRECT_BYTES_MIN, True, False, Primitive.DIRECT, "direct:"),
]


@pytest.mark.parametrize(("case", "facts", "size", "fsync", "lone", "primitive", "stated"), CASES)
def test_each_case_names_the_primitive_that_is_chosen(  # noqa: PLR0917
    case: str, facts: Facts, size: int, fsync: bool, lone: bool, primitive: Primitive, stated: str
) -> None:
    choice = choose(facts, size, fsync=fsync, lone=lone)
    assert isinstance(choice, Choice)
    assert choice.primitive is primitive
    (line,) = [line for line in commit_cases("auto", 4096) if line.startswith(f"  {case}  ")]
    assert line.removeprefix(f"  {case}").strip().startswith(stated)


def test_all_cases_are_printed() -> None:
    assert len(commit_cases("auto", 4096)) == 1 + len(CASES)
