"""Connections on a scripted ring: sends, back-pressure, pauses, and the close that waits for its own operations."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator

import pytest

from tests.amount import seeds
from tests.loop.fake_ring import Call, fake_loop
from tests.loop.handlers import Recorder
from topics.common import memory
from topics.common.memory import MemoryReturns
from topics.loop import Connection, StreamLimits
from topics.loop.connection import LARGE_BYTES, LINGER_NS, PIECE_BYTES, PROBE_BYTES, Row
from topics.loop.ring import F_MORE
from topics.loop.senders import ONE_SENDER_PASSES
from topics.loop.traffic import LARGE_SENDS_BYTES

LIMITS = StreamLimits(send_high_water_bytes=100, send_low_water_bytes=40)


class Setup:
    """A listener with one connection whose receive is armed."""

    def __init__(self) -> None:
        self.loop, self.ring = fake_loop()
        self.handler = Recorder()
        self.listener = self.loop.listen("127.0.0.1", 0, self.handler, limits=LIMITS)
        self.accept = self.ring.one("accept")
        self.conn, self.recv = self.open(10)

    def open(self, fd: int) -> tuple[Connection, Call]:
        self.ring.complete(self.accept, fd, F_MORE)
        self.loop.run_pass(0)
        self.handler.take()
        return self.handler.conn, self.ring.one("recv")

    def run(self) -> list[tuple[object, ...]]:
        self.loop.run_pass(0)
        return self.handler.take()


@pytest.fixture
def on() -> Setup:
    return Setup()


def test_all_writes_of_a_pass_leave_in_one_send(on: Setup) -> None:
    on.conn.write(b"a")
    on.conn.write(b"")
    on.conn.write(b"b")
    assert on.conn.outbound_bytes == 2
    on.run()
    send = on.ring.one("send")
    assert send.arguments == (10, b"ab")
    on.conn.write(b"c")
    on.run()
    assert on.ring.take("send") == [], "one send in flight"
    on.ring.complete(send, 2)
    on.run()
    assert on.ring.one("send").arguments == (10, b"c")


def test_the_rest_of_a_short_send_goes_before_anything_newer(on: Setup) -> None:
    on.conn.write(b"abcdef")
    on.run()
    on.conn.write(b"gh")
    on.ring.complete(on.ring.one("send"), 2)
    on.run()
    send = on.ring.one("send")
    assert send.arguments == (10, b"cdefgh")
    on.ring.complete(send, 6)
    on.run()
    assert on.conn.outbound_bytes == 0


def test_what_is_large_leaves_by_itself_so_that_others_may_send_the_same_bytes(on: Setup) -> None:
    large = bytes(LARGE_BYTES)
    for part in (b"a", b"b", large, b"c", b"d"):
        on.conn.write(part)
    assert on.conn.large_sends() == [large]
    on.run()
    on.ring.complete(on.ring.one("send"), 2)
    on.ring.takes_now = [-errno.EAGAIN]
    on.run()
    (_start, probe) = on.ring.sent_now[0][1][:2], on.ring.one("send")
    assert probe.arguments == (10, large[:PROBE_BYTES])
    assert all(isinstance(part, memoryview) and part.obj is large for part in on.conn.large_sends()), "no copy"
    on.ring.complete(probe, PROBE_BYTES)
    on.ring.takes_now = [LARGE_BYTES - PROBE_BYTES]
    on.ring.sent_now.clear()
    on.run()
    assert on.ring.one("send").arguments == (10, large[PROBE_BYTES:] + b"cd"), "it is not large any more"


def test_a_large_send_takes_what_the_socket_takes_at_once_and_its_end_goes_with_what_follows(on: Setup) -> None:
    large = bytes(3 * LARGE_BYTES)
    on.ring.takes_now = [LARGE_BYTES, 2 * LARGE_BYTES - PROBE_BYTES]
    on.conn.write(large)
    on.conn.write(b"end")
    on.run()
    probe = on.ring.one("send")
    assert probe.arguments == (10, bytes(PROBE_BYTES))
    assert [len(part) for part in on.conn.large_sends()] == [PROBE_BYTES, 2 * LARGE_BYTES - PROBE_BYTES]
    on.run()
    assert len(on.ring.sent_now) == 1, "nothing more before there is room"
    on.ring.complete(probe, PROBE_BYTES)
    on.run()
    assert on.ring.sent_now[1] == (10, bytes(2 * LARGE_BYTES - PROBE_BYTES))
    on.run()
    assert on.ring.one("send").arguments == (10, b"end")
    assert on.conn.outbound_bytes == 3


@pytest.mark.parametrize("taken", [0, 10, LARGE_BYTES - 10])
def test_full_sockets_leave_the_ring_a_few_bytes_each_however_much_they_are_sent(on: Setup, taken: int) -> None:
    """The kernel copies what the ring has as soon as readers read again, for all of them in one wait."""
    large = bytes(8 << 20)
    connections = [on.conn] + [on.open(fd)[0] for fd in range(11, 60)]
    on.ring.takes_now = [taken or -errno.EAGAIN] * 1000
    for conn in connections:
        conn.write(large)
    on.run()
    on.run()
    sends = on.ring.take("send")
    assert len(sends) == len(connections)
    assert {len(send.arguments[1]) for send in sends} == {PROBE_BYTES}
    on.ring.takes_now = []


def test_large_sends_take_turns_of_so_many_bytes_a_pass_and_small_ones_do_not_wait(on: Setup) -> None:
    large = bytes(LARGE_SENDS_BYTES // 10)
    connections = [on.conn] + [on.open(fd)[0] for fd in range(11, 36)]
    for conn in connections[:-1]:
        conn.write(large)
    connections[-1].write(b"small")
    on.ring.takes_now = [len(large)] * 25
    on.run()
    assert [fd for fd, _data in on.ring.sent_now] == list(range(10, 20))
    assert on.ring.one("send").arguments == (35, b"small")
    assert on.loop._wait_ns(None, 0) == 0, "the others wait for nothing"
    connections[11].abort()
    on.run()
    assert [fd for fd, _data in on.ring.sent_now[10:]] == [20, *range(22, 31)], "less one that is gone"
    on.run()
    assert [fd for fd, _data in on.ring.sent_now[20:]] == [31, 32, 33, 34]
    assert not any(conn.outbound_bytes for conn in connections[:-1])


def test_large_sends_go_on_though_only_a_small_one_has_completed(on: Setup) -> None:
    large = bytes(LARGE_SENDS_BYTES)
    connections = [on.conn] + [on.open(fd)[0] for fd in range(11, 21)]
    connections[0].write(b"small")
    for conn in connections[1:]:
        conn.write(large)
    on.ring.takes_now = [PIECE_BYTES] * 1000
    on.run()
    assert [fd for fd, _data in on.ring.sent_now] == [11, 12, 13, 14], "a piece each, in turn"
    on.ring.complete(on.ring.one("send"), 5)
    on.run()
    assert [fd for fd, _data in on.ring.sent_now[4:]] == [15, 16, 17, 18]
    for _ in range(100):
        on.run()
    assert not any(conn.outbound_bytes for conn in connections)
    on.ring.takes_now = []


def test_who_is_drained_by_a_large_send_hears_of_it_though_nothing_completes(on: Setup) -> None:
    on.ring.takes_now = [LARGE_BYTES]
    on.conn.write(bytes(LARGE_BYTES))
    assert on.conn.over_high_water
    on.run()
    assert not on.conn.over_high_water
    assert on.loop._wait_ns(None, 0) == 0
    assert on.run() == [("drained", on.conn.id)]


def test_an_error_of_a_large_send_ends_the_connection(on: Setup) -> None:
    on.ring.takes_now = [-errno.EPIPE]
    on.conn.write(bytes(LARGE_BYTES))
    on.run()
    on.ring.complete(on.ring.one("send"), -errno.EPIPE)
    on.ring.answers["cancel"] = lambda target: 0
    on.run()
    assert on.conn.outbound_bytes == 0
    on.ring.complete(on.recv, -errno.ECANCELED)
    assert [*on.run(), *on.run(), *on.run()] == [("lost", on.conn.id, errno.EPIPE)]


@pytest.mark.parametrize("sent", [False, True])
def test_the_answers_of_many_connections_are_freed_in_steps_whether_sent_or_not(
    on: Setup, sent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_returns", None)
    returns = MemoryReturns(on.loop.call_later)
    freed = [0]

    class Answer(bytes):
        def __del__(self) -> None:
            freed[0] += 1

    connections = [on.conn] + [on.open(fd)[0] for fd in range(11, 60)]
    size = 1 << 20
    shared = Answer(size)
    for conn in connections:
        conn.write(Answer(size))
        conn.write(shared)
    del shared
    if sent:
        on.ring.takes_now = [size] * 1000
    else:
        for conn in connections:
            conn.abort()
    each_pass = []
    while len(returns) or not each_pass or any(conn.outbound_bytes for conn in connections):
        before = freed[0]
        on.run()
        each_pass.append(freed[0] - before)
    assert sum(each_pass) == len(connections) + 1
    assert max(each_pass) <= 5, "4 MiB; one of them is shared"


def test_a_connection_that_closes_sends_its_large_writes_before(on: Setup) -> None:
    on.conn.write(bytes(2 * PIECE_BYTES))
    on.conn.close()
    on.ring.takes_now = [PIECE_BYTES, PIECE_BYTES]
    on.run()
    assert len(on.ring.sent_now) == 2
    on.ring.answers.pop("shutdown")
    on.run()
    assert on.ring.one("shutdown").arguments == (10, True)


def test_the_receives_of_a_pass_are_one_batch_and_their_buffers_go_back_after_it(on: Setup) -> None:
    other, other_recv = on.open(11)
    seen_before_recycle: list[int] = []
    on.handler.on_receive = lambda conn, data: seen_before_recycle.append(len(on.ring.recycled))
    on.ring.receive(on.recv, b"one")
    on.ring.receive(other_recv, b"two")
    on.ring.receive(on.recv, b"three")
    assert on.run() == [("data", on.conn.id, b"one"), ("data", other.id, b"two"), ("data", on.conn.id, b"three")]
    assert on.handler.batches == [3]
    assert seen_before_recycle == [0, 0, 0]
    assert on.ring.recycled == [1, 2, 3]


def test_a_receive_that_ended_without_an_error_is_armed_again(on: Setup) -> None:
    on.ring.receive(on.recv, b"x", more=False)
    assert on.run() == [("data", on.conn.id, b"x")]
    assert on.ring.one("recv").arguments == (10,)


def test_running_out_of_buffers_is_counted_and_the_receive_armed_again(on: Setup) -> None:
    on.ring.complete(on.recv, -errno.ENOBUFS)
    assert on.run() == []
    assert on.ring.one("recv").arguments == (10,)
    assert on.loop.stats().enobufs == 1


def test_who_took_the_buffers_is_armed_after_those_that_found_none(on: Setup) -> None:
    _, other_recv = on.open(11)
    for _ in range(9):
        on.ring.receive(on.recv, b"hog")
    on.ring.complete(on.recv, -errno.ENOBUFS)
    on.ring.complete(other_recv, -errno.ENOBUFS)
    on.run()
    assert [call.arguments for call in on.ring.take("recv")] == [(11,), (10,)]
    assert on.loop.stats().throttled == 1


def test_a_hog_still_receiving_is_stopped_for_once(on: Setup) -> None:
    _, other_recv = on.open(11)
    for _ in range(9):
        on.ring.receive(on.recv, b"hog")
    on.ring.complete(other_recv, -errno.ENOBUFS)
    on.run()
    assert on.ring.one("cancel").arguments == (on.recv.user_data,)
    on.ring.complete(on.recv, -errno.ECANCELED)
    on.run()
    assert (10,) in [call.arguments for call in on.ring.take("recv")]


def test_what_arrives_while_paused_is_held_ends_the_receive_and_comes_first_after_the_resume(on: Setup) -> None:
    on.conn.pause_reading()
    on.run()
    assert on.ring.take("cancel") == [], "nothing came: nothing to stop"
    on.ring.receive(on.recv, b"a")
    assert on.run() == []
    cancel = on.ring.one("cancel")
    assert cancel.arguments == (on.recv.user_data,)
    on.ring.receive(on.recv, b"b")
    on.ring.complete(cancel, 0)
    on.ring.complete(on.recv, -errno.ECANCELED)
    assert on.run() == []
    assert on.ring.recycled == [1, 2], "held bytes keep no buffer"
    assert on.ring.take("recv") == []
    on.conn.resume_reading()
    assert on.run() == [("data", on.conn.id, b"ab")]
    assert on.ring.one("recv").arguments == (10,)


def test_a_resume_before_the_cancel_took_effect_loses_nothing(on: Setup) -> None:
    on.conn.pause_reading()
    on.ring.receive(on.recv, b"a")
    on.run()
    on.conn.resume_reading()
    on.ring.receive(on.recv, b"b")
    assert on.run() == [("data", on.conn.id, b"ab")]
    on.ring.receive(on.recv, b"c", more=False)
    assert on.run() == [("data", on.conn.id, b"c")]
    assert on.ring.one("recv").arguments == (10,)


def test_what_arrives_in_the_pass_in_which_a_completion_resumes_is_not_lost(on: Setup) -> None:
    """The dispatch has put it with what is to be held when the completion after it resumes."""
    on.conn.pause_reading()
    on.loop.files.fdatasync_nowait(7, lambda res: on.conn.resume_reading())
    on.run()
    on.ring.receive(on.recv, b"a")
    on.ring.complete(on.ring.one("fsync"), 0)
    on.ring.receive(on.recv, b"b")
    assert on.run() == [("data", on.conn.id, b"ab")]
    on.ring.receive(on.recv, b"c", more=False)
    assert on.run() == [("data", on.conn.id, b"c")]
    assert on.ring.one("recv").arguments == (10,)


class CountedRows(list[Row]):
    """Rows that are counted as they are looked at."""

    looks = 0

    def __iter__(self) -> Iterator[Row]:
        for row in super().__iter__():
            self.looks += 1
            yield row


def test_resumes_of_a_pass_look_at_each_row_that_is_to_be_held_once(on: Setup) -> None:
    """Each of a thousand resumes looked at the rows of all connections."""
    on.loop._traffic.held = rows = CountedRows()
    on.conn.pause_reading()

    def resume(_res: int) -> None:
        on.conn.resume_reading()
        on.conn.pause_reading()

    for _ in range(50):
        on.loop.files.fdatasync_nowait(7, resume)
    on.run()
    for sync in on.ring.take("fsync"):
        on.ring.receive(on.recv, b"a")
        on.ring.complete(sync, 0)
    assert on.run() == []
    assert rows.looks == 50
    on.conn.resume_reading()
    assert on.run() == [("data", on.conn.id, b"a" * 50)]


def test_a_pause_and_resume_without_data_costs_no_operation(on: Setup) -> None:
    on.conn.pause_reading()
    on.conn.resume_reading()
    on.ring.receive(on.recv, b"a")
    assert on.run() == [("data", on.conn.id, b"a")]
    assert on.ring.queued == []


def test_the_end_of_the_stream_waits_behind_held_bytes(on: Setup) -> None:
    on.conn.pause_reading()
    on.ring.receive(on.recv, b"a")
    on.ring.complete(on.recv, 0)
    assert on.run() == []
    on.conn.resume_reading()
    assert on.run() == [("data", on.conn.id, b"a"), ("end", on.conn.id)]
    assert on.ring.take("recv") == []


def test_the_end_of_the_stream_is_reported_once_when_it_comes_in_the_pass_that_delivers_held_bytes(on: Setup) -> None:
    """A receive begun after the held bytes, before that end is known, would find the same end."""
    on.conn.pause_reading()
    on.ring.receive(on.recv, b"a")
    assert on.run() == []
    on.conn.resume_reading()
    on.ring.complete(on.recv, 0)
    assert on.run() == [("data", on.conn.id, b"a"), ("end", on.conn.id)]
    for recv in on.ring.take("recv"):
        on.ring.complete(recv, 0)
    assert on.run() == []


def test_the_end_of_the_stream_is_reported_once_when_reading_resumes_in_the_pass_in_which_it_comes(on: Setup) -> None:
    on.conn.pause_reading()
    on.loop.files.fdatasync_nowait(7, lambda res: on.conn.resume_reading())
    on.run()
    on.ring.complete(on.recv, 0)
    on.ring.complete(on.ring.one("fsync"), 0)
    assert on.run() == [("end", on.conn.id)]
    for recv in on.ring.take("recv"):
        on.ring.complete(recv, 0)
    assert on.run() == []


def test_the_end_of_the_stream_is_told_at_once_when_nothing_is_held(on: Setup) -> None:
    on.conn.pause_reading()
    on.ring.complete(on.recv, 0)
    assert on.run() == [("end", on.conn.id)]


def test_data_then_end_in_one_pass_are_told_in_that_order_and_writing_goes_on(on: Setup) -> None:
    on.ring.receive(on.recv, b"last")
    on.ring.complete(on.recv, 0)
    assert on.run() == [("data", on.conn.id, b"last"), ("end", on.conn.id)]
    on.conn.write(b"answer")
    on.run()
    assert on.ring.one("send").arguments == (10, b"answer")


def test_drained_is_told_once_at_the_low_water_mark_after_the_high_one(on: Setup) -> None:
    on.conn.write(b"x" * 101)
    assert on.conn.over_high_water
    on.run()
    on.ring.complete(on.ring.one("send"), 50)
    assert on.run() == []
    on.ring.complete(on.ring.one("send"), 20)
    assert on.run() == [("drained", on.conn.id)]
    assert not on.conn.over_high_water
    on.ring.complete(on.ring.one("send"), 31)
    assert on.run() == []


def test_close_sends_what_is_staged_then_our_end_awaits_the_peers_and_closes(on: Setup) -> None:
    on.ring.answers.clear()
    on.conn.write(b"bye")
    on.conn.close()
    on.run()
    assert on.ring.take("shutdown") == []
    on.ring.receive(on.recv, b"late")
    on.ring.complete(on.ring.one("send"), 3)
    assert on.run() == [], "what arrives after close is dropped"
    half = on.ring.one("shutdown")
    assert half.arguments == (10, True)
    on.ring.complete(half, 0)
    on.ring.receive(on.recv, b"still sending")
    assert on.run() == []
    on.ring.complete(on.recv, 0)
    on.run()
    shutdown = on.ring.one("shutdown")
    assert shutdown.arguments == (10, False)
    assert on.ring.take("close") == [], "the shutdown still has the descriptor"
    on.ring.complete(shutdown, 0)
    assert on.run() == [("lost", on.conn.id, 0)]
    assert on.ring.one("close").arguments == (10,)
    assert on.listener.connections == []
    assert on.ring.recycled == [1, 2]


def test_a_peer_that_never_ends_is_cut_off_after_the_linger_time(on: Setup) -> None:
    on.conn.close()
    on.run()
    on.loop.run_pass(None)
    assert on.ring.waits[-1] == LINGER_NS
    on.run()
    cancel = on.ring.one("cancel")
    assert cancel.arguments == (on.recv.user_data,)
    on.ring.complete(cancel, -errno.EALREADY)
    assert on.run() == []
    assert on.ring.take("close") == [], "the receive still has the descriptor"
    on.ring.complete(on.recv, -errno.ECANCELED)
    assert on.run() == [("lost", on.conn.id, 0)]


def test_close_after_the_peers_end_needs_no_lingering(on: Setup) -> None:
    on.ring.complete(on.recv, 0)
    on.run()
    on.conn.close()
    assert on.ring.queued[0].arguments == (10, False)
    assert on.run() == [("lost", on.conn.id, 0)]


def test_abort_cancels_the_send_in_flight_and_drops_the_rest(on: Setup) -> None:
    on.conn.write(b"one")
    on.run()
    send = on.ring.one("send")
    on.conn.write(b"two")
    on.conn.abort()
    on.conn.abort()
    on.conn.write(b"three")
    on.run()
    assert {call.arguments[0] for call in on.ring.take("cancel")} == {on.recv.user_data, send.user_data}
    on.ring.complete(on.recv, 0)
    assert on.run() == []
    on.ring.complete(send, 3)
    for cancel in list(on.loop._operations.callbacks):
        on.ring.completions.append((cancel, -errno.ENOENT, 0))
    assert on.run() == [("lost", on.conn.id, 0)]
    assert on.ring.take("send") == []


@pytest.mark.parametrize("error", [errno.ECONNRESET, errno.ETIMEDOUT])
def test_a_receive_error_is_told_after_the_data_before_it(on: Setup, error: int) -> None:
    on.ring.answers["cancel"] = lambda target: -errno.ENOENT
    on.ring.receive(on.recv, b"x")
    on.ring.complete(on.recv, -error)
    assert on.run() == [("data", on.conn.id, b"x")]
    assert on.run() == [("lost", on.conn.id, error)]


def test_a_send_error_ends_the_connection_with_its_errno(on: Setup) -> None:
    on.ring.answers["cancel"] = lambda target: 0
    on.conn.write(b"x")
    on.run()
    on.ring.complete(on.ring.one("send"), -errno.EPIPE)
    assert on.run() == []
    on.ring.complete(on.recv, 0)
    assert on.run() == [("lost", on.conn.id, errno.EPIPE)]


def test_rows_of_a_connection_closed_earlier_in_the_pass_are_left_out(on: Setup) -> None:
    other, other_recv = on.open(11)
    done = on.loop.files
    done.write_nowait(5, b"x", 0, lambda res: on.conn.abort())
    on.ring.receive(on.recv, b"late")
    on.ring.receive(other_recv, b"kept")
    on.ring.complete(on.ring.one("write"), 1)
    assert on.run() == [("data", other.id, b"kept")]
    assert on.ring.recycled == [1, 2]


def test_an_exception_of_a_handler_is_raised_and_the_pass_is_finished_first(on: Setup) -> None:
    def fail(conn: Connection, data: bytes) -> None:
        raise ValueError("handler")

    on.handler.on_receive = fail
    results: list[int] = []
    on.loop.files.write_nowait(5, b"x", 0, results.append)
    on.ring.receive(on.recv, b"x")
    on.ring.complete(on.ring.one("write"), 1)
    with pytest.raises(ValueError, match="handler"):
        on.loop.run_pass(0)
    assert (results, on.ring.recycled) == ([1], [1])


def test_an_exception_in_a_completion_keeps_no_other_completion_from_its_owner(on: Setup) -> None:
    def fail(res: int) -> None:
        raise ValueError("completion")

    reported: list[str] = []
    on.loop.on_error = lambda error, where: reported.append(where)
    results: list[int] = []
    on.loop.files.write_nowait(5, b"x", 0, fail)
    on.loop.files.write_nowait(5, b"x", 0, results.append)
    for call in on.ring.take("write"):
        on.ring.complete(call, 1)
    on.run()
    assert (reported, results) == (["completion"], [1])


def test_connecting_gives_a_connection_or_the_error_with_its_address() -> None:
    loop, ring = fake_loop()
    handler = Recorder()
    future = loop.connect("10.1.1.1", 80, handler)
    ring.complete(ring.one("connect"), 12)
    loop.run_pass(0)
    assert future.result().peer == ("10.1.1.1", 80)
    assert handler.take() == [("connected", 1)]
    future = loop.connect("10.1.1.1", 80, handler)
    ring.complete(ring.one("connect"), -errno.ECONNREFUSED)
    loop.run_pass(0)
    with pytest.raises(ConnectionRefusedError, match=r"10\.1\.1\.1:80"):
        future.result()


def test_closing_the_loop_aborts_connections_and_closes_the_ring(on: Setup) -> None:
    def cancel(target: int) -> int:
        on.ring.completions.append((target, -errno.ECANCELED, 0))
        return 0

    on.ring.answers["cancel"] = cancel
    on.loop.close()
    assert on.handler.take() == [("lost", on.conn.id, 0)]
    assert on.ring.closed
    assert on.loop._operations.in_flight == 0
    on.loop.close()


def test_a_connection_has_the_loop_to_itself_once_it_was_the_only_sender_for_some_passes(on: Setup) -> None:
    _, other_recv = on.open(11)
    for _ in range(ONE_SENDER_PASSES):
        on.ring.receive(on.recv, b"x")
        on.run()
        on.run()  # a pass without a receive changes nothing
        assert not on.loop.has_one_sender()
    on.ring.receive(on.recv, b"x")
    on.run()
    assert on.loop.has_one_sender()
    on.ring.receive(other_recv, b"y")
    on.run()
    assert not on.loop.has_one_sender(), "another one was heard"
    for _ in range(ONE_SENDER_PASSES):
        on.ring.receive(other_recv, b"y")
        on.run()
    assert on.loop.has_one_sender()
    on.ring.receive(other_recv, b"y")
    on.ring.receive(other_recv, b"y")
    on.run()
    assert not on.loop.has_one_sender(), "it has more than one thing to say"


def test_two_connections_have_the_loop_together_once_they_were_heard_by_turns_for_some_passes(on: Setup) -> None:
    _, second = on.open(11)
    _, third = on.open(12)

    def hear(*received: Call) -> bool:
        for each in received:
            on.ring.receive(each, b"x")
        on.run()
        assert not on.loop.has_one_sender()
        return on.loop.has_few_senders()

    def heard_by_turns(passes: int) -> list[bool]:
        return [hear((on.recv, second)[at % 2]) for at in range(passes)]

    assert heard_by_turns(ONE_SENDER_PASSES + 3) == [*[False] * (ONE_SENDER_PASSES + 1), True, True]
    assert not hear(third), "a third one was heard"
    assert not any(heard_by_turns(ONE_SENDER_PASSES + 1))
    assert hear(on.recv)
    assert not hear(on.recv, second), "both in one pass"
    assert not any(heard_by_turns(ONE_SENDER_PASSES))
    assert heard_by_turns(4)[-1]
    on.loop.files.write_nowait(5, b"x", 0, lambda res: None)
    assert not hear(on.recv), "a file operation runs"


def test_no_connection_has_the_loop_to_itself_beside_a_file_operation(on: Setup) -> None:
    for _ in range(ONE_SENDER_PASSES + 1):
        on.ring.receive(on.recv, b"x")
        on.run()
    on.loop.files.write_nowait(5, b"x", 0, lambda res: None)
    assert not on.loop.has_one_sender()
    on.ring.complete(on.ring.one("write"), 1)
    on.run()
    assert on.loop.has_one_sender()


def test_requests_besides_writes_are_those_answered_at_once_and_reads_of_files(on: Setup) -> None:
    other, other_recv = on.open(11)

    def answered_besides(*, later: bool) -> int:
        """Receive from both connections, of which one is answered while its request is handled."""
        before = on.loop.requests_besides_writes

        def handle(conn: Connection, data: bytes) -> None:
            if conn is other:
                conn.write(data)
            elif later:
                on.loop.files.write_nowait(5, b"x", 0, lambda res: conn.write(data))

        on.handler.on_receive = handle
        on.ring.receive(on.recv, b"a")
        on.ring.receive(other_recv, b"b")
        on.run()
        if later:
            on.ring.complete(on.ring.one("write"), 1)
            on.run()
        for send in on.ring.take("send"):
            on.ring.complete(send, 1)
        on.run()
        return on.loop.requests_besides_writes - before

    assert answered_besides(later=False) == 1
    assert answered_besides(later=True) == 1, "the answer of a commit is none"
    before = on.loop.requests_besides_writes
    on.loop.files.read_nowait(5, bytearray(1), 0, lambda res: None)
    assert on.loop.requests_besides_writes == before + 1


def test_a_connection_that_has_the_loop_to_itself_makes_no_requests_besides_its_own(on: Setup) -> None:
    on.handler.on_receive = lambda conn, data: conn.write(data)
    for _ in range(ONE_SENDER_PASSES + 5):
        on.ring.receive(on.recv, b"x")
        on.run()
        for send in on.ring.take("send"):
            on.ring.complete(send, 1)
        on.run()
    assert on.loop.requests_besides_writes <= ONE_SENDER_PASSES


def become_only_sender(on: Setup) -> None:
    """Receive from the connection until it counts as the only sender, and once more."""
    for _ in range(ONE_SENDER_PASSES + 1):
        on.ring.receive(on.recv, b"x")
        on.run()


def test_the_first_bytes_after_a_lone_connection_was_heard_leave_before_the_pass_ends(on: Setup) -> None:
    become_only_sender(on)
    on.ring.takes_now = [5]
    on.conn.write(b"first")
    assert on.ring.sent_now == [(10, b"first")]
    assert on.conn.outbound_bytes == 0
    on.conn.write(b"second")
    on.conn.write(b"third")
    on.run()
    assert on.ring.one("send").arguments == (10, b"secondthird")
    assert len(on.ring.sent_now) == 1, "more of the same pass leave together"


@pytest.mark.parametrize("taken", [-errno.EAGAIN, -errno.EPIPE, 0, 2])
def test_what_a_send_in_place_leaves_goes_before_anything_newer(on: Setup, taken: int) -> None:
    become_only_sender(on)
    on.ring.takes_now = [taken]
    on.conn.write(b"first")
    on.conn.write(b"second")
    rest = b"first"[max(0, taken) :] + b"second"
    assert on.conn.outbound_bytes == len(rest)
    on.run()
    send = on.ring.one("send")
    assert send.arguments == (10, rest)
    on.ring.complete(send, len(rest))
    on.run()
    assert on.conn.outbound_bytes == 0


def test_nothing_leaves_in_place_behind_a_send_in_flight(on: Setup) -> None:
    become_only_sender(on)
    on.conn.write(b"first")
    on.run()
    on.ring.receive(on.recv, b"x")
    on.run()
    on.conn.write(b"second")
    assert len(on.ring.sent_now) == 1
    on.ring.complete(on.ring.one("send"), 5)
    on.run()
    assert on.ring.one("send").arguments == (10, b"second")


def test_what_one_reader_waits_for_leaves_in_place_too(on: Setup) -> None:
    become_only_sender(on)
    reader, another = on.open(11)[0], on.open(12)[0]
    on.ring.takes_now = [2, 8]
    reader.write(b"what it waited for")
    another.write(b"later")
    on.conn.write(b"answered")
    assert on.ring.sent_now == [(11, b"what it waited for"), (10, b"answered")]
    on.run()
    later = {send.arguments[0]: bytes(send.arguments[1]) for send in on.ring.take("send")}
    assert later == {11: b"at it waited for", 12: b"later"}


def test_nothing_leaves_in_place_for_several_senders(on: Setup) -> None:
    become_only_sender(on)
    _other, other_recv = on.open(11)
    on.ring.receive(other_recv, b"y")
    on.run()
    on.conn.write(b"not alone any more")
    assert on.ring.sent_now == []


@pytest.mark.parametrize("seed", seeds(20))
def test_whatever_sizes_are_written_and_taken_the_bytes_arrive_in_order(seed: int) -> None:
    rng = random.Random(seed)
    on = Setup()
    written, arrived = bytearray(), bytearray()

    def send_now(fd: int, data: bytes | memoryview) -> int:
        taken: int = rng.choice((-errno.EAGAIN, len(data), len(data), rng.randint(1, len(data))))
        arrived.extend(data[: max(taken, 0)])
        return taken

    on.ring.send_now = send_now  # type: ignore[method-assign]
    for step in range(300):
        for _ in range(rng.choice((0, 0, 1, 2, 5)) if step < 200 else 0):
            size = rng.choice((1, 10, 150, 2000, LARGE_BYTES - 1, LARGE_BYTES, 3 * LARGE_BYTES))
            data = rng.randbytes(4) * (size // 4 + 1)
            on.conn.write(data)
            written += data
        on.loop.run_pass(0)
        for send in on.ring.take("send"):
            data = send.arguments[1]
            taken = rng.choice((len(data), len(data), len(data), rng.randint(1, len(data))))
            arrived += data[:taken]
            on.ring.complete(send, taken)
        assert on.conn.outbound_bytes >= len(written) - len(arrived)
    for _ in range(3000):
        on.loop.run_pass(0)
        for send in on.ring.take("send"):
            arrived += send.arguments[1]
            on.ring.complete(send, len(send.arguments[1]))
    assert arrived == written
    assert on.conn.outbound_bytes == 0
