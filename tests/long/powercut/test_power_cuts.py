"""The real server on a real ext4 whose disk loses power, fails a write, or fills up.

Goal: what the classes promise holds on the kernel, not only in the simulator. Method: see run.py; here one life
with 20 cuts. `make powercut` does hundreds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.long.powercut.disk import LoggedDisk, build, missing
from tests.long.powercut.run import one_life
from tests.long.soak.server_client import Client, Server

pytestmark = [pytest.mark.real, pytest.mark.skipif(bool(missing()), reason=missing() or "-")]

SETTINGS: dict[str, Any] = {
    "wal_file_bytes": 1 << 20,
    "checkpoint_wal_bytes": 2 << 20,
    "disk_reserve_bytes": 1 << 20,
    "disk_low_water_bytes": 2 << 20,
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("powercut"))


@pytest.fixture
def server(program: Path, tmp_path: Path) -> Iterator[tuple[Server, Client, LoggedDisk]]:
    """A server on a small disk of its own."""
    with LoggedDisk(program, tmp_path, megabytes=32) as disk:
        server = Server(disk.mountpoint, SETTINGS)
        try:
            client = Client(server.wait_ready())
            yield server, client, disk
            client.close()
        finally:
            server.kill()


def records(count: int, width: int) -> dict[str, Any]:
    return {"records": [{"data": "x" * width, "tag": "t"} for _ in range(count)]}


def test_ten_power_cuts_break_no_promise(program: Path, tmp_path: Path) -> None:
    """R-DUR-1, R-DUR-2, R-DUR-3, R-DUR-6, R-DUR-15: on ext4, at any write that reaches the disk."""
    counts = one_life(program, tmp_path, seed=20, cuts=10)
    assert counts["calls"] > 25
    assert counts["records compared"] > 250


def test_a_failed_write_latches_the_log_and_reads_go_on(server: tuple[Server, Client, LoggedDisk]) -> None:
    """R-DUR-16: the disk fails one write with EIO; nothing is acknowledged afterwards, everything is still read."""
    _, client, disk = server
    assert client.ask("PUT", "/v0/topics/t", {"durability": "fsync"})[0] == 201
    acknowledged = 0
    for _ in range(10):
        status, answer = client.ask("POST", "/v0/topics/t", records(1, 50))
        assert status == 200
        acknowledged = answer["last_seq"]
    disk.control("eio 0 1000000")
    status, answer = client.ask("POST", "/v0/topics/t", records(1, 50))
    assert status == 500, answer
    disk.control("eio 0 0")
    status, answer = client.ask("POST", "/v0/topics/t", records(1, 50))
    assert (status, answer["error"]["detail"]["reason"]) == (500, "read_only")
    status, answer = client.ask("GET", "/v0/ready")
    assert (status, answer["error"]["detail"]["reason"]) == (503, "read_only")
    status, answer = client.ask("POST", "/v0/topics/t/diff", {"limit": 1000})
    assert status == 200
    assert [record["$seq"] for record in answer["records"]] == list(range(1, acknowledged + 1))


def test_a_full_disk_refuses_appends_takes_deletes_and_heals(server: tuple[Server, Client, LoggedDisk]) -> None:
    """R-DUR-16: ENOSPC of a real file system."""
    _, client, _ = server
    assert client.ask("PUT", "/v0/topics/t", {"durability": "fsync"})[0] == 201
    head = 0
    while True:
        status, answer = client.ask("POST", "/v0/topics/t", records(100, 3000))
        if status != 200:
            break
        head = answer["last_seq"]
    assert (status, answer["error"]["detail"]["reason"]) == (500, "disk_full")
    status, answer = client.ask("POST", "/v0/topics/t/diff", {"from_seq": head - 1})
    assert (status, len(answer["records"])) == (200, 1)
    status, answer = client.ask("POST", "/v0/topics/t/delete", {"before_seq": head})
    assert (status, answer["deleted"]) == (200, head - 1)
    for _ in range(2000):  # bounded: it looks for space once a second
        status, answer = client.ask("POST", "/v0/topics/t", records(1, 50))
        if status == 200:
            break
        time.sleep(0.01)  # a real process heals in real time
    assert (status, answer["first_seq"] > head) == (200, True)
