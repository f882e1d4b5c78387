"""Measure a million records read from files into Arrow batches, beside pyarrow's read of Parquet.

    python -m perf.file_batches [--records 1000000] [--rounds 7] [--only scrub] [--smoke]

CPU-seconds of this process, one thread, files in the page cache; each round takes all ways one after the other. Both
read batch by batch, and drop each. Parquet is written without compression and with pyarrow's other defaults; the
yardstick is its fastest way to read that on one thread.
"""

from __future__ import annotations

import argparse
import functools
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

import topics
from perf.figures import commit_id
from topics.files import COLUMNS, Directory, Piece, open_directory, read_pieces, scan_pieces
from topics.files.scanning import scan_native, scan_pure
from topics.files.texts import NATIVE, PURE, Decoder

SEVEN = COLUMNS[:-1]
NUMBERS = ("seq", "ts", "tag")


class Way(NamedTuple):
    """One way to read it all."""

    name: str
    read: Callable[[], int]
    """Returns rows, or bytes where `unit` is GB."""
    unit: str = "M rows"
    goal: str = ""


def fill(path: Path, records: int) -> None:
    """Sealed segments of 10,000 records of 90 bytes, each with a tag of a thousand, half of them with a node."""
    chance = random.Random(1)
    with topics.open(str(path), segment_max_events=10_000, checkpoint_wal_bytes=8 << 20) as log:
        for start in range(0, records, 1000):
            rows = [
                topics.NewRecord(
                    {"n": at, "sku": chance.randrange(10**6), "pad": "x" * 50},
                    tag=f"customer-{chance.randrange(1000)}",
                    node="node-1" if at % 2 else None,
                )
                for at in range(start, min(records, start + 1000))
            ]
            log.append("orders", rows)


def ways(directory: Directory, parquet: Path) -> Iterator[Way]:
    pieces = directory.topics["orders"].pieces

    def files(columns: tuple[str, ...], decoder: Decoder | None, *, verify: bool = True) -> int:
        assert decoder is not None, "the C module is not built"
        found = read_pieces(directory.location, pieces, columns=columns, decoder=decoder, verify=verify)
        return sum(batch.num_rows for batch in found if isinstance(batch, pa.RecordBatch))

    def table(columns: tuple[str, ...]) -> int:
        rows: int = pq.read_table(parquet, columns=list(columns), use_threads=False).num_rows
        return rows

    def batches(columns: tuple[str, ...], *, mapped: bool = False) -> int:
        with pq.ParquetFile(parquet, memory_map=mapped) as file:
            return sum(batch.num_rows for batch in file.iter_batches(columns=list(columns), use_threads=False))

    yield Way("Parquet, all columns: read_table", functools.partial(table, SEVEN))
    yield Way("Parquet, all columns: iter_batches", functools.partial(batches, SEVEN))
    yield Way("Parquet, all columns: iter_batches, mapped", functools.partial(batches, SEVEN, mapped=True))
    yield Way("all columns, verified", functools.partial(files, SEVEN, NATIVE), goal=">= 4; CPU at most Parquet's")
    yield Way("all columns, verified, without C", functools.partial(files, SEVEN, PURE), goal=">= 2")
    yield Way(
        "all columns, unverified, without C",
        functools.partial(files, SEVEN, PURE, verify=False),
        goal="CPU at most 1.5x Parquet's",
    )
    yield Way("seq, ts, tag", functools.partial(files, NUMBERS, NATIVE), goal=">= 30")
    yield Way("seq, ts, tag, without C", functools.partial(files, NUMBERS, PURE))
    yield Way("Parquet: seq, ts, tag", functools.partial(batches, NUMBERS))
    yield Way("scrub", functools.partial(scrub, directory, pieces, native=True), "GB", ">= 1")
    yield Way("scrub, without C", functools.partial(scrub, directory, pieces, native=False), "GB")


def scrub(directory: Directory, pieces: tuple[Piece, ...], *, native: bool) -> int:
    size = 0
    for report in scan_pieces(directory.location, pieces, scan=scan_native if native else scan_pure):
        assert report is not None
        assert not report.findings
        size += report.bytes
    return size


def as_parquet(directory: Directory, path: Path) -> int:
    """Writes all rows to it; returns how many."""
    pieces = directory.topics["orders"].pieces
    found = [one for one in read_pieces(directory.location, pieces, columns=SEVEN) if isinstance(one, pa.RecordBatch)]
    rows = pa.Table.from_batches(found)
    pq.write_table(rows, path, compression="none")
    count: int = rows.num_rows
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="ways whose name contains this")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    records, rounds = (20_000, 1) if options.smoke else (options.records, options.rounds)
    pa.set_cpu_count(1)
    with tempfile.TemporaryDirectory(dir=".") as name:
        data, parquet = Path(name) / "data", Path(name) / "rows.parquet"
        fill(data, records)
        directory = open_directory(str(data))
        assert as_parquet(directory, parquet) == records
        pieces = directory.topics["orders"].pieces
        print(
            f"commit {commit_id()}, {rounds} rounds, {records:,} records in {len(pieces)} files, "
            f"{sum(piece.bytes for piece in pieces) / 1e6:,.0f} MB; Parquet {parquet.stat().st_size / 1e6:,.0f} MB; "
            f"pyarrow {pa.__version__}"
        )
        chosen = [way for way in ways(directory, parquet) if options.only in way.name]
        taken: dict[str, list[float]] = {way.name: [] for way in chosen}
        amounts: dict[str, int] = {}
        for round_ in range(rounds + (not options.smoke)):  # the first one fills caches
            for way in chosen:
                began = time.process_time()
                amounts[way.name] = way.read()
                if round_ or options.smoke:
                    taken[way.name].append(time.process_time() - began)
        yardsticks = [statistics.median(taken[name]) for name in taken if name.startswith("Parquet, all")]
        print("| read | a CPU-second | CPU beside Parquet | goal |\n|---|---|---|---|")
        for way in chosen:
            rates = [amounts[way.name] / (1e9 if way.unit == "GB" else 1e6) / seconds for seconds in taken[way.name]]
            beside = "-"
            if way.name.startswith("all") and yardsticks:
                beside = f"{statistics.median(taken[way.name]) / min(yardsticks):.2f}"
            middle, low, high = statistics.median(rates), min(rates), max(rates)
            print(f"| {way.name} | {middle:.2f} ({low:.2f}-{high:.2f}) {way.unit} | {beside} | {way.goal or '-'} |")


if __name__ == "__main__":
    main()
