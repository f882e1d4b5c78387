"""UringRing: the Ring Protocol (topics/loop/ring.py) on io_uring, through the bulk calls of ring.c.

docs/internals/io_uring.md lists how the kernel behaves, and what the ring does about it.
"""

from __future__ import annotations

import errno
import os
import socket
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

from typing_extensions import Buffer

from topics.common.memory import page_aligned
from topics.uring._ring import ffi, lib
from topics.uring.blocking import BlockingCalls
from topics.uring.connects import Connects
from topics.uring.misuse import fail
from topics.uring.polling import Polling
from topics.uring.setup import open_ring_memory
from topics.uring.support import memlock_text

JOIN_BYTES = 2048
"""Sends up to this size are copied together and pinned once; a larger send is pinned by itself."""
JOINED_BYTES = 32_768
"""Bytes that are copied together at most.

A send whose peer takes nothing holds all of its group until it ends.
"""
WORKERS = 8
"""Cap of the kernel's worker threads for this ring: one for files, and one for the rest."""
POWERS_OF_TWO = tuple(1 << bits for bits in range(16))
CLOSE_PATIENCE_NS = 2_000_000_000
"""How long `close` waits for operations that the kernel does not cancel (a running sync)."""

Send = tuple[int, int, Buffer]
"""user_data, descriptor, bytes."""

Sort = Callable[[Any, Any, Any, int], int]


class _Joined:
    """The memory of several sends."""

    __slots__ = ("data",)

    def __init__(self, data: Any) -> None:
        self.data = data


_open_rings: weakref.WeakSet[UringRing] = weakref.WeakSet()
_closed_ring = lib.tp_closed()
_abandoned: list[object] = []
"""Memory that the kernel may still write to: of rings closed with operations in flight."""


class UringRing(BlockingCalls):
    """One io_uring and its provided receive buffers.

    entries, completions: sizes of the two queues, halved if the kernel lacks locked memory for them
        (see `setup`).
    receive_buffers: a power of two; receive_buffer_bytes: the size of each.
    shared: any thread may drive it, one at a time; otherwise only the thread that opened it.
    spin_us: a wait polls for so long before it sleeps, while waits prove to be that short; `auto`:
        100 us while one client at a time is served and a core is idle (polling.py).
    Raises: OSError with the cause and its remedy if the kernel refuses the ring.
    """

    name = "uring"
    write_address = int(ffi.cast("uintptr_t", ffi.addressof(lib, "tp_write_now")))

    def __init__(
        self,
        entries: int = 512,
        completions: int = 4096,
        receive_buffers: int = 512,
        receive_buffer_bytes: int = 16_384,
        *,
        shared: bool = False,
        spin_us: str = "0",
    ) -> None:
        if receive_buffers not in POWERS_OF_TWO:
            raise ValueError(f"receive_buffers is {receive_buffers}: use a power of two up to {POWERS_OF_TWO[-1]}")
        self.receive_buffer_bytes = receive_buffer_bytes
        self._wake_end, self._woken_end = socket.socketpair()
        self._wake_end.setblocking(False)
        self.wake_fd = self._wake_end.fileno()
        self._memory = page_aligned(receive_buffers * receive_buffer_bytes)
        self.receive_memory = whole = memoryview(self._memory)
        self._views = [
            whole[start : start + receive_buffer_bytes] for start in range(0, len(whole), receive_buffer_bytes)
        ]
        try:
            self.setup = open_ring_memory(entries, completions, self._woken_end.fileno(), WORKERS, shared=shared)
            self._ring = self.setup.ring
            self._provide(receive_buffers)
        except BaseException:
            if hasattr(self, "_ring"):
                lib.tp_free(self._ring)
            self._wake_end.close()
            self._woken_end.close()
            raise
        self._polling = Polling()
        self._polling.begin(self._ring, spin_us)
        self._room = max(64, self.setup.completions)
        self._user_data = ffi.new("uint64_t[]", self._room)
        self._res = ffi.new("int[]", self._room)
        self._flags = ffi.new("uint32_t[]", self._room)
        self._single = ffi.new("uint64_t[]", 1)
        self._pins: dict[int, object] = {}
        self._connects = Connects()
        self._closed = False
        _open_rings.add(self)

    def _provide(self, count: int) -> None:
        """Give the kernel the memory for what is received."""
        base = ffi.from_buffer("uint8_t[]", self._memory)
        if (result := lib.tp_provide(self._ring, base, count, self.receive_buffer_bytes)) < 0:
            text = f"io_uring gives no ring of {count} receive buffers: {os.strerror(-result)}"
            raise OSError(-result, f"{text} (RLIMIT_MEMLOCK is {memlock_text()})")

    # --- sockets ---------------------------------------------------------------------------------------------------
    def queue_accept(self, user_data: int, fd: int) -> None:
        self._check(lib.tp_accept(self._ring, user_data, fd))

    def queue_connect(self, user_data: int, host: str, port: int) -> None:
        """Queue a connect. Resolving a name blocks, so use numeric addresses on a loop."""
        fd, address = self._connects.begin(user_data, host, port)
        self._pin(user_data, address)
        self._check(lib.tp_connect(self._ring, user_data, fd, address, len(address)))

    def queue_recv(self, user_data: int, fd: int) -> None:
        self._check(lib.tp_recv(self._ring, user_data, fd))

    def received(self, flags: int, res: int) -> memoryview:
        return self._views[flags >> 16][:res]

    def recycle(self, flags: Sequence[int]) -> None:
        self._check(lib.tp_recycle(self._ring, flags, len(flags)))

    def queue_sends(self, sends: Sequence[Send]) -> None:
        if len(sends) < 2:  # one answer: copying costs more than it saves
            self._queue_large(sends)
            return
        user_data, fds, parts = zip(*sends, strict=True)
        if parts[len(parts) // 2] is parts[-1]:
            self._broadcast(sends, parts[-1])  # a broadcast is written at the end of a pass
            return
        lengths = list(map(len, parts))
        if max(lengths) > JOIN_BYTES:
            sized = list(zip(sends, lengths, strict=True))
            self._queue_large([send for send, length in sized if length > JOIN_BYTES])
            self.queue_sends([send for send, length in sized if length <= JOIN_BYTES])
            return
        if sum(lengths) <= JOINED_BYTES:
            self._queue_joined(user_data, fds, parts, lengths)
            return
        step = JOINED_BYTES // max(lengths)
        for at in range(0, len(lengths), step):
            rows = slice(at, at + step)
            self._queue_joined(user_data[rows], fds[rows], parts[rows], lengths[rows])

    def _queue_joined(
        self, user_data: tuple[int, ...], fds: tuple[int, ...], parts: tuple[Buffer, ...], lengths: list[int]
    ) -> None:
        """Queue sends that are copied together and pinned as one."""
        joined = b"".join(parts)
        assert len(joined) == sum(lengths), "a send's buffer is not made of bytes"
        data = ffi.from_buffer("uint8_t[]", joined)
        pins = self._pins
        expected = len(pins) + len(lengths)
        pins.update(zip(user_data, repeat(_Joined(data))))
        assert len(pins) == expected, "a user_data was in flight twice"
        self._check(lib.tp_sends(self._ring, len(lengths), user_data, fds, lengths, data))

    def _broadcast(self, sends: Sequence[Send], shared: Buffer) -> None:
        """Queue many sends of one buffer, pinned in place without a copy, and possibly others."""
        others = [send for send in sends if send[2] is not shared]
        if others:
            self.queue_sends(others)
            sends = [send for send in sends if send[2] is shared]
        user_data, fds, _ = zip(*sends, strict=True)
        data = ffi.from_buffer("uint8_t[]", shared)
        pins = self._pins
        expected = len(pins) + len(sends)
        pins.update(zip(user_data, repeat(data)))
        assert len(pins) == expected, "a user_data was in flight twice"
        self._check(lib.tp_broadcast(self._ring, len(sends), user_data, fds, data, len(data)))

    def _queue_large(self, sends: Sequence[Send]) -> None:
        """Queue sends pinned in place; a buffer that follows itself is pinned once."""
        last: object = None
        data: Any = None
        for user_data, fd, part in sends:
            if part is not last:
                last, data = part, ffi.from_buffer("uint8_t[]", part)
            self._pin(user_data, data)
            self._check(lib.tp_send(self._ring, user_data, fd, data, len(data)))

    def send_now(self, fd: int, data: bytes | memoryview) -> int:
        chars = data if type(data) is bytes else ffi.from_buffer("char[]", data)
        return lib.tp_send_now(self._ring, fd, chars, len(data))

    def pinned(self) -> dict[int, int]:
        joined = {user_data: pin for user_data, pin in self._pins.items() if type(pin) is _Joined}
        users = Counter(map(id, joined.values()))
        return {user_data: len(pin.data) // users[id(pin)] for user_data, pin in joined.items()}

    def queue_shutdown(self, user_data: int, fd: int, *, sends_only: bool = False) -> None:
        self._check(lib.tp_shutdown(self._ring, user_data, fd, sends_only))

    def queue_poll(self, user_data: int, fd: int) -> None:
        self._check(lib.tp_poll(self._ring, user_data, fd))

    # --- files -----------------------------------------------------------------------------------------------------
    def queue_open(self, user_data: int, path: str, flags: int, mode: int) -> None:
        name = self._pin_path(user_data, path)
        self._check(lib.tp_openat(self._ring, user_data, name, flags, mode))

    def queue_close(self, user_data: int, fd: int) -> None:
        self._check(lib.tp_close(self._ring, user_data, fd))

    def queue_read(self, user_data: int, fd: int, buffer: Buffer, offset: int) -> None:
        data = ffi.from_buffer("uint8_t[]", buffer, require_writable=True)
        self._pin(user_data, data)
        self._check(lib.tp_read(self._ring, user_data, fd, data, len(data), offset))

    def queue_write(self, user_data: int, fd: int, buffer: Buffer, offset: int, *, dsync: bool = False) -> None:
        data = ffi.from_buffer("uint8_t[]", buffer)
        self._pin(user_data, data)
        self._check(lib.tp_write(self._ring, user_data, fd, data, len(data), offset, dsync))

    def queue_commit(self, write_data: int, sync_data: int, fd: int, buffer: Buffer, offset: int) -> None:
        data = ffi.from_buffer("uint8_t[]", buffer)
        self._pin(write_data, data)
        self._check(lib.tp_commit(self._ring, write_data, sync_data, fd, data, len(data), offset))

    def queue_fsync(self, user_data: int, fd: int, *, data_only: bool) -> None:
        self._check(lib.tp_fsync(self._ring, user_data, fd, data_only))

    def queue_rename(self, user_data: int, old: str, new: str) -> None:
        names = (os.fsencode(old) + b"\0", os.fsencode(new) + b"\0")
        pinned = tuple(ffi.from_buffer("char[]", name) for name in names)
        self._pin(user_data, pinned)
        self._check(lib.tp_rename(self._ring, user_data, *pinned))

    def queue_unlink(self, user_data: int, path: str) -> None:
        self._check(lib.tp_unlink(self._ring, user_data, self._pin_path(user_data, path)))

    # --- control ---------------------------------------------------------------------------------------------------
    def queue_cancel(self, user_data: int, target: int) -> None:
        self._check(lib.tp_cancel(self._ring, user_data, target))

    @property
    def ready_fd(self) -> int:
        return int(lib.tp_fd(self._ring))

    @property
    def polls(self) -> int:
        return lib.tp_spins(self._ring)

    @property
    def shows_wakes(self) -> bool:
        return bool(lib.tp_shows_wakes(self._ring))

    def submit_and_wait(self, timeout_ns: int | None) -> None:
        result = lib.tp_submit_and_wait(self._ring, -1 if timeout_ns is None else max(0, timeout_ns))
        if result < 0:
            fail(result)

    def wait_single(self, timeout_ns: int | None) -> tuple[int, memoryview] | None:
        found = lib.tp_wait_single(self._ring, -1 if timeout_ns is None else timeout_ns, self._single)
        if found <= 0:
            if found < 0:
                fail(found)
            return None
        return self._single[0], self._views[found >> 32][: found & 0xFFFFFFFF]

    def reap(self) -> tuple[list[int], list[int], list[int]]:
        count = lib.tp_reap(self._ring, self._user_data, self._res, self._flags, self._room)
        if count <= 0:
            if count < 0:
                fail(count)
            return [], [], []
        columns = self._unpack(count)
        if count == self._room:
            for column, more in zip(columns, self.reap(), strict=True):
                column += more
        return columns

    def _unpack(self, count: int) -> tuple[list[int], list[int], list[int]]:
        """Return the first `count` reaped completions, and free their buffers."""
        user_data = ffi.unpack(self._user_data, count)
        res = ffi.unpack(self._res, count)
        flags = ffi.unpack(self._flags, count)
        if self._connects:
            self._connects.finish(user_data, res)
        if pins := self._pins:
            for each in user_data:
                pins.pop(each, None)
        return user_data, res, flags

    # --- columns, see `topics.loop.connection_table` ------------------------------------------------------------------
    def reap_sorted(self, sort: Sort) -> tuple[list[int], list[int], list[int]]:
        """Reap, and return only the completions that `sort` leaves.

        sort: gets the C columns user_data, res and flags and their length, moves the completions to
            return to the front, and returns their number.
        """
        count = lib.tp_reap(self._ring, self._user_data, self._res, self._flags, self._room)
        if count <= 0:
            if count < 0:
                fail(count)
            return [], [], []
        columns = self._unpack(sort(self._user_data, self._res, self._flags, count))
        if count == self._room:
            for column, more in zip(columns, self.reap_sorted(sort), strict=True):
                column += more
        return columns

    def queue_send_columns(self, count: int, user_data: Any, fds: Any, lengths: Any, data: Any) -> None:
        """Queue sends given as C columns.

        data: the bytes of all sends back to back; the caller holds them until the sends complete.
        """
        self._check(lib.tp_sends(self._ring, count, user_data, fds, lengths, ffi.cast("uint8_t *", data)))

    def queue_broadcast_columns(self, count: int, user_data: Any, fds: Any, length: int, data: Any) -> None:
        """Queue sends of the same bytes; the caller holds them until the sends complete."""
        self._check(lib.tp_broadcast(self._ring, count, user_data, fds, ffi.cast("uint8_t *", data), length))

    def recycle_columns(self, flags: Any, count: int) -> None:
        self._check(lib.tp_recycle(self._ring, flags, count))

    def wake(self) -> None:
        try:
            self._wake_end.send(b"\0")
        except OSError:  # full: a wake-up is pending; closed: no thread waits
            return

    def close(self) -> None:
        """Cancel all operations and wait for their end.

        After that, the kernel writes to no memory of the ring.
        """
        if self._closed:
            return
        self._closed = True
        _open_rings.discard(self)
        ended = self._end_operations()
        lib.tp_refuse(self._ring, -errno.EBADF)
        if ended:
            lib.tp_free(self._ring)
            self._pins.clear()
        else:
            _abandoned.append((self._ring, self._memory, self._pins))
        self._ring = _closed_ring
        self._connects.close()
        self._polling.end()
        self._wake_end.close()
        self._woken_end.close()

    def __del__(self) -> None:
        """Close a ring that was dropped.

        The kernel may still write to its memory, so that is freed only after all operations ended.
        """
        if not getattr(self, "_closed", True):
            warnings.warn("a UringRing was dropped without close()", ResourceWarning, stacklevel=2)
            self.close()

    # --- our own -----------------------------------------------------------------------------------------------------
    def in_flight(self) -> int:
        """Return the number of operations whose final completion has not been reaped."""
        return lib.tp_in_flight(self._ring)

    def _end_operations(self) -> bool:
        if lib.tp_cancel_all(self._ring) < 0:
            return False
        steps = 100
        for _ in range(steps):
            if lib.tp_submit_and_wait(self._ring, CLOSE_PATIENCE_NS // steps) < 0:
                return False
            if lib.tp_reap(self._ring, self._user_data, self._res, self._flags, self._room) < 0:
                return False
            if not lib.tp_in_flight(self._ring):
                return True
        return False

    def _pin(self, user_data: int, memory: object) -> None:
        """Hold memory until `user_data` has completed, because the kernel uses it until then."""
        assert user_data not in self._pins, "a user_data was in flight twice"
        self._pins[user_data] = memory

    def _pin_path(self, user_data: int, path: str) -> Any:
        name = ffi.from_buffer("char[]", os.fsencode(path) + b"\0")
        self._pin(user_data, name)
        return name

    def _check(self, result: int) -> None:
        if result < 0:
            fail(result)

    def _refuse_in_child(self) -> None:
        lib.tp_refuse(self._ring, -errno.ECHILD)


def _refuse_all_in_child() -> None:
    for ring in list(_open_rings):
        ring._refuse_in_child()


os.register_at_fork(after_in_child=_refuse_all_in_child)
