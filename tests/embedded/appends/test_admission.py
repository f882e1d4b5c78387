"""Admission of appends apart from their durability: `append_nowait`, `append(timeout=)`, cancelled awaits."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import topics
from tests.embedded.appends.test_flush import count_begun, sim_log
from tests.embedded.calls.test_no_maintenance import drive
from topics.embedded.appends.offers import Admission
from topics.embedded.appends.pending import Pending
from topics.engine.state import refusals
from topics.engine.state.append_request import AppendRequest
from topics.engine.values.results import AppendResult
from topics.store.format.rows import Rows, rows_of_bytes

_BIG = "x" * 30_000


def data(log: topics.Log, topic: str = "t") -> list[Any]:
    return [record.data for record in log.read(topic)]


def bounded_log(bound: int) -> topics.Log:
    """A log with a topic, all of it synced, whose unsynced bytes have a bound."""
    log, _ring = sim_log(max_unsynced_bytes=bound, sync_every_ms=None)
    log.append("t", ["first"])
    return log


def stop_syncs(log: topics.Log) -> None:
    """Begin none from here on, as if the disk took its time for one."""
    log._opened.log.shards[0]._sync.running = True


def let_syncs_go(log: topics.Log) -> None:
    log._opened.log.shards[0]._sync.running = False


def test_an_append_that_does_not_wait_is_written_by_the_next_pass_of_any_thread() -> None:
    log, ring = sim_log()
    pending = [log.append_nowait("t", [number, "x"]) for number in range(3)]
    assert not any(each.done() for each in pending)
    drive(log, ring, 1)
    assert [each.result(timeout=0).first_seq for each in pending] == [1, 3, 5]
    last = log.append_nowait("t", ["last"])
    assert last.result().last_seq == 7
    assert data(log) == [0, "x", 1, "x", 2, "x", "last"]
    log.close()


def test_appends_of_one_thread_keep_their_order_whether_they_wait_or_not() -> None:
    log, _ring = sim_log()
    log.append("t", [0])
    for number in range(1, 20, 2):
        log.append_nowait("t", [number])
        log.append("t", [number + 1])
    log.append_nowait("t", [21])
    log.append("t", [22], timeout=1)
    assert data(log) == list(range(23))
    log.close()


def test_appends_that_do_not_wait_are_one_request_with_a_result_for_each() -> None:
    log, _ring = sim_log()
    log.append("t", [0])
    begun = log.stats().append.count
    given: list[list[Any]] = [
        [b"\x00\xff"],
        [{"a": None}, b"x"],
        [topics.NewRecord("tagged", tag="a/b", meta=[1])],
        ["é"],
    ]
    pending = [log.append_nowait("t", values) for values in given]
    assert log._admission.pendings == 4
    results = [each.result() for each in pending]
    assert [(each.first_seq, each.last_seq, each.head_seq, each.count, each.created) for each in results] == [
        (2, 2, 2, 1, False),
        (3, 4, 4, 2, False),
        (5, 5, 5, 1, False),
        (6, 6, 6, 1, False),
    ]
    assert log.stats().append.count == begun + 1
    found = [(record.data, record.tag, record.meta) for record in log.read("t", 1)]
    assert found == [
        (b"\x00\xff", None, None),
        ({"a": None}, None, None),
        (b"x", None, None),
        ("tagged", "a/b", [1]),
        ("é", None, None),
    ]
    log.close()


def test_appends_that_wait_to_be_begun_are_no_work_for_the_collector() -> None:
    log, _ring = sim_log()
    log.append("t", [b"0"])
    log.append_nowait("t", [b"1"])
    gc.collect()
    followed = len(gc.get_objects())
    for _ in range(900):
        log.append_nowait("t", [b"x"])
    gc.collect(0)  # it no longer follows tuples of bytes from here on
    assert len(gc.get_objects()) - followed < 100
    log.close()


def test_answered_appends_and_refusals_leave_no_cycles() -> None:
    """Each request left thirty objects in one: 5 ms of the collector now and then, in any thread."""
    log, ring = sim_log(max_pendings=3)
    log.put_topic("full", cap_records=3, discard="reject")
    gc.collect()
    gc.disable()
    try:
        for topic in ("t", "full"):
            for _ in range(3):
                log.append_nowait(topic, [b"x"])
            with pytest.raises(topics.WouldBlockError):
                log.append_nowait(topic, [b"one too many"])
            drive(log, ring, 10)
        assert log._admission.pendings == 0
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = {type(each).__name__ for each in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not left & {"JoinedOffer", "OneByOne", "Offer", "PendingCall", "WouldBlockError"}
    log.close()


def test_an_append_that_does_not_wait_wakes_the_driving_thread_only_out_of_a_wait() -> None:
    """A wake-up is a system call, which gave the interpreter's lock to a thread that did not need to be woken."""
    log, ring = sim_log()
    driver, woken = log._driver, []
    ring.wake = lambda: woken.append(1)  # type: ignore[method-assign]
    assert driver._driving_lock.acquire(blocking=False)
    log.append_nowait("t", [0], node="a")
    assert not woken
    driver._waits = True
    log.append_nowait("t", [1], node="b")
    assert woken
    driver._waits = False
    driver._driving_lock.release()
    drive(log, ring, 1)
    assert data(log) == [0, 1]
    log.close()


def test_a_topic_that_refuses_one_append_of_those_that_did_not_wait_takes_the_others() -> None:
    log, _ring = sim_log()
    log.put_topic("full", cap_records=3, discard="reject")
    pending = [log.append_nowait("full", [0] * count) for count in (2, 2, 1, 1)]
    errors = []
    for each in pending:
        try:
            each.result()
            errors.append("")
        except topics.RequestError as error:
            errors.append(error.code)
    assert errors == ["", "topic_full", "", "topic_full"]
    assert log.state("full").count == 3
    log.close()


def test_appends_that_joined_each_other_on_a_new_topic_are_begun_at_once() -> None:
    """They were a line until the end of the pass, so that another thread's append was refused."""
    log, ring = sim_log()
    for number in range(3):
        log.append_nowait("t", [number])
    in_line: list[Any] = []
    log._driver.submit_soon(lambda done: done(len(log._admission.line)), in_line.append)
    drive(log, ring, 1)
    assert (in_line, data(log)) == ([0], [0, 1, 2])
    log.close()


@pytest.mark.parametrize("way", ["append_nowait", "append_soon", "a record that is none"])
def test_appends_begun_one_by_one_take_several_passes_and_keep_their_order(way: str) -> None:
    """All that had joined each other began in one pass; those of `append_soon` were overtaken."""
    log, _ring = sim_log()
    log.put_topic("full", cap_records=999 if way == "append_nowait" else 440, discard="reject")
    passes = count_begun(log)
    if way == "append_nowait":
        for number in range(450):
            log.append_nowait("full", [number])
        log._driver.drive_due()
    else:
        for number in range(450):
            log.append_soon("full", number if number or way == "append_soon" else "x" * (17 << 20))
        log._gatherer.flush()
    assert 0 < len(log._admission.line) < 450
    log.put_topic("other")
    log.append("other", ["after those"])
    assert sum(passes.values()) >= 450
    assert max(passes.values()) <= 1 + 100
    first, last = {"append_nowait": (0, 449), "append_soon": (0, 439), "a record that is none": (1, 440)}[way]
    assert data(log, "full") == list(range(first, last + 1))
    assert log.stats().pendings == log._admission._promised == 0
    log.close()


def test_an_append_is_not_refused_while_others_are_begun_one_by_one() -> None:
    """They are in the line for their turn, and not for room."""
    log, _ring = sim_log()
    log.put_topic("full", cap_records=440, discard="reject")
    for number in range(450):
        log.append_soon("full", number)
    log._gatherer.flush()
    assert log._admission.line
    assert log.append_nowait("other", ["after those"]).result().first_seq == 1
    log.close()


def test_a_close_answers_appends_that_are_begun_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    log, _ring = sim_log()
    log.put_topic("full", cap_records=440, discard="reject")
    soon = [log.append_soon("full", number) for number in range(450)]
    log._gatherer.flush()
    monkeypatch.setattr(log._admission, "_admit_line", lambda: None)
    monkeypatch.setattr(log._admission, "drain", lambda _ms: None)
    log.close()
    assert soon[0].result() == 1
    for each in soon[-10:]:
        with pytest.raises(topics.UsageError, match="closed"):
            each.result()


def test_a_call_between_appends_that_do_not_wait_keeps_its_place() -> None:
    log, _ring = sim_log()
    log.append("t", [0])

    async def append() -> None:
        log.append_nowait("t", [1])
        waits = asyncio.ensure_future(log.aio.append("t", [2]))
        await asyncio.sleep(0)
        log.append_nowait("t", [3])
        log.append_soon("t", 4)
        log._gatherer.flush()
        log.append_nowait("t", [5])
        log.append_nowait("t", [6], key="k")
        log.append_nowait("t", [7]).result()
        await waits

    asyncio.run(append())
    assert data(log) == list(range(8))
    log.close()


def _without_room(log: topics.Log) -> Pending[AppendResult]:
    """Let an append wait for room: another one that was begun before it has taken what there was."""
    stop_syncs(log)
    for _ in range(2):
        log.append("t", [_BIG])
    before = log._starts.request_of_texts("t", [f'"{_BIG}"'.encode()], key=None)
    log._driver.submit_soon(log._admission.appending(before), lambda _result: None)
    pending = log.append_nowait("t", [_BIG])
    log._driver.drive_due()
    assert len(log._admission.line) == 1
    return pending


def test_what_is_appended_soon_comes_after_what_waits_for_room() -> None:
    log = bounded_log(100_000)
    waits = _without_room(log)
    soon = [log.append_soon("t", number) for number in range(2)]
    log._gatherer.flush()
    log._driver.drive_due()
    assert len(log._admission.line) == 2
    assert not soon[0].done()
    log._opened.log.shards[0]._sync.running = False
    assert [each.result() for each in soon] == [6, 7]
    assert waits.result().first_seq == 5
    log.close()


def test_a_flush_includes_what_append_soon_sends_one_by_one_after_it_has_waited_for_room() -> None:
    log = bounded_log(100_000)
    log.put_topic("full", cap_records=3, discard="reject")
    log.append("full", ["the first"])
    log.flush()
    _without_room(log)
    soon = [log.append_soon("full", number) for number in range(4)]
    flushed: list[Any] = []
    log._driver.submit(log._asking_flush("full", None, None), flushed.append)
    log._driver.drive_due()
    assert len(log._admission.line) == 3
    log._opened.log.shards[0]._sync.running = False
    assert [each.result() for each in soon[:2]] == [2, 3]
    with pytest.raises(topics.RequestError, match="full"):
        soon[2].result()
    while not flushed:
        log._driver.drive_due()
    assert flushed[0].synced_seq == 3
    log.close()


def test_a_close_without_room_ends_what_was_appended_soon_and_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    log = bounded_log(100_000)
    refusal = refusals.appends_before_it()
    pending = log.append_nowait("t", [1])
    monkeypatch.setattr(log._engine, "refusal", lambda *_arguments: refusal)
    log._driver.drive_due()
    soon = log.append_soon("t", 2)
    log.close()
    for each in (pending, soon):
        with pytest.raises(topics.UsageError, match="closed"):
            each.result()


def test_an_append_of_a_finalizer_in_the_midst_of_another_is_a_request_by_itself() -> None:
    log, _ring = sim_log()
    log.append("t", [0])
    log.append_nowait("t", [1])
    log._driver.inside.add(threading.get_ident())  # as if the collector ran there
    inner = log.append_nowait("t", [2])
    with pytest.raises(topics.UsageError, match="within a call of its own"):
        log.append("t", ["waits"])
    log._driver.inside.clear()
    last = log.append_nowait("t", [3])
    assert (inner.result().first_seq, last.result().first_seq) == (3, 4)
    assert data(log) == [0, 1, 2, 3]
    log.close()


@pytest.mark.parametrize("waits", [False, True])
def test_an_append_of_a_signals_handler_comes_after_the_one_it_interrupts(
    waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that waited began the offer that the interrupted append was joining: its record was lost."""
    log, _ring = sim_log()
    log.append("t", [0])
    log.append_nowait("t", [1])
    refusal_now = Admission._refusal_now

    def interrupted(admission: Admission, topic: str, size: int) -> Any:
        monkeypatch.undo()
        signal.raise_signal(signal.SIGUSR1)
        return refusal_now(admission, topic, size)

    append = log.append if waits else log.append_nowait
    before = signal.signal(signal.SIGUSR1, lambda *_: append("t", ["handler"]))
    try:
        monkeypatch.setattr(Admission, "_refusal_now", interrupted)
        pending = log.append_nowait("t", [2])
    finally:
        signal.signal(signal.SIGUSR1, before)
    log.append("t", [3])
    assert pending.result().first_seq == 3
    assert data(log) == [0, 1, 2, "handler", 3]
    assert log.stats().pendings == log._admission._promised == 0
    log.close()


def test_an_append_does_not_overtake_one_that_has_lost_its_room() -> None:
    log = bounded_log(100_000)
    stop_syncs(log)

    def submit(value: Any) -> None:
        rows = rows_of_bytes([value])
        assert isinstance(rows, Rows)
        request = AppendRequest("t", rows)
        log._driver.submit_soon(log._admission.appending(request), lambda _outcome: None)

    submit(b"x" * 120_000)
    log.append_nowait("t", ["admitted"])
    submit(b"next")
    log._driver.drive_due()
    let_syncs_go(log)
    log.append("t", ["last"])
    assert [each[:5] for each in data(log)] == ["first", b"xxxxx", "admit", b"next", "last"]
    log.close()


def test_appends_that_lose_their_room_while_they_wait_for_the_format_keep_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log, ring = sim_log()
    store_log, asked = log._opened.log, []

    def retry_ms() -> int:
        asked.append(1)
        return 100 if 2 <= len(asked) <= 4 else 0  # The first one begins to wait; then none has room.

    monkeypatch.setattr(store_log, "append_retry_ms", retry_ms)
    # The first one needs a newer format, and the others wait for it. With keys, none joins another.
    pending = [log.append_nowait("t", [value], key=str(value)) for value in (b"a", "b", "c")]
    for _ in range(100):
        drive(log, ring, 1)
    assert [each.result(timeout=0).first_seq for each in pending] == [1, 2, 3]
    assert len(asked) > 4
    log.close()


def test_a_pending_that_is_held_holds_no_payloads() -> None:
    log, _ring = sim_log()
    log.append("t", [0])
    held = [log.append_nowait("t", [_BIG]) for _ in range(3)]
    assert [each.result().first_seq for each in held] == [2, 3, 4]
    answer: Any = held[0]._answer
    assert (answer.others, answer.first.rows.size) == ([], 0)
    log.close()


def test_appends_that_joined_one_that_could_not_be_begun_get_its_error(tmp_path: Path) -> None:
    log = topics.open(tmp_path)
    log.append("t", [0])
    with log._driver._driving_lock:  # a thread drives, and takes its time
        pending = [log.append_nowait("t", [number]) for number in range(3)]
        assert log._admission.pendings == 3
        log._driver._fail(ValueError("a bug"))
    for each in pending:
        with pytest.raises(topics.LogFailedError, match="a bug"):
            each.result(timeout=1)
    with pytest.raises(topics.LogFailedError):
        log.append_nowait("t", [3])
    assert log._admission.pendings == 0
    with pytest.raises(topics.LogFailedError):
        log.close()


def test_what_the_topic_refuses_the_result_raises() -> None:
    log, _ring = sim_log()
    with pytest.raises(topics.RequestError, match="does not exist"):
        log.append_nowait("t", [1], create=False).result()
    with pytest.raises(topics.UsageError, match="records is empty"):
        log.append_nowait("t", [])
    log.close()


def test_an_append_that_would_wait_for_a_sync_is_refused_and_nothing_of_it_is_there() -> None:
    log = bounded_log(100_000)
    stop_syncs(log)
    for _ in range(3):
        assert log.append_nowait("t", [_BIG]).result().count == 1
    with pytest.raises(topics.WouldBlockError, match="as many bytes as may be") as refused:
        log.append_nowait("t", [_BIG])
    assert (refused.value.reason, refused.value.code) == ("admission", "throttled")
    with pytest.raises(topics.WouldBlockError) as late:
        log.append("t", [_BIG], timeout=0.05)
    assert late.value.reason == "admission"
    with pytest.raises(topics.WouldBlockError):
        log.append_many("t", [b'"%b"' % _BIG.encode()], timeout=0)
    let_syncs_go(log)
    log.flush()
    assert log.append_nowait("t", [1]).result().first_seq == 5
    assert len(data(log)) == 5
    log.close()


def test_a_refused_append_has_a_sync_begun_so_that_it_can_be_tried_again() -> None:
    log, ring = sim_log(max_unsynced_bytes=100_000, sync_every_ms=None)
    log.append("t", ["first"])
    log.append("t", [_BIG])  # less than half of the bound: no sync begins
    with pytest.raises(topics.WouldBlockError):
        log.append_nowait("t", [_BIG] * 3)
    drive(log, ring, 100)
    assert log.append_nowait("t", [_BIG] * 3).result().count == 3
    log.close()


def test_an_append_larger_than_the_bound_of_unsynced_bytes_is_admitted_alone() -> None:
    log = bounded_log(1000)
    assert log.append_nowait("t", [_BIG]).result().last_seq == 2
    assert log.append("t", [_BIG], timeout=1).last_seq == 3
    assert log._opened.log.shards[0].state.unsynced_bytes <= 1000
    log.close()


def test_an_append_that_waits_for_room_is_written_when_there_is_some() -> None:
    log = bounded_log(100_000)
    stop_syncs(log)
    for _ in range(3):
        log.append("t", [_BIG])
    log._loop.call_later(20_000_000, lambda: let_syncs_go(log))
    assert log.append("t", [_BIG], timeout=10).first_seq == 5
    assert len(data(log)) == 5
    log.close()


def test_more_appends_without_an_answer_than_may_be_are_refused() -> None:
    log, _ring = sim_log(max_pendings=3)
    pending = [log.append_nowait("t", [number]) for number in range(3)]
    with pytest.raises(topics.WouldBlockError, match="3 appends have no answer yet") as refused:
        log.append_nowait("t", [3])
    assert refused.value.reason == "admission"
    assert [each.result().first_seq for each in pending] == [1, 2, 3]
    assert log.append_nowait("t", [4]).result().first_seq == 4
    assert data(log) == [0, 1, 2, 4]
    log.close()


def test_bytes_that_wait_to_be_written_have_a_bound() -> None:
    log, _ring = sim_log(max_backlog_bytes=70_000)
    pending = [log.append_nowait("t", [_BIG]) for _ in range(2)]
    with pytest.raises(topics.WouldBlockError, match="the disk does not keep up"):
        log.append_nowait("t", [_BIG])
    assert [each.result().first_seq for each in pending] == [1, 2]
    log.close()


def test_a_log_that_is_as_long_as_it_may_be_refuses_with_rollover() -> None:
    log, _ring = sim_log(max_log_bytes=100_000, max_log_wait_ms=0, disk_reserve_bytes=0)
    log.append("t", ["first"])
    log._opened.store.checkpointer._stopped = True
    refused: list[topics.WouldBlockError] = []
    for _ in range(10):
        try:
            log.append("t", [_BIG])
        except topics.WouldBlockError as error:
            refused.append(error)
    with pytest.raises(topics.WouldBlockError) as nowait:
        log.append_nowait("t", [1])
    with pytest.raises(topics.WouldBlockError) as late:
        log.append("t", [1], timeout=0.01)
    assert {error.reason for error in [*refused, nowait.value, late.value]} == {"rollover"}
    assert all("raise max_log_bytes (TOPICS_MAX_LOG_BYTES)" in error.message for error in refused)
    assert len(data(log)) == 11 - len(refused)
    log._opened.store.checkpointer._stopped = False
    log.close()


def test_an_append_that_would_wait_for_a_log_file_is_refused_with_rollover() -> None:
    log, _ring = sim_log(disk_reserve_bytes=0)
    log.append("t", ["first"])
    (shard,) = log._opened.log.shards
    log._loop.run_until(lambda: not shard.preallocation.preparing)
    room = shard.state.room
    ready, shard.preallocation.ready = shard.preallocation.ready, type(shard.preallocation.ready)()
    shard.preallocation.preparing = True
    with pytest.raises(topics.WouldBlockError, match="the next log file is not ready") as refused:
        log.append_nowait("t", ["x" * room])
    assert refused.value.reason == "rollover"
    shard.preallocation.ready, shard.preallocation.preparing = ready, False
    assert log.append_nowait("t", ["x" * room]).result().first_seq == 2
    log.close()


def test_a_cancelled_append_leaves_nothing_if_it_was_not_admitted(tmp_path: Path) -> None:
    async def append(log: topics.Log) -> None:
        waiting = [asyncio.ensure_future(log.aio.append("t", [number, _BIG], timeout=100)) for number in (2, 3)]
        while len(log._admission.line) < 2:
            await asyncio.sleep(0)
        waiting[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting[0]
        let_syncs_go(log)
        await log.aio.flush()
        await waiting[1]

    with topics.open(tmp_path, max_unsynced_bytes=100_000, sync_every_ms=None) as log:
        log.append("t", ["first"])
        stop_syncs(log)
        for _ in range(3):
            log.append("t", [_BIG])
        asyncio.run(append(log))
        assert [value for value in data(log) if value != _BIG] == ["first", 3]


def test_an_append_that_was_cancelled_before_it_began_leaves_nothing() -> None:
    async def append(log: topics.Log) -> None:
        cancelled = asyncio.ensure_future(log.aio.append("t", ["cancelled"]))
        await asyncio.sleep(0)  # it is in the inbox, which nothing reads
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled

    log, _ring = sim_log()
    asyncio.run(append(log))
    log.append("t", ["written"])
    assert data(log) == ["written"]
    log.close()


def test_a_close_writes_what_was_admitted(tmp_path: Path) -> None:
    log = topics.open(tmp_path)
    pending = [log.append_nowait("t", [number]) for number in range(100)]
    log.close()
    assert [each.result(timeout=0).first_seq for each in pending] == list(range(1, 101))
    with pytest.raises(topics.UsageError, match="closed"):
        log.append_nowait("t", [1])
    with topics.open(tmp_path) as again:
        assert data(again) == list(range(100))


def test_threads_that_do_not_wait_lose_nothing_and_pass_no_bound(tmp_path: Path) -> None:
    written: list[int] = []
    bound = 64 << 10

    def append(number: int) -> None:
        for value in range(300):
            while True:
                try:
                    pending = log.append_nowait("t", [[number, value], "x" * 500])
                except topics.WouldBlockError:
                    log.append("other", [1])
                    continue
                break
            if value % 50 == 0:
                written.append(pending.result().count)

    with topics.open(tmp_path, max_unsynced_bytes=bound, max_pendings=50) as log:
        threads = [threading.Thread(target=append, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        log.flush("t")
        found = [record for record in data(log) if isinstance(record, list)]
        assert sorted(found) == [[number, value] for number in range(4) for value in range(300)]
        assert [value for number, value in found if number == 2] == list(range(300))


@pytest.mark.parametrize("timeout", [-1, "1", True, 1e300, float("nan")])
def test_a_timeout_that_is_none_is_refused(tmp_path: Path, timeout: Any) -> None:
    with topics.open(tmp_path) as log:
        with pytest.raises(topics.UsageError, match="timeout is .*: use a number of seconds"):
            log.append("t", [1], timeout=timeout)
        with pytest.raises(topics.UsageError, match="timeout is"):
            asyncio.run(log.aio.append("t", [1], timeout=timeout))
        assert log.topics() == []


def test_a_forked_child_gets_no_pending(tmp_path: Path) -> None:
    with topics.open(tmp_path) as log:
        pending = log.append_nowait("t", [1])
        child = os.fork()
        if not child:
            refused = 0
            for call in (lambda: log.append_nowait("t", [2]), lambda: log.append("t", [2], timeout=1)):
                try:
                    call()
                except topics.UsageError:
                    refused += 1
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
        assert pending.result().first_seq == 1
