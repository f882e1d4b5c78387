"""A data directory as a power cut left it, opened: what was promised is there, nothing was invented, and it works."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import topics
from tests.long.powercut.life import History
from tests.long.soak.kill_loop import whole_difference
from tests.long.soak.model import Record, Topic, outcomes
from topics.embedded.log import Log
from topics.errors import TopicsError
from topics.store.format.compressed_segment import is_compressed

_SETTINGS: dict[str, Any] = {"wal_file_bytes": 1 << 20, "disk_reserve_bytes": 0, "disk_low_water_bytes": 0}
"""Small, since the disk is. The number of shards is another than before, mostly (R-DUR-15)."""


class LibraryClient:
    """The few questions that `whole_difference` asks a server, answered by an opened log."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        name = path.split("/")[3]
        try:
            if path.endswith("/readers"):
                return 200, {"readers": [{"reader": r.name, "committed": r.committed} for r in self._log.readers(name)]}
            if method == "GET":
                state = self._log.state(name)
                names = ("head_seq", "earliest_seq", "count", "bytes")
                found = {field: getattr(state, field) for field in names}
                return 200, {**found, "config": json.loads(state.config.as_json())}
            page = self._log.page(name, body["from_seq"], limit=body["limit"])
        except TopicsError as error:
            return 404, str(error)
        rows = [{"$seq": record.seq, "data": record.data, "$tag": record.tag} for record in page.records]
        tombstone = page.tombstone._asdict() if page.tombstone is not None else None
        return 200, {"records": rows, "tombstone": tombstone, "next_from_seq": page.next_from_seq}


def after_power_cut(data: Path) -> None:
    """The machine was restarted: its boot id is another one. Ours is not, so the one noted is changed."""
    session = json.loads((data / "session").read_text())
    session["boot"] = "the boot before"
    (data / "session").write_text(json.dumps(session))


class Checked(NamedTuple):
    records: int
    """Records compared."""
    compressed: int
    """Compressed segments that the log opened with."""


def check(data: Path, histories: list[History], cut: int) -> Checked:
    """Check all promises. Raises AssertionError with the first one that was broken."""
    after_power_cut(data)
    compared = 0
    cold = data.parent / "cold"
    settings = {**_SETTINGS, "cold_dir": str(cold)}
    with topics.open(str(data), **settings) as log:
        client = LibraryClient(log)
        for history in histories:
            compared += _check_strict(client, history, cut) if history.strict else _check_loose(log, history, cut)
        known = {history.topic.name for history in histories}
        segments = cold.glob("topics/*/seg-*.data")  # the start has removed what no snapshot lists
        compressed = sum(is_compressed(path.read_bytes()[:16]) for path in segments)
        strange = [state.name for state in log.topics() if state.name not in known]
        assert not strange, f"topics nobody made: {strange}"
        state = {history.topic.name: _whole(log, history.topic.name) for history in histories}
    with topics.open(str(data), **settings) as log:
        for name, found in state.items():
            assert _whole(log, name) == found, f"{name}: the second start says something else"
        for history in histories:
            _continues(log, history, cut)
    return Checked(compared, compressed)


def check_archive(archive: Path, histories: list[History], cut: int, made: Path) -> int:
    """Restore the archive as the power cut left it, to `made`: each topic is as after some of its calls, in order.

    Return the number of records compared; -1 if there was nothing to restore yet. Raises: AssertionError.
    """
    if not any(archive.glob("*/archive.json")):
        return -1
    try:
        topics.restore(archive, made)
    except topics.UsageError as error:
        if "has no base yet" not in str(error):
            raise
        return -1
    compared = 0
    try:
        with topics.open(str(made), **_SETTINGS) as log:
            for history in histories:
                found = _whole(log, history.topic.name)
                records = None if found is None else found[0]
                assert records in _prefixes(history, cut), f"{history.topic.name}: {str(records)[:600]} was never there"
                compared += len(records or ())
    finally:
        shutil.rmtree(made)
    return compared


def _prefixes(history: History, cut: int) -> list[dict[int, Record] | None]:
    """The records that a topic had after each of its calls; None where it did not exist."""
    certain, doubtful = history.at(cut)
    topic = Topic(history.topic.name)
    found: list[dict[int, Record] | None] = [None]
    for operation in [*certain, doubtful]:
        for state in outcomes(topic, operation)[1:]:
            found.append(dict(state.records) if state.exists else None)
            topic = state
    return found


def _check_strict(client: LibraryClient, history: History, cut: int) -> int:
    """Class fsync: exactly what was answered, give or take the one call that was in progress."""
    certain, doubtful = history.at(cut)
    topic = Topic(history.topic.name)
    for operation in certain:
        operation.apply(topic)
    states = outcomes(topic, doubtful)
    differences = []
    for state in states:
        difference = whole_difference(client, state)  # type: ignore[arg-type]
        if difference is None:
            return len(state.records)
        differences.append(difference)
    raise AssertionError(f"{topic.name} (in doubt: {str(doubtful)[:200]}): {differences}")


def _check_loose(log: Log, history: History, cut: int) -> int:
    """Class disk: whole calls, a prefix of them; what a restarted server had shown; the rest is a tombstone."""
    certain, doubtful = history.at(cut)
    name = history.topic.name
    durable = history.durable_calls(cut)
    whole = [*certain, doubtful] if doubtful is not None else certain
    if not whole:
        return 0
    found = _whole(log, name)
    if found is None:
        assert not durable, f"{name}: gone, and a restarted server had shown it"
        assert not certain or certain[0].create is not None
        assert not certain, f"{name}: its creation was acknowledged, and it is gone"
        return 0
    records, head, tombstones = found
    expected: dict[int, Record] = {}
    ends = [0]
    model = Topic(name)
    for operation in whole:
        operation.apply(model)
        ends.append(model.head)
    expected = model.records
    last = max(records, default=0)
    assert last in ends, f"{name}: a call is there in part: {last} is no end of one of {ends[-5:]}"
    kept = ends.index(last)
    assert kept >= durable, f"{name}: {kept} calls are left of {durable} that a restarted server had shown"
    assert records == {seq: expected[seq] for seq in range(1, last + 1)}, f"{name}: something other than was written"
    acknowledged = ends[len(certain)]
    assert head >= acknowledged, f"{name}: the head {head} is below {acknowledged}, which was acknowledged"
    if head > last:
        assert tombstones == [(last + 1, head, "crash")], f"{name}: {last} to {head} lost without a word: {tombstones}"
    return len(records)


def _whole(log: Log, name: str) -> tuple[dict[int, Record], int, list[tuple[int, int, str]]] | None:
    """(records, head, tombstones met on the way from 0); None: no such topic."""
    records: dict[int, Record] = {}
    tombstones: list[tuple[int, int, str]] = []
    cursor = 0
    while True:
        try:
            page = log.page(name, cursor, limit=1000)
        except TopicsError:
            return None
        if page.tombstone is not None:
            tombstones.append((page.tombstone.gap_from, page.tombstone.gap_to, page.tombstone.reason))
        records.update({record.seq: Record(record.data, record.tag) for record in page.records})
        if page.caught_up:
            return records, page.head_seq, tombstones
        cursor = page.next_from_seq


def _continues(log: Log, history: History, cut: int) -> None:
    """A new record gets a seq that no client has seen before."""
    certain, doubtful = history.at(cut)
    topic = Topic(history.topic.name)
    for operation in certain:
        operation.apply(topic)
    deleted = doubtful is not None and doubtful.method == "delete"
    if topic.exists and not deleted:
        result = log.append(topic.name, ["after"])
        assert result.first_seq > topic.head, f"{topic.name}: seq {result.first_seq} is given out a second time"
