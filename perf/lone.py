"""Measure the CPU of one request by itself, without system calls.

    python -m perf.lone [--passes 4000] [--rounds 5] [--only write,read,...] [--functions 20]
        [--pause-us 200] [--awake] [--smoke]

A server runs in this process on its real ring, log and engine. After some requests over a real
connection its ring answers at once: the wait returns the same receive again, a write and
a send return that all bytes were taken. So a pass costs what Python and C of this package cost, two
clocks of the measurement, and three empty functions in place of the ring's own, which would be a
call in C and its system call. The library's row is a whole call of `Log.append` with its write,
because one call in C makes both.

Times are medians over the passes of a round, in microseconds, of them the median over the rounds and
the range: from the end of the wait to the call that sends the answer, and of the whole pass. The
goal is 15 us to the answer of a request; the library has none. One after the other, passes find
all memory in the caches; `apart` the thread sleeps for 0.2 ms (`--pause-us`) before each, as it does
for a lone client, and the core's caches are used by others meanwhile. With `--awake` it asks for
the time instead of sleeping, so that nothing but the sleep is left out. Bytecodes are those that the
interpreter executes in a pass, counted by its tracing, by room of topics/; in brackets those after
the answer was sent.
"""

from __future__ import annotations

import statistics
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import topics
from perf.figures import PAYLOAD, commit_id, interpreter
from perf.servers import http_request
from perf.traced_passes import Bytecodes, Client, Effort, Passes, effort_of, effort_options, served
from topics.bench.results.figure_text import spread
from topics.bench.topics_server.topics_loads import text_frame
from topics.errors import UsageError

PASSES = 4000
"""In each round."""
PASSES_OF_A_SMOKE = 80
GOAL_US = 15.0
"""A pass may take so long from request to answer."""
TRACED = 64
"""Passes in which bytecodes are counted."""
WARM = 200
PAUSE_US = 200
"""About the time between two requests of one client."""
RECORDS = [b"x" * len(PAYLOAD)]
WEBSOCKET = "/v0/ws"
HANDSHAKE = (
    b"GET /v0/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
ROWS = {
    "write": ("disk", "/v0/topics/bench", f'{{"records":[{{"data":{PAYLOAD}}}]}}'),
    "write-fsync": ("fsync", "/v0/topics/bench", f'{{"records":[{{"data":{PAYLOAD}}}]}}'),
    "read": ("disk", "/v0/topics/bench/diff", '{"from_seq":0,"limit":1}'),
    "tail": ("disk", "/v0/topics/bench/diff", '{"from_seq":1}'),
    "publish": (
        "disk",
        WEBSOCKET,
        f'{{"op":"publish","topic":"bench","records":[{{"data":{PAYLOAD}}}],"request_id":1}}',
    ),
}
NAMES = {
    "write": "lone write, `disk`",
    "write-fsync": "lone write, `fsync`",
    "read": "lone read of one record",
    "tail": "read at the end",
    "publish": "lone publish over a WebSocket, `disk`",
    "append": "library: `append`, `disk`",
}


class Figures(NamedTuple):
    """Times are the medians of each round, in us."""

    to_answer: list[float]
    whole: list[float]
    to_answer_apart: list[float]
    whole_apart: list[float]
    bytecodes: Bytecodes
    """Bytecodes of the traced pass with the fewest: a slower one renders longer times, too."""


def measured(one: Callable[[], None], passes: Passes, effort: Effort) -> Figures:
    for _ in range(WARM):
        one()
    passes.awake = effort.awake
    series = _medians(one, passes, effort.rounds, effort.passes)
    passes.pause_ns = effort.pause_us * 1000
    apart = _medians(one, passes, effort.rounds, effort.passes // 4)
    passes.pause_ns = 0
    with passes.traced():
        for _ in range(TRACED):
            one()
    passes.began_ns = 0
    return Figures(*series, *apart, min(passes.traced_passes, key=Counter.total))


def _medians(one: Callable[[], None], passes: Passes, rounds: int, count: int) -> tuple[list[float], list[float]]:
    """Return the medians of each round, in us: to the answer, and of whole passes."""
    to_answer: list[float] = []
    whole: list[float] = []
    for _ in range(rounds):
        passes.clear()
        for _ in range(count):
            one()
        passes.end()
        to_answer.append(statistics.median(passes.to_answer) / 1000)
        whole.append(statistics.median(passes.whole) / 1000)
    return to_answer, whole


def measure(row: str, effort: Effort) -> Figures:
    """Return the figures of a row, with its data in a directory of its own."""
    with tempfile.TemporaryDirectory(dir=".") as name:
        of_row = of_library if row == "append" else partial(of_server, row)
        return of_row(effort, f"{name}/data")


def of_server(row: str, effort: Effort, directory: str) -> Figures:
    durability, path, body = ROWS[row]
    is_publish = path == WEBSOCKET
    request = text_frame(body.encode()) if is_publish else http_request("POST", path, body.encode())
    passes = Passes()
    with served(directory, durability) as (loop, server), Client(loop, server.address) as client:
        ring = loop.ring
        first = http_request("POST", "/v0/topics/bench", f'{{"records":[{{"data":{PAYLOAD}}}]}}'.encode())
        client.ask(first)
        if is_publish:
            client.ask(HANDSHAKE)
        for _ in range(20):
            client.ask(request)
        conn = server.listener.connections[0]
        receive = bytearray(request)

        really_wait = ring.wait_single

        def wait_single(timeout_ns: int | None) -> tuple[int, memoryview] | None:
            passes.end()
            if loop._operations.callbacks:  # a background sync, or the next file of the log
                return really_wait(timeout_ns)
            receive[:] = request
            view = memoryview(receive)
            passes.begin()
            return conn.recv_data, view

        def send_now(_fd: int, data: bytes) -> int:
            passes.answer()
            return len(data)

        def write_now(_fd: int, buffer: memoryview, _offset: int, *, dsync: bool) -> int:
            return len(buffer)

        answer_at_once: Any = ring
        answer_at_once.wait_single, answer_at_once.send_now, answer_at_once.write_now = wait_single, send_now, write_now
        lane, host = server.lane, server._websockets._host
        assert lane is not None
        single: Any = lane.single if host is None else host.lone
        before = single.taken
        figures = measured(lambda: loop.run_pass(None), passes, effort)
        taken, sent = single.taken - before, effort.passes * effort.rounds
        if taken < sent:
            raise UsageError(
                f"{NAMES[row]}: {taken} requests had the short pass, and {sent} were measured: run it again"
            )
        del answer_at_once.wait_single, answer_at_once.send_now, answer_at_once.write_now
    return figures


def of_library(effort: Effort, directory: str) -> Figures:
    passes = Passes()
    with topics.open(directory) as log:
        log.append("bench", RECORDS)

        def one() -> None:
            passes.begin()
            log.append("bench", RECORDS)
            passes.answer()
            passes.end()

        figures = measured(one, passes, effort)
    return figures


def print_row(row: str, figures: Figures, functions: int) -> None:
    bytecodes = figures.bytecodes
    rooms: Counter[str] = Counter()
    after_answer: Counter[str] = Counter()
    for (room, _name, after), count in bytecodes.items():
        rooms[room] += count
        after_answer[room] += count if after else 0
    by_room = ", ".join(f"{room} {count} ({after_answer[room]})" for room, count in rooms.most_common())
    total = f"{rooms.total()} ({after_answer.total()})"
    times = " | ".join(spread(found) for found in figures[:4])
    print(f"| {NAMES[row]} | {times} | {verdict(row, figures)} | {total} | {by_room} |", flush=True)
    for (room, name, after), count in bytecodes.most_common(functions):
        print(f"    {count:5} {'after ' if after else ''}{room} {name}")


def verdict(row: str, figures: Figures) -> str:
    """Return whether the median of the rounds meets the goal, in a series and apart."""
    if row not in ROWS:
        return "-"
    series, apart = (
        "met" if statistics.median(found) <= GOAL_US else "**missed**"
        for found in (figures.to_answer, figures.to_answer_apart)
    )
    return f"<= {GOAL_US:.0f}: {series}, apart {apart}"


def main() -> None:
    parser = effort_options(__doc__, passes=PASSES, pause_us=PAUSE_US, functions=0)
    parser.add_argument("--only", default=",".join(NAMES), help="rows, of " + ", ".join(NAMES))
    parser.add_argument("--awake", action="store_true", help="ask for the time in the pauses instead of sleeping")
    options = parser.parse_args()
    effort = effort_of(parser, options, smoke=PASSES_OF_A_SMOKE, least=4)._replace(awake=options.awake)
    if unknown := [row for row in options.only.split(",") if row not in NAMES]:
        parser.error(f"--only has {', '.join(unknown)}: use rows of {', '.join(NAMES)}")
    print(f"commit {commit_id()}, {interpreter()}, {effort.rounds} rounds of {effort.passes} passes")
    print("| | to the answer | whole pass | to the answer, apart | whole pass, apart | goal | bytecodes | by room |")
    print("|---|---|---|---|---|---|---|---|")
    try:
        for row in options.only.split(","):
            print_row(row, measure(row, effort), options.functions)
    except UsageError as error:
        parser.exit(1, f"perf.lone: {error}\n")


if __name__ == "__main__":
    main()
