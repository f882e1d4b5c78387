"""A disk in memory: files, directories whose entries wait for an fsync, space that runs out, and power that fails."""

from __future__ import annotations

import copy
import errno
import functools
import os
import posixpath
import random
from collections.abc import Callable
from typing import NamedTuple

from tests.sim.world.sim_file import BLOCK_BYTES, SimFile


class SimDirectory:
    """Names of one directory. `durable` is what a power cut leaves for certain."""

    def __init__(self) -> None:
        self.live: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.device = 0
        """The device that is mounted here; 0: none is."""


Node = SimFile | SimDirectory


class NameChange(NamedTuple):
    """An unsynced change of names: `node` enters `new` and leaves `old`, as one (a rename is atomic)."""

    order: int
    old: tuple[SimDirectory, str] | None
    new: tuple[SimDirectory, str] | None
    node: Node

    def applies(self) -> bool:
        """Whether the durable names still are as this change found them (an earlier one may have been lost)."""
        if self.old is not None:
            return self.old[0].durable.get(self.old[1]) is self.node
        assert self.new is not None, "a change of names that changes none"
        return self.new[1] not in self.new[0].durable

    def apply(self) -> None:
        if self.old is not None:
            self.old[0].durable.pop(self.old[1], None)
        if self.new is not None:
            self.new[0].durable[self.new[1]] = self.node


class SimDisk:
    """Paths to files. All errors are OSError with errno and path, as the kernel gives them.

    Args: capacity_bytes, space in all (None: no end); direct_block_bytes, alignment of O_DIRECT (0: it is refused).
    """

    def __init__(self, *, capacity_bytes: int | None = None, direct_block_bytes: int = 4096, boots: int = 1) -> None:
        self.capacity_bytes = capacity_bytes
        self.direct_block_bytes = direct_block_bytes
        self.file_bytes_max: int | None = None
        """RLIMIT_FSIZE: a write across it is short, one beyond it -EFBIG."""
        self.boots = boots
        self.root = SimDirectory()
        self.changes: list[NameChange] = []
        self.watch: Callable[[str, str, Node], None] = _nobody
        """Called with every rename (old, new) and unlink (path, "") before it takes effect."""
        self._order = 0
        self._used = 0

    def copy(self) -> SimDisk:
        """Return a copy, for a process that must not change this disk."""
        watch, self.watch = self.watch, _nobody
        try:
            return copy.deepcopy(self)
        finally:
            self.watch = watch

    def contents(self, path: str) -> dict[str, bytes | None]:
        """Return all paths below a directory: the bytes of files, None for directories."""
        found: dict[str, bytes | None] = {}
        for name in self.list_directory(path):
            node, below = self.find(f"{path}/{name}"), f"{path}/{name}"
            found |= {below: bytes(node.live)} if isinstance(node, SimFile) else {below: None, **self.contents(below)}
        return found

    # --- names -----------------------------------------------------------------------------------------------------
    def find(self, path: str) -> Node:
        node: Node = self.root
        for part in _parts(path):
            if not isinstance(node, SimDirectory):
                raise _error(errno.ENOTDIR, path)
            found = node.live.get(part)
            if found is None:
                raise _error(errno.ENOENT, path)
            node = found
        return node

    def device_of(self, path: str) -> int:
        """The device that a path is on: that of the nearest mount point at or above it."""
        parts = _parts(path)
        nodes = [self.find("/".join(parts[:count])) for count in range(len(parts) + 1)]
        return next((node.device for node in reversed(nodes) if isinstance(node, SimDirectory) and node.device), 0)

    def open(self, path: str, flags: int) -> Node:
        """The node, created or cut as the flags ask. The caller counts `opens` of a file."""
        directory, name = self._parent(path)
        node: Node | None = directory.live.get(name) if name else directory
        if node is None:
            if not flags & os.O_CREAT:
                raise _error(errno.ENOENT, path)
            node = SimFile()
            self._change(None, (directory, name), node)
        elif flags & os.O_CREAT and flags & os.O_EXCL:
            raise _error(errno.EEXIST, path)
        if isinstance(node, SimDirectory):
            if flags & (os.O_WRONLY | os.O_RDWR):
                raise _error(errno.EISDIR, path)
        elif flags & os.O_DIRECTORY:
            raise _error(errno.ENOTDIR, path)
        elif flags & os.O_DIRECT and not self.direct_block_bytes:
            raise _error(errno.EINVAL, path)
        elif flags & os.O_TRUNC:
            self._resized(node, lambda file: file.resize(0, shrink=True))
        return node

    def make_directory(self, path: str) -> bool:
        directory, name = self._parent(path)
        if not name or name in directory.live:
            return False
        self._change(None, (directory, name), SimDirectory())
        return True

    def remove_directory(self, path: str) -> None:
        directory, name = self._parent(path)
        node = directory.live.get(name)
        if node is None:
            raise _error(errno.ENOENT, path)
        if not isinstance(node, SimDirectory):
            raise _error(errno.ENOTDIR, path)
        if node.live:
            raise _error(errno.ENOTEMPTY, path)
        self._change((directory, name), None, node)

    def list_directory(self, path: str) -> list[str]:
        node = self.find(path)
        if not isinstance(node, SimDirectory):
            raise _error(errno.ENOTDIR, path)
        return sorted(node.live)

    def rename(self, old: str, new: str) -> None:
        source, old_name = self._parent(old)
        target, new_name = self._parent(new)
        node = source.live.get(old_name)
        if node is None:
            raise _error(errno.ENOENT, old)
        if isinstance(target.live.get(new_name), SimDirectory):
            raise _error(errno.EISDIR, new)
        if (source, old_name) != (target, new_name):
            self.watch(old, new, node)
            self._change((source, old_name), (target, new_name), node)

    def link(self, path: str, new: str) -> None:
        node = self.find(path)
        directory, name = self._parent(new)
        if name in directory.live:
            raise _error(errno.EEXIST, new)
        if isinstance(node, SimDirectory):
            raise _error(errno.EPERM, path)
        self._change(None, (directory, name), node)

    def unlink(self, path: str) -> None:
        directory, name = self._parent(path)
        node = directory.live.get(name)
        if node is None:
            raise _error(errno.ENOENT, path)
        if isinstance(node, SimDirectory):
            raise _error(errno.EISDIR, path)
        self.watch(path, "", node)
        self._change((directory, name), None, node)

    @property
    def order(self) -> int:
        """Number of the latest change of names; a directory's fsync covers what came before it started."""
        return self._order

    def sync_directory(self, directory: SimDirectory, upto: int) -> None:
        """Makes this directory's entries durable (a rename between two, in both)."""
        rest: list[NameChange] = []
        for change in self.changes:
            touches = any(side is not None and side[0] is directory for side in (change.old, change.new))
            if touches and change.order <= upto:
                change.apply()
            else:
                rest.append(change)
        self.changes = rest

    def sync_everything(self) -> None:
        """sync(2) for names: all of them are durable."""
        for change in self.changes:
            change.apply()
        self.changes = []

    # --- space -----------------------------------------------------------------------------------------------------
    def write(self, file: SimFile, offset: int, data: bytes) -> int:
        """Count taken: all, or as much as there is space for; -ENOSPC or -EFBIG for none."""
        if self.file_bytes_max is not None:
            if offset >= self.file_bytes_max and data:
                return -errno.EFBIG
            data = data[: self.file_bytes_max - offset]
        room = self._room_for(file, offset + len(data))
        if room < offset + len(data):
            data = data[: max(0, room - offset)]
            if not data:
                return -errno.ENOSPC
        self._resized(file, lambda file: file.write(offset, data))
        return len(data)

    def allocate(self, file: SimFile, size: int) -> None:
        if self._room_for(file, size) < size:
            raise _error(errno.ENOSPC, "")
        self._resized(file, lambda file: file.resize(size, shrink=False))

    @property
    def used_bytes(self) -> int:
        """Space taken by files, in whole blocks."""
        return self._used

    @property
    def volume_bytes(self) -> int:
        return 1 << 40 if self.capacity_bytes is None else self.capacity_bytes

    def free_bytes(self) -> int:
        return max(0, self.volume_bytes - self._used)

    def forget(self, file: SimFile) -> None:
        """Frees the space of a file that has neither a name nor a descriptor any more."""
        if file.links == 0 and file.opens == 0:
            self._used -= file.space_bytes
            file.live.clear()

    # --- the end ---------------------------------------------------------------------------------------------------
    @property
    def boot_id(self) -> str:
        return f"simulated-boot-{self.boots:04d}"

    def after_power_cut(self, rng: random.Random) -> SimDisk:
        """A new disk, started once more: of every unsynced sector and name the seed decides whether it is there."""
        after = SimDisk(
            capacity_bytes=self.capacity_bytes, direct_block_bytes=self.direct_block_bytes, boots=self.boots + 1
        )
        # A journal keeps a prefix of the changes; POSIX promises less, so half of the cuts take any
        # subset.
        kept = len(self.changes)
        in_order = rng.random() < 0.5
        if in_order:
            kept = rng.randint(0, len(self.changes))
        for change in self.changes[:kept]:
            if (in_order or rng.random() < 0.5) and change.applies():
                change.apply()
        copies: dict[int, SimFile] = {}
        after.root = self._surviving(self.root, rng, copies)
        after._used = sum(file.space_bytes for file in copies.values())
        return after

    def _surviving(self, directory: SimDirectory, rng: random.Random, copies: dict[int, SimFile]) -> SimDirectory:
        copy = SimDirectory()
        for name, node in directory.durable.items():
            if isinstance(node, SimDirectory):
                copy.durable[name] = self._surviving(node, rng, copies)
                continue
            if id(node) not in copies:
                file = copies[id(node)] = SimFile()
                file.durable = bytearray(node.crash_image(rng))
                file.live = bytearray(file.durable)
            copies[id(node)].links += 1
            copy.durable[name] = copies[id(node)]
        copy.live = dict(copy.durable)
        return copy

    # --- inside ----------------------------------------------------------------------------------------------------
    def _parent(self, path: str) -> tuple[SimDirectory, str]:
        parts = _parts(path)
        node = self.find("/".join(parts[:-1]))
        if not isinstance(node, SimDirectory):
            raise _error(errno.ENOTDIR, path)
        return node, parts[-1] if parts else ""

    def _change(self, old: tuple[SimDirectory, str] | None, new: tuple[SimDirectory, str] | None, node: Node) -> None:
        replaced: Node | None = None
        if old is not None:
            del old[0].live[old[1]]
        if new is not None:
            replaced = new[0].live.get(new[1])
            new[0].live[new[1]] = node
        if isinstance(node, SimFile):
            node.links += (new is not None) - (old is not None)
            self.forget(node)
        if isinstance(replaced, SimFile):
            replaced.links -= 1
            self.forget(replaced)
        self._order += 1
        self.changes.append(NameChange(self._order, old, new, node))

    def _room_for(self, file: SimFile, size: int) -> int:
        """Highest size (bytes) up to which this file may grow, when it is to have `size`."""
        if self.capacity_bytes is None or size <= file.space_bytes:
            return size
        return min(size, file.space_bytes + max(0, self.capacity_bytes - self._used) // BLOCK_BYTES * BLOCK_BYTES)

    def _resized(self, file: SimFile, change: Callable[[SimFile], None]) -> None:
        self._order += 1
        file.changed = self._order
        before = file.space_bytes
        change(file)
        self._used += file.space_bytes - before


@functools.lru_cache(1 << 12)
def _parts(path: str) -> list[str]:
    return [part for part in posixpath.normpath("/" + path).split("/") if part]


def _nobody(_old: str, _new: str, _node: Node) -> None:
    pass


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
