"""Claims of many jobs, or of large ones: each pass of the loop deals, reads and looks at so much."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from tests.amount import seeds
from tests.engine.harness import Answer, Harness
from tests.engine.queue.queue_calls import claim, jobs_of, one_pass, start_ack, start_claim
from topics.engine.index.held_back import HeldBack
from topics.engine.queue import fetch
from topics.engine.queue.queue_results import ClaimRequest, ClaimResult
from topics.engine.read import frame_read
from topics.engine.state.leases import Leases
from topics.errors import RequestError
from topics.store.format.rows import RowRecord, pack_rows
from topics.store.read.render_json import JsonRenderer

MEGABYTE = 1 << 20


class Units:
    """Units of work of each pass so far, the one in progress last."""

    def __init__(self) -> None:
        self.passes = [0]

    def add(self, count: int) -> None:
        self.passes[-1] += count

    @property
    def most(self) -> int:
        return max(self.passes)


@contextmanager
def counted(owner: Any, name: str, units: Any) -> Iterator[Units]:
    """Count units of each call of a method. units: called with the call's result and arguments."""
    found, call = Units(), getattr(owner, name)

    def noted(*arguments: Any, **named: Any) -> Any:
        result = call(*arguments, **named)
        found.add(units(result, *arguments))
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, noted)
        yield found


def passes_until(answers: list[Answer], h: Harness, *units: Units) -> None:
    """Make passes until all are answered."""
    for _ in range(1000):
        if all(answer.given for answer in answers):
            return
        for each in units:
            each.passes.append(0)
        one_pass(h)
    raise AssertionError("a claim that is never answered")


def queue_of(
    jobs: int, size: int = 1, tags: str = "a", settings: dict[str, int] | None = None, **config: Any
) -> Harness:
    h = Harness(**settings or {})
    h.put("q", type="queue", **config)
    for first in range(0, jobs, 1000):
        count = min(1000, jobs - first)
        rows = pack_rows([RowRecord(b'"%b"' % (b"x" * size), tags[at % len(tags)].encode()) for at in range(count)])
        answer = h.start_append(rows, "q")
        h.settle()
        answer.get()
    assert claim(h) == [1], "from here on there are lease ids"
    start_ack(h, 1)
    h.settle()
    return h


def window(h: Harness, claims: int, most: int) -> list[Answer]:
    answers = [start_claim(h, most, f"w{number}", 60_000) for number in range(claims)]
    h.advance_ms(50)
    return answers


def with_window(h: Harness) -> Harness:
    h.put("q", type="queue", claim_jitter_ms=50)
    return h


def seqs_of(answer: Answer) -> list[int]:
    return [job["$seq"] for job in jobs_of(answer)]


def check(h: Harness) -> None:
    leases = leases_of(h)
    leases.check()
    state = h.state("q")
    assert state.queue is not None
    assert state.count == state.queue.ready + state.queue.in_flight + (state.queue.delayed or 0)


def leases_of(h: Harness) -> Leases:
    leases = h.engine._core.registry.by_name["q"].queue
    assert leases is not None
    return leases


# --- many jobs --------------------------------------------------------------------------------------------------------
def test_the_jobs_of_a_window_are_dealt_and_read_some_a_pass() -> None:
    h = with_window(queue_of(6000))
    with (
        counted(Leases, "take", lambda taken, *_: len(taken.jobs)) as dealt,
        counted(JsonRenderer, "add", lambda examined, *_: examined) as read,
    ):
        answers = window(h, 20, 300)
        passes_until(answers, h, dealt, read)
    assert dealt.most <= 1024
    assert read.most <= 1024
    got = [seqs_of(answer) for answer in answers]
    assert sorted(seq for seqs in got for seq in seqs) == list(range(2, 6001))
    assert [seqs[0] for seqs in got] == list(range(2, 22)), "dealt one by one, in the order in which the claims came"
    assert [len(seqs) for seqs in got] == [300] * 19 + [299]
    assert all(seqs == sorted(seqs) for seqs in got)
    assert {answer.get().ready for answer in answers} == {0}
    check(h)


def test_between_its_turns_a_window_loses_no_job_and_gives_none_twice() -> None:
    """Meanwhile jobs are deleted, a claimer leaves, and another window ends."""
    h = with_window(queue_of(5000, tags="ab"))
    answers = [start_claim(h, 1000, f"w{number}", 60_000) for number in range(4)]
    left = Answer()
    cancel = h.engine.claim(ClaimRequest("q", "left", 1000, 60_000), left)
    h.advance_ms(50)
    one_pass(h)
    assert not any(answer.given for answer in answers), "some are dealt by now"
    late = start_claim(h, 1000, "late", 60_000)
    h.advance_ms(50)
    deleted = h.start_delete(2000, "b", "q")
    cancel()
    passes_until([*answers, late, deleted], h)
    for _ in range(20):
        one_pass(h)
    assert not left.given
    given = [seq for answer in (*answers, late) for seq in seqs_of(answer)]
    assert len(given) == len(set(given)), "a job has one holder"
    gone = set(range(2, 2000, 2))
    assert gone & set(given) == set(), "of jobs that were deleted before the answers"
    check(h)
    h.put("q", type="queue")
    rest: list[int] = []
    while more := claim(h, 1000):
        rest += more
    assert sorted(given + rest) == sorted(set(range(2, 5001)) - gone)
    numbers = [job["lease_id"] for answer in (*answers, late) for job in jobs_of(answer)]
    assert len(numbers) == len(set(numbers))
    check(h)


def test_a_job_that_is_dealt_is_in_flight_until_its_claim_is_answered() -> None:
    h = with_window(queue_of(5000))
    answers = window(h, 4, 1000)
    one_pass(h)
    state = h.state("q").queue
    assert state is not None
    assert state.ready + state.in_flight == 4999
    assert state.in_flight >= 1024
    passes_until(answers, h)
    assert h.state("q").queue == state._replace(ready=999, in_flight=4000)


def test_a_claimer_that_leaves_between_turns_gives_its_jobs_back_as_they_were() -> None:
    """R-NET-11: they were not delivered."""
    h = with_window(queue_of(3000))
    answers = [start_claim(h, 1000, f"w{number}") for number in range(2)]
    h.cancel()
    cancelled = answers.pop()
    third = start_claim(h, 1000, "third", 60_000)
    cancel = h.cancel
    h.advance_ms(50)
    cancel()
    passes_until(answers, h)
    for _ in range(10):
        one_pass(h)
    assert not cancelled.given
    assert not third.given
    h.put("q", type="queue")
    rest: list[dict[str, Any]] = []
    while True:
        answer = start_claim(h, 1000)
        passes_until([answer], h)
        if not answer.get().count:
            break
        rest += jobs_of(answer)
    assert len(rest) == 1999
    assert {job["deliveries"] for job in rest} == {1}


def test_a_queue_that_is_deleted_between_turns_ends_all_claims_of_a_window() -> None:
    """R-Q-20."""
    h = with_window(queue_of(4000))
    answers = window(h, 3, 1000)
    one_pass(h)
    gone = Answer()
    h.engine.delete_topic("q", if_empty=False, done=gone)
    passes_until([*answers, gone], h)
    for answer in answers:
        if isinstance(answer.results[0], ClaimResult):
            continue  # answered before the delete was committed
        with pytest.raises(RequestError) as caught:
            answer.get()
        assert caught.value.code == "topic_not_found"


def test_claims_of_a_pass_end_the_leases_of_one_look_of_very_many_that_end_at_once() -> None:
    """R-Q-2: each claim still gets jobs."""
    h = queue_of(6000, lease_ms=100)
    for _ in range(6):
        passes_until([start_claim(h, 1000)], h)
    h.advance_ms(101)
    with counted(Leases, "release", lambda *_: 1) as ended:
        answers = [start_claim(h, 1, "w", 60_000) for _ in range(40)]
        passes_until(answers, h, ended)
        assert ended.most <= 1024
        assert {answer.get().count for answer in answers} == {1}
        large = [start_claim(h, 1000, "w", 60_000) for _ in range(4)]
        passes_until(large, h)
    assert all(answer.get().count >= 256 for answer in large)
    for _ in range(30):
        one_pass(h)
    got = sum(answer.get().count for answer in (*answers, *large))
    assert h.state("q").queue == h.state("q").queue._replace(ready=5999 - got, in_flight=got)  # type: ignore[union-attr]
    check(h)


def test_claims_of_a_job_each_are_answered_some_dozens_a_pass() -> None:
    """Each costs 0.26 ms, however small its job is."""
    h = with_window(queue_of(301))
    with counted(JsonRenderer, "add", lambda examined, *_: examined) as read:
        answers = window(h, 300, 1)
        passes_until(answers, h, read)
    assert 16 <= read.most <= 32
    assert sorted(seq for answer in answers for seq in seqs_of(answer)) == list(range(2, 302))


# --- large jobs -------------------------------------------------------------------------------------------------------
def test_the_records_of_a_claim_are_read_some_megabytes_a_pass() -> None:
    h = queue_of(101, 60_000)
    with counted(JsonRenderer, "add", lambda _examined, *a: int(a[4].sum())) as read:
        answer = start_claim(h, 1000)
        passes_until([answer], h, read)
    assert read.most <= 2 * MEGABYTE, "what is left of one budget, and the next"
    assert seqs_of(answer) == list(range(2, 102))
    assert {len(job["data"]) for job in jobs_of(answer)} == {60_000}


@pytest.mark.parametrize("with_attempts", [False, True])
def test_jobs_that_do_not_adjoin_are_read_some_hundred_a_pass(with_attempts: bool) -> None:
    h = queue_of(2000, 5000, tags="ab")
    h.delete(match="a", name="q")
    answer = Answer()
    with (
        counted(JsonRenderer, "add", lambda _examined, *_: 1) as pieces,
        counted(frame_read, "plan_pieces", lambda plan, *_: len(plan.pieces)) as planned,
    ):
        h.engine.claim(ClaimRequest("q", "w", 1000, None, with_attempts=with_attempts), answer)
        passes_until([answer], h, pieces, planned)
    assert pieces.most <= 2 * 256
    assert planned.most <= 2 * 256, "and not all that are left, each time"
    assert seqs_of(answer) == list(range(2, 2001, 2))


def test_jobs_that_are_gone_before_their_turn_are_left_out() -> None:
    """R-DEL-7; those that their holder acknowledged before it knew them, too."""
    h = queue_of(101, 60_000, tags="abc")
    answer = start_claim(h, 1000)
    one_pass(h)
    assert not answer.given
    deleted = h.start_delete(None, "b", "q")
    acked = start_ack(h, 100, 101)
    passes_until([deleted, acked, answer], h)
    seqs = seqs_of(answer)
    assert not {100, 101} & set(seqs)
    assert not set(range(2, 101, 3)) & set(seqs)
    assert seqs == [seq for seq in range(2, 100) if seq % 3 != 2]
    check(h)


@pytest.mark.parametrize("before_seq", [90, 102])
def test_a_claim_outlasts_a_delete_of_all_that_its_turns_have_not_read(before_seq: int) -> None:
    h = queue_of(101, 60_000)
    answer = start_claim(h, 1000)
    one_pass(h)
    deleted = h.start_delete(before_seq, None, "q")
    passes_until([deleted, answer], h)
    assert answer.get().count == 102 - before_seq
    check(h)


def test_an_answer_names_the_leases_of_its_claim_even_if_others_came_before_its_end() -> None:
    h = queue_of(101, 60_000, lease_ms=100)
    first = start_claim(h, 1000, "first")
    one_pass(h)
    h.advance_ms(101)
    second = start_claim(h, 1000, "second", 60_000)
    passes_until([first, second], h)
    both = [{job["$seq"]: job["lease_id"] for job in jobs_of(answer)} for answer in (first, second)]
    assert not set(both[0].values()) & set(both[1].values())
    check(h)


def test_large_jobs_are_moved_to_the_dead_letters_some_megabytes_a_pass() -> None:
    h = queue_of(101, 60_000, max_deliveries=1, dead_letter="dead", lease_ms=100)
    delivered = start_claim(h, 1000)
    passes_until([delivered], h)
    h.advance_ms(101)
    answer = start_claim(h, 1000)
    with counted(fetch, "verified", lambda _frames, _topic, part: int(part.rows.lengths.sum())) as read:
        passes_until([answer], h, read)
        read.passes.append(0)
    assert answer.get().count == 0
    assert read.most <= 2 * MEGABYTE
    assert h.state("dead").count == 100
    assert h.state("q").count == 0
    check(h)


# --- jobs held back ---------------------------------------------------------------------------------------------------
def test_a_claim_looks_at_some_of_very_many_runs_of_delayed_jobs_a_pass() -> None:
    h = queue_of(8000, tags="xy")
    held = range(4, 8001, 2)
    leases_of(h).hold_back(held, [1 << 50] * len(held))
    h.append(0, name="q", tag="last")
    h.delete(match="x", name="q")
    answer = Answer()
    with counted(HeldBack, "free_after", lambda *_: 1) as looks:
        h.engine.claim(ClaimRequest("q", "w", 2, None), answer)
        passes_until([answer], h, looks)
    assert looks.most <= 256
    assert len(looks.passes) >= 16
    assert seqs_of(answer) == [2, 8001]
    check(h)


# --- large answers at once --------------------------------------------------------------------------------------------
def test_claims_of_megabytes_wait_until_there_is_room_for_their_answers() -> None:
    """Each of them rendered a part at a time, so all were held at once."""
    h = queue_of(97, 100_000, settings={"pass_read_bytes": MEGABYTE, "max_client_bytes": 16 * 5 * MEGABYTE})
    held = h.engine._core.turns
    most = 0
    answers = [start_claim(h, 16) for _ in range(6)]
    for _ in range(100):
        one_pass(h)
        most = max(most, held.held)
    assert [answer.get().count for answer in answers] == [16] * 6
    assert 16 * 100_000 < most <= 5 * MEGABYTE
    assert held.held == 0
    check(h)


# --- whatever comes between turns -------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", seeds(40))
def test_whatever_comes_between_turns_a_job_has_one_holder_and_none_is_lost(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Turns of two jobs, windows one after another, deletes, acks, claimers that leave, ends of leases."""
    monkeypatch.setattr("topics.engine.queue.claim._DEALT", 2)
    monkeypatch.setattr("topics.engine.queue.fetch._TURN_BYTES", 300)
    random = Random(seed)
    room = random.choice([0, 16, 16 * 500])
    h = Harness(pass_read_bytes=20_000, max_claim_bytes=random.choice([0, 400, 1 << 20]), max_client_bytes=room)
    poison = {"max_deliveries": 3, "dead_letter": "dead"} if random.random() < 0.3 else {}
    cap = random.choice([0, 10])
    h.put("q", type="queue", claim_jitter_ms=5, leases_durable=random.random() < 0.5, cap_records=cap, **poison)
    waiting: list[Answer] = []
    held: dict[str, list[dict[str, Any]]] = {}
    given: set[str] = set()
    acked: list[Answer] = []
    times: dict[int, list[int]] = {}

    def look() -> None:
        for answer in [answer for answer in waiting if answer.given]:
            waiting.remove(answer)
            for job in jobs_of(answer):
                assert job["lease_id"] not in given, "a lease is given once"
                given.add(job["lease_id"])
                times.setdefault(job["$seq"], []).append(job["deadline"])
            held.setdefault("w", []).extend(jobs_of(answer))

    for _ in range(60):
        step = random.randrange(8)
        if step < 2:
            rows = [RowRecord(b'"%b"' % (b"x" * random.choice([1, 100, 400])), random.choice([b"a", b"b"]))]
            h.start_append(pack_rows(rows * random.randint(1, 8)), "q")
        elif step == 2:
            for _ in range(random.randint(1, 4)):
                answer = start_claim(h, random.randint(1, 8), "w", 100)
                if random.random() < 0.2:
                    h.cancel()
                else:
                    waiting.append(answer)
        elif step == 3:
            h.start_delete(None, random.choice("ab"), "q")
        elif step == 4:
            seqs = [job["$seq"] for job in held.pop("w", [])] + [random.randint(1, 40)]
            acked.append(start_ack(h, *seqs[:1000]))
        elif step == 5:
            h.advance_ms(random.choice([5, 5, 101]))
        else:
            one_pass(h)
        look()
    h.advance_ms(5)
    passes_until([*waiting, *acked], h)
    look()
    assert not waiting
    for deadlines in times.values():
        assert all(later - earlier > 100 for earlier, later in pairwise(sorted(deadlines))), "a job has one holder"
    h.advance_ms(200)
    for _ in range(50):
        one_pass(h)
    check(h)
    left = h.state("q")
    assert left.queue is not None
    assert (left.queue.in_flight, left.queue.ready) == (0, left.count)
