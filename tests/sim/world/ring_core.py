"""Common parts of the simulated ring's two halves: operations in flight, descriptors, completions, chance."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from tests.sim.world.events import Events
from tests.sim.world.faults import Fault, Faults, HangsError
from tests.sim.world.network import Endpoint, SimListener, SimMailbox
from tests.sim.world.sim_disk import SimDirectory, SimDisk
from tests.sim.world.sim_file import SimFile
from topics.loop.ring import F_MORE, Completions

LATENCY_NS = {"sync": 100_000, "write": 30_000, "read": 20_000, "open": 20_000, "rename": 20_000, "unlink": 20_000}
SHORT_LATENCY_NS = 5_000
_FACTORS = (0.1, 0.3, 1, 1, 3, 20)
"""Factors of an operation's usual time, drawn for each when completions come in any order."""


class SimStoppedError(BaseException):
    """The run has reached the point where it was to stop: kill the ring or cut its power, and start another."""


class SimPausedError(BaseException):
    """Something happened outside the process, and its wait continues: see `SimRing.pauses`."""


class SimDeadError(GeneratorExit):
    """A dead process runs no code. Its coroutines, when collected, get this from their `finally` and end in peace."""


@dataclass(slots=True, eq=False)
class Handle:
    """An open file description. As in the kernel it lives until its descriptor and the last operation are gone."""

    node: SimFile | SimDirectory | Endpoint | SimListener | SimMailbox
    path: str = ""
    flags: int = 0
    uses: int = 1


def too_late() -> bool:
    return False


@dataclass(slots=True, eq=False)
class Operation:
    """One operation between queueing and its final completion."""

    user_data: int
    kind: str
    handle: Handle | None = None
    cancel: Callable[[], bool] = too_late
    """Ends it with -ECANCELED if that is still possible."""
    is_ending: bool = False
    """It was cancelled: nothing more comes of it."""
    if_interrupted: Callable[[], object] | None = None
    """The effect it may have had when the process or the machine stops in the middle of it."""


@dataclass(slots=True, eq=False)
class Core:
    """The state of one simulated process's ring."""

    events: Events
    disk: SimDisk
    faults: Faults
    rng: random.Random
    shuffle: bool
    fd_limit: int
    order_rng: random.Random
    """Decides which of two completions comes first, that of what ends an operation or the operation's own."""
    in_flight: dict[int, Operation] = field(default_factory=dict)
    queued: list[tuple[Callable[[Operation], None], Operation]] = field(default_factory=list)
    """The work that begins when it is submitted."""
    fds: dict[int, Handle] = field(default_factory=dict)
    completions: Completions = field(default_factory=lambda: ([], [], []))
    holds_faults: bool = False
    """Whether none of its operations fails for now, and none counts for a rule."""
    sync_factor: int = 1
    """How many times longer than usual a sync takes."""
    slow_ns: dict[str, int] = field(default_factory=dict)
    """Times of operations of a kind, instead of the usual time."""
    wakes: bool = False
    """One of them ends a wait. A close's result waits for another one: no caller needs it soon."""
    dead: bool = False
    killed: bool = False
    completions_max: int = 0
    """Room of the completion queue; 0: no end. In a full one a multishot ends; nothing is lost."""
    effects: int = 0
    """Operations that have taken effect so far."""
    failed_syncs: list[tuple[int, str]] = field(default_factory=list)
    """Instants, and the paths of the files."""
    stop_at: int = 0
    """Number of the effect after which the run stops with SimStoppedError; 0: none."""
    stopped: bool = False
    """It has: nothing continues, whatever is tried in an `except` or `finally` on the way out."""

    def queue(self, user_data: int, kind: str, start: Callable[[Operation], None]) -> None:
        """Registers an operation; `start` is called when it is submitted."""
        if self.killed:
            raise SimDeadError("the simulated process is dead")
        assert not self.dead, "the ring is closed"
        assert user_data != 0, "user_data 0 belongs to no operation"
        assert user_data not in self.in_flight, f"user_data {user_data:#x} is in flight already"
        operation = self.in_flight[user_data] = Operation(user_data, kind)
        self.queued.append((start, operation))

    def submit(self) -> None:
        starts, self.queued = self.queued, []
        for start, operation in starts:
            start(operation)

    def take_fault(self, kind: str, path: str = "") -> Fault | None:
        """Counts an operation; returns its fault if one is planned for it."""
        return self.faults.take(kind, path, is_held=self.holds_faults)

    def usual_ns(self, kind: str) -> int:
        return self.slow_ns.get(kind) or LATENCY_NS.get(kind, SHORT_LATENCY_NS)

    def takes_ns(self, kind: str) -> int:
        """Draws what one operation of this kind takes now."""
        delay = self.usual_ns(kind)
        if kind == "sync":
            delay *= self.sync_factor
        if self.shuffle:
            delay = int(delay * _FACTORS[int(self.rng.random() * len(_FACTORS))])
        return delay

    def later(self, kind: str, action: Callable[[], object]) -> None:
        """Runs `action` once an operation of this kind has taken its time; never after the end of the ring."""
        self.events.after(self.takes_ns(kind), partial(self.take_effect, action))

    def block(self, kind: str, action: Callable[[], object]) -> None:
        """Runs `action` after that time, for which the process waits. What is due meanwhile comes after it."""
        self.events.clock.advance_ns(self.takes_ns(kind))
        self.take_effect(action)

    @property
    def ends_now(self) -> bool:
        """The operation that takes effect is the last: the process may stop in the middle of it."""
        return self.shuffle and self.effects + 1 == self.stop_at

    def take_effect(self, action: Callable[[], object]) -> None:
        if self.dead:
            return
        try:
            action()
        except HangsError:
            return
        self.effects += 1
        if self.effects == self.stop_at:
            self.stopped = True
            raise self.stop_error()

    def stop_error(self) -> SimStoppedError:
        return SimStoppedError(f"stopped after {self.effects} operations")

    def hold(self, operation: Operation, fd: int) -> Handle | None:
        """The handle of a descriptor, kept until the operation completes; None after completing it with -EBADF."""
        handle = self.fds.get(fd)
        if handle is None:
            self.complete(operation, -errno.EBADF)
            return None
        handle.uses += 1
        operation.handle = handle
        return handle

    def complete(self, operation: Operation, res: int, flags: int = 0) -> None:
        """Adds a completion; without F_MORE it is the last one of the operation."""
        if not flags & F_MORE:
            del self.in_flight[operation.user_data]
            if operation.handle is not None:
                self.release(operation.handle)
        user_data_column, res_column, flags_column = self.completions
        self.wakes = self.wakes or operation.kind != "close"
        user_data_column.append(operation.user_data)
        res_column.append(res)
        flags_column.append(flags)

    @property
    def queue_is_full(self) -> bool:
        return 0 < self.completions_max <= len(self.completions[0]) + 1

    def note_failed_sync(self, handle: Handle) -> None:
        self.failed_syncs.append((self.events.clock.monotonic_ns(), handle.path))

    def tells_first(self) -> bool:
        """A cancel or shutdown completes, and a while later what it ends: the kernel promises no order of the two."""
        return self.shuffle and self.order_rng.random() < 0.5

    def cancelled(self, operation: Operation) -> bool:
        """Ends a waiting operation at once; the usual `Operation.cancel`."""
        self.complete(operation, -errno.ECANCELED)
        return True

    # --- descriptors -----------------------------------------------------------------------------------------------
    def _free_fd(self) -> int:
        fd = 3
        while fd in self.fds:
            fd += 1
        return fd

    @property
    def has_fd(self) -> bool:
        """There is a descriptor to be had."""
        return len(self.fds) + 3 < self.fd_limit or self._free_fd() < self.fd_limit

    def new_fd(self, handle: Handle) -> int:
        """The lowest free number, as the kernel has it (so that a stale number hits another file); or -EMFILE."""
        fd = self._free_fd()
        if fd >= self.fd_limit:
            return -errno.EMFILE
        self.fds[fd] = handle
        return fd

    def new_fd_now(self, handle: Handle) -> int:
        """For a blocking call. Raises OSError, and then the handle is closed."""
        fd = self.new_fd(handle)
        if fd < 0:
            self.release(handle)
            raise OSError(-fd, os.strerror(-fd))
        return fd

    def release(self, handle: Handle) -> None:
        """One use less; the last one closes."""
        handle.uses -= 1
        if handle.uses:
            return
        node = handle.node
        if isinstance(node, SimFile):
            node.opens -= 1
            if handle in node.locked_by:
                node.locked_by.remove(handle)
            self.disk.forget(node)
        elif not isinstance(node, SimDirectory):
            node.close()

    def close_fd(self, fd: int) -> int:
        handle = self.fds.pop(fd, None)
        if handle is None:
            return -errno.EBADF
        self.release(handle)
        return 0

    def handle_of(self, fd: int) -> Handle:
        """For the blocking calls. Raises OSError(EBADF)."""
        if fd not in self.fds:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self.fds[fd]
