"""The pass: order of its stages, waits, hooks, errors, stats, work from threads."""

from __future__ import annotations

import pytest

from tests.loop.fake_ring import fake_loop
from tests.loop.handlers import Recorder
from topics.loop.ring import F_MORE


def test_a_pass_runs_completions_then_timers_then_ready_work_then_hooks_in_their_order() -> None:
    loop, ring = fake_loop()
    order: list[str] = []
    loop.on_pass_end(lambda: order.append("hook 20"), 20)
    loop.on_pass_end(lambda: order.append("hook 10"), 10)
    loop.call_later(0, lambda: order.append("timer"))
    loop.call_soon(lambda: order.append("ready"))
    loop.files.write_nowait(5, b"x", 0, lambda res: order.append("completion"))
    ring.complete(ring.one("write"), 1)
    loop.run_pass(None)
    assert order == ["completion", "timer", "ready", "hook 10", "hook 20"]


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


def test_a_failing_hook_lets_the_others_run_and_is_raised_at_the_end_of_the_pass() -> None:
    loop, _ = fake_loop()
    ran: list[int] = []

    def fails() -> None:
        raise ValueError("hook")

    loop.on_pass_end(fails, 10)
    loop.on_pass_end(lambda: ran.append(1), 20)
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
