"""Measure the CPU of one request by itself in a live server, from its receive to its answer.

    python -m perf.live [--requests 2000] [--rounds 5] [--only write,read,...] [--pause-us 200] [--smoke]

A server with its own process, files and sockets, or the library, serves one client, which waits for each answer, and
sleeps for 0.2 ms (`--pause-us`) before the next request where the table says `apart`. `perf record` notes when the
server's thread enters and leaves each system call (tracepoints of `raw_syscalls`), and when the scheduler takes its
core or gives it one. So the time outside of the kernel is that of Python and C, with interrupts and page faults. What
the tracing itself takes between two calls, which the first line has, is subtracted: it is measured with a program that
does nothing else. Nothing is in the server for it.

A row has the time from the end of the wait that brought the request to the call that sends the answer, without the
system calls between, and the same from there to the next wait; of the library, one whole `append`. Times are medians
over the requests of a round, of them the median over the rounds and the range, in us; p90 is that of all rounds. The
share is that of the requests with the system calls that are shown, which most have; others, such as one during which a
file of the log was made, are left out. The goal is 15 us to the answer.

It needs Linux on x86-64, `perf`, and the rights to use tracepoints, as root has. The server does not poll
(`TOPICS_SPIN_US=0`), because polls would hide when the request came.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from perf import lone
from perf.figures import PAYLOAD, commit_id, interpreter
from perf.lone import GOAL_US, HANDSHAKE, PAUSE_US, WARM, WEBSOCKET
from perf.servers import http_request, topics_server
from perf.traced_passes import Effort
from topics.bench.results.figure_text import spread
from topics.bench.topics_server.topics_loads import text_frame
from topics.errors import UsageError

ROWS = {**lone.ROWS, "publish-fsync": ("fsync", *lone.ROWS["publish"][1:])}
LIBRARY = {"append": "disk", "append-fsync": "fsync"}
NAMES = {name: lone.NAMES[name] for name in lone.ROWS} | {
    "publish-fsync": "lone publish over a WebSocket, `fsync`",
    "append": lone.NAMES["append"],
    "append-fsync": "library: `append`, `fsync`",
}
APPENDS = 10
"""Calls of the library for each request: the first thousand run while files of the log are made."""
WAIT, ANSWER, MARK = "io_uring_enter", "sendto", "getppid"
EVENTS = "raw_syscalls:sys_enter,raw_syscalls:sys_exit"
_NAMES = {
    0: "read",
    1: "write",
    13: "rt_sigaction",
    18: "pwrite64",
    20: "writev",
    44: ANSWER,
    74: "fsync",
    75: "fdatasync",
    110: MARK,
}
_NAMES |= {202: "futex", 296: "pwritev", 328: "pwritev2", 426: WAIT}
"""System calls of x86-64; others are shown by their number."""
_LINE = re.compile(
    r"\s*(\d+) +([\d.]+): +(?:(PERF_RECORD_SWITCH) (IN|OUT)|raw_syscalls:(sys_enter|sys_exit): NR (\d+))"
)


class TraceEvent(NamedTuple):
    """An event, which is `in` or `out` (of a core), or `sys_enter` or `sys_exit`, of a system call."""

    at_us: float
    what: str
    call: str = ""


class LivePass(NamedTuple):
    """Time outside of the kernel of one request, in us, to its answer and after it; and its system calls."""

    to_answer: float
    after: float
    calls: tuple[str, ...]


class _Phase(Enum):
    """Where a thread is: before a request, between that and its answer, after the answer."""

    WAITS = 0
    ASKED = 1
    ANSWERED = 2


def traced_events(text: Iterable[str], thread: int) -> Iterator[TraceEvent]:
    """Yield what `perf script` has of one thread."""
    for line in text:
        if (found := _LINE.match(line)) and int(found[1]) == thread:
            whole, _, part = found[2].partition(".")
            at_us = int(whole) * 1e6 + int(part) / 10 ** (len(part) - 6)
            if found[3]:
                yield TraceEvent(at_us, found[4].lower())
            else:
                yield TraceEvent(at_us, found[5], _NAMES.get(int(found[6]), found[6]))


def live_passes(events: Iterable[TraceEvent], begin: str = WAIT, answer: str = ANSWER) -> list[LivePass]:
    """Return the passes of a trace: each from the end of the first `begin` after an answer to the
    next `answer`, and from there to the next `begin`, without the time in system calls and the time without a core.
    """
    passes: list[LivePass] = []
    calls: list[str] = []
    phase, spent, to_answer = _Phase.WAITS, 0.0, 0.0
    in_call, since = False, float("nan")
    for event in events:
        if event.what in ("sys_enter", "out") and not in_call:
            spent += event.at_us - since
        if event.what == "sys_enter":
            in_call = True
            if phase is _Phase.ASKED and event.call == answer:
                phase, to_answer, spent = _Phase.ANSWERED, spent, 0.0
            if phase is _Phase.ANSWERED and event.call == begin:
                passes.append(LivePass(to_answer, spent, tuple(calls)))
                phase = _Phase.WAITS
            elif phase is _Phase.ASKED:
                calls.append(event.call)
        elif event.what == "sys_exit":
            in_call, since = False, event.at_us
            if phase is _Phase.WAITS and event.call == begin:
                phase, spent, calls = _Phase.ASKED, 0.0, []
        elif event.what == "in" and not in_call:
            since = event.at_us
    return passes


@contextmanager
def recorded(thread: int, file: Path) -> Iterator[None]:
    """Record what a thread does in the body.

    Raises: UsageError where there is no perf, or no right to use it.
    """
    if shutil.which("perf") is None or os.uname().machine != "x86_64":
        raise UsageError("this needs `perf` (apt-get install linux-perf) on x86-64")
    command = ["perf", "record", "-q", "-m", "4M", "-o", str(file), "-e", EVENTS, "--switch-events", "-t", str(thread)]
    # The shell begins once the events are noted, and ends with its input.
    command += ["--", "sh", "-c", "echo begun; exec cat"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        if process.stdout.readline() != b"begun\n":
            raise UsageError(f"perf record: {process.stderr.read().decode().strip()}: this needs root, or its rights")
        try:
            yield
        finally:
            process.stdin.close()
            process.wait()


def events_of(file: Path, thread: int) -> list[TraceEvent]:
    command = ["perf", "script", "-i", str(file), "-F", "tid,time,event,trace", "--ns", "--show-switch-events"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return list(traced_events(done.stdout.splitlines(), thread))


def tracing_us(file: Path) -> float:
    """Return what the tracing takes between two system calls: those of dd, which does nothing else."""
    words = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=1000000"]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as busy:
        with recorded(busy.pid, file):
            time.sleep(0.02)
        busy.terminate()
    found = live_passes(events_of(file, busy.pid), "read", "write")
    return statistics.median(one.to_answer for one in found)


class LiveFigures(NamedTuple):
    """Medians of each round, to the answer and after it, in us. p90: that of all rounds, to the answer."""

    to_answer: list[float]
    after: list[float]
    p90: float
    share: float
    calls: tuple[str, ...]


def figures_of(rounds: list[list[LivePass]], tracing: float) -> LiveFigures:
    """Return the figures of the passes with the system calls that most have. tracing: us between two of these."""
    every = [one for each in rounds for one in each]
    (calls, count), *_others = Counter(one.calls for one in every).most_common()
    same = [[one for one in each if one.calls == calls] for each in rounds]
    traced = tracing * (len(calls) + 1)
    return LiveFigures(
        [statistics.median(one.to_answer for one in each) - traced for each in same],
        [statistics.median(one.after for one in each) - tracing for each in same],
        statistics.quantiles([one.to_answer for each in same for one in each], n=10)[-1] - traced,
        count / len(every),
        calls,
    )


def measure(row: str, effort: Effort, tracing: float) -> Iterator[LiveFigures]:
    """Yield the figures of a row, of requests one after the other and apart."""
    with tempfile.TemporaryDirectory(dir=".") as name:
        place = Path(name)
        if row in LIBRARY:
            yield figures_of([of_library(LIBRARY[row], effort, place) for _ in range(effort.rounds)], tracing)
            return
        durability, path, body = ROWS[row]
        with topics_server(place / "data", env={"TOPICS_SPIN_US": "0"}) as server, Client(server.port) as client:
            server.request("PUT", "/v0/topics/bench", {"durability": durability})
            server.request("POST", "/v0/topics/bench", {"records": [{"data": json.loads(PAYLOAD)}]})
            request = http_request("POST", path, body.encode())
            if path == WEBSOCKET:
                client.ask(HANDSHAKE, 1, 0)
                request = text_frame(body.encode())
            client.ask(request, WARM, 0)
            for pause_us in (0, effort.pause_us):
                rounds = []
                for _ in range(effort.rounds):
                    with recorded(server.process.pid, place / "trace"):
                        client.ask(request, effort.passes, pause_us)
                    rounds.append(live_passes(events_of(place / "trace", server.process.pid)))
                yield figures_of(rounds, tracing)


class Client:
    """One connection, which waits for each answer."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_error: object) -> None:
        self._socket.close()

    def ask(self, request: bytes, times: int, pause_us: int) -> None:
        for _ in range(times):
            if pause_us:
                time.sleep(pause_us / 1e6)
            self._socket.sendall(request)
            answer = self._socket.recv(65536)
            if not answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 101", b"\x81")):
                raise UsageError(f"the server answered {answer[:200]!r}")


_APPENDS = """
import os, sys, topics
directory, durability, times, record = sys.argv[1:]
with topics.open(directory) as log:
    log.put_topic("bench", durability=durability)
    for _ in range(200):
        log.append("bench", [record])
    print("begun", flush=True)
    sys.stdin.readline()
    for _ in range(int(times)):
        os.getppid()
        log.append("bench", [record])
    os.getppid()
    print("done", flush=True)
    sys.stdin.readline()
"""


def of_library(durability: str, effort: Effort, place: Path) -> list[LivePass]:
    """Return the calls of a process of its own: each is between two system calls that do nothing."""
    shutil.rmtree(place / "log", ignore_errors=True)
    words = [
        sys.executable,
        "-c",
        _APPENDS,
        str(place / "log"),
        durability,
        str(APPENDS * effort.passes),
        "x" * len(PAYLOAD),
    ]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        process.stdout.readline()
        with recorded(process.pid, place / "trace"):
            process.stdin.write(b"\n")
            process.stdin.flush()
            process.stdout.readline()
        process.communicate(b"\n")
    return live_passes(events_of(place / "trace", process.pid), MARK, MARK)


def print_row(row: str, name: str, figures: LiveFigures) -> None:
    verdict = "met" if statistics.median(figures.to_answer) <= GOAL_US else "**missed**"
    after = "-" if row in LIBRARY else spread(figures.after)
    cells = (name, spread(figures.to_answer), f"{figures.p90:.1f}", verdict, after, f"{figures.share:.0%}")
    print(f"| {' | '.join(cells)} | {', '.join(figures.calls)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000, help="in each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(NAMES), help="rows, of " + ", ".join(NAMES))
    parser.add_argument("--pause-us", type=int, default=PAUSE_US, help="between the requests of `apart`")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    if options.smoke:
        options.requests, options.rounds = 80, 1
    if options.rounds < 1 or options.requests < 80:
        parser.error(f"--rounds is {options.rounds} and --requests {options.requests}: use 1 or more, and 80 or more")
    if unknown := [row for row in options.only.split(",") if row not in NAMES]:
        parser.error(f"--only has {', '.join(unknown)}: use rows of {', '.join(NAMES)}")
    effort = Effort(options.rounds, options.requests, options.pause_us)
    try:
        with tempfile.TemporaryDirectory(dir=".") as place:
            tracing = tracing_us(Path(place) / "trace")
        print(f"commit {commit_id()}, {interpreter()}, {options.rounds} rounds of {options.requests} requests;")
        print(f"the tracing takes {tracing:.2f} us between two system calls, which is subtracted")
        print("| | to the answer | p90 | <= 15 | after it | share | system calls to the answer |")
        print("|---|---|---|---|---|---|---|")
        for row in options.only.split(","):
            for name, figures in zip((NAMES[row], f"{NAMES[row]}, apart"), measure(row, effort, tracing), strict=False):
                print_row(row, name, figures)
    except UsageError as error:
        parser.exit(1, f"perf.live: {error}\n")


if __name__ == "__main__":
    main()
