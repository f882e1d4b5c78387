"""The store's part of a snapshot, with which recovery begins: as an object, and as JSON."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import msgspec

from topics.common.bounded_steps import MemberList, members_in_steps, result_of
from topics.store.segments.data_files import Pack, Segment

FILES_A_STEP = 1000
"""Segments, and runs in packs, that a start takes in a step."""

_PACKS = MemberList(b'"packs":[', b'{"number":', b'],"boot":')
_SEGMENTS = MemberList(b'"segments":[', b'{"topic":', b'],"packs":[')
_PIECE_BYTES = 1 << 16
"""Bytes of members of a list that are joined to one piece."""


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
