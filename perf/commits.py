"""How long does a lone commit take on this disk, for each way the ring can do it?

    python -m perf.commits [--commits 400] [--bytes 4096,16384] [--directory .] [--busy 1] [--smoke]

One commit at a time into a preallocated and zeroed file, as the log writes. The ways take turns, commit by commit, so
that the disk's moods fall on all of them alike. Beside them: pwrite and fdatasync as system calls from Python.
`--busy 1` lets another process burn a core meanwhile: a way that needs a kernel thread of one core waits for it.
"""

from __future__ import annotations

import argparse
import mmap
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from perf.figures import commit_id
from topics.uring.uring_ring import UringRing

FILE_BYTES = 32 << 20


def zeroed_file(path: Path, flags: int = 0) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    os.posix_fallocate(fd, 0, FILE_BYTES)
    for offset in range(0, FILE_BYTES, 1 << 20):
        os.pwrite(fd, bytes(1 << 20), offset)
    os.fsync(fd)
    os.close(fd)
    return os.open(path, os.O_RDWR | flags)


class Ways:
    def __init__(self, ring: UringRing, directory: Path, size: int) -> None:
        self.ring = ring
        self.buffer = mmap.mmap(-1, size)  # page-aligned, as O_DIRECT wants it
        self.buffer.write(b"q" * size)
        self.buffered = zeroed_file(directory / "buffered")
        self.direct = zeroed_file(directory / "direct", os.O_DIRECT)

    def finish(self, expected: dict[int, int]) -> None:
        got: dict[int, int] = {}
        while len(got) < len(expected):
            self.ring.submit_and_wait(None)
            user_data, res, _ = self.ring.reap()
            got.update(zip(user_data, res, strict=True))
        assert got == expected, got

    def link(self, fd: int, offset: int) -> None:
        self.ring.queue_commit(1, 2, fd, self.buffer, offset)
        self.finish({1: len(self.buffer), 2: 0})

    def dsync(self, fd: int, offset: int) -> None:
        self.ring.queue_write(1, fd, self.buffer, offset, dsync=True)
        self.finish({1: len(self.buffer)})

    def one_by_one(self, fd: int, offset: int) -> None:
        self.ring.queue_write(1, fd, self.buffer, offset)
        self.finish({1: len(self.buffer)})
        self.ring.queue_fsync(2, fd, data_only=True)
        self.finish({2: 0})

    def system_calls(self, fd: int, offset: int) -> None:
        assert os.pwrite(fd, self.buffer, offset) == len(self.buffer)
        os.fdatasync(fd)

    def in_place(self, fd: int, offset: int) -> None:
        assert self.ring.write_now(fd, self.buffer, offset, dsync=True) == len(self.buffer)

    def all(self) -> dict[str, tuple[Callable[[int, int], None], int]]:
        return {
            "write linked to fdatasync, buffered": (self.link, self.buffered),
            "write linked to fdatasync, O_DIRECT": (self.link, self.direct),
            "write with RWF_DSYNC, buffered": (self.dsync, self.buffered),
            "write with RWF_DSYNC, O_DIRECT": (self.dsync, self.direct),
            "write, wait, fdatasync, buffered": (self.one_by_one, self.buffered),
            "pwritev2 with RWF_DSYNC, buffered": (self.in_place, self.buffered),
            "pwritev2 with RWF_DSYNC, O_DIRECT": (self.in_place, self.direct),
            "system calls pwrite, fdatasync, buffered": (self.system_calls, self.buffered),
            "system calls pwrite, fdatasync, O_DIRECT": (self.system_calls, self.direct),
        }

    def close(self) -> None:
        os.close(self.buffered)
        os.close(self.direct)


def measure(ways: Ways, size: int, commits: int) -> dict[str, list[float]]:
    """Microseconds of each commit."""
    times: dict[str, list[float]] = {name: [] for name in ways.all()}
    for number in range(commits):
        offset = number * size % (FILE_BYTES - size)
        offset -= offset % 4096
        for name, (commit, fd) in ways.all().items():
            start = time.perf_counter_ns()
            commit(fd, offset)
            times[name].append((time.perf_counter_ns() - start) / 1000)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=400)
    parser.add_argument("--bytes", default="4096,16384")
    parser.add_argument("--directory", default=".")
    parser.add_argument("--busy", type=int, default=0, help="processes that burn a core each meanwhile")
    parser.add_argument("--smoke", action="store_true", help="a few commits, to see that it runs")
    options = parser.parse_args()
    commits = 5 if options.smoke else options.commits
    print(f"{platform.platform()}, Python {platform.python_version()}, commit {commit_id()}")
    print(f"{commits} commits each, {options.busy} busy cores")
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.busy)]
    try:
        run(options, commits)
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def run(options: argparse.Namespace, commits: int) -> None:
    ring = UringRing()
    for size in map(int, options.bytes.split(",")):
        with tempfile.TemporaryDirectory(dir=options.directory) as scratch:
            if not ring.direct_block_bytes(scratch):
                sys.exit("O_DIRECT does not work in this directory: name another with --directory")
            ways = Ways(ring, Path(scratch), size)
            times = measure(ways, size, commits)
            ways.close()
        print(f"\n| {size} bytes | p50 us | p99 us | mean us |\n|---|---|---|---|")
        for name, values in times.items():
            p99 = sorted(values)[len(values) * 99 // 100]
            print(f"| {name} | {statistics.median(values):.0f} | {p99:.0f} | {statistics.mean(values):.0f} |")
    ring.close()


if __name__ == "__main__":
    main()
