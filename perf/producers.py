"""Measure a write that names a producer beside a plain one, and the memory of a known producer.

    python -m perf.producers [--rounds 5] [--writes 3000] [--smoke]

Writes go through the library, whose caller waits for each; rounds go A B A B on topics of one directory.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from itertools import count

import topics
from perf.figures import PAYLOAD, commit_id
from topics.config import Config
from topics.engine.state.known_producers import Producers, ProducerTotals
from topics.store.format.log_format import ProducerPart

_PRODUCERS = 200
_ID = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"


def us_a_write(write: Callable[[], object], writes: int) -> float:
    began = time.process_time()
    for _ in range(writes):
        write()
    return (time.process_time() - began) / writes * 1e6


def compare(log: topics.Log, durability: str, records: int, rounds: int, writes: int) -> None:
    texts = [PAYLOAD.encode()] * records
    epochs = count()
    for name in ("plain", "parts"):
        log.put_topic(f"{name}-{records}", durability=durability, cap_records=100_000)

    def part() -> object:
        return log.append_many(f"parts-{records}", texts, producer=topics.Producer(_ID, next(epochs)))

    plain, named = [], []
    for _ in range(rounds):
        plain.append(us_a_write(lambda: log.append_many(f"plain-{records}", texts), writes))
        named.append(us_a_write(part, writes))
    ratio = statistics.median(b / a for a, b in zip(plain, named, strict=True))
    left, right = statistics.median(plain), statistics.median(named)
    print(
        f"| `{durability}`, {records} records a write | {left:.1f} us | {right:.1f} us | **{ratio:.2f}** |", flush=True
    )


def bytes_a_producer(epochs: int, parts: int) -> float:
    """Return the bytes that Python allocates for each, with its id."""
    known = Producers(ProducerTotals(Config(data_dir="", max_producers=0, max_producer_parts=0)))
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(_PRODUCERS):
        name = b"1b4e28ba-2fa1-11d2-883f-%012x" % number
        for each in range(epochs * parts):
            known.add(ProducerPart(1000, each, each // parts, each % parts, each, name), 1000 * each + 1)
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return taken / _PRODUCERS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--writes", type=int, default=3000)
    parser.add_argument("--smoke", action="store_true", help="one short round of everything")
    options = parser.parse_args()
    rounds, writes = (1, 20) if options.smoke else (options.rounds, options.writes)
    print(f"commit {commit_id()}, {rounds} rounds of {writes} writes, CPU of the process")
    print("| | plain | with a producer | ratio |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=".") as scratch, topics.open(f"{scratch}/data") as log:
        for records in (1, 100):
            compare(log, "disk", records, rounds, writes)
    for epochs, parts in ((1, 1), (16, 8)):
        size = bytes_a_producer(epochs, parts)
        print(f"| memory of a producer, {epochs} epochs x {parts} parts | | {size:.0f} bytes | |")


if __name__ == "__main__":
    main()
