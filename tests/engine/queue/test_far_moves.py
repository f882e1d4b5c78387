"""Dead letters of a queue in a topic of another core: R-CORE-15.

Goal: each job that was delivered too often is there once, whichever core ends and whenever, and no claim gets it then.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.amount import seeds
from tests.engine.harness import Answer
from tests.engine.routers.far_cores import Cores, core_of
from topics.engine.queue import dead_letter, move_turns
from topics.engine.queue.dead_messages import Executed, MoveOrder, NotAppended, Superseded
from topics.engine.queue.queue_results import ClaimRequest, HeldJobs
from topics.engine.queue.redrive import RedriveRequest
from topics.engine.state import leases
from topics.engine.state.append_request import AppendRequest
from topics.engine.state.producer_part import Part
from topics.engine.values.results import DiffQuery
from topics.engine.values.topic_config import make_config
from topics.errors import CorruptError, RequestError, StorageError, TopicsError
from topics.store import store
from topics.store.format import codec
from topics.store.format.rows import RowRecord, pack_rows

QUEUE, DEAD = "q0", "dead1"


def src_seqs(world: Cores) -> list[int]:
    return [int(record["meta"]["$dead_letter_src_seq"]) for record in world.read(DEAD)]


class Queue:
    """A queue whose jobs are delivered once, and whose dead letters go to another core."""

    def __init__(self, world: Cores, **config: Any) -> None:
        self.world = world
        world.put(QUEUE, type="queue", max_deliveries=1, dead_letter=DEAD, lease_ms=1000, **config)
        world.put(DEAD, **{key: value for key, value in config.items() if key == "durability"})
        self.asked: list[tuple[list[int], Answer]] = []
        self._next = 0

    def write(self) -> None:
        numbers = list(range(self._next, self._next + self.world.rng.randint(1, 3)))
        self._next = numbers[-1] + 1
        self.asked.append((numbers, self.world.start_append(QUEUE, *numbers)))

    def claim(self, most: int = 3) -> list[int] | None:
        """Claim jobs; None: the core of the queue has ended, or refuses."""
        world = self.world
        ends, answer = world.killed, Answer()
        world.engine_of(QUEUE).claim(ClaimRequest(QUEUE, "w", most, None), answer)
        world.run(lambda: answer.given or world.killed > ends)
        if not answer.given or isinstance(answer.results[0], TopicsError):
            return None
        return [job["$seq"] for job in msgspec.json.decode(b"[" + answer.get().records + b"]")]

    def nack(self, seqs: list[int]) -> None:
        self.world.engine_of(QUEUE).nack(HeldJobs(QUEUE, "w", seqs), 0, "", Answer())

    def count(self) -> int:
        answer = Answer()
        self.world.engine_of(QUEUE).state(QUEUE, touch=False, done=answer)
        found: int = self.world.wait(answer).count
        return found

    def check(self) -> None:
        """Deliver all jobs once more; then each is a dead letter, once."""
        world = self.world
        for _ in range(200):
            seqs = self.claim()
            if seqs:
                assert not set(seqs) & set(src_seqs(world)), "a job is delivered, and a dead letter, too"
                self.nack(seqs)
            elif not self.count():
                break
            else:
                world.some(400)  # a lease may have to end
        assert not self.count(), "jobs stay in the queue"
        seqs = src_seqs(world)
        assert len(set(seqs)) == len(seqs), "a dead letter is there twice"
        acknowledged = {
            number
            for numbers, answer in self.asked
            if answer.given and not isinstance(answer.results[0], TopicsError)
            for number in numbers
        }
        data = world.data(DEAD)
        assert acknowledged <= set(data), "a job is lost"
        assert len(set(data)) == len(data)


def is_moving(world: Cores) -> bool:
    """Whether jobs are on their way."""
    move = world.worlds[0].stored.registry.by_name[QUEUE].queue.move
    return move is not None and bool(move.seqs)


def end_move(world: Cores) -> None:
    world.run(lambda: not is_moving(world))


def dead_of(world: Cores, **more: Any) -> Any:
    answer = Answer()
    world.engine_of(QUEUE).dead(QUEUE, DiffQuery(**more), answer)
    return world.wait(answer)


def redrive(world: Cores, seqs: list[int] | None = None) -> Any:
    answer = Answer()
    world.engine_of(QUEUE).redrive(RedriveRequest(QUEUE, seqs), answer)
    return world.wait(answer)


@pytest.mark.parametrize("seed", seeds(10))
def test_a_job_is_moved_to_a_topic_of_another_core(seed: int) -> None:
    world = Cores(seed)
    queue = Queue(world)
    world.append(QUEUE, *range(5))
    seqs = queue.claim(5)
    assert seqs == [1, 2, 3, 4, 5]
    queue.nack(seqs)
    assert queue.claim() == []
    end_move(world)
    assert (world.data(DEAD), src_seqs(world), queue.count()) == ([0, 1, 2, 3, 4], seqs, 0)
    state = Answer()
    world.engine_of(QUEUE).state(QUEUE, touch=False, done=state)
    assert world.wait(state).queue.dead_lettered == 5


def test_a_missing_dead_letter_topic_is_made_on_its_core() -> None:
    """R-Q-25."""
    world = Cores(2)
    world.put(QUEUE, type="queue", max_deliveries=1, dead_letter="made1")
    assert [each.store.format.number for each in world.worlds] == [5, 1]
    queue = object.__new__(Queue)
    queue.world = world
    world.append(QUEUE, "job")
    queue.nack(queue.claim() or [])
    queue.claim()
    end_move(world)
    assert world.data("made1") == ["job"]
    assert [each.engine.topic_count() for each in world.worlds] == [1, 1]
    assert [each.store.format.number for each in world.worlds] == [5, 5], "older builds would misread the directory"


def test_a_core_whose_format_cannot_be_raised_takes_no_dead_letters() -> None:
    world = Cores(2, router_retry_ms=2)
    queue = Queue(world)
    world.append(QUEUE, "job")
    queue.nack(queue.claim() or [])
    disk = world.worlds[1].store.format
    raise_it, tries = disk.when_raised, list[int]()

    def failing(number: int, done: Any) -> None:
        tries.append(number)
        done(StorageError("the disk has failed"))

    disk.when_raised = failing  # type: ignore[method-assign]
    assert queue.claim() == []
    world.run(lambda: len(tries) > 2)
    assert (disk.number, world.data(DEAD), queue.count()) == (1, [], 1)
    disk.when_raised = raise_it  # type: ignore[method-assign]
    end_move(world)
    assert (disk.number, world.data(DEAD)) == (5, ["job"])


def lives(queue: Queue, *, cuts_power: bool) -> None:
    """Deliver jobs, while cores end and the sockets between them."""
    world = queue.world
    for _ in range(14):
        world.cuts_power = cuts_power and world.rng.random() < 0.5
        queue.write()
        world.some(20)
        happens = world.rng.randrange(6)
        core = world.rng.randrange(len(world.worlds))
        if happens == 0:
            world.end_soon(core)
        elif happens in {1, 2}:
            world.cut_amid_steps(0, 1)
        elif happens == 3:
            world.checkpoint(core)
        beside, ends = Answer(), world.killed
        world.engine_of(QUEUE).claim(ClaimRequest(QUEUE, "w", 2, None), beside)
        seqs = queue.claim(world.rng.randint(1, 4))
        world.some(30)
        if beside.given and ends == world.killed and not isinstance(beside.results[0], TopicsError):
            seqs = [*(seqs or ()), *(job["$seq"] for job in msgspec.json.decode(b"[" + beside.get().records + b"]"))]
        if seqs:
            queue.nack(seqs)
        world.some(30)
    for each in world.worlds:
        each.ring.stop_at(0)
    if cuts_power:
        world.cut_power()
    queue.check()
    if cuts_power:
        before = world.data(DEAD)
        world.cut_power()
        assert world.data(DEAD) == before


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("power_lost", [False, True])
@pytest.mark.parametrize("seed", seeds(40))
def test_each_job_is_a_dead_letter_once_whichever_core_ends_and_whenever(
    seed: int, power_lost: bool, durable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "MOST_POISON", 256 if seed % 2 else 2)
    world = Cores(seed, router_retry_ms=2)
    durability = "fsync" if power_lost else world.rng.choice(["disk", "fsync"])
    lives(Queue(world, durability=durability, leases_durable=durable), cuts_power=power_lost)


@pytest.mark.parametrize("power_lost", [False, True])
@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("written", [False, True])
def test_no_claim_gets_a_job_on_its_way_after_a_start(written: bool, checkpoint: bool, power_lost: bool) -> None:
    world = Cores(3, router_retry_ms=2)
    queue = Queue(world, durability="fsync")
    world.append(QUEUE, "a job", "another one")
    queue.nack((queue.claim() or [])[:1])
    world.engine_of(QUEUE).claim(ClaimRequest(QUEUE, "w", 2, None), Answer())
    world.run(lambda: bool(world.asked))
    if written:
        world.run(lambda: world.asked[0].reply is not None)
        assert world.data(DEAD) == ["a job"]
    if checkpoint:
        world.checkpoint(0)
    world.restart(0, power_lost=power_lost)
    assert queue.claim() == [2]
    end_move(world)
    assert queue.count() == 1
    assert world.data(DEAD) == ["a job"]


def test_a_move_is_over_with_the_jobs_that_were_deleted_meanwhile() -> None:
    world = Cores(4, router_retry_ms=2)
    queue = Queue(world)
    world.append(QUEUE, 1, 2)
    queue.nack(queue.claim() or [])
    world.stale.add((0, 1))
    assert queue.claim() == [], "the other core has not answered"
    deleted = Answer()
    world.engine_of(QUEUE).delete_records(QUEUE, 3, None, deleted)
    world.wait(deleted)
    world.some(500)
    world.append(QUEUE, 3)
    queue.nack(queue.claim() or [])
    queue.claim()
    world.run(lambda: not queue.count())
    assert 3 in world.data(DEAD)


def test_other_jobs_are_claimed_while_the_other_core_is_not_there() -> None:
    world = Cores(5, router_retry_ms=2)
    queue = Queue(world)
    world.append(QUEUE, 1)
    queue.nack(queue.claim() or [])
    world.stale.add((0, 1))
    assert queue.claim() == []
    world.append(QUEUE, 2)
    assert queue.claim() == [2]
    queue.nack([2])
    queue.claim()
    world.run(lambda: not queue.count() or queue.claim() is None)
    assert world.data(DEAD) == [1, 2]


def test_dead_letters_on_another_core_are_listed_and_become_jobs_again() -> None:
    """R-Q-36 to -39."""
    world = Cores(6)
    queue = Queue(world)
    assert (dead_of(world).dead_letter, dead_of(world).page.count) == (DEAD, 0)
    assert redrive(world) == (DEAD, 0, [], 0, 0)
    world.append(QUEUE, *range(300))
    queue.nack(queue.claim(300) or [])
    while queue.count():
        queue.claim(300)
        end_move(world)
    world.append(DEAD, "of no queue")
    page = dead_of(world, limit=2).page
    assert [each["data"] for each in msgspec.json.decode(b"[" + page.records + b"]")] == [0, 1]
    assert (page.next_from_seq, page.head_seq) == (2, 301)
    assert redrive(world, [3, 301, 1, 1])[1:3] == (2, [301, 1])
    assert queue.count() == 2
    turn = redrive(world)
    assert (turn.redriven, turn.next_from_seq, turn.head_seq) == (298, 301, 301)
    assert world.data(QUEUE) == [0, 2, 1, *range(3, 300)]
    assert world.data(DEAD) == ["of no queue"]


def test_a_redrive_says_that_the_other_core_is_not_there() -> None:
    world = Cores(7)
    queue = Queue(world)
    world.append(QUEUE, 1)
    queue.nack(queue.claim() or [])
    queue.claim()
    end_move(world)
    for ask in (dead_of, redrive):
        world.stale.add((0, 1))
        with pytest.raises(RequestError) as refused:
            ask(world)
        assert refused.value.code == "not_ready"
    assert redrive(world).redriven == 1


def test_a_few_queues_of_many_move_jobs_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(move_turns, "_MOVES_MAX", 2)
    world = Cores(9, router_retry_ms=2)
    names = [f"queue-{number}-0" for number in range(7)]
    engine = world.engine_of(QUEUE)
    for name in names:
        world.put(name, type="queue", max_deliveries=1, dead_letter=DEAD)
        world.append(name, name)
        claimed = Answer()
        engine.claim(ClaimRequest(name, "w", 1, None), claimed)
        world.wait(claimed)
        engine.nack(HeldJobs(name, "w", [1]), 0, "", Answer())
    claims = [Answer() for _ in names]
    most = 0
    for name, claimed in zip(names, claims, strict=True):
        engine.claim(ClaimRequest(name, "w", 1, None), claimed)
    dead = world.worlds[1].stored.registry.by_name
    while DEAD not in dead or dead[DEAD].index.live < len(names):
        most = max(most, len(world.asked))
        world.step()
        if world.rng.random() < 0.02:
            world.cut(0, 1)
    assert all(claimed.given for claimed in claims)
    world.run(lambda: not world.asked)
    assert most == 2
    assert sorted(world.data(DEAD)) == names


@pytest.mark.parametrize("seed", seeds(20))
def test_moves_that_begin_together_take_turns(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "MOST_POISON", 1)
    world = Cores(seed, router_retry_ms=20)
    queue = Queue(world, leases_durable=True)
    world.append(QUEUE, 1, 2, 3)
    queue.nack(queue.claim() or [])
    world.some(60)
    world.checkpoint(0)
    world.restart(0)  # records are read from a file then, which takes a pass
    claims = [Answer() for _ in range(3)]
    for claimed in claims:
        world.engine_of(QUEUE).claim(ClaimRequest(QUEUE, "w", 1, None), claimed)
    while not all(claimed.given for claimed in claims):
        world.step()
        world.cut(0, 1)  # orders are lost, and some come late
    for _ in range(9):
        queue.claim(3)
        world.some(60)
    world.run(lambda: not queue_count(world))
    assert sorted(world.data(DEAD)) == [1, 2, 3]


def queue_count(world: Cores) -> int:
    found: int = world.worlds[0].stored.registry.by_name[QUEUE].index.live
    return found


@pytest.mark.parametrize("restarts", [False, True])
def test_an_order_of_a_queue_that_was_put_back_to_an_earlier_time_is_refused(restarts: bool) -> None:
    """Its jobs would be deleted without their copies."""
    world = Cores(11, producer_silence_ms=1000)
    assert isinstance(order(world, 1, 5), Executed)
    assert isinstance(order(world, 1, 5), Executed)
    assert isinstance(order(world, 1, 6), Superseded), "other jobs"
    assert isinstance(order(world, 3, 5), Executed)
    world.worlds[1].advance_ms(5000)
    if restarts:
        world.restart(1)
    assert isinstance(order(world, 2, 5), Superseded)
    assert isinstance(order(world, 3, 6), Superseded)
    assert isinstance(order(world, 3, 5), Executed)
    assert world.data(DEAD) == [1, 3]


def order(world: Cores, number: int, mark: int, *, token: str = "token", calls_off: bool = False) -> Any:
    """Have the other core execute an order, whose dead letter is the number of its move."""
    answer = Answer()
    copies = [] if calls_off else [RowRecord(b"%d" % number, size=1)]
    world.worlds[1].engine.execute_order(MoveOrder(DEAD, token, number, mark, copies), answer)
    world.run(lambda: answer.given)
    return answer.results[0]


def test_an_order_that_comes_after_it_was_called_off_is_refused() -> None:
    world = Cores(14)
    assert isinstance(order(world, 1, 5, calls_off=True), NotAppended), "there is no topic yet"
    assert isinstance(order(world, 1, 5), Superseded)
    assert isinstance(order(world, 1, 6, token="another"), Executed)
    assert isinstance(order(world, 1, 6, token="another", calls_off=True), Executed)
    assert world.data(DEAD) == [1]


def test_an_order_that_comes_late_does_not_make_a_deleted_topic_again() -> None:
    world = Cores(11)
    assert isinstance(order(world, 5, 50), Executed)
    world.delete(DEAD)
    assert isinstance(order(world, 5, 50), Executed), "its copies went with the topic"
    assert isinstance(order(world, 4, 40), Superseded)
    assert isinstance(order(world, 5, 51), Superseded), "these are other jobs"
    assert world.worlds[1].stored.registry.named(DEAD) is None
    assert isinstance(order(world, 6, 60), Executed)
    assert world.data(DEAD) == [6]


def test_a_change_that_is_refused_raises_no_format() -> None:
    world = Cores(12)
    world.put(QUEUE, type="queue")
    world.put("log1")
    world.route("r", QUEUE, "log1")
    before = world.worlds[0].store.format.number
    with pytest.raises(RequestError):
        world.put(QUEUE, type="queue", dead_letter=DEAD, durability="memory")
    assert world.worlds[0].store.format.number == before == 4


def test_a_start_with_very_many_leases_searches_no_list_for_jobs_on_their_way(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counted(list[int]):
        def __contains__(self, seq: object) -> bool:
            raise AssertionError("a search in a list, for each lease")

    plain = leases.from_runs
    monkeypatch.setattr(leases, "from_runs", lambda runs: Counted(plain(runs)))
    world = Cores(13)
    queue = Queue(world, leases_durable=True)
    world.append(QUEUE, *range(4))
    queue.nack((queue.claim(3) or [])[:1])
    world.engine_of(QUEUE).claim(ClaimRequest(QUEUE, "w", 1, None), Answer())
    world.run(lambda: bool(world.asked))
    world.restart(0)
    world.run(lambda: not world.asked and queue.count() == 3)


CONFIG = {"type": "queue", "max_deliveries": 1, "dead_letter": DEAD, "lease_ms": 1000}


def move(world: Cores, queue: Queue, *values: Any) -> None:
    """Have jobs moved, all the way."""
    world.append(QUEUE, *values)
    queue.nack(queue.claim(len(values)) or [])
    queue.claim(len(values))
    end_move(world)


def begin_move(world: Cores, *, is_done: bool = False, most: int = 1) -> Answer:
    """Have the claim of these jobs moved; their order is on its way then, or executed without an answer."""
    claimed = Answer()
    world.engine_of(QUEUE).claim(ClaimRequest(QUEUE, "w", most, None), claimed)
    world.run(lambda: any(not is_done or each.reply is not None for each in world.asked))
    return claimed


def end_all(world: Cores, queue: Queue) -> None:
    """Deliver all jobs until none is left."""
    for _ in range(60):
        queue.nack(queue.claim() or [])
        world.some(500)
        if not queue.count():
            return
    raise AssertionError("jobs stay in the queue")


@pytest.mark.parametrize("values", [("c",), ("c", "d")])
def test_a_start_gives_a_queue_of_class_ephemeral_another_name_in_its_dead_letters(values: tuple[str, ...]) -> None:
    """Their moves are in no log, so a number would be used again, perhaps for jobs of the same seqs."""
    world = Cores(3, router_retry_ms=2)
    queue = Queue(world, durability="ephemeral")
    world.put(DEAD, durability="disk")
    move(world, queue, "a")
    world.checkpoint(0)
    move(world, queue, "b")
    world.restart(0)
    assert world.worlds[0].stored.registry.by_name[QUEUE].queue.move is None
    move(world, queue, *values)
    end_all(world, queue)
    assert world.data(DEAD) == ["a", "b", *values]


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_queue_that_was_of_class_ephemeral_has_another_name_in_its_dead_letters(checkpoint: bool) -> None:
    world = Cores(3, router_retry_ms=2)
    queue = Queue(world, durability="disk")
    registry = world.worlds[0].stored.registry
    move(world, queue, "a")
    tokens = [registry.by_name[QUEUE].queue.move.token]
    world.put(QUEUE, **CONFIG, durability="ephemeral")
    move(world, queue, "b")
    tokens.append(registry.by_name[QUEUE].queue.move.token)
    if checkpoint:
        world.checkpoint(0)
    world.put(QUEUE, **CONFIG, durability="disk")
    world.append(QUEUE, "c", "d")
    world.restart(0)
    assert world.worlds[0].stored.registry.by_name[QUEUE].queue.move is None
    end_all(world, queue)
    tokens.append(world.worlds[0].stored.registry.by_name[QUEUE].queue.move.token)
    assert len(set(tokens)) == 3
    assert world.data(DEAD) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("before", ["disk", "ephemeral"])
def test_a_change_of_class_keeps_what_is_known_of_jobs_on_their_way(before: str, checkpoint: bool) -> None:
    """Else a start would move them again, or deliver them."""
    world = Cores(3, router_retry_ms=2)
    queue = Queue(world, durability=before)
    world.put(DEAD, durability="disk")
    world.append(QUEUE, "a")
    queue.nack(queue.claim() or [])
    begin_move(world, is_done=True)
    for durability in ("ephemeral", "disk"):
        answer = Answer()
        world.engine_of(QUEUE).put_topic(QUEUE, make_config(**CONFIG, durability=durability), answer)
        world.worlds[0].real_loop.run_until(lambda answer=answer: answer.given)
    if checkpoint:
        world.checkpoint(0)
    assert is_moving(world)
    world.restart(0)
    assert queue.claim() == []
    end_move(world)
    assert (world.data(DEAD), queue.count()) == (["a"], 0)


def test_a_queue_that_was_put_back_to_an_earlier_time_moves_jobs_again() -> None:
    """It does not know the moves since, so its numbers are others' there."""
    world = Cores(15, router_retry_ms=2)
    queue = Queue(world)
    move(world, queue, "a")
    leases_of = world.worlds[0].stored.registry.by_name[QUEUE].queue
    earlier = leases_of.move
    move(world, queue, "b")
    move(world, queue, "c")
    leases_of.move = earlier
    move(world, queue, "d", "e")
    end_all(world, queue)
    assert world.data(DEAD) == ["a", "b", "c", "d", "e"]
    assert leases_of.move.token != earlier.token
    world.restart(0)
    move(world, queue, "f")
    assert world.data(DEAD)[5:] == ["f"]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("is_done", [False, True])
def test_jobs_on_their_way_wait_for_one_that_cannot_be_read_again(
    is_done: bool, restarts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Cores(3, router_retry_ms=2)
    queue = Queue(world, durability="disk")
    world.append(QUEUE, "a", "b")
    queue.nack(queue.claim() or [])
    begin_move(world, is_done=is_done, most=3)
    read, damaged = dead_letter.decode_jobs, [0]

    def decode(reader: Any, topic: Any, jobs: Any, then: Any) -> None:
        def decoded(frames: Any) -> None:
            damaged[0] += 1
            then([CorruptError("x") if job.seq == 1 else frame for job, frame in zip(jobs, frames, strict=True)])

        read(reader, topic, jobs, decoded)

    monkeypatch.setattr(dead_letter, "decode_jobs", decode)
    world.cut(0, 1)
    for each in list(world.asked):  # an order that comes late does not come at all
        world.asked.remove(each)
    world.run(lambda: damaged[0] >= 3)
    world.worlds[0].advance_ms(5000)
    assert queue.claim() == []
    assert (queue.count(), is_moving(world)) == (2, True)
    monkeypatch.setattr(dead_letter, "decode_jobs", read)
    if restarts:
        world.restart(0)
    end_move(world)
    assert (world.data(DEAD), queue.count()) == (["a", "b"], 0)


def test_claims_wait_a_while_at_most_for_a_core_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Cores(3, router_retry_ms=2)
    queue = Queue(world, durability="disk")
    world.append(QUEUE, "poison", "good", "another one")
    queue.nack(queue.claim(1) or [])
    monkeypatch.setattr(world, "_execute", lambda _asked: None)
    assert queue.claim(1) == [2]
    assert queue.claim(2) == [3]
    assert is_moving(world)


def test_queues_whose_core_does_not_answer_hold_back_no_move_to_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(move_turns, "_MOVES_MAX", 2)
    world = Cores(9, cores=3, router_retry_ms=2)
    execute = world._execute
    monkeypatch.setattr(world, "_execute", lambda asked: None if asked.core == 1 else execute(asked))
    names = [*(f"queue-{number}-0" for number in range(4)), "last0"]
    engine = world.engine_of(QUEUE)
    for name in names:
        world.put(name, type="queue", max_deliveries=1, dead_letter="dead2" if name == "last0" else DEAD)
        world.append(name, name, "good")
        for seq in (1, 2):
            claimed = Answer()
            engine.claim(ClaimRequest(name, "w", 1, None), claimed)
            assert msgspec.json.decode(world.wait(claimed).records)["$seq"] == seq
            engine.nack(HeldJobs(name, "w", [1]), 0, "", Answer())
    world.run(lambda: len(world.asked) == 2)
    world.run(lambda: "dead2" in world.worlds[2].stored.registry.by_name)
    assert world.data("dead2") == ["last0"]


def test_queues_are_no_producers_of_their_dead_letters_that_a_limit_counts() -> None:
    world = Cores(3, router_retry_ms=2, max_producers=1, max_producer_parts=1)
    queue = Queue(world)
    for number in range(3):
        move(world, queue, number)
        world.delete(QUEUE)
        world.put(QUEUE, **CONFIG)
    world.worlds[1].checkpoint()
    world.restart(1)
    counts = world.worlds[1].stored.producers
    assert (counts.producers, counts.parts) == (0, 0)
    written = Answer()
    request = AppendRequest(DEAD, pack_rows([RowRecord(b"3", size=1)]), identity=Part(b"client", 1, 0))
    world.worlds[1].engine.append(request, written)
    world.wait(written)
    assert (counts.producers, counts.parts) == (1, 1)
    assert world.data(DEAD) == [0, 1, 2, 3]


@pytest.mark.parametrize("dead", [None, "other1", "own0"])
@pytest.mark.parametrize("restarts", [False, True])
def test_another_dead_letter_topic_takes_jobs_that_the_first_one_could_not(
    restarts: bool, dead: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    world = Cores(3, router_retry_ms=2, max_topics=2)
    world.put("full1")
    world.put("fuller1")
    world.put(QUEUE, **CONFIG)
    queue = object.__new__(Queue)
    queue.world = world
    world.append(QUEUE, "a")
    queue.nack(queue.claim(1) or [])
    assert queue.claim(1) == []
    world.run(lambda: world.orders > 20)
    lines = [record.getMessage() for record in caplog.records if "dead-letter topic dead1" in record.getMessage()]
    assert 3 <= len(lines) <= 6
    assert "max_topics" in lines[0]
    if dead == "other1":
        world.delete("full1")
        world.put("other1")
    world.put(QUEUE, **{**CONFIG, "dead_letter": dead})
    end_move(world)
    if restarts:  # which forgets that it was delivered
        world.restart(0)
        end_move(world)
    if dead is None:
        assert queue.claim(1) == [1]
    else:
        end_all(world, queue)
        assert world.data(dead) == ["a"]


@pytest.mark.parametrize(("retry_ms", "longest_ms"), [(1000, 32_000), (9000, 60_000), (100_000, 100_000)])
def test_a_move_is_tried_again_after_pauses_that_grow_to_a_minute_at_most(
    retry_ms: int, longest_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless `router_retry_ms` is longer itself."""
    world = Cores(3, router_retry_ms=retry_ms)
    queue = Queue(world)
    world.append(QUEUE, "a")
    queue.nack(queue.claim() or [])
    monkeypatch.setattr(world, "_execute", lambda _asked: None)
    begin_move(world)
    loop = world.worlds[0].real_loop
    pauses = list[int]()
    for _ in range(8):
        world.asked.pop().end(RequestError("not_ready", "the core has ended"))
        ended_ns = loop.clock.monotonic_ns()
        loop.run_until(lambda: bool(world.asked))
        pauses.append((loop.clock.monotonic_ns() - ended_ns) // 1_000_000)
    assert pauses[0] < 2 * retry_ms
    assert longest_ms <= max(pauses) < longest_ms + 1000


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_queue_that_names_the_same_topic_again_was_not_put_back(
    is_lost: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to the order that called its move off was lost."""
    world = Cores(3, router_retry_ms=2)
    queue = Queue(world)
    world.append(QUEUE, "a")
    queue.nack(queue.claim() or [])
    execute = world._execute
    monkeypatch.setattr(world, "_execute", lambda _asked: None)
    begin_move(world)
    world.put(QUEUE, **{**CONFIG, "dead_letter": "other1"})
    asked = world.asked.pop()
    asked.end(RequestError("not_ready", "the core has ended"))
    world.run(lambda: bool(world.asked))
    monkeypatch.setattr(world, "_execute", execute)
    world.run(lambda: world.asked[0].reply is not None)
    answer = Answer()
    world.engine_of(QUEUE).put_topic(QUEUE, make_config(**CONFIG), answer)
    world.worlds[0].real_loop.run_until(lambda: answer.given)
    if is_lost:
        world.cut(0, 1)
    end_move(world)
    end_all(world, queue)
    assert world.data(DEAD) == ["a"]
    assert not [record for record in caplog.records if "was put back" in record.getMessage()]


def test_the_copies_of_a_move_are_not_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are up to 1 MiB, and the mark of the move stands in the place of their sum."""
    world = Cores(3)
    monkeypatch.setattr(codec, "sum_rows", None)
    assert isinstance(order(world, 1, 5), Executed)


@pytest.mark.parametrize("restarts", [False, True])
def test_jobs_that_were_copied_stay_dead_letters_whatever_the_queue_names_then(restarts: bool) -> None:
    world = Cores(3, router_retry_ms=2)
    queue = Queue(world)
    world.append(QUEUE, "a")
    queue.nack(queue.claim(1) or [])
    begin_move(world, is_done=True)
    world.cut(0, 1)
    answer = Answer()
    world.engine_of(QUEUE).put_topic(QUEUE, make_config(**{**CONFIG, "dead_letter": None}), answer)
    world.worlds[0].real_loop.run_until(lambda: answer.given)
    if restarts:
        world.restart(0)
    assert queue.claim(1) == []
    end_move(world)
    assert (world.data(DEAD), queue.count()) == (["a"], 0)


def test_a_queue_that_was_of_class_ephemeral_takes_no_new_jobs_for_those_on_their_way_before() -> None:
    """A start in that class may give their seqs out again."""
    world = Cores(3, router_retry_ms=2)
    queue = Queue(world, durability="disk")
    world.append(QUEUE, "a", "b", "c")
    queue.nack(queue.claim() or [])
    begin_move(world, is_done=True, most=3)
    answer = Answer()
    world.engine_of(QUEUE).put_topic(QUEUE, make_config(**CONFIG, durability="ephemeral"), answer)
    world.worlds[0].real_loop.run_until(lambda: answer.given)
    world.restart(0)
    world.put(QUEUE, **CONFIG, durability="disk")
    world.append(QUEUE, "d", "e", "f", "g")
    world.restart(0)
    end_all(world, queue)
    assert world.data(DEAD) == ["a", "b", "c", "d", "e", "f", "g"]


@pytest.mark.parametrize("durability", ["disk", "fsync"])
@pytest.mark.parametrize("is_answered", [False, True])
def test_a_reply_while_the_files_are_closed_writes_nothing(
    is_answered: bool, durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is closed then: a start would take what is staged for writes that a power cut took."""
    world = Cores(3, router_retry_ms=2)
    queue = Queue(world, durability=durability, leases_durable=True)
    world.append(QUEUE, "a")
    queue.nack(queue.claim() or [])
    begin_move(world, is_done=is_answered)
    one, other = world.worlds
    loop, close_files, closing = one.real_loop, store.close_files, list[bool]()

    async def slow(of_loop: Any, files: Any) -> None:
        closing.append(True)
        for _ in range(20):  # as if there were more files, of which each close takes a pass
            await of_loop.next_pass()
        await close_files(of_loop, files)

    monkeypatch.setattr(store, "close_files", slow)
    one.engine.begin_shutdown()
    ended: list[bool] = []
    one.engine.end_routers(lambda: ended.append(True))
    loop.run_until(lambda: bool(ended))
    task = loop.spawn(one.real_store.close(), "close")
    loop.run_until(lambda: bool(closing))
    for asked in list(world.asked):
        world.asked.remove(asked)
        asked.end(asked.reply or RequestError("not_ready", "the core has ended"))
    loop.run_until(lambda: task.done)
    task.result()
    assert not one.real_store.log.read_only
    monkeypatch.undo()
    world.restart(0)
    assert not one.real_store.power_lost
    end_move(world)
    assert (world.data(DEAD), queue.count()) == (["a"], 0)
    assert not other.real_store.log.read_only


def test_a_core_that_stops_takes_no_more_dead_letters() -> None:
    world = Cores(3)
    other = world.worlds[1]
    ended: list[bool] = []
    other.engine.begin_shutdown()
    other.engine.end_routers(lambda: ended.append(True))
    other.real_loop.run_until(lambda: bool(ended))
    assert isinstance(order(world, 1, 5), StorageError)
    assert other.stored.registry.named(DEAD) is None


class ChangedQueue(Queue):
    """A queue that names other dead-letter topics, or none, while cores end, and the sockets between them."""

    def __init__(self, world: Cores, **config: Any) -> None:
        super().__init__(world, **config)
        self.config = {**CONFIG, **config}
        self.delivered: set[int] = set()

    def change(self, dead: str | None) -> None:
        answer, ends = Answer(), self.world.killed
        self.world.engine_of(QUEUE).put_topic(QUEUE, make_config(**{**self.config, "dead_letter": dead}), answer)
        self.world.run(lambda: answer.given or self.world.killed > ends)

    def write(self) -> None:
        super().write()
        if self.world.rng.random() < 0.6:
            self.change(self.world.rng.choice([None, DEAD, "other1"]))

    def check(self) -> None:
        self.change("other1")
        for _ in range(200):
            seqs = self.claim()
            found = [record for name in (DEAD, "other1") for record in self.read(name)]
            moved = [int(record["meta"]["$dead_letter_src_seq"]) for record in found]
            assert not set(seqs or ()) & set(moved), "a job is delivered, and a dead letter, too"
            self.nack(seqs or [])
            if not self.count():
                break
            self.world.some(400)
        found = [record for name in (DEAD, "other1") for record in self.read(name)]
        data = [record["data"] for record in found]
        assert len(set(data)) == len(data), "a dead letter is there twice"
        acknowledged = {
            number for numbers, each in self.asked if each.given and not is_error(each) for number in numbers
        }
        assert acknowledged <= set(data), "a job is lost"

    def read(self, name: str) -> list[dict[str, Any]]:
        is_there = name in self.world.worlds[core_of(name)].stored.registry.by_name
        return self.world.read(name) if is_there else []


def is_error(answer: Answer) -> bool:
    return isinstance(answer.results[0], TopicsError)


@pytest.mark.parametrize("seed", seeds(30))
def test_jobs_go_to_one_topic_each_while_the_queue_names_others(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    world = Cores(seed, router_retry_ms=2)
    queue = ChangedQueue(world, durability=world.rng.choice(["disk", "fsync"]), leases_durable=True)
    restart = world.restart

    def restarted(core: int, **how: Any) -> None:
        restart(core, **how)
        # else one that was called off may be executed after it is not known any more that it was
        world.asked = [each for each in world.asked if each.core != core or each.done is not None]

    monkeypatch.setattr(world, "restart", restarted)
    lives(queue, cuts_power=False)
