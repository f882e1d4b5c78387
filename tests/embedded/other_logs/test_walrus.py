"""Each line of the table "Walrus 0.2" in docs/from-other-logs.md."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from pathlib import Path

import pytest

import topics
from examples.walrus import meters
from tests.embedded.appends.test_flush import sim_log
from tests.embedded.calls.test_no_maintenance import drive, is_durable
from tests.embedded.conftest import SMALL, copy_open
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
from topics.config import Config
from topics.uring.probe import probe
from topics.uring.support import RingSupport

line = Lines("Walrus 0.2")


def data_of(records: list[topics.Record]) -> list[bytes]:
    return [record.data for record in records]


def test_every_line_of_the_table_has_a_test() -> None:
    line.check()


def test_the_program_that_was_rewritten_sums_up_each_reading_once(tmp_path: Path) -> None:
    for _ in range(2):
        with meters.open_log(str(tmp_path / "data")) as log:
            meters.collect(log, [(1, 40), (2, 60), (1, 2)])
            assert meters.sum_up(log) == {1: 42, 2: 60}


def test_the_program_takes_the_directory_as_its_argument(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_usage(meters, "1: 42", tmp_path / "data", capsys)


@line("`Walrus::new()`")
def test_a_log_is_opened_by_its_path(tmp_path: Path) -> None:
    topics.open(tmp_path / "data", **SMALL).close()
    assert (tmp_path / "data" / "topics.json").exists()
    with pytest.raises(TypeError):
        topics.open()  # type: ignore[call-arg]


@line("`Walrus::with_consistency(mode)`")
def test_each_reader_chooses_its_delivery(log: topics.Log) -> None:
    log.append("t", [b"one"])
    with (
        log.reader("t", "first", delivery="at-least-once") as first,
        log.reader("t", "second", delivery="at-most-once") as second,
    ):
        assert data_of(first.read()) == data_of(second.read()) == [b"one"]


@line("`with_consistency_and_schedule(mode, schedule)`")
def test_class_and_schedule_of_syncs_are_settings_of_a_log(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data", durability="fsync", sync_every_ms=500, **SMALL) as log:
        log.append("t", [b"one"])
        assert log.state("t").config.durability == "fsync"
        assert log.config.sync_every_ms == 500
    check_sync_by_time(500, 450, 550)


@line("`new_for_key(key)`, `with_consistency_for_key(...)`, `with_consistency_and_schedule_for_key(...)`")
def test_logs_of_two_directories_have_nothing_in_common(tmp_path: Path) -> None:
    with topics.open(tmp_path / "a", **SMALL) as one, topics.open(tmp_path / "b", **SMALL) as other:
        one.append("t", [b"one"])
        assert other.topics() == []


@line("`append_for_topic(topic, bytes)`")
def test_an_append_returns_the_seq_of_its_record(log: topics.Log) -> None:
    assert log.append("t", [b"\x00\xff"]).first_seq == 1
    assert [record.data for record in log.read("t")] == [b"\x00\xff"]


@line("`batch_append_for_topic(topic, batch)`")
def test_a_batch_with_one_refused_record_is_absent_as_a_whole(log: topics.Log) -> None:
    log.append("t", [b"one", bytearray(b"two"), memoryview(b"three")])
    with pytest.raises(topics.RequestError):
        log.append("t", [b"four", bytes(64 << 20)])
    assert [record.data for record in log.read("t")] == [b"one", b"two", b"three"]


@line("a batch of no entries is `Ok`")
def test_an_append_of_no_records_is_refused(log: topics.Log) -> None:
    with pytest.raises(topics.UsageError, match="use one record at least"):
        log.append("t", [])


@line("a batch is whole or absent")
def test_a_batch_of_which_one_byte_was_not_written_is_absent_as_a_whole(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data", **SMALL) as log:
        log.append("t", [b"one"])
        log.append("t", [b"two", b"three", b"four"])
        place = log.locate("t", 3)
        cut = copy_open(tmp_path / "data", tmp_path / "cut")
    assert place is not None
    with open(place.path.replace(str(tmp_path / "data"), str(cut)), "r+b") as file:
        file.seek(place.offset + place.length - 12)
        file.write(b"\0")
    with topics.open(cut, **SMALL) as log:
        assert [record.data for record in log.read("t")] == [b"one"]


@line("`read_next(topic, true)`", "`read_next(topic, false)`")
def test_a_read_of_one_moves_on_and_a_peek_does_not(log: topics.Log) -> None:
    log.append("t", [b"one", b"two"])
    with log.reader("t", "main") as reader:
        assert data_of(reader.peek(limit=1)) == [b"one"]
        assert data_of(reader.read(limit=1)) == [b"one"]
        assert data_of(reader.read(limit=1)) == [b"two"]
        assert data_of(reader.read(limit=1)) == []


@line("`batch_read_for_topic(topic, max_bytes, true)`", "`batch_read_for_topic(topic, max_bytes, false)`")
def test_a_read_by_bytes_gives_what_fits_and_one_record_at_least(log: topics.Log) -> None:
    log.append("t", [bytes(1000)] * 10)
    with log.reader("t", "main") as reader:
        assert len(reader.peek(max_bytes=10)) == 1
        assert 1 < len(reader.read(max_bytes=5000)) < 10
        assert len(reader.read(max_bytes=10)) == 1


@line("`Entry { data }`")
def test_a_record_has_its_data_and_where_it_comes_from(log: topics.Log) -> None:
    log.append("t", [topics.NewRecord(b"one", tag="a", node="n", meta={"k": "v"})])
    record = log.get("t", 1)
    assert record is not None
    assert (record.data, record.seq, record.tag, record.node, record.meta) == (b"one", 1, "a", "n", {"k": "v"})
    assert record.ts > 0


@line("`enable_fd_backend()`, `disable_fd_backend()`")
def test_the_ring_is_a_setting_of_a_log(tmp_path: Path) -> None:
    before = _rings()
    with topics.open(tmp_path / "a", io="portable", **SMALL) as log:
        assert log.append("t", [b"one"]).first_seq == 1
        assert _rings() == before
        assert log.engine_reason == "asked for"
        with topics.open(tmp_path / "b", **SMALL) as other:
            assert other.engine_reason != "asked for"
            assert (_rings() > before) == probe().ok
    if not probe().ok:
        pytest.skip(f"{probe().reason}: {probe().remedy}")
    with topics.open(tmp_path / "a", io="uring", **SMALL) as log:
        assert _rings() > before
        assert log.engine_reason == "asked for"


def _rings() -> int:
    """Count the descriptors of this process that are io_uring rings."""
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # that of the listing
            count += "io_uring" in os.readlink(descriptor)
    return count


@line("`ReadConsistency::StrictlyAtOnce`", "a strict reader never sees an entry again")
def test_an_at_most_once_reader_has_committed_what_it_returns(log: topics.Log, tmp_path: Path) -> None:
    log.append("t", [b"one", b"two"])
    with log.reader("t", "main", delivery="at-most-once") as reader:
        assert data_of(reader.read(limit=1)) == [b"one"]
        assert reader.committed == 1
        killed = copy_open(Path(log.config.data_dir), tmp_path / "killed")
    with topics.open(killed, **SMALL) as again, again.reader("t", "main") as reader:
        assert data_of(reader.read()) == [b"two"]


@line("`ReadConsistency::AtLeastOnce { persist_every: n }`", "a lazy reader sees at most `persist_every` entries again")
def test_a_reader_left_by_an_exception_repeats_only_what_it_had_not_committed(log: topics.Log) -> None:
    log.append("t", [b"%d" % n for n in range(10)])
    with pytest.raises(ZeroDivisionError):
        _read_and_fail(log, reads=7)
    with log.reader("t", "main") as reader:
        first = reader.read(limit=1)[0].seq
        assert 7 - 4 <= first <= 7


def _read_and_fail(log: topics.Log, *, reads: int) -> None:
    with log.reader("t", "main", delivery="at-least-once", commit_every=4) as reader:
        for _ in range(reads):
            reader.read(limit=1)
        raise ZeroDivisionError


@line("`ReadConsistency::AtLeastOnce { persist_every: n }`", "a lazy reader sees at most `persist_every` entries again")
@pytest.mark.parametrize("limit", [1, 3])
def test_a_kill_repeats_as_many_records_as_a_commit_may_have_and_a_page(
    log: topics.Log, tmp_path: Path, limit: int
) -> None:
    log.append("t", [b"%d" % n for n in range(30)])
    with log.reader("t", "main", delivery="at-least-once", commit_every=4) as reader:
        for _ in range(7):
            last = reader.read(limit=limit)[-1].seq
        killed = copy_open(Path(log.config.data_dir), tmp_path / "killed")
    with topics.open(killed, **SMALL) as again, again.reader("t", "main") as reader:
        first = reader.read(limit=1)[0].seq
    assert last == 7 * limit
    assert 1 < first <= last
    assert last - first + 1 <= 4 + limit


@line("several consumers read a topic in parallel (`AtLeastOnce`)")
def test_several_objects_of_one_reader_get_disjoint_pages(log: topics.Log) -> None:
    log.append("t", [b"%d" % number for number in range(100)])
    with log.reader("t", "main") as first, log.reader("t", "main") as second:
        pages = [reader.read(limit=10) for _ in range(5) for reader in (first, second)]
    assert [record.seq for page in pages for record in page] == list(range(1, 101))


@line("at the start all files are mapped, and every block is read")
def test_a_start_reads_the_log_after_the_newest_snapshot(tmp_path: Path) -> None:
    check_start_reads_the_end(tmp_path)


@line("`FsyncSchedule::Milliseconds(n)`", "`FsyncSchedule::NoFsync`")
@pytest.mark.parametrize(
    ("every", "not_before", "by"), [(200, 150, 250), (Config().sync_every_ms, 900, 1_100), (None, 60_000, None)]
)
def test_the_time_between_syncs_is_a_setting_and_may_be_none(
    every: int | None, not_before: int, by: int | None
) -> None:
    check_sync_by_time(every, not_before, by)


@line("`FsyncSchedule::SyncEach`")
def test_an_append_of_class_fsync_is_synced_when_it_returns(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data", durability="fsync", sync_every_ms=None, **SMALL) as log:
        seq = log.append("t", [b"one"]).first_seq
        assert log.state("t").synced_seq == seq
    simulated, ring = sim_log(sync_every_ms=None)
    simulated.put_topic("t", durability="fsync")
    simulated.append("t", [b"the record"])
    assert is_durable(ring, b"the record")
    simulated.close()


@line("a batch is synced when it returns, with each schedule")
def test_a_batch_is_synced_when_it_returns_in_class_fsync_or_by_a_flush() -> None:
    log, ring = sim_log(sync_every_ms=None)
    log.put_topic("fsync", durability="fsync")
    log.append("disk", [b"creates the topic, which is synced"])
    log.append("fsync", [b"one of a synced batch", b"two"])
    assert is_durable(ring, b"one of a synced batch")
    result = log.append("disk", [b"one of a batch", b"two"])
    assert not is_durable(ring, b"one of a batch")
    assert log.flush("disk", result.last_seq) == 3
    assert is_durable(ring, b"one of a batch")
    log.close()


@line("the syncs of several files are one submission")
def test_one_sync_is_that_of_all_topics() -> None:
    log, ring = sim_log(sync_every_ms=None)
    texts = [b"record of topic %d." % number for number in range(20)]
    for number in range(len(texts)):
        log.append(f"t{number}", [b"creates the topic, which is synced"])
    for number, text in enumerate(texts):
        log.append(f"t{number}", [text])
    assert not any(is_durable(ring, text) for text in texts)
    syncs = log.stats().syncs
    log.flush()
    assert log.stats().syncs == syncs + 1
    assert all(is_durable(ring, text) for text in texts)
    log.close()


@line("`WalIndex`, `<topic>_index.db`")
def test_a_reader_makes_no_file_and_is_there_after_a_restart(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data", **SMALL) as log:
        log.append("t", [b"one", b"two"])
        before = {path.name for path in (tmp_path / "data").iterdir()}
        with log.reader("t", "main") as reader:
            reader.read(limit=1)
        assert {path.name for path in (tmp_path / "data").iterdir()} == before
    with topics.open(tmp_path / "data", **SMALL) as log, log.reader("t", "main") as reader:
        assert data_of(reader.read()) == [b"two"]


@line("`WALRUS_DATA_DIR`, `WALRUS_INSTANCE_KEY`, `WALRUS_QUIET`")
def test_the_environment_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICS_DATA_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("TOPICS_MAX_RECORD_BYTES", "1")
    with topics.open(tmp_path / "data", **SMALL) as log:
        log.append("t", [b"more than one byte"])
    assert not (tmp_path / "elsewhere").exists()


@line("`DEFAULT_BLOCK_SIZE`, `BLOCKS_PER_FILE`, `MAX_FILE_SIZE`")
def test_the_size_of_files_is_a_setting(tmp_path: Path) -> None:
    file, segment = largest_files(tmp_path / "data", wal_file_bytes=1 << 20, segment_max_bytes=300_000)
    assert file == 1 << 20
    assert 200_000 < segment < 310_000


@line("`MAX_ALLOC`")
def test_the_size_of_a_record_is_a_setting(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data", max_record_bytes=20 << 20, disk_reserve_bytes=0) as log:
        log.append("t", [bytes(17 << 20)])
        record = log.get("t", 1)
        assert record is not None
        assert len(record.data) == 17 << 20


@line("`MAX_BATCH_ENTRIES` 2,000", "`InvalidInput`")
def test_more_records_than_an_append_may_have_are_refused(tmp_path: Path) -> None:
    assert Config().max_batch_records == 10_000
    with topics.open(tmp_path / "data", max_batch_records=10, **SMALL) as log:
        with pytest.raises(topics.RequestError) as refused:
            log.append("t", [b""] * 11)
        assert refused.value.code == "batch_too_large"
        with pytest.raises(topics.UsageError):
            log.append("t", b"no list")


@line("an entry of some 10 MB")
def test_a_record_of_16_mib_needs_no_setting(log: topics.Log) -> None:
    log.append("t", [bytes(16 << 20)])
    record = log.get("t", 1)
    assert record is not None
    assert len(record.data) == 16 << 20
    with pytest.raises(topics.RequestError) as refused:
        log.append("t", [bytes((16 << 20) + 1)])
    assert refused.value.code == "record_too_large"


@line("`MAX_BATCH_ENTRIES` 2,000, of a read")
@pytest.mark.parametrize(("setting", "most"), [({}, 1_000), ({"max_limit": 10}, 10)], ids=str)
def test_a_read_has_no_more_records_than_a_limit(tmp_path: Path, setting: dict[str, int], most: int) -> None:
    with topics.open(tmp_path / "data", **setting, **SMALL) as log:
        log.append("t", [b"x"] * 1_001)
        with log.reader("t", "main") as reader:
            assert len(reader.peek(max_bytes=1 << 20)) == most
            assert len(reader.read(limit=1_001)) == most


@line("`MAX_BATCH_BYTES` 10 GiB")
def test_more_bytes_than_a_batch_can_state_are_refused(tmp_path: Path) -> None:
    part = memoryview(bytes(1 << 20))
    with topics.open(tmp_path / "data", max_batch_records=0, max_body_bytes=0, disk_reserve_bytes=0) as log:
        with pytest.raises(topics.TopicsError, match="4 GiB|4294967295|4,294,967,295"):
            log.append("t", [part] * 4097)
        assert log.topics() == []


@line("`PREFIX_META_SIZE` 64")
def test_a_record_takes_61_bytes_beside_its_data(log: topics.Log) -> None:
    check_bytes_of_a_record(log)


@line("`WouldBlock`, a batch is being written")
def test_appends_of_several_threads_share_a_commit() -> None:
    log, ring = sim_log()
    log.append("t", [b"made"])
    commits = log.stats().commits
    writers = [threading.Thread(target=log.append_nowait, args=("t", [b"%d" % number])) for number in range(5)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    drive(log, ring, 1)
    assert log.state("t").head_seq == 6
    assert log.stats().commits == commits + 1
    log.close()


@line("`WouldBlock`, a batch is being written", "readers see all of a batch, or nothing")
def test_batches_of_several_threads_are_all_taken_and_seen_whole(log: topics.Log) -> None:
    log.put_topic("t")
    batches = 20

    def write() -> None:
        for _ in range(batches):
            log.append("t", [b"x"] * 10)

    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert log.state("t").head_seq % 10 == 0
        assert len(log.columns("t").seq) % 10 == 0
    for writer in writers:
        writer.join()
    assert log.state("t").head_seq == 4 * batches * 10


@line("`UnexpectedEof`, `InvalidData`", "a checksum with each read")
def test_a_flipped_byte_is_an_error_that_names_the_record(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data", hot_tail_bytes=0, **SMALL) as log:
        log.append("t", [b"a payload to be found"])
        log.checkpoint()
        place = log.locate("t", 1)
        check_checksum(place)
        assert place is not None
        with open(place.path, "r+b") as file:
            file.seek(place.offset + place.length - 20)
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 1]))
        with pytest.raises(topics.CorruptError, match="record 1 .* does not match its checksum.*topics fsck --rebuild"):
            log.get("t", 1)


@line("`Unsupported`")
def test_a_ring_that_the_kernel_refuses_is_replaced_only_if_none_was_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topics.loop.choose.probe", _refused)
    with topics.open(tmp_path / "data", **SMALL) as log:
        assert "no io_uring here" in log.engine_reason
    with pytest.raises(topics.TopicsError, match="no io_uring here"):
        topics.open(tmp_path / "data", io="uring", **SMALL)


@line("without io_uring: mapped files")
def test_the_portable_way_maps_no_file(tmp_path: Path) -> None:
    before = _rings()
    with topics.open(tmp_path / "data", io="portable", hot_tail_bytes=0, **SMALL) as log:
        log.append("t", [bytes(200_000), b"two"])
        log.checkpoint()
        assert data_of(list(log.read("t"))) == [bytes(200_000), b"two"]
        assert _rings() == before
        assert mapped_files(tmp_path) == []


def _refused() -> RingSupport:
    return RingSupport(False, "no io_uring here", "Take another kernel", (), (), "unlimited")


@line("`Other`, a lock is poisoned")
def test_an_exception_that_nothing_expected_ends_the_log(log: topics.Log) -> None:
    class Thrown(BaseException):
        pass

    def throw(_: object) -> None:
        raise Thrown

    with pytest.raises(Thrown):
        log._driver.call(throw)
    with pytest.raises(topics.LogFailedError, match="Thrown"):
        log.append("t", [b"one"])
    with pytest.raises(topics.LogFailedError):
        log.close()


@line("a write fails: headers are zeroed, the offset is set back")
@pytest.mark.parametrize(
    ("error", "raised"), [(errno.EIO, topics.LogReadOnlyError), (errno.ENOSPC, topics.DiskFullError)]
)
def test_a_write_that_fails_is_refused_and_what_was_acknowledged_is_still_read(
    error: int, raised: type[topics.TopicsError]
) -> None:
    refused, left = append_to_failing_disk(error)
    assert isinstance(refused, raised)
    assert left == [b"one"]


@line("a file is removed once all its entries were read")
def test_what_all_trimming_readers_have_committed_is_deleted(log: topics.Log) -> None:
    log.append("t", [b"one", b"two"])
    with log.reader("t", "main", trims=True) as reader:
        reader.read(limit=1)
    assert [record.data for record in log.read("t")] == [b"two"]


@line("two processes may open one directory")
def test_a_directory_is_open_in_one_process_at_a_time(tmp_path: Path) -> None:
    check_second_process(tmp_path / "data")
