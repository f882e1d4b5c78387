"""Every byte of a small data directory is flipped in turn: fsck reports it, and no reader gets a
wrong record.

    python -m tests.sim.rot [--every 1] [--only PART] [--jobs 2]

A flipped byte may stop the start, or fail the read that meets it, or remove the last batch of the
log, which looks like a torn end then; all records that are served are those that were written. fsck
finds every flipped byte, except those without meaning: padding, bytes of recycled files after the
log's end, and the note of the boot (a process that cannot read it assumes a power cut). Bytes that
no checksum covers (whether a record is deleted) are tried with each of their bits.
"""

from __future__ import annotations

import argparse
import base64
import copy
import functools
import logging
import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tests.contract.world.sim_world import SimWorld
from tests.sim import SimRing
from tests.sim.world.sim_disk import SimDisk
from topics.errors import CorruptError, StorageError
from topics.loop.loop import Loop
from topics.store.format import codec
from topics.store.format.compressed_segment import (
    HEADER_BYTES,
    blocks_of,
    flag_offsets,
    flag_place,
    image_of,
    is_compressed,
)
from topics.store.format.log_format import (
    BATCH_ALIGN,
    BATCH_HEADER_BYTES,
    BLOCK_BYTES,
    WAL_FIRST_BATCH_OFFSET,
    WAL_HEADER_BYTES,
    BatchHeader,
    WalHeader,
    align_up,
    wal_file_no,
)
from topics.store.layouts.file_kind import FOOTER_BYTES
from topics.store.layouts.index_format import FLAGS_OFFSET_PER_ROW, INDEX_HEADER_BYTES, IndexHeader
from topics.store.layouts.pack_format import PackFooter
from topics.store.repair.verify_directory import verify
from topics.store.segments.pack import scan_runs

SETTINGS: dict[str, Any] = {
    "wal_file_bytes": 64 << 10,
    "pack_run_bytes": 600,
    "segment_max_events": 12,
    "checkpoint_wal_bytes": 1,
    "hot_tail_bytes": 0,
    "sync_every_ms": 1,
    "cold_dir": "/srv/cold",
    "segment_codec": "zstd",
    "hot_retain_segments": 1,
    "compact_below": 0.0,  # a segment with deleted records stays as it is
}
DIRECTORY, COLD = "/srv/topics", "/srv/cold"
_TORN = "in the last batch of the log, which looks torn"
PADDING_BYTES_MIN = 64
"""A row of zeros from this length on is padding."""
TOPICS = ("long", "short", "capped", "jobs", "copies")


class Store:
    """A directory with everything that is stored.

    It has sealed and unsealed segments, some of them compressed in a cold directory, packs, deleted
    records, records of bytes, named readers, a queue, copies of a router, two snapshots and a log
    after them.
    """

    def __init__(self) -> None:
        world = SimWorld(**SETTINGS)
        world.start()
        self.written: dict[str, dict[int, tuple[Any, Any]]] = {name: {} for name in TOPICS}
        world.put("jobs", type="queue", durability="fsync", leases_durable=True)
        for name in ("short", "copies"):
            world.put(name, durability="fsync")
        world.request("PUT", "/v0/routers/r", {"source": "short", "dest": "copies"})
        for round_ in range(3):
            for name, count in (("long", 18), ("short", 2), ("capped", 3), ("jobs", 3)):
                if name in {"long", "capped"}:
                    world.put(name, durability="fsync", cap_records=5 if name == "capped" else 0)
                rows = [(payload(name, round_, at), f"t:{at % 3}") for at in range(count)]
                said = world.write_records(name, [{kind: data, "tag": tag} for (kind, data), tag in rows])
                self.written[name].update(zip(said["seqs"], rows, strict=True))
            self._read(world, round_)
            job = world.request("POST", "/v0/topics/jobs/claim", {"node": "w", "max": 2}).json["claimed"][0]["$seq"]
            world.request("POST", "/v0/topics/jobs/ack", {"node": "w", "seqs": [job]})
            world.wait_until(lambda: len(answers(world, "copies") or ()) == len(self.written["short"]), 1000)
            world.delete("long", match="t:2", before_seq=18 * round_ + 7)
            world.delete("short", before_seq=round_ + 1)
            if round_ < 2:
                world.advance_ms(1100)
        self.written["copies"] = self.written["short"]
        self.wanted = {name: answers(world, name) for name in TOPICS}
        self.readers = {name: readers(world, name) for name in TOPICS}
        world.crash()
        self.disk: SimDisk = world.ring.disk
        self.paths = sorted(world._files(DIRECTORY) + world._files(COLD))
        assert any(self._is_compressed(path) for path in self.paths), "a segment has moved to the cold directory"

    @staticmethod
    def _read(world: SimWorld, round_: int) -> None:
        """Read with named readers: pages that are committed, and records that are held against a
        cap and trimmed.
        """
        world.request("PUT", "/v0/topics/long/readers/r", {})
        page = world.request("POST", "/v0/topics/long/readers/r/read", {"limit": 2}).json
        world.request("POST", "/v0/topics/long/readers/r/commit", {"token": page["token"]})
        world.request("PUT", "/v0/topics/capped/readers/archive", {"holds": True, "trims": True})
        world.request("POST", "/v0/topics/capped/readers/archive/seek", {"seq": 3 * round_ + 2})
        world.request("PUT", "/v0/topics/short/readers/once", {"delivery": "at-most-once"})
        world.request("POST", "/v0/topics/short/readers/once/read", {"limit": 1})

    def size(self, path: str) -> int:
        return len(self._live(self.disk, path))

    @staticmethod
    def _live(disk: SimDisk, path: str) -> bytearray:
        return disk.find(path).live  # type: ignore[union-attr]

    def used(self, path: str) -> int:
        """Return the bytes up to the last one that is not zero, and a block: nothing after them is
        ever read.
        """
        return min(self.size(path), len(bytes(self._live(self.disk, path)).rstrip(b"\0")) + 64)

    def says_nothing(self, path: str, at: int) -> str:
        """Return the reason why fsck need not find the byte; empty if it must."""
        data = self._live(self.disk, path)
        name = path.rpartition("/")[2]
        if name == "session":
            return "in the note of the boot"
        if name.startswith("wal-"):
            last, end = self._log_end(path)
            if at >= end:
                return "behind the end of the log"
            if at >= last:
                return _TORN
            if WAL_HEADER_BYTES <= at < WAL_FIRST_BATCH_OFFSET:
                return "in padding"
        if at in self._alignment(path):
            return "in padding"
        begin = len(bytes(data[:at]).rstrip(b"\0"))
        end = len(data) - len(bytes(data[at:]).lstrip(b"\0"))
        return "in padding" if end - begin > PADDING_BYTES_MIN else ""

    def says_the_same(self, world: SimWorld, path: str) -> str:
        """Return the reason why fsck need not find the flip: decompression ignores some bits of a
        block.
        """
        if not self._is_compressed(path):
            return ""
        found, whole = (bytes(self._live(disk, path)) for disk in (world.ring.disk, self.disk))
        begin = blocks_of(whole, path).header.blocks_at
        try:
            is_same = found[:begin] == whole[:begin] and image_of(found, path) == image_of(whole, path)
        except CorruptError:
            return ""
        return "in a compressed block that says the same" if is_same else ""

    @functools.cache  # noqa: B019 - there is one
    def _log_end(self, path: str) -> tuple[int, int]:
        """Return where the last batch of a log file begins, and where it ends."""
        data = bytes(self._live(self.disk, path))
        header = WalHeader.unpack(data, path)
        if header.file_no != wal_file_no(path.rpartition("/")[2]):
            return 0, 0  # prepared, with bytes of an earlier use
        at, number, chain = WAL_FIRST_BATCH_OFFSET, header.first_batch_no, header.checksum
        last = at
        while True:
            body = BatchHeader.unpack(data[at:], path).body_bytes if data[at : at + 4] == b"TPBT" else 0
            piece = data[: at + BATCH_HEADER_BYTES + body]
            scan = codec.scan_log(piece, epoch=header.epoch, batch_no=number, chain=chain, start=at)
            if scan.batches != 1:
                return last, at
            last, number, chain = at, scan.batch_no, scan.chain
            at = align_up(scan.position, BATCH_ALIGN)

    def _is_compressed(self, path: str) -> bool:
        return path.endswith(".data") and is_compressed(self._live(self.disk, path))

    @functools.cache  # noqa: B019 - there is one
    def _alignment(self, path: str) -> frozenset[int]:
        """Return the few zeros after batches, after the frames of a segment, and after the runs of
        a pack; of a compressed segment the flags without a frame.
        """
        data = bytes(self._live(self.disk, path))
        if self._is_compressed(path):
            return frozenset(range(HEADER_BYTES, blocks_of(data, path).header.table_at)) - self.flags(path)
        if "/wal-" in path:
            starts = [
                at for at in range(WAL_FIRST_BATCH_OFFSET, len(data), BATCH_ALIGN) if data[at : at + 4] == b"TPBT"
            ]
            ends = [at + BATCH_HEADER_BYTES + BatchHeader.unpack(data[at:], path).body_bytes for at in starts]
            return frozenset(at for end in ends for at in range(end, align_up(end, BATCH_ALIGN)))
        if "/seg-" in path and path.endswith(".data"):
            scan = codec.scan_frames(memoryview(data)[BLOCK_BYTES:], base=BLOCK_BYTES)
            end = BLOCK_BYTES + scan.position
            return frozenset(range(end, end + len(data[end:]) - len(data[end:].lstrip(b"\0"))))
        if "/pack-" not in path:
            return frozenset()
        runs = scan_runs(bytes(self._live(self.disk, path)), path)
        ends = [int(run.frames["offset"][-1] + run.frames["length"][-1]) for run in runs if len(run.frames)]
        return frozenset(at for end in ends for at in range(end, align_up(end, BATCH_ALIGN)))

    @functools.cache  # noqa: B019 - there is one
    def flags(self, path: str) -> frozenset[int]:
        """Return the places of the bytes that state whether records are deleted."""
        data = bytes(self._live(self.disk, path))
        places: list[int] = []
        if self._is_compressed(path):
            return frozenset(map(flag_place, flag_offsets(image_of(data, path))))
        if path.endswith(".idx"):
            header, _ = IndexHeader.unpack(data, path)
            begin = INDEX_HEADER_BYTES + FLAGS_OFFSET_PER_ROW * header.rows
            return frozenset(range(begin, begin + header.rows))
        if "/pack-" in path:
            runs = [run.frames for run in scan_runs(data, path)]
            footer = PackFooter.unpack(data[-FOOTER_BYTES:], path)
            begin = footer.columns_offset + FLAGS_OFFSET_PER_ROW * footer.rows
            places += range(begin, begin + footer.rows)
        elif "/seg-" in path:
            runs = [codec.scan_frames(memoryview(data)[BLOCK_BYTES:], base=BLOCK_BYTES).frames]
        else:
            return frozenset()
        for frames in runs:
            places += (frames["offset"] + frames["length"] - 1).tolist()
        return frozenset(places)

    def rotten(self, path: str, at: int, mask: int) -> SimWorld:
        """Return the directory with one byte changed, for a server that does not run yet."""
        world = SimWorld(**SETTINGS)
        disk = copy.deepcopy(self.disk)
        file = disk.find(path)
        for image in (file.live, file.durable):  # type: ignore[union-attr]
            if at < len(image):
                image[at] ^= mask
        world.ring = SimRing(0, disk=disk, fd_limit=4096)
        return world


def payload(name: str, round_: int, at: int) -> tuple[str, str]:
    """Return the field of a record and its value: every third one is bytes, which are neither JSON
    nor text.
    """
    text = f"{name} {round_} {at}"
    return ("data_base64", base64.b64encode(b"\xff" + text.encode()).decode()) if at % 3 == 1 else ("data", text)


def data_of(row: dict[str, Any]) -> tuple[str, Any]:
    """Return the field of a record that is read, and its value."""
    return next((kind, row[kind]) for kind in ("data", "data_base64") if kind in row)


def readers(world: SimWorld, name: str) -> dict[str, tuple[Any, ...]]:
    """Return settings and committed positions of a topic's named readers."""
    members = ("delivery", "holds", "trims", "committed")
    rows = world.request("GET", f"/v0/topics/{name}/readers").json["readers"]
    return {row["reader"]: tuple(row[member] for member in members) for row in rows}


def answers(world: SimWorld, name: str) -> dict[int, tuple[Any, Any]] | None:
    """Return every record of a topic; None: the server reports that it cannot read it."""
    found: dict[int, tuple[Any, Any]] = {}
    cursor = 0
    while True:
        answer = world.request("POST", f"/v0/topics/{name}/diff", {"from_seq": cursor, "include_tags": True})
        if answer.status != 200:
            return None
        page = answer.json
        found |= {row["$seq"]: (data_of(row), row.get("$tag")) for row in page["records"]}
        if page["caught_up"]:
            return found
        cursor = page["next_from_seq"]


def rot(every: int, counts: Counter[str], share: tuple[int, int] = (0, 1), only: str = "") -> Iterator[str]:
    """Yield the faults.

    share: only the flips number share[0], share[0] + share[1], and so on; only: in files whose path
    contains this.
    """
    store = Store()
    number = flip = 0
    for path in store.paths:
        if path.endswith("/lock") or "/spare-" in path or only not in path:
            continue
        for at in range(store.used(path)):
            number += 1
            if number % every:
                continue
            flip += 1
            if flip % share[1] != share[0]:
                continue
            for mask in [1 << bit for bit in range(8)] if at in store.flags(path) else [1 << flip % 8]:
                place = f"{path} byte {at} bit {mask:#x}"
                world = store.rotten(path, at, mask)
                found = fsck_finds(world)
                counts["bits flipped"] += 1
                counts["found by fsck"] += found
                why_not = store.says_nothing(path, at) or store.says_the_same(world, path)
                if not found:
                    counts[why_not or "NOT found by fsck"] += 1
                    if not why_not:
                        yield f"{place}: not found by fsck"
                yield from _serve(store, world, place, found, counts, is_torn=why_not == _TORN)
            counts["bytes"] += 1


def fsck_finds(world: SimWorld) -> bool:
    """Return whether fsck reports damage, or refuses a directory whose marker it cannot read."""
    loop = Loop(world.ring, world.ring.clock)
    try:
        return bool(loop.run_task(verify(loop, DIRECTORY, COLD)).findings)
    except StorageError:
        return True


def _serve(
    store: Store, world: SimWorld, place: str, found: bool, counts: Counter[str], *, is_torn: bool
) -> Iterator[str]:
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
        if shown != wanted and is_torn and not strange.items() - store.written[name].items():
            counts["took the last batch of the log"] += 1  # which no later bytes confirm: a torn end
        elif strange:
            yield f"{place}: {name} shows {strange}"
        elif shown != wanted:
            yield f"{place}: {name} lacks {sorted(wanted.keys() - shown.keys())}"
        known = readers(world, name)
        if known != store.readers[name]:
            if is_torn and known.keys() <= store.readers[name].keys():
                counts["took what a reader committed in the last batch"] += 1
            else:
                yield f"{place}: {name} has the readers {known}"
    world.crash()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="only each so many bytes")
    parser.add_argument("--only", default="", help="only in files whose path contains this, such as /srv/cold/")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    failed = 0
    with multiprocessing.get_context("fork").Pool(options.jobs) as pool:
        shares = [(options.every, (at, options.jobs), options.only) for at in range(options.jobs)]
        for part, failures in pool.starmap(_share, shares):
            counts += part
            failed += failures
    print(", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    return 1 if failed else 0


def _share(every: int, share: tuple[int, int], only: str) -> tuple[Counter[str], int]:
    """Run the part of one process; faults are printed and counted."""
    logging.disable()
    counts: Counter[str] = Counter()
    failed = 0
    for failure in rot(every, counts, share, only):
        failed += 1
        print(failure, flush=True)
    return counts, failed


if __name__ == "__main__":
    sys.exit(main())
