"""A snapshot is made in steps: others have their turn between two of them, and nothing of what they do is lost."""

from __future__ import annotations

from tests.engine.harness import Harness, records
from topics.engine.values.results import TopicState


def states(h: Harness) -> list[TopicState]:
    return h.list(page_size=1000).rows


def test_topics_are_told_of_some_at_a_time_and_what_happens_meanwhile_is_in_the_log() -> None:
    h = Harness()
    for number in range(10):
        h.put(f"t{number}", cap_records=3 if number % 2 else 0)
        h.append(1, 2, name=f"t{number}")
    h.checkpoint()  # the rows are in a segment, and the log is cut
    steps = h.engine.catalog.prepare_snapshot(3)
    next(steps)
    h.append(3, 4, name="t0")  # told of already
    h.append(3, 4, name="t9")  # not yet
    h.append(3, 4, name="t1")  # its cap takes one
    h.delete_topic("t2")
    h.delete_topic("t8")
    h.put("t2", durability="fsync")
    h.put("new")
    assert sum(1 for _ in steps) == 3
    h.append(5, name="t3")
    h.delete(2, name="t0")
    before = states(h)
    h.snapshot = b"".join(h.engine.catalog.snapshot())
    h.restart()
    assert [(each.name, each.head_seq, each.earliest_seq, each.count, each.incarnation) for each in states(h)] == [
        (each.name, each.head_seq, each.earliest_seq, each.count, each.incarnation) for each in before
    ]


def test_idempotency_keys_are_told_of_a_thousand_at_a_time() -> None:
    """R-IDEM-3: those stored meanwhile are in the log."""
    h = Harness()
    h.put()
    for number in range(2100):
        h.start_append(records(number), key=b"k%d" % number)
    h.settle()
    h.checkpoint()
    steps = h.engine.catalog.prepare_snapshot(64)
    next(steps)
    next(steps)
    h.append(1, key=b"late")
    assert sum(1 for _ in steps) == 2
    h.snapshot = b"".join(h.engine.catalog.snapshot())
    h.restart()
    for key in (b"k0", b"k999", b"k1000", b"k2099", b"late"):
        assert h.append(9, key=key).deduped
    assert not h.append(9, key=b"other").deduped
