"""Measure the check of a write's JSON and the search for its records.

    python -m perf.json_scan [--rounds 5] [--seconds 0.5] [--smoke]

Every case calls what the server calls (`WriteScanner.scan`, for other bodies `read_object`), so the figures hold
the Python around the C. Beside it, for scale: `msgspec.json.decode` and `json.loads` of the same bytes, which check
less (duplicate keys, 1e400, nesting) and build objects the server never needs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import time
from collections.abc import Callable

import msgspec

from perf.figures import commit_id, spread
from topics.config import Config
from topics.engine.bodies.write_body import WriteScanner
from topics.engine.values.json_fields import read_object

RECORD = b'{"data":{"sku":12345,"qty":3,"name":"some thing of note"},"tag":"order:1"}'
SPACED = b'{"data": {"sku": 12345, "qty": 3, "name": "some thing of note"}, "tag": "order:1"}'
FOREIGN = '{"data":{"sku":12345,"qty":3,"name":"eine Sache von Güte, 価値"},"tag":"größe"}'.encode()
LONG = b'{"data":{"sku":12345,"lines":["' + b"lorem ipsum dolor " * 50 + b'",1.5,null,true]}}'
NUMBERS = b'{"data":[' + b",".join(b"%d.25" % i for i in range(100)) + b"]}"
TWICE = b'{"data":{"sku":1,"sku":2,"qty":3,"name":"some thing of note"},"tag":"order:1"}'


def body_of(record: bytes, count: int) -> bytes:
    return b'{"records":[' + b",".join([record] * count) + b"]}"


def cases() -> dict[str, tuple[bytes, int]]:
    """name -> body, records in it."""
    found = {"single": (body_of(RECORD, 1), 1), "single, blanks": (body_of(SPACED, 1), 1)}
    found["single, node and key"] = (body_of(RECORD, 1)[:-1] + b',"node":"w1","idempotency_key":"k-1"}', 1)
    found["single, repeated key"] = (body_of(TWICE, 1), 1)
    for count in (100, 10_000):
        found[f"batch of {count}"] = (body_of(RECORD, count), count)
    for name, record in (("blanks", SPACED), ("not ASCII", FOREIGN), ("1 KB each", LONG), ("numbers", NUMBERS)):
        found[f"batch of 1000, {name}"] = (body_of(record, 1000), 1000)
    return found


def seconds_each(call: Callable[[], object], rounds: int, seconds: float) -> list[float]:
    """Seconds a call, one figure a round."""
    calls, figures = 1, []
    while True:
        start = time.perf_counter()
        for _ in range(calls):
            call()
        if (spent := time.perf_counter() - start) > seconds / 10:
            break
        calls *= 4
    calls = max(1, int(calls * seconds / spent))
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        figures.append((time.perf_counter() - start) / calls)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--smoke", action="store_true", help="one short round of everything")
    options = parser.parse_args()
    rounds, seconds = (1, 0.002) if options.smoke else (options.rounds, options.seconds)
    scanner = WriteScanner(Config())
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, commit {commit_id()}")
    print(f"{'case':28} {'bytes':>9} {'ns a record: scan':>24} {'GB/s':>6} {'msgspec':>9} {'json':>9}  rows")
    for name, (body, records) in cases().items():
        figures = seconds_each(lambda: scanner.scan(body), rounds, seconds)  # noqa: B023 - called at once
        others = [
            min(seconds_each(lambda: decode(body), 1, seconds / 4)) / records * 1e9  # noqa: B023
            for decode in (msgspec.json.decode, json.loads)
        ]
        digest = hashlib.sha256(scanner.scan(body).rows.spans).hexdigest()[:8]
        print(
            f"{name:28} {len(body):9,} {spread(figures, 1e9 / records):>24} {len(body) / min(figures) / 1e9:6.2f} "
            f"{others[0]:9,.0f} {others[1]:9,.0f}  {digest}"
        )
    diff = b'{"from_seq":1234,"limit":100,"wait_ms":1000}'

    def read_diff() -> int:
        fields = read_object(diff)
        return fields.u64("from_seq", 0) + fields.u32("limit", 0) + fields.u32("wait_ms", 0)

    print(f"three fields of a diff body: {spread(seconds_each(read_diff, rounds, seconds), 1e9)} ns")


if __name__ == "__main__":
    main()
