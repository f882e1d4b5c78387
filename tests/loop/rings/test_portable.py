"""PortableRing where it differs inside from a kernel ring: edges, fairness, its thread, its end."""

import errno
import gc
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from topics.loop.portable import portable_sockets
from topics.loop.portable.portable_ring import PortableRing
from topics.loop.ring import F_BUFFER, F_MORE


@pytest.fixture
def ring() -> Iterator[PortableRing]:
    ring = PortableRing(receive_buffers=8, receive_buffer_bytes=64)
    yield ring
    ring.close()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The ring's end and the other one."""
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


def until(ring: PortableRing, count: int) -> list[tuple[int, int, int]]:
    """The next `count` completions at least."""
    rows: list[tuple[int, int, int]] = []
    while len(rows) < count:
        ring.submit_and_wait(5_000_000_000)
        came = list(zip(*ring.reap(), strict=True))
        assert came, f"nothing more came after {rows}"
        rows += came
    return rows


def test_operations_on_files_run_in_the_order_of_queueing(ring: PortableRing, tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    ring.queue_open(1, path, os.O_RDWR | os.O_CREAT, 0o600)
    ((_, fd, _),) = until(ring, 1)
    buffer = bytearray(3)
    ring.queue_write(1, fd, b"one", 0)
    ring.queue_write(2, fd, b"two", 0)
    ring.queue_read(3, fd, buffer, 0)
    ring.queue_rename(4, path, path + "-renamed")
    ring.queue_unlink(5, path + "-renamed")
    ring.queue_close(6, fd)
    assert until(ring, 6) == [(1, 3, 0), (2, 3, 0), (3, 3, 0), (4, 0, 0), (5, 0, 0), (6, 0, 0)]
    assert buffer == b"two"
    assert os.listdir(tmp_path) == []


def test_a_path_with_a_nul_is_an_error_and_does_not_end_the_thread(ring: PortableRing, tmp_path: Path) -> None:
    ring.queue_unlink(1, "a\0b")
    ring.queue_unlink(2, str(tmp_path / "nothing"))
    assert until(ring, 2) == [(1, -errno.EINVAL, 0), (2, -errno.ENOENT, 0)]


def test_what_is_no_socket_cannot_be_received_from(ring: PortableRing) -> None:
    with open("/dev/null", "rb") as file:
        ring.queue_recv(1, file.fileno())
        ring.queue_recv(2, 12_345)
        assert until(ring, 2) == [(1, -errno.ENOTSOCK, 0), (2, -errno.EBADF, 0)]
        assert os.fstat(file.fileno()), "and it stays open"


def test_a_ring_without_file_operations_has_no_thread(ring: PortableRing) -> None:
    before = set(threading.enumerate())  # that of another test's ring may take a moment to end
    ring.queue_cancel(1, 99)
    until(ring, 1)
    assert "topics-files" not in {thread.name for thread in set(threading.enumerate()) - before}


def test_a_file_operation_under_way_cannot_be_cancelled(ring: PortableRing, tmp_path: Path) -> None:
    fifo = str(tmp_path / "fifo")
    os.mkfifo(fifo)
    ring.queue_open(1, fifo, os.O_RDONLY, 0)
    ring.queue_cancel(2, 1)
    assert until(ring, 1) == [(2, -errno.EALREADY, 0)]
    os.close(os.open(fifo, os.O_WRONLY))
    ((user_data, fd, _),) = until(ring, 1)
    assert user_data == 1
    os.close(fd)


def test_the_end_of_a_stream_behind_its_last_bytes_is_seen(
    ring: PortableRing, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    theirs.send(b"last words")
    theirs.close()
    ring.queue_recv(1, ours.fileno())
    (_, res, flags), last = until(ring, 2)
    assert bytes(ring.received(flags, res)) == b"last words"
    assert flags & (F_BUFFER | F_MORE) == F_BUFFER | F_MORE
    assert last == (1, 0, 0)


def test_a_fast_sender_does_not_starve_another(
    ring: PortableRing, pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portable_sockets, "TURNS_MAX", 2)
    ours, theirs = pair
    other_ours, other_theirs = socket.socketpair()
    theirs.send(bytes(64 * 20))
    other_theirs.send(b"me too")
    ring.queue_recv(1, ours.fileno())
    ring.queue_recv(2, other_ours.fileno())
    seen: list[int] = []
    while 2 not in seen:
        rows = until(ring, 1)
        seen += [row[0] for row in rows]
        ring.recycle([flags for _, _, flags in rows])
    assert seen.count(1) <= 4
    got = 64 * seen.count(1)
    while got < 64 * 20:
        rows = until(ring, 1)
        got += sum(res for user_data, res, _ in rows if user_data == 1)
        ring.recycle([flags for _, _, flags in rows])
    assert got == 64 * 20, "what one pass left comes in the next although its edge is spent"
    other_ours.close()
    other_theirs.close()


def test_without_buffers_a_quiet_stream_stays_armed_and_a_talking_one_ends(pair: tuple[socket.socket, ...]) -> None:
    ring = PortableRing(receive_buffers=1, receive_buffer_bytes=64)
    ours, theirs = pair
    quiet_ours, quiet_theirs = socket.socketpair()
    ring.queue_recv(2, quiet_ours.fileno())
    ring.queue_recv(1, ours.fileno())
    theirs.send(bytes(100))
    rows = until(ring, 2)
    assert [(user_data, res) for user_data, res, _ in rows] == [(1, 64), (1, -errno.ENOBUFS)]
    ring.recycle([rows[0][2]])
    quiet_theirs.send(b"now")
    ((user_data, res, flags),) = until(ring, 1)
    assert (user_data, res) == (2, 3)
    ring.recycle([flags])
    ring.queue_recv(1, ours.fileno())
    assert until(ring, 1)[0][:2] == (1, 36)
    ring.close()
    quiet_ours.close()
    quiet_theirs.close()


def test_a_send_that_would_block_waits_and_can_be_cancelled(
    ring: PortableRing, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    data = bytes(1 << 20)
    ring.queue_sends([(1, ours.fileno(), data)])
    ((_, sent, _),) = until(ring, 1)
    assert 0 < sent < len(data)
    ring.queue_sends([(2, ours.fileno(), data)])
    ring.submit_and_wait(0)
    assert ring.reap() == ([], [], [])
    ring.queue_cancel(3, 2)
    assert sorted(until(ring, 2)) == [(2, -errno.ECANCELED, 0), (3, 0, 0)]
    ring.queue_sends([(4, ours.fileno(), b"end")])
    ring.submit_and_wait(0)
    while sent:
        sent -= len(theirs.recv(1 << 20))
    assert until(ring, 1) == [(4, 3, 0)]
    assert theirs.recv(10) == b"end"


def test_a_number_closed_elsewhere_and_used_again_is_watched_again(ring: PortableRing) -> None:
    for _ in range(2):
        ours, theirs = socket.socketpair()
        ring.queue_recv(1, ours.fileno())
        ring.submit_and_wait(0)
        theirs.send(b"x")
        ((_, res, flags),) = until(ring, 1)
        assert res == 1
        ring.recycle([flags])
        ring.queue_cancel(2, 1)
        until(ring, 2)
        ours.close()
        theirs.close()


def test_a_thread_wakes_a_waiting_ring(ring: PortableRing) -> None:
    waker = threading.Thread(target=ring.wake)
    waker.start()
    ring.submit_and_wait(None)
    waker.join()
    assert ring.reap() == ([], [], [])


def test_any_thread_may_drive_it(ring: PortableRing, tmp_path: Path) -> None:
    results: list[tuple[int, int, int]] = []
    for number in range(2):
        ring.queue_unlink(1 + number, str(tmp_path / "nothing"))
        driver = threading.Thread(target=lambda: results.extend(until(ring, 1)))
        driver.start()
        driver.join()
    assert [user_data for user_data, _, _ in results] == [1, 2]


def test_a_signal_ends_a_wait_through_the_wake_descriptor(ring: PortableRing) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: seen.append(number))
    wakeup = signal.set_wakeup_fd(ring.wake_fd)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        ring.submit_and_wait(None)
    finally:
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGALRM, before)
    assert seen == [signal.SIGALRM]


def test_a_child_process_is_refused() -> None:
    ring = PortableRing(8, 64)
    child = os.fork()
    if child == 0:
        try:
            ring.submit_and_wait(0)
        except RuntimeError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    ring.submit_and_wait(0)
    ring.close()


def test_closing_leaves_the_descriptors_handed_out_to_their_users(pair: tuple[socket.socket, socket.socket]) -> None:
    ring = PortableRing(8, 64)
    ours, theirs = pair
    ring.queue_recv(1, ours.fileno())
    ring.submit_and_wait(0)
    ring.close()
    del ring
    theirs.send(b"still open")
    assert ours.recv(20) == b"still open"


def test_nothing_is_left_open_after_closing() -> None:
    gc.collect()  # what an earlier test has left may have a descriptor
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        ring = PortableRing(8, 64)
        ring.queue_unlink(1, "/nowhere/at/all")
        until(ring, 1)
        ring.close()
    assert len(os.listdir("/proc/self/fd")) == before
