"""Texts that HTTP, its lane and WebSockets share stand once; docs/internals/rooms.md says where."""

from __future__ import annotations

import re

import pytest

from tests.project.structure.trees import TOPICS, assigned, called, modules, name_of, places, read, text


@pytest.mark.parametrize(
    ("member", "place"),
    [
        *((member, "write_answer.py") for member in ("deduped", "wal_append_ms", "throttle_wait_ms")),
        *((member, "read_answer.py") for member in ("next_from_seq", "caught_up", "lag", "missed_estimate")),
    ],
)
def test_the_texts_of_an_answer_stand_in_one_place(member: str, place: str) -> None:
    """The scanner gets them when it is made. Other files that have such members describe or parse them."""
    shown = re.compile(rf'\\?"{member}\\?":')
    files = (*TOPICS.rglob("*.py"), *TOPICS.rglob("*.c"), *TOPICS.rglob("*.h"))
    found = {str(path.relative_to(TOPICS)) for path in files if shown.search(text(path))}
    assert found == {f"engine/values/{place}"}


def test_the_times_of_a_write_are_worked_out_in_one_place() -> None:
    assert places(".", called("_throttle_wait")) == {"engine/values/write_answer.py"}


def test_requests_in_flight_are_counted_in_one_place() -> None:
    """On both protocols and on the lane: an answer that were counted twice would let a key have more than its cap."""
    counted = places("http", assigned("in_flight")) | places("server", assigned("in_flight"))
    assert counted == {
        "http/access/principal.py",  # where a key's number is
        "http/plan/in_flight.py",
        "http/plan/service.py",  # where the object is made
    }
    assert places(".", read("in_flight_max")) == {"http/access/principal.py", "http/plan/in_flight.py"}


def test_whether_a_head_has_nothing_that_refuses_its_request_is_asked_in_one_place() -> None:
    """A request that takes the short way, on the general path or to the lane, is accepted by what its plan
    states; gatekeeping orders the refusals."""
    judged = places("http", read("unauthorized", "forbidden", "foreign", "missing"))
    assert judged == {"http/plan/gatekeeping.py", "http/plan/plan.py"}


def test_what_a_misspelt_name_probably_means_is_said_by_one_module() -> None:
    found = [name_of(source) for source in modules() if "get_close_matches" in source.read_text()]
    assert found == ["common/values/near_names.py"], "`suggestion` and `bracketed` have the words, and a bound on names"
    says_so = [name_of(source) for source in modules() if "did you mean {" in source.read_text()]
    assert says_so == ["common/values/near_names.py", "spark/options.py"], (
        "Spark's options have names of another spelling"
    )
