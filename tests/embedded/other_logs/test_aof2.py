"""Each line of the table "AOF2" in docs/from-other-logs.md."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import topics
from examples.aof2 import trades
from tests.embedded.appends.test_admission import let_syncs_go, stop_syncs
from tests.embedded.appends.test_flush import sim_log
from tests.embedded.calls.test_no_maintenance import drive, is_durable
from tests.embedded.conftest import SMALL, copy_open, damage_record, end_maintenance, maintaining
from tests.embedded.other_logs.lines import (
    Lines,
    append_to_failing_disk,
    check_bytes_of_a_record,
    check_checksum,
    check_second_process,
    check_start_reads_the_end,
    check_sync_by_time,
    check_usage,
    largest_files,
    mapped_files,
)
from topics.embedded.appends.offers import Offer

line = Lines("AOF2")


def test_every_line_of_the_table_has_a_test() -> None:
    line.check()


def test_the_program_that_was_rewritten_takes_both_trades(tmp_path: Path) -> None:
    with trades.open_log(str(tmp_path / "data")) as log:
        offered = trades.offer(log, b"buy")
        assert offered is not None
        settled = trades.settle(log, b"sell")
        assert offered.result().first_seq + 1 == settled
        assert log.state("trades").synced_seq >= settled
        assert [record.data for record in log.read("trades")] == [b"buy", b"sell"]


def test_the_program_takes_the_directory_as_its_argument(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_usage(trades, "sell", tmp_path / "data", capsys)


@line("`AofManager`")
def test_several_logs_are_open_at_a_time_with_one_thread_for_all(tmp_path: Path) -> None:
    end_maintenance()
    with topics.open(tmp_path / "a", **SMALL) as one, topics.open(tmp_path / "b", **SMALL) as other:
        assert len(maintaining()) == 1
        assert one.append("t", [b"one"]).first_seq == other.append("t", [b"one"]).first_seq == 1


@line("`Aof`")
def test_several_streams_are_topics_of_one_log(log: topics.Log) -> None:
    log.append("a", [b"one"])
    log.append("b", [b"two"])
    assert [state.name for state in log.topics()] == ["a", "b"]


@line("`append_record(payload)`", "`WouldBlock(Admission)`")
def test_an_append_that_does_not_wait_is_refused_or_gets_a_seq(tmp_path: Path) -> None:
    # more than all appends: a next file might not be ready in time
    settings = SMALL | {"wal_file_bytes": 32 << 20}
    with topics.open(tmp_path / "data", max_unsynced_bytes=1 << 16, sync_every_ms=None, **settings) as log:
        log.append("t", [b"made"])
        assert log.append_nowait("t", [b"one"]).result().first_seq == 2
        assert _reasons(log) == {"admission"}


def _reasons(log: topics.Log) -> set[str]:
    """Append without waiting until appends were refused for a while; return the reasons."""
    reasons = set()
    for _ in range(2000):
        try:
            log.append_nowait("t", [bytes(10_000)])
        except topics.WouldBlockError as error:
            reasons.add(error.reason)
    return reasons


@line("`append_record_with_timeout(payload, timeout)`", "`wait_for_writable_segment(timeout)`")
def test_an_append_waits_for_admission_as_long_as_it_may() -> None:
    log, _ring = sim_log(max_unsynced_bytes=10_000, sync_every_ms=None)
    log.append("t", [b"made"])
    stop_syncs(log)
    log.append("t", [bytes(6_000)])
    with pytest.raises(topics.WouldBlockError, match="as many bytes as may be"):
        log.append("t", [bytes(6_000)], timeout=0.01)
    let_syncs_go(log)
    assert log.append("t", [bytes(6_000)], timeout=1.5).first_seq == 3
    log.close()


@line("`wait_for_writable_segment(timeout)`")
def test_appends_that_wait_are_written_in_their_order_and_before_one_that_comes_later() -> None:
    log, ring = sim_log(max_unsynced_bytes=10_000, sync_every_ms=None)
    log.append("t", [b"made"])
    stop_syncs(log)
    log.append("t", [bytes(6_000)])
    results: list[Any] = []
    for size in (6_000, 7_000, 10):  # the last one has room
        request = log._starts.request_of_gathered("t", [bytes(size)], are_json=False)
        log._driver.submit(log._admission.offering(Offer(request, 60_000)), results.append)
    drive(log, ring, 1)
    assert results == []
    let_syncs_go(log)
    drive(log, ring, 1_000)
    assert [len(record.data) for record in log.read("t", 2)] == [6_000, 7_000, 10]
    assert [result.first_seq for result in results] == [3, 4, 5]
    log.close()


@line("`append_record_async(payload)`")
def test_an_append_may_be_awaited(log: topics.Log) -> None:
    result = asyncio.run(_append(log))
    assert result.first_seq == 1


async def _append(log: topics.Log) -> topics.AppendResult:
    return await log.aio.append("t", [b"one"])


@line("`append_record_async` may be cancelled")
def test_a_cancelled_append_leaves_nothing_or_is_written() -> None:
    async def cancel(data: bytes, *, admitted: bool) -> None:
        appending = asyncio.ensure_future(log.aio.append("t", [data]))
        await asyncio.sleep(0)
        if admitted:
            log._driver.drive_due()
        appending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await appending

    log, _ring = sim_log()
    log.append("t", [b"one"])
    asyncio.run(cancel(b"cancelled before it was admitted", admitted=False))
    asyncio.run(cancel(b"cancelled later", admitted=True))
    assert [record.data for record in log.read("t")] == [b"one", b"cancelled later"]
    log.close()


@line("`flush(record_id)`", "durable once `flush` returns")
def test_a_flush_returns_once_a_power_cut_leaves_the_record() -> None:
    log, ring = sim_log(sync_every_ms=None)
    log.append("t", [b"creates the topic, which is synced"])
    seq = log.append("t", [b"the record"]).first_seq
    assert not is_durable(ring, b"the record")
    assert log.flush("t", seq) == seq
    assert is_durable(ring, b"the record")
    log.close()


@line("`seal_current_segment()`")
def test_a_checkpoint_seals_what_is_there(log: topics.Log) -> None:
    log.append("t", [bytes(200_000)])
    before = log.locate("t", 1)
    log.checkpoint()
    after = log.locate("t", 1)
    assert before is not None
    assert after is not None
    assert before.path != after.path


@line("`RecordId`", "a read by id", "`id_strategy`")
def test_a_seq_names_the_same_record_before_and_after_it_moved(log: topics.Log) -> None:
    seq = log.append("t", [b"one"]).first_seq
    before = log.get("t", seq)
    log.checkpoint()
    assert log.get("t", seq) == before
    assert log.get("t", seq + 1) is None


@line("`RecordId`")
def test_a_get_takes_as_many_steps_in_a_long_topic_as_in_a_short_one() -> None:
    log, _ring = sim_log(hot_tail_bytes=64 << 20)
    for topic, batches in (("short", 1), ("long", 50)):
        for _ in range(batches):
            log.append(topic, [b"%d" % number for number in range(100)])
    steps = {
        (topic, seq): _steps_of_get(log, topic, seq) for topic, seq in (("short", 50), ("long", 50), ("long", 4_950))
    }
    assert len(set(steps.values())) == 1, steps
    log.close()


def _steps_of_get(log: topics.Log, topic: str, seq: int) -> int:
    """Count the calls of functions, in Python and in C, by which a record is read."""
    log.get(topic, seq)
    calls = 0

    def count(_frame: object, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        log.get(topic, seq)
    finally:
        sys.setprofile(before)
    return calls


@line("`RecordId::from_parts(segment, offset)`, `segment_index()`, `segment_offset()`")
def test_a_sealed_record_has_a_place_that_fits_64_bits(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data", segment_max_events=1, **SMALL) as log:
        log.append("t", [bytes(200_000), bytes(200_000)])
        log.append("small", [b"one", b"two"])
        log.checkpoint()
        packed = set()
        for topic, seq in (("t", 1), ("t", 2), ("small", 1), ("small", 2)):
            place = log.locate(topic, seq)
            assert place is not None
            assert place.sealed
            assert place.packed < 1 << 64
            number = int(Path(place.path).stem.rpartition("-")[2], 16)
            assert (place.packed >> 32, place.packed & 0xFFFFFFFF) == (number, place.offset)
            packed.add((Path(place.path).name[:4], place.packed))
        assert len(packed) == 4


@line("a scan of a segment")
def test_records_are_read_page_by_page_or_as_columns(log: topics.Log) -> None:
    log.append("t", [b"one", b"two"])
    assert [record.data for record in log.page("t").records] == [b"one", b"two"]
    assert len(log.columns("t").seq) == 2


@line("reads of mapped segments, without a copy")
def test_columns_are_one_buffer_and_no_file_is_mapped(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data", hot_tail_bytes=0, **SMALL) as log:
        log.append("t", [bytes(200_000), b"two"])
        log.checkpoint()
        columns = log.columns("t")
        assert bytes(columns.payloads) == bytes(200_000) + b"two"
        assert mapped_files(tmp_path) == []


@line("a record's timestamp, ns")
def test_a_record_has_the_milliseconds_in_which_it_was_appended() -> None:
    log, ring = sim_log()
    log.append("t", [b"one"])
    ring.clock.advance_ns(5_000_999_999)
    log.append("t", [b"two"])
    one, two = (record.ts for record in log.read("t"))
    assert 5_000 <= two - one <= 5_001
    log.close()


@line("tail followers")
def test_a_tail_gives_records_as_they_come(log: topics.Log) -> None:
    log.append("t", [b"one"])
    tail = log.tail("t", 0)
    assert next(tail).data == b"one"
    log.append("t", [b"two"])
    assert next(tail).data == b"two"


@line("tail followers")
def test_an_awaited_tail_gives_records_as_they_come(log: topics.Log) -> None:
    async def follow() -> list[Any]:
        tail = log.aio.tail("t", 0)
        found = [await anext(tail)]
        waits = asyncio.ensure_future(anext(tail))
        await asyncio.sleep(0)
        assert not waits.done()
        await log.aio.append("t", [b"two"])
        found.append(await waits)
        return [record.data for record in found]

    log.append("t", [b"one"])
    assert asyncio.run(follow()) == [b"one", b"two"]


@line("`root_dir`")
def test_all_files_are_below_the_path_that_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    with topics.open(tmp_path / "data", **SMALL) as log:
        log.append("t", [bytes(200_000)])
        log.checkpoint()
        place = log.locate("t", 1)
    assert place is not None
    assert Path(place.path).is_relative_to(tmp_path / "data")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "elsewhere"]
    assert list(elsewhere.iterdir()) == []


@line("`segment_min_bytes`, `segment_max_bytes`, `segment_target_bytes`")
@pytest.mark.parametrize(("file", "segment"), [(1 << 20, 300_000), (2 << 20, 600_000)])
def test_files_and_segments_are_as_large_as_they_may_be(tmp_path: Path, file: int, segment: int) -> None:
    found = largest_files(tmp_path / "data", wal_file_bytes=file, segment_max_bytes=segment)
    assert found[0] == file
    assert segment - 100_000 < found[1] < segment + 10_000


@line("a record is smaller than its segment")
def test_a_record_may_be_larger_than_files_and_segments(tmp_path: Path) -> None:
    sizes = {"wal_file_bytes": 1 << 20, "segment_max_bytes": 300_000}
    with topics.open(tmp_path / "data", **{**SMALL, **sizes}) as log:
        log.append("t", [bytes(3 << 20)])
        places = [log.locate("t", 1)]
        log.checkpoint()
        places.append(log.locate("t", 1))
        record = log.get("t", 1)
        assert record is not None
        assert record.data == bytes(3 << 20)
        sizes_on_disk = [Path(place.path).stat().st_size for place in places[1:] if place]
        assert [place.length > 3 << 20 for place in places if place] == [True, True]
        assert sizes_on_disk[0] > 3 << 20


@line("header and footer of a segment, 64 bytes each, with the magics `AOF2` and `FOOT`")
def test_a_segment_has_header_and_footer_with_magics(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data", segment_max_events=1, **SMALL) as log:
        log.append("large", [bytes(200_000), bytes(200_000)])
        log.append("small", [b"one"])
        log.checkpoint()
        places = [log.locate(topic, 1) for topic in ("large", "small")]
    assert [place.sealed for place in places if place] == [True, True]
    assert places[0] is not None
    assert places[0].offset == 4096
    segment, pack = (Path(place.path).read_bytes() for place in places if place)
    assert (segment[:4], segment[-128:-124]) == (b"TPSG", b"TPSF")
    assert (pack[:4], pack[-128:-124]) == (b"TPPK", b"TPPF")


@line("a record's header of 16 bytes")
def test_a_record_takes_61_bytes_beside_its_payload(log: topics.Log) -> None:
    check_bytes_of_a_record(log)


@line("`FlushConfig`: watermarks")
def test_a_sync_begins_once_half_of_the_unsynced_bytes_are_there() -> None:
    log, ring = sim_log(max_unsynced_bytes=100_000, sync_every_ms=None)
    log.append("t", [b"creates the topic, which is synced"])
    log.append("t", [b"less than half " + bytes(30_000)])
    drive(log, ring, 1_000)
    assert not is_durable(ring, b"less than half ")
    log.append("t", [bytes(30_000)])
    drive(log, ring, 1_000)
    assert is_durable(ring, b"less than half ")
    log.close()


@line("`FlushConfig`: interval")
@pytest.mark.parametrize("every", [50, 400])
def test_a_sync_comes_so_long_after_an_append(tmp_path: Path, every: int) -> None:
    with topics.open(tmp_path / "data", sync_every_ms=every, **SMALL) as log:
        assert log.config.sync_every_ms == every
    check_sync_by_time(every, every - 25, every + 25)


@line("`preallocate_segments`")
@pytest.mark.parametrize("files", [1, 3])
def test_so_many_log_files_are_kept_ready(files: int) -> None:
    log, ring = sim_log(wal_spare_files=files)
    log.append("t", [b"one"])
    drive(log, ring, 2_000)
    assert len(ring.list_directory("/srv/topics/wal/shard-00")) == 1 + files
    log.close()


@line("`retention`")
def test_records_that_are_too_old_are_gone_and_reported() -> None:
    log, ring = sim_log()
    log.put_topic("t", ttl_ms=60_000)
    log.append("t", [b"one", b"two"])
    ring.clock.advance_ns(59_000_000_000)
    assert [record.data for record in log.read("t")] == [b"one", b"two"]
    log.append("t", [b"three"])
    ring.clock.advance_ns(2_000_000_000)
    with pytest.raises(topics.GapError) as gap:
        list(log.read("t"))
    assert (gap.value.tombstone.reason, gap.value.tombstone.gap_to) == ("ttl", 2)
    assert [record.data for record in log.read("t", gap.value.resume_from)] == [b"three"]
    log.close()


@line("`retention`")
@pytest.mark.parametrize("cap", [{"cap_records": 2}, {"cap_bytes": 9}], ids=str)
def test_records_above_a_cap_are_gone_and_reported(log: topics.Log, cap: dict[str, Any]) -> None:
    log.put_topic("t", **cap)
    log.append("t", [b"one", b"two", b"three"])
    with pytest.raises(topics.GapError) as gap:
        list(log.read("t"))
    assert [record.data for record in log.read("t", gap.value.resume_from)] == [b"two", b"three"]


@line("`retention`")
@pytest.mark.parametrize(
    ("kept", "hot"),
    [
        ({"hot_retain_segments": 2}, 2),
        ({"hot_retain_segments": 9, "hot_retain_bytes": 50_000}, 3),
        ({"hot_retain_segments": 9, "hot_retain_ms": 60_000}, 0),
        ({"hot_retain_segments": 9, "hot_retain_ms": 0}, 5),
    ],
    ids=str,
)
def test_segments_beyond_what_stays_move_to_the_cold_directory(kept: dict[str, Any], hot: int) -> None:
    log, ring = sim_log(cold_dir="/srv/cold", segment_max_events=10, segment_max_bytes=1 << 20, **kept)
    for _ in range(5):
        log.append("t", [bytes(1_000)] * 10)
        log.checkpoint()
    ring.clock.advance_ns(120_000_000_000)
    log.append("t", [b"one more"])
    log.checkpoint()
    log.checkpoint()
    places = [log.locate("t", seq) for seq in range(1, 51, 10)]
    assert [place.path.startswith("/srv/cold") for place in places if place] == [True] * (5 - hot) + [False] * hot
    log.close()


@line("`compaction`")
def test_the_space_of_deleted_records_comes_back(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data", segment_max_events=100, compact_below=1.0, **SMALL) as log:
        log.append("t", [topics.NewRecord(bytes(1000), tag="kept" if n % 10 == 0 else "dead") for n in range(200)])
        log.checkpoint()
        before = _segment_bytes(tmp_path)
        log.delete("t", match="dead")
        log.checkpoint()
        log.checkpoint()
        assert _segment_bytes(tmp_path) < before / 2


def _segment_bytes(tmp_path: Path) -> int:
    return sum(path.stat().st_size for path in (tmp_path / "data").rglob("seg-*.data"))


@line("`compression`", "its directory for archived segments")
def test_cold_segments_may_be_compressed(tmp_path: Path) -> None:
    pytest.importorskip("zstandard", reason="zstandard is missing: pip install 'topics-log[zstd]'")
    settings = {"cold_dir": str(tmp_path / "cold"), "segment_codec": "zstd", "hot_retain_segments": 0}
    with topics.open(tmp_path / "data", segment_max_events=100, **settings, **SMALL) as log:
        log.append("t", [b"one and the same payload " * 40] * 400)
        log.checkpoint()
        log.checkpoint()
        cold = sum(path.stat().st_size for path in (tmp_path / "cold").rglob("seg-*"))
        assert 0 < cold < 200_000
        assert len(list(log.read("t"))) == 400


@line("`enable_sparse_index`")
def test_a_read_by_seq_needs_no_switch(log: topics.Log) -> None:
    log.append("t", [b"%d" % n for n in range(1000)])
    record = log.get("t", 500)
    assert record is not None
    assert record.data == b"499"


@line("`WouldBlock(Rollover)`", "at most two segments are not finished")
def test_the_reasons_of_a_refusal_are_two(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data", max_log_bytes=4 << 20, **{**SMALL, "checkpoint_wal_bytes": 1 << 40}) as log:
        log.append("t", [b"made"])
        reasons = _reasons(log)
        for _ in range(1000):  # the thread that writes may have no core for a while
            if "rollover" in reasons:
                break
            reasons |= _reasons(log)
        assert log.stats().log_bytes <= (4 << 20) + log.config.wal_file_bytes
        assert "rollover" in reasons
        assert reasons <= {"admission", "rollover"}


@line("`WouldBlock(Rollover)`", "at most two segments are not finished")
def test_a_log_that_no_checkpoint_empties_is_as_long_as_it_may_be_and_then_refuses() -> None:
    bound, record = 300_000, bytes(30_000)
    log, _ring = sim_log(max_log_bytes=bound, max_log_wait_ms=0, disk_reserve_bytes=0)
    log.append("t", [b"made"])
    log._opened.store.checkpointer._stopped = True
    for _ in range(9):
        log.append("t", [record])
    assert log.stats().log_bytes < bound
    log.append("t", [record])
    for append in (log.append, log.append_nowait):
        with pytest.raises(topics.WouldBlockError, match="the log is as long as it may be") as refused:
            append("t", [record])
        assert refused.value.reason == "rollover"
    assert bound <= log.stats().log_bytes < bound + 2 * len(record)
    assert log.state("t").head_seq == 11
    log._opened.store.checkpointer._stopped = False
    log.close()


@line("`RolloverFailed`")
@pytest.mark.parametrize(
    ("error", "raised"), [(errno.EIO, topics.LogReadOnlyError), (errno.ENOSPC, topics.DiskFullError)]
)
def test_an_append_that_the_disk_refuses_says_why(error: int, raised: type[topics.TopicsError]) -> None:
    assert isinstance(append_to_failing_disk(error)[0], raised)


@line("errors of recovery", "segments describe themselves; no manifest")
def test_a_directory_without_its_snapshots_is_refused_and_rebuilt_from_segments(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data", **SMALL) as log:
        log.append("t", [b"one"])
    for snapshot in (tmp_path / "data" / "snapshots").iterdir():
        snapshot.unlink()
    with pytest.raises(topics.CorruptError, match="topics fsck"):
        topics.open(tmp_path / "data", **SMALL)
    assert not topics.fsck(tmp_path / "data").sound
    assert topics.fsck(tmp_path / "data", rebuild=True).sound
    with topics.open(tmp_path / "data", **SMALL) as log:
        assert [record.data for record in log.read("t")] == [b"one"]


@line("an acknowledged record that is not durable is bounded in bytes", "`FlushConfig::max_unflushed_bytes`")
def test_unsynced_bytes_stay_below_their_bound(tmp_path: Path) -> None:
    bound = 1 << 20
    with topics.open(tmp_path / "data", max_unsynced_bytes=bound, sync_every_ms=None, **SMALL) as log:
        for _ in range(100):
            log.append("t", [bytes(50_000)])
            assert log.stats().unsynced_bytes <= bound


@line("torn and truncated ends are cut off at the start", "event: recovery truncation")
def test_a_torn_end_is_cut_off_and_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "data"
    with topics.open(path, **SMALL) as log:
        log.append("t", [b"one"])
        log.append("t", [b"two, torn"])
        place = log.locate("t", 2)
        assert place is not None
        copy = copy_open(path, tmp_path / "copy")
    shutil.rmtree(path)
    copy.rename(path)
    with open(place.path, "r+b") as file:
        file.seek(place.offset + place.length - 12)
        file.write(b"torn")
    with topics.open(path, **SMALL) as log:
        assert [record.data for record in log.read("t")] == [b"one"]
        cut = log.stats().recovery_cut_bytes
        assert cut > len(b"two, torn")
    assert f"recovery cut off {cut} bytes of {place.path} from byte " in caplog.text


def test_a_log_file_that_was_cut_inside_a_block_is_refused_until_it_is_rebuilt(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data", **SMALL) as log:
        log.append("t", [b"one"])
        log.append("t", [b"two"])
        place = log.locate("t", 2)
        cut = copy_open(tmp_path / "data", tmp_path / "cut")
    assert place is not None
    os.truncate(place.path.replace(str(tmp_path / "data"), str(cut)), place.offset + 10)
    with pytest.raises(topics.CorruptError):
        topics.open(cut, **SMALL)
    with topics.open(cut, rebuild=True, **SMALL) as log:
        assert [record.data for record in log.read("t", on_gap="skip")] == [b"one"]


@line("readers run beside the one writer", "one writer")
def test_threads_read_and_write_at_the_same_time(log: topics.Log) -> None:
    log.append("t", [b"first"])
    seen = []

    def read() -> None:
        at = 0
        while at < 100:
            page = log.page("t", at, wait_ms=1000)
            seen.extend(record.seq for record in page.records)
            at = page.next_from_seq

    readers = [threading.Thread(target=read)]
    writers = [threading.Thread(target=lambda: [log.append("t", [b"x"]) for _ in range(33)]) for _ in range(3)]
    for thread in readers + writers:
        thread.start()
    for thread in readers + writers:
        thread.join()
    assert seen == list(range(1, 101))


@line("writers of several processes are not coordinated")
def test_a_second_process_is_refused(tmp_path: Path) -> None:
    check_second_process(tmp_path / "data")


@line("at the start the headers of all segments but the newest two are trusted")
def test_a_start_trusts_the_newest_snapshot(tmp_path: Path) -> None:
    check_start_reads_the_end(tmp_path)


@line("a checksum of each record")
def test_scrubbing_reads_every_checksum(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data", **SMALL) as log:
        log.append("t", [b"one", b"two"])
        log.checkpoint()
        place = log.locate("t", 2)
    assert topics.fsck(tmp_path / "data").sound
    check_checksum(place)
    assert place is not None
    with open(place.path, "r+b") as file:
        file.seek(place.offset + place.length - 12)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    report = topics.fsck(tmp_path / "data")
    assert not report.sound
    assert [(found.path, found.seq) for found in report.findings if found.seq > 0] == [(place.path, 2)]


@line("counters: bytes, durable bytes, records, flushes, rollovers, time of the recovery")
def test_the_counters_of_a_log_count(tmp_path: Path) -> None:
    topics.open(tmp_path / "data", **SMALL).close()
    with topics.open(tmp_path / "data", sync_every_ms=None, segment_max_events=20, **SMALL) as log:
        log.put_topic("t")
        before = log.stats()
        for _ in range(20):
            log.append("t", [bytes(100_000), b"x"])
        written = log.stats()
        assert (written.records - before.records, written.bytes - before.bytes) == (40, 20 * 100_001)
        assert written.rotations > before.rotations
        assert written.unsynced_bytes > 0
        log.flush()
        flushed = log.stats()
        assert (flushed.syncs > written.syncs, flushed.unsynced_bytes) == (True, 0)
        assert log.state("t").synced_seq == 40
        log.checkpoint()
        assert log.stats().seals > before.seals
        assert log.stats().recovery_ms > 0


@line("histograms: append, flush, bytes a segment; spans of `tracing`")
def test_the_histograms_of_a_log_count(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data", segment_max_events=1, **SMALL) as log:
        log.put_topic("t")
        before = log.stats()
        for _ in range(3):
            log.append("t", [bytes(100_000)])
        log.flush()
        log.checkpoint()
        stats = log.stats()
    assert stats.append.count - before.append.count == 3
    assert stats.commit.count - before.commit.count >= 3
    assert stats.sync.count > before.sync.count
    assert stats.seal.count == stats.segment_bytes.count == stats.seals > 0
    assert stats.segment_bytes.mean > 100_000


@line("event: checksum mismatch")
def test_a_damaged_record_is_a_line_a_number_and_an_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with topics.open(tmp_path / "data", hot_tail_bytes=0, **SMALL) as log:
        log.append("t", [b"one", b"two"])
        log.checkpoint()
        place = log.locate("t", 2)
        assert place is not None
        damage_record(place)
        with pytest.raises(topics.CorruptError):
            log.get("t", 2)
        assert log.stats().checksum_failures == 1
    assert f"damage in {place.path} at byte {place.offset}" in caplog.text


@line("event: footer write failure")
def test_a_segment_that_cannot_be_completed_is_a_line_a_number_and_an_error(caplog: pytest.LogCaptureFixture) -> None:
    log, ring = sim_log()
    log.append("t", [b"one"])
    ring.faults.fail("write", errno.EIO, times=100, path_part="pack")
    with pytest.raises(topics.StorageError, match="pack-"):
        log.checkpoint()
    assert log.stats().checkpoint_failures >= 1
    assert "failed" in caplog.text
    with pytest.raises(topics.LogReadOnlyError):
        log.append("t", [b"two"])
    assert [record.data for record in log.read("t")] == [b"one"]
    with contextlib.suppress(topics.StorageError):
        log.close()
