"""Backups and the archive of a server under load, restored: each topic is as its writer knows it was at that time.

What a call did is certain once it was answered before the time, and out of the question if it began after it. Of those
between, which are few, any beginning may be there.
"""

from __future__ import annotations

import copy
import json
import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import topics
from tests.long.soak.model import Operation, Record, Topic
from tests.long.soak.server_client import Client, run_until_gone

_FAR = 1 << 62
_ARCHIVED_S = 120.0
_NO_BASE = "has no base yet"
_BEFORE = "the archive begins at"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Call(NamedTuple):
    """One call of a writer, in ms since 1970."""

    begin_ms: int
    end_ms: int
    operation: Operation


class Past:
    """The calls on one topic in the newest life of the server, and the topic before them."""

    def __init__(self, topic: Topic) -> None:
        self.begin(topic)

    def begin(self, topic: Topic) -> None:
        """A life begins with this state."""
        self._topic = copy.deepcopy(topic)
        self._calls: list[Call] = []
        self._end: Topic | None = None

    def add(self, begin_ms: int, operation: Operation) -> None:
        self._calls.append(Call(begin_ms, now_ms(), operation))

    def end(self, topic: Topic) -> None:
        """A start has shown which outcome the call had that was cut off."""
        self._end = copy.deepcopy(topic)

    def times(self) -> list[int]:
        return [call.begin_ms for call in self._calls]

    def states(self, at_ms: int) -> list[Topic]:
        """The states that the topic may have had at a time."""
        assert self._end is not None, "the life has ended"
        topic = copy.deepcopy(self._topic)
        states = [topic]
        for call in self._calls:
            if call.begin_ms > at_ms:
                return states
            if call.end_ms < at_ms:
                call.operation.apply(topic)
            else:
                states.append(copy.deepcopy(states[-1]))
                call.operation.apply(states[-1])
        return [*states, self._end]

    def writes(self) -> list[tuple[Call, Topic]]:
        """The calls that gave out seqs since the topic was created last, and the topic after each."""
        topic = copy.deepcopy(self._topic)
        found: list[tuple[Call, Topic]] = []
        for call in self._calls:
            head = topic.head if topic.exists else 0
            call.operation.apply(topic)
            if not topic.exists or topic.head < head:
                found.clear()
            elif topic.head > head:
                found.append((call, copy.deepcopy(topic)))
        return found if self._end is not None and self._end.exists and self._end.head >= topic.head else []


class Backup(NamedTuple):
    path: str
    taken_ms: int


class Backups(threading.Thread):
    """Asks for backups at random moments until the server is away."""

    def __init__(self, address: str, rng: random.Random) -> None:
        super().__init__()
        self._address = address
        self._rng = rng
        self.done: list[Backup] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        self.error = run_until_gone(self._address, self._ask)

    def _ask(self, client: Client) -> None:
        time.sleep(self._rng.uniform(0, 0.3))
        status, answer = client.ask("POST", "/v0/backups", {})
        while status == 200 and answer["backup"]["state"] == "running":
            time.sleep(0.01)
            status, answer = client.ask("GET", "/v0/backups")
        if status == 200 and answer["backup"]["state"] == "done":
            self.done.append(Backup(answer["backup"]["path"], answer["backup"]["taken_ms"]))


def archive_settings(directory: Path, rng: random.Random) -> dict[str, Any]:
    return {
        "archive_dir": directory / "archive",
        "archive_every_ms": rng.choice((20, 200)),
        "archive_base_every_ms": rng.choice((2000, 20_000)),
        "archive_retain_ms": 60_000,
        "backup_dir": directory / "backups",
    }


def check_restores(
    directory: Path, client: Client, pasts: Iterable[tuple[str, Past]], backups: list[Backup], rng: random.Random
) -> Counter[str]:
    """Restore the newest backup of the last life, and its archive to a time. Raises: AssertionError."""
    counts: Counter[str] = Counter()
    known = list(pasts)
    for backup in backups[-1:]:
        counts["records in backups"] += _check(directory, backup.path, None, known, backup.taken_ms)
        counts["backups restored"] += 1
    times = [at for _, past in known for at in past.times()]
    if times:
        at_ms = rng.choice(times)
        _wait_for_archive(client, at_ms)
        try:
            counts["records in archives"] += _check(directory, str(directory / "archive"), at_ms, known, at_ms)
            counts["times restored"] += 1
        except topics.UsageError as error:
            _check_refusal(client, at_ms, str(error))
            counts["times refused"] += 1
    writes = [(name, *write) for name, past in known for write in past.writes()]
    if writes:
        name, call, topic = rng.choice(writes)
        _wait_for_archive(client, call.end_ms)
        if not _in_hole(client, call.begin_ms, call.end_ms):  # else a topic of before may have the seq, too
            counts[_check_record(directory, name, call, topic)] += 1
    return counts


def _check_record(directory: Path, name: str, call: Call, topic: Topic) -> str:
    """Restore up to the last record of a write: the topic is as it was after that. Return what to count."""
    made = directory / "restored"
    shutil.rmtree(made, ignore_errors=True)
    try:
        topics.restore(directory / "archive", made, upto=(name, topic.head))
    except topics.UsageError as error:
        if "whose write is not in the archive" not in str(error) and _NO_BASE not in str(error):
            raise
        return "records refused"
    with topics.open(str(made), disk_reserve_bytes=0, disk_low_water_bytes=0) as log:
        found, expected = _contents(log, name), _expected(topic)
    where = f"{name} up to {topic.head}, written at {call.begin_ms} to {call.end_ms}"
    assert found == expected, f"{where}: {str(found)[:600]} is not {str(expected)[:600]}"
    shutil.rmtree(made)
    return "records as ends restored"


def _check_refusal(client: Client, at_ms: int, refusal: str) -> None:
    """Check that the archive has a hole at a time, or begins after it."""
    is_known = _in_hole(client, at_ms, at_ms) or _NO_BASE in refusal or _BEFORE in refusal
    assert is_known, f"{at_ms}: {refusal}, {client.ask('GET', '/v0/archive')}"


def _in_hole(client: Client, first_ms: int, last_ms: int) -> bool:
    """Return whether a part of a time is in a hole of the archive."""
    holes = client.ask("GET", "/v0/archive")[1]["archive"]["holes"]
    return any(hole["from_ms"] <= last_ms and first_ms <= (hole["to_ms"] or _FAR) for hole in holes)


def _wait_for_archive(client: Client, at_ms: int) -> None:
    """Return once the archive is past a time."""
    until = time.monotonic() + _ARCHIVED_S
    while client.ask("GET", "/v0/archive")[1]["archive"]["upto_ms"] <= at_ms:
        assert time.monotonic() < until, f"the archive does not come to {at_ms}"
        time.sleep(0.02)


def _check(directory: Path, source: str, at_ms: int | None, known: list[tuple[str, Past]], instant_ms: int) -> int:
    """Restore, and compare every topic. Return the number of records."""
    made = directory / "restored"
    shutil.rmtree(made, ignore_errors=True)
    topics.restore(source, made, at=at_ms)
    count = 0
    with topics.open(str(made), disk_reserve_bytes=0, disk_low_water_bytes=0) as log:
        for name, past in known:
            states = past.states(instant_ms)
            found = _contents(log, name)
            assert found in [_expected(state) for state in states], (
                f"{name} at {instant_ms} from {source}: {str(found)[:600]} is none of {len(states)} states, such as "
                f"{str(_expected(states[-1]))[:600]}"
            )
            count += 0 if found is None else len(found[0])
    shutil.rmtree(made)
    return count


_Contents = tuple[dict[int, Record], dict[str, Any], int]
"""Records, the settings that the model knows, and the position of its reader (-1: none)."""


def _expected(topic: Topic) -> _Contents | None:
    config = topic.state()["config"]
    return (topic.records, config, topic.reader) if topic.exists else None


def _contents(log: topics.Log, name: str) -> _Contents | None:
    try:
        state = log.state(name)
    except topics.TopicsError:
        return None
    config = json.loads(state.config.as_json())
    names = ("cap_records", "cap_bytes", "durability", "idempotency_window_ms")
    readers = {reader.name: reader.committed for reader in log.readers(name)}
    records = {record.seq: Record(record.data, record.tag) for record in log.read(name, on_gap="skip")}
    return records, {field: config[field] for field in names}, readers.get("r", -1)
