"""Clients of a server whose disk will lose power: what each asked, what was answered, and where the disk's log stood.

Every writer owns its topics, so at any position of the log a topic's history is certain, except one call at most.
`strict` topics are of class `fsync` and take every kind of call; `loose` ones are of class `disk` and take writes only,
since there the rule is a prefix of what was acknowledged.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.long.powercut.disk import LoggedDisk
from tests.long.soak.kill_loop import COMPRESSED, as_bytes_at_times, choose_settings, reader_call, whole_difference
from tests.long.soak.model import Operation, Record, Topic, outcomes
from tests.long.soak.server_client import Client, Gone, Server, run_until_gone

WRITERS = 3
STRICT_A_WRITER = 2
_FAR = 1 << 62
_CHECKPOINT = 0.02
"""Share of the steps before which a writer asks for a checkpoint: by itself one comes once a second."""


@dataclass(slots=True)
class Event:
    """One call. Before log position `begin` it had not been sent; from `end` on, its outcome is certain."""

    operation: Operation
    begin: int
    end: int = _FAR
    happened: bool = True


@dataclass(slots=True)
class History:
    """A topic and its calls, in order."""

    topic: Topic
    strict: bool
    events: list[Event] = field(default_factory=list)
    restarts: list[tuple[int, int]] = field(default_factory=list)
    """(position, calls): by then a restarted server had served the outcome of these, which makes it durable. Positions
    by themselves do not show it: a call of class `disk` right after the restart moves nothing on the disk."""

    def durable_calls(self, cut: int) -> int:
        """How many calls, of those that happened, a restarted server had served when the power went at `cut`."""
        calls = max((calls for position, calls in self.restarts if position <= cut), default=0)
        return sum(event.happened for event in self.events[:calls])

    @property
    def open_event(self) -> Event | None:
        """The call that was cut off, if any."""
        return self.events[-1] if self.events and self.events[-1].end == _FAR else None

    def at(self, cut: int) -> tuple[list[Operation], Operation | None]:
        """(operations that certainly happened, the one that may have) when the power fails at `cut`."""
        certain: list[Operation] = []
        for event in self.events:
            if event.end <= cut:
                if event.happened:
                    certain.append(event.operation)
            elif event.begin < cut:
                return certain, event.operation
            else:
                break
        return certain, None


class Writer:
    """One client: `run` until the server is away, `settle` when it is back."""

    def __init__(self, number: int, rng: random.Random, disk: LoggedDisk) -> None:
        self._rng = rng
        self._disk = disk
        self._serial = number * 1_000_000
        self.histories = [History(Topic(f"w{number}-{index}"), strict=True) for index in range(STRICT_A_WRITER)]
        self.histories.append(History(Topic(f"w{number}-loose"), strict=False))
        self.error: BaseException | None = None

    def run(self, address: str) -> None:
        self.error = run_until_gone(address, self._call)

    def _call(self, client: Client) -> None:
        if self._rng.random() < _CHECKPOINT:
            self._checkpoint(client)
        self._step(client, self._rng.choice(self.histories))

    def settle(self, client: Client) -> None:
        """After a restart by kill: which outcome the cut-off call had, and that nothing certain is missing."""
        for history in self.histories:
            cut_off = history.open_event
            states = outcomes(history.topic, cut_off.operation if cut_off is not None else None)
            differences = [whole_difference(client, state) for state in states]
            assert None in differences, f"{history.topic.name} after a kill: {differences}"
            found = states[differences.index(None)]
            position = self._disk.position()
            if cut_off is not None:
                cut_off.end = position
                cut_off.happened = found is not states[0]
                if len(states) == 3 and found is states[1]:  # the topic was made, the write was not
                    cut_off.operation = Operation("create", (cut_off.operation.create,))
            history.topic = found
            history.restarts.append((position, len(history.events)))

    def _checkpoint(self, client: Client) -> None:
        status, answer = client.ask("POST", "/v0/checkpoint")
        if status == 503:
            raise Gone("stopping")
        assert status == 200, answer

    def _step(self, client: Client, history: History) -> None:
        operation, method, path, body = self._choose(history)
        event = Event(operation, self._disk.position())
        history.events.append(event)
        status, answer = client.ask(method, path, body)
        if status == 503:
            history.events.pop()
            raise Gone("stopping")
        assert status in {200, 201}, (history.topic.name, operation.method, status, answer)
        event.end = self._disk.position()
        expected = operation.apply(history.topic)
        if operation.method == "write":
            assert (answer["first_seq"], answer["last_seq"]) == (expected.first, expected.last), answer

    def _choose(self, history: History) -> tuple[Operation, str, str, Any]:
        rng, topic = self._rng, history.topic
        path = f"/v0/topics/{topic.name}"
        choice = rng.random()
        if not history.strict:
            return self._write(topic, path, {"durability": "disk"})
        config = {"durability": "fsync", **rng.choice(({}, {}, {"cap_records": 40}, {"cap_bytes": 3000}))}
        if choice < 0.72 or not topic.exists:
            return self._write(topic, path, config)
        if choice < 0.78:
            return reader_call(rng, topic, path)
        if choice < 0.88:
            before = rng.randint(0, topic.head + 2) if rng.random() < 0.5 else None
            match = rng.choice((None, "a", "b*")) if before is not None else rng.choice(("a", "b", "*"))
            body = {"before_seq": before, "match": match}
            return Operation("delete_records", (before, match)), "POST", f"{path}/delete", body
        if choice < 0.95:
            return Operation("create", (config,)), "PUT", path, config
        return Operation("delete"), "DELETE", path, None

    def _write(self, topic: Topic, path: str, config: dict[str, Any]) -> tuple[Operation, str, str, Any]:
        rng = self._rng
        count = 1 if rng.random() < 0.5 else rng.randint(2, 40)
        width = rng.choice((12, 60, 900))
        records = [
            Record(as_bytes_at_times(rng, self._data(width)), rng.choice((None, "a", "b", "b:1"))) for _ in range(count)
        ]
        key = f"k{self._serial}" if rng.random() < 0.2 else None
        rows = [record.row for record in records]
        body = {"records": rows, "idempotency_key": key, "config": None if topic.exists else config}
        create = None if topic.exists else config
        return Operation("write", (records, key), create), "POST", path, body

    def _data(self, width: int) -> str:
        self._serial += 1
        return f"{self._serial}:".ljust(width, "x")


def live(
    disk: LoggedDisk, seed: int, *, seconds: float = 1.0, kills: int = 1, io: str = ""
) -> tuple[list[History], int]:
    """A server on the disk under load, killed `kills` times in between; histories, and where cuts may begin."""
    rng = random.Random(seed)
    settings = {**choose_settings(rng, io), "disk_reserve_bytes": 1 << 20, "disk_low_water_bytes": 2 << 20}
    settings["wal_file_bytes"] = min(settings["wal_file_bytes"], 1 << 20)
    settings |= {} if seed % 2 else COMPRESSED  # every other life has some for certain
    settings["cold_dir"] = Path(disk.mountpoint) / "cold"
    if seed % 3 == 0:
        settings |= {"archive_dir": Path(disk.mountpoint) / "archive", "archive_every_ms": rng.choice((10, 100))}
        seconds *= 3  # a base has to be copied first
    writers = [Writer(number, random.Random(f"{seed} {number}"), disk) for number in range(WRITERS)]
    begin = 0
    for turn in range(kills + 1):
        server = Server(Path(disk.mountpoint), settings)
        try:
            address = server.wait_ready()
            begin = begin or disk.position()
            client = Client(address)
            if turn:
                for writer in writers:
                    writer.settle(client)
            client.close()
            threads = [threading.Thread(target=writer.run, args=(address,)) for writer in writers]
            for thread in threads:
                thread.start()
            time.sleep(seconds * rng.uniform(0.7, 1.3))
            server.kill()
            for thread in threads:
                thread.join()
        finally:
            server.process.kill()
            server.process.wait()
        for writer in writers:
            if writer.error is not None:
                raise writer.error
    return [history for writer in writers for history in writer.histories], begin
