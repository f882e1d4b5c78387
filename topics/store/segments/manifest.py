"""Which segments and packs make up the store, and which part of the log is not in them: the store's part of a snapshot.

In memory it is the checkpoint's book-keeping; as JSON it is what recovery begins with. A file that no snapshot lists is
what a crash left behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from topics.store.format import segment_format
from topics.store.format.segment_format import COLD, HOT

__all__ = [
    "COLD",
    "HOT",
    "Manifest",
    "Pack",
    "PackRun",
    "ReplayStart",
    "Segment",
    "StorePart",
    "Totals",
    "pack_store_part",
    "unpack_store_part",
]


class Segment(msgspec.Struct, omit_defaults=True):
    """One segment file. JSON names are short: a snapshot may list thousands."""

    topic_id: int = msgspec.field(name="topic")
    first_seq: int = msgspec.field(name="first")
    """Of the name: the first record when the file was made."""
    last_seq: int = msgspec.field(name="last")
    records: int
    frames_end: int = msgspec.field(name="end")
    """Bytes of the file that count; what lies behind, up to a footer, is zeros or what a crash left."""
    size: int
    """Accounted bytes of its frames."""
    epoch: int
    created_ms: int = msgspec.field(name="created")
    last_ts: int = 0
    sum: int = 0
    sealed: bool = False
    tier: int = HOT
    """HOT or COLD: see tiers.py."""
    file_id: int = msgspec.field(name="_", default=0)
    """In this process's FileTable; not stored."""

    @property
    def path(self) -> str:
        return segment_format.segment_path(self.topic_id, self.first_seq)


class Totals(NamedTuple):
    """Of some segments of a topic."""

    records: int = 0
    size: int = 0

    def plus(self, records: int, size: int) -> Totals:
        return Totals(self.records + records, self.size + size)


class PackRun(msgspec.Struct, array_like=True):
    """One topic's records in a pack; stored as an array."""

    topic_id: int
    first_seq: int
    last_seq: int
    number: int
    """Row of the pack's run table."""


class Pack(msgspec.Struct, omit_defaults=True):
    """One pack file and those of its runs that are in use."""

    number: int
    epoch: int
    size: int
    """Bytes of the file."""
    runs: dict[int, PackRun]
    """By row of the run table."""
    file_id: int = msgspec.field(name="_", default=0)

    @property
    def path(self) -> str:
        return segment_format.pack_path(self.number)


class ReplayStart(msgspec.Struct, array_like=True):
    """Where replay of one shard begins."""

    file_no: int
    """Lower ones are copied."""
    marked: bool = True
    """The file was begun, by a mark, before the snapshot: it must be there."""


class StorePart(msgspec.Struct, omit_defaults=True):
    """The store's part of a snapshot."""

    replay: dict[int, ReplayStart]
    """By shard. A shard that is not named is replayed whole."""
    segments: list[Segment]
    packs: list[Pack]
    boot: str
    """Boot id of the time it was taken."""
    shards: int
    """How many the log had: with another count everything is checkpointed before anything is served."""
    clean: bool = False
    """Taken when the log was closed: everything is in segments."""
    rebuilt: bool = False
    """Made by `topics fsck --rebuild` without a sound one: topics come from the descriptions in segments
    (Catalog.adopt)."""
    log_cut: bool = False
    """Made by `topics fsck --rebuild`, which gave up part of the log: what was given out there is not known."""
    flagging: list[str] = []
    """Paths (below their directory) of segments and packs in which deletes were about to be flagged: after a kill the
    page cache may show flags that no sync has made durable."""
    extensions: list[tuple[int, int, bytes]] = []
    """Parts of producers in segments and packs of a directory rebuilt without a sound snapshot: topic id, seq and
    extension area of their frames, because descriptions may be too old to have them."""
    format: int = 1


class Manifest:
    """The files in use, by topic and by number."""

    def __init__(self) -> None:
        self.segments: dict[int, list[Segment]] = {}
        """By topic, in seq order; the last one may be unsealed."""
        self.packs: dict[int, Pack] = {}
        self.runs: dict[int, list[tuple[Pack, PackRun]]] = {}
        """By topic, in seq order. All of them lie below the topic's segments."""
        self.next_pack = 1

    def add_segment(self, segment: Segment) -> None:
        before = self.segments.setdefault(segment.topic_id, [])
        assert not before or before[-1].last_seq < segment.first_seq, "segments of a topic are in order"
        before.append(segment)

    def add_pack(self, pack: Pack) -> None:
        self.packs[pack.number] = pack
        self.next_pack = max(self.next_pack, pack.number + 1)
        for run in pack.runs.values():
            self.runs.setdefault(run.topic_id, []).append((pack, run))

    def drop_segment(self, segment: Segment) -> None:
        self.segments[segment.topic_id].remove(segment)
        if not self.segments[segment.topic_id]:
            del self.segments[segment.topic_id]

    def drop_runs(self, topic_id: int, numbers: set[tuple[int, int]] | None = None) -> None:
        """Forgets runs of a topic: those named by (pack number, run number), or all."""
        kept = []
        for pack, run in self.runs.pop(topic_id, []):
            if numbers is None or (pack.number, run.number) in numbers:
                del pack.runs[run.number]
            else:
                kept.append((pack, run))
        if kept:
            self.runs[topic_id] = kept

    def tail(self, topic_id: int) -> Segment | None:
        """The segment that may still grow."""
        segments = self.segments.get(topic_id)
        return segments[-1] if segments and not segments[-1].sealed else None

    def sealed_totals(self, topic_id: int) -> Totals:
        """Of all segments but the tail."""
        sealed = [segment for segment in self.segments.get(topic_id, ()) if segment.sealed]
        return Totals(sum(segment.records for segment in sealed), sum(segment.size for segment in sealed))

    def replace_tail(self, segment: Segment) -> None:
        """The tail has grown, or was sealed: this is what it is now."""
        segments = self.segments[segment.topic_id]
        assert not segments[-1].sealed, "a sealed segment stays as it is"
        assert segments[-1].first_seq == segment.first_seq, "only the last segment grows"
        segments[-1] = segment

    def copied_upto(self, topic_id: int) -> int:
        """The highest seq in segments and packs: the log's records up to here are already there, or were dead."""
        segments, runs = self.segments.get(topic_id), self.runs.get(topic_id)
        return max(segments[-1].last_seq if segments else 0, runs[-1][1].last_seq if runs else 0)

    def all_segments(self) -> Iterator[Segment]:
        for segments in self.segments.values():
            yield from segments

    def topic_ids(self) -> set[int]:
        return self.segments.keys() | self.runs.keys()

    def paths(self, tier: int) -> set[str]:
        """Of every data file in use in a tier, below its directory."""
        packs = {pack.path for pack in self.packs.values()} if tier == HOT else set()
        return {segment.path for segment in self.all_segments() if segment.tier == tier} | packs

    def paths_of(self, file_ids: set[int]) -> list[str]:
        """Of those of these files that are in use."""
        files: list[Segment | Pack] = [*self.all_segments(), *self.packs.values()]
        return [file.path for file in files if file.file_id in file_ids]

    @classmethod
    def of(cls, part: StorePart) -> Manifest:
        manifest = cls()
        for segment in sorted(part.segments, key=lambda segment: (segment.topic_id, segment.first_seq)):
            manifest.add_segment(segment)
        for pack in sorted(part.packs, key=lambda pack: pack.number):
            manifest.add_pack(pack)
        for runs in manifest.runs.values():
            runs.sort(key=lambda entry: entry[1].first_seq)
        return manifest


def pack_store_part(part: StorePart) -> bytes:
    """As JSON, without what means nothing in another process."""
    return msgspec.json.encode(part)


def unpack_store_part(data: bytes) -> StorePart:
    """Raises msgspec.ValidationError: JSON whose checksum was right but whose shape is not known."""
    part = msgspec.json.decode(data, type=StorePart)
    for segment in part.segments:
        segment.file_id = 0
    for pack in part.packs:
        pack.file_id = 0
    return part
