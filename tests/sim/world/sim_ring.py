"""SimRing: the Ring Protocol over a world of its own. Same seed, same run.

Every operation takes virtual time; waiting moves the clock to the next event. With `shuffle` the times are drawn by
the seed, so completions come in any order the kernel could choose; `faults` and the disk's options do the rest.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Callable, Sequence

from typing_extensions import Buffer

from tests.sim.genome import Seed, stream
from tests.sim.world.events import Events, SimStalledError
from tests.sim.world.faults import Faults
from tests.sim.world.network import Endpoint, SimListener, SimNetwork
from tests.sim.world.ring_core import Core, Operation, SimDeadError, SimPausedError, too_late
from tests.sim.world.ring_files import SimFiles
from tests.sim.world.ring_sockets import SimSockets
from tests.sim.world.sim_disk import SimDisk
from tests.sim.world.sim_file import SimFile
from topics.clock import ManualClock
from topics.loop.ring import F_DATA_AND_MORE, Completions, Send, Single

PASS_NS = 1_000
"""Virtual time one pass of a loop costs, so that polling without end still meets the next event."""


class SimRing:
    """One simulated process's ring. `disk` outlives it: see `kill` and `power_cut`.

    Args: clock and network are made when not given; shuffle, completion order by the seed (off: by fixed times);
    split, whether received bytes come in pieces and sends may be short; pass_ns, what a pass of the loop takes, chosen
    for each; signals, whether some waits end for nothing (with shuffle), which hides that a pass is missing; life,
    which process of the seed this is; process, its name among those of one life.
    """

    name = "sim"
    wake_fd = -1
    polls = 0
    ready_fd = -1
    shows_wakes = True

    def __init__(
        self,
        seed: Seed = 0,
        *,
        clock: ManualClock | None = None,
        disk: SimDisk | None = None,
        network: SimNetwork | None = None,
        faults: Faults | None = None,
        shuffle: bool = False,
        split: bool = False,
        receive_buffers: int = 64,
        receive_buffer_bytes: int = 4096,
        fd_limit: int = 1024,
        pass_ns: tuple[int, ...] = (PASS_NS,),
        signals: bool = True,
        life: int = 1,
        process: str = "",
    ) -> None:
        self.seed = seed
        self.life = life
        named = f"{life}{process}"
        self.rng = stream(seed, f"{named}:ring")
        self.events = network.events if network is not None else Events(clock or ManualClock())
        self.clock = self.events.clock
        self.disk = disk if disk is not None else SimDisk()
        self.network = network or SimNetwork(self.events, stream(seed, f"{named}:network"), split=split, jitter=shuffle)
        self.faults = faults if faults is not None else Faults()
        self.receive_buffer_bytes = receive_buffer_bytes
        self._options = {
            "shuffle": shuffle,
            "split": split,
            "receive_buffers": receive_buffers,
            "receive_buffer_bytes": receive_buffer_bytes,
            "fd_limit": fd_limit,
            "pass_ns": pass_ns,
            "signals": signals,
        }
        self._random_bytes = stream(seed, f"{named}:bytes")
        order_rng = stream(seed, f"{named}:order")
        self._core = Core(self.events, self.disk, self.faults, self.rng, shuffle, fd_limit, order_rng)
        self._files = SimFiles(self._core)
        self._sockets = SimSockets(self._core, self.network, buffers=receive_buffers, buffer_bytes=receive_buffer_bytes)
        self._woken = False
        self._single: tuple[int, int, int] | None = None
        self.pauses = False
        """`submit_and_wait` raises SimPausedError after each event of another process. The driver may look
        whether that is what it waits for, and call again: no pass was made that a real loop does not make."""
        self._signals = signals
        self._pass_ns = pass_ns
        self._shuffle = shuffle
        self.listen = self._sockets.listen
        self.peer_of = self._sockets.peer_of
        self.queue_accept = self._sockets.accept
        self.queue_connect = self._sockets.connect
        self.queue_recv = self._sockets.recv
        self.queue_shutdown = self._sockets.shutdown
        self.queue_poll = self._sockets.poll
        self.stream_pair = self._sockets.stream_pair
        self.bind_port = self._sockets.bind_port
        self.open_mailbox = self._sockets.open_mailbox
        self.send_descriptor = self._sockets.send_descriptor
        self.take_descriptor = self._sockets.take_descriptor
        self.send_now = self._sockets.send_now
        self.received = self._sockets.received
        self.recycle = self._sockets.recycle
        self.queue_close = self._files.close
        self.queue_read = self._files.read
        self.queue_commit = self._files.commit
        self.write_now = self._files.write_now
        self.write_address = 0
        self.write_parts_now = self._files.write_parts_now
        self.sync_now = self._files.sync_now
        self.read_now = self._files.read_now
        self.queue_rename = self._files.rename
        self.queue_unlink = self._files.unlink

    def queue_sends(self, sends: Sequence[Send]) -> None:
        for user_data, fd, data in sends:
            self._sockets.send(user_data, fd, data)

    def pinned(self) -> dict[int, int]:
        return {}

    def queue_open(self, user_data: int, path: str, flags: int, mode: int) -> None:
        self._files.open(user_data, path, flags)

    def queue_write(self, user_data: int, fd: int, buffer: Buffer, offset: int, *, dsync: bool = False) -> None:
        self._files.write(user_data, fd, buffer, offset, dsync=dsync)

    def queue_fsync(self, user_data: int, fd: int, *, data_only: bool) -> None:
        self._files.fsync(user_data, fd)

    # --- control ---------------------------------------------------------------------------------------------------
    def queue_cancel(self, user_data: int, target: int) -> None:
        def end(operation: Operation) -> None:
            core = self._core
            found = core.in_flight.get(target)
            if found is None:
                core.complete(operation, -errno.ENOENT)
            elif found.is_ending or found.cancel is too_late:
                core.complete(operation, -errno.EALREADY)
            elif core.tells_first():
                found.is_ending = True
                core.complete(operation, 0)
                core.later("cancel", lambda: core.in_flight.get(target) is found and found.cancel())
            else:
                core.complete(operation, 0 if found.cancel() else -errno.EALREADY)

        self._core.queue(user_data, "cancel", lambda operation: self._core.later("cancel", lambda: end(operation)))

    def submit_and_wait(self, timeout_ns: int | None) -> None:
        core = self._core
        assert not core.dead, "the ring is closed"
        if core.stopped:
            raise core.stop_error()
        if self._single is not None:
            self.recycle([self._single[2]])
            self._single = None
        core.submit()
        now = self.clock.monotonic_ns()
        took_ns = self._pass_ns[int(self.rng.random() * len(self._pass_ns))]
        self.events.advance_to(now + took_ns)
        if self._shuffle and self.rng.random() < 0.02 and self._signals:
            return  # as after a signal
        deadline = None if timeout_ns is None else now + timeout_ns
        while not core.wakes and not self._woken:
            due = self.events.next_due_ns()
            if deadline is not None and (due is None or due > deadline):
                self.events.advance_to(deadline)
                break
            if due is None and core.completions[0]:
                break
            if due is None:
                raise SimStalledError(f"seed {self.seed}: nothing will ever happen; waiting are {self.waiting()}")
            effects = core.effects
            self.events.advance_to(due)
            if self.pauses and not core.wakes and not self._woken and core.effects == effects:
                raise SimPausedError
        self._woken = False

    def wait_single(self, timeout_ns: int | None) -> Single | None:
        self.submit_and_wait(timeout_ns)
        rows = list(zip(*self._core.completions, strict=True))
        if len(rows) != 1 or rows[0][1] <= 0 or rows[0][2] & F_DATA_AND_MORE != F_DATA_AND_MORE:
            return None
        self.reap()
        self._single = user_data, res, flags = rows[0]
        return user_data, self.received(flags, res)

    def reap(self) -> Completions:
        core = self._core
        completions = core.completions
        if self._single is not None:
            for column, number in zip(completions, self._single, strict=True):
                column.insert(0, number)
            self._single = None
        most = core.completions_max
        if most and len(completions[0]) > most:  # the kernel keeps the others until there is room
            first, second, third = completions
            core.completions = (first[most:], second[most:], third[most:])
            core.wakes = True
            return first[:most], second[:most], third[:most]
        core.completions = ([], [], [])
        core.wakes = False
        return completions

    def wake(self) -> None:
        self._woken = True

    def close(self) -> None:
        self._stop(reset=False)

    def run_in_thread(self, run: Callable[[], None]) -> None:
        """Runs it as one event. A call in it that hangs ends it there."""
        if self._core.killed:
            raise SimDeadError("the simulated process is dead")
        self._core.later("thread", run)

    # --- blocking calls --------------------------------------------------------------------------------------------
    def make_directory(self, path: str) -> bool:
        self._files.fail_blocking("make_directory", path)
        return self.disk.make_directory(path)

    def remove_directory(self, path: str) -> None:
        self._files.fail_blocking("remove_directory", path)
        self.disk.remove_directory(path)

    def link(self, path: str, new: str) -> None:
        self._files.fail_blocking("link", path)
        self.disk.link(path, new)

    def list_directory(self, path: str) -> list[str]:
        self._files.fail_blocking("list_directory", path)
        return self.disk.list_directory(path)

    def file_size(self, path: str) -> int:
        self._files.fail_blocking("file_size", path)
        node = self.disk.find(path)
        return len(node.live) if isinstance(node, SimFile) else 0

    def lock(self, path: str, *, shared: bool = False) -> int:
        self._files.fail_blocking("lock", path)
        return self._files.lock(path, shared=shared)

    def unlock(self, fd: int) -> None:
        """Do nothing for a dead process, whose lock ended with it."""
        if not self._core.dead:
            self._core.close_fd(fd)

    def lstat(self, path: str) -> os.stat_result:
        """Everything belongs to the user of this process, and there are no links."""
        node = self.disk.find(path)
        is_file = isinstance(node, SimFile)
        kind = stat.S_IFREG | 0o600 if is_file else stat.S_IFDIR | 0o700
        size, changed_ns = (len(node.live), node.changed) if isinstance(node, SimFile) else (0, 0)
        ten = (kind, id(node), self.disk.device_of(path), 1, os.geteuid(), os.getegid(), size, 0, 0, 0)
        return os.stat_result(ten, {"st_mtime_ns": changed_ns})

    def allocate(self, fd: int, size: int) -> None:
        self._files.fail_blocking("allocate", self._core.handle_of(fd).path)
        self._files.allocate(fd, size)

    def free_bytes(self, path: str) -> int:
        self.disk.find(path)
        return self.disk.free_bytes()

    def volume_bytes(self, path: str) -> int:
        self.disk.find(path)
        return self.disk.volume_bytes

    def direct_block_bytes(self, path: str) -> int:
        return self.disk.direct_block_bytes

    def send_datagram(self, address: str, data: bytes) -> int:
        if self._core.killed:
            raise SimDeadError("the simulated process is dead")
        received, mailbox = self.network.datagrams.get(address), self.network.mailboxes.get(address)
        if mailbox is not None:
            return 0 if mailbox.send(data) else -errno.EAGAIN
        if received is None:
            return -errno.ECONNREFUSED if address in self.network.left else -errno.ENOENT
        received.append(data)
        return 0

    def boot_id(self) -> str:
        return self.disk.boot_id

    def random_bytes(self, count: int) -> bytes:
        return self._random_bytes.randbytes(count)

    # --- what only a simulator can do ------------------------------------------------------------------------------
    def waiting(self) -> list[str]:
        """Kinds and user_data of the operations in flight, for messages."""
        return [f"{operation.kind} {operation.user_data:#x}" for operation in self._core.in_flight.values()]

    @property
    def fd_limit(self) -> int:
        """RLIMIT_NOFILE: descriptors are below it, or there is EMFILE."""
        return self._core.fd_limit

    @fd_limit.setter
    def fd_limit(self, limit: int) -> None:
        self._core.fd_limit = limit

    @property
    def holds_faults(self) -> bool:
        """Whether no operation of this process fails for now, and none counts for a rule of `faults`."""
        return self._core.holds_faults

    @holds_faults.setter
    def holds_faults(self, holds: bool) -> None:
        self._core.holds_faults = holds

    @property
    def sync_factor(self) -> int:
        """How many times longer than usual a sync takes: a disk that is late."""
        return self._core.sync_factor

    @sync_factor.setter
    def sync_factor(self, factor: int) -> None:
        self._core.sync_factor = factor

    @property
    def slow_ns(self) -> dict[str, int]:
        """To be changed: what operations of a kind ("write", "sync") take instead of the usual time, in this life."""
        return self._core.slow_ns

    @property
    def completions_max(self) -> int:
        """Room of the completion queue; 0: no end."""
        return self._core.completions_max

    @completions_max.setter
    def completions_max(self, count: int) -> None:
        self._core.completions_max = count

    @property
    def open_fds(self) -> list[int]:
        return sorted(self._core.fds)

    @property
    def listeners(self) -> list[SimListener]:
        """The listeners of this process."""
        return [handle.node for handle in self._core.fds.values() if isinstance(handle.node, SimListener)]

    def kill(self) -> SimDisk:
        """SIGKILL: the process is gone, the page cache is not. Returns the disk for the next ring."""
        self._core.killed = True
        self._stop(reset=False)
        return self.disk

    def power_cut(self) -> SimDisk:
        """The machine is gone. Returns what the platter holds, by the seed, as a new disk of a new boot."""
        self._core.killed = True
        self._stop(reset=True)
        return self.disk.after_power_cut(self.rng)

    def next_life(self, *, power_cut: bool) -> SimRing:
        """Kills this process or cuts the power, and starts the next: same seed, clock, network, faults and options."""
        disk = self.power_cut() if power_cut else self.kill()
        return SimRing(
            self.seed, network=self.network, disk=disk, faults=self.faults, life=self.life + 1, **self._options
        )

    def beside(self, process: str) -> SimRing:
        """Starts another process on the same machine: same seed, life, clock, network, disk, faults and options."""
        network, disk, faults = self.network, self.disk, self.faults
        return SimRing(
            self.seed, network=network, disk=disk, faults=faults, life=self.life, process=process, **self._options
        )

    @property
    def has_news(self) -> bool:
        """A wait would end at once: something has completed, or the ring was woken."""
        return self._core.wakes or self._woken

    def submit(self) -> None:
        """Begins what is queued, as the next wait would, for a driver that lets other processes run before it."""
        self._core.submit()

    @property
    def has_stopped(self) -> bool:
        """SimStoppedError was raised: the point of `stop_at` is reached."""
        return self._core.stopped

    @property
    def failed_syncs(self) -> list[tuple[int, str]]:
        """Instants (ns), and the paths of the files."""
        return self._core.failed_syncs

    @property
    def effects(self) -> int:
        """Operations that have taken effect: the crash points of a run."""
        return self._core.effects

    def stop_at(self, effect: int) -> None:
        """`submit_and_wait` raises SimStoppedError once this many operations have taken effect."""
        self._core.stop_at = effect
        self._core.stopped = False

    def put_file(self, path: str, data: bytes) -> None:
        """Lays down a file, durable with its name and its directories; for arranging tests."""
        parts = path.strip("/").split("/")
        for depth in range(1, len(parts)):
            self.disk.make_directory("/".join(parts[:depth]))
        file = self.disk.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        assert isinstance(file, SimFile)
        self.disk.write(file, 0, data)
        file.sync(file.order)
        self.disk.sync_everything()

    def corrupt_file(self, path: str, offset: int, mask: int = 0x01) -> None:
        """Bit rot: flips bits of one byte, on the platter and in the cache."""
        file = self.disk.find(path)
        assert isinstance(file, SimFile), f"{path} is a directory"
        for image in (file.live, file.durable):
            if offset < len(image):
                image[offset] ^= mask

    def file_bytes(self, path: str) -> bytes:
        """The file as a buffered read sees it now. Raises FileNotFoundError."""
        file = self.disk.find(path)
        assert isinstance(file, SimFile), f"{path} is a directory"
        return bytes(file.live)

    def _stop(self, *, reset: bool) -> None:
        core = self._core
        if core.dead:
            return
        core.dead = True
        effects: list[Callable[[], object]] = [o.if_interrupted for o in core.in_flight.values() if o.if_interrupted]
        for effect in effects:
            if self.rng.random() < 0.5:
                effect()
        handles = [*core.fds.values(), *(o.handle for o in core.in_flight.values() if o.handle is not None)]
        core.in_flight.clear()
        core.queued.clear()
        core.completions = ([], [], [])
        uses = Counter(map(id, handles))
        for handle in {id(handle): handle for handle in handles}.values():
            handle.uses -= uses[id(handle)] - 1  # a process that it was sent to still uses it
            if reset and isinstance(handle.node, Endpoint):
                handle.node.reset()
            core.release(handle)
        core.fds.clear()
