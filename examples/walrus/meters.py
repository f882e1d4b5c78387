"""After: the readings of meters.rs in a topic. One call appends, another sums up, and both continue after a
restart."""

from __future__ import annotations

import struct
import sys
from collections import Counter
from collections.abc import Iterable

import topics

READING = struct.Struct("<II")
"""Meter, watts."""


def open_log(path: str) -> topics.Log:
    return topics.open(path, sync_every_ms=500)


def collect(log: topics.Log, readings: Iterable[tuple[int, int]]) -> None:
    """Append the readings, all or none."""
    log.append("readings", [READING.pack(meter, watts) for meter, watts in readings])


def sum_up(log: topics.Log) -> Counter[int]:
    """Return the watts of each meter, over the readings that were not summed up before."""
    watts: Counter[int] = Counter()
    with log.reader("readings", "sums", delivery="at-least-once", commit_every=100) as reader:
        while records := reader.read(max_bytes=1 << 20):
            for record in records:
                meter, value = READING.unpack(record.data)
                watts[meter] += value
    return watts


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/walrus/meters.py DIRECTORY, where the log is, or is to be made")
    with open_log(sys.argv[1]) as log:
        collect(log, [(1, 40), (2, 60), (1, 2)])
        print(dict(sum_up(log)))


if __name__ == "__main__":
    main()
