"""Readers that stay: what is delivered when, to whom, and how often it is rendered."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from tests.engine.harness import Answer, Harness, records
from topics.engine.delivery.frames import Burst, CaughtUpFrame, DeletedFrame, RecordsFrame, TombstoneFrame
from topics.engine.delivery.subscription import Subscription
from topics.engine.values.node_set import node_set
from topics.engine.values.results import DiffQuery
from topics.engine.values.topic_config import make_config
from topics.errors import TopicsError


class Reader:
    """A sink that writes down what it gets, and has enough when the test says so."""

    def __init__(self, h: Harness, *, nodes: tuple[bytes, ...] = (), **options: Any) -> None:
        self.feed = h.engine.open_feed(self)
        self.options = {**options, "nodes": node_set(nodes)}
        self.bursts: list[Burst] = []
        self.told: list[Any] = []
        self.errors: list[TopicsError] = []
        self.enough = False
        self.raises = False

    def follow(self, *names: str, from_seq: int = 0) -> Reader:
        for name in names or ("t",):
            self.feed.subscribe(name, DiffQuery(**self.options), from_seq)
        self.feed.resume()
        return self

    audience = shared_connection = None

    def deliver(self, subscription: Subscription, burst: Burst) -> bool:
        if self.raises:
            raise ValueError("a bug")
        self.bursts.append(burst)
        self.told += [_short(frame) for frame in burst.frames]
        return not self.enough

    def fail(self, subscription: Subscription, error: TopicsError) -> None:
        self.errors.append(error)

    def take(self) -> list[Any]:
        told, self.told = self.told, []
        return told


def _short(frame: Any) -> Any:
    match frame:
        case RecordsFrame(topic, from_seq, cursor, head_seq, values):
            seqs = [record["$seq"] for record in msgspec.json.decode(b"[" + values + b"]")]
            return topic, from_seq, cursor, head_seq, seqs
        case TombstoneFrame(topic, lost, cursor):
            return topic, lost.reason, lost.gap_from, lost.gap_to, cursor
        case CaughtUpFrame(topic, _, head_seq):
            return topic, "caught up", head_seq
        case DeletedFrame(topic):
            return topic, "deleted"


@pytest.fixture
def h() -> Harness:
    harness = Harness()
    harness.put()
    return harness


def test_a_pass_is_one_frame_and_the_head_is_told_once(h: Harness) -> None:
    """R-WATCH-9."""
    h.append("a", "b")
    reader = Reader(h).follow()
    assert reader.take() == [("t", 0, 2, 2, [1, 2]), ("t", "caught up", 2)]
    h.append("c")
    assert reader.take() == [("t", 2, 3, 3, [3]), ("t", "caught up", 3)]
    h.settle()
    assert reader.take() == []


def test_an_empty_topic_is_caught_up_with_at_once(h: Harness) -> None:
    """R-WATCH-12."""
    assert Reader(h).follow().take() == [("t", "caught up", 0)]


def test_frames_hold_at_most_the_limit(h: Harness) -> None:
    h.append(*range(5))
    reader = Reader(h, limit=2).follow()
    assert reader.take() == [("t", 0, 2, 5, [1, 2]), ("t", 2, 4, 5, [3, 4]), ("t", 4, 5, 5, [5]), ("t", "caught up", 5)]
    h.append(*range(3))
    assert reader.take() == [("t", 5, 7, 8, [6, 7]), ("t", 7, 8, 8, [8]), ("t", "caught up", 8)]


def passes_of(h: Harness, count: int) -> None:
    """Passes of a loop: timers that are due, and then the reads that wait for a turn."""
    for _ in range(count):
        h.advance_ms(0)
        h.engine._core.turns.next_pass()


def test_a_large_write_to_a_reader_of_small_frames_needs_no_deep_stack(h: Harness) -> None:
    reader = Reader(h, limit=1).follow()
    h.append(*range(2000))
    passes_of(h, 100)
    assert len(reader.take()) == 1 + 2000 + 1
    late = Reader(h, limit=1).follow()
    passes_of(h, 100)
    assert len(late.take()) == 2000 + 1


def test_readers_of_small_frames_share_what_a_pass_may_read(h: Harness) -> None:
    """Otherwise each reader would read 64 frames in a pass, and a group that had caught up all of a large write."""
    frames_a_pass = h.engine._core.config.pass_read_bytes // 16_384
    together = [Reader(h, limit=1).follow() for _ in range(20)]
    h.append(*range(1000))
    late = [Reader(h, limit=1).follow() for _ in range(20)]
    counts = [len(reader.take()) for reader in (*together, *late)]
    for _ in range(800):
        passes_of(h, 1)
        more = [len(reader.take()) for reader in (*together, *late)]
        assert sum(more[20:]) + more[0] <= 2 * frames_a_pass
        counts = [count + some for count, some in zip(counts, more, strict=True)]
    assert counts == [1 + 1000 + 1] * 20 + [1000 + 1] * 20


def test_a_read_beside_many_readers_of_small_frames_has_its_turn_soon(h: Harness) -> None:
    """Otherwise it would wait until each of them has had a pass of its own."""
    h.append(*range(1000))
    readers = [Reader(h, limit=1).follow() for _ in range(64)]
    passes_of(h, 10)
    turns, begun = h.engine._core.turns, list[bool]()
    assert len(turns) > 32
    turns.take(lambda: begun.append(True))
    passes_of(h, 64 * 4 // 64 + 2)
    assert begun
    passes_of(h, 2000)
    assert [len(reader.take()) for reader in readers] == [1000 + 1] * 64


def test_a_reader_that_follows_many_topics_lets_others_be_served_between_their_first_reads(h: Harness) -> None:
    names = [f"t{number:03d}" for number in range(200)]
    for name in names:
        h.engine.put_topic(name, make_config(), Answer())
    h.settle()
    reader = Reader(h).follow(*names)
    passes = []
    while reader.told:
        passes.append(reader.take())
        passes_of(h, 1)
    assert [len(told) for told in passes] == [64, 64, 64, 8]
    assert [told for each in passes for told in each] == [(name, "caught up", 0) for name in names]
    h.append("a", name="t150")
    assert reader.take() == [("t150", 0, 1, 1, [1]), ("t150", "caught up", 1)]


def test_readers_at_one_cursor_get_one_rendering(h: Harness) -> None:
    readers = [Reader(h).follow() for _ in range(3)]
    other = Reader(h, include_meta=False).follow()
    h.append("a")
    first, *rest = (reader.bursts[-1] for reader in readers)
    assert all(burst is first for burst in rest)
    assert other.bursts[-1] is not first
    assert other.take() == readers[0].take()


def test_readers_that_begin_in_one_pass_share_what_they_read(h: Harness) -> None:
    h.append("a")
    first, second = Reader(h).follow(), Reader(h).follow()
    assert first.bursts[0] is second.bursts[0]
    h.settle()
    assert Reader(h).follow().bursts[0] is not first.bursts[0]


def test_readers_that_leave_out_their_own_share_what_is_of_others(h: Harness) -> None:
    """R-NODE-1: in a room, most get the same records, and none gets its own."""
    people = [Reader(h, nodes=(f"p{n}".encode(),)).follow() for n in range(6)]
    everything = Reader(h).follow()
    h.append("hello", node=b"p2")
    for number, reader in enumerate(people):
        assert len(reader.bursts) == (1 if number == 2 else 2)
        assert reader.bursts[-1] is everything.bursts[-1] or number == 2
    h.append("from outside")
    assert people[2].take() == [("t", "caught up", 0), ("t", 1, 2, 2, [2]), ("t", "caught up", 2)]
    assert all(reader.bursts[-1] is everything.bursts[-1] for reader in people if reader is not people[2])


def test_data_that_looks_like_a_node_is_no_node(h: Harness) -> None:
    """R-NODE-1"""
    people = [Reader(h, nodes=(name,)).follow() for name in (b"p0", b"p1", b"p2", b"p3", b'"', "é".encode())]
    h.append({"$node": "p1"}, node=b"p2")
    h.append("x", node=b'"')
    h.append("x", node="é".encode())
    told = [[frame[4] for frame in reader.take() if len(frame) == 5] for reader in people]
    assert told == [[[1], [2], [3]]] * 2 + [[[2], [3]], [[1], [2], [3]], [[1], [3]], [[1], [2]]]


@pytest.mark.parametrize(
    "value",
    ["plain", [1, {"$seq": 2, "$node": "p2"}, {"$seq": 3}], {"a,b": ',{"$seq":1,"$ts":1,"$node":"p2"'}, None],
)
def test_what_is_cut_from_a_shared_rendering_is_what_a_read_gives(h: Harness, value: Any) -> None:
    """R-NODE-1, R-NODE-2: whatever the data looks like."""
    options: dict[str, Any] = {"include_tags": True}
    people = [Reader(h, nodes=(b"p%d" % n, b"p9"), **options).follow() for n in range(6)]
    for node in (b"p2", None, b"p1", b"p2", b"p9", b"p"):
        h.start_append(records(value, {"$node": "p2"}, tag="t", meta={"k": "p2"}), node=node)
    h.settle()
    for number, reader in enumerate(people):
        frame = reader.bursts[-1].frames[0]
        assert isinstance(frame, RecordsFrame)
        assert frame.records == h.diff(nodes=(b"p%d" % number, b"p9"), **options).records
        assert frame.cursor == 12
    h.append("mine", "mine", node=b"p9")
    assert all(len(reader.bursts) == 2 for reader in people)


def test_readers_who_leave_out_their_own_may_ask_for_no_data(h: Harness) -> None:
    """R-NODE-1: of a record without a node, a tag and meta they are shown its number and its time."""
    options: dict[str, Any] = {"include_data": False}
    people = [Reader(h, nodes=(b"p%d" % n,), **options).follow() for n in range(6)]
    for node in (b"p2", None, b"p1", None):
        h.start_append(records("x"), node=node)
    h.settle()
    assert [told[4] for told in people[2].take() if len(told) == 5] == [[2, 3, 4]]
    for number, reader in enumerate(people):
        frame = reader.bursts[-1].frames[0]
        assert isinstance(frame, RecordsFrame)
        assert frame.records == h.diff(nodes=(b"p%d" % number,), **options).records


@pytest.mark.parametrize("bound", [{"limit": 2}, {"max_batch_bytes": 7}])
def test_what_a_filter_leaves_out_does_not_count_toward_a_frame_s_bounds(h: Harness, bound: dict[str, int]) -> None:
    """R-NODE-3"""
    people = [Reader(h, nodes=(b"p%d" % n,), **bound).follow() for n in range(6)]
    for node in (b"p2", b"p", b"p2", b"p", b"p"):
        h.start_append(records("x"), node=node)
    h.settle()
    assert [told[4] for told in people[2].take() if len(told) == 5] == [[2, 4], [5]]
    assert [told[4] for told in people[1].take() if len(told) == 5] == [[1, 2], [3, 4], [5]]


def test_readers_that_leave_out_thousands_hold_up_no_other(h: Harness) -> None:
    """Together they took 17 s for this, where a single one takes a few milliseconds."""
    nodes = tuple(b"%05d" % number for number in range(20_000))
    people = [Reader(h, nodes=nodes, limit=100 + at).follow() for at in range(6)]
    began = time.process_time()
    h.append("x" * 200_000, record_node="somebody")
    assert time.process_time() - began < 3
    assert all([told[4] for told in reader.take() if len(told) == 5] == [[1]] for reader in people)


def test_what_is_deleted_between_two_readers_of_a_pass_is_not_shared(h: Harness) -> None:
    h.put("m", durability="ephemeral")
    h.append("a", "b", name="m")
    reader = Reader(h).follow("m")
    assert h.start_delete(2, name="m").get().deleted == 1
    assert reader.take()[0] == ("m", 0, 2, 2, [1, 2])
    assert Reader(h).follow("m").take()[0] == ("m", 0, 2, 2, [2])


def test_who_has_enough_gets_nothing_and_goes_on_from_its_cursor(h: Harness) -> None:
    """R-SSE-6."""
    slow, quick = Reader(h).follow(), Reader(h).follow()
    slow.take()
    quick.take()
    slow.enough = True
    h.append("a")
    h.append("b")
    h.append("c")
    assert slow.take() == [("t", 0, 1, 1, [1]), ("t", "caught up", 1)]
    assert [told[4] for told in quick.take() if len(told) == 5] == [[1], [2], [3]]
    slow.enough = False
    slow.feed.resume()
    assert slow.take() == [("t", 1, 3, 3, [2, 3]), ("t", "caught up", 3)]
    h.append("d")
    assert slow.take() == quick.take() == [("t", 3, 4, 4, [4]), ("t", "caught up", 4)]
    assert slow.bursts[-1] is quick.bursts[-1]


def test_a_reader_that_has_enough_in_the_middle_of_a_drain_takes_up_there(h: Harness) -> None:
    h.append(*range(4))
    reader = Reader(h, limit=1)
    reader.enough = True
    reader.follow()
    seen = []
    for _ in range(4):
        seen += reader.take()
        reader.feed.resume()
    assert [told[4] for told in seen if len(told) == 5] == [[1], [2], [3], [4]]
    assert seen[-1] == ("t", "caught up", 4)


def test_topics_are_read_in_order_of_their_names(h: Harness) -> None:
    for name in ("c", "a", "b"):
        h.put(name)
        h.append(1, 2, name=name)
    reader = Reader(h, limit=1).follow("c", "a", "b")
    assert [told[0] for told in reader.take()] == ["a"] * 3 + ["b"] * 3 + ["c"] * 3
    h.start_append(records("x"), "c")
    h.start_append(records("x"), "a")
    h.settle()
    assert [told[0] for told in reader.take()] == ["a", "a", "c", "c"]


def test_a_loss_is_told_before_what_follows_it(h: Harness) -> None:
    """R-WATCH-10."""
    h.put("t", cap_records=3)
    h.append(*range(6))
    assert Reader(h).follow().take() == [("t", "cap", 1, 3, 3), ("t", 0, 6, 6, [4, 5, 6]), ("t", "caught up", 6)]


def test_a_cursor_above_the_head_is_told_and_begins_at_the_earliest(h: Harness) -> None:
    """R-REC-2."""
    h.append("a", "b", "c")
    h.delete(3)
    reader = Reader(h).follow(from_seq=9)
    assert reader.take() == [("t", "recreated", 1, 3, 2), ("t", 9, 3, 3, [3]), ("t", "caught up", 3)]


def test_what_is_only_skipped_is_not_told(h: Harness) -> None:
    """R-WATCH-12."""
    reader = Reader(h, nodes=(b"me",)).follow()
    reader.take()
    h.append("mine", node=b"me")
    assert reader.take() == []
    h.append("yours", node=b"you")
    assert reader.take() == [("t", 1, 2, 2, [2]), ("t", "caught up", 2)]


def test_a_long_run_of_skipped_records_lets_others_go_first(h: Harness) -> None:
    for _ in range(3):
        h.append(*range(8000), node=b"me")
    h.append("yours")
    reader = Reader(h, nodes=(b"me",)).follow()
    assert reader.take() == []
    for _ in range(8):
        h.advance_ms(1)
        h.engine.flush()
    assert [told[2] for told in reader.take()] == [24_001, 24_001]


def test_a_deleted_topic_is_told_once_and_the_others_go_on(h: Harness) -> None:
    """R-WATCH-13."""
    h.put("u")
    reader = Reader(h).follow("t", "u")
    reader.take()
    h.delete_topic()
    assert reader.take() == [("t", "deleted")]
    assert list(reader.feed.subscriptions) == ["u"]
    h.put()
    h.append("new life")
    h.append("x", name="u")
    assert reader.take() == [("u", 0, 1, 1, [1]), ("u", "caught up", 1)]


def test_a_topic_recreated_before_its_reader_looks_goes_on(h: Harness) -> None:
    """R-WATCH-13."""
    h.append(*range(5))
    reader = Reader(h)
    reader.enough = True
    reader.follow()
    reader.take()
    h.delete_topic()
    h.put()
    h.append("new", "life")
    reader.enough = False
    reader.feed.resume()
    assert reader.take() == [("t", "recreated", 1, 2, 0), ("t", 5, 2, 2, [1, 2]), ("t", "caught up", 2)]


def test_a_topic_that_is_not_there_is_deleted(h: Harness) -> None:
    assert Reader(h).follow("nowhere").take() == [("nowhere", "deleted")]


def test_after_unsubscribe_and_close_nothing_is_delivered(h: Harness) -> None:
    h.put("u")
    reader = Reader(h).follow("t", "u")
    reader.take()
    assert reader.feed.unsubscribe("t")
    assert not reader.feed.unsubscribe("t")
    h.append("x")
    assert reader.take() == []
    reader.feed.close()
    h.append("x", name="u")
    assert reader.take() == []
    assert not h.engine._core.registry.by_name["t"].waiters
    assert not h.engine._core.registry.by_name["u"].waiters
    assert not h.engine._cohorts._open


def test_subscribing_again_replaces_cursor_and_options(h: Harness) -> None:
    h.append("a", "b")
    reader = Reader(h).follow()
    reader.take()
    reader.feed.subscribe("t", DiffQuery(), 1)
    assert reader.take() == [], "an answer may be written first"
    reader.feed.resume()
    assert reader.take() == [("t", 1, 2, 2, [2]), ("t", "caught up", 2)]


def test_a_reader_that_breaks_is_dropped_and_no_other_notices(h: Harness, caplog: pytest.LogCaptureFixture) -> None:
    broken, sound = Reader(h).follow(), Reader(h).follow()
    sound.take()
    broken.raises = True
    h.append("a")
    assert sound.take() == [("t", 0, 1, 1, [1]), ("t", "caught up", 1)]
    assert len(broken.errors) == 1
    assert broken.feed.closed
    assert "a bug" in caplog.text


def test_a_pass_counts_as_reading(h: Harness) -> None:
    """R-PRI-4."""
    Reader(h).follow()
    assert h.state().last_read_ts == h.loop.clock.now_ms()
    assert h.state().effective_priority == 500


def test_what_expired_before_it_was_read_is_told_as_lost(h: Harness) -> None:
    """R-TTL-3."""
    h.put("t", ttl_ms=100)
    reader = Reader(h)
    reader.enough = True
    reader.follow()
    h.append("a")
    h.advance_ms(101)
    h.append("b")
    reader.enough = False
    reader.feed.resume()
    h.settle()
    assert reader.take()[1:] == [("t", "ttl", 1, 1, 1), ("t", 0, 2, 2, [2]), ("t", "caught up", 2)]


def test_records_that_cannot_be_read_end_the_subscription_and_are_never_wrong(h: Harness) -> None:
    h.append("a", "b")
    memory = h.store.log.file.memory
    assert memory is not None
    memory[memory.index(b'"b"') + 1] ^= 1
    reader = Reader(h).follow()
    assert reader.take() == []
    assert "checksum" in str(reader.errors[0])
    assert not reader.feed.subscriptions


def test_a_write_while_a_pass_waits_for_the_disk_is_not_missed(h: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-WATCH-14: no wake-up is lost to a read that is under way."""
    first, second = Reader(h).follow(), Reader(h).follow()
    reader = h.engine._core.reader
    fetch = reader.fetch
    waiting: list[Any] = []
    monkeypatch.setattr(reader, "fetch", lambda pieces, done: waiting.append((pieces, done)))
    h.append("a")
    h.append("b")
    assert len(waiting) == 1, "one read for both readers, and for what came meanwhile none yet"
    monkeypatch.setattr(reader, "fetch", fetch)
    first.feed.unsubscribe("t")
    third = Reader(h).follow()
    fetch(*waiting[0])
    h.settle()
    assert [told[4] for told in second.take() if len(told) == 5] == [[1], [2]]
    assert first.take() == [("t", "caught up", 0)]
    assert [told[4] for told in third.take() if len(told) == 5] == [[1, 2]]
    h.append("c")
    assert second.take()[-2:] == third.take()[-2:] == [("t", 2, 3, 3, [3]), ("t", "caught up", 3)]


@pytest.mark.parametrize("leave", ["close", "unsubscribe"])
def test_a_reader_that_leaves_tens_of_thousands_of_topics_unread_holds_up_no_other(h: Harness, leave: str) -> None:
    """Four seconds, of 40,000."""
    feed = Reader(h).feed
    names = [f"topic-{number * 7919 % 40_000:05}" for number in range(40_000)]
    for name in names:
        feed.subscribe(name, DiffQuery(), 0)
    began = time.process_time()
    if leave == "close":
        feed.close()
    else:
        assert all(map(feed.unsubscribe, names))
    assert time.process_time() - began < 1
    assert not feed.subscriptions
    feed.resume()
