"""Measure what one operation on the ring costs Python.

    python -m perf.ring_ops [--seconds 1] [--smoke]

One thread drives a UringRing over Unix socket pairs. Each line is the time of the ring's own calls (queue, submit and
wait, reap, recycle) divided by the operations. The kernel's share (the system call and the copies) is part of it; `raw`
is the same work with one system call an operation, from Python.
"""

from __future__ import annotations

import argparse
import platform
import socket
import statistics
import time
from collections.abc import Callable

from perf.figures import commit_id
from topics.uring._ring import lib
from topics.uring.uring_ring import UringRing

PAIRS = 128
TEXT = b"x" * 120


def collect(ring: UringRing, count: int) -> list[int]:
    """Waits for `count` completions; their flags."""
    seen: list[int] = []
    while len(seen) < count:
        ring.submit_and_wait(None)
        seen += ring.reap()[2]
    return seen


class Bench:
    def __init__(self, ring: UringRing) -> None:
        self.ring = ring
        self.pairs = [socket.socketpair() for _ in range(PAIRS)]
        self.sends = [(1000 + n, near.fileno(), TEXT) for n, (near, _) in enumerate(self.pairs)]
        self.large = [(user_data, fd, bytes(8192)) for user_data, fd, _ in self.sends]
        self.scratch = bytearray(1 << 16)

    def drain(self) -> None:
        for _, far in self.pairs:
            far.recv_into(self.scratch)

    def nops(self) -> int:
        """The floor: a call into C an operation, one system call for all."""
        for number in range(1, 257):
            lib.tp_nop(self.ring.setup.ring, number)
        collect(self.ring, 256)
        return 256

    def wait_and_reap_nothing(self) -> int:
        for _ in range(100):
            self.ring.submit_and_wait(0)
            self.ring.reap()
        return 100

    def sent(self, sends: list[tuple[int, int, bytes]]) -> int:
        self.ring.queue_sends(sends)
        collect(self.ring, PAIRS)
        return PAIRS

    def arm(self) -> None:
        for number, (_, far) in enumerate(self.pairs):
            self.ring.queue_recv(1 + number, far.fileno())
        self.ring.submit_and_wait(0)

    def received(self) -> int:
        """Reap, look at the bytes, recycle: what a pass does for each receive."""
        ring, seen = self.ring, 0
        while seen < PAIRS:
            ring.submit_and_wait(None)
            _, res, flags = ring.reap()
            views = list(map(ring.received, flags, res))
            seen += len(views)
            ring.recycle(flags)
        return PAIRS


def timed(prepare: Callable[[], object], work: Callable[[], int], after: Callable[[], object], seconds: float) -> str:
    """Like per_operation_ns, with work around each round that is not counted."""
    rounds = []
    end = time.perf_counter() + seconds
    while len(rounds) < 3 or time.perf_counter() < end:
        prepare()
        start = time.perf_counter_ns()
        count = work()
        rounds.append((time.perf_counter_ns() - start) / count)
        after()
    return f"{statistics.median(rounds):8.0f} ns  (best {min(rounds):.0f}, {len(rounds)} rounds)"


def nothing() -> None:
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each line")
    parser.add_argument("--smoke", action="store_true", help="a few rounds, to see that it runs")
    arguments = parser.parse_args()
    seconds = 0.01 if arguments.smoke else arguments.seconds
    print(f"{platform.platform()}, Python {platform.python_version()}, commit {commit_id()}, {PAIRS} connections")
    ring = UringRing(512, 4096, 512, 4096)
    bench = Bench(ring)

    def raw_sends() -> int:
        for near, _ in bench.pairs:
            near.send(TEXT)
        return PAIRS

    def raw_receives() -> int:
        for _, far in bench.pairs:
            far.recv_into(bench.scratch)
        return PAIRS

    print("nop, one C call each             ", timed(nothing, bench.nops, nothing, seconds))
    print("submit_and_wait(0) + empty reap  ", timed(nothing, bench.wait_and_reap_nothing, nothing, seconds))
    print("send 120 B, whole                ", timed(nothing, lambda: bench.sent(bench.sends), bench.drain, seconds))
    print("  of it queue_sends              ", queue_only(bench, seconds))
    print("send 8 KiB, whole                ", timed(nothing, lambda: bench.sent(bench.large), bench.drain, seconds))
    print("  raw: socket.send of 120 B      ", timed(nothing, raw_sends, bench.drain, seconds))
    print("  raw: socket.recv_into          ", timed(raw_sends, raw_receives, nothing, seconds))
    bench.arm()
    print("receive 120 B, reap to recycle   ", timed(raw_sends, bench.received, nothing, seconds))
    ring.close()


def queue_only(bench: Bench, seconds: float) -> str:
    def queue() -> int:
        bench.ring.queue_sends(bench.sends)
        return PAIRS

    def after() -> None:
        collect(bench.ring, PAIRS)
        bench.drain()

    return timed(nothing, queue, after, seconds)


if __name__ == "__main__":
    main()
