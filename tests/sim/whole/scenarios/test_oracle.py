"""The clients' oracle: a server that is right must not be found wrong."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from tests.sim.whole.clients.checkpoints import Checkpoints
from tests.sim.whole.clients.forwarding_clients import Forwarding
from tests.sim.whole.clients.operation import Configure, DeleteRecords, Drop, Flush, Inconsistent, Look, Maybe, Write
from tests.sim.whole.clients.owned import OwningClient, _may_follow, _never_begun
from tests.sim.whole.clients.owned_topic import OwnedTopic
from tests.sim.whole.clients.reader_clients import Reading
from tests.sim.whole.clients.state import CONFIG_DEFAULT, Part, Record, State
from tests.sim.whole.clients.waiting import Waiting
from tests.sim.whole.clients.watching import Event, Watching
from tests.sim.whole.clients.workers import Workers
from tests.sim.whole.machine import Machine
from tests.sim.whole.rebuilt import _has_lower_limit
from tests.sim.whole.seed_plan import LONGEST_SHORT_LOG
from topics.config import Config
from topics.engine.state import topic_numbers
from topics.engine.values.topic_config import TopicConfig


def a_topic(**config: Any) -> OwnedTopic:
    topic = OwnedTopic("a")
    topic.states = [State(CONFIG_DEFAULT | config, 1)]
    topic.instance = 1
    return topic


def a_write(*texts: str) -> Write:
    return Write([Record(text, None) for text in texts], None, None)


def test_what_is_asked_behind_a_write_may_have_taken_its_records_before_the_answer_came() -> None:
    """Clients that stall take it when a checkpoint has recycled the log after the delete."""
    for later in (DeleteRecords(2, None), Drop(), Configure(CONFIG_DEFAULT | {"cap_records": 1})):
        assert not a_topic().keeps([a_write("behind"), later])
    assert not a_topic(cap_records=1).keeps([a_write("behind")])
    assert a_topic(cap_records=1).keeps([Look()])
    assert a_topic().keeps([a_write("behind"), Look()])


def test_of_writes_that_failed_any_number_may_have_taken_seqs() -> None:
    topic = a_topic()
    topic.burn([a_write("1", "2"), a_write("3")])
    topic.limbo = [a_write("there")]
    heads = {state.head for state in topic.possible() if state is not None}
    assert heads == {0, 1, 2, 3, 4}


def test_a_write_that_found_no_file_may_be_missing_before_one_that_did() -> None:
    topic = a_topic()
    topic.limbo = [a_write("first"), a_write("second")]
    texts = [[record.data for record in state.records.values()] for state in topic.possible() if state is not None]
    assert ["second"] not in texts
    topic.refuses = True
    found = [(state.head, [record.data for record in state.records.values()]) for state in topic.possible() if state]
    assert (1, ["second"]) in found
    assert (2, ["second"]) in found


def test_what_a_power_cut_skips_is_at_most_a_reservation_above_what_was_given_out() -> None:
    """R-DUR-6."""
    topic = a_topic()
    state = State(CONFIG_DEFAULT, 1).write([Record("there", None)] * 1000, None)
    topic.burn([a_write("1", "2")])
    topic.limbo = [a_write("3")]
    assert topic.reserved_most([None, state]) == 1003 + 1003 // 2
    assert topic.reserved_most([None]) == 3 + topic_numbers._RESERVE_MIN


def test_ways_to_equal_states_are_one() -> None:
    """Each of many changes may have happened or not: the ways double with each, the states do not."""
    applied: list[Maybe] = []

    class Counted(Drop):
        def apply(self, state: Maybe, instance: int, burned: int = 0) -> list[Maybe]:
            applied.append(state)
            return super().apply(state, instance, burned)

    topic = a_topic()
    topic.refuses = True
    topic.limbo = [Counted(), Configure(CONFIG_DEFAULT)] * 20
    assert len(topic.possible()) == 3
    assert len(applied) <= 3 * 20


def test_a_log_is_short_where_its_bound_is_met_and_no_longer() -> None:
    """Faults that are excused for it (refused appends, routers that stand still) is excused in no other life."""
    for max_log_bytes, is_short in (
        (0, False),
        (4096, True),
        (LONGEST_SHORT_LOG, True),
        (LONGEST_SHORT_LOG + 1, False),
    ):
        machine = Machine.__new__(Machine)
        machine.config = replace(Config(), max_log_bytes=max_log_bytes)
        assert machine.log_is_short == is_short


@pytest.mark.parametrize("few", [False, True])
def test_news_that_comes_late_is_wrong_unless_descriptors_are_few(few: bool) -> None:
    """R-WAIT-5: only then a router may wait a second for the next log file."""

    class LateError(Exception):
        pass

    machine: Any = SimpleNamespace(
        descriptors_are_few=few,
        ring=SimpleNamespace(sync_factor=1),
        waited_ns=lambda: 10_000_000_000,
        wrong=LateError,
        on_changed=[],
    )
    (waiter, _) = Waiting(machine, random.Random(0), ["a"]).waiters
    waiter.due_ns = 1
    waiter.wire = SimpleNamespace()  # type: ignore[assignment]  # connected
    if few:
        waiter.check_late()
        return
    with pytest.raises(LateError, match="waits 10000 ms"):
        waiter.check_late()


@pytest.mark.parametrize("others", [0, 1])
def test_a_page_given_back_that_another_read_may_have_is_not_missing(others: int) -> None:
    """R-READER-10: the server may take the later of two reads first."""

    class WrongError(Exception):
        pass

    def answer_to(wire: Any) -> Any:
        return wire.ask.call_args_list[0].args[3]

    clock = SimpleNamespace(monotonic_ns=lambda: 1, now_ms=lambda: 1)
    ring = SimpleNamespace(clock=clock, events=Mock())
    counts: Counter[str] = Counter()
    machine: Any = SimpleNamespace(
        ring=ring, wrong=WrongError, counts=counts, tracing=False, generation=0, operations=0
    )
    machine.is_elsewhere = lambda _status, _answer: False
    reading = Reading(machine, random.Random(0))
    topic = reading.topics[0]
    reader = topic.readers[0]
    topic.texts.add("~5~")
    reader.back = 4, 1
    wires = [Mock() for _ in range(1 + others)]
    client: Any
    for client, wire in zip(reading.clients, wires, strict=False):
        client._read(wire, topic, reader, [])
    page = {"records": [{"$seq": 5, "data": "~5~"}], "tombstone": None, "token": "a", "deadline": 9, "next_from_seq": 5}
    if others:
        answer_to(wires[0])(200, page)
        return
    with pytest.raises(WrongError, match="4 was given back, and 5 comes first"):
        answer_to(wires[0])(200, page)


@pytest.mark.parametrize("under_way", [[], [Drop(), Look()]])
def test_files_are_not_compared_with_a_topic_whose_delete_is_under_way(under_way: list[Any]) -> None:
    """The server may have created it again: its id is of the next topic, what is known of the last."""
    topic = a_topic()
    client = Mock(spec=OwningClient, under_way=lambda _: under_way)
    owner: Any = SimpleNamespace(clients=[client], topics=[topic])
    machine: Any = Mock(spec=Machine)
    machine.home.return_value.engine = SimpleNamespace(
        _core=SimpleNamespace(registry=SimpleNamespace(visible=lambda _: Mock(id=12)))
    )
    asking: Any = Checkpoints(machine, random.Random(0), [owner]).clients[0]
    assert [before.topic for before in asking._look()] == ([] if under_way else [topic])


@pytest.mark.parametrize(("failed_ns", "is_right"), [(9, False), (11, True)])
def test_writes_that_fail_take_room_until_then(failed_ns: int, is_right: bool) -> None:
    """R-CAP-5: asked at 10, a write finds the room taken by those that fail at 11."""
    topic = a_topic(cap_records=2, discard="reject")
    topic.failed = [(a_write("1"), failed_ns), (a_write("2"), failed_ns)]
    assert topic.was_full(a_write("3"), 10) == is_right
    assert not topic.was_full(Look(), 10)
    assert not a_topic(cap_records=3, discard="reject").was_full(a_write("3"), 10)


def test_a_part_is_not_sent_beside_a_newer_epoch_that_may_fail() -> None:
    """R-PROD-3: whether it is too old would depend on that one."""
    part = Part("p", 3, 0)
    assert [_may_follow(part, other) for other in (part, Part("p", 4, 0), Part("q", 4, 0), Part("p", 3, 1))] == [
        False,
        False,
        True,
        True,
    ]


def test_a_topic_that_was_created_again_meanwhile_may_have_its_first_record_later() -> None:
    """R-REC-2: a watcher that comes back hears of the first at once, and of records when there are any."""
    machine: Any = Mock(spec=Machine, counts=Counter(), wrong=AssertionError)
    watcher = Watching(machine, random.Random(0)).watcher
    watcher.at, watcher.resumed = {"w": (1, 1)}, {"w"}
    row = {"$seq": 1, "data": "w/2/1"}
    for name, told in (
        ("tombstone", {"reason": "recreated"}),
        ("caught-up", {}),
        ("record", {"from_seq": 0, "to_seq": 1, "records": [row]}),
    ):
        watcher._event(Event(name, {"topic": "w", **told}, {}))
    assert watcher.at == {"w": (2, 1)}


def test_pauses_that_the_simulator_chose_are_no_time_that_a_call_took() -> None:
    machine = Machine.__new__(Machine)
    machine.ring = SimpleNamespace(clock=SimpleNamespace(monotonic_ns=lambda: 100))  # type: ignore[assignment]
    machine.meanwhile_ns = 40
    assert machine.waited_ns() == 60


def test_a_write_for_which_the_format_was_not_raised_is_not_before_those_that_follow() -> None:
    told = {"message": "storage failed: the format of the data directory could not be raised: (a file)", "detail": {}}
    assert _never_begun(told)
    assert not _never_begun({"message": "storage failed: a sync failed", "detail": {}})


def test_a_flush_behind_a_delete_may_name_a_seq_of_the_topic_before() -> None:
    (state,) = a_topic().states
    assert Flush(42).answered(state, 1, 0, 400, {}) == [state]
    with pytest.raises(Inconsistent, match="status is 200, not 400"):
        Flush(42).answered(state, 1, 0, 200, {"synced_seq": 0})


@pytest.mark.parametrize(
    ("stated", "last", "is_lower"),
    [
        ({"cap_records": 1}, {"cap_records": 1}, False),
        ({"cap_records": 1}, {"cap_records": 2}, True),
        ({"cap_records": 2}, {"cap_records": 1}, False),
        ({"cap_records": 1}, {"cap_records": 1, "discard": "reject"}, True),
        ({"cap_records": 1, "discard": "reject"}, {"cap_records": 2}, False),
        ({"cap_bytes": 9}, {}, True),
        ({"ttl_ms": 9}, {"ttl_ms": 0, "discard": "reject"}, True),
        ({"ttl_ms": 0}, {"ttl_ms": 9}, False),
    ],
)
def test_a_config_that_a_file_states_may_remove_what_a_later_one_kept(
    stated: dict[str, Any], last: dict[str, Any], is_lower: bool
) -> None:
    assert _has_lower_limit(TopicConfig(**stated), TopicConfig(**last)) == is_lower


@pytest.mark.parametrize(
    ("leaving", "told_of", "rest", "problem"),
    [
        (0, [1], [], "holds 2 jobs, told of 1"),
        (1, [0], [], "holds 2 jobs, told of 0"),
        (1, [1, 1], ["b"], ""),
        (1, [1], ["a", "b"], "holds 2 jobs, and told of 1 before"),
    ],
)
def test_a_count_below_the_jobs_that_were_read_is_of_jobs_that_left(
    leaving: int, told_of: list[int], rest: list[str], problem: str
) -> None:
    """R-CORE-15: no more than were on their way, and they are gone when the queue is read again."""
    counts: Counter[str] = Counter()
    machine: Any = Mock(counts=counts, wrong=AssertionError, has_cores=True, power_failed=False, io_failed=False)
    machine.home.return_value.engine.moving_jobs.return_value = leaving
    machine.ring.clock.now_ms.return_value = 1
    workers = Workers(machine, random.Random(0))
    (queue, *_) = workers.queues
    queue.dead_letters, queue.exists, queue.leases_durable, queue.maybe = "q-dead", True, False, {"a", "b"}
    jobs, told = iter([["a", "b"], rest]), iter(told_of)

    def answer(method: str, path: str) -> Any:
        if method == "GET":
            count = next(told)
            return {"count": count, "queue": {"ready": count, "in_flight": 0}, "config": {"leases_durable": False}}
        found = [] if "dead" in path else next(jobs)
        rows = [{"$seq": ord(text), "data": text} for text in found]
        return {"records": rows, "tombstone": None, "next_from_seq": 9, "head_seq": 9, "caught_up": True}

    def run() -> None:
        (script,) = workers.audits_at(lambda path: path == queue.path)
        request = next(script)
        with suppress(StopIteration):
            while True:
                request = script.send((200, answer(*request[:2])))

    if problem:
        with pytest.raises(AssertionError, match=problem):
            run()
    else:
        run()
    assert counts["audits during which jobs left for another core"] == bool(rest)


@pytest.mark.parametrize("is_excused", [False, True])
def test_a_copy_is_missing_at_a_stop_if_its_router_is_on_one_core(is_excused: bool) -> None:
    """R-CORE-12: of a server of several cores, too; only between two cores it may come later."""
    machine: Any = Mock(wrong=AssertionError, has_cores=True, stopping=True, log_was_long=False)
    machine.name_of.side_effect = lambda name: name
    machine.are_apart.return_value = is_excused
    forwarding = Forwarding(machine, random.Random(0))
    forwarding.written["~1~"] = 1
    check = partial(cast("Any", forwarding.clients[1])._check, {"~1~"}, {"records": [], "caught_up": True})
    if is_excused:
        check(is_whole=True)
        return
    with pytest.raises(AssertionError, match="acknowledged before the read, and not forwarded"):
        check(is_whole=True)
