"""How long after kill -9 until the server is ready again, with N frames of about 100 bytes and no snapshot?

    python -m perf.recovery [--frames 1000000,10000000] [--rounds 3] [--smoke]

Printed: time from exec to ready, less the same for an empty directory (the interpreter's start), and the memory of the
process before the kill and after recovery.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from perf.diff import fill
from perf.servers import start_topics
from perf.writes import commit_id, spread

NO_CHECKPOINT = {"TOPICS_CHECKPOINT_WAL_BYTES": str(1 << 40), "TOPICS_CHECKPOINT_EVERY_MS": str(1 << 40)}


def seconds_to_ready(directory: Path) -> tuple[float, int]:
    """Starts on the directory; returns seconds until ready and the resident bytes then. Kills the server again."""
    began = time.perf_counter()
    server = start_topics(directory, env=NO_CHECKPOINT, ready_seconds=600)
    took = time.perf_counter() - began
    resident = server.rss_bytes()
    server.process.kill()
    server.process.wait()
    return took, resident


def measure(frames: int, scratch: Path) -> dict[str, float]:
    empty, full = scratch / "empty", scratch / "full"
    for directory in (empty, full):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
    seconds_to_ready(empty)
    baseline = statistics.median(seconds_to_ready(empty)[0] for _ in range(3))
    server = start_topics(full, env=NO_CHECKPOINT)
    fill(server, "bench", frames)
    before = server.rss_bytes()
    head = server.request("GET", "/v0/topics/bench")["head_seq"]
    server.process.kill()
    server.process.wait()
    log_bytes = sum(path.stat().st_size for path in full.rglob("*.log"))
    took, after = seconds_to_ready(full)
    server = start_topics(full, env=NO_CHECKPOINT, ready_seconds=600)
    assert server.request("GET", "/v0/topics/bench")["count"] == head == frames // 1000 * 1000, (
        "an acked record is gone"
    )
    server.process.kill()
    server.process.wait()
    shutil.rmtree(full)
    return {"seconds": took - baseline, "baseline": baseline, "before": before, "after": after, "log": log_bytes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", default="1000000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    sizes = [5000] if options.smoke else [int(text) for text in options.frames.split(",")]
    print(f"commit {commit_id()}, {options.rounds} rounds")
    print("| frames | seconds beyond start | start alone | log MB | memory before MB | after MB | after/before |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=".") as name:
        for frames in sizes:
            runs = [measure(frames, Path(name)) for _ in range(1 if options.smoke else options.rounds)]
            middle = statistics.median(run["seconds"] for run in runs)
            start = statistics.median(run["baseline"] for run in runs)
            growth = statistics.median(run["after"] / run["before"] for run in runs)
            low, high = min(run["seconds"] for run in runs), max(run["seconds"] for run in runs)
            print(
                f"| {frames:,} | {middle:.3f} ({low:.3f}-{high:.3f}) "
                f"| {start:.3f} | {spread([run['log'] for run in runs], 1e-6)} "
                f"| {spread([run['before'] for run in runs], 1e-6)} | {spread([run['after'] for run in runs], 1e-6)} "
                f"| {growth:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
