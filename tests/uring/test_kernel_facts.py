"""Facts of the kernel that the design relies on. docs/internals/io_uring.md names the rule from each.

A kernel that stops doing one of these is no failure of ours, but the rule that follows from it should be looked at.
"""

from __future__ import annotations

import errno
import os
import resource
import select
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.loop.rings.kernel_world import limited, no_descriptors
from tests.uring import raw_ring
from tests.uring.raw_ring import LINK, RawRing, address_of, results

UNAVAILABLE = raw_ring.unavailable()
pytestmark = [pytest.mark.real, pytest.mark.skipif(bool(UNAVAILABLE), reason=UNAVAILABLE)]

KIB = 1024
WRITE, SYNC = 1, 2


@pytest.fixture
def ring() -> Iterator[RawRing]:
    opened = RawRing()
    yield opened
    opened.close()


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    opened = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield opened
    os.close(opened)


@pytest.fixture
def data() -> bytearray:
    return bytearray(b"x" * (64 * KIB))


def chain(ring: RawRing, fd: int, data: bytearray, length: int, *, offset: int = 0, flags: int = LINK) -> None:
    ring.prepare(WRITE, raw_ring.WRITE, fd, address=address_of(data), length=length, offset=offset, sqe_flags=flags)
    ring.prepare(SYNC, raw_ring.FSYNC, fd, op_flags=raw_ring.FSYNC_DATASYNC)


class TestChains:
    def test_a_soft_link_cancels_the_sync_after_a_short_write(self, ring: RawRing, fd: int, data: bytearray) -> None:
        with limited(resource.RLIMIT_FSIZE, 8 * KIB):
            chain(ring, fd, data, 16 * KIB)
            assert results(ring.complete(2)) == {WRITE: 8 * KIB, SYNC: -errno.ECANCELED}

    def test_a_hard_link_lets_the_sync_succeed_after_a_short_or_failed_write(
        self, ring: RawRing, fd: int, data: bytearray
    ) -> None:
        with limited(resource.RLIMIT_FSIZE, 8 * KIB):
            chain(ring, fd, data, 16 * KIB, flags=raw_ring.HARDLINK)
            assert results(ring.complete(2)) == {WRITE: 8 * KIB, SYNC: 0}
            chain(ring, fd, data, 16 * KIB, offset=8 * KIB, flags=raw_ring.HARDLINK)
            assert results(ring.complete(2)) == {WRITE: -errno.EFBIG, SYNC: 0}

    def test_a_skipped_completion_hides_the_sync_of_a_short_write(
        self, ring: RawRing, fd: int, data: bytearray
    ) -> None:
        """The only completion is a positive count: a wait for the sync hangs; taken for the sync, it acks a loss."""
        with limited(resource.RLIMIT_FSIZE, 8 * KIB):
            chain(ring, fd, data, 16 * KIB, flags=LINK | raw_ring.SKIP_SUCCESS)
            assert results(ring.complete(1)) == {WRITE: 8 * KIB}
            assert ring.complete(1, patience_s=0.1) == []

    def test_a_submit_between_the_two_cuts_the_chain(self, ring: RawRing, fd: int, data: bytearray) -> None:
        ring.prepare(WRITE, raw_ring.WRITE, -1, address=address_of(data), length=KIB, sqe_flags=LINK)
        ring.submit()
        ring.prepare(SYNC, raw_ring.FSYNC, fd, op_flags=raw_ring.FSYNC_DATASYNC)
        assert results(ring.complete(2)) == {WRITE: -errno.EBADF, SYNC: 0}

    def test_a_full_submission_queue_takes_no_more(self) -> None:
        ring = RawRing(8)
        assert [ring.prepare(n, raw_ring.NOP) for n in range(9)] == [True] * 8 + [False]
        assert len(ring.complete(8)) == 8
        ring.close()

    def test_a_failed_chain_does_not_stop_the_next_one_on_the_same_file(
        self, ring: RawRing, fd: int, data: bytearray
    ) -> None:
        """An acknowledged batch could have a hole in front of it: one chain in flight for each file."""
        ring.prepare(1, raw_ring.WRITE, fd, address=8, length=KIB, sqe_flags=LINK)
        ring.prepare(2, raw_ring.FSYNC, fd, op_flags=raw_ring.FSYNC_DATASYNC)
        ring.prepare(3, raw_ring.WRITE, fd, address=address_of(data), length=KIB, offset=KIB, sqe_flags=LINK)
        ring.prepare(4, raw_ring.FSYNC, fd, op_flags=raw_ring.FSYNC_DATASYNC)
        assert results(ring.complete(4)) == {1: -errno.EFAULT, 2: -errno.ECANCELED, 3: KIB, 4: 0}

    def test_two_chains_in_flight_finish_in_either_order(self, ring: RawRing, fd: int) -> None:
        data = bytearray(2048 * KIB)
        overtakes = 0
        for number in range(20):
            first = number * (len(data) + 4 * KIB)
            for base, length, offset in ((1, len(data), first), (3, 4 * KIB, first + len(data))):
                ring.prepare(base, raw_ring.WRITE, fd, address=address_of(data), length=length, offset=offset,
                             sqe_flags=LINK)  # fmt: skip
                ring.prepare(base + 1, raw_ring.FSYNC, fd, op_flags=raw_ring.FSYNC_DATASYNC)
            order = [cqe.user_data for cqe in ring.complete(4)]
            overtakes += order.index(4) < order.index(2)
        if not overtakes:
            pytest.skip("the second chain never overtook the first here, which proves nothing")


class TestDescriptors:
    def test_close_completes_nothing_and_only_user_data_finds_the_operation(self, ring: RawRing) -> None:
        near, far = socket.socketpair(socket.AF_UNIX)
        buffer = bytearray(100)
        ring.prepare(5, raw_ring.RECV, near.fileno(), address=address_of(buffer), length=100)
        ring.submit()
        number = near.detach()
        os.close(number)
        assert ring.complete(1, patience_s=0.03) == []
        reused = os.dup2(far.fileno(), number)  # lower numbers may be free, too
        ring.prepare(6, raw_ring.ASYNC_CANCEL, reused, op_flags=raw_ring.CANCEL_FD | raw_ring.CANCEL_ALL)
        assert results(ring.complete(1)) == {6: 0}
        ring.prepare(7, raw_ring.ASYNC_CANCEL, address=5)
        assert results(ring.complete(2)) == {7: 0, 5: -errno.ECANCELED}
        os.close(reused)
        far.close()

    def test_without_descriptors_an_accept_fails_without_a_connect(self, ring: RawRing) -> None:
        """Queueing it again at once would spin: back off first."""
        with socket.create_server(("127.0.0.1", 0)) as listener, no_descriptors():
            ring.prepare(1, raw_ring.ACCEPT, listener.fileno())
            assert results(ring.complete(1)) == {1: -errno.EMFILE}


class TestThreadsAndProcesses:
    def test_another_thread_is_refused(self, ring: RawRing) -> None:
        seen: list[int] = []
        ring.prepare(1, raw_ring.NOP)
        thread = threading.Thread(target=lambda: seen.append(ring.enter(1, 0)))
        thread.start()
        thread.join()
        assert seen == [-errno.EEXIST]

    def test_a_forked_child_of_an_own_ring_is_refused(self, ring: RawRing) -> None:
        assert submit_in_child(ring) == errno.EEXIST

    def test_a_forked_child_submits_to_its_parents_shared_ring(self) -> None:
        """Which is why ours refuses itself in a child."""
        ring = RawRing(flags=0)
        assert submit_in_child(ring) == 0
        assert results(ring.complete(1)) == {77: 0}
        ring.close()

    @pytest.mark.parametrize("restart", [False, True])
    def test_a_signal_ends_a_wait_whether_system_calls_restart_or_not(self, ring: RawRing, restart: bool) -> None:
        before = signal.signal(signal.SIGALRM, lambda number, frame: None)
        signal.siginterrupt(signal.SIGALRM, not restart)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)  # the first may come before the wait
            assert ring.enter(0, 1) == -errno.EINTR
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


class TestQueues:
    def test_an_overflown_completion_queue_keeps_everything_in_order(self) -> None:
        ring = RawRing(4, flags=0, completions=8)
        for number in range(40):
            ring.prepare(number, raw_ring.NOP)
            assert ring.submit() == 1
        assert [cqe.user_data for cqe in ring.complete(40)] == list(range(40))
        ring.close()

    def test_submit_all_goes_on_behind_a_bad_operation(self) -> None:
        for flags, expected in ((raw_ring.SUBMIT_ALL, 3), (0, 2)):
            ring = RawRing(8, flags)
            ring.prepare(1, raw_ring.NOP)
            ring.prepare(2, 250)
            ring.prepare(3, raw_ring.NOP)
            assert ring.submit() == expected
            assert [cqe.user_data for cqe in ring.ready()] == [1, 2, 3][:expected]
            ring.close()


class TestSockets:
    def test_sends_in_flight_together_are_reordered(self) -> None:
        """One gathered send for each connection is the rule that follows; a link with MSG_WAITALL would keep order."""
        for _ in range(3):
            if out_of_order(sends=8, size=256 * KIB):
                return
        pytest.skip("the sends stayed in order here, which proves nothing")


def submit_in_child(ring: RawRing) -> int:
    """The errno a forked child gets for submitting a nop (77) to the ring; 0: it was taken."""
    pid = os.fork()
    if pid == 0:
        ring.prepare(77, raw_ring.NOP)
        os._exit(-min(0, ring.submit()))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def out_of_order(sends: int, size: int) -> bool:
    ring = RawRing(16)
    buffers = [bytearray(bytes([number + 1]) * size) for number in range(sends)]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * KIB)
    for number, buffer in enumerate(buffers):
        ring.prepare(number + 1, raw_ring.SEND, near.fileno(), address=address_of(buffer), length=size,
                     op_flags=socket.MSG_WAITALL | socket.MSG_NOSIGNAL)  # fmt: skip
    ring.submit()
    got, done = bytearray(), 0
    readable = select.poll()  # unlike select(), of any descriptor
    readable.register(far, select.POLLIN)
    with near, far:
        while len(got) < sends * size:
            ring.enter(0, 0)
            done += len(list(ring.ready()))
            if readable.poll(20):
                got += far.recv(64 * KIB)
            elif done == sends:
                break
    ring.close()
    return bytes(got) != b"".join(buffers)
