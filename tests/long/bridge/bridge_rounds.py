"""A bridge between a server and a broker, of which one is killed again and again: exactly once, in order.

Goal: each record that was acknowledged is on the other side once, and each topic is in its order.
Method: a writer appends numbered records with tags, meta, and bytes to topics, some of which it makes later. A kill
strikes the server, the bridge or the broker, as the seed chooses, and what was killed is started again. At the end a
bridge carries the rest with `--once`, and what the broker has is compared with what the server has, record by record.

    python -m tests.long.bridge.bridge_rounds --side nats --kills 100 --seed 7 [--directory D]
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

import topics
from tests.cli.forked import without_settings
from tests.long.bridge.brokers import BROKERS, Broker, BrokerWriter
from tests.long.soak.server_client import Server
from topics.bench.processes import free_port

_TAGS = (None, "eu", "us", "")
_END_S = 300


class Bridge:
    """`topics bridge` as a process."""

    def __init__(self, directory: Path, options: list[str]) -> None:
        self._log = directory / "bridge.log"
        self._options = options
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        environment = without_settings()
        with open(self._log, "ab") as log:
            command = [sys.executable, "-m", "topics", "bridge", *self._options, *more]
            self.process = subprocess.Popen(command, stderr=log, stdout=log, env=environment)

    def kill(self) -> None:
        assert self.process is not None, "it runs"
        assert self.process.poll() is None, f"the bridge ended with {self.process.returncode}: {self.tail()}"
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """End it by SIGTERM, well, or before it has begun."""
        assert self.process is not None, "it runs"
        self.process.terminate()
        code = self.process.wait(60)
        assert code in {0, -signal.SIGTERM}, f"it ended with {code}: {self.tail()}"

    def finish(self) -> None:
        """Carry what is left."""
        self.start("--once")
        assert self.process is not None, "it runs"
        assert self.process.wait(_END_S) == 0, self.tail()

    def tail(self) -> str:
        return self._log.read_text()[-3000:]


class Writer:
    """Appends numbered records until it is ended."""

    def __init__(self, url: str, rng: random.Random) -> None:
        self._url = url
        self._rng = rng
        self.numbers: Counter[str] = Counter()
        self.names = ["orders.0"]
        self._stop = threading.Event()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with topics.connect(self._url, timeout=600) as log:
                while not self._stop.wait(self._rng.uniform(0, 0.1)):
                    self._write(log)
        except BaseException as error:
            self.error = error

    def _write(self, log: topics.Client) -> None:
        rng, name = self._rng, self._rng.choice(self.names)
        count = rng.choice((1, 3, 50, 400))
        records = [self._record(name, self.numbers[name] + at + 1) for at in range(count)]
        log.append(name, records)
        self.numbers[name] += count

    def _record(self, name: str, number: int) -> Any:
        rng = self._rng
        data: Any = {"topic": name, "n": number, "fill": "x" * rng.randint(0, 200)}
        if rng.random() < 0.1:
            data = b"\xff%d" % number
        meta = {"by": "writer", "n": number} if rng.random() < 0.1 else None
        return topics.NewRecord(data, tag=rng.choice(_TAGS), meta=meta)

    def end(self) -> None:
        self._stop.set()
        self._thread.join()
        if self.error is not None:
            raise self.error


class ThereWriter:
    """Writes numbered messages to the broker until it is ended; they are compared as they are there."""

    def __init__(self, broker: Broker, rng: random.Random) -> None:
        self._broker = broker
        self._rng = rng
        self.numbers: Counter[str] = Counter()
        self.names = ["orders.0"]
        self._stop = threading.Event()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            writer = self._broker.writer()
            while not self._stop.wait(self._rng.uniform(0, 0.1)):
                self._write(writer)
        except BaseException as error:
            self.error = error

    def _write(self, writer: BrokerWriter) -> None:
        rng, name = self._rng, self._rng.choice(self.names)
        count = rng.choice((1, 3, 20))
        values = [b'{"n":%d}' % (self.numbers[name] + at + 1) for at in range(count)]
        if rng.random() < 0.1:
            values[0] = b"\xff" + values[0]
        tag = rng.choice(("eu", None))
        writer.write(name, values, None if tag is None else tag.encode())
        self.numbers[name] += count

    def end(self) -> None:
        self._stop.set()
        self._thread.join()
        if self.error is not None:
            raise self.error


def check_here(url: str, broker: Broker, names: list[str], numbers: Counter[str]) -> int:
    """Compare the topics here with what the broker has. Return how many records were compared."""
    there = broker.contents(names)
    compared = 0
    with topics.connect(url) as log:
        for name in names:
            assert len(there[name]) >= numbers[name], f"{name}: the broker lost messages of the writer"
            here = list(log.read(name))
            data = [record.data for record in here]
            values = [each if isinstance(each, bytes) else msgspec.json.encode(each) for each in data]
            assert values == [value for value, _ in there[name]], f"{name}: {len(values)} of {len(there[name])}"
            for record, (_, headers) in zip(here, there[name], strict=True):
                assert record.meta["by"] == "writer", record
                assert record.tag == (headers["key"].decode() if "key" in headers else None), record
            compared += len(values)
    return compared


def check(url: str, broker: Broker, names: list[str], numbers: Mapping[str, int]) -> int:
    """Compare both sides. Return how many records were compared. Raises: AssertionError."""
    there = broker.contents(names)
    compared = 0
    with topics.connect(url) as log:
        for name in names:
            here = list(log.read(name))
            assert len(here) == numbers[name], f"{name}: the server has {len(here)} of {numbers[name]}"
            found = there[name]
            seqs = [int(headers["topics-seq"]) for _, headers in found]
            assert seqs == [record.seq for record in here], f"{name}: {_difference(seqs, len(here))}"
            for record, (value, headers) in zip(here, found, strict=True):
                is_bytes = headers.get("topics-data") == b"bytes"
                data = value if is_bytes else msgspec.json.decode(value)
                assert data == record.data, f"{name}: record {record.seq} is {value!r}"
                tag = headers.get("key")
                assert tag == (None if record.tag is None else record.tag.encode()), f"{name}: {record.seq}: {tag!r}"
            compared += len(found)
    return compared


def _difference(seqs: list[int], count: int) -> str:
    doubled = [seq for seq, times in Counter(seqs).items() if times > 1]
    missing = sorted(set(range(1, count + 1)) - set(seqs))
    return f"missing {missing[:9]}, doubled {doubled[:9]}, in order: {seqs == sorted(seqs)}"


def run(side: str, kills: int, seed: int, directory: Path, life_s: float = 1.5, *, is_out: bool = True) -> Counter[str]:
    """Kill so many times. Return what was counted. is_out: carry to the broker. Raises: AssertionError."""
    rng = random.Random(seed)
    counts: Counter[str] = Counter()
    broker: Broker = BROKERS[side](directory / side)
    settings = {"port": free_port()}
    url = f"http://127.0.0.1:{settings['port']}"
    (directory / "server").mkdir(parents=True, exist_ok=True)
    server = Server(directory / "server", settings, executes=True)
    broker.start()
    server.wait_ready()
    side_option = "--to" if is_out else "--from"
    options = ["--url", url, side_option, broker.url, "--topics", "orders*", "--batch-records", "500"]
    bridge = Bridge(directory, options)
    numbered = random.Random(f"{seed} writer")
    writer = Writer(url, numbered) if is_out else ThereWriter(broker, numbered)
    while not writer.numbers and writer.error is None:
        time.sleep(0.05)  # until there is a stream to read from
    bridge.start()
    try:
        for kill in range(kills):
            time.sleep(rng.uniform(0.05, life_s))
            if kill % 10 == 9:
                writer.names.append(f"orders.{len(writer.names)}")
            what = rng.choice(("server", "bridge", "bridge", "broker"))
            counts[f"killed {what}"] += 1
            if what == "server":
                server.kill()
                server = Server(directory / "server", settings, executes=True)
                server.wait_ready()
            elif what == "bridge":
                bridge.kill()
                bridge.start()
            else:
                broker.kill()
                time.sleep(rng.uniform(0, 0.5))
                broker.start()
            assert writer.error is None, writer.error
        writer.end()
        bridge.stop()
        bridge.finish()
        written = sorted(writer.numbers)
        counts["records"] = (check if is_out else check_here)(url, broker, written, writer.numbers)
        counts["topics"] = len(written)
        server.stop()
    except BaseException as error:
        error.add_note(f"seed {seed}; {directory}\n{bridge.tail()}")
        raise
    finally:
        _quietly(writer.end)
        for process in (server.process, bridge.process):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
        broker.kill()
    return counts


def _quietly(end: Callable[[], None]) -> None:
    try:
        end()
    except Exception as error:
        print(f"the writer: {error!r}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", choices=sorted(BROKERS), action="append")
    parser.add_argument("--direction", choices=("out", "in"), action="append", help="both by default")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--directory", type=Path, help="kept; by default a temporary one, removed when all is well")
    options = parser.parse_args()
    for side in options.side or sorted(BROKERS):
        if missing := BROKERS[side].missing():
            print(missing)
            continue
        for direction in options.direction or ("out", "in"):
            directory = options.directory or Path(tempfile.mkdtemp(prefix="topics-bridge-"))
            print(f"{side}, {direction}: seed {options.seed}, {directory}", flush=True)
            counts = run(side, options.kills, options.seed, directory / direction, is_out=direction == "out")
            counted = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
            print(f"{side}, {direction}: {counted}", flush=True)
            if options.directory is None:
                shutil.rmtree(directory)


if __name__ == "__main__":
    main()
