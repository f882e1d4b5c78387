"""Stores that are called in this process: SQLite, LMDB, and a bare file."""

from __future__ import annotations

import math
import mmap
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from topics.bench.peers.in_process import Calls, InProcessSide, count_check, record_texts
from topics.bench.workload import SYNCED, Case

LMDB_BYTES = 64 << 30
"""Address space of the map; the file has only what is written."""
BLOCK = 4096
FILE_BYTES = 16 << 20
"""A write takes half of it at most."""
PROBES = 15
Write = Callable[[memoryview, int], None]
"""Writes a block at a position."""


class SqliteStore(InProcessSide):
    """Rows of a table with an automatic key, in WAL mode: FULL for class fsync, OFF for others.

    The key is the rowid: AUTOINCREMENT would write a second table for each transaction.
    """

    name = "SQLite"

    def version(self) -> str:
        return f"SQLite {sqlite3.sqlite_version}, WAL; fsync: synchronous FULL, else OFF"

    @contextmanager
    def opened(self, case: Case, scratch: Path) -> Iterator[Calls]:
        workload = case.workload
        spec = workload.loads[0]
        with closing(sqlite3.connect(scratch / "peer.db", isolation_level=None)) as db:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute(f"PRAGMA synchronous={'FULL' if workload.topic.durability == SYNCED else 'OFF'}")
            db.execute("CREATE TABLE log (seq INTEGER PRIMARY KEY, data BLOB)")

            def prepare(numbers: range) -> Callable[[], object]:
                rows = [(text,) for text in record_texts(spec, numbers)]
                if len(rows) == 1:
                    return partial(db.execute, "INSERT INTO log (data) VALUES (?)", rows[0])
                return partial(_insert, db, rows)

            def stored() -> int:
                return int(db.execute("SELECT count(*) FROM log").fetchone()[0])

            yield Calls(prepare, lambda written: [count_check(stored(), written)])


def _insert(db: sqlite3.Connection, rows: list[tuple[bytes]]) -> None:
    db.execute("BEGIN")
    db.executemany("INSERT INTO log (data) VALUES (?)", rows)
    db.execute("COMMIT")


class LmdbStore(InProcessSide):
    """Keys that ascend, a transaction a call: with syncs for class fsync, without for others."""

    name = "LMDB"

    def missing(self) -> str:
        return "" if find_spec("lmdb") else "lmdb is not installed: pip install lmdb"

    def version(self) -> str:
        version = ".".join(str(part) for part in import_module("lmdb").version()) if not self.missing() else ""
        return f"LMDB {version}; fsync: sync=True, else sync=False"

    @contextmanager
    def opened(self, case: Case, scratch: Path) -> Iterator[Calls]:
        spec = case.workload.loads[0]
        synced = case.workload.topic.durability == SYNCED
        module = import_module("lmdb")
        with closing(module.open(str(scratch / "lmdb"), map_size=LMDB_BYTES, sync=synced, metasync=synced)) as env:

            def prepare(numbers: range) -> Callable[[], object]:
                keys = [number.to_bytes(8, "big") for number in numbers]
                return partial(_put, env, list(zip(keys, record_texts(spec, numbers), strict=True)))

            yield Calls(prepare, lambda written: [count_check(int(env.stat()["entries"]), written)])


def _put(env: Any, rows: list[tuple[bytes, bytes]]) -> None:
    with env.begin(write=True) as transaction:
        for key, value in rows:
            transaction.put(key, value, append=True)


class BareFile(InProcessSide):
    """A write of whole blocks into a file that was zeroed before. For class fsync it is what takes
    less here: a write and fdatasync, or one past the page cache (O_DIRECT) with RWF_DSYNC.

    No server and no format: the floor of a commit on this disk.
    """

    name = "bare write and sync"

    def refuses(self, case: Case) -> str:
        loads = case.workload.loads
        if any(load.bytes * load.batch > FILE_BYTES // 2 for load in loads):
            return f"its file has room for writes of up to {FILE_BYTES >> 21} MiB"
        if case.workload.kinds == {"write"} and len(loads) == 1 and loads[0].connections == 1:
            return ""
        return super().refuses(case)

    @contextmanager
    def opened(self, case: Case, scratch: Path) -> Iterator[Calls]:
        spec = case.workload.loads[0]
        synced = case.workload.topic.durability == SYNCED
        path = scratch / "bare"
        with ExitStack() as stack:
            fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            stack.callback(os.close, fd)
            os.pwrite(fd, bytes(FILE_BYTES), 0)
            os.fsync(fd)
            block = mmap.mmap(-1, FILE_BYTES // 2)  # on whole pages, as O_DIRECT needs it
            ways: list[Write] = [partial(_write, fd, synced=synced)]
            if synced:
                with suppress(OSError):  # a file system without O_DIRECT
                    direct = os.open(path, os.O_RDWR | os.O_DIRECT)
                    stack.callback(os.close, direct)
                    ways.append(partial(_write_direct, direct))
            usual = memoryview(block)[: -(-spec.bytes * spec.batch // BLOCK) * BLOCK]
            write = ways[quicker([partial(way, usual, 0) for way in ways])]

            def prepare(numbers: range) -> Callable[[], object]:
                data = b"".join(record_texts(spec, numbers))
                size = -(-len(data) // BLOCK) * BLOCK
                block[:size] = data.ljust(size, b"\0")
                position = numbers.start * BLOCK % (FILE_BYTES - size) // BLOCK * BLOCK
                return partial(write, memoryview(block)[:size], position)

            yield Calls(prepare, lambda written: [])


def _write(fd: int, block: memoryview, position: int, *, synced: bool) -> None:
    os.pwrite(fd, block, position)
    if synced:
        os.fdatasync(fd)


def _write_direct(fd: int, block: memoryview, position: int) -> None:
    os.pwritev(fd, [block], position, os.RWF_DSYNC)


def quicker(calls: list[Callable[[], object]], clock: Callable[[], int] = time.perf_counter_ns) -> int:
    """Return which of some calls has the lowest median by turns. One that fails has none."""
    took: list[list[float]] = [[] for _ in calls]
    for _ in range(PROBES) if len(calls) > 1 else ():
        for call, times in zip(calls, took, strict=True):
            start = clock()
            try:
                call()
                times.append(clock() - start)
            except OSError:
                times.append(math.inf)
    medians = [median(times) if times else 0.0 for times in took]
    return medians.index(min(medians))
