"""Measure reads and writes of topics with Spark, beside sources and sinks that do nothing.

    python -m perf.spark [--only read,latency,idle,steady] [--rows 1000000] [--rounds 5] [--seconds 30] [--smoke]

read     `path`, seven columns, local[1], into the `noop` sink, beside a source of prebuilt Arrow batches of the same
         rows in as many partitions: CPU-seconds (JVM and Python workers) a million rows.
latency  one append at a time, until it can be read from the topic that a query copies it to, beside a batch of a Python
         source and a Python sink that do nothing: milliseconds.
idle     requests that the server counts while a query has no news, in 5 s.
steady   10,000 records a second through a query: its lag, last third beside first, and the server's p99 of writes of
         100 records, beside that with Spark's `rate` source at the same speed.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

import topics
from perf.figures import commit_id
from perf.servers import Server, topics_server
from topics.files import Location, open_directory, read_pieces

BATCH = 10_000
COLUMNS = ["topic", "seq", "ts", "tag", "node", "data", "meta"]
RATE = 10_000
CONFIG = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "OFF"}


# --- what is measured ------------------------------------------------------------------------------------------------


def read(spark: Any, scratch: Path, rows: int, rounds: int) -> None:
    from perf.compare.spark_sources import PrebuiltSource  # noqa: PLC0415 - needs pyspark

    spark.dataSource.register(PrebuiltSource)
    _fill(scratch / "data", rows)
    prebuild(scratch / "data", scratch / "rows.arrow")
    ours = (
        spark.read.format("topics").options(path=str(scratch / "data"), subscribe="orders", includeMeta="true").load()
    )
    parts = ours.rdd.getNumPartitions()
    theirs = spark.read.format("prebuilt").options(file=str(scratch / "rows.arrow"), parts=parts).load()
    assert ours.count() == theirs.count() == rows
    spent: dict[str, list[float]] = {"topics": [], "prebuilt": []}
    for at in range(rounds + 2):
        for name, frame in (("topics", ours), ("prebuilt", theirs)):
            before = cpu_seconds()
            frame.write.format("noop").mode("overwrite").save()
            if at >= 2:  # the JVM compiles in the first rounds
                spent[name].append((cpu_seconds() - before) * 1e6 / rows)
    over = statistics.median(spent["topics"]) - statistics.median(spent["prebuilt"])
    _row(
        "`path`, 7 columns, CPU-s a million rows",
        spent["topics"],
        "prebuilt batches",
        spent["prebuilt"],
        f"+{over:.2f}",
    )


def latency(spark: Any, scratch: Path, rounds: int) -> None:
    from perf.compare.spark_sources import EmptySource  # noqa: PLC0415

    spark.dataSource.register(EmptySource)
    with topics_server(scratch / "server") as server:
        _append(server, "in", 1)
        with _copy(spark, server, scratch / "copy"):
            _head_above(server, "out", 0)
            ours = []
            for at in range(rounds + 5):
                time.sleep(0.3)  # Spark is writing its commit of the batch before
                began = time.perf_counter()
                _append(server, "in", 1)
                _head_above(server, "out", at + 1)
                if at >= 5:
                    ours.append((time.perf_counter() - began) * 1e3)
    stream = spark.readStream.format("empty").option("pauseMs", "50").load().writeStream.format("empty")
    query = stream.option("pauseMs", "50").option("checkpointLocation", str(scratch / "empty")).start()
    while len(query.recentProgress) < rounds + 5:
        time.sleep(0.05)
    query.stop()
    theirs = [progress["durationMs"]["triggerExecution"] - 50.0 for progress in query.recentProgress[5:]]
    _row("append to visible in the sink, ms", ours, "a batch of an empty source and sink", theirs)


def idle(spark: Any, scratch: Path, seconds: float) -> None:
    with topics_server(scratch / "server") as server:
        _append(server, "in", 1)
        with _copy(spark, server, scratch / "copy"):
            _head_above(server, "out", 0)
            time.sleep(1)
            before, began = _requests(server), time.monotonic()
            time.sleep(seconds)
            asked = _requests(server) - before - 1  # the scrape itself
            each = asked * 5 / (time.monotonic() - began)
    print(f"| idle query, requests in 5 s | {each:.2f} | - | - | - |", flush=True)


def steady(spark: Any, scratch: Path, seconds: float) -> None:
    p99, lags = {}, []
    for name in ("rate", "topics"):
        with topics_server(scratch / "server") as server:
            _append(server, "in", 1)
            if name == "rate":
                source = spark.readStream.format("rate").option("rowsPerSecond", RATE).load()
            else:
                options = {"url": f"http://127.0.0.1:{server.port}", "subscribe": "in"}
                source = spark.readStream.format("topics").options(**options).load()
            query = source.writeStream.format("noop").option("checkpointLocation", str(scratch / name)).start()
            while query.lastProgress is None:
                time.sleep(0.05)
            _load(server, seconds, None)  # until the JVM has compiled
            took, lags = _load(server, seconds, query if name == "topics" else None)
            query.stop()
        p99[name] = sorted(took)[int(len(took) * 0.99)]
        print(f"| {name}: {len(took) * 100 / seconds:,.0f} records/s | | | | |", flush=True)
    third = max(1, len(lags) // 3)
    print(f"| lag at {RATE:,} records/s, records, last third | {statistics.median(lags[-third:]):,.0f} | first third | "
          f"{statistics.median(lags[:third]):,.0f} | |")  # fmt: skip
    _row("p99 of writes beside a stream, ms", [p99["topics"]], "beside the source `rate`", [p99["rate"]])


# --- how -------------------------------------------------------------------------------------------------------------


def _fill(path: Path, rows: int) -> None:
    """Write records of about 90 bytes of JSON, half of them with a tag; a checkpoint copies them at the end."""
    with topics.open(str(path)) as log:
        for start in range(0, rows, BATCH):
            log.append("orders", [_record(n) for n in range(start, min(start + BATCH, rows))])


def _record(n: int) -> topics.NewRecord:
    data = {"sku": n, "store": n % 500, "price": (n * 7919) % 100_000 / 100, "state": "shipped", "note": "x" * 20}
    return topics.NewRecord(data, tag=f"tag-{n % 5000}" if n % 2 else None)


def prebuild(directory: Path, goal: Path) -> None:
    """Write an Arrow file for `format("prebuilt")` with all records of topic orders."""
    topic = open_directory(str(directory)).topics["orders"]
    items = read_pieces(Location(str(directory), ""), topic.pieces, columns=COLUMNS)
    # Without the reader's "not null", which Spark's schema does not have.
    batches = [pa.RecordBatch.from_arrays(item.columns, names=COLUMNS) for item in items]
    with pa.OSFile(str(goal), "wb") as file, pa.ipc.new_file(file, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def cpu_seconds() -> float:
    """User and system time of all processes below this one, those that ended included."""
    clock = os.sysconf("SC_CLK_TCK")
    fields = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parts = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        fields[int(stat.parent.name)] = (int(parts[1]), sum(map(int, parts[11:15])) / clock)
    below, found = {os.getpid()}, 0.0
    while True:
        more = {pid for pid, (parent, _) in fields.items() if parent in below} - below
        if not more:
            return found
        below |= more
        found += sum(fields[pid][1] for pid in more)


@contextmanager
def _copy(spark: Any, server: Server, checkpoint: Path) -> Iterator[Any]:
    url = f"http://127.0.0.1:{server.port}"
    stream = spark.readStream.format("topics").options(url=url, subscribe="in", startingOffsets="earliest").load()
    writer = stream.select("data").writeStream.format("topics").options(url=url, topic="out")
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        yield query
    finally:
        query.stop()


def _append(server: Server, topic: str, count: int) -> None:
    server.request("POST", f"/v0/topics/{topic}", {"records": [{"data": at} for at in range(count)]})


def _head_above(server: Server, topic: str, seq: int) -> None:
    while True:
        try:
            if server.request("POST", f"/v0/topics/{topic}/diff", {"from_seq": seq, "wait_ms": 1000})["records"]:
                return
        except OSError:  # not made yet
            time.sleep(0.01)


def _requests(server: Server) -> int:
    link = http.client.HTTPConnection("127.0.0.1", server.port)
    link.request("GET", "/v0/metrics")
    text = link.getresponse().read().decode()
    link.close()
    return round(sum(float(n) for n in re.findall(r"^topics_http_requests_total(?:{[^}]*})? (\S+)", text, re.M)))


def _load(server: Server, seconds: float, query: Any) -> tuple[list[float], list[int]]:
    """Writes of 100 records at RATE, open loop. Returns ms of each, and the query's lags in between."""
    link = http.client.HTTPConnection("127.0.0.1", server.port)
    body = json.dumps({"records": [{"data": {"sku": at, "note": "x" * 60}} for at in range(100)]}).encode()
    took: list[float] = []
    head = [0]
    lags: list[int] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.5):
            progress = query.lastProgress
            end = json.loads(progress["sources"][0]["endOffset"])["topics"]["in"]["next"] - 1
            lags.append(max(0, head[0] - end))

    watcher = threading.Thread(target=watch)
    if query is not None:
        watcher.start()
    began = time.perf_counter()
    for at in range(round(seconds * RATE / 100)):
        due = began + at * 100 / RATE
        time.sleep(max(0.0, due - time.perf_counter()))
        link.request("POST", "/v0/topics/in", body, {"Content-Type": "application/json"})
        head[0] = json.loads(link.getresponse().read())["head_seq"]
        took.append((time.perf_counter() - due) * 1e3)
    over.set()
    if query is not None:
        watcher.join()
    link.close()
    return took, lags


def _row(question: str, ours: list[float], peer: str, theirs: list[float], ratio: str = "") -> None:
    def shown(values: list[float]) -> str:
        return f"{statistics.median(values):,.2f} ({min(values):,.2f}-{max(values):,.2f})"

    ratio = ratio or f"{statistics.median(ours) / statistics.median(theirs):.2f}"
    print(f"| {question} | {shown(ours)} | {peer} | {shown(theirs)} | **{ratio}** |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="read,latency,idle,steady")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    rows, rounds, seconds = options.rows, options.rounds, options.seconds
    if options.smoke:
        rows, rounds, seconds = 20_000, 1, 2.0
    root = str(Path(__file__).resolve().parent.parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    from topics.spark import session  # noqa: PLC0415 - after the workers' path is set

    questions: dict[str, Callable[[Any, Path], None]] = {
        "read": lambda spark, scratch: read(spark, scratch, rows, rounds),
        "latency": lambda spark, scratch: latency(spark, scratch, rounds * 12),
        "idle": lambda spark, scratch: idle(spark, scratch, seconds),
        "steady": lambda spark, scratch: steady(spark, scratch, seconds),
    }
    print(f"commit {commit_id()}, {rounds} rounds, {rows:,} rows, {seconds:g} s")
    print("| question | topics | beside | that | ratio |\n|---|---|---|---|---|")
    for name in options.only.split(","):
        with tempfile.TemporaryDirectory(dir=".") as scratch:
            spark = session("perf", "local[1]" if name == "read" else "local[2]", CONFIG)
            questions[name](spark, Path(scratch))
            spark.stop()


if __name__ == "__main__":
    main()
