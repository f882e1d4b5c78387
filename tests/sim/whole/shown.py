"""What the files of a directory show: the records that its newest snapshot lists, without the log and without a server.

R-CHK-1 says when all that was acknowledged is among them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from tests.sim.disk import SimDirectory
from tests.sim.file import SimFile
from tests.sim.whole.listed import find, newest
from topics.config import Config
from topics.engine.snapshot import Snapshot, TopicImage
from topics.store.codec import deleted, scan_frames
from topics.store.manifest import StorePart, unpack_store_part
from topics.store.segment_format import (
    FOOTER_BYTES,
    RUN_DTYPE,
    RUN_HEADER_BYTES,
    PackFooter,
    RunHeader,
    SegmentHeader,
    SnapshotFile,
)
from topics.store.tiers import Tiers


class Shown(NamedTuple):
    """One topic, as files show it."""

    topic_id: int
    rows: dict[int, bytes]
    """The data (JSON) of the live records in segments and packs, by seq."""


def shown(root: SimDirectory, config: Config) -> tuple[int, dict[str, Shown]]:
    """(number of the newest snapshot, its topics by name)."""
    found = newest(root, config, durable=False)
    assert found is not None, "a directory in use has a snapshot"
    path, node = found
    file = SnapshotFile.unpack(memoryview(bytes(node.live)), path)
    rows: dict[int, dict[int, bytes]] = {}
    for data in _runs(root, config, unpack_store_part(file.store)):
        scan = scan_frames(data)
        for frame in scan.frames[~deleted(scan.frames)]:
            begin = int(frame["offset"]) + 52 + int(frame["ext_len"]) + int(frame["node_len"]) + int(frame["tag_len"])
            text = bytes(data[begin : begin + int(frame["data_len"])])
            rows.setdefault(int(frame["topic_id"]), {})[int(frame["seq"])] = text
    topics = {}
    for image in msgspec.json.decode(file.catalog, type=Snapshot[TopicImage]).topics:
        marks = image.floors
        floor = max(marks.cap, marks.ttl, marks.trim, marks.crash, marks.deleted)
        its = {seq: text for seq, text in rows.get(image.id, {}).items() if seq > floor}
        topics[image.name] = Shown(image.id, its)
    return file.number, topics


def _runs(root: SimDirectory, config: Config, part: StorePart) -> Iterator[bytes]:
    """The frames of each segment, and of each run of a pack, that count."""
    tiers = Tiers.of(config)
    for segment in part.segments:
        data = _read(root, tiers.path(segment))
        yield data[SegmentHeader.unpack(data, segment.path).header_bytes : segment.frames_end]
    for pack in part.packs:
        data = _read(root, f"{tiers.hot}/{pack.path}")
        footer = PackFooter.unpack(data[-FOOTER_BYTES:], pack.path)
        table = np.frombuffer(data, RUN_DTYPE, footer.runs, footer.table_offset)
        for number in pack.runs:
            position = int(table[number]["position"])
            head = RunHeader.unpack(data[position:], pack.path)
            begin = position + RUN_HEADER_BYTES + len(head.description)
            yield data[begin : begin + head.frames_bytes]


def _read(root: SimDirectory, path: str) -> bytes:
    node = find(root, path, durable=False)
    assert isinstance(node, SimFile), f"{path} is listed and not there"
    return bytes(node.live)
