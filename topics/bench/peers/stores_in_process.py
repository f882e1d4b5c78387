"""Stores that are called in this process: SQLite, LMDB, and a bare file."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from topics.bench.peers.in_process import Calls, InProcessSide, count_check, record_texts
from topics.bench.workload import SYNCED, Case

LMDB_BYTES = 64 << 30
"""Address space of the map; the file has only what is written."""
BLOCK = 4096
FILE_BYTES = 16 << 20
"""A write takes half of it at most."""


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
    """A write of whole blocks into a file that was zeroed before, and fdatasync for class fsync.

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
        fd = os.open(scratch / "bare", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.pwrite(fd, bytes(FILE_BYTES), 0)
            os.fsync(fd)

            def prepare(numbers: range) -> Callable[[], object]:
                data = b"".join(record_texts(spec, numbers))
                block = data.ljust(-(-len(data) // BLOCK) * BLOCK, b"\0")
                return partial(
                    _write, fd, block, numbers.start * BLOCK % (FILE_BYTES - len(block)) // BLOCK * BLOCK, synced
                )

            yield Calls(prepare, lambda written: [])
        finally:
            os.close(fd)


def _write(fd: int, block: bytes, position: int, synced: bool) -> None:
    os.pwrite(fd, block, position)
    if synced:
        os.fdatasync(fd)
