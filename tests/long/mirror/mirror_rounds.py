"""A server and its mirror are killed while a client writes: a promotion has all that the mirror states, and no more.

Goal: what was acknowledged up to the time that a promotion names is in it, in order, once; nothing is there that was
not written. Method: a writer numbers its records by topic, and notes when each was acknowledged. Either process, or
both, end by SIGKILL at a random moment and start again. A round ends with the loss of both, the mirror first, and a
promotion. Settings are random; in some rounds the server removes log that a late mirror still needs.

    python -m tests.long.mirror.mirror_rounds [--kills 100] [--seed 1]
"""

from __future__ import annotations

import argparse
import random
import re
import tempfile
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import topics
from tests.cli.backups.mirror_processes import MirroredServer, Running

KILLS_A_ROUND = 10
TOPICS = ("a", "b", "c")
_SETTINGS: tuple[dict[str, str], ...] = (
    {},
    {"TOPICS_ARCHIVE_BASE_EVERY_MS": "300"},
    {"TOPICS_ARCHIVE_BASE_EVERY_MS": "300", "TOPICS_ARCHIVE_RETAIN_MS": "600"},
    {"TOPICS_WAL_SHARDS": "2"},
)


class Writer:
    """A client that appends numbers to topics, and notes which were acknowledged when."""

    def __init__(self, url: str, seed: int) -> None:
        self._url = url
        self._rng = random.Random(seed)
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.written = dict.fromkeys(TOPICS, 0)
        """By topic, how many records a request had."""
        self.acknowledged: list[tuple[int, str, int]] = []
        """Unix ms, topic, and how many records the topic had then."""
        self._thread.start()

    def _run(self) -> None:
        with topics.connect(self._url) as log:
            while not self._stops.is_set():
                topic = self._rng.choice(TOPICS)
                first, count = self.written[topic], self._rng.choice((1, 1, 5, 40))
                self.written[topic] += count
                log.append(topic, [{"n": n, "pad": "x" * 200} for n in range(first, first + count)])
                self.acknowledged.append((time.time_ns() // 1_000_000, topic, first + count))

    def end(self) -> None:
        self._stops.set()
        self._thread.join()


class Counts(NamedTuple):
    """Numbers of rounds."""

    rounds: int = 0
    mirror_kills: int = 0
    server_kills: int = 0
    records: int = 0
    """Compared in promotions."""
    late_records: int = 0
    """Acknowledged after the time of the promotion, and not in it."""
    holes: int = 0

    def __add__(self, other: object) -> Counts:
        assert isinstance(other, Counts)
        return Counts(*(mine + its for mine, its in zip(self, other, strict=True)))


def run_round(home: Path, seed: int, kills: int) -> Counts:
    """Kill so many times, promote, and compare. Raises: AssertionError."""
    rng = random.Random(seed)
    pair = MirroredServer(home, **rng.choice(_SETTINGS))
    mirror = pair.follow()
    writer = Writer(pair.url, seed)
    counts = {"mirror": 0, "server": 0}
    try:
        for _ in range(kills):
            time.sleep(rng.random() * 0.4)
            mirror = _kill(pair, mirror, rng, counts)
        try:
            pair.caught_up()
        except AssertionError as error:
            codes = mirror.end(), pair.server.end()
            raise AssertionError(
                f"{error}; the mirror ended with {codes[0]} and said: {mirror.text}; "
                f"the server ended with {codes[1]} and said: {pair.server.text}"
            ) from error
        mirror.end()
        time.sleep(rng.random() * 0.3)
    finally:
        writer.end()
        pair.server.end()
        mirror.end()
    made = pair.promote("promoted")
    assert made.code == 0, made
    records, late = _compare(home / "promoted", writer, _promoted_ms(made.out))
    return Counts(1, counts["mirror"], counts["server"], records, late, pair.status()["holes"])


def _kill(pair: MirroredServer, mirror: Running, rng: random.Random, counts: dict[str, int]) -> Running:
    """Kill either process or both, and start them again; return the mirror."""
    sides = rng.choice((("mirror",), ("mirror",), ("server",), ("mirror", "server")))
    if "mirror" in sides:
        mirror.end()
        counts["mirror"] += 1
    if "server" in sides:
        pair.server.end()
        counts["server"] += 1
        time.sleep(rng.random() * 0.2)
        pair.serve()
    if "mirror" in sides:
        time.sleep(rng.choice((0, 0, 0.8)))
        mirror = pair.follow(until="topics: ")
    return mirror


def _promoted_ms(text: str) -> int:
    found = re.search(r" of (\d{4}-\S+Z);", text)
    assert found is not None, text
    return round(datetime.fromisoformat(found[1]).timestamp() * 1000)


def _compare(promoted: Path, writer: Writer, upto_ms: int) -> tuple[int, int]:
    """Compare a promotion with what was acknowledged; return how many records it has, and has not."""
    owed = dict.fromkeys(TOPICS, 0)
    for at_ms, topic, count in writer.acknowledged:
        if at_ms <= upto_ms:
            owed[topic] = count
    total = late = 0
    with topics.open(promoted, read_only=True) as log:
        held = {info.name for info in log.topics()}
        for topic in TOPICS:
            found = [record.data["n"] for record in log.read(topic, on_gap="skip")] if topic in held else []
            assert found == list(range(len(found))), f"topic {topic} is not as it was written: {found}"
            assert owed[topic] <= len(found) <= writer.written[topic], (topic, owed, len(found), writer.written)
            total += len(found)
            late += writer.written[topic] - len(found)
    return total, late


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    counts, seed = Counts(), arguments.seed
    while counts.mirror_kills + counts.server_kills < arguments.kills:
        with tempfile.TemporaryDirectory() as home:
            try:
                counts += run_round(Path(home), seed, KILLS_A_ROUND)
            except BaseException:
                print(f"seed {seed}", flush=True)
                raise
        seed += 1
        print(counts, flush=True)


if __name__ == "__main__":
    main()
