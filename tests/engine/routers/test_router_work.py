"""The work of a router: the table of its transitions, and routers that take all of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.engine.harness import Answer, Harness, records
from topics.common.values.configs import EXACTLY_ONCE, RouterConfig
from topics.engine.state.router import RouterLife, RouterOf
from topics.engine.state.router_work import STEPPING, WORK, RouterWork
from topics.engine.state.topic import Router
from topics.engine.values.predicate import Predicate

PAGE = Path(__file__).resolve().parents[3] / "docs/internals/routers.md"
DISK, MEMORY = {"durability": "disk"}, {"durability": "memory"}
FULL = {"cap_records": 1, "discard": "reject"}
OTHER, ANOTHER = Predicate(False, b"other"), Predicate(False, b"another")
Changes = set[tuple[RouterWork, RouterWork]]


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch) -> Changes:
    """Which work has followed which."""
    seen: Changes = set()
    enter = RouterOf.enter

    def note(router: Router, work: RouterWork) -> None:
        seen.add((router.work, work))
        enter(router, work)

    monkeypatch.setattr(RouterOf, "enter", note)
    return seen


def routed(source: dict[str, Any] | None = None, dest: dict[str, Any] | None = None, **router: Any) -> Harness:
    """A router between two topics of these configurations."""
    h = Harness()
    h.put("source", **(source or {}))
    h.put("dest", **(dest or {}))
    put_router(h, **router)
    forward(h)
    return h


def put_router(h: Harness, **router: Any) -> Answer:
    answer = Answer()
    h.engine.put_router("router", RouterConfig("source", "dest", **router), lambda _name: True, answer)
    h.settle()
    return answer


def router_of(h: Harness) -> Router:
    return h.engine._core.routers.by_name["router"]


def work_of(h: Harness) -> RouterWork:
    return router_of(h).work


def forward(h: Harness) -> None:
    """Enough time for every pace of a router, and for a try of one that is held."""
    for _ in range(4):
        h.advance_ms(h.config.router_retry_ms)
        h.settle()


def publish(h: Harness, value: str = "a") -> None:
    """A record that the engine has not announced to the routers yet."""
    h.start_append(records(value), "source")
    h.store.log.commit()


def start_update(h: Harness, **router: Any) -> Answer:
    """A change of the router's settings, in flight."""
    answer = Answer()
    h.engine.put_router("router", RouterConfig("source", "dest", **router), lambda _name: True, answer)
    return answer


def in_time() -> None:
    """Idle, lagging, and a step when the timer fires."""
    h = routed(DISK)
    publish(h)
    assert work_of(h) is RouterWork.IDLE
    h.engine.flush()
    assert work_of(h) is RouterWork.LAGGING
    h.advance_ms(h.config.router_retry_ms)
    assert work_of(h) is RouterWork.COMMITTING
    h.store.log.commit()
    assert work_of(h) is RouterWork.IDLE
    assert h.seqs(name="dest") == [1]


def carried_by_a_write() -> None:
    h = routed(DISK, DISK)
    for _ in range(2):
        publish(h)
        forward(h)
    h.start_append(records("direct"), "dest")
    h.settle()
    h.start_diff(h.state("dest").head_seq, "dest", wait_ms=20_000)
    h.start_append(records("b"), "source")
    h.engine.flush()
    assert work_of(h) is RouterWork.COMMITTING
    h.settle()
    assert work_of(h) is RouterWork.IDLE
    assert h.state("dest").count == 4


def written_out() -> None:
    """A step that reads, for a reader that does not wait for the timer."""
    h = routed(MEMORY)
    h.store.reader.slow = True
    publish(h)
    h.start_diff(name="dest")
    assert work_of(h) is RouterWork.READING
    h.store.reader.release()
    assert work_of(h) is RouterWork.COMMITTING


def deleted_while_it_was_read() -> None:
    h = routed(MEMORY)
    h.store.reader.slow = True
    publish(h)
    h.start_diff(name="dest")
    h.start_delete(name="source", before_seq=2)
    h.store.log.commit()
    h.store.reader.release()
    assert work_of(h) is RouterWork.COMMITTING, "of nothing but the new position"


def changed_while_it_was_read() -> None:
    h = routed(MEMORY)
    h.store.reader.slow = True
    publish(h)
    h.start_diff(name="dest")
    start_update(h, preserve_tag=False)
    h.store.reader.release()
    assert work_of(h) is RouterWork.QUEUED
    h.store.log.commit()
    assert work_of(h) is RouterWork.READING, "planned again, by the new settings"


def changed_before_it_was_planned() -> None:
    h = routed(DISK, filter=OTHER)
    publish(h)
    start_update(h, filter=ANOTHER)
    h.start_diff(name="dest")
    assert work_of(h) is RouterWork.QUEUED


def damaged() -> None:
    h = routed(DISK)
    publish(h, "damaged")
    memory = h.store.log.file.memory
    assert memory is not None
    memory[bytes(memory).index(b"damaged")] ^= 1
    forward(h)
    assert work_of(h) is RouterWork.HELD


def passing_nothing() -> None:
    """A step of nothing but the new position, without a read."""
    h = routed(DISK, filter=OTHER)
    publish(h)
    h.start_diff(name="dest")
    assert work_of(h) is RouterWork.COMMITTING


def without_room() -> None:
    """Held, tried again, and held up for good by the end of the destination."""
    h = routed(DISK, FULL)
    h.append("there", name="dest")
    h.append("a", name="source")
    forward(h)
    assert work_of(h) is RouterWork.HELD
    h.engine.delete_topic("dest", if_empty=False, done=Answer())
    h.advance_ms(h.config.router_retry_ms)
    assert work_of(h) is RouterWork.IDLE


def without_its_destination() -> None:
    h = routed(DISK)
    publish(h)
    h.engine.flush()
    h.engine.delete_topic("dest", if_empty=False, done=Answer())
    h.advance_ms(h.config.router_retry_ms)
    assert work_of(h) is RouterWork.IDLE


def exactly_once() -> None:
    """A step that searches the destination before it reads."""
    h = routed(DISK, guarantee=EXACTLY_ONCE)
    h.append("there", name="dest")
    h.append("a", name="source")
    forward(h)
    assert h.seqs(name="dest") == [1, 2]


def exactly_once_of_nothing() -> None:
    h = routed(DISK, guarantee=EXACTLY_ONCE, filter=OTHER)
    h.append("there", name="dest")
    h.append("a", name="source")
    forward(h)
    assert router_of(h).position == 1
    h.append("there", name="dest")
    publish(h)
    start_update(h, guarantee=EXACTLY_ONCE, filter=ANOTHER)
    h.start_diff(name="dest")
    assert work_of(h) is RouterWork.QUEUED


def exactly_once_without_room() -> None:
    h = routed(DISK, FULL, guarantee=EXACTLY_ONCE)
    h.append("there", name="dest")
    h.append("a", name="source")
    forward(h)
    assert work_of(h) is RouterWork.HELD


LIVES = (
    in_time,
    carried_by_a_write,
    written_out,
    deleted_while_it_was_read,
    changed_while_it_was_read,
    changed_before_it_was_planned,
    damaged,
    passing_nothing,
    without_room,
    without_its_destination,
    exactly_once,
    exactly_once_of_nothing,
    exactly_once_without_room,
)


def test_routers_go_through_every_row_of_the_table_and_nothing_else(changes: Changes) -> None:
    for live in LIVES:
        live()
    assert changes == {(work, after) for work, afters in WORK.after.items() for after in afters}


def test_a_second_step_does_not_begin_while_one_is_in_progress() -> None:
    h = routed(MEMORY)
    h.store.reader.slow = True
    publish(h)
    h.start_diff(name="dest")
    with pytest.raises(AssertionError, match="RETAINING does not follow READING"):
        h.engine._forwarding._steps.begin(router_of(h))


def test_a_router_that_is_deleted_during_a_step_ends_it_and_rests() -> None:
    h = routed(DISK)
    publish(h)
    h.start_diff(name="dest")
    router = router_of(h)
    assert router.work is RouterWork.COMMITTING
    h.engine.delete_router("router", lambda _name: True, Answer())
    h.settle()
    assert (router.life, router.work) == (RouterLife.GONE, RouterWork.IDLE)
    assert not h.engine._forwarding._lagging


def test_the_page_has_the_table() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([a-z`, ]+) \|", PAGE.read_text(), re.M)
    stated = {work: set(re.findall(r"\w+", afters)) for work, afters in rows}
    assert stated == {work.name.lower(): {after.name.lower() for after in WORK.after[work]} for work in RouterWork}


def test_every_step_ends_in_lagging() -> None:
    assert all(RouterWork.LAGGING in WORK.after[work] for work in STEPPING)
