"""Peers: which are chosen, what is said about the others, and what each of them measures."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from topics.bench.bench_run import with_run
from topics.bench.load.load_client import LoadFigures
from topics.bench.load.load_plan import numbered_json
from topics.bench.outcome import RoundOutcome
from topics.bench.peers import in_process, stores_in_process
from topics.bench.peers import known_peers as known
from topics.bench.peers.in_process import Calls, InProcessSide
from topics.bench.peers.known_peers import AUTO, NONE, chosen_peers, known_peers
from topics.bench.peers.library_side import library_settings
from topics.bench.peers.network_peer import stored_check
from topics.bench.peers.redis_peer import command
from topics.bench.peers.stores_in_process import BareFile, SqliteStore
from topics.bench.sides import Side
from topics.bench.workload import Case, Workload, parse_workload
from topics.bench.workload_files import built_in
from topics.cli.environment import config_of
from topics.config import Config
from topics.errors import UsageError

WRITE = '[run]\nseconds = 0.1\nwarmup = 0\nrounds = 1\n[[load]]\nkind = "write"\n'
APPEND = WRITE.replace("write", "append")
CASES = {
    "redis": [WRITE, WRITE + "batch = 10\n", WRITE.replace('"write"', '"read"\nlimit = 10\n[fill]\nrecords = 100')],
    "redis-pubsub": [WRITE + '[[load]]\nkind = "watch"\n[topic]\ndurability = "memory"\n'],
    "nats": [WRITE, WRITE + '[topic]\ndurability = "fsync"\n'],
    "nats-core": [WRITE + '[[load]]\nkind = "watch"\n[topic]\ndurability = "memory"\n'],
    "asyncio": [WRITE + "connections = 4\n", WRITE + '[topic]\ndurability = "fsync"\n'],
    "echo": [WRITE],
    "commit": [WRITE, APPEND + '[topic]\ndurability = "fsync"\n'],
    "sqlite": [APPEND, APPEND + 'batch = 10\n[topic]\ndurability = "fsync"\n'],
    "lmdb": [APPEND, APPEND + "batch = 10\n"],
    "walrus": [APPEND + "batch = 10\n"],
}


def measured(side: Side, text: str, scratch: Path) -> RoundOutcome:
    (case,) = parse_workload(text, "x").cases()
    assert not side.refuses(case)
    return side.measure(case, scratch, lambda phase, count: None)


def test_every_peer_of_a_workload_is_known_and_has_an_equivalent_of_one_of_its_cases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the version of a nats-server that is here."""
    monkeypatch.setattr("topics.bench.peers.nats_peer.shutil.which", lambda *_, **__: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    peers = known_peers()
    for workload in built_in():
        for name in workload.peers:
            reasons = [peers[name].refuses(case) for case in workload.cases()]
            assert "" in reasons, f"{workload.name}, {name}: {reasons}"


class Missing(SqliteStore):
    def missing(self) -> str:
        return "it is not installed: pip install it"


@pytest.fixture
def two_peers(monkeypatch: pytest.MonkeyPatch) -> Workload:
    monkeypatch.setattr(known, "known_peers", lambda: {"here": SqliteStore(), "missing": Missing()})
    return replace(parse_workload(APPEND, "x"), peers=("here", "missing"))


def test_none_is_chosen_unless_they_are_asked_for(two_peers: Workload) -> None:
    assert chosen_peers(two_peers, NONE) == ([], [])


def test_auto_takes_those_of_the_workload_that_are_here_and_names_the_others(two_peers: Workload) -> None:
    chosen, left_out = chosen_peers(two_peers, AUTO)
    assert [side.name for side in chosen] == ["SQLite"]
    assert left_out == ["SQLite: it is not installed: pip install it"]


def test_a_peer_that_was_named_and_is_not_here_or_not_known_is_an_error(two_peers: Workload) -> None:
    with pytest.raises(UsageError, match="the peer missing is not here: it is not installed: pip install it"):
        chosen_peers(two_peers, "here,missing")
    with pytest.raises(UsageError, match="--peers is 'here,here': it has here twice: name each peer once"):
        chosen_peers(two_peers, "here,here")
    with pytest.raises(UsageError, match="there is no peer 'other': use one of here, missing, auto or none"):
        chosen_peers(two_peers, "other")


@pytest.mark.parametrize(("name", "builder"), [("nats", "go"), ("walrus", "cargo")])
def test_a_peer_that_cannot_be_built_is_left_out_with_the_reason_and_tried_once(
    name: str, builder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NATS with Go and without a network was a failed round each time, and voided the figures of all sides."""
    program = tmp_path / builder
    program.write_text(f"#!/bin/sh\necho x >> {tmp_path}/tries\necho 'first' >&2\necho 'no network' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr(
        "topics.bench.peers.nats_peer.shutil.which", lambda name, **_: {builder: str(program)}.get(name)
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    workload = replace(parse_workload(WRITE, "x"), peers=(name,))
    assert "before its first run, from the network" in known_peers()[name].at_hand()
    assert not (tmp_path / "tries").exists()
    for _ in range(2):
        chosen, left_out = chosen_peers(workload, AUTO)
        assert chosen == []
        assert f"{builder} could not build it: no network: " in left_out[0].lower()
    assert (tmp_path / "tries").read_text() == "x\n"
    with pytest.raises(UsageError, match=f"the peer {name} is not here: .*no network"):
        chosen_peers(workload, name)


@pytest.mark.parametrize(
    ("peer", "text", "said"),
    [
        ("redis", APPEND, "no equivalent of loads of kind append"),
        ("redis", WRITE + "topics = 5\n", "many topics are not compared"),
        ("redis-pubsub", WRITE, "Pub/Sub stores nothing"),
        ("nats", WRITE + "batch = 2\n", "a publication has one message"),
        ("nats-core", WRITE, "core NATS stores nothing"),
        ("sqlite", WRITE, "only workloads of kind append suit it"),
        ("commit", WRITE + "connections = 2\n", "only workloads of kind append suit it"),
        ("commit", WRITE + "batch = 16\nbytes = 1048576\n", "its file has room for writes of up to 8 MiB"),
        ("walrus", APPEND + '[topic]\ndurability = "disk"\n', "writes batches or synced entries"),
    ],
)
def test_a_peer_says_which_workloads_it_has_no_equivalent_of(peer: str, text: str, said: str) -> None:
    (case,) = parse_workload(text, "x").cases()
    assert said in known_peers()[peer].refuses(case)


@pytest.mark.parametrize(("version", "knows"), [("2.9.10", False), ("2.10.0", True), ("2.15.3", True), ("dev", True)])
def test_nats_is_compared_in_class_fsync_if_it_can_sync_each_write(
    version: str, knows: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian's 2.9.10 ended with: unknown field "sync_interval"."""
    program = tmp_path / "nats-server"
    program.write_text(f"#!/bin/sh\necho 'nats-server: v{version}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    (synced,) = parse_workload(WRITE + '[topic]\ndurability = "fsync"\n', "x").cases()
    (disk,) = parse_workload(WRITE, "x").cases()
    refusal = known_peers()["nats"].refuses(synced)
    assert refusal == (
        "" if knows else f"nats-server: v{version} cannot sync each write (sync_interval): install 2.10 or later"
    )
    assert not known_peers()["nats"].refuses(disk)


def test_a_command_of_redis_states_the_length_of_each_part() -> None:
    assert command(b"XADD", b"bench", b"*") == b"*3\r\n$4\r\nXADD\r\n$5\r\nbench\r\n$1\r\n*\r\n"


@pytest.mark.parametrize("side", [SqliteStore(), BareFile()], ids=lambda side: side.name)
def test_a_store_in_this_process_is_measured_and_its_records_are_counted(side: Side, tmp_path: Path) -> None:
    outcome = measured(side, APPEND + "batch = 3\n", tmp_path)
    (load,) = outcome.loads
    assert load.records == 3 * load.requests == 3 * load.latencies["answer"].total > 0
    assert not outcome.failed


def test_the_floor_of_a_commit_is_the_quicker_of_two_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server writes past the page cache with RWF_DSYNC, and its floor was a write and fdatasync."""
    now = [0]

    def takes(ns: int) -> Callable[[], None]:
        return lambda: now.__setitem__(0, now[0] + ns)

    def fails() -> None:
        raise OSError(errno.EINVAL, "no O_DIRECT")

    assert stores_in_process.quicker([takes(5), takes(3)], lambda: now[0]) == 1
    assert stores_in_process.quicker([takes(3), takes(5)], lambda: now[0]) == 0
    assert stores_in_process.quicker([takes(3), fails], lambda: now[0]) == 0
    counts = []
    for last in (False, True):
        monkeypatch.setattr(stores_in_process, "quicker", lambda ways, last=last: counts.append(len(ways)) or -last)
        directory = tmp_path / str(last)
        directory.mkdir()
        outcome = measured(BareFile(), APPEND + '[topic]\ndurability = "fsync"\n', directory)
        assert outcome.loads[0].records > 0
        assert (directory / "bare").read_bytes()[:6] == numbered_json(100, 0)[:6], "a record, in the first block"
    assert counts in ([1, 1], [2, 2]), "one way without O_DIRECT"


def test_the_library_gets_each_setting_as_its_kind() -> None:
    variables = {"TOPICS_SPIN_US": "50", "TOPICS_SYNC_EVERY_MS": "20", "TOPICS_COMMIT": "link", "TOPICS_VERIFY": "true"}
    settings = library_settings(variables)
    assert settings == {"spin_us": "50", "sync_every_ms": 20, "commit": "link", "verify": True}
    assert Config(**settings).spin_us == "50"


@pytest.mark.parametrize(
    ("text", "value"), [("1", True), ("true", True), (" 1 ", True), ("0", False), ("false", False), ("", False)]
)
def test_the_library_takes_each_text_of_a_boolean_that_a_server_takes(text: str, value: bool) -> None:
    """`--set verify=1` failed each round of the library: "verify is 1: use a boolean"."""
    settings = library_settings({"TOPICS_VERIFY": text})
    assert settings == {"verify": value}
    assert Config(**settings) == config_of({"TOPICS_VERIFY": text})


def test_the_library_takes_a_setting_that_is_off() -> None:
    assert library_settings({"TOPICS_SYNC_EVERY_MS": "none"}) == {"sync_every_ms": None}


def test_calls_at_a_rate_count_from_when_they_were_due(tmp_path: Path) -> None:
    outcome = measured(SqliteStore(), APPEND + "rate = 200\n", tmp_path)
    assert outcome.loads[0].requests <= 20, "0.1 s at 200 a second; a call that starts late does not move the others"


class SlowStore(InProcessSide):
    """A store on a clock of its own, which each call moves on by 10 ms, and each sleep by its length."""

    def __init__(self) -> None:
        self.now = 0

    def perf_counter_ns(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += round(seconds * 1e9)

    @contextmanager
    def opened(self, case: Case, scratch: Path) -> Iterator[Calls]:
        yield Calls(lambda numbers: lambda: self.sleep(0.01), lambda written: [])


@pytest.mark.parametrize(("rate", "sent", "unsent"), [(1000, 20, 180), (150, 20, 10), (100, 20, 0)])
def test_calls_that_were_due_and_never_began_count_with_the_time_that_they_had_waited(
    rate: int, sent: int, unsent: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rate of a million gave 665 requests, none unsent, no warning."""
    store = SlowStore()
    monkeypatch.setattr(in_process, "time", store)
    text = APPEND.replace("warmup = 0", "warmup = 0.1") + f"rate = {rate}\n"
    outcome = measured(store, text, tmp_path)
    (load,) = outcome.loads
    due = [i / rate for i in range(sent + unsent)]
    begins = [max(0.01 * at, due[at]) for at in range(sent)]
    took = [begin + 0.01 - due[at] for at, begin in enumerate(begins)] + [0.2 - one for one in due[sent:]]
    inside = sorted(wait for one, wait in zip(due, took, strict=True) if one >= 0.0999999)
    assert (load.unsent, load.requests) == (unsent, 10)
    assert load.latencies["answer"].total == len(inside) == rate / 10
    for share in (0.01, 0.5, 0.99, 1.0):
        wanted = inside[max(1, int(share * len(inside) + 0.5)) - 1] * 1e9
        assert load.latencies["answer"].quantile(share) == pytest.approx(wanted, rel=0.002, abs=1)
    said = [f"append: {unsent} requests were due and not sent by the end, because each call waited"] if unsent else []
    assert [warning[: len(said[0])] for warning in outcome.warnings] == said


def test_the_table_of_sqlite_costs_no_second_one(tmp_path: Path) -> None:
    """AUTOINCREMENT keeps a table sqlite_sequence: OFF was 1.35 times slower with it."""
    measured(SqliteStore(), APPEND, tmp_path)
    with closing(sqlite3.connect(tmp_path / "peer.db")) as db:
        assert db.execute("SELECT name FROM sqlite_master").fetchall() == [("log",)]


def test_a_store_that_lost_a_record_fails_its_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topics.bench.peers.stores_in_process._insert", lambda db, rows: None)
    assert measured(SqliteStore(), APPEND + "batch = 3\n", tmp_path).failed


@pytest.mark.parametrize("found", [0, 1, 2, 3])
def test_a_peer_with_other_records_than_it_acknowledged_fails_its_check(found: int) -> None:
    acked, stalls = np.array([1, 0, 1], np.uint8), np.zeros((0, 2), np.uint64)
    assert stored_check(found, LoadFigures([], 1.0, 0.1, 0.0, 0.0, acked, stalls, "")).ok is (found == 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_short_run_of_each_peer_holds_its_checks(name: str, tmp_path: Path) -> None:
    side = known_peers()[name]
    if reason := side.missing():
        pytest.skip(reason)
    for number, text in enumerate(CASES[name]):
        (tmp_path / str(number)).mkdir()
        (case,) = with_run(parse_workload(text, "x"), 0.3, 0.05, 1).cases()
        if side.refuses(case):  # an old nats-server
            continue
        outcome = side.measure(case, tmp_path / str(number), lambda phase, count: None)
        assert not outcome.failed, outcome.checks
        assert outcome.loads[0].rate > 0
    assert side.version()
