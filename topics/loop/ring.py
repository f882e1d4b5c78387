"""The Ring Protocol: everything the loop may ask of the kernel.

Three implementations pass one conformance suite (tests/loop/rings/ring_conformance.py):
`topics.uring.UringRing`, `topics.loop.portable.portable_ring.PortableRing` (epoll and one I/O
thread) and `tests.sim.SimRing` (seeded, in memory). A ring knows no file format and no protocol:
descriptors, buffers and numbers in, completions out.

Every `queue_*` call takes a `user_data` (u64, never 0) that comes back with each of its
completions. Buffers given to a call belong to the ring until its final completion; the ring itself
holds the reference. Queueing never blocks and never fails for lack of room: a full submission queue
is submitted first (which never cuts a commit chain in two).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Protocol

from typing_extensions import Buffer

from topics.loop._connection_table import lib

F_BUFFER = lib.TP_F_BUFFER
"""Completion flag: data is in provided buffer `flags >> 16` (IORING_CQE_F_BUFFER)."""
F_MORE = lib.TP_F_MORE
"""Completion flag: a multishot continues. Without the flag it has ended and is re-armed."""

F_DATA_AND_MORE = F_BUFFER | F_MORE
"""Flags of a receive that brings data and continues, as nearly all do."""

Completions = tuple[list[int], list[int], list[int]]
"""Columns user_data, res, flags. A negative res is -errno."""
Send = tuple[int, int, Buffer]
"""A send: user_data, fd, bytes."""
Single = tuple[int, memoryview]
"""The only completion of a wait, a receive: user_data, and its bytes."""


class Ring(Protocol):
    """Queue operations, submit and wait, reap.

    One thread at a time drives it; other threads may only `wake` it, and `read_now`.
    """

    name: str
    """"uring", "portable" or "sim"."""
    receive_buffer_bytes: int
    wake_fd: int
    """Descriptor that `wake` writes to, for signal.set_wakeup_fd; -1: none.

    Without it, a signal that comes just before a wait would not end the wait.
    """

    # --- sockets ---------------------------------------------------------------------------------------------------
    def listen(
        self, host: str, port: int, backlog: int, keepalive_ms: int = 0, *, shared: bool = False
    ) -> tuple[int, tuple[str, int]]:
        """Bind and listen (blocking; start-up only). Return the descriptor and the bound address.

        keepalive_ms: accepted connections whose peer is silent for this time are probed, and end
        with ETIMEDOUT after about as long again; 0: never.
        shared: others that are shared, too, may listen on the address (SO_REUSEPORT), also in other
        processes of this user. Each new connection waits at one of them, and is reset if that one
        is closed before it was accepted.
        Raises: OSError, of EADDRINUSE if any other socket has the address.
        """

    def bind_port(self, host: str, port: int) -> tuple[int, tuple[str, int]]:
        """Bind without listening (blocking; start-up only). Return descriptor and bound address.

        While it is open, only sockets that are `shared` can listen on the address. It gets no
        connection itself.
        Raises: OSError, of EADDRINUSE if a socket that is not shared has the address.
        """

    def queue_accept(self, user_data: int, fd: int) -> None:
        """Queue a multishot accept.

        Each res is a new non-blocking, TCP_NODELAY descriptor or -errno.
        """

    def queue_connect(self, user_data: int, host: str, port: int) -> None:
        """Open a TCP connection; res is the new descriptor or -errno."""

    def queue_recv(self, user_data: int, fd: int) -> None:
        """Queue a multishot receive into provided buffers.

        Results: F_BUFFER and res > 0 for data; res 0 for the end of the stream.

        -ENOBUFS without F_MORE: no buffer was free; recycle some, then queue it again.
        """

    def received(self, flags: int, res: int) -> memoryview:
        """Return the bytes of a receive completion, valid until its buffer is recycled."""

    def recycle(self, flags: Sequence[int]) -> None:
        """Return the buffers of these completions' flags to the kernel, in one call."""

    def queue_sends(self, sends: Sequence[Send]) -> None:
        """Queue many sends in one call; each res is the count sent (may be short) or -errno.

        The caller has one send in flight per descriptor: the kernel may reorder several.
        """

    def send_now(self, fd: int, data: bytes | memoryview) -> int:
        """Send past the queue, before returning. Return the count, which may be short, or -errno.

        -EAGAIN: the socket takes no data now. Only for a descriptor without a send queued or in
        flight.
        """

    def send_datagram(self, address: str, data: bytes) -> int:
        """Send a datagram to a Unix socket past the queue, before returning. Return 0 or -errno.

        address: a path, or "@" and an abstract name. -EAGAIN: the receiver takes none now.
        """

    def stream_pair(self) -> tuple[int, int]:
        """Return two non-blocking Unix stream sockets that are connected to each other.

        Raises: OSError, of EMFILE if two descriptors are not free.
        """

    def open_mailbox(self, path: str) -> int:
        """Bind a Unix socket that takes descriptors (blocking; start-up only). Return its own one.

        It takes datagrams of `send_datagram`, too. One that an earlier process has left there is
        removed. Raises: OSError.
        """

    def send_descriptor(self, address: str, fd: int, data: bytes) -> int:
        """Send a descriptor and at least one byte to a mailbox past the queue, before returning.

        The descriptor stays open here, too. Return 0, or -errno, and nothing was sent. -EAGAIN: the
        mailbox is full. -ECONNREFUSED, -ENOENT: no process has it open. -EMSGSIZE: too many bytes.

        address: the path of the mailbox.
        """

    def take_descriptor(self, mailbox: int, size: int) -> tuple[int, bytes]:
        """Take what has come to a mailbox past the queue: a new descriptor, and its bytes.

        -EAGAIN in the place of the descriptor: there is nothing. -EMFILE: none is free here.
        -EMSGSIZE: there were more bytes. The descriptor that was sent is closed then. -EBADMSG:
        these bytes came without one.

        size: of the most bytes that a sender may send.
        """

    def pinned(self) -> dict[int, int]:
        """Return the bytes of shared memory that sends in flight hold, by user_data.

        Memory shared by the bytes of several sends is held until the last of them has ended; each
        send is assigned its share.
        """

    def queue_shutdown(self, user_data: int, fd: int, *, sends_only: bool = False) -> None:
        """Queue shutdown(fd, SHUT_RDWR); with `sends_only` SHUT_WR, which still receives."""

    def queue_poll(self, user_data: int, fd: int) -> None:
        """Queue a wait until a socket has something to take, or its peer has ended.

        res is above 0 then, or -errno.
        """

    def peer_of(self, fd: int) -> tuple[str, int]:
        """Return the peer's address.

        Raises OSError if the peer is gone or `fd` is not its socket.
        """

    # --- files -----------------------------------------------------------------------------------------------------
    def queue_open(self, user_data: int, path: str, flags: int, mode: int) -> None:
        """Queue openat; res is the descriptor. O_CLOEXEC and O_NOFOLLOW are added."""

    def queue_close(self, user_data: int, fd: int) -> None: ...

    def queue_read(self, user_data: int, fd: int, buffer: Buffer, offset: int) -> None:
        """Queue a read into a writable buffer; res is the count read, short at the end of file."""

    def queue_write(self, user_data: int, fd: int, buffer: Buffer, offset: int, *, dsync: bool = False) -> None:
        """Queue a write.

        With `dsync` (RWF_DSYNC) the completion means that it is on stable storage. offset: -1 for
        the file's own position, as pipes have it: a ring with one thread for files answers -EAGAIN
        instead of a write that would block.
        """

    def queue_commit(self, write_data: int, sync_data: int, fd: int, buffer: Buffer, offset: int) -> None:
        """Queue the commit chain: a write softly linked to an fdatasync, submitted as one.

        It has two completions. A failed or short write gives the sync -ECANCELED; the bytes are
        durable only with the full count and sync 0.
        """

    def queue_fsync(self, user_data: int, fd: int, *, data_only: bool) -> None: ...

    def queue_rename(self, user_data: int, old: str, new: str) -> None: ...

    def queue_unlink(self, user_data: int, path: str) -> None: ...

    # --- control ---------------------------------------------------------------------------------------------------
    def queue_cancel(self, user_data: int, target: int) -> None:
        """Ask for the end of the operation whose user_data is `target`.

        res is 0, -ENOENT or -EALREADY. The target still gets its own completion.
        """

    def submit_and_wait(self, timeout_ns: int | None) -> None:
        """Submit all; wait for a completion, `wake`, a signal or the timeout.

        timeout_ns: 0 to submit and poll; None for no timeout. Returns at once if there are
        completions that were not reaped.
        """

    def wait_single(self, timeout_ns: int | None) -> Single | None:
        """Submit and wait; return the only completion, if it is a receive with data that continues.

        Return None for anything else, which `reap` then returns. The bytes are valid until the next
        wait, which returns their buffer to the kernel, unless `reap` is called before: it returns
        the completion, as if it had not been taken.
        timeout_ns: as in `submit_and_wait`.
        """

    def reap(self) -> Completions:
        """Return all completions present, oldest first, without waiting."""

    @property
    def ready_fd(self) -> int:
        """Descriptor that is readable while there are completions to reap; -1: none.

        That wakes those who wait for it only if the ring is shared by threads.
        """

    @property
    def polls(self) -> int:
        """Number of waits so far that polled before they would sleep."""

    @property
    def shows_wakes(self) -> bool:
        """Whether `wake` makes it readable; perhaps not from `reap` until the next wait."""

    def wake(self) -> None:
        """End a `submit_and_wait` in progress, or the next one.

        From any thread or a signal handler.
        """

    def close(self) -> None:
        """End the ring: no more completions come. Idempotent."""

    def run_in_thread(self, run: Callable[[], None]) -> None:
        """Run a function on a thread of its own, for blocking calls that may last, or never end.

        run: raises nothing. The process does not wait for the thread at its end.
        """

    # --- blocking calls of start-up and checkpoint -------------------------------------------------------------------
    def make_directory(self, path: str) -> bool:
        """mkdir with mode 0700. Return False if it exists. Raises OSError."""

    def remove_directory(self, path: str) -> None:
        """rmdir. Raises OSError if the directory is not empty, or does not exist."""

    def link(self, path: str, new: str) -> None:
        """Give a file another name (link(2)). Raises OSError, such as FileExistsError."""

    def list_directory(self, path: str) -> list[str]:
        """Return the names of the entries, sorted. Raises FileNotFoundError."""

    def file_size(self, path: str) -> int:
        """Return the size of a file in bytes.

        Raises: FileNotFoundError; OSError, with EINVAL of a pipe, a socket or a device.
        """

    def lstat(self, path: str) -> os.stat_result:
        """Return the lstat(2) of a path: kind, permissions, owner, identity, size, times.

        Raises: FileNotFoundError, OSError.
        """

    def lock(self, path: str, *, shared: bool = False) -> int:
        """Create and lock a file for one holder. Return its descriptor.

        shared: beside other shared holders, and the file is not created: FileNotFoundError.
        Raises: BlockingIOError if another holder's lock excludes this one.
        """

    def unlock(self, fd: int) -> None:
        """Release the lock that `lock` took, even if children hold copies of its descriptor.

        In a forked child it only closes the child's copy: the lock is its parent's.
        """

    def allocate(self, fd: int, size: int) -> None:
        """Reserve space for bytes [0, size) (fallocate). Raises OSError(ENOSPC)."""

    write_address: int
    """Address of a function in C that does the same as `write_now` (uring/ring.h); 0: none."""

    def write_now(self, fd: int, buffer: Buffer, offset: int, *, dsync: bool) -> int:
        """Write past the queue, before returning. Return the count, which may be short, or -errno.

        For a thread that waits for no other operation. `dsync` as in `queue_write`.
        """

    def write_parts_now(self, fd: int, parts: Sequence[Buffer], offset: int) -> int:
        """Write buffers one after the other, as `write_now` writes one."""

    def sync_now(self, fd: int) -> int:
        """Sync a file's data past the queue, before returning. Return 0 or -errno.

        For a thread that waits for no other operation.
        """

    def read_now(self, fd: int, buffer: Buffer, offset: int) -> int:
        """Read past the queue, before returning, from any thread.

        Return the count, which may be short, or -errno. The caller keeps the descriptor open.
        """

    def free_bytes(self, path: str) -> int:
        """Return the bytes an unprivileged writer may still use on the file system of `path`."""

    def volume_bytes(self, path: str) -> int:
        """Return the size in bytes of the file system of `path`; 0 if it does not report one."""

    def direct_block_bytes(self, path: str) -> int:
        """Return the alignment (bytes) of O_DIRECT files in this directory; 0: unsupported."""

    def boot_id(self) -> str:
        """Return an id that changes when the machine restarts, which loses the page cache."""

    def random_bytes(self, count: int) -> bytes:
        """Return bytes from the kernel's CSPRNG, or from the seed in the simulator."""
