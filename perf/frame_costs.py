"""How fast are frames made, verified and rendered, in bulk?

    python -m perf.frame_costs [--rounds 7] [--records 1000000] [--smoke]

Through the calls the store uses, so the figures hold the Python around the C: rows of requests into a batch, the scan
of a log (what recovery does), the scan of a segment, and a page of 1,000 records to JSON.
"""

from __future__ import annotations

import argparse
import hashlib
import platform
import statistics
import time
from collections.abc import Callable

import numpy as np

from perf.figures import commit_id
from topics.store.format import codec
from topics.store.format._codec import ffi, lib
from topics.store.format.log_format import BATCH_HEADER_BYTES
from topics.store.format.rows import RowRecord, pack_rows
from topics.store.read.render_json import JsonRenderer

DATA = b'{"user":"u123","amount":42,"items":["a","b"],"note":"a word or two about it ok"}'
PAGE = 1000


def rates(call: Callable[[], object], records: int, rounds: int) -> list[float]:
    """Records a second, one figure a round; the first call warms up."""
    call()
    figures = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        figures.append(records / (time.perf_counter() - start))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    rounds, pages = options.rounds, options.records // PAGE
    if options.smoke:
        rounds, pages = 1, 3
    rows = pack_rows([RowRecord(DATA, tag=b"t1")] * PAGE)
    body, placed = codec.frame_rows(rows, topic_id=1, first_seq=1, ts_ms=1_700_000_000_000)
    lengths = placed.lengths
    log, chain = bytearray(), 7
    for number in range(1, pages + 1):
        batch = bytearray(BATCH_HEADER_BYTES) + body
        chain = lib.tp_seal_batch(ffi.from_buffer(batch), 5, number, 0, chain, len(body), PAGE, 1)
        log += batch + bytes(-len(batch) % 8)
    segment = body * pages
    offsets = (np.cumsum(lengths) - lengths).astype(np.uint32)
    seqs = np.arange(1, PAGE + 1, dtype=np.uint64)

    def frame() -> None:
        for _ in range(pages):
            codec.frame_rows(rows, topic_id=1, first_seq=1, ts_ms=1)

    def scan_log() -> None:
        assert len(codec.scan_log(log, epoch=5, batch_no=1, chain=7).frames) == pages * PAGE

    def scan_segment() -> None:
        assert len(codec.scan_frames(segment).frames) == pages * PAGE

    def project() -> bytes:
        for _ in range(pages):
            projection = JsonRenderer(1, limit=PAGE, budget=1 << 30, include_tags=True)
            projection.add(body, 0, offsets, lengths, seqs)
            rendered = projection.records()
        return rendered

    result = hashlib.sha256(project() + body).hexdigest()[:12]
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, commit {commit_id()}")
    print(f"{pages * PAGE} records, {len(body) // PAGE} bytes a frame, {rounds} rounds, result {result}")
    print("| what | M records/s |\n|---|---|")
    for name, call in (
        ("rows to frames", frame),
        ("scan and verify a log", scan_log),
        ("scan and verify a segment", scan_segment),
        ("frames to JSON, verified", project),
    ):
        found = [rate / 1e6 for rate in rates(call, pages * PAGE, rounds)]
        print(f"| {name} | {statistics.median(found):.1f} ({min(found):.1f}-{max(found):.1f}) |", flush=True)


if __name__ == "__main__":
    main()
