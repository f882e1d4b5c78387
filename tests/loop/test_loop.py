"""The pass: order of its stages, waits, hooks, errors, stats, work from threads."""

from __future__ import annotations

import pytest

from tests.loop.fake_ring import Call, FakeRing, fake_loop
from tests.loop.handlers import Recorder
from topics.loop.connection import Connection
from topics.loop.loop import Loop, PassEnd
from topics.loop.ring import F_MORE
from topics.loop.senders import ONE_SENDER_PASSES


def test_a_pass_runs_completions_then_timers_then_ready_work_then_hooks_in_their_order() -> None:
    loop, ring = fake_loop()
    order: list[str] = []
    loop.on_pass_end(lambda: order.append("commits"), PassEnd.COMMITS)
    loop.on_pass_end(lambda: order.append("waiters"), PassEnd.WAITERS)
    loop.call_later(0, lambda: order.append("timer"))
    loop.call_soon(lambda: order.append("ready"))
    loop.files.write_nowait(5, b"x", 0, lambda res: order.append("completion"))
    ring.complete(ring.one("write"), 1)
    loop.run_pass(None)
    assert order == ["completion", "timer", "ready", "waiters", "commits"]


def test_a_pass_has_one_number_in_all_its_parts() -> None:
    """A budget of a pass would be spent twice by a receive and the hooks after it."""
    loop, ring = fake_loop()
    numbers: list[int] = []
    handler = Recorder()
    handler.on_receive = lambda conn, data: numbers.append(loop.passes)
    loop.on_pass_end(lambda: numbers.append(loop.passes), PassEnd.WAITERS)
    loop.listen("127.0.0.1", 0, handler)
    ring.complete(ring.one("accept"), 10, 0)
    loop.run_pass(0)
    (receive,) = ring.take("recv")

    def numbers_of_a_pass() -> list[int]:
        numbers.clear()
        ring.receive(receive, b"x")
        loop.run_pass(0)
        return numbers.copy()

    assert numbers_of_a_pass() == [1, 1], "a receive by itself"
    loop.call_later(0, lambda: numbers.append(loop.passes))
    loop.call_soon(lambda: numbers.append(loop.passes))
    assert numbers_of_a_pass() == [2, 2, 2, 2]
    assert loop.passes == 3


def test_what_a_completion_makes_ready_runs_in_the_same_pass() -> None:
    loop, ring = fake_loop()
    loop.files.write_nowait(5, b"x", 0, lambda res: loop.call_soon(loop.stop))
    ring.complete(ring.one("write"), 1)
    loop.run()
    assert loop.stats().passes == 1


def test_work_from_another_thread_wakes_the_ring_and_is_run() -> None:
    loop, ring = fake_loop()
    ran: list[int] = []
    loop.call_soon_threadsafe(lambda: ran.append(1))
    assert ring.woken == 1
    loop.run_pass(None)
    assert (ran, ring.waits) == ([1], [0])


def test_a_hook_that_asks_for_another_pass_gets_one_without_a_wait_or_after_its_time() -> None:
    loop, ring = fake_loop()
    after = [0, 5]

    def ask() -> None:
        if after:
            loop.another_pass(after.pop(0))

    loop.on_pass_end(ask, PassEnd.TURNS)
    for _ in range(4):
        loop.run_pass(1_000_000)
    assert ring.waits == [1_000_000, 0, 5, 1_000_000]


class Settling(Recorder):
    """A handler that leaves no work to the hooks, unless it writes."""

    settles = False
    """Whether it settles several receives, too."""

    def receive(self, batch: list[tuple[Connection, memoryview]]) -> bool:
        super().receive(batch)
        return self.settles

    def receive_single(self, conn: Connection, view: memoryview) -> bool:
        self.receive([(conn, view)])
        return True


def settled_connection() -> tuple[Loop, FakeRing, Settling, Call]:
    """A loop with one connection, whose receives its handler settles, and their operation in the ring."""
    loop, ring = fake_loop()
    handler = Settling()
    loop.listen("127.0.0.1", 0, handler)
    ring.complete(ring.one("accept"), 10, F_MORE)
    loop.run_pass(0)
    return loop, ring, handler, ring.one("recv")


def test_a_receive_that_its_handler_has_settled_needs_no_hooks_unless_the_pass_has_other_work() -> None:
    loop, ring = fake_loop()
    handler, ran = Settling(), list[str]()
    loop.listen("127.0.0.1", 0, handler)
    for fd in (10, 11):
        ring.complete(ring.one("accept"), fd, 0)
        loop.run_pass(0)
    first, second = ring.take("recv")
    loop.on_pass_end(lambda: ran.append("hook"), PassEnd.WAITERS)

    def hooks_of_a_pass() -> int:
        ran.clear()
        loop.run_pass(0)
        return len(ran)

    ring.receive(first, b"x")
    assert hooks_of_a_pass() == 0
    ring.receive(first, b"x")
    ring.receive(second, b"y")
    assert hooks_of_a_pass() == 1, "another receive, of which nothing is known"
    loop.call_later(0, lambda: None)
    ring.receive(first, b"x")
    assert hooks_of_a_pass() == 1, "a timer"
    loop.call_soon(lambda: None)
    ring.receive(first, b"x")
    assert hooks_of_a_pass() == 1, "ready work"
    loop.files.write_nowait(5, b"x", 0, lambda res: None)
    ring.complete(ring.one("write"), 1)
    ring.receive(first, b"x")
    assert hooks_of_a_pass() == 1, "a completion"
    handler.on_receive = lambda conn, data: conn.write(b"answer")
    ring.receive(second, b"y")
    assert hooks_of_a_pass() == 1, "bytes to send"
    assert ring.one("send").arguments[1] == b"answer"


def test_a_reader_that_waits_for_the_only_sender_is_sent_to_in_place_in_each_pass() -> None:
    loop, ring = fake_loop()
    handler, conns = Settling(), list[Connection]()
    loop.listen("127.0.0.1", 0, handler)
    accept = ring.one("accept")
    for fd in (10, 11):
        ring.complete(accept, fd, F_MORE)
        loop.run_pass(0)
        conns.append(handler.conn)
    sender = ring.take("recv")[0]
    for _ in range(ONE_SENDER_PASSES):
        ring.receive(sender, b"x")
        loop.run_pass(None)
    handler.on_receive = lambda conn, data: conns[1].write(b"told")
    for times in (1, 2, 3):
        ring.takes_now = [4]
        ring.receive(sender, b"x")
        loop.run_pass(None)
        assert ring.sent_now == times * [(11, b"told")]


def test_a_receive_that_its_handler_has_settled_is_a_request_besides_writes() -> None:
    loop, ring, handler, recv = settled_connection()
    ring.receive(recv, b"the head of a request")
    loop.run_pass(None)
    assert loop.requests_besides_writes == 0, "nothing is answered yet"
    handler.on_receive = lambda conn, data: conn.write(b"answer")
    ring.receive(recv, b"its body")
    loop.run_pass(None)
    assert loop.requests_besides_writes == 1


def test_receives_of_several_that_their_handlers_have_settled_need_no_hooks() -> None:
    loop, ring = fake_loop()

    class SettlesAll(Recorder):
        settles = True

        def receive(self, batch: list[tuple[Connection, memoryview]]) -> bool:
            super().receive(batch)
            return self.settles

    handlers, ran, recvs = [SettlesAll(), SettlesAll()], list[str](), []
    for handler in handlers:
        loop.listen("127.0.0.1", 0, handler)
        accept = ring.one("accept")
        for fd in (10, 11):
            ring.complete(accept, fd, F_MORE)
            loop.run_pass(0)
            recvs.append(ring.one("recv"))
    loop.on_pass_end(lambda: ran.append("hook"), PassEnd.WAITERS)

    def hooks_of_a_pass() -> int:
        ran.clear()
        for recv in recvs:
            ring.receive(recv, b"x")
        loop.run_pass(0)
        return len(ran)

    assert hooks_of_a_pass() == 0
    for handler in handlers:
        handler.settles = False
        assert hooks_of_a_pass() == 1, "one of them has left work"
        handler.settles = True
    handlers[0].on_receive = lambda conn, data: conn.write(b"answer")
    assert hooks_of_a_pass() == 1, "bytes to send"


def test_all_but_receives_one_by_one_and_sends_that_left_nothing_count_as_interruptions() -> None:
    loop, ring, handler, recv = settled_connection()

    def interrupts(timeout_ns: int | None = None) -> bool:
        before = loop.interruptions
        loop.run_pass(timeout_ns)
        return loop.interruptions != before

    for _ in range(3):
        ring.receive(recv, b"x")
        assert not interrupts()
    loop.call_soon(lambda: None)
    assert interrupts()
    loop.call_later(0, lambda: None)
    assert interrupts()
    handler.settles = True
    for _ in range(2):
        ring.receive(recv, b"x")
    assert interrupts(), "two receives are a batch"
    handler.on_receive = lambda conn, data: conn.write(b"answer")
    ring.receive(recv, b"x")
    assert interrupts(), "bytes to send"
    handler.on_receive = lambda conn, data: None
    loop.run_pass(0)
    ring.complete(ring.one("send"), 3)
    assert interrupts(), "a short send"
    before = loop.interruptions
    loop.turn()
    assert loop.interruptions != before


def test_receives_and_turns_are_arrivals_and_what_the_loop_asked_for_itself_is_none() -> None:
    loop, ring, handler, recv = settled_connection()
    handler.settles = True
    before = loop.arrivals
    for count in (1, 2):
        for _ in range(count):
            ring.receive(recv, b"x")
        loop.run_pass(0)
    assert loop.arrivals == before + 3
    loop.call_soon(lambda: None)
    loop.call_later(0, lambda: None)
    loop.files.write_nowait(5, b"x", 0, lambda res: None)
    ring.complete(ring.one("write"), 1)
    loop.run_pass(0)
    assert loop.arrivals == before + 3
    loop.turn()
    assert loop.arrivals == before + 4


@pytest.mark.parametrize("comes_along", [False, True])
def test_sends_that_have_completed_interrupt_nothing_by_themselves_and_beside_a_receive(comes_along: bool) -> None:
    loop, ring, handler, recv = settled_connection()
    for _ in range(3):
        handler.conn.write(b"x")
        loop.run_pass(0)
        before, received = loop.interruptions, handler.data()
        ring.complete(ring.one("send"), 1)
        if comes_along:
            ring.receive(recv, b"y")
        loop.run_pass(None)
        assert loop.interruptions == before
        assert handler.data() == received + b"y" * comes_along
    handler.conn.write(b"x")
    loop.run_pass(0)
    before = loop.interruptions
    handler.on_receive = lambda conn, data: conn.write(b"answer")
    ring.complete(ring.one("send"), 1)
    ring.receive(recv, b"y")
    loop.run_pass(None)
    assert loop.interruptions != before, "the end of the pass had work"


def test_a_receive_that_is_left_by_its_handler_is_dispatched_in_the_same_pass_and_offered_once() -> None:
    loop, ring = fake_loop()
    offered = list[bytes]()

    class Leaving(Recorder):
        def receive_single(self, conn: Connection, view: memoryview) -> None:
            offered.append(bytes(view))

    handler, ran = Leaving(), list[str]()
    loop.listen("127.0.0.1", 0, handler)
    ring.complete(ring.one("accept"), 10, F_MORE)
    loop.run_pass(0)
    recv = ring.one("recv")
    loop.on_pass_end(lambda: ran.append("hook"), PassEnd.WAITERS)
    for text in (b"a", b"b", b"c"):
        ring.receive(recv, text)
        loop.run_pass(None)
    ring.receive(recv, b"d")
    loop.run_pass(0)
    assert offered == [b"a", b"b", b"c", b"d"]
    assert handler.data() == b"abcd"
    assert ran == ["hook"] * 4
    assert ring.recycled == [1, 2, 3, 4]
    assert loop._senders._passes_of_one == 3, "each pass was counted once"


def test_a_receive_left_by_its_handler_is_no_lone_one_if_others_come_meanwhile() -> None:
    """Its connection counted as the only sender of the pass."""
    loop, ring = fake_loop()

    class Leaving(Recorder):
        def receive_single(self, conn: Connection, view: memoryview) -> None:
            ring.receive(second, b"y")

    handler = Leaving()
    loop.listen("127.0.0.1", 0, handler)
    for fd in (10, 11):
        ring.complete(ring.one("accept"), fd, 0)
        loop.run_pass(0)
    first, second = ring.take("recv")
    for _ in range(ONE_SENDER_PASSES + 2):
        ring.receive(first, b"x")
        loop.run_pass(None)
        assert not loop.has_one_sender()
    assert handler.data() == b"xy" * (ONE_SENDER_PASSES + 2)


def test_timers_and_work_from_threads_are_not_held_up_by_receives_that_come_one_by_one() -> None:
    loop, ring = fake_loop()
    handler, ran = Settling(), list[str]()
    loop.listen("127.0.0.1", 0, handler)
    ring.complete(ring.one("accept"), 10, F_MORE)
    loop.run_pass(0)
    recv = ring.one("recv")

    def receive() -> None:
        ring.receive(recv, b"x")
        loop.run_pass(None)

    loop.call_later(0, lambda: ran.append("timer"))
    receive()
    assert ran == ["timer"]
    loop.call_soon_threadsafe(lambda: ran.append("thread"))
    receive()
    assert ran == ["timer", "thread"]
    handler.on_receive = lambda conn, data: loop.call_soon(lambda: ran.append("task"))
    receive()
    handler.on_receive = lambda conn, data: None
    receive()
    assert ran == ["timer", "thread", "task"], "in the pass after the receive"


def test_a_handler_that_fails_or_closes_in_the_only_receive_of_a_pass_is_followed_by_the_hooks() -> None:
    loop, ring = fake_loop()
    handler, ran = Settling(), list[str]()
    loop.listen("127.0.0.1", 0, handler)
    ring.complete(ring.one("accept"), 10, F_MORE)
    loop.run_pass(0)
    recv = ring.one("recv")
    loop.on_pass_end(lambda: ran.append("hook"), PassEnd.WAITERS)

    def fail(conn: Connection, data: bytes) -> None:
        raise ValueError("receive")

    handler.on_receive = fail
    ring.receive(recv, b"x")
    with pytest.raises(ValueError, match="receive"):
        loop.run_pass(None)
    assert ran == ["hook"]
    handler.on_receive = lambda conn, data: conn.pause_reading()
    ring.receive(recv, b"y")
    loop.run_pass(None)
    ring.receive(recv, b"z")
    loop.run_pass(None)
    assert handler.data() == b"xy", "what comes while reading is paused is held"
    handler.conn.resume_reading()
    loop.run_pass(None)
    assert handler.data() == b"xyz"


def test_a_failing_hook_lets_the_others_run_and_is_raised_at_the_end_of_the_pass() -> None:
    loop, _ = fake_loop()
    ran: list[int] = []

    def fails() -> None:
        raise ValueError("hook")

    loop.on_pass_end(fails, PassEnd.WAITERS)
    loop.on_pass_end(lambda: ran.append(1), PassEnd.COMMITS)
    with pytest.raises(ValueError, match="hook"):
        loop.run_pass(0)
    assert (ran, loop.stats().callback_errors) == ([1], 1)


def test_stats_count_passes_and_time_their_stages() -> None:
    loop, _ = fake_loop()
    loop.call_later(1_000, lambda: None)
    loop.run_pass(None)
    stats = loop.stats()
    assert stats.numbers()["passes"] == 1
    assert stats.wait.total_ns == 1_000
    assert stats.stages()["tasks"].count == 1


def test_completed_sends_alone_do_not_make_a_pass_of_run() -> None:
    loop, ring = fake_loop()
    handler = Recorder()
    loop.listen("127.0.0.1", 0, handler)
    ring.complete(ring.one("accept"), 10, F_MORE)
    loop.run_pass(0)
    handler.conn.write(b"x")
    loop.run_pass(0)
    ring.complete(ring.one("send"), 1)
    passes = loop.stats().passes
    loop.call_later(1_000, loop.stop)
    loop.run()
    assert loop.stats().passes == passes + 1, "the timer's"
    assert handler.conn.outbound_bytes == 0
