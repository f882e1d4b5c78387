"""A server of several cores, whose processes are killed under load, and which is started again with another number.

Each client appends the next number to its topic with a key, on a connection that it changes now and then or lends to
another topic, until it has an answer. In the end each topic has every number once, under the seq that was answered.
Lists that they ask for meanwhile have the topics of all cores, or are refused.

    python -m tests.long.soak.core_kills --lives 50 --seed 1 --io portable
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import signal
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from tests.server.service.cores_process import CoresProcesses

_CLIENTS = 8
_NO_WRITE_S = 120.0
_PAUSE_S = 0.01
"""Pause of a client after a connection that failed."""


class Load:
    """The clients, as threads, and what they have had acknowledged."""

    def __init__(self, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self.written = [0] * _CLIENTS
        self.failure: BaseException | None = None
        self._address = ""
        self._ends = False
        self._changed = threading.Condition()
        self._threads = [
            threading.Thread(target=self._run, args=(number, random.Random(f"{seed}/{number}")), daemon=True)
            for number in range(_CLIENTS)
        ]
        for thread in self._threads:
            thread.start()

    def serve_at(self, address: str) -> None:
        """Let them ask this address; "": none."""
        with self._changed:
            self._address = address
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        """Wait until so many more writes were acknowledged."""
        with self._changed:
            until = sum(self.written) + count
            come = self._changed.wait_for(lambda: self.failure or sum(self.written) >= until, _NO_WRITE_S)
        if self.failure is not None:
            raise self.failure
        assert come, f"fewer than {count} writes in {_NO_WRITE_S:g} s: {self.counts}"

    def end(self) -> None:
        with self._changed:
            self._ends = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        if self.failure is not None:
            raise self.failure

    def _run(self, number: int, rng: random.Random) -> None:
        connection: http.client.HTTPConnection | None = None
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._ends or self._address)
                    if self._ends:
                        break
                    address = self._address
                try:
                    if connection is None or rng.random() < 0.1:
                        connection = http.client.HTTPConnection(address, timeout=60)
                    if rng.random() < 0.1:
                        self._ask(connection, "GET", f"/v0/topics/{topic_of((number + 1) % _CLIENTS)}")
                    if rng.random() < 0.1:
                        self._list(connection)
                    self._append(connection, number)
                except (ConnectionError, http.client.HTTPException) as error:
                    self._count(type(error).__name__)
                    connection = None
                    with self._changed:
                        self._changed.wait(_PAUSE_S)
        except BaseException as error:
            with self._changed:
                self.failure = error
                self._changed.notify_all()

    def _append(self, connection: http.client.HTTPConnection, number: int) -> None:
        count = self.written[number]
        status, answer = self._ask(
            connection, "POST", f"/v0/topics/{topic_of(number)}", {"records": [{"data": count}]}, f"{number}/{count}"
        )
        if status not in (200, 201):
            assert status == 503, answer
            self._count(answer["error"]["code"])
            return
        assert answer["seqs"] == [count + 1], answer
        with self._changed:
            self.written[number] = count + 1
            self._changed.notify_all()

    def _list(self, connection: http.client.HTTPConnection) -> None:
        """Compare a list with what was acknowledged before: it is whole, or refused."""
        there = {topic_of(number) for number, count in enumerate(self.written) if count}
        status, answer = self._ask(connection, "GET", "/v0/topics")
        if status == 200:
            found = [row["topic"] for row in answer["topics"]]
            assert there <= set(found) <= set(map(topic_of, range(_CLIENTS))), (there, found)
            assert found == sorted(set(found)), "in order, and each once"
            self._count("lists")
        else:
            assert status == 503, answer
            assert answer["error"]["code"] in {"not_ready", "shutting_down"}, answer
            self._count("refused lists")

    @staticmethod
    def _ask(
        connection: http.client.HTTPConnection, method: str, path: str, body: object = None, key: str = ""
    ) -> tuple[int, Any]:
        headers = {"Content-Type": "application/json"} | ({"Idempotency-Key": key} if key else {})
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    def _count(self, what: str) -> None:
        with self._changed:
            self.counts[what] += 1


def topic_of(number: int) -> str:
    return f"topic-{number}"


def run(directory: Path, *, lives: int, seed: int, io: str = "auto", writes: int = 300) -> Counter[str]:
    """Run so many lives and compare. writes: the most that are waited for between two faults."""
    rng, load, port = random.Random(seed), Load(seed), 0
    for _ in range(lives):
        server = CoresProcesses(directory, rng.choice((2, 2, 3, 4)), io=io, port=port)
        port = int(server.address.rpartition(":")[2])  # all lives have one
        try:
            bugs, log = _bugs_of(server)
            load.serve_at(server.address)
            _live(server, load, rng, writes)
            load.serve_at("")
            _end(server, load, rng)
        finally:
            server.process.kill()
            server.process.wait()
        log.join()
        assert not bugs, bugs
    server = CoresProcesses(directory, 2, io=io, port=port)
    load.serve_at(server.address)
    load.wait_for(1)
    load.end()
    for number, count in enumerate(load.written):
        found = list(_records(server, topic_of(number)))
        # One more may have been written whose answer was lost.
        assert found in (list(range(count)), list(range(count + 1))), topic_of(number)
    assert server.stop() == 0
    load.counts["writes"] = sum(load.written)
    return load.counts


def _live(server: CoresProcesses, load: Load, rng: random.Random, writes: int) -> None:
    for _ in range(rng.randint(1, 4)):
        load.wait_for(rng.randint(1, writes))
        pids = list(server.pids().values())
        if pids:
            os.kill(rng.choice(pids), signal.SIGKILL)
            load.counts["killed cores"] += 1
    load.wait_for(rng.randint(1, writes))


def _end(server: CoresProcesses, load: Load, rng: random.Random) -> None:
    if rng.random() < 0.5:
        load.counts["killed supervisors"] += 1
        server.process.kill()
        return
    if rng.random() < 0.5:
        server.process.send_signal(signal.SIGHUP)
    load.counts["stops"] += 1
    code = server.stop()
    assert code in (0, 128 + signal.SIGKILL), code  # the last process of a core may be one that was killed


def _bugs_of(server: CoresProcesses) -> tuple[list[str], threading.Thread]:
    """Lines of the log that are bugs, and the thread that reads it, so that no process waits for room in it."""
    bugs: list[str] = []

    def read() -> None:
        assert server.process.stderr is not None
        bugs.extend(line for line in server.process.stderr if "Traceback" in line or "bug of ours" in line)

    thread = threading.Thread(target=read)
    thread.start()
    return bugs, thread


def _records(server: CoresProcesses, topic: str) -> list[int]:
    found: list[int] = []
    while True:
        status, answer = server.ask("POST", f"/v0/topics/{topic}/diff", {"from_seq": len(found), "limit": 1000})
        assert status == 200, answer
        if not answer["records"]:
            return found
        found += [record["data"] for record in answer["records"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lives", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--io", default="auto")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="topics-cores-") as directory:
        counts = run(Path(directory), lives=given.lives, seed=given.seed, io=given.io)
    print(", ".join(f"{what} {count}" for what, count in sorted(counts.items())))


if __name__ == "__main__":
    main()
