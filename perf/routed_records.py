"""Count where the time of a routed record is spent, from a write to a watcher, beside a direct one.

    python -m perf.routed_records [--passes 1000] [--rounds 5] [--durability disk] [--pause-us 20000]
        [--functions 20] [--smoke]

A server runs in this process on its real ring, log and engine. One connection writes to a topic, and
one SSE stream follows that topic (direct) or the destination of its router (routed). Each write waits
for the event of the one before, so the pass that takes it has two sends: the answer, and the event.
Times are medians of the rounds in microseconds, from the end of the wait to the call of either send,
less the system calls between them. In the columns `apart` the loop waits before each write, for as
long as is between two of `topics bench run router-visible`. Bytecodes are those of the pass with the
median, and below are the functions of which the two rows differ most: routed less direct, apart, to
the answer and after it.
"""

from __future__ import annotations

import socket
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from perf.figures import PAYLOAD, commit_id, interpreter
from perf.servers import http_request
from perf.traced_passes import Bytecodes, Client, Effort, Passes, effort_of, effort_options, received, served
from topics.bench.results.figure_text import spread
from topics.errors import UsageError
from topics.loop import Loop
from topics.server.app import Server

PASSES = 1000
PASSES_OF_A_SMOKE = 20
PAUSE_US = 20_000
"""Between the writes of the row "a routed record reaches a watcher" of the table of goals."""
APART = 40
"""One pass of so many is made apart, since each takes a pause."""
WARM = 100
TRACED = 200
"""Passes at most in which bytecodes are counted."""
TRIES = 3
"""Writes at most for each pass that is measured: beside a background sync the event comes in another pass."""
UNPRESSED = {"pressure_full_lag_ms": 3_600_000, "pressure_full_latency_ms": 3_600_000}
"""Tracing makes passes so slow that deliveries would wait for each other as under load."""
COPIES = "copies"
ROWS = {"direct": "bench", "routed": COPIES}
"""The topic that the watcher follows."""


class Deliveries(Passes):
    """The passes of writes that a watcher is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.to_watcher: list[int] = []
        self.system_ns = 0
        """System calls of the pass in progress."""

    def begin(self) -> None:
        super().begin()
        self.system_ns = 0

    def send(self) -> None:
        """Note the time until now: that of the answer, or of the event."""
        if self.began_ns:
            found = self.to_watcher if self.is_answered else self.to_answer
            found.append(time.perf_counter_ns() - self.began_ns - self.system_ns)
            self.is_answered = True

    def clear(self) -> None:
        super().clear()
        self.to_watcher.clear()


class Figures(NamedTuple):
    """Times are the medians of each round, in us."""

    to_answer: list[float]
    to_watcher: list[float]
    to_answer_apart: list[float]
    to_watcher_apart: list[float]
    bytecodes: Bytecodes
    bytecodes_apart: Bytecodes


def watch(loop: Loop, client: Client, server: Server, topic: str) -> socket.socket:
    """Return the connection of a stream that follows a topic from its head on."""
    made = client.ask(http_request("POST", "/v0/watch", f'{{"topics":{{"{topic}":{{}}}}}}'.encode()))
    path = made.split(b'"stream_url":"')[1].split(b'"')[0].decode()
    stream = socket.create_connection(server.address)
    stream.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode())
    received(loop, stream)
    return stream


def measure(row: str, durability: str, effort: Effort) -> Figures:
    with (
        tempfile.TemporaryDirectory(dir=".") as name,
        served(f"{name}/data", durability, **UNPRESSED) as (loop, server),
        Client(loop, server.address) as client,
    ):
        made = f'{{"durability":"{durability}"}}'.encode()
        client.ask(http_request("PUT", f"/v0/topics/{COPIES}", made))
        if row == "routed":
            client.ask(http_request("PUT", "/v0/routers/copy", f'{{"source":"bench","dest":"{COPIES}"}}'.encode()))
        request = http_request("POST", "/v0/topics/bench", f'{{"records":[{{"data":{PAYLOAD}}}]}}'.encode())
        with watch(loop, client, server, ROWS[row]) as stream:
            for _ in range(20):
                client.ask(request)
            return figures_of(Writes(loop, server, client, stream), request, effort)


class Writes:
    """Writes over one connection, each after the event of the one before."""

    def __init__(self, loop: Loop, server: Server, client: Client, stream: socket.socket) -> None:
        self._loop = loop
        self._writer = server.listener.connections[0]
        self._client = client
        self._stream = stream
        self.passes = Deliveries()
        stream.setblocking(False)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note the passes that take a write, and the system calls in them."""
        passes, ring, writer = self.passes, self._loop.ring, self._writer
        really_wait, really_send, really_write = ring.wait_single, ring.send_now, ring.write_now

        def wait_single(timeout_ns: int | None) -> tuple[int, memoryview] | None:
            found = really_wait(timeout_ns)
            if found is not None and found[0] == writer.recv_data:
                passes.begin()
            return found

        def send_now(fd: int, data: bytes) -> int:
            passes.send()
            return outside(really_send, fd, data)

        def write_now(fd: int, buffer: memoryview, offset: int, *, dsync: bool) -> int:
            return outside(really_write, fd, buffer, offset, dsync=dsync)

        def outside(call: Callable[..., int], *arguments: Any, **named: Any) -> int:
            began_ns = time.perf_counter_ns()
            res = call(*arguments, **named)
            passes.system_ns += time.perf_counter_ns() - began_ns
            return res

        noting: Any = ring
        noting.wait_single, noting.send_now, noting.write_now = wait_single, send_now, write_now
        try:
            yield
        finally:
            del noting.wait_single, noting.send_now, noting.write_now

    def one(self, request: bytes, pause_us: int = 0) -> None:
        """Write once. Its times are kept if the event was sent in the pass of the answer."""
        passes, until_ns = self.passes, time.perf_counter_ns() + pause_us * 1000
        while (left_ns := until_ns - time.perf_counter_ns()) > 0:
            self._loop.run_pass(left_ns)  # timers are due, as in a server
        before = len(passes.to_watcher)
        self._client.ask(request)
        passes.began_ns = 0
        is_whole = len(passes.to_watcher) > before
        while not self._has_event():
            self._loop.run_pass(1_000_000)
        if is_whole and passes.bytecodes:
            passes.traced_passes.append(passes.bytecodes)
        elif not is_whole:
            del passes.to_answer[before:]
        passes.bytecodes = Counter()

    def _has_event(self) -> bool:
        try:
            return bool(self._stream.recv(1 << 20))
        except BlockingIOError:
            return False


def figures_of(writes: Writes, request: bytes, effort: Effort) -> Figures:
    with writes.noted():
        for _ in range(WARM):
            writes.one(request)
        series = _medians(writes, request, effort, 0)
        apart = _medians(writes, request, effort._replace(passes=max(4, effort.passes // APART)), effort.pause_us)
        count = min(TRACED, effort.passes)
        traced = _counted(writes, request, count, 0), _counted(writes, request, count, effort.pause_us)
    return Figures(*series, *apart, *traced)


def _counted(writes: Writes, request: bytes, count: int, pause_us: int) -> Bytecodes:
    """Return the bytecodes of the pass with the median."""
    passes = writes.passes
    passes.traced_passes.clear()
    with passes.traced():
        for _ in range(count):
            writes.one(request, pause_us)
    traced = sorted(passes.traced_passes, key=Counter.total)
    if not traced:
        raise UsageError("no event came in the pass of its write")
    return traced[len(traced) // 2]


def _medians(writes: Writes, request: bytes, effort: Effort, pause_us: int) -> tuple[list[float], list[float]]:
    """Return the medians of each round, in us: to the answer, and to the event."""
    to_answer: list[float] = []
    to_watcher: list[float] = []
    passes = writes.passes
    for _ in range(effort.rounds):
        passes.clear()
        for _ in range(effort.passes * TRIES):
            if len(passes.to_watcher) < effort.passes:
                writes.one(request, pause_us)
        if not passes.to_watcher:
            raise UsageError("no event came in the pass of its write")
        to_answer.append(statistics.median(passes.to_answer) / 1000)
        to_watcher.append(statistics.median(passes.to_watcher) / 1000)
    return to_answer, to_watcher


def print_row(row: str, figures: Figures) -> None:
    times = " | ".join(spread(found) for found in figures[:4])
    counts = " | ".join(counted(found) for found in (figures.bytecodes, figures.bytecodes_apart))
    print(f"| {row} | {times} | {counts} |", flush=True)


def counted(found: Bytecodes) -> str:
    after = sum(count for (_room, _name, is_after), count in found.items() if is_after)
    return f"{found.total()} ({after})"


def print_differences(direct: Bytecodes, routed: Bytecodes, functions: int) -> None:
    """Print the functions whose bytecodes differ most: routed less direct."""
    found = {key: routed[key] - direct[key] for key in {*direct, *routed}}
    for (room, name, after), more in sorted(found.items(), key=lambda one: -abs(one[1]))[:functions]:
        if more:
            print(f"    {more:+6} {'after ' if after else ''}{room} {name}")


def main() -> None:
    parser = effort_options(__doc__, passes=PASSES, pause_us=PAUSE_US, functions=20)
    parser.add_argument("--durability", default="disk", help="class of both topics")
    options = parser.parse_args()
    effort = effort_of(parser, options, smoke=PASSES_OF_A_SMOKE, least=1)
    print(f"commit {commit_id()}, {interpreter()}, {effort.rounds} rounds of {effort.passes} passes")
    print("| | answer | event | answer, apart | event, apart | bytecodes (after the answer) | apart |")
    print("|---|---|---|---|---|---|---|")
    try:
        found = {row: measure(row, options.durability, effort) for row in ROWS}
    except UsageError as error:
        parser.exit(1, f"perf.routed_records: {error}\n")
    for row, figures in found.items():
        print_row(row, figures)
    print_differences(found["direct"].bytecodes_apart, found["routed"].bytecodes_apart, options.functions)


if __name__ == "__main__":
    main()
