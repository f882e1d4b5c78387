"""Parts that come in pieces: invisible until the last one, then one append."""

from __future__ import annotations

import errno
import random
from itertools import pairwise
from typing import Any

import pytest

from tests.amount import seeds
from tests.engine.harness import Answer, Harness, records
from tests.engine.real_world import RealWorld
from topics.engine.producers import compared_parts, sweeper
from topics.engine.state.producer_part import Part
from topics.engine.values.results import AppendResult
from topics.errors import RequestError, StorageError
from topics.store.format.rows import RowRecord, pack_rows

_STEPS = 120


def piece(h: Harness, number: int, *values: Any, last: bool = False, **name: Any) -> AppendResult:
    answer = start(h, number, *values, last=last, **name)
    settle(h)
    result: AppendResult = answer.get()
    return result


def start(
    h: Harness, number: int, *values: Any, last: bool = False, epoch: int = 0, part: int = 0, attempt: str = "a",
    name: str = "t", tag: str | None = None,
) -> Answer:  # fmt: skip
    identity = Part(b"p", epoch, part, number, last, attempt.encode())
    return h.start_append(records(*values, tag=tag), name, identity=identity)


def settle(h: Harness) -> None:
    """Until all is decided that takes turns."""
    for _ in range(20):
        h.settle()
        h.advance_ms(0 if type(h) is Harness else 1)


def refusal(h: Harness, *given: Any, **name: Any) -> tuple[str, Any]:
    with pytest.raises(RequestError) as caught:
        piece(h, *given, **name)
    return caught.value.code, caught.value.detail


WORLDS = pytest.mark.parametrize("world", [Harness, RealWorld])


@WORLDS
@pytest.mark.parametrize("durability", ["fsync", "disk", "memory", "ephemeral"])
def test_pieces_become_one_append_with_the_last_one(world: type[Harness], durability: str) -> None:
    """R-PROD-9: nothing of them is seen before, and others write between them."""
    h = world()
    h.put(durability=durability)
    for number in range(3):
        result = piece(h, number, 2 * number, 2 * number + 1, tag=f"t{number}")
        assert result[:6] == (0, 0, 0, 2, False, False)
        assert h.state().head_seq == number
        h.append(f"other {number}")
    assert (h.engine.stats().records_live, h.engine.stats().topics) == (3, 1)
    result = piece(h, 3, 6, last=True)
    assert (result.first_seq, result.last_seq, result.count, result.deduped) == (4, 10, 7, False)
    rows = h.read(include_tags=True)
    assert [row["data"] for row in rows] == ["other 0", "other 1", "other 2", *range(7)]
    assert [row.get("$tag") for row in rows[3:]] == ["t0", "t0", "t1", "t1", "t2", "t2", None]
    assert len({row["$ts"] for row in rows[3:]}) == 1
    assert (h.engine.stats().records_live, h.engine.stats().bytes_live) == (10, 7 + 3 * 9)
    assert h.engine._core.staged.bytes == 0
    assert h.append("behind").first_seq == 11


@WORLDS
def test_a_piece_that_is_repeated_is_staged_once_and_the_last_one_appended_once(world: type[Harness]) -> None:
    """R-PROD-10, R-PROD-11."""
    h = world()
    h.put()
    for deduped in (False, True):
        assert piece(h, 0, 1, 2).deduped is deduped
        assert piece(h, 1, 3).deduped is deduped
    first = piece(h, 2, 4, last=True)
    again = piece(h, 2, 4, last=True)
    assert (first.deduped, again.deduped, again[:4]) == (False, True, first[:4])
    assert piece(h, 0, 1, 2, attempt="b").deduped is True
    assert piece(h, 1, 4, 3, attempt="b", last=True)[:6] == (*first[:4], False, True)
    assert h.append(3, 1, 2, 4, identity=Part(b"p", 0, 0)).deduped is True
    assert piece(h, 0, 1, 2, attempt="c").deduped is True
    detail = {"topic": "t", "producer": "p", "epoch": 0, "part": 0}
    assert refusal(h, 1, 4, 4, attempt="c", last=True) == ("producer_diverged", detail)
    assert h.state().head_seq == 4


@WORLDS
def test_pieces_come_in_their_order_and_of_one_attempt(world: type[Harness]) -> None:
    """R-PROD-10: one out of order is refused with the next number; piece 0 of another attempt begins again."""
    h = world()
    h.put()
    detail = {"topic": "t", "producer": "p", "epoch": 0, "part": 0}
    assert refusal(h, 1, 1) == ("producer_incomplete", {**detail, "piece": 0})
    piece(h, 0, 1)
    piece(h, 1, 2)
    assert refusal(h, 3, 1) == ("producer_incomplete", {**detail, "piece": 2})
    assert refusal(h, 2, 1, attempt="b") == ("producer_incomplete", {**detail, "piece": 0})
    assert refusal(h, 1, 3) == ("producer_diverged", detail)
    assert refusal(h, 1, 2, last=True) == ("producer_diverged", detail)
    staged = h.engine._core.staged
    held = staged.bytes
    assert piece(h, 0, 9, attempt="b").deduped is False
    assert piece(h, 0, 8, attempt="b").deduped is False
    assert staged.bytes < held
    assert refusal(h, 2, 1) == ("producer_incomplete", {**detail, "piece": 0})
    piece(h, 1, 7, attempt="b", last=True)
    assert [row["data"] for row in h.read()] == [8, 7]
    registry = h.engine._core.registry
    assert registry.staging is not None
    assert registry.staging.index.live == 0


@WORLDS
def test_pieces_on_their_way_wait_for_each_other(world: type[Harness]) -> None:
    """R-PROD-10: sent together, with a repetition among them."""
    h = world()
    h.put()
    answers = [start(h, 0, 1), start(h, 1, 2), start(h, 1, 2), start(h, 2, 3, last=True), start(h, 2, 3, last=True)]
    settle(h)
    assert [answer.get().deduped for answer in answers] == [False, False, True, False, True]
    assert [row["data"] for row in h.read()] == [1, 2, 3]


def test_a_piece_may_bring_its_topic_about() -> None:
    """R-PROD-9: and is answered when that is durable."""
    h = Harness()
    assert piece(h, 0, 1)[3:6] == (1, True, False)
    assert h.state().head_seq == 0
    assert piece(h, 1, 1, last=True).created is False


def test_a_whole_part_drops_what_was_staged_under_its_name() -> None:
    """R-PROD-10."""
    h = Harness()
    h.put()
    piece(h, 0, 1)
    h.append(1, 2, identity=Part(b"p", 0, 0))
    assert h.engine._core.staged.bytes == 0
    assert piece(h, 0, 1).deduped is True


def test_a_part_has_bounds_and_so_have_all_staged_ones_together() -> None:
    """R-PROD-12."""
    h = Harness(max_part_records=3, max_part_bytes=20, max_staged_bytes=3 * 512 + 40, max_total_bytes=1000)
    h.put()
    piece(h, 0, 1, 2)
    assert refusal(h, 1, 3, 4) == ("part_too_large", {"limit": "max_part_records", "max": 3})
    assert refusal(h, 1, "x" * 20) == ("part_too_large", {"limit": "max_part_bytes", "max": 20})
    piece(h, 1, 3)
    piece(h, 0, 1, part=1)
    assert refusal(h, 0, 1, part=2) == ("throttled", {"limit": "max_staged_bytes", "max": 3 * 512 + 40})
    piece(h, 1, 2, part=1, last=True)
    piece(h, 0, 1, part=2)
    h = Harness(max_total_bytes=10)
    h.put()
    piece(h, 0, "x" * 6)
    assert refusal(h, 1, "y") == ("throttled", {"limit": "max_total_bytes", "max": 10})


def test_a_part_has_so_many_pieces_at_most_the_last_one_included() -> None:
    """R-PROD-12: also when it was appended before and is compared."""
    h = Harness(max_part_pieces=3)
    h.put()
    for _ in range(2):
        for number in range(2):
            piece(h, number, number, attempt="b")
        piece(h, 2, 2, last=True, attempt="b")
        assert piece(h, 1, 1, attempt="b").deduped is True
    for number in range(3):
        piece(h, number, number, part=1)
    for last in (False, True):
        assert refusal(h, 3, 3, part=1, last=last) == ("part_too_large", {"limit": "max_part_pieces", "max": 3})


def test_a_piece_out_of_turn_is_told_which_one_comes_next() -> None:
    """R-PROD-10: the remedy fits it."""
    h = Harness()
    h.put()
    with pytest.raises(RequestError, match="piece 0 does; begin again from it, with another attempt"):
        piece(h, 2, 1)
    piece(h, 0, 1)
    with pytest.raises(RequestError, match="piece 1 does; send that one"):
        piece(h, 2, 1)


def test_a_last_piece_asks_for_room_for_all() -> None:
    """R-PROD-9, R-CAP-5: and what is staged stays."""
    h = Harness()
    h.put(discard="reject", cap_records=3)
    h.append("x")
    piece(h, 0, 1, 2)
    with pytest.raises(RequestError) as caught:
        piece(h, 1, 3, last=True)
    assert caught.value.code == "topic_full"
    h.delete(before_seq=2)
    assert piece(h, 1, 3, last=True).count == 3


def test_pieces_that_are_compared_are_remembered_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """R-PROD-11: beyond it the sender of the oldest part begins again."""
    monkeypatch.setattr(compared_parts, "_PIECES_MAX", 3)
    h = Harness()
    h.put()
    for part in range(2):
        h.append(0, 1, 2, identity=Part(b"p", 0, part))
    piece(h, 0, 0)
    piece(h, 1, 1)
    piece(h, 0, 0, part=1)
    assert piece(h, 2, 2, last=True).deduped is True
    piece(h, 1, 1, part=1)
    assert refusal(h, 2, 2, last=True)[0] == "producer_incomplete"
    assert piece(h, 2, 2, part=1, last=True).deduped is True


def test_many_parts_that_are_too_old_are_dropped_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeper, "_FORGOTTEN_PARTS", 2)
    h = Harness(staged_ttl_ms=5000)
    h.put()
    for part in range(5):
        piece(h, 0, 1, part=part)
    parts = h.engine._core.staged.parts
    passes = []
    h.advance_ms(6000)
    while parts:
        passes.append(len(parts))
        h.advance_ms(0)
    assert passes == [3, 1]


@WORLDS
def test_pieces_are_dropped_when_they_are_too_old(world: type[Harness]) -> None:
    """R-PROD-12: by a timer, without any request; a part that continues stays."""
    h = world(staged_ttl_ms=5000)
    h.put()
    piece(h, 0, 1)
    piece(h, 0, 1, part=1)
    h.advance_ms(4000)
    piece(h, 1, 2, part=1)
    h.advance_ms(3000)
    settle(h)
    assert [name[3] for name in h.engine._core.staged.parts] == [1]
    assert refusal(h, 1, 2)[0] == "producer_incomplete"
    h.advance_ms(6000)
    settle(h)
    staging = h.engine._core.registry.staging
    assert staging is not None
    assert (h.engine._core.staged.bytes, staging.index.live) == (0, 0)


def test_the_end_of_the_topic_is_the_end_of_its_pieces() -> None:
    """R-PROD-8: a topic created again knows none, also one that was deleted while the part was put together."""
    h = RealWorld()
    h.put()
    piece(h, 0, 1)
    last, gone = start(h, 1, 2, last=True), Answer()
    h.engine.delete_topic("t", if_empty=False, done=gone)
    settle(h)
    assert gone.get().deleted
    with pytest.raises(RequestError, match="piece 0 does"):
        last.get()
    h.put()
    assert refusal(h, 1, 2, last=True)[0] == "producer_incomplete"


@pytest.mark.parametrize("world", [Harness, RealWorld])
def test_a_deleted_topic_gives_back_what_its_pieces_held(world: type[Harness], monkeypatch: pytest.MonkeyPatch) -> None:
    """R-PROD-8, R-PROD-12: at once, though a few parts at a time; a piece on its way as well."""
    monkeypatch.setattr(sweeper, "_FORGOTTEN_PARTS", 2)
    h = world()
    h.put()
    h.put("other")
    for part in range(5):
        piece(h, 0, part, part=part)
    piece(h, 0, 1, name="other")
    gone = Answer()
    start(h, 0, 5, part=5)
    h.engine.delete_topic("t", if_empty=False, done=gone)
    settle(h)
    assert gone.get().deleted
    core = h.engine._core
    assert core.staged.bytes == 512 + 1
    assert core.registry.staging is not None
    assert core.registry.staging.index.live == 1
    assert piece(h, 1, 2, last=True, name="other").count == 2


def test_others_write_while_a_part_is_put_together() -> None:
    """Frames are copied a bounded number of bytes a pass."""
    h = RealWorld(pass_read_bytes=64)
    h.put()
    for number in range(8):
        piece(h, number, *range(4))
    last = start(h, 8, 1, last=True)
    for _ in range(4):
        h.real_loop.run_pass(0)
    assert not last.given
    assert h.append("other").first_seq == 1
    settle(h)
    assert (last.get().first_seq, last.get().count) == (2, 33)


def test_tags_of_a_part_are_taken_in_turns_those_of_the_last_piece_too() -> None:
    """A piece may bring thousands of tags that the topic does not know."""
    h = RealWorld()
    h.put()
    answers = []
    for number in range(2):
        rows = pack_rows([RowRecord(b"1", b"%d of %d" % (each, number)) for each in range(9000)])
        answers.append(h.start_append(rows, identity=Part(b"p", 0, 0, number, number == 1, b"a")))
    taken = [0]
    while not answers[1].given:
        h.real_loop.run_pass(0)
        taken.append(len(h.engine._core.registry.by_name["t"].index.tags or ()))
    assert taken[-1] == 18_000
    assert max(after - before for before, after in pairwise(taken)) <= 4096


# --- over crashes -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("power_lost", [False, True])
def test_staged_pieces_outlive_a_crash(checkpoint: bool, power_lost: bool) -> None:
    """R-PROD-13: in a kill all of them; in a power cut those that were on stable storage."""
    h = RealWorld(checkpoint_wal_bytes=1)
    h.put(durability="fsync")
    piece(h, 0, 1, 2)
    h.append("x")
    if checkpoint or power_lost:
        h.checkpoint()
    piece(h, 1, 3)
    h.restart(power_lost=power_lost)
    assert h.state().head_seq == 1
    if power_lost:
        expected = len(h.engine._core.staged.parts[h.engine._core.registry.by_name["t"].id, b"p", 0, 0].pieces)
        assert expected in (1, 2)
        if expected == 1:
            piece(h, 1, 3)
    assert piece(h, 2, 4, last=True).count == 4
    h.restart()
    assert [row["data"] for row in h.read()] == ["x", 1, 2, 3, 4]
    assert piece(h, 0, 1, 2).deduped is True
    assert h.engine._core.staged.bytes == 0


def test_seqs_of_a_part_in_pieces_are_not_given_out_again_after_a_power_cut() -> None:
    """R-DUR-6: in class `disk` they are reserved before the part is appended."""
    for seed in range(4):
        h = RealWorld(seed, sync_every_ms=60_000)
        h.put(durability="disk")
        for number in range(3):
            piece(h, number, *range(300))
        last = start(h, 3, 1, last=True)
        h.until(lambda last=last: last.given)  # type: ignore[misc]
        assert last.get().last_seq == 901
        h.restart(power_lost=True)
        assert h.state().head_seq >= 901


def test_what_a_part_evicts_stays_gone_though_a_kill_comes_with_its_answer() -> None:
    """R-DUR-8, R-CAP-1: records in memory count for the cap, and no replay sees them."""
    h = RealWorld()
    h.put(durability="disk", cap_records=4)
    h.append("a", "b")
    h.put(durability="ephemeral", cap_records=4)
    h.append("c", "d")
    h.put(durability="fsync", cap_records=4)
    piece(h, 0, 1)
    h.ring.faults.fail("write", errno.EIO, nth=2, times=1 << 30)
    last = start(h, 1, 2, last=True)
    h.until(lambda: last.given)
    assert h.engine._core.registry.by_name["t"].floors.cap == 2
    h.ring.faults.clear()
    h.restart()
    assert [row["data"] for row in h.read()] == [1, 2]


class Story:
    """Parts of up to five pieces, sent again after whatever happened, in one topic of class `fsync` or `disk`."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.world = RealWorld(
            seed,
            checkpoint_wal_bytes=1,
            pack_run_bytes=rng.choice((0, 1 << 20)),
            segment_max_events=rng.choice((3, 20)),
            hot_tail_bytes=rng.choice((0, 1 << 20)),
            producer_epochs=100,
        )
        self.world.put(durability="fsync")
        self.begun: dict[int, tuple[list[list[int]], int, str]] = {}
        """By part: values of each piece, the piece to send next, attempt."""
        self.done: dict[int, tuple[list[int], int]] = {}
        """By part: all values, and the first seq."""
        self.others: list[int] = []
        self.serial = 0

    def step(self) -> None:
        rng, world = self.rng, self.world
        choice = rng.random()
        if choice < 0.6:
            self.send()
        elif choice < 0.7:
            self.serial += 1
            self.others.append(world.append(f"other {self.serial}").first_seq)
        elif choice < 0.75 and self.done:
            self.repeat(rng.choice([*self.done]))
        elif choice < 0.85:
            world.checkpoint()
        else:
            self.end()

    def end(self) -> None:
        """A kill or a power cut, perhaps with a piece on its way, or on a disk that fails."""
        if self.rng.random() < 0.3:
            error = self.rng.choice((errno.EIO, errno.ENOSPC))
            self.world.ring.faults.fail("write", error, nth=self.rng.randint(1, 4), times=self.rng.choice((1, 1 << 30)))
            for _ in range(4):
                self.send()
            self.world.ring.faults.clear()
            if self.rng.random() < 0.3 and error == errno.ENOSPC:
                self.world.advance_ms(2000)
                return
        if self.begun and self.rng.random() < 0.6:
            part, (pieces, at, attempt) = self.rng.choice([*self.begun.items()])
            start(self.world, at, *pieces[at], last=at + 1 == len(pieces), part=part, attempt=attempt)
            for _ in range(self.rng.randrange(12)):
                self.world.real_loop.run_pass(0)
        self.world.restart(power_lost=self.rng.random() < 0.5)

    def send(self) -> None:
        rng = self.rng
        if not self.begun or (rng.random() < 0.3 and len(self.begun) < 4):
            self.serial += 1
            values = [[rng.randrange(1000) for _ in range(rng.randint(1, 4))] for _ in range(rng.randint(2, 5))]
            self.begun[self.serial] = values, 0, "a"
        part, (pieces, at, attempt) = rng.choice([*self.begun.items()])
        is_last = at + 1 == len(pieces)
        answer = start(self.world, at, *pieces[at], last=is_last, part=part, attempt=attempt)
        result = self.wait(answer)
        if isinstance(result, StorageError):
            pass  # whether it is there is found out when it is sent again
        elif isinstance(result, RequestError):
            assert result.code == "producer_incomplete"
            assert result.detail is not None
            expected = result.detail["piece"]
            assert expected != at
            self.begun[part] = pieces, expected, attempt
        elif is_last:
            values = [value for piece in pieces for value in piece]
            assert result.count == len(values)
            self.done[part] = values, result.first_seq
            del self.begun[part]
        else:
            assert result.first_seq == 0
            self.begun[part] = pieces, at + 1, attempt

    def repeat(self, part: int) -> None:
        """Cut into other pieces, in another order."""
        values, first_seq = self.done[part]
        shuffled = self.rng.sample(values, len(values))
        cut = self.rng.randint(1, len(values) - 1)
        self.serial += 1
        attempt = f"again {self.serial}"
        assert self.wait(start(self.world, 0, *shuffled[:cut], part=part, attempt=attempt)).deduped
        result = self.wait(start(self.world, 1, *shuffled[cut:], last=True, part=part, attempt=attempt))
        assert (result.deduped, result.first_seq, result.count) == (True, first_seq, len(values))

    def wait(self, answer: Answer) -> Any:
        self.world.until(lambda: answer.given)
        return answer.results[0]

    def check(self) -> None:
        """Each part is there once, as a run; nothing else is but what others wrote."""
        found = {row["$seq"]: row["data"] for row in self.world.read(limit=1000, max_batch_bytes=1 << 23)}
        expected = {seq for seq, data in found.items() if str(data).startswith("other")}
        assert set(self.others) == expected
        for values, first_seq in self.done.values():
            run = range(first_seq, first_seq + len(values))
            assert [found[seq] for seq in run] == values
            expected |= {*run}
        assert expected == set(found)


@pytest.mark.parametrize("seed", seeds(16))
def test_parts_in_pieces_are_there_once_whatever_happens(seed: int) -> None:
    """R-PROD-1, R-PROD-9 to R-PROD-13: kills, power cuts, checkpoints, others that write between the pieces."""
    story = Story(seed)
    for _ in range(_STEPS):
        story.step()
    while story.begun:
        story.send()
    story.check()
    for part in story.done:
        story.repeat(part)
    story.world.restart()
    story.check()
    staging = story.world.engine._core.registry.staging
    assert staging is not None
    story.world.until(lambda: staging.index.live == 0)
