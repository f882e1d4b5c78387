"""Measure pipelines on one core, beside the reader and pyarrow's writer in the same run.

    python -m perf.pipelines [--rows 1000000] [--rounds 3] [--directory DIR] [--spark] [--smoke]

Records of about 90 bytes of JSON, half of them with a tag of 5,000, in sealed segments of a data directory that no
server has open. Figures are CPU-seconds of this process (user + system) a million rows, the least of the rounds; files
are in the page cache. The yardstick of an export is the reader with all its columns, verified, and pyarrow's
ParquetWriter with its defaults and zstd, one after the other.

With --spark: only exports on Spark, local[1], beside Spark's own Parquet writer (zstd, no directories) over a source of
prebuilt Arrow batches of the same rows. CPU-seconds of the driver, the JVM and the Python workers, the median of the
rounds after two that warm up.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import topics
from topics.files import open_directory, read_pieces
from topics.pipelines import check, compact, export, rollup, scrub
from topics.pipelines.engines import SparkEngine
from topics.pipelines.source import Origin

ROOT = Path(__file__).resolve().parent.parent
BATCH = 10_000
GOAL_EXPORT, GOAL_SPARK, GOAL_SCRUB = 1.3, 1.2, 1.0
COLUMNS = ["seq", "ts", "tag", "node", "data", "meta"]


def fill(path: Path, rows: int) -> None:
    """Write the records, and have a checkpoint copy them."""
    with topics.open(str(path)) as log:
        for start in range(0, rows, BATCH):
            log.append("orders", [_record(n) for n in range(start, min(start + BATCH, rows))])


def _record(n: int) -> topics.NewRecord:
    data = {"id": n, "user": f"user-{n % 7919:05d}", "action": "view", "amount": n / 4, "text": "x" * 24}
    return topics.NewRecord(data, tag=f"t{n % 5000}" if n % 2 else None)


def read_all(path: Path) -> list[pa.RecordBatch]:
    directory = open_directory(str(path))
    pieces = directory.topics["orders"].pieces
    return [
        item for item in read_pieces(directory.location, pieces, columns=COLUMNS) if isinstance(item, pa.RecordBatch)
    ]


def reader(path: Path, _target: Path) -> None:
    directory = open_directory(str(path))
    for _ in read_pieces(directory.location, directory.topics["orders"].pieces, columns=COLUMNS):
        pass


def pyarrow_writer(batches: list[pa.RecordBatch]) -> Callable[[Path, Path], None]:
    def write(_path: Path, target: Path) -> None:
        target.mkdir()
        with pq.ParquetWriter(target / "rows.parquet", batches[0].schema, compression="zstd") as writer:
            writer.write_table(pa.Table.from_batches(batches))

    return write


def exporting(layout: str, schema: str = "") -> Callable[[Path, Path], None]:
    def run(path: Path, target: Path) -> None:
        export.run(export.Options(Origin(path=str(path)), str(target), layout, schema))

    return run


def scrubbing(path: Path, _target: Path) -> None:
    scrub.run(scrub.Options(str(path)))


def rolling(path: Path, _target: Path) -> None:
    rollup.run(rollup.Options(Origin(path=str(path))))


def compacting(path: Path, target: Path) -> None:
    compact.run(compact.Options(Origin(path=str(path)), str(target), untagged="drop"))


def checking(rules: str) -> Callable[[Path, Path], None]:
    def run(path: Path, _target: Path) -> None:
        check.run(check.Options(Origin(path=str(path)), rules))

    return run


def comparing(lake: Path) -> Callable[[Path, Path], None]:
    def run(path: Path, _target: Path) -> None:
        assert not check.run(check.Options(Origin(path=str(path)), export=str(lake))).wrong

    return run


def main() -> None:
    """Print a line for each way."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", default=None)
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    rows, rounds = (2000, 1) if options.smoke else (options.rows, options.rounds)
    place = Path(tempfile.mkdtemp(prefix="perf-pipelines-", dir=options.directory))
    try:
        (_measure_on_spark if options.spark else _measure)(place, rows, rounds)
    finally:
        shutil.rmtree(place)


def _measure(place: Path, rows: int, rounds: int) -> None:
    data, lake = place / "data", place / "lake"
    fill(data, rows)
    rules = place / "rules.toml"
    rules.write_text('[[rule]]\npointer = "/amount"\nrequired = true\ntype = "number"\nrange = [0, ""]\n')
    exporting("manifest")(data, lake)
    ways = {
        "reader, all columns, verified": reader,
        "pyarrow's writer, zstd": pyarrow_writer(read_all(data)),
        "export, manifest": exporting("manifest"),
        "export, delta": exporting("delta"),
        "export, four typed fields": exporting("manifest", "id bigint, user string, action string, amount double"),
        "scrub": scrubbing,
        "rollup by the hour": rolling,
        "compact": compacting,
        "check of seqs": checking(""),
        "check with a rule": checking(str(rules)),
        "check against an export": comparing(lake),
    }
    least: dict[str, float] = {}
    for _ in range(rounds):
        for name, way in ways.items():
            target = place / "target"
            began = time.process_time()
            way(data, target)
            spent = (time.process_time() - began) / rows * 1e6
            least[name] = min(spent, least.get(name, spent))
            shutil.rmtree(target, ignore_errors=True)
    for name, spent in least.items():
        print(f"{name:32} {spent:7.3f} CPU-s a million rows  {1 / spent:7.2f} M rows/s")
    size = scrub.run(scrub.Options(str(data))).bytes
    print(f"scrub: {size / rows * 1e6 / least['scrub'] / 1e9:.2f} GB/s (goal: {GOAL_SCRUB})")
    yardstick = least["reader, all columns, verified"] + least["pyarrow's writer, zstd"]
    ratio = least["export, manifest"] / yardstick
    print(f"export beside reader + pyarrow's writer: {ratio:.2f} (goal: {GOAL_EXPORT})")


def _measure_on_spark(place: Path, rows: int, rounds: int) -> None:
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    from perf.compare.spark_sources import PrebuiltSource  # noqa: PLC0415 - needs pyspark
    from perf.spark import CONFIG, cpu_seconds, prebuild  # noqa: PLC0415 - as above
    from topics.spark import session  # noqa: PLC0415 - as above

    data, target = place / "data", place / "target"
    fill(data, rows)
    prebuild(data, place / "rows.arrow")
    spark = session("perf", "local[1]", CONFIG)
    spark.dataSource.register(PrebuiltSource)
    engine = SparkEngine(lambda: spark)
    prebuilt = spark.read.format("prebuilt").options(file=str(place / "rows.arrow"), parts=1).load().drop("topic")

    def exporting_on_spark() -> None:
        report = export.run(export.Options(Origin(path=str(data)), str(target)), engine=engine)
        assert report.rows == rows

    ways: dict[str, Callable[[], None]] = {
        "export on Spark": exporting_on_spark,
        "prebuilt batches, Spark's writer": lambda: prebuilt.write.option("compression", "zstd").parquet(str(target)),
    }
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 2):
        for name, way in ways.items():
            before = cpu_seconds() + time.process_time()
            way()
            if turn >= 2:
                spent[name].append((cpu_seconds() + time.process_time() - before) / rows * 1e6)
            shutil.rmtree(target)
    spark.stop()
    for name, values in spent.items():
        print(f"{name:32} {statistics.median(values):7.3f} ({min(values):.3f}-{max(values):.3f}) CPU-s a million rows")
    ratio = statistics.median(spent["export on Spark"]) / statistics.median(spent["prebuilt batches, Spark's writer"])
    print(f"export on Spark beside prebuilt batches: {ratio:.2f} (goal: {GOAL_SPARK})")


if __name__ == "__main__":
    main()
