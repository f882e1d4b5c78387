"""The tables of docs/from-other-logs.md, and the tests of their lines."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import pytest
import xxhash

import topics
from tests.embedded.appends.test_flush import sim_log
from tests.embedded.calls.test_no_maintenance import drive, is_durable
from tests.embedded.conftest import SMALL, copy_open
from tests.sim import SimRing
from topics.config import tiny_config

Test = TypeVar("Test", bound=Callable[..., None])
PAGE = Path(__file__).parents[3] / "docs" / "from-other-logs.md"


def lines_of(section: str) -> list[str]:
    """Return the first cells of the table in a section of the page."""
    text = PAGE.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    text = text.partition("\n### ")[0]
    rows = [line.split(" | ")[0].removeprefix("| ") for line in text.splitlines() if line.startswith("| ")]
    return rows[1:]


class Lines:
    """The lines of one table that tests claim."""

    def __init__(self, section: str) -> None:
        self.section = section
        self.claimed: set[str] = set()

    def __call__(self, *cells: str) -> Callable[[Test], Test]:
        """Let a test claim lines by their first cells. A line may need more than one test."""

        def claim(test: Test) -> Test:
            self.claimed.update(cells)
            return test

        return claim

    def check(self) -> None:
        """Compare the claimed lines with the table's."""
        assert sorted(self.claimed) == sorted(lines_of(self.section))


def append_to_failing_disk(error: int) -> tuple[topics.TopicsError, list[bytes]]:
    """Append a record, and then one whose write fails. Return its error, and what is read then."""
    ring = SimRing(1)
    ring.disk.make_directory("/srv")
    log = topics.Log(tiny_config("/srv/topics"), ring, ring.clock)
    log.append("t", [b"one"])
    ring.faults.fail("write", error, times=100, path_part="wal")
    with pytest.raises(topics.StorageError) as refused:
        log.append("t", [b"two"])
    left = [record.data for record in log.read("t")]
    with contextlib.suppress(topics.StorageError):
        log.close()
    return refused.value, left


def check_sync_by_time(every: int | None, not_before: int, by: int | None) -> None:
    """Check at which time (ms) after an append its record is on the simulated disk for good; by None: at no time."""
    log, ring = sim_log(sync_every_ms=every, checkpoint_every_ms=1 << 40)
    log.append("t", [b"creates the topic, which is synced"])
    log.append("t", [b"the record"])
    drive(log, ring, not_before)
    assert not is_durable(ring, b"the record")
    assert log.state("t").synced_seq == 1
    if by is None:
        assert log.flush("t", 2) == 2
    else:
        drive(log, ring, by - not_before)
    assert is_durable(ring, b"the record")
    assert log.state("t").synced_seq == 2
    log.close()


def largest_files(path: Path, *, wal_file_bytes: int, segment_max_bytes: int) -> tuple[int, int]:
    """Write 6 MB by these settings; return the bytes of the largest log file and of the largest segment."""
    sizes = {"wal_file_bytes": wal_file_bytes, "segment_max_bytes": segment_max_bytes, "segment_bulk": 1}
    with topics.open(path, **{**SMALL, **sizes, "checkpoint_wal_bytes": 1 << 40}) as log:
        for _ in range(60):
            log.append("t", [bytes(100_000)])
        file = max(file.stat().st_size for file in path.glob("wal/*/*.log"))
        log.checkpoint()
        return file, max(segment.stat().st_size for segment in path.rglob("seg-*.data"))


def check_bytes_of_a_record(log: topics.Log) -> None:
    """Check what records take in the files that hold them, by where their payloads are: first the log, then a pack."""
    payloads = [letter * 100 for letter in (b"A", b"B", b"C", b"D")]
    described = topics.NewRecord(payloads[2], tag="abc", node="nn", meta=[1])
    log.append("t", [*payloads[:2], described, payloads[3]])
    paths = set()
    for _ in range(2):
        place = log.locate("t", 1)
        assert place is not None
        paths.add(place.path)
        held = Path(place.path).read_bytes()
        first, second, _, fourth = (held.index(payload) for payload in payloads)
        assert second - first == 61 + 100
        assert fourth - second == 2 * (61 + 100) + len("abc") + len("nn") + len("[1]")
        log.checkpoint()
    assert len(paths) == 2


def check_checksum(place: topics.Location | None) -> None:
    """Check that the frame which is there ends with its XXH3-64, and with the byte that says whether it is deleted."""
    assert place is not None
    with open(place.path, "rb") as file:
        file.seek(place.offset)
        frame = file.read(place.length)
    assert xxhash.xxh3_64_intdigest(frame[4:-9]) == int.from_bytes(frame[-9:-1], "little")


def check_start_reads_the_end(tmp_path: Path) -> None:
    """Check that an open after a kill reads frames of the log only after the newest snapshot."""
    with topics.open(tmp_path / "data", **SMALL) as log:
        for _ in range(20):
            log.append("t", [bytes(100)] * 100)
        without = copy_open(tmp_path / "data", tmp_path / "without")
        log.checkpoint()
        log.append("t", [b"after it"])
        behind = copy_open(tmp_path / "data", tmp_path / "behind")
    for copy, records, least, most in ((without, 2_000, 2_000, 2_100), (behind, 2_001, 1, 50)):
        with topics.open(copy, **SMALL) as log:
            assert log.state("t").head_seq == records
            assert least <= log.stats().recovery_frames <= most


def mapped_files(directory: Path) -> list[str]:
    """Return the lines of this process' memory map that name a file of a directory."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line for line in lines if str(directory) in line]


def check_second_process(path: Path) -> None:
    """Check that another process may open the directory only once this one has closed it."""
    opening = [sys.executable, "-c", "import sys, topics; topics.open(sys.argv[1]).close()", str(path)]
    with topics.open(path, **SMALL) as log:
        log.append("t", [b"one"])
        refused = subprocess.run(opening, check=False, capture_output=True, text=True)
        assert refused.returncode == 1
        assert f"{topics.LockedError.__name__}: " in refused.stderr
        log.append("t", [b"two"])
    subprocess.run(opening, check=True)
    with topics.open(path, **SMALL) as log:
        assert [record.data for record in log.read("t")] == [b"one", b"two"]


def check_usage(program: ModuleType, shown: str, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Run an example's `main` with a directory as its argument, and without one."""
    name = Path(str(program.__file__)).name
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sys.argv", [name, str(directory)])
        program.main()
        assert shown in capsys.readouterr().out
        patched.setattr("sys.argv", [name])
        with pytest.raises(SystemExit, match=rf"usage: .*{re.escape(name)} DIRECTORY"):
            program.main()
