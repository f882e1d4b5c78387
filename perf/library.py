"""How many records a second does the library take and give in this process, beside SQLite in the same one?

    python -m perf.library [--rounds 5] [--seconds 1] [--directory DIR] [--smoke]

Records of 100 bytes of JSON. Rounds go A B A B, each on a fresh directory. SQLite is in WAL mode with one table
(seq INTEGER PRIMARY KEY, data TEXT), `synchronous` OFF or FULL; batches are executemany, 1000 rows a transaction; its
dictionaries are encoded by msgspec first, which is what ours are. CPU is this process's, all threads, a record.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

import topics

BATCH = 1000
RECORDS = [{"id": 1_000_000 + n, "user": f"user-{n:05d}", "action": "view", "text": "x" * 38} for n in range(BATCH)]
TEXTS = [msgspec.json.encode(record) for record in RECORDS]
STRINGS = [(text.decode(),) for text in TEXTS]
SOON = 10_000
"""Futures not awaited one by one: so many are let stand at a time."""

Step = Callable[[], int]
"""A function that does some work and returns its number of records."""


@dataclass
class Row:
    """One way to do it."""

    name: str
    start: Callable[[str], Iterator[Step]]
    versus: str = ""
    goal: float = 0.0
    least: float = 0.0
    rates: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)

    def run(self, directory: Path, seconds: float, settle: float) -> None:
        path = Path(tempfile.mkdtemp(dir=directory))
        try:
            with contextmanager(self.start)(str(path)) as step:
                step()
                time.sleep(settle)  # ours zeroes the next log file in the background
                cpu, begun = time.process_time(), time.perf_counter()
                done, until = 0, begun + seconds
                while time.perf_counter() < until:
                    done += step()
                self.rates.append(done / (time.perf_counter() - begun))
                self.cpu_us.append((time.process_time() - cpu) / done * 1e6)
        finally:
            shutil.rmtree(path)


# --- ours ------------------------------------------------------------------------------------------------------------
def ours(write: Callable[[Any], int], durability: str = "disk") -> Callable[[str], Iterator[Step]]:
    def start(path: str) -> Iterator[Step]:
        with topics.open(path, checkpoint_wal_bytes=1 << 40) as log:
            log.put_topic("t", durability=durability)
            yield lambda: write(log)

    return start


def write_texts(log: Any) -> int:
    log.append_many("t", TEXTS)
    return BATCH


def write_values(log: Any) -> int:
    log.append("t", RECORDS)
    return BATCH


def write_one(log: Any) -> int:
    for record in RECORDS[:100]:
        log.append("t", (record,))
    return 100


def write_soon(log: Any) -> int:
    soon = log.append_soon
    futures = [soon("t", RECORDS[n % BATCH]) for n in range(SOON)]
    for future in futures:
        future.result()
    return SOON


def reading(step: Callable[[Any, int], tuple[int, int]]) -> Callable[[str], Iterator[Step]]:
    """step(log, from_seq): (records read, next cursor)."""

    def start(path: str) -> Iterator[Step]:
        with topics.open(path, checkpoint_wal_bytes=1 << 40) as log:
            for _ in range(300):
                log.append_many("t", TEXTS)
            at = 0

            def read() -> int:
                nonlocal at
                number, at = step(log, at)
                if at >= 300 * BATCH:
                    at = 0
                return number

            yield read

    return start


def read_columns(log: Any, at: int) -> tuple[int, int]:
    page = log.columns("t", at, limit=50_000)
    return len(page.seq), page.next_from_seq


def read_records(log: Any, at: int) -> tuple[int, int]:
    page = log.page("t", at, limit=1000)
    return len(page.records), page.next_from_seq


# --- SQLite ----------------------------------------------------------------------------------------------------------
def sqlite(synchronous: str, write: Callable[[sqlite3.Connection], int]) -> Callable[[str], Iterator[Step]]:
    def start(path: str) -> Iterator[Step]:
        db = sqlite3.connect(f"{path}/db", isolation_level=None)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute(f"PRAGMA synchronous={synchronous}")
        db.execute("CREATE TABLE t (seq INTEGER PRIMARY KEY, data TEXT)")
        yield lambda: write(db)
        db.close()

    return start


def insert_texts(db: sqlite3.Connection) -> int:
    db.execute("BEGIN")
    db.executemany("INSERT INTO t (data) VALUES (?)", STRINGS)
    db.execute("COMMIT")
    return BATCH


def insert_values(db: sqlite3.Connection) -> int:
    encode = msgspec.json.encode
    db.execute("BEGIN")
    db.executemany("INSERT INTO t (data) VALUES (?)", ((encode(record).decode(),) for record in RECORDS))
    db.execute("COMMIT")
    return BATCH


def insert_one(db: sqlite3.Connection) -> int:
    encode = msgspec.json.encode
    for record in RECORDS[:100]:
        db.execute("INSERT INTO t (data) VALUES (?)", (encode(record).decode(),))
    return 100


def select(path: str) -> Iterator[Step]:
    db = sqlite3.connect(f"{path}/db", isolation_level=None)
    db.execute("CREATE TABLE t (seq INTEGER PRIMARY KEY, data TEXT)")
    for _ in range(300):
        insert_texts(db)
    starts = count(0)

    def read() -> int:
        at = (next(starts) % 6) * 50_000
        return len(db.execute("SELECT seq, data FROM t WHERE seq > ? LIMIT 50000", (at,)).fetchall())

    yield read
    db.close()


ROWS = (
    Row("append_many(1000), JSON bytes, disk", ours(write_texts), "SQLite OFF, 1000 a transaction, text", 4.0, 4e6),
    Row("SQLite OFF, 1000 a transaction, text", sqlite("OFF", insert_texts)),
    Row("append(1000 dicts), disk", ours(write_values), "SQLite OFF, 1000 a transaction, dicts", 0.0, 1e6),
    Row("SQLite OFF, 1000 a transaction, dicts", sqlite("OFF", insert_values)),
    Row("append(1), disk", ours(write_one), "SQLite OFF, one a transaction", 0.5),
    Row("SQLite OFF, one a transaction", sqlite("OFF", insert_one)),
    Row("append(1), fsync", ours(write_one, "fsync"), "SQLite FULL, one a transaction", 1.0),
    Row("SQLite FULL, one a transaction", sqlite("FULL", insert_one)),
    Row("append_soon, futures awaited by the 10,000", ours(write_soon), "", 0.0, 4e5),
    Row("columns(50,000)", reading(read_columns), "SQLite, 50,000 a SELECT", 0.0, 5e6),
    Row("page(1000), records as objects", reading(read_records)),
    Row("SQLite, 50,000 a SELECT", select),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument(
        "--directory", type=Path, default=None, help="on the disk to measure; default: the temporary one"
    )
    parser.add_argument("--settle", type=float, default=3.0, help="seconds between opening and measuring")
    parser.add_argument("--only", default="", help="rows whose name holds this")
    parser.add_argument("--smoke", action="store_true", help="a run that only shows that it works")
    options = parser.parse_args()
    if options.smoke:
        options.rounds, options.seconds, options.settle = 1, 0.01, 0.0
    rows = [row for row in ROWS if options.only in row.name]
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(f"SQLite {sqlite3.sqlite_version}, records of {len(TEXTS[0])} bytes")
    for _ in range(options.rounds):
        for row in rows:
            row.run(options.directory or Path(tempfile.gettempdir()), options.seconds, options.settle)
    medians = {row.name: statistics.median(row.rates) for row in rows}
    for row in rows:
        line = f"{row.name:42} {medians[row.name]:12,.0f} records/s   {min(row.rates):,.0f} .. {max(row.rates):,.0f}"
        line += f"   {statistics.median(row.cpu_us):.2f} us CPU"
        if row.versus in medians:
            line += f"   {medians[row.name] / medians[row.versus]:.2f}x" + (f" (goal {row.goal})" if row.goal else "")
        print(line + (f"   (goal {row.least:,.0f})" if row.least else ""))


if __name__ == "__main__":
    main()
