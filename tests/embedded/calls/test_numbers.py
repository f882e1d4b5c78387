"""`log.stats()`, and what the log says of damage and of what a start cut off."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

import topics
from tests.embedded.appends.test_flush import sim_log
from tests.embedded.conftest import SMALL, copy_open, damage_record
from topics.errors import CorruptError


def test_numbers_count_from_the_opening_on(tmp_path: Path) -> None:
    with topics.open(tmp_path, **SMALL) as log:
        before = log.stats()
        assert (before.records, before.bytes, before.append.count, before.checkpoints) == (0, 0, 0, 0)
        log.append("t", ["x" * 98, 1])
        log.append("t", [2])
        asyncio.run(log.aio.append("t", [3]))
        log.append_soon("t", 4).result()
        numbers = log.stats()
        assert (numbers.records, numbers.bytes) == (5, 104)
        assert (numbers.live_records, numbers.live_bytes) == (5, 104)
        assert numbers.append.count == 4
        assert numbers.commits >= 4
        assert numbers.commit.count == numbers.commits
        assert numbers.log_bytes > 0
        assert numbers.pendings == 0
    with topics.open(tmp_path, **SMALL) as log:
        numbers = asyncio.run(log.aio.stats())
        assert (numbers.records, numbers.live_records) == (0, 5)


def test_syncs_seals_and_checkpoints_have_counts_times_and_sizes(tmp_path: Path) -> None:
    # else the log may begin one by itself between two of these numbers
    settings = SMALL | {"checkpoint_wal_bytes": 1 << 40}
    with topics.open(tmp_path, segment_max_bytes=1 << 21, **settings) as log:
        log.put_topic("t", durability="fsync")
        log.append("t", [1])
        log.append("large", ["x" * 1000] * 9000)
        before = log.stats()
        assert before.syncs == before.sync.count >= 1
        assert before.seals == before.segment_bytes.count
        log.checkpoint()
        numbers = log.stats()
        assert numbers.checkpoints == before.checkpoints + 1
        assert numbers.seals == numbers.seal.count == numbers.segment_bytes.count > before.seals
        assert numbers.segment_bytes.total > 1 << 20
        assert numbers.segment_bytes.quantile(1) >= 1 << 20
        assert numbers.log_bytes < before.log_bytes
        assert numbers.rotations > 0


def test_bytes_that_are_not_synced_are_a_gauge(tmp_path: Path) -> None:
    with topics.open(tmp_path, sync_every_ms=None, **SMALL) as log:
        log.append("t", ["x" * 1000])
        log.append("t", ["x" * 1000])
        assert log.stats().unsynced_bytes > 1000
        log.flush()
        assert log.stats().unsynced_bytes == 0


def test_a_refusal_is_counted_by_its_reason(tmp_path: Path) -> None:
    with topics.open(tmp_path, max_log_bytes=1 << 20, **{**SMALL, "checkpoint_wal_bytes": 1 << 40}) as log:
        with pytest.raises(topics.RequestError):
            append_without_end(log)
        refusals = log.stats().refusals
        assert refusals["log_length"] == 1
        assert sum(refusals.values()) == 1


def test_an_append_that_did_not_wait_is_counted_by_the_reason_it_was_refused_for() -> None:
    log, _ring = sim_log(max_pendings=2, disk_reserve_bytes=0, max_unsynced_bytes=1 << 20)
    log.append("t", ["first"])
    pending = [log.append_nowait("t", [1]), log.append_nowait("t", [2])]
    with pytest.raises(topics.WouldBlockError):
        log.append_nowait("t", [3])
    assert log.stats().pendings == 2
    assert [each.result().first_seq for each in pending] == [2, 3]
    (shard,) = log._opened.log.shards
    log._loop.run_until(lambda: not shard.preallocation.preparing)
    ready, shard.preallocation.ready = shard.preallocation.ready, type(shard.preallocation.ready)()
    shard.preallocation.preparing = True
    for refused in (
        lambda: log.append_nowait("t", ["x" * shard.state.room]),
        lambda: log.append("t", ["x" * shard.state.room], timeout=0),
    ):
        with pytest.raises(topics.WouldBlockError):
            refused()
    shard.preallocation.ready, shard.preallocation.preparing = ready, False
    assert {reason: count for reason, count in log.stats().refusals.items() if count} == {"admission": 1, "rollover": 2}
    log.close()


def append_without_end(log: topics.Log) -> None:
    while True:
        log.append("t", ["x" * 100_000])


def test_a_distribution_has_quantiles_and_a_mean(tmp_path: Path) -> None:
    with topics.open(tmp_path, **SMALL) as log:
        for _ in range(100):
            log.append("t", [1])
        append = log.stats().append
        assert append.count == 100
        assert 0 < append.quantile(0.5) <= append.quantile(0.99) <= append.quantile(1)
        assert append.quantile(0) <= 2 * append.mean
        assert append.quantile(1) >= append.mean > 0


def test_what_a_start_cuts_off_is_logged_with_its_place_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = killed_with_a_torn_end(tmp_path)
    whole = len(path.read_bytes().rstrip(b"\0"))
    with path.open("r+b") as file:
        file.seek(whole - 10)
        file.write(b"\xff" * 5)
    with caplog.at_level(logging.WARNING), topics.open(tmp_path / "data", **SMALL) as log:
        numbers = log.stats()
        assert [record.data for record in log.read("t")] == ["first"]
    (line,) = [record.getMessage() for record in caplog.records if "cut off" in record.getMessage()]
    assert line.startswith(f"recovery cut off {numbers.recovery_cut_bytes} bytes of {path} from byte ")
    offset = int(line.partition("from byte ")[2].split()[0])
    assert 0 <= offset + numbers.recovery_cut_bytes - whole < 8, "zeros at the end of the batch"
    assert numbers.recovery_frames >= 2


def test_a_start_that_cuts_nothing_off_says_nothing_of_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    killed_with_a_torn_end(tmp_path)
    with caplog.at_level(logging.WARNING), topics.open(tmp_path / "data", **SMALL) as log:
        assert log.stats().recovery_cut_bytes == 0
        assert [record.data for record in log.read("t")] == ["first", "last"]
    assert caplog.records == []


def killed_with_a_torn_end(where: Path) -> Path:
    """Copy a directory with two writes while its log is open, as a kill leaves it; return its log file."""
    with topics.open(where / "open", sync_every_ms=None, **SMALL) as log:
        log.append("t", ["first"])
        log.append("t", ["last"])
        copy = copy_open(where / "open", where / "data")
    return min((copy / "wal").rglob("wal-*.log"))  # the next one may be prepared already


def test_a_damaged_record_is_logged_once_with_its_place_and_counted_each_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with topics.open(tmp_path, **SMALL) as log:
        log.append("t", [{"needle": number} for number in range(3)])
        log.checkpoint()
        place = log.locate("t", 2)
    assert place is not None
    damage_record(place)
    with caplog.at_level(logging.ERROR), topics.open(tmp_path, **SMALL) as log:
        for _ in range(3):
            with pytest.raises(CorruptError):
                log.get("t", 2)
        assert log.get("t", 3) is not None
        assert log.stats().checksum_failures == 3
    (line,) = [record.getMessage() for record in caplog.records]
    where = f"damage in {place.path} at byte {place.offset}: the {place.length} bytes of seq 2 of topic t do not match"
    assert line.startswith(where)


@pytest.mark.parametrize("fraction", [-0.1, 2, float("nan"), "x", None, True])
def test_a_fraction_that_is_none_has_no_quantile(fraction: Any) -> None:
    log, _ring = sim_log()
    log.append("t", [1])
    with pytest.raises(topics.UsageError, match="^fraction is .*: use a number from 0 to 1"):
        log.stats().append.quantile(fraction)
    log.close()
