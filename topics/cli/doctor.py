"""`topics doctor`: a report of what this machine supports, what `serve` would use, and why.

It measures a commit with each commit primitive, too.
"""

from __future__ import annotations

import contextlib
import os
import platform
import resource
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from topics.clock import SystemClock
from topics.common.memory import page_aligned
from topics.config import Config
from topics.errors import StorageError
from topics.loop import Loop
from topics.loop.choose import open_ring
from topics.store.cores.core_directories import layout_faults, refuse_several_cores
from topics.store.cores.slot_map_file import MapState, read_slot_map
from topics.store.disk.data_directory import PROBE_NAME
from topics.store.disk.disk_space import is_full
from topics.store.disk.log_sizes import LogSizes
from topics.store.format.log_format import BLOCK_BYTES
from topics.uring.probe import probe
from topics.uring.support import describe

FILE_BYTES = 4 << 20
COMMITS = 200
_FULL = ": the disk is full. Delete records, or give the volume space (docs/operations.md)"


class CommitCost(NamedTuple):
    """Quantiles of the time of one commit of one block, in microseconds."""

    primitive: str
    p50_us: float
    p99_us: float


def report(config: Config) -> Iterator[str]:
    """Yield the lines of the report, each as soon as it is known.

    A data directory that does not exist is created for the measurement, and removed at the end.
    Raises: OSError if the data directory cannot be used.
    """
    yield f"kernel: {platform.release()} {platform.machine()}, Python {platform.python_version()}"
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield f"open files: {files[0]} (hard limit {files[1]}); each connection needs one"
    yield from describe(probe()).splitlines()
    ring, reason = open_ring(replace(config, ring_entries=64, ring_completions=256), shared=False)
    loop = Loop(ring, SystemClock())
    made = False
    try:
        yield f"engine: {ring.name} (--io {config.io}): {reason}"
        if ring.name == "uring":
            from topics.uring.polling import describe_polling  # noqa: PLC0415 - it loads the binding

            yield f"polling before a wait sleeps: {describe_polling(config.spin_us)}"
        made = ring.make_directory(config.data_dir)
        low_water = LogSizes(config, ring.volume_bytes(config.data_dir)).low_water
        free = ring.free_bytes(config.data_dir)
        yield f"data directory: {config.data_dir}{' (does not exist yet)' if made else ''}"
        yield from _refusal(loop, config.data_dir)
        is_low = _FULL if free < low_water else ""
        yield f"free space: {free >> 20} MiB; appends stop below {low_water >> 20} MiB{is_low}"
        block_bytes = ring.direct_block_bytes(config.data_dir)
        yield f"O_DIRECT: {f'works, blocks of {block_bytes} bytes' if block_bytes else 'does not work here'}"
        first, *cases = commit_cases(config.commit, block_bytes)
        yield f"commit: {first}"
        yield from cases
        yield f"one commit of {BLOCK_BYTES} bytes into a preallocated file, {COMMITS} in a row, by engine {ring.name}:"
        try:
            for cost in measure_commits(loop, config.data_dir, direct=bool(block_bytes)):
                yield f"  {cost.primitive:<28} p50 {cost.p50_us:7.0f} us   p99 {cost.p99_us:7.0f} us"
        except OSError as error:
            if not is_full(error):
                raise
            yield f"  not measured: no space for a file of {FILE_BYTES >> 20} MiB"
    finally:
        loop.close()
        if made:
            os.rmdir(config.data_dir)


def _refusal(loop: Loop, path: str) -> Iterator[str]:
    """Yield how several cores share the directory, if they do, and why `serve` refuses it."""
    with contextlib.suppress(StorageError):  # the sentence below is that error
        found = loop.run_task(read_slot_map(loop.files, path))
        if found is not None:
            stored = found.stored
            yield f"  cores: {stored.slots.cores}, which own {', '.join(map(str, stored.slots.counts()))} slots"
            yield from (f"  damaged: {sentence}" for sentence in found.damage)
            if stored.state is MapState.WHOLE:
                for fault in loop.run_task(layout_faults(loop.files, path, stored)):
                    yield f"  damaged: {fault.sentence}"
    try:
        loop.run_task(refuse_several_cores(loop.files, path))
    except StorageError as error:
        yield f"  not opened: {error}"


def commit_cases(setting: str, block_bytes: int) -> list[str]:
    """Return a line for each case of `commit_choice.choose`: its primitive, and why.

    block_bytes: 0 without O_DIRECT.
    """
    if not block_bytes:
        return ["link: a buffered write linked to an fdatasync, for lack of O_DIRECT"]
    if setting != "auto":
        return [f"{setting}: asked for; link where unsynced bytes precede"]
    return [
        "auto:",
        "  no writer waits for a sync    a bare write, synced in the background",
        "  a lone commit                 dsync: one O_DIRECT write with RWF_DSYNC",
        "  a group                       dsync or link, or dsync in place: whichever proves faster",
        "  unsynced bytes precede it     link: a buffered write linked to an fdatasync",
        "  64 KiB and more               direct: an O_DIRECT write linked to an fdatasync",
    ]


def measure_commits(loop: Loop, directory: str, *, direct: bool) -> Iterator[CommitCost]:
    """Yield the cost of each commit primitive, measured on a temporary file in `directory`.

    direct: O_DIRECT works there, so its two primitives are measured, too.
    Raises: OSError if a test commit fails.
    """
    path = os.path.join(directory, PROBE_NAME)
    files = loop.files
    block = page_aligned(BLOCK_BYTES)  # O_DIRECT needs aligned memory
    block[:] = b"\1" * BLOCK_BYTES
    try:
        fd = loop.run_task(files.open(path, os.O_CREAT | os.O_RDWR))
        loop.run_task(files.allocate_zeroed(fd, FILE_BYTES))
        loop.run_task(files.fdatasync(fd))
        yield _measure(loop, "link (buffered, fdatasync)", lambda at, done: files.commit_nowait(fd, block, at, done))
        loop.run_task(files.close(fd))
        if direct:
            fd = loop.run_task(files.open(path, os.O_RDWR | os.O_DIRECT))
            yield _measure(
                loop, "direct (O_DIRECT, fdatasync)", lambda at, done: files.commit_nowait(fd, block, at, done)
            )
            yield _measure(
                loop,
                "dsync (O_DIRECT, RWF_DSYNC)",
                lambda at, done: files.write_nowait(fd, block, at, lambda res: done(res, 0), dsync=True),
            )
            loop.run_task(files.close(fd))
    finally:
        loop.run_task(files.unlink(path))


def _measure(loop: Loop, name: str, commit: Callable[[int, Callable[[int, int], None]], None]) -> CommitCost:
    """Time COMMITS commits, one after the other.

    commit: starts a commit at a byte of the file; its callback gets the results of write and sync.
    """
    took: list[int] = []
    for number in range(COMMITS):
        results: list[tuple[int, int]] = []
        began = loop.clock.monotonic_ns()
        commit(number * BLOCK_BYTES % FILE_BYTES, lambda *both, results=results: results.append(both))
        loop.run_until(lambda results=results: bool(results))  # type: ignore[misc]
        took.append(loop.clock.monotonic_ns() - began)
        wrote, synced = results[0]
        if wrote != BLOCK_BYTES or synced != 0:
            raise OSError(-min(wrote, synced), f"a test commit failed: write {wrote}, sync {synced}")
    took.sort()
    return CommitCost(name, took[COMMITS // 2] / 1e3, took[COMMITS * 99 // 100] / 1e3)
