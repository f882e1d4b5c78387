"""Measure what HTTP costs a single-record write, without a socket and without an engine.

    python -m perf.http_requests [--requests 50000] [--rounds 5] [--smoke]

One connection's state is fed whole requests and an engine answers at once, so what is timed is the parse, the route,
the scan of the body and the answer. A head seen before is looked up; one seen for the first time is parsed.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterable
from typing import Any

from perf.figures import PAYLOAD, commit_id
from perf.no_probes import NoProbes
from topics.clock import SystemClock
from topics.config import Config
from topics.engine.state.append_request import AppendRequest
from topics.engine.values.results import AppendResult, Done
from topics.http.http1.http1_connection import HttpConnection
from topics.http.plan.service import Service
from topics.http.route_table import route_table

BODY = f'{{"records":[{{"data":{PAYLOAD}}}]}}'.encode()
HEAD = (
    b"POST /v0/topics/orders HTTP/1.1\r\nHost: 127.0.0.1:4000\r\nUser-Agent: perf/1.0\r\nAccept: */*\r\n"
    b"%bContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)
ANSWER = AppendResult(5, 5, 5, 1, False, False, 1000, 2000)


class InstantEngine:
    """Appends take no time."""

    refuses_writes = False
    throttle_window_ns = 0

    def spend_reading(self, size: int) -> None:
        pass

    def append(self, request: AppendRequest, done: Done[AppendResult]) -> None:
        done(ANSWER)


class NoWire:
    over_high_water = False

    def __init__(self) -> None:
        self.sent = b""

    def write(self, data: bytes) -> None:
        self.sent = data

    def close(self) -> None:
        raise AssertionError("a request was refused")

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class NoLoop:
    clock = SystemClock()
    passes = 0

    def call_later(self, delay_ns: int, fn: object) -> Any:
        raise AssertionError("nothing waits")

    def another_pass(self, after_ns: int = 0) -> None:
        raise AssertionError("nothing waits")

    def random_bytes(self, count: int) -> bytes:
        return bytes(count)

    def has_one_sender(self) -> bool:
        return False

    def has_few_senders(self) -> bool:
        return False

    def again(self) -> None: ...


def microseconds_a_request(parser: str, requests: Iterable[bytes]) -> float:
    service = Service(Config(http_parser=parser), route_table(), NoProbes(), NoLoop())
    service.serve(InstantEngine())  # type: ignore[arg-type]  # of which only `append` is asked
    wire = NoWire()
    connection = HttpConnection(service, wire)
    requests = list(requests)
    began = time.perf_counter()
    for request in requests:
        connection.receive(request)
        service.answer_turns.next_pass()
    took = time.perf_counter() - began
    assert wire.sent.startswith(b"HTTP/1.1 200 OK\r\n")
    return took / len(requests) * 1e6


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--requests", type=int, default=50_000)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--smoke", action="store_true", help="tiny, to see that it runs")
    chosen = options.parse_args()
    count, rounds = (200, 1) if chosen.smoke else (chosen.requests, chosen.rounds)
    seen = [HEAD % (b"", len(BODY)) + BODY] * count
    new = [HEAD % (b"Idempotency-Key: %d\r\n" % number, len(BODY)) + BODY for number in range(count)]
    print(f"commit {commit_id()}, {rounds} rounds of {count:,} requests of {len(seen[0])} bytes")
    print("| parser | head | us a request | spread |\n|---|---|---|---|")
    for parser, head, requests in (("httptools", "seen before", seen), ("httptools", "new", new), ("h11", "new", new)):
        times = [microseconds_a_request(parser, requests) for _ in range(rounds)]
        print(f"| {parser} | {head} | {statistics.median(times):.1f} | {min(times):.1f}-{max(times):.1f} |")


if __name__ == "__main__":
    main()
