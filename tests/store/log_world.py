"""A log on the simulated ring: opened, written to, cut off, and read back the way recovery reads it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

from tests.sim.world.faults import Faults
from tests.sim.world.sim_disk import SimDisk
from tests.sim.world.sim_file import SimFile
from tests.sim.world.sim_ring import SimRing
from topics.config import Config, tiny_config
from topics.errors import StorageError, TopicsError
from topics.loop import Loop, PassEnd
from topics.store.commits.write_batch import Commit
from topics.store.format import codec
from topics.store.format.file_table import FileTable
from topics.store.format.log_format import (
    WAL_FIRST_BATCH_OFFSET,
    WalHeader,
    align_up,
    shard_directory,
    wal_file_name,
    wal_file_no,
)
from topics.store.format.rows import RowRecord, Rows, pack_rows
from topics.store.read.file_range import FileRange
from topics.store.read.reader import Reader
from topics.store.wal.sharded_log import ShardedLog, ShardStart

DIRECTORY = "data"


@dataclass
class Write:
    """One staged request and what became of it."""

    topic_id: int
    seqs: list[int]
    fsync: bool
    start: int = 0
    lengths: list[int] = field(default_factory=list)
    commit: Commit | None = None
    order: int = -1
    """Its place among all callbacks."""

    @property
    def acked(self) -> bool:
        return self.commit is not None and self.commit.error is None

    @property
    def error(self) -> StorageError | None:
        assert self.commit is not None, "still waiting"
        return self.commit.error


class LogWorld:
    """`write` stages a request and attaches its callback; the loop's passes flush."""

    worlds: ClassVar[list[LogWorld]] = []
    """All that were made since `end_all`."""

    def __init__(
        self,
        seed: int = 0,
        *,
        disk: SimDisk | None = None,
        faults: Faults | None = None,
        shuffle: bool = False,
        start: ShardStart | None = None,
        config: Callable[[Config], Config] = lambda config: config,
    ) -> None:
        self.ring = SimRing(seed, disk=disk, faults=faults, shuffle=shuffle)
        self.loop = Loop(self.ring, self.ring.clock)
        self.config = config(replace(tiny_config(DIRECTORY), disk_low_water_bytes=0, disk_reserve_bytes=0))
        self.table = FileTable()
        self.ring.make_directory(DIRECTORY)
        self.log = ShardedLog(self.loop, self.config, self.table)
        self.reader = Reader(self.loop.files, self.table, self.log.tail)
        self.loop.on_pass_end(self.log.flush, PassEnd.COMMITS)
        self.writes: list[Write] = []
        self.worlds.append(self)
        self._acks = 0
        self.loop.run_task(self.loop.files.sync_directory("/"))
        self.loop.run_task(self.log.open([start or ShardStart()]))

    def write(self, topic_id: int = 1, count: int = 1, *, fsync: bool = True, bytes_each: int = 20) -> Write:
        """Stages `count` records; raises what the log raises. Seqs count up per topic over what was staged."""
        first = 1 + sum(len(write.seqs) for write in self.writes if write.topic_id == topic_id)
        rows = pack_rows([RowRecord(b'"%s"' % (b"x" * (bytes_each - 2))) for _ in range(count)])
        framed = self.log.stage_records(topic_id, first, 5, rows, fsync=fsync)
        write = Write(topic_id, list(range(first, first + count)), fsync, framed.start, framed.lengths.tolist())
        self.writes.append(write)

        def done(commit: Commit) -> None:
            assert write.commit is None, "a callback runs once"
            write.commit = commit
            write.order = self._acks
            self._acks += 1

        self.log.when_committed(topic_id, fsync, done)
        return write

    def write_lone(self, topic_id: int, first_seq: int, rows: Rows, *, fsync: bool) -> bool:
        """Write as a lone write is, which is in the log then; False: nothing was done."""
        written = self.log.write_lone(topic_id, first_seq, 5, rows, None, fsync=fsync)
        if written is not None:
            _placed, _commit, move_on, _copies = written
            move_on()
        return written is not None

    def settle(self, *writes: Write) -> None:
        """Passes until these writes (all, when none are named) have their answer."""
        waiting = writes or tuple(self.writes)
        self.loop.run_until(lambda: all(write.commit is not None for write in waiting))

    def passes(self, count: int) -> None:
        for _ in range(count):
            self.loop.run_pass(0)

    def advance(self, ms: int) -> None:
        """Passes for so much virtual time."""
        until = self.ring.clock.monotonic_ns() + ms * 1_000_000
        while self.ring.clock.monotonic_ns() < until:
            self.loop.run_pass(until - self.ring.clock.monotonic_ns())

    def read(self, write: Write) -> bytes:
        """The frames of an acked write, through the reader."""
        assert write.commit is not None
        piece = FileRange(write.commit.file_id, write.commit.base + write.start, sum(write.lengths))
        got: list[bytes | TopicsError] = []
        self.reader.fetch(
            [piece], lambda found: got.append(found if isinstance(found, StorageError) else bytes(found[0]))
        )
        self.loop.run_until(lambda: bool(got))
        assert isinstance(got[0], bytes), got[0]
        return got[0]

    def close(self) -> None:
        self.loop.run_task(self.log.close())

    def crash(self, cut: str = "power") -> SimDisk:
        """The end without a goodbye, by "power" or "kill"; returns the disk as the next start finds it."""
        disk = self.ring.power_cut() if cut == "power" else self.ring.kill()
        for task in list(self.loop._tasks):
            with contextlib.suppress(AssertionError, RuntimeError):  # its `finally` finds the ring closed
                task._coro.close()
        return disk

    @classmethod
    def end_all(cls) -> None:
        for world in cls.worlds:
            world.crash("kill")
        cls.worlds.clear()


@dataclass(frozen=True)
class Recovered:
    """The findings of a scan of a shard's files."""

    seqs: dict[int, list[int]]
    """Topic id -> seqs in log order."""
    batches: int
    next_file_no: int
    torn_middle: bool
    """A sound batch follows a bad one that was known to be synced."""


def recover(disk: SimDisk, shard: int = 0) -> Recovered:
    """Replays a shard the plain way: files by number, batches by number, to the first that does not follow."""
    directory = f"{DIRECTORY}/{shard_directory(shard)}"
    seqs: dict[int, list[int]] = {}
    expected = 1
    synced_upto = 0
    highest = 0
    numbers = sorted(n for name in disk.list_directory(directory) if (n := wal_file_no(name)) is not None)
    for number in numbers:
        highest = number
        node = disk.find(f"{directory}/{wal_file_name(number)}")
        assert isinstance(node, SimFile)
        data = bytes(node.live)
        try:
            header = WalHeader.unpack(data[:64], "f")
        except StorageError:
            continue
        if header.file_no != number:
            continue
        if header.first_batch_no > expected:
            break
        scan = codec.scan_log(
            data,
            epoch=header.epoch,
            batch_no=header.first_batch_no,
            chain=header.checksum,
            start=WAL_FIRST_BATCH_OFFSET,
        )
        synced_upto = max(synced_upto, scan.synced_upto)
        found = codec.find_batch(data, epoch=header.epoch, start=align_up(scan.position, 8))
        if found is not None:
            synced_upto = max(synced_upto, found.synced_upto)
        for frame in scan.frames:
            if header.first_batch_no + int(frame["batch"]) >= expected:
                seqs.setdefault(int(frame["topic_id"]), []).append(int(frame["seq"]))
        expected = max(expected, scan.batch_no)
    return Recovered(seqs, expected - 1, highest + 1, synced_upto >= expected)
