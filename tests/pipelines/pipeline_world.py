"""Small data directories for the tests of pipelines, made through the library, at times that the tests choose."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import topics
from topics.clock import SystemClock
from topics.config import Config
from topics.files import Loss, open_directory, read_pieces, schema_of
from topics.loop.choose import open_ring
from topics.pipelines.target.layout import Layout, Shape
from topics.pipelines.target.part_files import arrow_schema

SETTINGS: dict[str, Any] = {
    "io": "portable",
    "segment_max_events": 50,
    "segment_bulk": 1,
    "pack_run_bytes": 1024,
    "wal_file_bytes": 65_536,
    "disk_reserve_bytes": 4096,
}
DAY_MS = 86_400_000
START_MS = 1_795_392_000_000 - 3_600_000
"""An hour before a UTC midnight."""


class StoppedClock(SystemClock):
    """Shows one time of day; timers run."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms


@contextmanager
def opened(path: Path, now_ms: int = START_MS, **settings: Any) -> Iterator[topics.Log]:
    """The log in a directory, at a time; closing it makes a checkpoint, after which the files hold everything."""
    config = replace(Config(), data_dir=str(path), **{**SETTINGS, **settings})
    ring, _ = open_ring(config, shared=True)
    log = topics.Log(config, ring, StoppedClock(now_ms))
    try:
        yield log
    finally:
        log.close()


def order(number: int, **more: Any) -> topics.NewRecord:
    """A record of topic orders."""
    tag = f"customer-{number % 7}" if number % 5 else None
    node = "n1" if number % 3 else None
    return topics.NewRecord({"id": number, "amount": number / 4, **more}, tag=tag, node=node, meta={"by": "test"})


def fill(path: Path) -> Path:
    """Topics orders (200 records over three days, customer-3's deleted), prices:eur (3 odd ones) and nothing (none)."""
    for day in range(3):
        with opened(path, START_MS + day * DAY_MS) as log:
            if not day:
                log.put_topic("nothing")
                log.append("prices:eur", ["x", None, {"id": "y", "amount": 2}])
            for start in range(1 + day * 70, min(201, 71 + day * 70), 10):
                log.append("orders", [order(n) for n in range(start, min(start + 10, 201))])
            log.delete("orders", match="customer-3")
    return path


def log_rows(path: Path, topic: str, cold: str | None = None) -> pa.Table:
    """All live records of a topic, as the files have them."""
    directory = open_directory(str(path), cold)
    columns = ["seq", "ts", "tag", "node", "data", "meta"]
    items = read_pieces(directory.location, directory.topics[topic].pieces, columns=columns)
    batches = [item for item in items if not isinstance(item, Loss)]
    return pa.Table.from_batches(batches, schema_of(columns)).cast(arrow_schema(Shape()))


def exported_rows(target: Path, layout: Layout, topic: str) -> pa.Table:
    """All rows of a topic that commits of a target list, by seq; each listed file is there as the commit says."""
    tables = []
    for file in layout.files():
        assert (target / file.path).stat().st_size == file.bytes
        if file.topic == topic:
            table = pq.ParquetFile(target / file.path).read()
            assert table.num_rows == file.rows
            tables.append(table)
    return pa.concat_tables(tables).sort_by("seq") if tables else pa.table({"seq": pa.array([], pa.int64())})


def parquet_files(target: Path) -> set[str]:
    """All Parquet files below a target but Delta's own, as paths below it."""
    return {str(path.relative_to(target)) for path in target.rglob("part-*.parquet")}
