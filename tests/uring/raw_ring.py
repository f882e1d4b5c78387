"""io_uring by hand, in Python: three system calls and shared memory, nothing of `topics.uring` and nothing of liburing.

For asking the kernel what it does with things that our ring never allows: hard links, chains cut in two, skipped
completions, sends racing on a socket. x86-64 and arm64 numbers (they are the same).
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import struct
import time
from collections.abc import Iterator
from typing import NamedTuple

SETUP, ENTER, REGISTER = 425, 426, 427
NOP, FSYNC, ACCEPT, ASYNC_CANCEL, WRITE, SEND, RECV = 0, 3, 13, 14, 23, 26, 27
LINK, HARDLINK, SKIP_SUCCESS = 1 << 2, 1 << 3, 1 << 6
SETUP_CQSIZE, SUBMIT_ALL, SINGLE_ISSUER, DEFER_TASKRUN = 1 << 3, 1 << 7, 1 << 12, 1 << 13
OWN = SINGLE_ISSUER | DEFER_TASKRUN
FSYNC_DATASYNC = 1
CANCEL_ALL, CANCEL_FD = 1, 2
GETEVENTS, EXT_ARG = 1, 8
F_MORE = 2
SQE_BYTES, CQE_BYTES = 64, 16
SQ_RING, SQES = 0, 0x10000000

libc = ctypes.CDLL(None, use_errno=True)


class Cqe(NamedTuple):
    user_data: int
    res: int
    flags: int


class RawRing:
    def __init__(self, entries: int = 16, flags: int = OWN, completions: int = 0) -> None:
        flags |= SETUP_CQSIZE if completions else 0
        params = ctypes.create_string_buffer(struct.pack("4I", entries, completions, flags, 0) + bytes(104), 120)
        self.fd = call(SETUP, entries, params)
        if self.fd < 0:
            raise OSError(-self.fd, f"io_uring_setup: {os.strerror(-self.fd)}")
        self.entries, self.completions = struct.unpack_from("2I", params.raw, 0)
        sq = struct.unpack_from("7I", params.raw, 40)
        cq = struct.unpack_from("7I", params.raw, 80)
        self.sq_head, self.sq_tail, self.sq_mask, _, _, _, self.sq_array = sq
        self.cq_head, self.cq_tail, self.cq_mask, _, _, self.cqes, _ = cq
        size = max(self.sq_array + 4 * self.entries, self.cqes + CQE_BYTES * self.completions)
        self.memory = mmap.mmap(self.fd, size, offset=SQ_RING)
        self.sqes = mmap.mmap(self.fd, SQE_BYTES * self.entries, offset=SQES)
        self.queued = 0

    def word(self, offset: int) -> int:
        return int.from_bytes(self.memory[offset : offset + 4], "little")

    def put(self, offset: int, value: int) -> None:
        self.memory[offset : offset + 4] = (value & 0xFFFFFFFF).to_bytes(4, "little")

    def prepare(
        self,
        user_data: int,
        opcode: int,
        fd: int = -1,
        *,
        address: int = 0,
        length: int = 0,
        offset: int = 0,
        sqe_flags: int = 0,
        op_flags: int = 0,
    ) -> bool:
        """False: the submission queue is full."""
        head, tail = self.word(self.sq_head), self.word(self.sq_tail)
        if tail - head >= self.entries:
            return False
        slot = tail & self.word(self.sq_mask)
        sqe = struct.pack("<BBHiQQIIQ24x", opcode, sqe_flags, 0, fd, offset, address, length, op_flags, user_data)
        self.sqes[slot * SQE_BYTES : (slot + 1) * SQE_BYTES] = sqe
        self.put(self.sq_array + 4 * slot, slot)
        self.put(self.sq_tail, tail + 1)
        self.queued += 1
        return True

    def enter(self, submit: int, wait: int, timeout_ns: int = 0) -> int:
        """The count submitted or -errno. Without a timeout it waits until a signal comes."""
        if not timeout_ns:
            return call(ENTER, self.fd, submit, wait, GETEVENTS, None, 0)
        time_left = ctypes.create_string_buffer(struct.pack("qq", 0, timeout_ns))
        argument = ctypes.create_string_buffer(struct.pack("QIIQ", 0, 0, 0, ctypes.addressof(time_left)))
        return call(ENTER, self.fd, submit, wait, GETEVENTS | EXT_ARG, argument, len(argument.raw) - 1)

    def submit(self) -> int:
        count, self.queued = self.queued, 0
        return self.enter(count, 0)

    def ready(self) -> Iterator[Cqe]:
        """Take what is in the completion queue now."""
        while (head := self.word(self.cq_head)) != self.word(self.cq_tail):
            row = self.cqes + CQE_BYTES * (head & self.word(self.cq_mask))
            cqe = Cqe(*struct.unpack("<QiI", self.memory[row : row + CQE_BYTES]))
            self.put(self.cq_head, head + 1)
            yield cqe

    def complete(self, count: int, patience_s: float = 60.0) -> list[Cqe]:
        """Submits what is queued; the next `count` completions, in their order, or fewer when no more come in time."""
        self.submit()
        got = list(self.ready())
        end = time.monotonic() + patience_s
        while len(got) < count and time.monotonic() < end:
            self.enter(0, 1, 20_000_000)
            got += self.ready()
        return got

    def close(self) -> None:
        self.sqes.close()
        self.memory.close()
        os.close(self.fd)


def call(number: int, *arguments: object) -> int:
    values = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result = libc.syscall(ctypes.c_long(number), *values)
    return -ctypes.get_errno() if result < 0 else result


def results(cqes: list[Cqe]) -> dict[int, int]:
    """user_data -> res of single-shot operations."""
    assert len({cqe.user_data for cqe in cqes}) == len(cqes)
    return {cqe.user_data: cqe.res for cqe in cqes}


def address_of(buffer: bytearray) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


def unavailable() -> str:
    """Why no ring can be had here; empty when one can."""
    try:
        RawRing().close()
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "?")
        return f"io_uring: {name} from io_uring_setup with SINGLE_ISSUER|DEFER_TASKRUN"
    return ""
