"""Exactly once while things die: tasks, commits, workers, the driver and the server. The sink is checked seq by seq.

`make spark CRASHES=n` sets how many processes are killed, and SEED which: TOPICS_TEST_CRASHES, TOPICS_TEST_SEED.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.spark.own_server import OwnServer, own_server

pytestmark = pytest.mark.spark
CRASHES = int(os.environ.get("TOPICS_TEST_CRASHES", "20"))
SEED = int(os.environ.get("TOPICS_TEST_SEED", "1"))
DEADLINE_S = 300


def check_copies(server: OwnServer) -> None:
    """Each record of `in` is in `out` once, and the seqs of `out` have no hole."""
    copies = server.records("out")
    assert [copy["$seq"] for copy in copies] == list(range(1, len(copies) + 1))
    assert sorted(copy["data"]["seq"] for copy in copies) == [record["$seq"] for record in server.records("in")]


def test_tasks_that_fail_before_or_after_their_append_and_commits_that_fail_repeat_nothing(
    spark: Any, tmp_path: Path
) -> None:
    """Goal: any failure of a batch is repaired by its repetition. Method: the query is started until it ends well."""
    from tests.spark.jvm.flaky import AFTER, BEFORE, COMMIT, FlakySource  # noqa: PLC0415 - needs pyspark

    spark.dataSource.register(FlakySource)
    failures = tmp_path / "failures"
    failures.mkdir()
    with own_server(tmp_path) as server:
        server.put("in", [{"i": i} for i in range(360)])
        for _ in range(100):
            stream = spark.readStream.format("topics").options(
                url=server.url, subscribe="in", startingOffsets="earliest", minPartitions=3, maxOffsetsPerTrigger=60
            )
            query = (
                stream.load()
                .selectExpr("to_json(struct(seq)) data")
                .writeStream.format("flaky")
                .options(url=server.url, topic="out", failures=str(failures))
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            try:
                query.awaitTermination()
                break
            except Exception as error:
                assert "Failure" in str(error)  # noqa: PT017 - Spark's exception has the text and not the class
        check_copies(server)
    happened = Counter(path.name.partition(".")[0] for path in failures.iterdir())
    assert min(happened[kind] for kind in (BEFORE, AFTER, COMMIT)) >= 2


@pytest.mark.timeout(DEADLINE_S + 120 * CRASHES)
def test_workers_the_driver_and_the_server_are_killed_at_random_places(tmp_path: Path) -> None:
    """Goal: no gap and no duplicate. Method: kill at random times while records come in, then wait and compare."""
    pytest.importorskip("pyspark")
    rng = random.Random(SEED)
    with own_server(tmp_path) as server, _feeding(server, rng.randrange(1 << 32)), _driver(server, tmp_path) as driver:
        _wait_for(lambda: _head(server, "out") > 0)
        killed: Counter[str] = Counter()
        while killed.total() < CRASHES:
            time.sleep(rng.uniform(0.05, 1.5))
            victim = rng.choice(("server", "server", "worker", "worker", "driver"))
            if victim == "server":
                server.kill()
                time.sleep(rng.uniform(0, 0.5))
                server.start()
            elif victim == "worker":
                workers = _workers(driver.process.pid)
                if not workers:
                    continue
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rng.choice(workers), signal.SIGKILL)
            else:
                driver.kill()
                driver.start()
                before = _head(server, "out")
                _wait_for(lambda at=before: _head(server, "out") > at)  # type: ignore[misc]
            killed[victim] += 1
        _FEED.clear()
        _wait_for(lambda: _head(server, "out") >= _head(server, "in"))
        driver.kill()
        check_copies(server)
        print(f"killed {dict(killed)}, {_head(server, 'out')} records")


# --- what is killed --------------------------------------------------------------------------------------------------

_FEED = threading.Event()


@contextlib.contextmanager
def _feeding(server: OwnServer, seed: int) -> Any:
    """Records for `in` until _FEED is cleared, some at a time; those that find no server are not sent again."""
    rng = random.Random(seed)
    server.put("in", [{"i": 0}])
    _FEED.set()

    def feed() -> None:
        while _FEED.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException):
                server.put("in", [{"i": i} for i in range(rng.randint(1, 50))])
            time.sleep(0.05)

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        yield
    finally:
        _FEED.clear()
        thread.join()


class _Driver:
    def __init__(self, server: OwnServer, folder: Path) -> None:
        self._command = [sys.executable, "-m", "tests.spark.jvm.crash_driver", server.url, str(folder / "checkpoint")]
        self._output = (folder / "driver.log").open("ab")
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            self._command, stdout=self._output, stderr=self._output, stdin=subprocess.DEVNULL
        )

    def kill(self) -> None:
        """Python, JVM and workers together, as when a machine ends."""
        for pid in (self.process.pid, *_descendants(self.process.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


@contextlib.contextmanager
def _driver(server: OwnServer, folder: Path) -> Any:
    driver = _Driver(server, folder)
    try:
        yield driver
    finally:
        driver.kill()


def _descendants(pid: int) -> list[int]:
    """Processes below one, from /proc."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found: list[int] = []
    queue = [pid]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def _workers(driver: int) -> list[int]:
    """The Python processes that plan, read and write: the stream's own on the driver, and the workers of its tasks."""
    found = []
    for pid in _descendants(driver):
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if command.endswith(b"pyspark.worker\0") or b"pyspark.sql.streaming" in command:
                found.append(pid)
    return found


def _head(server: OwnServer, topic: str) -> int:
    try:
        return int(server.call("GET", f"/v0/topics/{topic}?touch=false")["head_seq"])
    except (OSError, http.client.HTTPException):
        return 0


def _wait_for(done: Any) -> None:
    ends = time.monotonic() + DEADLINE_S
    while not done():
        assert time.monotonic() < ends, "the query makes no progress"
        time.sleep(0.05)
