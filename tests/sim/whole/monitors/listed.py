"""The list of a snapshot, and whether the disk is ready for it at the instant it gets its name.

From then on a power cut may leave it as the newest one, so everything it refers to has to be on
stable storage by then: every segment and pack up to the listed length, their names, and of every
topic the newest record.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from tests.engine.shared.plain_images import topic_images
from tests.sim.world.sim_disk import Node, SimDirectory, SimDisk
from tests.sim.world.sim_file import SimFile
from topics.config import Config
from topics.engine.shared.topic_snapshot import TopicImage, TopicsSnapshot
from topics.errors import CorruptError, FormatError
from topics.store.format.log_format import DELETED, DELETED_LIVE, wal_file_no
from topics.store.layouts.directory_names import numbered
from topics.store.layouts.file_kind import FOOTER_BYTES
from topics.store.layouts.index_format import FLAGS_OFFSET_PER_ROW
from topics.store.layouts.pack_format import PackFooter
from topics.store.layouts.snapshot_format import SnapshotFile
from topics.store.segments.store_part import unpack_store_part
from topics.store.segments.tiers import Tiers


class Listed(NamedTuple):
    """The list of one snapshot."""

    number: int
    ends: dict[str, int]
    """Path of each segment and pack, and the number of its bytes that count."""
    sealed: set[str]
    """Paths of segments with a footer of their own: a directory can be built from them."""
    replay: dict[int, int]
    """By shard: the log file in which replay begins. A shard that is missing is replayed whole."""
    topics: TopicsSnapshot

    def needs(self, path: str) -> bool:
        """Return whether recovery from this snapshot reads the file."""
        place = place_in_log(path)
        return path in self.ends if place is None else place[1] >= self.replay.get(place[0], 0)

    def image(self, topic_id: int) -> TopicImage | None:
        return next((image for image in topic_images(self.topics) if image.id == topic_id), None)


def place_in_log(path: str) -> tuple[int, int] | None:
    """Return (shard, number) of a log file; None for any other."""
    directory, _, name = path.rpartition("/")
    number = wal_file_no(name)
    return None if number is None else (int(directory.rpartition("-")[2]), number)


def read_listed(data: bytes | bytearray, path: str, config: Config) -> Listed:
    """Return the list of a snapshot. Raises: CorruptError, FormatError."""
    file = SnapshotFile.unpack(memoryview(data), path)
    part, tiers = unpack_store_part(file.store), Tiers.of(config)
    ends = {tiers.path(segment): segment.frames_end for segment in part.segments}
    ends |= {f"{tiers.hot}/{pack.path}": pack.size for pack in part.packs}
    replay = {shard: start.file_no for shard, start in part.replay.items()}
    sealed = {tiers.path(segment) for segment in part.segments if segment.sealed}
    return Listed(file.number, ends, sealed, replay, msgspec.json.decode(file.catalog, type=TopicsSnapshot))


def find(root: SimDirectory, path: str, *, durable: bool) -> Node | None:
    """Return the node at a path, by the present names or by those that a power cut certainly
    leaves.
    """
    node: Node | None = root
    for part in path.strip("/").split("/"):
        if not isinstance(node, SimDirectory):
            return None
        node = (node.durable if durable else node.live).get(part)
    return node


def newest(root: SimDirectory, config: Config, *, durable: bool) -> tuple[str, SimFile] | None:
    """Return path and file of the newest snapshot."""
    path = f"{config.data_dir}/snapshots"
    directory = find(root, path, durable=durable)
    if not isinstance(directory, SimDirectory):
        return None
    names = directory.durable if durable else directory.live
    whole = [name for name in names if numbered(name, "snapshot-") is not None]  # a temporary file is no snapshot
    name = max(whole, default="")
    node = names.get(name)
    return (f"{path}/{name}", node) if isinstance(node, SimFile) else None


def unready(listed: Listed, disk: SimDisk) -> str:
    """Return a listed part that a power cut might take; "" if there is none."""
    for path, end in listed.ends.items():
        file = find(disk.root, path, durable=False)
        if not isinstance(file, SimFile):
            return f"{path}, which is not there"
        if find(disk.root, path, durable=True) is not file:
            return f"{path}, whose name is not durable"
        if path in listed.sealed:
            end = len(file.live)
        if len(file.durable) < end:
            return f"{path}, of which {len(file.durable)} bytes of {end} are durable"
        flags = _flags(file, path) if "/pack-" in path else range(0)
        ranges = [(c.offset, c.offset + len(c.data)) for c in file.pending if c.data is not None] + file.lost
        for first, last in ranges:
            # Flags of deleted records, one byte each, a pack's column, or written with the frames
            # of a dropped run: a checkpoint that failed sets them again.
            in_column = first in flags and last - 1 in flags
            if first < end and last - first > 1 and not in_column and not _sets_flags(file, first, last):
                return f"{path}, whose bytes {first} to {last} of {end} are not durable"
    return ""


def _flags(file: SimFile, path: str) -> range:
    """Return the bytes of the flags column of a pack."""
    try:
        footer = PackFooter.unpack(memoryview(bytes(file.live[-FOOTER_BYTES:])), path)
    except (CorruptError, FormatError):
        return range(0)
    start = footer.columns_offset + FLAGS_OFFSET_PER_ROW * footer.rows
    return range(start, start + footer.rows)


def _sets_flags(file: SimFile, first: int, last: int) -> bool:
    """Return whether the only change of these bytes is that frames become deleted."""
    pairs = zip(file.durable[first:last], file.live[first:last], strict=True)
    return all(is_now == was or (was, is_now) == (DELETED_LIVE, DELETED) for was, is_now in pairs)


def ahead_of_log(listed: Listed, disk: SimDisk, core: Any) -> str:
    """Return a topic whose newest record the snapshot knows and a power cut might take; "" if there
    is none.
    """
    for image in listed.topics.topics:
        topic = core.registry.by_id.get(image.id)
        if topic is not None and image.head and is_durable(core, topic, image.head, disk) is False:
            return f"topic {topic.name} up to seq {image.head}, whose record is not durable"
    return ""


def is_durable(core: Any, topic: Any, seq: int, disk: SimDisk) -> bool | None:
    """Return whether a power cut certainly leaves this record of the log; None: it does not exist,
    or is elsewhere.

    A record that a checkpoint copies is read from the copy before that is durable: the log still
    has it then.
    """
    for chunk, rows, file_ids in topic.index.locations(seq, seq):
        stored = core.files.get(int(file_ids[0]))
        if stored is None or place_in_log(stored.path) is None:
            return None
        file = find(disk.root, stored.path, durable=False)
        if not isinstance(file, SimFile):
            return None
        start = int(chunk.offsets[rows[0]])
        end = start + int(chunk.lengths[rows[0]]) - 1  # the last one is the flag of a deleted record
        is_named = find(disk.root, stored.path, durable=True) is file
        return is_named and file.durable[start:end] == file.live[start:end]
    return None
