"""How many records a second does the log itself take, and how long does a lone one wait?

    python -m perf.bare_log [--seconds 1] [--directory .] [--smoke]

No server and no clients: `writers` callbacks stage their next record of 81 bytes when the last one is committed, so
every batch holds one record of each. `lone` is one writer: the mean time between two of its commits.
"""

from __future__ import annotations

import argparse
import platform
import tempfile
import time
from pathlib import Path

from perf.figures import commit_id
from perf.frame_costs import DATA
from topics.clock import SystemClock
from topics.config import Config
from topics.loop import Loop, PassEnd
from topics.loop.choose import open_ring
from topics.store.commits.write_batch import Commit
from topics.store.format.file_table import FileTable
from topics.store.format.rows import RowRecord, pack_rows
from topics.store.wal.sharded_log import ShardedLog, ShardStart

ROWS = pack_rows([RowRecord(DATA)])


class Writers:
    """`count` writers of one class; each stages again as soon as it is answered."""

    def __init__(self, loop: Loop, log: ShardedLog, *, fsync: bool) -> None:
        self.loop = loop
        self.log = log
        self.fsync = fsync
        self.seq = 0
        self.running = True

    def stage(self, commit: Commit | None = None) -> None:
        if commit is not None and commit.error is not None:
            raise commit.error
        if self.running:
            self.seq += 1
            self.log.stage_records(1, self.seq, 1, ROWS, fsync=self.fsync)
            self.log.when_committed(1, self.fsync, self.stage)

    def run(self, count: int, seconds: float) -> float:
        """Records a second."""
        started, before = time.perf_counter(), self.seq
        for _ in range(count):
            self.stage()
        self.log.flush()
        while time.perf_counter() - started < seconds:
            self.loop.run_pass(None)
        rate = (self.seq - before) / (time.perf_counter() - started)
        self.running = False
        self.loop.run_until(lambda: self.log.queue_depth == 0)
        self.running = True
        return rate


def measure(commit: str, seconds: float, directory: str, file_bytes: int) -> list[str]:
    config = Config(data_dir=directory, commit=commit, wal_file_bytes=file_bytes)
    ring, _ = open_ring(config, shared=False)
    loop = Loop(ring, SystemClock())
    log = ShardedLog(loop, config, FileTable())
    try:
        loop.run_task(log.open([ShardStart()]))
        loop.on_pass_end(log.flush, PassEnd.COMMITS)
        cells = []
        for fsync in (True, False):
            writers = Writers(loop, log, fsync=fsync)
            cells.append(f"{1e6 / writers.run(1, seconds):.0f} us")
            cells += [f"{writers.run(count, seconds) / 1000:.0f} k" for count in (64, 256)]
        loop.run_task(log.close())
        return cells
    finally:
        loop.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--directory", default=".")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    seconds, file_bytes = (0.005, 1 << 20) if options.smoke else (options.seconds, Config().wal_file_bytes)
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, commit {commit_id()}")
    print("| commit | fsync, lone | 64 writers | 256 | disk, lone | 64 writers | 256 |\n|---|---|---|---|---|---|---|")
    for commit in ("auto", "link", "direct", "dsync"):
        with tempfile.TemporaryDirectory(dir=Path(options.directory)) as directory:
            print(f"| {commit} | {' | '.join(measure(commit, seconds, directory, file_bytes))} |", flush=True)


if __name__ == "__main__":
    main()
