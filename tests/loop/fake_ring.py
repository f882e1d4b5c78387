"""A scripted ring: it records what was queued, and the test decides what completes.

Names listed in `answers` complete by themselves at the next submit, with the result the function gives.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from typing import Any

from topics.clock import ManualClock
from topics.loop import Loop
from topics.loop.ring import F_BUFFER, F_DATA_AND_MORE, F_MORE, Completions, Send, Single


class Call:
    """One queued operation."""

    def __init__(self, name: str, user_data: int, arguments: tuple[Any, ...]) -> None:
        self.name, self.user_data, self.arguments = name, user_data, arguments

    def __repr__(self) -> str:
        return f"{self.name}{self.arguments}"


class FakeRing:
    name = "fake"
    polls = 0
    receive_buffer_bytes = 4096
    wake_fd = -1
    ready_fd = -1
    shows_wakes = True

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.queued: list[Call] = []
        self.answers: dict[str, Callable[..., int]] = {
            "close": lambda fd: 0,
            "shutdown": lambda fd, sends_only: 0,
            "open": lambda path, flags, mode: 90,
        }
        self.completions: list[tuple[int, int, int]] = []
        self.single: tuple[int, int, int] | None = None
        self.buffers: dict[int, bytes] = {}
        self.recycled: list[int] = []
        self.waits: list[int | None] = []
        self.woken = 0
        self.closed = False
        self.bogus: set[int] = set()
        self.takes_now: list[int] = []
        """Results of the next `send_now`s."""
        self.sent_now: list[tuple[int, bytes]] = []
        self.given: list[tuple[str, int, bytes]] = []
        """The descriptors that were sent, and their bytes."""
        self.gives = 0
        """The result of `send_descriptor`; below 0, nothing is sent."""
        self.mail: list[tuple[int, bytes]] = []
        """The results of the next `take_descriptor`s."""
        self._buffer = 0

    def queue(self, name: str, user_data: int, *arguments: Any) -> None:
        assert user_data > 0
        self.queued.append(Call(name, user_data, arguments))

    # --- what tests call ---------------------------------------------------------------------------------------------
    def take(self, name: str) -> list[Call]:
        """The queued operations of this name, removed."""
        taken = [call for call in self.queued if call.name == name]
        self.queued = [call for call in self.queued if call.name != name]
        return taken

    def one(self, name: str) -> Call:
        (call,) = self.take(name)
        return call

    def complete(self, call: Call, res: int, flags: int = 0) -> None:
        self.completions.append((call.user_data, res, flags))

    def receive(self, call: Call, data: bytes, *, more: bool = True) -> None:
        self._buffer += 1
        self.buffers[self._buffer] = data
        self.complete(call, len(data), self._buffer << 16 | F_BUFFER | (F_MORE if more else 0))

    # --- the Protocol ------------------------------------------------------------------------------------------------
    def listen(
        self, host: str, port: int, backlog: int, keepalive_ms: int = 0, *, shared: bool = False
    ) -> tuple[int, tuple[str, int]]:
        return 3, (host, port or 4000)

    def bind_port(self, host: str, port: int) -> tuple[int, tuple[str, int]]:
        return 4, (host, port or 4000)

    def queue_accept(self, user_data: int, fd: int) -> None:
        self.queue("accept", user_data, fd)

    def queue_connect(self, user_data: int, host: str, port: int) -> None:
        self.queue("connect", user_data, host, port)

    def queue_recv(self, user_data: int, fd: int) -> None:
        self.queue("recv", user_data, fd)

    def received(self, flags: int, res: int) -> memoryview:
        data = self.buffers[flags >> 16]
        assert len(data) == res
        return memoryview(data)

    def recycle(self, flags: Sequence[int]) -> None:
        self.recycled.extend(flag >> 16 for flag in flags)

    def queue_sends(self, sends: Sequence[Send]) -> None:
        for user_data, fd, data in sends:
            self.queue("send", user_data, fd, bytes(data))

    def send_now(self, fd: int, data: bytes | memoryview) -> int:
        """By default no socket takes anything, so that every send takes the usual way."""
        res = self.takes_now.pop(0) if self.takes_now else -errno.EAGAIN
        self.sent_now.append((fd, bytes(data)))
        return res

    def stream_pair(self) -> tuple[int, int]:
        return 71, 72

    def open_mailbox(self, path: str) -> int:
        return 70

    def send_descriptor(self, address: str, fd: int, data: bytes) -> int:
        if self.gives == 0:
            self.given.append((address, fd, data))
        return self.gives

    def take_descriptor(self, mailbox: int, size: int) -> tuple[int, bytes]:
        assert mailbox == 70
        return self.mail.pop(0) if self.mail else (-errno.EAGAIN, b"")

    def queue_poll(self, user_data: int, fd: int) -> None:
        self.queue("poll", user_data, fd)

    def pinned(self) -> dict[int, int]:
        return {}

    def queue_shutdown(self, user_data: int, fd: int, *, sends_only: bool = False) -> None:
        self.queue("shutdown", user_data, fd, sends_only)

    def peer_of(self, fd: int) -> tuple[str, int]:
        if fd in self.bogus:
            raise OSError(107, "not connected")
        return "10.0.0.1", 1000 + fd

    def queue_open(self, user_data: int, path: str, flags: int, mode: int) -> None:
        self.queue("open", user_data, path, flags, mode)

    def queue_close(self, user_data: int, fd: int) -> None:
        self.queue("close", user_data, fd)

    def queue_read(self, user_data: int, fd: int, buffer: Any, offset: int) -> None:
        self.queue("read", user_data, fd, buffer, offset)

    def queue_write(self, user_data: int, fd: int, buffer: Any, offset: int, *, dsync: bool = False) -> None:
        self.queue("write", user_data, fd, buffer, offset, dsync)

    def queue_commit(self, write_data: int, sync_data: int, fd: int, buffer: Any, offset: int) -> None:
        self.queue("commit_write", write_data, fd, buffer, offset)
        self.queue("commit_sync", sync_data, fd)

    def queue_fsync(self, user_data: int, fd: int, *, data_only: bool) -> None:
        self.queue("fsync", user_data, fd, data_only)

    def queue_rename(self, user_data: int, old: str, new: str) -> None:
        self.queue("rename", user_data, old, new)

    def queue_unlink(self, user_data: int, path: str) -> None:
        self.queue("unlink", user_data, path)

    def queue_cancel(self, user_data: int, target: int) -> None:
        self.queue("cancel", user_data, target)

    def submit_and_wait(self, timeout_ns: int | None) -> None:
        self.waits.append(timeout_ns)
        if self.single is not None:
            self.recycle([self.single[2]])
            self.single = None
        for call in list(self.queued):
            if call.name in self.answers:
                self.queued.remove(call)
                self.complete(call, self.answers[call.name](*call.arguments))
        if not self.completions and not self.woken and timeout_ns:
            self.clock.advance_ns(timeout_ns)
        self.woken = 0

    def wait_single(self, timeout_ns: int | None) -> Single | None:
        self.submit_and_wait(timeout_ns)
        if len(self.completions) != 1 or self.completions[0][2] & F_DATA_AND_MORE != F_DATA_AND_MORE:
            return None
        self.single = self.completions.pop()
        return self.single[0], self.received(self.single[2], self.single[1])

    def reap(self) -> Completions:
        if self.single is not None:
            self.completions.insert(0, self.single)
            self.single = None
        completions, self.completions = self.completions, []
        return [c[0] for c in completions], [c[1] for c in completions], [c[2] for c in completions]

    def wake(self) -> None:
        self.woken += 1

    def close(self) -> None:
        self.closed = True

    def make_directory(self, path: str) -> bool:
        return True

    def remove_directory(self, path: str) -> None:
        pass

    def list_directory(self, path: str) -> list[str]:
        return []

    def file_size(self, path: str) -> int:
        return 0

    def lock(self, path: str, *, shared: bool = False) -> int:
        return 80

    def unlock(self, fd: int) -> None:
        pass

    def lstat(self, path: str) -> os.stat_result:
        raise FileNotFoundError(path)

    def allocate(self, fd: int, size: int) -> None:
        self.queue("allocate", 1, fd, size)

    write_address = 0

    def write_now(self, fd: int, buffer: Any, offset: int, *, dsync: bool) -> int:
        return len(memoryview(buffer))

    def write_parts_now(self, fd: int, parts: Any, offset: int) -> int:
        return sum(len(memoryview(part)) for part in parts)

    def sync_now(self, fd: int) -> int:
        return 0

    def read_now(self, fd: int, buffer: Any, offset: int) -> int:
        return len(memoryview(buffer))

    def free_bytes(self, path: str) -> int:
        return 1 << 30

    def volume_bytes(self, path: str) -> int:
        return 1 << 31

    def direct_block_bytes(self, path: str) -> int:
        return 4096

    def boot_id(self) -> str:
        return "boot"

    def random_bytes(self, count: int) -> bytes:
        return bytes(count)


def fake_loop() -> tuple[Loop, FakeRing]:
    clock = ManualClock()
    ring = FakeRing(clock)
    return Loop(ring, clock), ring
