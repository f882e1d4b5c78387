"""The Ring Protocol: everything the loop may ask of the kernel.

Three implementations pass one conformance suite (tests/loop/rings/ring_conformance.py): `topics.uring.UringRing`,
`topics.loop.portable.portable_ring.PortableRing` (epoll and one I/O thread) and `tests.sim.SimRing` (seeded, in
memory). A ring knows no file format and no protocol: descriptors, buffers and numbers in, completions out.

Every `queue_*` call takes a `user_data` (u64, never 0) that comes back with each of its completions. Buffers given to
a call belong to the ring until its final completion; the ring itself keeps the reference.
Queueing never blocks and never fails for lack of room: a full submission queue is submitted first (a commit chain is
never cut in two by that).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol

from typing_extensions import Buffer

from topics.loop._links import lib

F_BUFFER = lib.TP_F_BUFFER
"""Completion flag: data lies in a provided buffer, number `flags >> 16` (io_uring's IORING_CQE_F_BUFFER)."""
F_MORE = lib.TP_F_MORE
"""Completion flag: a multishot goes on; without it, it has ended and is re-armed on that ground alone."""

F_DATA_AND_MORE = F_BUFFER | F_MORE
"""Of a receive that brings data and goes on, as nearly all do."""

Completions = tuple[list[int], list[int], list[int]]
"""Columns user_data, res, flags. A negative res is -errno."""
Send = tuple[int, int, Buffer]
"""user_data, fd, bytes."""


class Ring(Protocol):
    """Queue operations, submit and wait, reap. One thread at a time drives it; only `wake` may come from others."""

    name: str
    """"uring", "portable" or "sim"."""
    receive_buffer_bytes: int
    wake_fd: int
    """What `wake` writes to, for signal.set_wakeup_fd: only so does a signal never slip in before a wait. -1: none."""

    # --- sockets ---------------------------------------------------------------------------------------------------
    def listen(self, host: str, port: int, backlog: int, keepalive_ms: int = 0) -> tuple[int, tuple[str, int]]:
        """Binds and listens (blocking; start-up only). Returns the descriptor and the address bound.

        keepalive_ms: accepted connections whose peer is silent for so long are probed, and end with ETIMEDOUT after
        about as long again; 0: never.
        """

    def queue_accept(self, user_data: int, fd: int) -> None:
        """Multishot accept: each completion's res is a new non-blocking, TCP_NODELAY descriptor or -errno."""

    def queue_connect(self, user_data: int, host: str, port: int) -> None:
        """Opens a TCP connection; res is the new descriptor or -errno."""

    def queue_recv(self, user_data: int, fd: int) -> None:
        """Multishot receive into provided buffers: F_BUFFER and res > 0 data, res 0 end of stream.

        -ENOBUFS without F_MORE: no buffer was free; recycle some, then queue it again.
        """

    def received(self, flags: int, res: int) -> memoryview:
        """The bytes of a receive completion; valid until its buffer is recycled."""

    def recycle(self, flags: Sequence[int]) -> None:
        """Gives the buffers of these completions' flags back to the kernel, in one call."""

    def queue_sends(self, sends: Sequence[Send]) -> None:
        """Queues many sends in one call; res is the count sent (may be short) or -errno.

        The caller keeps one send in flight per descriptor: the kernel may reorder several.
        """

    def send_now(self, fd: int, data: bytes) -> int:
        """A send that has ended when this returns, beside the queue: the count, perhaps short, or -errno.

        -EAGAIN: the socket takes nothing now. Only for a descriptor without a send queued or in flight.
        """

    def pinned(self) -> dict[int, int]:
        """Of sends in flight whose bytes lie in memory together with those of others, which is kept until the last of
        them has ended: their shares of it, by user_data."""

    def queue_shutdown(self, user_data: int, fd: int, *, sends_only: bool = False) -> None:
        """shutdown(fd, SHUT_RDWR), or SHUT_WR: the peer sees our end, and what it still sends is received."""

    def peer_of(self, fd: int) -> tuple[str, int]:
        """Address of the other side; raises OSError when it is gone (or the descriptor is bogus)."""

    # --- files -----------------------------------------------------------------------------------------------------
    def queue_open(self, user_data: int, path: str, flags: int, mode: int) -> None:
        """openat; res is the descriptor. O_CLOEXEC and O_NOFOLLOW are added."""

    def queue_close(self, user_data: int, fd: int) -> None: ...

    def queue_read(self, user_data: int, fd: int, buffer: Buffer, offset: int) -> None:
        """Reads into a writable buffer; res is the count read, short at the end of file."""

    def queue_write(self, user_data: int, fd: int, buffer: Buffer, offset: int, *, dsync: bool = False) -> None:
        """Writes; `dsync` adds RWF_DSYNC, so that the completion means: on stable storage."""

    def queue_commit(self, write_data: int, sync_data: int, fd: int, buffer: Buffer, offset: int) -> None:
        """The commit chain: a write softly linked to an fdatasync, prepared and submitted as one.

        Two completions. A failed or short write gives the sync -ECANCELED; an ack needs the full count and sync 0.
        """

    def queue_fsync(self, user_data: int, fd: int, *, data_only: bool) -> None: ...

    def queue_rename(self, user_data: int, old: str, new: str) -> None: ...

    def queue_unlink(self, user_data: int, path: str) -> None: ...

    # --- control ---------------------------------------------------------------------------------------------------
    def queue_cancel(self, user_data: int, target: int) -> None:
        """Asks for the operation whose user_data is `target` to end: res 0, -ENOENT or -EALREADY; the target
        still completes by itself."""

    def submit_and_wait(self, timeout_ns: int | None) -> None:
        """Submits everything queued; waits for one completion at least, `wake`, a signal or the timeout.

        0: submit and poll. None: no timeout. Returns at once while completions lie unreaped.
        """

    def reap(self) -> Completions:
        """All completions present, oldest first; never waits."""

    def wake(self) -> None:
        """Ends a `submit_and_wait` in progress, or the next one. From any thread or a signal handler."""

    def close(self) -> None:
        """Ends the ring: no completion comes any more. Idempotent."""

    # --- blocking calls of start-up and checkpoint -------------------------------------------------------------------
    def make_directory(self, path: str) -> bool:
        """mkdir with mode 0700; False when it was there. Raises OSError."""

    def remove_directory(self, path: str) -> None:
        """rmdir. Raises OSError: it is not empty, or not there."""

    def list_directory(self, path: str) -> list[str]:
        """Names of the entries, sorted. Raises FileNotFoundError."""

    def file_size(self, path: str) -> int:
        """Bytes. Raises FileNotFoundError."""

    def look(self, path: str) -> os.stat_result:
        """lstat(2): kind, permissions, owner, identity of what is at a path. Raises FileNotFoundError, OSError."""

    def lock(self, path: str) -> int:
        """Creates and locks a file for this process; returns its descriptor. Raises BlockingIOError when held."""

    def unlock(self, fd: int) -> None:
        """Closes the descriptor that `lock` gave, and with it gives up the lock, at once."""

    def allocate(self, fd: int, size: int) -> None:
        """Reserves space for bytes [0, size) (fallocate). Raises OSError(ENOSPC)."""

    def write_now(self, fd: int, buffer: Buffer, offset: int, *, dsync: bool) -> int:
        """A write that has ended when this returns, beside the queue: the count, perhaps short, or -errno.

        For a thread that waits for nothing else. `dsync` as in `queue_write`.
        """

    def free_bytes(self, path: str) -> int:
        """Bytes an unprivileged writer may still use on the file system of `path`."""

    def volume_bytes(self, path: str) -> int:
        """Size of the file system of `path`; 0: it does not tell."""

    def direct_block_bytes(self, path: str) -> int:
        """Alignment (bytes) O_DIRECT needs for files in this directory; 0 where it does not work."""

    def boot_id(self) -> str:
        """Changes when the machine was restarted, that is, when the page cache was lost."""

    def random_bytes(self, count: int) -> bytes:
        """From the kernel's CSPRNG; from the seed in the simulator."""
