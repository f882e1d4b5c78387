"""The bytes that a recovery leaves on the disk: a second one, of a process killed at once, has to
leave the same.

Left out are the parts that every start may change: the note of the session, the lock, files of the
log without writes, and the files and batches in which the log's frames are, because those that no
batch states as synced are written again. So of the log the frames are compared, as a replay from
the newest snapshot would take them. A file that this snapshot does not list may be missing, because
its writer was about to remove it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tests.sim.whole.monitors.listed import find, newest, place_in_log, read_listed
from tests.sim.world.sim_disk import SimDirectory, SimDisk
from tests.sim.world.sim_file import SimFile
from topics.config import Config
from topics.errors import CorruptError, FormatError
from topics.store.format import codec
from topics.store.format.log_format import WAL_FIRST_BATCH_OFFSET, Frame, FrameType, WalHeader
from topics.store.layouts.directory_names import index_path

_OF_EVERY_START = ("/session", "/lock")


class Content(NamedTuple):
    files: dict[str, bytes]
    """Bytes by path, except the log's."""
    log: dict[int, list[bytes]]
    """The frames of each shard."""
    listed: set[str]
    """Paths of files that recovery needs."""


def content(disk: SimDisk, config: Config) -> Content:
    """Return the content as a process that is started now would find it."""
    files: dict[str, bytes] = {}
    shards: dict[int, list[tuple[int, SimFile]]] = {}
    for root in filter(None, (config.data_dir, config.cold_dir)):
        for path, file in _files(find(disk.root, root, durable=False), root):
            place = place_in_log(path)
            if place is not None:
                shards.setdefault(place[0], []).append((place[1], file))
            elif not path.endswith(_OF_EVERY_START) and "/wal/" not in path:
                files[path] = bytes(file.live)
    found = newest(disk.root, config, durable=False)
    if found is None:
        return Content(files, {}, set(files))
    listed = read_listed(found[1].live, found[0], config)
    needed = {found[0], *listed.ends, *(index_path(path) for path in listed.ends)}
    log = {shard: _frames(sorted(logs), listed.replay.get(shard, 0)) for shard, logs in shards.items()}
    return Content(files, log, needed)


def _files(node: object, path: str) -> Iterator[tuple[str, SimFile]]:
    if isinstance(node, SimFile):
        yield path, node
    elif isinstance(node, SimDirectory):
        for name, child in node.live.items():
            yield from _files(child, f"{path}/{name}")


def _frames(logs: list[tuple[int, SimFile]], first_file: int) -> list[bytes]:
    """Return the frames of all valid batches: from the number in its header on, a file replaces the
    ones before.
    """
    frames: list[tuple[int, bytes]] = []
    last = None
    for number, file in logs:
        if number < first_file:
            continue
        data = file.read(0, len(file.live), direct=True)
        try:
            header = WalHeader.unpack(data, "")
        except (CorruptError, FormatError):
            continue
        if header.file_no != number or (last is not None and header.first_batch_no > last + 1):
            continue
        scanned = list(_scan(data, header))
        if scanned:
            frames = [row for row in frames if row[0] < header.first_batch_no] + scanned
            last = scanned[-1][0]
    return [frame for _batch, frame in frames]


def _scan(data: bytes, header: WalHeader) -> Iterator[tuple[int, bytes]]:
    scan = codec.scan_log(
        data, epoch=header.epoch, batch_no=header.first_batch_no, chain=header.checksum, start=WAL_FIRST_BATCH_OFFSET
    )
    rows = scan.frames
    columns = (rows[name].tolist() for name in ("batch", "offset", "length"))
    for batch, offset, length in zip(*columns, strict=True):
        yield header.first_batch_no + batch, data[offset : offset + length]


def difference(before: Content, after: Content, *, may_copy: bool) -> str:
    """Return the first difference; "" for none.

    Frames may be added: the server continues unfinished work.

    may_copy: there are routers; otherwise no records are written.
    """
    for path in sorted(before.files.keys() | after.files.keys()):
        one, two = before.files.get(path), after.files.get(path)
        if two is None and path not in before.listed:
            continue  # it was about to be removed
        if one is None or two is None:
            return f"{path} is {'gone' if two is None else 'new'}"
        if one != two:
            at = _alike(one, two)
            return f"{path}, {len(one)} bytes, then {len(two)}, differs from byte {at} on"
    for shard in sorted(before.log.keys() | after.log.keys()):
        frames, later = before.log.get(shard, []), after.log.get(shard, [])
        if later[: len(frames)] != frames:
            at = _alike(frames, later)
            return f"shard {shard}: of {len(frames)} frames, then {len(later)}, those from {at} on differ"
        for frame in later[len(frames) :]:
            added = Frame.unpack(frame, f"shard {shard}")
            if added.type == FrameType.RECORD and not may_copy:
                return f"shard {shard}: the record {added.seq} of topic {added.topic_id} is there once more"
    return ""


def _alike(one: Sequence[object], two: Sequence[object]) -> int:
    """Return how many of the first are the same."""
    return next(
        (at for at, pair in enumerate(zip(one, two, strict=False)) if pair[0] != pair[1]), min(len(one), len(two))
    )
