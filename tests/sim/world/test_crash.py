"""Crash points: a toy log on the real loop, stopped after each operation in turn, by a kill or a power cut.

Goal: what was acknowledged is there afterwards, whatever the seed kept of the rest. Method: the log commits rows of one
sector each and acknowledges in the commit's callback; the same log with a wrong order must be caught, or the disk
would prove nothing.
"""

import os

import pytest

from tests.sim import SimRing, SimStoppedError
from topics.loop import Loop

ROW_BYTES = 512
ROWS = 12


class ToyLog:
    """Rows 0, 1, 2, ... one commit each; `acknowledged` counts those that a client got an answer for."""

    def __init__(self, ring: SimRing, *, early: bool, directory_synced: bool = True) -> None:
        self.loop = Loop(ring, ring.clock)
        self.early = early
        self.directory_synced = directory_synced
        self.acknowledged = 0
        self.written = 0

    async def run(self) -> None:
        files = self.loop.files
        self.fd = await files.open("/log", os.O_RDWR | os.O_CREAT)
        await files.fsync(self.fd)
        if self.directory_synced:
            await files.sync_directory("/")
        self.append()

    def append(self) -> None:
        offset = self.written * ROW_BYTES
        row = bytes([1 + self.written]) * ROW_BYTES
        self.written += 1
        if self.early:
            self.acknowledged += 1
        self.loop.files.commit_nowait(self.fd, row, offset, self.committed)

    def committed(self, write_res: int, sync_res: int) -> None:
        if not self.early and (write_res, sync_res) == (ROW_BYTES, 0):
            self.acknowledged += 1
        if self.written < ROWS:
            self.append()

    def is_through(self) -> bool:
        return self.acknowledged == ROWS


def survivors(seed: int, stop: int, *, power_cut: bool, early: bool = False, directory_synced: bool = True) -> bool:
    """Whether all acknowledged rows were there after a stop at this point."""
    ring = SimRing(seed, shuffle=True)
    ring.stop_at(stop)
    log = ToyLog(ring, early=early, directory_synced=directory_synced)
    log.loop.spawn(log.run())
    with pytest.raises(SimStoppedError):
        log.loop.run_until(lambda: False)
    after = ring.next_life(power_cut=power_cut)
    image = after.file_bytes("/log") if after.list_directory("/") else b""
    rows = [image[row * ROW_BYTES : (row + 1) * ROW_BYTES] for row in range(log.acknowledged)]
    return rows == [bytes([1 + row]) * ROW_BYTES for row in range(log.acknowledged)]


@pytest.mark.parametrize("power_cut", [False, True], ids=["kill", "power-cut"])
def test_acknowledged_rows_survive_a_stop_after_any_operation(power_cut: bool) -> None:
    for seed in range(5):
        for stop in range(1, 5 + 2 * ROWS):
            assert survivors(seed, stop, power_cut=power_cut), f"seed {seed}, stopped after {stop} operations"


def test_acknowledging_before_the_sync_is_caught() -> None:
    assert not all(survivors(seed, 16, power_cut=True, early=True) for seed in range(10))


def test_a_log_in_an_unsynced_directory_is_caught() -> None:
    assert not all(survivors(seed, 16, power_cut=True, directory_synced=False) for seed in range(10))


def test_a_failed_sync_acknowledges_nothing() -> None:
    ring = SimRing()
    ring.faults.fail("sync", 5, nth=5, path_part="log")
    log = ToyLog(ring, early=False)
    log.loop.spawn(log.run())
    log.loop.run_until(lambda: log.written == ROWS)
    log.loop.close()
    assert log.acknowledged == ROWS - 1
