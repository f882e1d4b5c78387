"""The order of events, checked while it happens, not only after a crash has shown a wrong one.

- An answer to an `fsync` write is not seen before its bytes are on stable storage, in a file whose
  name is, too.
- A file is not renamed before its content is synced.
- A snapshot does not get its name before everything it refers to is durable (listed.py), and before
  every live record in files that it needs no longer has a durable copy where recovery from it finds it.
- Nothing is given up that the snapshot which a power cut leaves needs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tests.sim.whole.monitors.listed import Listed, ahead_of_log, find, newest, place_in_log, read_listed, unready
from tests.sim.world.sim_disk import Node, SimDirectory
from tests.sim.world.sim_file import SimFile
from topics.errors import StorageError
from topics.store.format.compressed_segment import image_of, is_compressed
from topics.store.format.log_format import WalHeader, wal_file_no

if TYPE_CHECKING:
    from tests.sim.whole.monitors.watched_process import Served

TEXT = re.compile(rb'"(~[^~"]+~)')
"""The beginning of the data of every record of these clients, so that one search finds all in a
file.
"""


class Monitor:
    """The checks of one directory."""

    def __init__(self, machine: Served) -> None:
        self._machine = machine
        self.others: list[Monitor] = []
        """The monitors of the other cores' directories, which may have a record, too: routers copy it."""
        self.living: list[Callable[[], set[bytes]]] = []
        """One function of each client: the texts of its records that certainly exist, whatever is
        in flight.
        """
        self._found: dict[tuple[int, int], tuple[SimFile, int, frozenset[bytes]]] = {}
        """By the file's identity and the length that counts: the texts that were durable there
        after so many syncs.
        """
        self._snapshots: dict[int, tuple[SimFile, Listed]] = {}
        self.next_life()

    def next_life(self) -> None:
        """Take the disk of another process, or of another boot."""
        self._machine.ring.disk.watch = self.watch
        self._found.clear()
        self._snapshots.clear()

    def acked(self, texts: list[bytes]) -> None:
        """Check records acknowledged at class `fsync` and not deleted since."""
        if self._machine.lied:
            return
        missing = texts
        files = [file for _name, file in self.durable_files()]
        for file in files:  # first what was synced last, and only then all files
            missing = [text for text in missing if file.durable.find(text, *file.newest) < 0]
        for file in files:
            if not missing:
                break
            data = _inflated(file.durable)
            missing = [text for text in missing if text not in data]
        if not missing:
            self._machine.counts["syncs before acks checked"] += len(texts)
            return
        raise self._machine.wrong(f"acknowledged before it was durable: {sorted(missing)}")

    def watch(self, old: str, new: str, node: Node) -> None:
        """Check a rename or (new: "") an unlink before it takes effect."""
        machine = self._machine
        if not isinstance(node, SimFile) or machine.lied:
            return
        if machine.tracing:
            machine.say("RENAME" if new else "UNLINK", old, new)
        if new and node.pending and "/wal-" not in old and "/spare-" not in old:  # these two are of no value
            raise machine.wrong(f"{old} is renamed to {new} with {len(node.pending)} changes that are not synced")
        if "/snapshots/" in new:
            self._check_snapshot(new, node)
        name = old.rpartition("/")[2]
        if not name.startswith("prepare-") and (not new or "/spare-" in new):
            self._check_given_up(old, node)

    def _check_snapshot(self, path: str, node: SimFile) -> None:
        """Check a snapshot that is about to get its name."""
        machine = self._machine
        listed = read_listed(node.live, path, machine.config)
        machine.counts["snapshots checked"] += 1
        disk, engine = machine.ring.disk, machine.engine
        if problem := unready(listed, disk):
            raise machine.wrong(f"{path} lists {problem}")
        if engine is not None and (problem := ahead_of_log(listed, disk, engine._core)):
            raise machine.wrong(f"{path} tells of {problem}")
        older = self.snapshot(durable=False)
        if older is None:
            return
        for left, file in self.log_files():
            if older.needs(left) and not listed.needs(left):
                self._check_copies(left, file, listed, f"needed by {path} no longer")
        for left in older.ends.keys() - listed.ends.keys():
            given_up = find(disk.root, left, durable=False)
            if isinstance(given_up, SimFile):
                self._check_copies(left, given_up, listed, f"needed by {path} no longer")

    def snapshot(self, *, durable: bool) -> Listed | None:
        """Return the newest snapshot, or (durable) the one that a power cut leaves at least."""
        found = newest(self._machine.ring.disk.root, self._machine.config, durable=durable)
        if found is None:
            return None
        path, file = found
        known = self._snapshots.get(id(file))
        if known is None:
            data = file.live or file.durable  # a file that was replaced has nothing in the cache any more
            known = self._snapshots[id(file)] = file, read_listed(data, path, self._machine.config)
        return known[1]

    def _check_given_up(self, path: str, given_up: SimFile) -> None:
        listed, newer = self.snapshot(durable=True), self.snapshot(durable=False)
        if listed is None or newer is None:
            return
        if listed.needs(path) and not newer.needs(path) and _was_used(path, given_up):
            raise self._machine.wrong(f"{path} is given up, and needed by the snapshot that a power cut leaves")
        if path in listed.ends:
            raise self._machine.wrong(f"{path} is given up, and listed by the newest snapshot")
        if listed.needs(path):  # else it was checked when that snapshot got its name
            self._check_copies(path, given_up, listed, "given up")

    def _check_copies(self, path: str, given_up: SimFile, listed: Listed, what: str) -> None:
        here = set(TEXT.findall(_inflated(given_up.live)))
        if not here:
            return
        wanted = here & set().union(*(living() for living in self.living))
        if not wanted:
            return
        self._machine.counts["files given up with live records copied"] += 1
        for file, end in self.files_of(listed):
            if file is not given_up:
                wanted -= self._texts(file, end)
                if not wanted:
                    return
        for other in self.others:
            theirs = other.snapshot(durable=True)
            for file, end in other.files_of(theirs) if theirs is not None else ():
                wanted -= self._texts(file, end)
        if not wanted:
            return
        raise self._machine.wrong(f"{path} is {what} and has the only durable copy of {sorted(wanted)[:5]}")

    def _texts(self, file: SimFile, end: int) -> frozenset[bytes]:
        """Return the texts of records that are durable in the first bytes of a file."""
        key = id(file), end
        found = self._found.get(key)
        if found is None or found[1] != file.syncs:
            found = self._found[key] = file, file.syncs, frozenset(TEXT.findall(_inflated(file.durable), 0, end))
        return found[2]

    def log_files(self) -> Iterator[tuple[str, SimFile]]:
        path = f"{self._machine.config.data_dir}/wal"
        shards = find(self._machine.ring.disk.root, path, durable=False)
        for shard, names in shards.live.items() if isinstance(shards, SimDirectory) else ():
            for name, file in names.live.items() if isinstance(names, SimDirectory) else ():
                if isinstance(file, SimFile) and place_in_log(f"{shard}/{name}") is not None:
                    yield f"{path}/{shard}/{name}", file

    def files_of(self, listed: Listed, *, log_only: bool = False) -> Iterator[tuple[SimFile, int]]:
        """Yield the files that recovery from a snapshot would read, and how much of each."""
        root, config = self._machine.ring.disk.root, self._machine.config
        shards = find(root, f"{config.data_dir}/wal", durable=True)
        for shard, names in sorted(shards.durable.items()) if isinstance(shards, SimDirectory) else ():
            for name, file in _files(names):
                place = place_in_log(f"{shard}/{name}")
                if place is not None and listed.replay.get(place[0], 0) <= place[1]:
                    yield file, len(file.durable)
        for path, end in listed.ends.items() if not log_only else ():
            node = find(root, path, durable=True)
            if isinstance(node, SimFile):
                yield node, end

    def durable_files(self) -> Iterator[tuple[str, SimFile]]:
        """Yield the files of records that a power cut would certainly leave, the log's newest
        first.
        """
        root, config = self._machine.ring.disk.root, self._machine.config
        for top in (find(root, path, durable=True) for path in (config.data_dir, config.cold_dir) if path):
            if isinstance(top, SimDirectory):
                for name in ("wal", *(name for name in top.durable if name not in ("wal", "snapshots"))):
                    yield from _files(top.durable.get(name))


def _files(node: Node | None) -> Iterator[tuple[str, SimFile]]:
    if not isinstance(node, SimDirectory):
        return
    for name in sorted(node.durable, reverse=True):
        child = node.durable[name]
        if isinstance(child, SimFile):
            if not name.startswith(("spare-", "prepare-")):
                yield name, child
        else:
            yield from _files(child)


def _inflated(data: bytearray) -> bytes | bytearray:
    """Return a file as a segment that is not compressed; nothing if it is not whole."""
    if not is_compressed(data):
        return data
    try:
        return image_of(bytes(data), "")
    except StorageError:
        return b""


def _was_used(path: str, file: SimFile) -> bool:
    """Return whether a log file was taken into use, not only prepared: its header bears its own
    number then.
    """
    try:
        return WalHeader.unpack(bytes(file.live), path).file_no == wal_file_no(path.rpartition("/")[2])
    except StorageError:
        return False
