"""The log on the kernel: every ring and every commit primitive, rotation and reads, checked in the files themselves."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from topics.clock import SystemClock
from topics.config import tiny_config
from topics.errors import TopicsError
from topics.loop import Loop, PassEnd
from topics.loop.choose import open_ring
from topics.store.commits.write_batch import Commit
from topics.store.format import codec
from topics.store.format.file_table import FileTable
from topics.store.format.log_format import WAL_FIRST_BATCH_OFFSET, WalHeader
from topics.store.format.rows import RowRecord, pack_rows
from topics.store.read.file_range import FileRange
from topics.store.read.reader import Fetched, Reader
from topics.store.wal.sharded_log import ShardedLog, ShardStart

pytestmark = pytest.mark.real


@pytest.fixture
def directory() -> Iterator[Path]:
    """On the file system of the project: O_DIRECT does not work on every /tmp."""
    with tempfile.TemporaryDirectory(prefix=".wal-real-", dir=Path(__file__).parent) as path:
        yield Path(path)


@pytest.mark.parametrize("io", ["uring", "portable"])
@pytest.mark.parametrize("commit", ["auto", "link", "direct", "dsync"])
def test_records_lie_where_their_commits_say(directory: Path, io: str, commit: str) -> None:
    config = replace(
        tiny_config(str(directory)), io=io, commit=commit, disk_low_water_bytes=0, hot_tail_bytes=64 * 1024
    )
    try:
        ring, _ = open_ring(config, shared=False)
    except (TopicsError, OSError, ImportError) as error:
        pytest.skip(f"{io}: {error}")
    loop = Loop(ring, SystemClock())
    try:
        run(loop, directory, ShardedLog(loop, config, table := FileTable()), table)
    finally:
        loop.close()


def run(loop: Loop, directory: Path, log: ShardedLog, table: FileTable) -> None:
    loop.run_task(log.open([ShardStart()]))
    loop.on_pass_end(log.flush, PassEnd.COMMITS)
    rows = pack_rows([RowRecord(b'"%s"' % (b"x" * 700), tag=b"t") for _ in range(12)])
    places: list[FileRange] = []
    for number in range(60):
        fsync = number % 3 != 1
        framed = log.stage_records(1, 1 + 12 * number, 5, rows, fsync=fsync)
        answers: list[Commit] = []
        log.when_committed(1, fsync, answers.append)
        log.flush()
        loop.run_until(lambda answers=answers: bool(answers))  # type: ignore[misc]
        assert answers[0].error is None
        places.append(FileRange(answers[0].file_id, answers[0].base + framed.start, int(framed.lengths.sum())))
    assert log.counters.rotations >= 2
    got: list[Fetched] = []
    Reader(loop.files, table, log.tail).fetch(
        places,
        lambda found: got.append([memoryview(bytes(view)) for view in found] if isinstance(found, list) else found),
    )
    loop.run_until(lambda: bool(got))
    assert isinstance(got[0], list), got[0]
    for number, view in enumerate(got[0]):
        assert codec.scan_frames(view).frames["seq"].tolist() == list(range(1 + 12 * number, 13 + 12 * number))
    loop.run_task(log.close())
    seqs: list[int] = []
    for path in sorted(directory.glob("wal/shard-00/wal-*.log")):
        data = path.read_bytes()
        if data[:4] == b"TPWL":
            header = WalHeader.unpack(data[:64], str(path))
            scan = codec.scan_log(
                data,
                epoch=header.epoch,
                batch_no=header.first_batch_no,
                chain=header.checksum,
                start=WAL_FIRST_BATCH_OFFSET,
            )
            seqs += scan.frames["seq"].tolist()
            assert path.stat().st_mode & 0o777 == 0o600
    assert seqs == list(range(1, 721))
