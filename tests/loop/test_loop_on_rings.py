"""The loop over each of the three rings: the same few lines of traffic and files end the same way."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.sim import SimRing
from topics.clock import SystemClock
from topics.loop import Connection, Loop
from topics.loop.portable import PortableRing
from topics.uring import UringRing
from topics.uring.probe import probe


def uring() -> Loop:
    support = probe()
    if not support.ok:
        pytest.skip(f"io_uring: {support.reason}")
    return Loop(UringRing(64, 256, 16, 512), SystemClock())


def portable() -> Loop:
    return Loop(PortableRing(16, 512), SystemClock())


def sim() -> Loop:
    ring = SimRing(receive_buffers=16, receive_buffer_bytes=512)
    return Loop(ring, ring.clock)


@pytest.fixture(params=[uring, portable, sim], ids=lambda make: make.__name__)
def loop(request: pytest.FixtureRequest) -> Iterator[Loop]:
    make: Callable[[], Loop] = request.param
    loop = make()
    yield loop
    loop.close()


@pytest.fixture
def directory(loop: Loop, tmp_path: Path) -> str:
    if loop.ring.name == "sim":
        loop.ring.make_directory("/data")
        return "/data"
    return str(tmp_path)


class Peer:
    """Keeps what it gets; a server echoes it."""

    def __init__(self, *, echo: bool) -> None:
        self.echo = echo
        self.got = bytearray()
        self.ended = False
        self.lost_error: int | None = None

    def connected(self, conn: Connection) -> None:
        pass

    def receive(self, batch: list[tuple[Connection, memoryview]]) -> None:
        for conn, view in batch:
            self.got += view
            if self.echo:
                conn.write(bytes(view))

    def end_of_stream(self, conn: Connection) -> None:
        self.ended = True
        conn.close()

    def drained(self, conn: Connection) -> None:
        pass

    def lost(self, conn: Connection, error: int) -> None:
        self.lost_error = error


def test_a_large_message_comes_back_from_an_echo_server(loop: Loop) -> None:
    text = os.urandom(100_000)
    server, client = Peer(echo=True), Peer(echo=False)
    listener = loop.listen("127.0.0.1", 0, server)

    async def talk() -> None:
        conn = await loop.connect("127.0.0.1", listener.address[1], client)
        conn.write(text)

    loop.run_task(talk())
    loop.run_until(lambda: len(client.got) == len(text))
    assert client.got == text
    listener.close()
    loop.run_until(lambda: server.lost_error is not None and client.lost_error is not None)
    assert client.ended


def test_a_refused_connection_names_its_address(loop: Loop) -> None:
    listener = loop.listen("127.0.0.1", 0, Peer(echo=False))
    listener.close()
    loop.run_pass(0)

    async def talk() -> None:
        await loop.connect("127.0.0.1", listener.address[1], Peer(echo=False))

    for _ in range(100):
        loop.run_pass(100_000)
    with pytest.raises(ConnectionRefusedError, match="127.0.0.1"):
        loop.run_task(talk())


def test_a_file_is_made_committed_renamed_and_read(loop: Loop, directory: str) -> None:
    commits: list[tuple[int, int]] = []

    async def work() -> bytes:
        files = loop.files
        fd = await files.open(f"{directory}/new", os.O_RDWR | os.O_CREAT | os.O_EXCL)
        await files.allocate_zeroed(fd, 8192)
        files.commit_nowait(fd, b"c" * 4096, 4096, lambda write, sync: commits.append((write, sync)))
        await files.rename(f"{directory}/new", f"{directory}/log")
        await files.sync_directory(directory)
        while not commits:
            await loop.sleep(100_000)
        data = await files.read(fd, 10_000, 0)
        await files.close(fd)
        return data

    assert loop.run_task(work()) == bytes(4096) + b"c" * 4096
    assert commits == [(4096, 0)]
    assert loop.files.list_directory(directory) == ["log"]


def test_another_thread_ends_the_wait(loop: Loop) -> None:
    called: list[int] = []
    loop.call_soon_threadsafe(lambda: called.append(1))
    loop.run_until(lambda: bool(called))
    assert called == [1]
