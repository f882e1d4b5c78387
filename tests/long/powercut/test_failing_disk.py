"""R-DUR-16, R-DUR-2: a disk that fails writes or flushes, or falsely confirms flushes, under a real server and ext4.

Goal: an error that reaches the kernel reaches the clients, nothing acknowledged is lost by it, and a restart heals; a
false flush costs no more than what it should have flushed. Method: the disk of disk.c fails or falsely confirms; then
the server is killed and started again on the same mount (the page cache is what the kernel left of it), or the power
is cut, and what is there is compared with what was answered. TOPICS_TEST_CUTS: so many of each.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import topics
from tests.amount import stride
from tests.long.powercut.check_image import _SETTINGS, after_power_cut
from tests.long.powercut.disk import LoggedDisk, Mounted, build, missing
from tests.long.powercut.images import images, read_log
from tests.long.soak.server_client import Client, Server, fsck
from topics.errors import TopicsError

pytestmark = [pytest.mark.real, pytest.mark.skipif(bool(missing()), reason=missing() or "-")]

SETTINGS: dict[str, Any] = {"wal_file_bytes": 1 << 20, "disk_reserve_bytes": 1 << 20, "disk_low_water_bytes": 2 << 20}
ENGINES = ("uring", "portable")
CUTS = int(os.environ.get("TOPICS_TEST_CUTS", "2"))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("powercut"))


@contextmanager
def serving(disk: LoggedDisk, **settings: Any) -> Iterator[Client]:
    """A server on the disk, killed at the end of the block."""
    server = Server(disk.mountpoint, SETTINGS | settings)
    try:
        client = Client(server.wait_ready())
        yield client
        client.close()
    finally:
        server.kill()


def write(client: Client, name: str, text: str) -> tuple[int, Any]:
    return client.ask("POST", f"/v0/topics/{name}", {"records": [{"data": text}]})


def write_many(client: Client, name: str, texts: list[str]) -> dict[int, str]:
    """Return what was acknowledged."""
    acked = {}
    for text in texts:
        status, answer = write(client, name, text)
        assert status == 200, answer
        acked[answer["first_seq"]] = text
    return acked


def read(client: Client, name: str) -> dict[int, str]:
    status, answer = client.ask("POST", f"/v0/topics/{name}/diff", {"limit": 1000})
    assert status == 200, answer
    return {row["$seq"]: row["data"] for row in answer["records"]}


def wait_for_note(disk: LoggedDisk) -> bool:
    """Until the server has noted that its log failed, which the disk refused at first; it asks again every second.

    False: the journal of the file system met the fault, too, and the kernel has made it read-only.
    """
    for _ in range(6000):  # a minute: under much load, the start of a server takes several seconds
        if json.loads((disk.mountpoint / "data" / "session").read_text())["boot"] == "":
            return True
        if is_read_only(disk.mountpoint):
            return False
        time.sleep(0.01)  # a real process asks in real time
    raise AssertionError("it was never noted that the log failed")


def is_read_only(mountpoint: Path) -> bool:
    rows = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    return any({"ro", "emergency_ro"} & set(row[3].split(",")) for row in rows if row[1] == str(mountpoint))


def reason(answer: Any) -> str:
    found: str = answer["error"]["detail"]["reason"]
    return found


@pytest.mark.parametrize(("io", "order"), [*itertools.product(ENGINES, ("eio 0 1", "eioflush 1"))][:: stride(3)])
def test_one_error_of_the_disk_latches_the_log_and_a_restart_heals(
    program: Path, tmp_path: Path, io: str, order: str
) -> None:
    """The disk works again at once, but no process knows what it holds: nothing is tried again before a restart."""
    with LoggedDisk(program, tmp_path, megabytes=32, options="commit=600") as disk:
        with serving(disk, io=io) as client:
            assert client.ask("PUT", "/v0/topics/t", {"durability": "fsync"})[0] == 201
            acked = write_many(client, "t", [f"before {number}" for number in range(10)])
            disk.wait_until_idle()
            disk.control(order)
            status, answer = write(client, "t", "refused")
            assert status == 500, answer
            status, answer = write(client, "t", "refused, too")
            assert (status, reason(answer)) == (500, "read_only")
            assert read(client, "t") == acked
            status, answer = client.ask("GET", "/v0/ready")
            assert (status, reason(answer)) == (503, "read_only")
        with serving(disk, io=io) as client:
            found = read(client, "t")
            found = {seq: text for seq, text in found.items() if text != "refused"}  # in doubt: it may be there
            assert found == acked
            more = write_many(client, "t", ["after"])
            assert min(more) > max(acked)
            assert client.ask("GET", "/v0/ready")[0] == 200
        fsck(disk.mountpoint)


@pytest.mark.parametrize("io", ENGINES)
def test_what_is_served_after_a_sync_that_failed_once_survives_a_power_cut(
    program: Path, tmp_path: Path, io: str
) -> None:
    """The kernel reports lost pages once, and continues to show them. Records of class `disk` whose background sync
    failed are in them: a restart may serve them only once they are on the disk."""
    for attempt in range(20):
        (tmp_path / str(attempt)).mkdir()
        if after_failed_sync(program, tmp_path / str(attempt), io):
            return
    raise AssertionError("the journal met the fault each time")


def after_failed_sync(program: Path, directory: Path, io: str) -> bool:
    """Whether what a restart serves was compared: a file system that is read-only since the fault has no restart."""
    with LoggedDisk(program, directory, megabytes=32, options="commit=600") as disk:
        with serving(disk, io=io, sync_every_ms=60_000) as client:
            for name, durability in (("kept", "fsync"), ("loose", "disk")):
                assert client.ask("PUT", f"/v0/topics/{name}", {"durability": durability})[0] == 201
            acked = write_many(client, "kept", ["a", "b"])
            loose = write_many(client, "loose", [f"loose {number}" for number in range(20)])
            disk.control("eio 0 1000000")
            status, answer = write(client, "kept", "refused")  # its sync covers the loose ones, and fails
            assert status == 500, answer
            disk.control("eio 0 0")
            assert write(client, "loose", "refused")[0] == 500
            if not wait_for_note(disk):
                return False
        with serving(disk, io=io, sync_every_ms=60_000) as client:
            served = {name: read(client, name) for name in ("kept", "loose")}
            status, state = client.ask("GET", "/v0/topics/loose")
            cut = disk.position()
    assert {seq: text for seq, text in served["kept"].items() if text != "refused"} == acked
    assert served["loose"].items() <= loose.items()
    assert state["head_seq"] >= max(loose), "a seq that was acknowledged may be given out again"
    for seed in range(CUTS):
        for found in after_cut(disk, directory, cut, seed):
            for name, records in served.items():
                assert found[name] == records, f"{name}, seed {seed}"
    return True


@pytest.mark.parametrize("io", ENGINES)
def test_a_flush_that_lies_costs_no_more_than_what_it_was_about(program: Path, tmp_path: Path, io: str) -> None:
    """Records written before the false flush are there, what is there was written, and what is missing is the end."""
    with LoggedDisk(program, tmp_path, megabytes=32, options="commit=600") as disk, serving(disk, io=io) as client:
        assert client.ask("PUT", "/v0/topics/t", {"durability": "fsync"})[0] == 201
        honest = write_many(client, "t", [f"honest {number}" for number in range(10)])
        disk.control("lie")
        lied = write_many(client, "t", [f"lied {number}" for number in range(30)])
        cut = disk.position()
    texts = honest | lied
    for seed in range(CUTS):
        for found in after_cut(disk, tmp_path, cut, seed, may_be_damaged=True):
            records = found["t"]
            assert records.items() >= honest.items()
            assert records == {seq: texts[seq] for seq in range(1, len(records) + 1)}


def after_cut(
    disk: LoggedDisk, directory: Path, cut: int, seed: int, *, may_be_damaged: bool = False
) -> Iterator[dict[str, dict[int, str]]]:
    """The records of every topic in the directory that a power cut leaves; nothing when it says that it is damaged."""
    ((_cut, image),) = images(read_log(disk.log), [cut], disk.megabytes << 20, seed)
    path = directory / "image"
    path.write_bytes(image)
    with Mounted(path, directory / "cut") as mounted:
        after_power_cut(mounted / "data")
        try:
            with topics.open(str(mounted / "data"), **_SETTINGS) as log:
                found = {}
                for state in log.topics():
                    page = log.page(state.name, 0, limit=1000)
                    found[state.name] = {record.seq: record.data for record in page.records}
                    assert log.append(state.name, ["goes on"]).first_seq > max(found[state.name], default=0)
                yield found
        except TopicsError as error:
            assert may_be_damaged and "damaged" in str(error), error  # noqa: PT017, PT018 - found is as good as right
