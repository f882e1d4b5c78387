"""`topics serve` that notes what its loop did, for perf/spikes.py to compare with latencies.

    python -m perf.noted_server FILE serve ...

FILE gets an .npz of arrays when the server ends; all times are CLOCK_MONOTONIC ns, which other processes share:

    passes   shape (n, 6): the wait's begin and end, and at each of them CPU time of the thread, and time that the
             thread has been ready to run without a core
    spans    begin, end, label, and CPU time: calls within passes that took 0.2 ms or more; some are within others
    commits  begin, end, label: from the submission to the results
    syncs    the same of syncs in the background
    holds    the same of batches that waited although no commit was in flight
    others   the same of operations on files beside the log's commits that took a millisecond or more

Nothing of this is in the server itself: functions are wrapped from here.
"""

from __future__ import annotations

import array
import functools
import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import CoroutineType
from typing import Any

import numpy as np

from topics.cli import main
from topics.http.http1.http1_connection import HttpConnection
from topics.http.lane.lane_topics import LaneTopics
from topics.http.plan.plan import Planner
from topics.loop.files import Files
from topics.loop.loop import Loop, PassEnd
from topics.loop.tasks import Task
from topics.loop.traffic import Traffic
from topics.store.commits.commit_choice import Until
from topics.store.wal.background_sync import BackgroundSync
from topics.store.wal.in_place_commits import InPlaceCommits
from topics.store.wal.shard import Shard
from topics.uring.uring_ring import UringRing

SPAN_NS = 200_000
OTHER_NS = 1_000_000
_LABEL_CHARS = 200
"""All labels take as much memory as the longest."""

Noted = list[tuple[int, int, str, int]]
now_ns = time.monotonic_ns
cpu_ns = time.thread_time_ns
passes = array.array("q")
noted: dict[str, Noted] = {name: [] for name in ("spans", "commits", "syncs", "holds", "others")}


def patched(owner: Any, name: str) -> Callable[[Callable[..., Any]], None]:
    """Puts a function, which is given the original one first, in the place of a method."""
    original = getattr(owner, name)

    def put(wrapper: Callable[..., Any]) -> None:
        setattr(owner, name, functools.wraps(original)(lambda *a, **k: wrapper(original, *a, **k)))

    return put


def timed(label: Callable[..., str] | str, fn: Callable[..., Any], *args: Any, **options: Any) -> Any:
    began, cpu_began = now_ns(), cpu_ns()
    try:
        return fn(*args, **options)
    finally:
        ended = now_ns()
        if ended - began >= SPAN_NS:
            text = label if isinstance(label, str) else label()
            noted["spans"].append((began, ended, text, cpu_ns() - cpu_began))


def note_passes() -> None:
    """One row a pass. The scheduler's file has: ns on a core, ns without one while ready to run, times."""
    schedstat: list[int] = []

    def delayed_ns() -> int:
        return int(os.pread(schedstat[0], 64, 0).split()[1])

    for name in ("submit_and_wait", "wait_single"):

        @patched(UringRing, name)
        def wait(original: Callable[..., Any], ring: Any, timeout_ns: int | None) -> Any:
            if not schedstat:
                schedstat.append(os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY))
            before = now_ns(), cpu_ns(), delayed_ns()
            single = original(ring, timeout_ns)
            after = now_ns(), cpu_ns(), delayed_ns()
            passes.extend((before[0], after[0], before[1], after[1], before[2], after[2]))
            return single


def place_of(coro: Any) -> str:
    """Where a coroutine that waits stands, and what it waits for, by function and line."""
    places = []
    while isinstance(coro, CoroutineType) and coro.cr_frame is not None:
        code = coro.cr_frame.f_code
        places.append(f"{code.co_qualname}:{coro.cr_frame.f_lineno}")
        coro = coro.cr_await
    return " > ".join(places[-2:])


def note_calls() -> None:
    """The work within passes."""

    @patched(Task, "_step")
    def step(original: Callable[..., None], task: Any) -> None:
        place = place_of(task._coro)
        timed(lambda: f"task {task.name}: {place} .. {place_of(task._coro)}", original, task)

    @patched(Loop, "_call")
    def call(original: Callable[..., None], loop: Any, fn: Any, where: str) -> None:
        timed(lambda: f"{where} {getattr(fn, '__qualname__', fn)}", original, loop, fn, where)

    @patched(Loop, "on_pass_end")
    def hook(original: Callable[..., None], loop: Any, fn: Any, stage: PassEnd) -> None:
        original(loop, functools.partial(timed, f"pass end {fn.__qualname__}", fn), stage)

    for owner, name in ((HttpConnection, "_serve"), (Planner, "plan"), (LaneTopics, "learn")):

        @patched(owner, name)
        def request(original: Callable[..., Any], *args: Any, label: str = f"{owner.__name__}.{name}") -> Any:
            return timed(label, original, *args)

    @patched(Loop, "_dispatch")
    def dispatch(original: Callable[..., bool], loop: Any) -> Any:
        return timed("completions", original, loop)

    @patched(Traffic, "deliver")
    def deliver(original: Callable[..., None], traffic: Any) -> None:
        timed("receives", original, traffic)

    @patched(Files, "write_now")
    def write_now(original: Callable[..., int], files: Any, fd: int, buffer: Any, offset: int, **options: Any) -> Any:
        return timed("write in place", original, files, fd, buffer, offset, **options)

    for name in ("allocate", "free_bytes", "file_size", "list_directory", "make_directory", "remove_directory"):

        @patched(Files, name)
        def blocking(original: Callable[..., Any], *args: Any, name: str = name) -> Any:
            return timed(f"{name}, a system call of the loop", original, *args)

    began = cpu_began = 0

    def collected(phase: str, info: dict[str, int]) -> None:
        nonlocal began, cpu_began
        if phase == "start":
            began, cpu_began = now_ns(), cpu_ns()
        elif now_ns() - began >= SPAN_NS:
            generation = info["generation"]
            noted["spans"].append((began, now_ns(), f"garbage collection {generation}", cpu_ns() - cpu_began))

    gc.callbacks.insert(0, collected)


def note_commits() -> None:
    """The work outside of passes that a write waits for."""
    reason = [""]
    held: dict[Any, tuple[int, str]] = {}

    def note_commit(shard: Any, way: str) -> None:
        commitment = shard._commitment
        beside = ", beside a sync" if shard._sync.running else ""
        label = f"commit {commitment.primitive.value}{way}{beside}"
        noted["commits"].append((commitment.submitted_ns, now_ns(), label, 0))

    @patched(Shard, "_on_results")
    def on_results(original: Callable[..., None], shard: Any, *results: int) -> None:
        note_commit(shard, "")
        original(shard, *results)

    @patched(InPlaceCommits, "commit")
    def write_in_place(original: Callable[..., Any], shard: Any, *args: Any) -> Any:
        outcome = original(shard, *args)
        note_commit(shard, " in place")
        return outcome

    @patched(Shard, "_send_next")
    def send_next(original: Callable[..., None], shard: Any) -> None:
        reason[0] = ""
        original(shard)
        if shard._commitment.batch is None and not shard.staging.is_empty:
            held.setdefault(shard, (now_ns(), reason[0]))
        elif shard in held:
            began, why = held.pop(shard)
            noted["holds"].append((began, now_ns(), f"held back: {why}", 0))

    @patched(Shard, "_on_held")
    def on_held(original: Callable[..., bool], shard: Any, why: Any, batch: Any) -> bool:
        goes_on = original(shard, why, batch)
        if not goes_on:
            if why.until is Until.TIME:
                reason[0] = "for the bound of the log" if shard.state._bound.pressed else "for a larger group"
            else:
                reason[0] = f"until {why.until.value}"
        return goes_on

    @patched(BackgroundSync, "_on_sync")
    def on_sync(original: Callable[..., None], sync: Any, *args: int) -> None:
        _upto, _size, submitted_ns, _res = args
        noted["syncs"].append((submitted_ns, now_ns(), "sync in the background", 0))
        original(sync, *args)

    for name in ("open", "close", "fsync", "fdatasync", "sync_directory", "write_all", "rename", "unlink", "read"):

        @patched(Files, name)
        async def operated(original: Callable[..., Any], *args: Any, name: str = name, **options: Any) -> Any:
            began = now_ns()
            try:
                return await original(*args, **options)
            finally:
                ended = now_ns()
                if ended - began >= OTHER_NS:
                    noted["others"].append((began, ended, name, 0))


def save(path: Path) -> None:
    arrays: dict[str, Any] = {"passes": np.array(passes, np.int64).reshape(-1, 6)}
    for name, rows in noted.items():
        arrays[name] = np.array([(row[0], row[1], row[3]) for row in rows], np.int64).reshape(-1, 3)
        arrays[f"{name}_labels"] = np.array([row[2][:_LABEL_CHARS] for row in rows], dtype=np.str_)
    np.savez(path, **arrays)


if __name__ == "__main__":
    place = Path(sys.argv.pop(1))
    note_passes()
    note_calls()
    note_commits()
    try:
        main()
    finally:
        save(place)
