"""Pages of several cores merged to one: compared with the page of one core that has all names."""

from __future__ import annotations

import json
import random

import pytest

from tests.amount import seeds
from topics.http.spanning.portion_answers import PortionAnswer
from topics.http.spanning.spanning_lists import Merged, _topics_of, merged_page
from topics.http.wire.cursor import encode_cursor


def answer_of(core: int, names: list[str], page_size: int, gone: set[str]) -> PortionAnswer:
    """The page of a core; topics in `gone` were deleted while it was made."""
    shown = names[:page_size]
    body: dict[str, object] = {"topics": [{"topic": name, "count": core} for name in shown if name not in gone]}
    if len(names) > page_size:
        body["next_cursor"] = encode_cursor(shown[-1])
    return PortionAnswer(core, 200, json.dumps(body).encode(), b"application/json", b"")


def merged(answers: list[PortionAnswer], page_size: int) -> tuple[Merged, int]:
    """The page, and in how many steps it was merged."""
    steps, work = 0, merged_page(answers, _topics_of, page_size)
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value, steps
        steps += 1


@pytest.mark.parametrize("seed", seeds(100))
def test_merged_pages_are_those_of_one_core(seed: int) -> None:
    """R-CORE-1."""
    rng = random.Random(seed)
    cores, page_size = rng.randint(1, 5), rng.randint(1, 8)
    names = sorted({f"{rng.choice('abé𐀀')}{rng.randint(0, 30)}" for _ in range(rng.randint(0, 40))})
    owners = {name: rng.randrange(cores) for name in names}
    gone = {name for name in names if not rng.randrange(8)}
    after, found, pages = "", [], 0
    while True:
        parts = [[name for name in names if owners[name] == core and name > after] for core in range(cores)]
        answers = [answer_of(core, part, page_size, gone) for core, part in enumerate(parts)]
        page, steps = merged(answers, page_size)
        assert steps == cores
        assert len(page.rows) <= page_size
        assert all(json.loads(bytes(row.text)) == {"topic": row.name, "count": row.core} for row in page.rows)
        found += [row.name for row in page.rows]
        pages += 1
        if page.next_after is None:
            break
        assert page.next_after > after, "another page, not the same"
        after = page.next_after
    assert found == [name for name in names if name not in gone]
    if not gone:
        assert pages == max(1, -(-len(names) // page_size)), "all pages but the last are full"
