"""The manifest: the segments and packs of the store, and the part of the log that is not in them.

In memory it is the checkpoint's book-keeping; as JSON it is the store's part of a snapshot, with
which recovery begins. A file that no snapshot lists is left over from a crash.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from topics.common.bounded_steps import MemberList, members_in_steps, result_of
from topics.common.id_blocks import IdDict
from topics.store.format.catalog import SEQ_MAX
from topics.store.layouts import directory_names
from topics.store.layouts.directory_names import HOT

FILES_A_STEP = 1000
"""Segments, and runs in packs, that a start takes in a step."""

_PACKS = MemberList(b'"packs":[', b'{"number":', b'],"boot":')
_SEGMENTS = MemberList(b'"segments":[', b'{"topic":', b'],"packs":[')
_PIECE_BYTES = 1 << 16
"""Bytes of members of a list that are joined to one piece."""


class Segment(msgspec.Struct, omit_defaults=True, gc=False):
    """One segment file. JSON names are short because a snapshot may list thousands."""

    topic_id: int = msgspec.field(name="topic")
    first_seq: int = msgspec.field(name="first")
    """The seq in the file's name: the first record when the file was created."""
    last_seq: int = msgspec.field(name="last")
    records: int
    frames_end: int = msgspec.field(name="end")
    """Bytes of the file that count.

    Bytes after them, up to a footer, are zeros or left over from a crash.
    """
    size: int
    """Accounted bytes of its frames."""
    epoch: int
    created_ms: int = msgspec.field(name="created")
    last_ts: int = 0
    sum: int = 0
    sealed: bool = False
    tier: int = HOT
    """HOT or COLD: see tiers.py."""
    codec: int = 0
    """How its file is stored: see compressed_segment.py."""
    edition: int = msgspec.field(name="ed", default=0)
    """Number of times the file was compacted."""
    file_id: int = msgspec.field(name="_", default=0)
    """Number in this process's FileTable; not stored."""

    @property
    def path(self) -> str:
        return directory_names.segment_path(self.topic_id, self.first_seq, self.edition)


class Totals(NamedTuple):
    """Sums over some segments of a topic."""

    records: int = 0
    size: int = 0

    def plus(self, records: int, size: int) -> Totals:
        return Totals(self.records + records, self.size + size)


class PackRun(msgspec.Struct, array_like=True, gc=False):
    """One topic's records in a pack; stored as an array."""

    topic_id: int
    first_seq: int
    last_seq: int
    number: int
    """Row of the pack's run table."""


class Pack(msgspec.Struct, omit_defaults=True):
    """One pack file, and the runs of it that are in use."""

    number: int
    epoch: int
    size: int
    """Bytes of the file."""
    runs: dict[int, PackRun]
    """Runs by their row in the run table."""
    dropped: list[int] = []
    """Rows of runs that are no longer in use, and whose frames are not flagged yet.

    See dropped_runs.py.
    """
    file_id: int = msgspec.field(name="_", default=0)

    @property
    def path(self) -> str:
        return directory_names.pack_path(self.number)


class ReplayStart(msgspec.Struct, array_like=True):
    """The point where replay of one shard begins."""

    file_no: int
    """Number of the first file to replay; lower ones are copied."""
    marked: bool = True
    """The file was begun, by a mark, before the snapshot, so it must exist."""


class StorePart(msgspec.Struct, omit_defaults=True):
    """The store's part of a snapshot."""

    replay: dict[int, ReplayStart]
    """Start by shard. A shard that is not named is replayed whole."""
    segments: list[Segment]
    packs: list[Pack]
    boot: str
    """Boot id when the snapshot was taken."""
    shards: int
    """Number of shards of the log.

    With another count everything is checkpointed before any request is served.
    """
    clean: bool = False
    """The snapshot was taken when the log was closed, so everything is in segments."""
    rebuilt: bool = False
    """The snapshot was made by `topics fsck --rebuild` without a sound one.

    Topics come from the descriptions in segments (Catalog.adopt).
    """
    log_cut: bool = False
    """The snapshot was made by `topics fsck --rebuild`, which gave up part of the log.

    What was given out there is unknown.
    """
    flagging: list[str] = []
    """Paths of segments and packs, relative to their directory, that were about to be flagged.

    After a kill the page cache may show flags that no sync has made durable.
    """
    extensions: list[tuple[int, int, bytes]] = []
    """Parts of producers in segments and packs of a directory rebuilt without a sound snapshot.

    Each is topic id, seq and extension area of a frame; descriptions may be too old to have them.
    """
    described_ms: list[int] = []
    """Times of the descriptions of a directory rebuilt without a sound snapshot."""
    format: int = 1


class Manifest:
    """The files in use, by topic and by number."""

    def __init__(self) -> None:
        self.segments = IdDict[list[Segment]]()
        """Segments by topic, in seq order; the last one may be unsealed."""
        self.packs: dict[int, Pack] = {}
        self.runs = IdDict[list[tuple[Pack, PackRun]]]()
        """Runs by topic, in seq order, all of them below the topic's segments."""
        self.next_pack = 1

    def add_segment(self, segment: Segment) -> None:
        before = self.segments.setdefault(segment.topic_id, [])
        assert not before or before[-1].last_seq < segment.first_seq, "segments of a topic are in order"
        before.append(segment)

    def add_pack(self, pack: Pack) -> None:
        for _ in self._add_runs(pack):
            pass

    def drop_segment(self, segment: Segment) -> None:
        self.segments[segment.topic_id].remove(segment)
        if not self.segments[segment.topic_id]:
            del self.segments[segment.topic_id]

    def drop_runs(self, topic_id: int, numbers: set[tuple[int, int]] | None = None) -> None:
        """Remove runs of a topic: those named by (pack number, run number), or all."""
        kept = []
        for pack, run in self.runs.pop(topic_id) or ():
            if numbers is None or (pack.number, run.number) in numbers:
                del pack.runs[run.number]
                pack.dropped.append(run.number)
            else:
                kept.append((pack, run))
        if kept:
            self.runs[topic_id] = kept

    @property
    def all_copied(self) -> Mapping[int, int]:
        """By topic id what `copied_upto` returns, asked when it is needed."""
        return _CopiedUpto(self)

    def tail(self, topic_id: int) -> Segment | None:
        """Return the topic's segment that may still grow."""
        segments = self.segments.get(topic_id)
        return segments[-1] if segments and not segments[-1].sealed else None

    def sealed_totals(self, topic_id: int, before_seq: int = SEQ_MAX) -> Totals:
        """Return the sums over all segments except the tail, or over those before a seq."""
        of_topic = self.segments.get(topic_id, ())
        sealed = [segment for segment in of_topic if segment.sealed and segment.first_seq < before_seq]
        return Totals(sum(segment.records for segment in sealed), sum(segment.size for segment in sealed))

    def replace_tail(self, segment: Segment) -> None:
        """Replace the tail, which has grown or was sealed."""
        segments = self.segments[segment.topic_id]
        assert not segments[-1].sealed, "a sealed segment stays as it is"
        assert segments[-1].first_seq == segment.first_seq, "only the last segment grows"
        segments[-1] = segment

    def replace(self, replaced: Sequence[Segment], segment: Segment) -> None:
        """Replace adjacent sealed segments by one with their range of seqs."""
        segments = self.segments[segment.topic_id]
        at = segments.index(replaced[0])
        assert segments[at : at + len(replaced)] == list(replaced), "adjacent segments of one topic"
        assert segment.sealed, "only the last segment of a topic grows"
        segments[at : at + len(replaced)] = [segment]

    def copied_upto(self, topic_id: int) -> int:
        """Return the highest seq in segments and packs.

        The log's records up to it were copied, or were dead.
        """
        segments, runs = self.segments.get(topic_id), self.runs.get(topic_id)
        return max(segments[-1].last_seq if segments else 0, runs[-1][1].last_seq if runs else 0)

    def all_segments(self) -> Iterator[Segment]:
        for segments in self.segments.values():
            yield from segments

    def topic_ids(self) -> Iterator[int]:
        """Yield the ids of topics with segments or runs, once each, few at a time.

        What changes meanwhile may be among them or not.
        """
        yield from self.segments
        yield from (topic_id for topic_id in self.runs if topic_id not in self.segments)

    def paths(self, tier: int) -> set[str]:
        """Return the paths of all data files in use in a tier, relative to its directory."""
        packs = {pack.path for pack in self.packs.values()} if tier == HOT else set()
        return {segment.path for segment in self.all_segments() if segment.tier == tier} | packs

    def paths_of(self, file_ids: set[int]) -> list[str]:
        """Return the paths of those of these files that are in use."""
        files: list[Segment | Pack] = [*self.all_segments(), *self.packs.values()]
        return [file.path for file in files if file.file_id in file_ids]

    @classmethod
    def of(cls, part: StorePart) -> Manifest:
        """Return the manifest of a snapshot."""
        return result_of(cls.of_steps(part))

    @classmethod
    def of_steps(cls, part: StorePart) -> Generator[None, None, Manifest]:
        """Return the manifest of a snapshot, in bounded steps."""
        manifest = cls()
        segments = sorted(part.segments, key=lambda segment: (segment.topic_id, segment.first_seq))
        done = 0
        for segment in segments:
            manifest.add_segment(segment)
            done += 1
            if done % FILES_A_STEP == 0:
                yield
        for pack in sorted(part.packs, key=lambda pack: pack.number):
            for _ in manifest._add_runs(pack):
                done += 1
                if done % FILES_A_STEP == 0:
                    yield
        yield
        for some in manifest.runs.lists():
            for runs in some:
                if len(runs) > 1:
                    runs.sort(key=lambda entry: entry[1].first_seq)
            yield
        return manifest

    def _add_runs(self, pack: Pack) -> Iterator[None]:
        """Add a pack, a run a step."""
        self.packs[pack.number] = pack
        self.next_pack = max(self.next_pack, pack.number + 1)
        for run in pack.runs.values():
            self.runs.setdefault(run.topic_id, []).append((pack, run))
            yield


class _CopiedUpto(Mapping[int, int]):
    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest

    def __getitem__(self, topic_id: int) -> int:
        if topic_id not in self._manifest.segments and topic_id not in self._manifest.runs:
            raise KeyError(topic_id)
        return self._manifest.copied_upto(topic_id)

    def __iter__(self) -> Iterator[int]:
        return self._manifest.topic_ids()

    def __len__(self) -> int:
        return sum(1 for _ in self)


class PackedFiles:
    """Segments and packs as JSON, encoded some at a time, in pieces.

    The runs of a million topics take 90 ms, and joining them to one text 50.
    """

    def __init__(self) -> None:
        self._segments = _ListPieces()
        self._packs = _ListPieces()

    def add_segments(self, segments: Sequence[Segment]) -> None:
        if segments:
            self._segments.add(msgspec.json.encode(segments)[1:-1])

    def add_pack(self, pack: Pack) -> None:
        self._packs.add(msgspec.json.encode(pack))

    def packed_with(self, part: StorePart) -> list[bytes]:
        """Return what `pack_store_part` makes of a part without files that gets these."""
        assert not [*part.segments, *part.packs], "they are here"
        before, _, after = pack_store_part(part).partition(_NO_FILES)
        begin, between, end = _NO_FILES.split(b"]")
        return [before + begin, *self._segments.pieces(), b"]" + between, *self._packs.pieces(), b"]" + end + after]


_NO_FILES = b'"segments":[],"packs":[]'


class _ListPieces:
    """Members of a JSON array, in pieces: many to a piece, since a million pieces take long."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._small: list[bytes] = []
        self._size = 0

    def add(self, some: bytes) -> None:
        self._small.append(some)
        self._size += len(some)
        if self._size >= _PIECE_BYTES:
            self._join()

    def _join(self) -> None:
        joined = b",".join(self._small)
        self._pieces.append(b"," + joined if self._pieces else joined)
        self._small.clear()
        self._size = 0

    def pieces(self) -> list[bytes]:
        if self._small:
            self._join()
        return self._pieces


def pack_store_part(part: StorePart) -> bytes:
    """Return the part as JSON, without fields that only mean something in this process."""
    return msgspec.json.encode(part)


def unpack_in_steps(data: bytes | memoryview) -> Generator[None, None, StorePart]:
    """Parse the JSON, in bounded steps.

    Raises msgspec.ValidationError: the checksum was right, but the shape is unknown.
    """
    rest, (packs, segments) = yield from members_in_steps(data, _PACKS, _SEGMENTS)
    part = msgspec.json.decode(rest, type=StorePart)
    for segment in part.segments:
        segment.file_id = 0
    for pack in part.packs:
        pack.file_id = 0
    for number, encoded in enumerate(segments, 1):
        segment = msgspec.json.decode(encoded, type=Segment)
        segment.file_id = 0
        part.segments.append(segment)
        if number % FILES_A_STEP == 0:
            yield
    taken = 0
    for encoded in packs:
        pack = msgspec.json.decode(encoded, type=Pack)
        pack.file_id = 0
        part.packs.append(pack)
        taken += 1 + len(pack.runs)
        if taken >= FILES_A_STEP:
            taken = 0
            yield
    return part


def unpack_store_part(data: bytes | memoryview) -> StorePart:
    """Parse the JSON at once; see `unpack_in_steps`."""
    return result_of(unpack_in_steps(data))
