"""Every byte of a small data directory rots in its turn: fsck says so, and no reader is ever shown a wrong record.

python -m tests.sim.rot [--every 1]

A flipped byte may stop the start, or fail the read it is met in, or take the last batch of the log, which looks like
a torn end then; what is served is what was written. Under no checksum are the flags of deleted records (a flip
that could bring one back has to be met by the other copy of the flag) and what is never read: padding, and what
recycled files hold behind their end.
"""

from __future__ import annotations

import argparse
import copy
import logging
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tests.contract.sim_world import SimWorld
from tests.sim import SimRing
from tests.sim.disk import SimDisk
from topics.loop.loop import Loop
from topics.store.fsck import verify

SETTINGS: dict[str, Any] = {
    "wal_file_bytes": 64 << 10,
    "pack_run_bytes": 600,
    "segment_max_events": 12,
    "checkpoint_wal_bytes": 1,
    "hot_tail_bytes": 0,
    "sync_every_ms": 1,
}
DIRECTORY = "/srv/topics"


class Store:
    """A directory with sealed and unsealed segments, packs, deleted records, two snapshots and a log behind them."""

    def __init__(self) -> None:
        world = SimWorld(**SETTINGS)
        world.start()
        self.written: dict[str, dict[int, tuple[Any, Any]]] = {"long": {}, "short": {}, "capped": {}}
        for round_ in range(3):
            for name, count in (("long", 12), ("short", 2), ("capped", 3)):
                world.put(name, durability="fsync", cap_records=5 if name == "capped" else 0)
                rows = [(f"{name} {round_} {at}", f"t:{at % 3}") for at in range(count)]
                said = world.write_records(name, [{"data": data, "tag": tag} for data, tag in rows])
                self.written[name].update(zip(said["seqs"], rows, strict=True))
            world.delete("long", match="t:2", before_seq=12 * round_ + 7)
            world.delete("short", before_seq=round_ + 1)
            if round_ < 2:
                world.advance_ms(1100)
        self.wanted = {name: answers(world, name) for name in ("long", "short", "capped")}
        world.crash()
        self.disk: SimDisk = world.ring.disk
        self.paths = sorted(world._files(DIRECTORY))

    def size(self, path: str) -> int:
        return len(self._live(self.disk, path))

    @staticmethod
    def _live(disk: SimDisk, path: str) -> bytearray:
        return disk.find(path).live  # type: ignore[union-attr]

    def used(self, path: str) -> int:
        """Bytes up to the last one that is not zero, and a block: behind that nothing is ever read."""
        return min(self.size(path), len(bytes(self._live(self.disk, path)).rstrip(b"\0")) + 64)

    def rotten(self, path: str, at: int, mask: int) -> SimWorld:
        """The directory with one byte changed, in the hands of a server that does not run yet."""
        world = SimWorld(**SETTINGS)
        disk = copy.deepcopy(self.disk)
        file = disk.find(path)
        for image in (file.live, file.durable):  # type: ignore[union-attr]
            if at < len(image):
                image[at] ^= mask
        world.ring = SimRing(0, disk=disk, fd_limit=4096)
        return world


def answers(world: SimWorld, name: str) -> dict[int, tuple[Any, Any]] | None:
    """Every record of a topic; None when the server says that it cannot read it."""
    found: dict[int, tuple[Any, Any]] = {}
    cursor = 0
    while True:
        answer = world.request("POST", f"/v0/topics/{name}/diff", {"from_seq": cursor, "include_tags": True})
        if answer.status != 200:
            return None
        page = answer.json
        found |= {row["$seq"]: (row["data"], row.get("$tag")) for row in page["records"]}
        if page["caught_up"]:
            return found
        cursor = page["next_from_seq"]


def rot(every: int, counts: Counter[str]) -> Iterator[str]:
    """Yields what went wrong."""
    store = Store()
    number = 0
    for path in store.paths:
        if path.endswith("/lock") or "/spare-" in path:
            continue
        for at in range(store.used(path)):
            number += 1
            if number % every:
                continue
            mask = 1 << (number // every) % 8
            world = store.rotten(path, at, mask)
            loop = Loop(world.ring, world.ring.clock)
            findings = loop.run_task(verify(loop, DIRECTORY)).findings
            counts["bytes flipped"] += 1
            counts["found by fsck"] += bool(findings)
            yield from _serve(store, world, f"{path} byte {at} bit {mask:#x}", bool(findings), counts)


def _serve(store: Store, world: SimWorld, place: str, found: bool, counts: Counter[str]) -> Iterator[str]:
    world.ring = SimRing(0, disk=world.ring.disk, fd_limit=4096)
    if not world.try_to_start():
        counts["stopped the start"] += 1
        if not found:
            yield f"{place}: stops the start, and fsck finds nothing"
        return
    for name, wanted in store.wanted.items():
        shown = answers(world, name)
        if shown is None:
            counts["failed a read"] += 1
            if not found:
                yield f"{place}: {name} cannot be read, and fsck finds nothing"
            continue
        strange = {seq: row for seq, row in shown.items() if wanted.get(seq) != row}
        if shown != wanted and "/wal/" in place and not strange.items() - store.written[name].items():
            counts["took the last batch of the log"] += 1  # which nothing behind it vouches for: a torn end
        elif strange:
            yield f"{place}: {name} shows {strange}"
        elif shown != wanted:
            yield f"{place}: {name} lacks {sorted(wanted.keys() - shown.keys())}"
    world.crash()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="only each so many bytes")
    options = parser.parse_args()
    logging.disable()
    counts: Counter[str] = Counter()
    failed = 0
    for failure in rot(options.every, counts):
        failed += 1
        print(failure, flush=True)
    print(", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
