"""The parts of UringRing beyond the Ring Protocol: threads, forks, signals, pinned memory, tiny queues, misuse."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from topics.loop.ring import F_BUFFER, F_MORE
from topics.uring import uring_ring as ring_module
from topics.uring._ring import lib
from topics.uring.misuse import RingError
from topics.uring.probe import probe
from topics.uring.uring_ring import UringRing

SUPPORT = probe()
pytestmark = [pytest.mark.real, pytest.mark.skipif(not SUPPORT.ok, reason=f"io_uring: {SUPPORT.reason}")]
SECOND_NS = 1_000_000_000
AGAIN = (0.005, 0.005)
"""Seconds to an alarm, and to each one after it: the first may come before the wait."""


@pytest.fixture
def ring() -> Iterator[UringRing]:
    with closing(UringRing(64, 256, 8, 256)) as opened:
        yield opened


@pytest.fixture
def shared() -> Iterator[UringRing]:
    with closing(UringRing(64, 256, 8, 256, shared=True)) as opened:
        yield opened


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair()
    with near, far:
        yield near, far


def collect(ring: UringRing, count: int) -> list[tuple[int, int, int]]:
    rows: list[tuple[int, int, int]] = []
    for _ in range(1000):
        if len(rows) >= count:
            return rows
        ring.submit_and_wait(SECOND_NS // 100)
        rows += zip(*ring.reap(), strict=True)
    pytest.fail(f"{len(rows)} of {count} completions came")


def test_a_wait_polls_only_while_waits_prove_to_be_short(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    with closing(UringRing(64, 256, 8, 256, spin_us="1000000")) as ring:
        spins = lambda: lib.tp_spins(ring.setup.ring)  # noqa: E731
        for number in range(1, 100):
            ring.queue_fsync(number, fd, data_only=True)  # by a worker: never done when the submit returns, or rarely
            assert collect(ring, 1) == [(number, 0, 0)]
            if spins() > 1:
                break
        assert spins() > 1, "after a short wait the next one polls"
    with closing(UringRing(64, 256, 8, 256, spin_us="50")) as ring:
        for _ in range(100):
            ring.submit_and_wait(1_000_000)
        assert spins() == 0, "nothing came soon: waits sleep"
        lib.tp_nop(ring.setup.ring, 1)
        ring.submit_and_wait(1_000_000)
        assert ring.reap()[0] == [1]
        assert spins() == 0, "what ends with its submit was no wait"
    os.close(fd)


def test_polls_in_vain_end_after_a_few_waits(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    with closing(UringRing(64, 256, 8, 256, spin_us="20000")) as ring:
        before = 0
        for number in range(1, 100):
            ring.queue_fsync(number, fd, data_only=True)
            assert collect(ring, 1) == [(number, 0, 0)]
            before = lib.tp_spins(ring.setup.ring)
            if before > 1:
                break
        for _ in range(20):
            ring.submit_and_wait(25_000_000)
        assert lib.tp_spins(ring.setup.ring) - before <= 4
    os.close(fd)


@pytest.mark.parametrize(("running", "polls"), [(1, True), (2, True), (3, False)])
def test_with_a_load_file_a_wait_polls_only_for_single_completions_while_a_core_is_idle(
    tmp_path: Path, running: int, polls: bool
) -> None:
    (tmp_path / "load").write_text(f"0.52 1.01 0.88 {running}/345 6789\n")
    load, file = os.open(tmp_path / "load", os.O_RDONLY), os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    with closing(UringRing(64, 256, 8, 256)) as ring:
        lib.tp_spin(ring.setup.ring, 1_000_000_000, load, 2)
        spins = lambda: lib.tp_spins(ring.setup.ring)  # noqa: E731
        number = 0
        for _ in range(50):
            for _ in range(2):
                number += 1
                assert lib.tp_nop(ring.setup.ring, number) == 0
            ring.submit_and_wait(None)
            assert len(ring.reap()[0]) == 2
        for _ in range(7):
            number += 1
            ring.queue_fsync(number, file, data_only=True)
            assert collect(ring, 1) == [(number, 0, 0)]
        assert spins() == 0, "too few single completions in a row"
        for _ in range(50):
            number += 1
            ring.queue_fsync(number, file, data_only=True)
            assert collect(ring, 1) == [(number, 0, 0)]
        assert (spins() > 0) is polls
    os.close(load)
    os.close(file)


def nop(ring: UringRing, user_data: int) -> None:
    assert lib.tp_nop(ring.setup.ring, user_data) == 0


def run_in_thread(work: object) -> list[object]:
    """Runs it in another thread; what it returned or raised."""
    results: list[object] = []

    def body() -> None:
        try:
            results.append(work())  # type: ignore[operator]
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join(10)
    return results


class TestThreads:
    def test_a_ring_of_one_thread_refuses_another_and_says_why(self, ring: UringRing) -> None:
        (error,) = run_in_thread(lambda: ring.submit_and_wait(0))
        assert isinstance(error, RingError)
        assert error.errno == errno.EEXIST
        assert "thread that opened it" in str(error)

    def test_a_shared_ring_is_driven_by_any_thread_in_turn(self, shared: UringRing) -> None:
        def drive() -> list[tuple[int, int, int]]:
            nop(shared, 5)
            return collect(shared, 1)

        assert drive() == [(5, 0, 0)]
        assert run_in_thread(drive) == [[(5, 0, 0)]]

    def test_what_one_thread_submitted_another_reaps(
        self, shared: UringRing, pair: tuple[socket.socket, socket.socket]
    ) -> None:
        shared.queue_recv(7, pair[0].fileno())
        shared.submit_and_wait(0)
        pair[1].send(b"hello")
        ((rows),) = run_in_thread(lambda: collect(shared, 1))
        assert rows[0][:2] == (7, 5)  # type: ignore[index]

    def test_a_wake_reaches_a_ring_whose_last_driver_has_ended(self, shared: UringRing) -> None:
        """The receive of the wake-up was armed by that driver, and ends with it."""
        for _ in range(3):
            run_in_thread(lambda: shared.submit_and_wait(0))
            shared.wake()
            shared.submit_and_wait(None)
            assert shared.reap() == ([], [], [])

    def test_a_receive_of_a_driver_that_has_ended_may_be_cancelled_but_loses_no_bytes(
        self, shared: UringRing, pair: tuple[socket.socket, socket.socket]
    ) -> None:
        def drive() -> None:
            shared.queue_recv(7, pair[0].fileno())
            shared.submit_and_wait(0)

        run_in_thread(drive)
        pair[1].send(b"hello")
        (_, res, flags), *_ = collect(shared, 1)  # the end of the driver may come after the bytes
        if res == -errno.ECANCELED:
            assert not flags & F_MORE
            shared.queue_recv(7, pair[0].fileno())
            ((_, res, flags),) = collect(shared, 1)
        assert bytes(shared.received(flags, res)) == b"hello"

    @pytest.mark.parametrize("kind", ["ring", "shared"])
    def test_a_wake_from_another_thread_ends_a_wait_without_a_timeout(
        self, kind: str, request: pytest.FixtureRequest
    ) -> None:
        ring: UringRing = request.getfixturevalue(kind)
        ring.submit_and_wait(0)
        waker = threading.Timer(0.005, ring.wake)
        waker.start()
        ring.submit_and_wait(None)
        waker.join()
        assert ring.reap() == ([], [], [])

    def test_a_hundred_racing_wakes_lose_no_wait(self, ring: UringRing) -> None:
        waker = threading.Thread(target=lambda: [ring.wake() for _ in range(100)])
        ring.wake()
        waker.start()
        ring.submit_and_wait(None)
        ring.reap()
        waker.join()
        ring.wake()
        ring.submit_and_wait(None)

    def test_a_wait_lets_other_threads_run(self, ring: UringRing) -> None:
        steps = []
        thread = threading.Thread(target=lambda: [steps.append(n) for n in range(1000)] and ring.wake())
        thread.start()
        ring.submit_and_wait(None)
        thread.join()
        assert len(steps) == 1000


class TestSignals:
    def test_a_signal_ends_a_wait_so_that_its_handler_runs(self, ring: UringRing) -> None:
        seen: list[int] = []
        before = signal.signal(signal.SIGALRM, lambda number, frame: seen.append(number))
        try:
            signal.setitimer(signal.ITIMER_REAL, *AGAIN)
            while not seen:
                ring.submit_and_wait(None)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert set(seen) == {signal.SIGALRM}

    def test_a_signal_ends_a_wait_that_also_submitted(self, ring: UringRing, pair: tuple[socket.socket, ...]) -> None:
        seen: list[int] = []
        before = signal.signal(signal.SIGALRM, lambda number, frame: seen.append(number))
        try:
            ring.queue_recv(1, pair[0].fileno())
            signal.setitimer(signal.ITIMER_REAL, *AGAIN)
            ring.submit_and_wait(None)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert set(seen) == {signal.SIGALRM}

    def test_a_signal_before_the_wait_is_seen_through_the_wake_descriptor(self, ring: UringRing) -> None:
        before = signal.signal(signal.SIGALRM, lambda number, frame: None)
        fd = signal.set_wakeup_fd(ring.wake_fd, warn_on_full_buffer=False)
        try:
            signal.raise_signal(signal.SIGALRM)
            ring.submit_and_wait(None)
        finally:
            signal.set_wakeup_fd(fd)
            signal.signal(signal.SIGALRM, before)
        assert ring.reap() == ([], [], [])


class TestForks:
    def test_a_forked_child_is_refused_and_its_parent_goes_on(self, ring: UringRing) -> None:
        nop(ring, 1)
        pid = os.fork()
        if pid == 0:
            try:
                ring.queue_close(2, 99)
            except RingError as error:
                os._exit(0 if error.errno == errno.ECHILD and "fork" in str(error) else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert collect(ring, 1) == [(1, 0, 0)]

    def test_a_forked_child_may_close_its_copy(self, ring: UringRing) -> None:
        pid = os.fork()
        if pid == 0:
            ring.close()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        nop(ring, 1)
        assert collect(ring, 1) == [(1, 0, 0)]


class TestPinnedMemory:
    def test_a_buffer_cannot_move_until_its_operation_has_completed(self, ring: UringRing, tmp_path: Path) -> None:
        fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
        buffer = bytearray(b"x" * 4096)
        ring.queue_write(1, fd, buffer, 0)
        with pytest.raises(BufferError):
            buffer.extend(b"moved")
        collect(ring, 1)
        gc.collect()
        buffer.extend(b"moved")
        os.close(fd)

    @pytest.mark.parametrize("size", [100, 100_000])
    def test_a_sent_buffer_is_let_go_with_its_completion(
        self, ring: UringRing, pair: tuple[socket.socket, socket.socket], size: int
    ) -> None:
        buffer = bytearray(size)
        ring.queue_sends([(1, pair[0].fileno(), buffer)])
        collect(ring, 1)
        buffer.extend(b"moved")
        assert ring._pins == {}

    def test_a_reader_that_takes_nothing_keeps_a_part_of_its_pass_and_that_is_counted(self, ring: UringRing) -> None:
        pairs = [socket.socketpair() for _ in range(101)]
        try:
            stuck = pairs[50][0]
            stuck.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while stuck.send(bytes(4096)):
                    pass
            sends = [(1 + n, near.fileno(), b"%4d" % n * 500) for n, (near, _far) in enumerate(pairs)]
            ring.queue_sends(sends)
            assert set(ring.pinned()) == {user_data for user_data, _fd, _data in sends}
            assert sum(ring.pinned().values()) > 200_000
            collect(ring, 100)
            assert ring.pinned() == {51: 32_000}
            for number, (_near, far) in enumerate(pairs):
                if number != 50:
                    assert far.recv(4096) == b"%4d" % number * 500
            while not ring.reap()[0]:
                pairs[50][1].recv(1 << 20)
                ring.submit_and_wait(0)
            assert ring.pinned() == {}
        finally:
            for near, far in pairs:
                near.close()
                far.close()

    def test_one_user_data_twice_in_flight_is_our_own_mistake(self, ring: UringRing) -> None:
        ring.queue_read(1, 0, bytearray(8), 0)
        with pytest.raises(AssertionError):
            ring.queue_read(1, 0, bytearray(8), 0)
        with pytest.raises(AssertionError):
            ring.queue_sends([(1, 0, b"x")])

    def test_close_cancels_or_waits_and_lets_every_buffer_go(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A commit the workers have not begun is cancelled, one under way is waited for: never half of one."""
        ring = UringRing(64, 256, 8, 256)
        fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
        buffer = bytearray(os.urandom(1 << 20))
        ring.queue_commit(1, 2, fd, buffer, 0)
        ring.submit_and_wait(0)
        monkeypatch.setattr(ring_module, "CLOSE_PATIENCE_NS", 60 * SECOND_NS)  # for a busy disk
        before = len(ring_module._abandoned)  # by earlier tests, on such a disk
        ring.close()
        assert len(ring_module._abandoned) == before
        assert os.fstat(fd).st_size in (0, len(buffer))
        gc.collect()
        buffer.extend(b"moved")
        os.close(fd)

    @pytest.mark.parametrize("shared", [False, True])
    def test_a_dropped_ring_ends_its_operations_or_keeps_their_memory(self, shared: bool) -> None:
        near, far = socket.socketpair()
        with near, far:
            ring = UringRing(64, 256, 8, 256, shared=shared)
            ring.queue_recv(1, near.fileno())
            ring.submit_and_wait(0)
            with pytest.warns(ResourceWarning, match="without close"):
                del ring
            far.send(b"x")
            assert near.recv(1) == b"x"

    def test_a_ring_dropped_by_another_thread_keeps_what_the_kernel_may_write_to(self) -> None:
        held = [UringRing(64, 256, 8, 256)]
        held[0].queue_recv(1, 0)
        before = len(ring_module._abandoned)
        with pytest.warns(ResourceWarning):
            run_in_thread(held.clear)
        assert len(ring_module._abandoned) == before + 1
        ring_module._abandoned.pop()

    def test_operations_in_flight_are_counted_to_the_last(
        self, ring: UringRing, pair: tuple[socket.socket, socket.socket]
    ) -> None:
        ring.queue_recv(1, pair[0].fileno())
        pair[1].send(b"x")
        rows = collect(ring, 1)
        assert ring.in_flight() == 1
        assert lib.tp_lent(ring.setup.ring) == 1
        ring.recycle([rows[0][2]])
        pair[1].close()
        collect(ring, 1)
        assert ring.in_flight() == 0
        assert lib.tp_lent(ring.setup.ring) == 0


class TestTinyQueues:
    def test_an_overflowing_completion_queue_loses_nothing(self) -> None:
        with closing(UringRing(4, 8, 2, 64)) as ring:
            for number in range(1, 1001):
                nop(ring, number)
            assert [row[0] for row in collect(ring, 1000)] == list(range(1, 1001))

    def test_receives_that_ended_for_a_full_queue_go_on_after_being_queued_again(self) -> None:
        """A multishot ends without an error when its completion finds no room: only F_MORE shows it."""
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with closing(UringRing(4, 8, 64, 64)) as ring, near, far:
            ring.queue_recv(1, near.fileno())
            ring.submit_and_wait(0)
            for number in range(40):
                far.send(b"%d" % number)
            got: list[bytes] = []
            while len(got) < 40:
                for _, res, flags in collect(ring, 1):
                    if flags & F_BUFFER:
                        got.append(bytes(ring.received(flags, res)))
                        ring.recycle([flags])
                    if not flags & F_MORE:
                        ring.queue_recv(1, near.fileno())
            assert got == [b"%d" % number for number in range(40)]

    def test_sends_beyond_the_submission_queue_go_out_in_one_call(self) -> None:
        pairs = [socket.socketpair() for _ in range(50)]
        with closing(UringRing(4, 8, 2, 64)) as ring:
            ring.queue_sends(
                [(n + 1, near.fileno(), b"%d" % n * (1 + 500 * (n % 7))) for n, (near, _) in enumerate(pairs)]
            )
            results = Counter({user_data: res for user_data, res, _ in collect(ring, 50)})
        for n, (near, far) in enumerate(pairs):
            assert len(far.recv(10_000)) == results[n + 1] > 0
            near.close()
            far.close()


class TestMisuse:
    def test_a_buffer_is_recycled_once(self, ring: UringRing, pair: tuple[socket.socket, socket.socket]) -> None:
        ring.queue_recv(1, pair[0].fileno())
        pair[1].send(b"x")
        ((_, _, flags),) = collect(ring, 1)
        for wrong in ([flags, flags], [flags, flags ^ (1 << 16)], [F_BUFFER | 1000 << 16]):
            with pytest.raises(RingError):
                ring.recycle(wrong)
        assert lib.tp_lent(ring.setup.ring) == 1
        ring.recycle([flags])
        with pytest.raises(RingError):
            ring.recycle([flags])

    def test_user_data_zero_is_refused(self, ring: UringRing) -> None:
        for queue in (
            lambda: ring.queue_recv(0, 0),
            lambda: ring.queue_cancel(1, 0),
            lambda: ring.queue_commit(1, 0, 0, b"x", 0),
        ):
            with pytest.raises(RingError):
                queue()

    def test_a_closed_ring_says_so(self) -> None:
        ring = UringRing(64, 256, 8, 256)
        ring.close()
        for use in (lambda: ring.queue_recv(1, 0), lambda: ring.submit_and_wait(0), ring.reap):
            with pytest.raises(RingError, match="closed"):
                use()

    def test_an_odd_number_of_receive_buffers_is_refused(self) -> None:
        with pytest.raises(ValueError, match="power of two"):
            UringRing(64, 256, 100, 256)

    def test_lost_completions_end_the_process(self) -> None:
        code = "import errno; from topics.uring.misuse import fail; fail(-errno.EBADR)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
        assert done.returncode == -signal.SIGABRT
        assert b"lost io_uring completions" in done.stderr


def keep_alive_of(sock: socket.socket) -> tuple[int, int, int, int]:
    names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    idle, interval, count = (sock.getsockopt(socket.IPPROTO_TCP, name) for name in names)
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE), idle, interval, count


class TestFiles:
    def test_no_descriptor_is_inherited_and_no_link_followed(self, ring: UringRing, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(tmp_path / "file")
        ring.queue_open(1, str(tmp_path / "link"), os.O_RDWR | os.O_CREAT, 0o600)
        assert collect(ring, 1)[0][1] == -errno.ELOOP
        ring.queue_open(1, str(tmp_path / "file"), os.O_RDWR | os.O_CREAT, 0o600)
        fd = collect(ring, 1)[0][1]
        assert not os.get_inheritable(fd)
        assert os.fstat(fd).st_mode & 0o777 == 0o600
        os.close(fd)

    def test_accepted_sockets_do_not_delay_and_do_not_block(self, ring: UringRing) -> None:
        listener, address = ring.listen("127.0.0.1", 0, 8)
        ring.queue_accept(1, listener)
        with socket.create_connection(address):
            fd = collect(ring, 1)[0][1]
            with socket.socket(fileno=fd) as accepted:
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                assert not os.get_blocking(fd)
                assert not os.get_inheritable(fd)
                assert not accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        os.close(listener)

    def test_accepted_sockets_ask_after_a_silent_peer(self, ring: UringRing) -> None:
        listener, address = ring.listen("127.0.0.1", 0, 8, 30_001)
        ring.queue_accept(1, listener)
        with socket.create_connection(address):
            fd = collect(ring, 1)[0][1]
            with socket.socket(fileno=fd) as accepted:
                assert keep_alive_of(accepted) == (1, 31, 8, 4)
        os.close(listener)

    def test_a_name_that_resolves_to_nothing_cannot_be_listened_on(self, ring: UringRing) -> None:
        with pytest.raises(OSError, match="resolve"):
            ring.listen("no.such.host.invalid", 0, 8)

    def test_a_worker_pool_is_bounded(self, ring: UringRing, tmp_path: Path) -> None:
        fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
        for number in range(60):
            ring.queue_fsync(1 + number, fd, data_only=True)
        ring.submit_and_wait(0)
        names = []
        for task in os.listdir("/proc/self/task"):
            with contextlib.suppress(OSError):  # it has ended
                names.append(Path("/proc/self/task", task, "comm").read_text())
        collect(ring, 60)
        assert sum(name.startswith("iou-wrk") for name in names) <= 2 * ring_module.WORKERS
        os.close(fd)

    def test_a_ring_opens_and_closes_without_leaving_a_descriptor_and_waits_for_nothing(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ring_module, "CLOSE_PATIENCE_NS", 2_000 * SECOND_NS)  # one wait: 20 s
        gc.collect()  # what an earlier test has left may have a descriptor
        before = len(os.listdir("/proc/self/fd"))
        start = time.monotonic()
        for _ in range(5):
            UringRing(64, 256, 8, 256).close()
        assert len(os.listdir("/proc/self/fd")) == before
        assert time.monotonic() - start < 20


def test_a_send_that_has_to_wait_keeps_nothing_else_waiting(
    ring: UringRing, pair: tuple[socket.socket, socket.socket]
) -> None:
    pair[0].setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            pair[0].send(bytes(65536))
    ring.queue_recv(1, pair[0].fileno())
    ring.queue_sends([(2, pair[0].fileno(), b"full")])
    pair[1].sendall(b"x")
    ring.submit_and_wait(None)
    assert ring.reap()[0] == [1]
