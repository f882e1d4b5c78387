"""A log that is opened to be read: it answers as any log, refuses what writes, and changes nothing in its directory."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import topics
from tests.embedded.conftest import SMALL, copy_open
from topics.embedded.aio import AsyncLog
from topics.embedded.log import Log
from topics.embedded.log_reader import AsyncLogReader
from topics.errors import StorageError

_READS = {
    "read",
    "tail",
    "tail_many",
    "page",
    "get",
    "locate",
    "wait",
    "columns",
    "state",
    "reader",
    "readers",
    "topics",
    "router",
    "routers",
    "dead",
    "stats",
}
_OWN = {"close", "closed", "aio"}
_WRITES: dict[str, tuple[Any, ...]] = {
    "append": ("t", [1]),
    "append_many": ("t", [b"1"]),
    "append_nowait": ("t", [1]),
    "append_soon": ("t", 1),
    "delete": ("t",),
    "put_topic": ("t",),
    "patch_topic": ("t",),
    "delete_topic": ("t",),
    "claim": ("q", "n"),
    "work": ("q", "n"),
    "ack": ("q", "n", []),
    "nack": ("q", "n", []),
    "redrive": ("t",),
    "extend": ("q", "n", []),
    "put_router": ("r", "t", "u"),
    "delete_router": ("r",),
    "delete_reader": ("t", "billing"),
    "checkpoint": (),
    "backup": ("backups",),
    "flush": (),
}
_AWAITED = {name for name in dir(AsyncLog) if not name.startswith("_")}


def tree(directory: Path) -> dict[str, tuple[Any, ...]]:
    """All that a change would change: bytes, sizes, times, modes and identities."""
    found: dict[str, tuple[Any, ...]] = {}
    for path in [directory, *sorted(directory.rglob("*"))]:
        about = path.lstat()
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path)] = (about.st_mtime_ns, about.st_ctime_ns, about.st_mode, about.st_size, about.st_ino, digest)
    return found


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A directory that a killed process left: records in a segment, and in the log."""
    with topics.open(tmp_path / "live", **SMALL) as log:
        log.put_topic("t", cap_records=90)
        log.put_topic("q", type="queue")
        log.append("t", [{"n": number} for number in range(100)])
        log.append("q", ["job"])
        with log.reader("t", "billing", from_seq=30) as reader:
            reader.read(limit=20)
        log.put_router("r", "t", "u")
        log.checkpoint()
        log.append("t", [b"\x00\xff"])
        log.page("u")  # forwarded by then
        log.flush()
        copy_open(tmp_path / "live", tmp_path / "data")
    (tmp_path / "data").chmod(0o700)
    return tmp_path / "data"


def answers(log: topics.Log) -> list[Any]:
    """Return the answers of a log to all calls that read."""
    columns = log.columns("t", from_="first")
    reader = log.reader("t", "billing")
    said = [
        log.page("t"),
        list(log.read("t", from_="first")),
        [log.get("t", seq) for seq in (50, 101, 102)],
        [(place.offset, place.length, place.sealed) for place in [log.locate("t", 60)] if place],
        [each._replace(last_read_ts=None, last_write_ts=None, effective_priority=0) for each in log.topics()],
        log.wait({"t": 7}),
        (columns.seq.tolist(), bytes(columns.payloads), columns.kind.tolist()),
        [each._replace(lag_ms=0) for each in log.readers("t")],
        [record.seq for record in reader.peek(limit=5)],
        [*log.routers(), log.router("r")],
    ]
    reader.abandon()
    return said


def test_it_answers_what_the_log_answers_that_is_opened_afterwards(directory: Path) -> None:
    before = tree(directory)
    with topics.open(directory, read_only=True, **SMALL) as log:
        found = answers(log)
        assert log.state("t").synced_seq == 101
    assert tree(directory) == before
    with topics.open(directory, **SMALL) as log:
        assert answers(log) == found


def test_every_call_of_a_log_either_reads_or_is_refused_by_name(directory: Path) -> None:
    for kind in (Log, AsyncLog):
        calls = {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")} - _OWN
        assert calls - _READS <= _WRITES.keys()
    before = tree(directory)
    with topics.open(directory, read_only=True) as log:
        for name, arguments in _WRITES.items():
            with pytest.raises(topics.UsageError, match=rf"^{name} writes, .*read_only: open it without"):
                getattr(log, name)(*arguments)
    assert tree(directory) == before


def test_an_awaitable_that_writes_is_refused_when_it_is_awaited(directory: Path) -> None:
    before = tree(directory)

    async def refused(reader: AsyncLogReader, aio: AsyncLog) -> None:
        with pytest.raises(topics.UsageError, match="^work writes"):
            aio.work("q", "n")  # an iterator
        awaited = _AWAITED - {"work"}
        awaitables = {name: getattr(aio, name)(*arguments) for name, arguments in _WRITES.items() if name in awaited}
        moves = {"read": reader.read(), "commit": reader.commit(), "seek": reader.seek(1)}
        for does, calls in (("writes", awaitables), ("moves the named reader", moves)):
            for name, awaitable in calls.items():
                with pytest.raises(topics.UsageError, match=rf"^{name} {does}, .*read_only: open it without"):
                    await awaitable

    async def look() -> None:
        async with topics.open(directory, read_only=True) as log:
            assert {name for name in dir(log.aio) if not name.startswith("_")} == _AWAITED
            async with await log.aio.reader("t", "billing") as reader:
                await refused(reader, log.aio)

    asyncio.run(look())
    assert tree(directory) == before


def test_a_named_reader_shows_its_place_and_moves_nothing(directory: Path) -> None:
    before = tree(directory)
    with topics.open(directory, read_only=True) as log:
        with log.reader("t", "billing") as reader:
            assert (reader.committed, reader.position, reader.lag.records) == (50, 50, 51)
            assert [record.seq for record in reader.peek(limit=2)] == [51, 52]
            calls: list[Callable[[], object]] = [reader.read, reader.commit, lambda: reader.seek(1)]
            for call in calls:
                with pytest.raises(topics.UsageError, match="read_only"):
                    call()
        with pytest.raises(topics.UsageError, match="making or changing a reader writes"):
            log.reader("t", "another")
        with pytest.raises(topics.UsageError, match="making or changing a reader writes"):
            log.reader("t", "billing", holds=True)
    assert tree(directory) == before


def test_nothing_waits_for_what_cannot_come(directory: Path) -> None:
    with topics.open(directory, read_only=True) as log:
        head = log.state("t").head_seq
        assert log.page("t", head, wait_ms=60_000).records == []
        assert log.wait({"t": head}, wait_ms=60_000)["t"] is not None
        assert [record.seq for record in log.tail("t", 98)] == [99, 100, 101]
        assert list(log.tail("t")) == []
        assert [name for name, _ in log.tail_many({"t": 100, "q": 0})] == ["t", "q"]
        assert list(log.tail("t", from_time=1 << 50)) == []


def test_a_tail_without_a_node_passes_pages_that_have_only_that_nodes_records(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data") as log:
        for _ in range(3):  # more than one page looks at
            log.append("t", [0] * 5000, node="left-out")
        log.append("t", [1], node="b")
    with topics.open(tmp_path / "data", read_only=True) as log:
        assert log.page("t", node="left-out").records == []
        assert [record.data for record in log.tail("t", 0, node="left-out")] == [1]
        assert [record.data for record in log.tail("t", from_time=1, node="left-out")] == [1]
        assert [record.data for _, record in log.tail_many({"t": 0}, node="left-out")] == [1]
        assert [record.data for _, record in log.tail_many({"t": {"time": 1}}, node="left-out")] == [1]


def test_the_awaited_calls_are_the_same(directory: Path) -> None:
    before = tree(directory)

    async def look() -> None:
        async with topics.open(directory, read_only=True) as log:
            assert [record.seq async for record in log.aio.tail("t", 99)] == [100, 101]
            assert (await log.aio.page("t", 100)).records[0].data == b"\x00\xff"
            reader = await log.aio.reader("t", "billing")
            assert [record.seq for record in await reader.peek(limit=1)] == [51]
            await reader.close()

    asyncio.run(look())
    assert tree(directory) == before


def test_a_directory_of_another_user_is_refused_with_a_way_to_be_that_user(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = directory.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(StorageError) as error:
        topics.open(directory)
    assert f"belongs to user {owner}, not to {owner + 1}" in str(error.value)
    assert str(error.value).endswith(f"run this as its owner (`sudo -u '#{owner}' ...`)")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to any directory")
def test_a_directory_that_may_not_be_written_to_is_read(directory: Path) -> None:
    paths = [directory, *directory.rglob("*")]
    for path in paths:
        path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        before = tree(directory)
        with topics.open(directory, read_only=True) as log:
            assert log.state("t").head_seq == 101
        assert tree(directory) == before
    finally:
        for path in paths:
            path.chmod(0o700 if path.is_dir() else 0o600)


def test_a_torn_end_of_the_log_is_cut_off_in_memory_and_that_is_logged(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with topics.open(directory, **SMALL) as log:
        log.append("t", [{"filler": "x" * 3000}])
        log.append("t", ["is torn"])
        copy_open(directory, directory.parent / "torn")
    torn = directory.parent / "torn"
    torn.chmod(0o700)
    for path in (torn / "wal").rglob("wal-*.log"):
        data = bytearray(path.read_bytes())
        if (at := data.find(b'"is torn"')) >= 0:
            data[at + 2] ^= 0xFF
            path.write_bytes(data)
    before = tree(torn)
    with topics.open(torn, read_only=True, **SMALL) as log:
        assert log.state("t").head_seq == 102
        assert log.stats().recovery_cut_bytes > 0
    assert "recovery cut off" in caplog.text
    assert tree(torn) == before


def test_readers_are_beside_each_other_and_a_writer_is_not(directory: Path) -> None:
    with topics.open(directory, read_only=True) as one, topics.open(directory, read_only=True) as other:
        assert one.state("t").head_seq == other.state("t").head_seq
        with pytest.raises(topics.LockedError, match="in use"):
            topics.open(directory)
        with pytest.raises(topics.LockedError, match="in use"):
            topics.fsck(directory)
    with (
        topics.open(directory, **SMALL),
        pytest.raises(topics.LockedError, match=r"in use by a writer.*stop or close that first"),
    ):
        topics.open(directory, read_only=True)


def test_a_copy_without_a_lock_file_is_read_without_a_lock(directory: Path) -> None:
    (directory / "lock").unlink()
    before = tree(directory)
    with topics.open(directory, read_only=True) as log:
        assert log.state("t").head_seq == 101
    assert tree(directory) == before


def test_a_directory_that_others_may_write_to_is_refused_as_for_writing(directory: Path) -> None:
    directory.chmod(0o770)
    with pytest.raises(topics.StorageError, match="may be written to by others"):
        topics.open(directory, read_only=True)


def test_where_there_is_no_log_none_is_made(tmp_path: Path) -> None:
    for place in (tmp_path / "missing", tmp_path / "empty"):
        if place.name == "empty":
            place.mkdir(mode=0o700)
        with pytest.raises(topics.StorageError, match="there is no log in .*: open it without read_only"):
            topics.open(place, read_only=True)
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]
    assert list((tmp_path / "empty").iterdir()) == []


def test_bad_arguments_name_themselves(directory: Path) -> None:
    with pytest.raises(topics.UsageError, match="rebuild and read_only are given"):
        topics.open(directory, read_only=True, rebuild=True)
    with pytest.raises(topics.UsageError, match="read_only is 1: use True or False"):
        topics.open(directory, read_only=1)  # type: ignore[arg-type]


def test_what_expired_meanwhile_is_gone_and_reported_though_that_is_nowhere_written(tmp_path: Path) -> None:
    """R-TTL-1, R-TOMB-1."""
    with topics.open(tmp_path / "live", **SMALL) as log:
        log.put_topic("t", ttl_ms=1)
        log.append("t", [1, 2])
    with topics.open(tmp_path / "live", read_only=True) as log:
        while log.state("t").count:
            pass
        page = log.page("t")
        assert page.tombstone is not None
        assert page.tombstone.reason == "ttl"
        assert [state.count for state in log.topics()] == [0]


def test_the_cold_directory_is_read_and_left_as_it_is(tmp_path: Path) -> None:
    settings = {**SMALL, "cold_dir": str(tmp_path / "cold"), "hot_retain_segments": 0}
    with topics.open(tmp_path / "data", **settings) as log:
        log.append("t", [np.random.default_rng(1).bytes(50_000) for _ in range(20)])
        log.checkpoint()
        log.checkpoint()
    before = tree(tmp_path)
    with topics.open(tmp_path / "data", read_only=True, **settings) as log:
        assert len(list(log.read("t"))) == 20
    assert tree(tmp_path) == before
