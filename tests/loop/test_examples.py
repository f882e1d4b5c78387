"""The examples of examples/loop work as their first lines say."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from examples.loop import file_copy
from tests.sim import SimRing
from topics.loop import Loop

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_echo_server_answers_and_ends_on_a_signal() -> None:
    process = subprocess.Popen([sys.executable, "-m", "examples.loop.tcp_echo"], cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None
    port = int(process.stdout.readline().split()[0])
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(b"hello")
        assert client.recv(5) == b"hello"
        client.shutdown(socket.SHUT_WR)
        assert client.recv(5) == b""
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    process.stdout.close()


def test_a_file_is_copied(tmp_path: Path, capsys: object) -> None:
    data = os.urandom(3_000_001)
    (tmp_path / "source").write_bytes(data)
    file_copy.main(str(tmp_path / "source"), str(tmp_path / "target"))
    assert (tmp_path / "target").read_bytes() == data
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "target"]


def test_a_copy_survives_a_power_cut_in_the_simulator() -> None:
    ring = SimRing(7, shuffle=True)
    loop = Loop(ring, ring.clock)
    ring.make_directory("/data")
    ring.disk.sync_everything()

    async def write() -> None:
        fd = await loop.files.open("/data/source", os.O_RDWR | os.O_CREAT)
        await loop.files.write_all(fd, b"payload" * 1000, 0)
        await loop.files.close(fd)
        await loop.files.sync_directory("/data")

    loop.run_task(write())
    loop.run_task(file_copy.copy(loop, "/data/source", "/data/target"))
    disk = ring.power_cut()
    after = SimRing(8, disk=disk)
    again = Loop(after, after.clock)

    async def read() -> bytes:
        return await again.files.read(await again.files.open("/data/target", os.O_RDONLY), 10_000, 0)

    assert again.run_task(read()) == b"payload" * 1000
