"""The byte layouts of the log, defined only here. Little-endian; `codec.c` does the same in bulk.

A WAL file `wal/shard-NN/wal-<file_no:016x>.log` is preallocated, zeroed and recycled by rename:

    block 0    the file header (64 bytes, the rest zeros), written by the first commit into the
               file. A file whose header is unreadable, or has another file_no than its name, is
               prepared but not yet used
    4096 ...   batches, each at a multiple of 8. Every write consists of whole 4096-byte blocks: the
               last, partly filled one is zero-padded and written again, old bytes unchanged, with
               the next batch
    the rest   zeros up to a block boundary, then zeros or what an earlier use left (another epoch)

A batch is a 64-byte header and a body of frames, and is applied whole or not at all. `chain` is the
checksum of the batch before it; a file's first batch chains to the file header's checksum.
`synced_upto` is the highest batch number known to be on stable storage when the batch was written.
Batch numbers count from 1 and continue from file to file.

A frame is position-independent, so a checkpoint copies it byte for byte. Its `deleted` byte is
outside its checksum.

Checks come in the order magic, version, checksum, each with its own message.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

import xxhash

from topics.errors import VERSION_REMEDY, CorruptError, FormatError, RequestError

BLOCK_BYTES = 4096
"""Unit of every write to a WAL file: the usual physical block, and the page."""
BATCH_ALIGN = 8

# --- WAL file header -------------------------------------------------------------------------------------------------

WAL_MAGIC = b"TPWL"
WAL_VERSION = 1
WAL_FIRST_BATCH_OFFSET = BLOCK_BYTES
_WAL_HEADER = struct.Struct("<4sHHQQQ16sQ")
"""magic, version, shard, file_no, epoch, first_batch_no, boot_id, created_ms.

Then u64 XXH3-64 of these 56 bytes.
"""
WAL_HEADER_BYTES = _WAL_HEADER.size + 8


class WalHeader(NamedTuple):
    """The header in block 0 of a WAL file."""

    shard: int
    file_no: int
    epoch: int
    """A random number, new with every use of the file: what an earlier use left never parses."""
    first_batch_no: int
    boot_id: bytes
    """16 bytes, see `boot_hash`. Another boot means that the page cache was lost."""
    created_ms: int

    @property
    def checksum(self) -> int:
        """The checksum that the first batch of the file chains to."""
        return int.from_bytes(self.pack()[-8:], "little")

    def pack(self) -> bytes:
        """Return the header, WAL_HEADER_BYTES bytes."""
        head = _WAL_HEADER.pack(WAL_MAGIC, WAL_VERSION, *self)
        return head + _u64(xxhash.xxh3_64_intdigest(head))

    @classmethod
    def unpack(cls, block: bytes | memoryview, path: str) -> WalHeader:
        """Parse a header.

        path: for the messages of errors.
        Raises: FormatError, another kind of file or an unknown version; CorruptError.
        """
        if len(block) < WAL_HEADER_BYTES:
            raise CorruptError(f"{path}: too short for a log file header", {"path": path, "offset": 0})
        magic, version, *rest = _WAL_HEADER.unpack_from(block)
        if magic != WAL_MAGIC:
            raise FormatError(f"{path}: not a log file (magic {magic!r})")
        if version != WAL_VERSION:
            raise FormatError(f"{path}: log file version {version}; this build knows {WAL_VERSION}: {VERSION_REMEDY}")
        if bytes(block[56:64]) != _u64(xxhash.xxh3_64_intdigest(block[:56])):
            raise CorruptError(f"{path}: checksum of the file header is wrong", {"path": path, "offset": 0})
        return cls(*rest)


def boot_hash(boot_id: str) -> bytes:
    """Return the 16 bytes by which headers name a boot id."""
    return xxhash.xxh3_128_digest(boot_id.encode())


def wal_file_name(file_no: int) -> str:
    return f"wal-{file_no:016x}.log"


def wal_file_no(name: str) -> int | None:
    """Return the number in a WAL file's name; None for any other name."""
    if len(name) != 24 or not name.startswith("wal-") or not name.endswith(".log"):
        return None
    digits = name[4:20]
    return int(digits, 16) if all(c in "0123456789abcdef" for c in digits) else None


def spare_file_name(file_no: int) -> str:
    """Return the name of a log file that waits for reuse, by its former number.

    A replay skips it.
    """
    return f"spare-{file_no:016x}.log"


def spare_file_no(name: str) -> int | None:
    """Return the number that a spare had as a file of the log; None for any other name."""
    return wal_file_no(f"wal-{name[6:]}") if name.startswith("spare-") else None


def waiting_file_name(number: int) -> str:
    """Return the name of a file that is no longer needed, and waits to be archived.

    A replay skips it.
    """
    return f"waiting-{number:016x}.log"


def waiting_file_no(name: str) -> int | None:
    """Return the number that a waiting file had in the log; None for any other name."""
    return wal_file_no(f"wal-{name[8:]}") if name.startswith("waiting-") else None


def shard_directory(shard: int) -> str:
    """Return the shard's directory, relative to the data directory."""
    return f"wal/shard-{shard:02d}"


# --- batches ---------------------------------------------------------------------------------------------------------

BATCH_MAGIC = b"TPBT"
BATCH_VERSION = 1
_BATCH_HEADER = struct.Struct("<4sHHQQQQIIQQ")
"""magic, version, flags, epoch, batch_no, synced_upto, chain, body_bytes, frame_count, written_ms,
checksum.
"""
BATCH_HEADER_BYTES = _BATCH_HEADER.size


class BatchHeader(NamedTuple):
    """The 64 bytes before a body.

    `checksum` is XXH3-64 of the first 56, seeded with the XXH3-64 of the body.
    """

    epoch: int
    batch_no: int
    synced_upto: int
    chain: int
    body_bytes: int
    frame_count: int
    written_ms: int
    checksum: int = 0

    def pack(self, body: bytes) -> bytes:
        """Return the header for `body`, with its checksum."""
        head = _BATCH_HEADER.pack(BATCH_MAGIC, BATCH_VERSION, 0, *self[:-1], 0)[:-8]
        return head + _u64(xxhash.xxh3_64_intdigest(head, seed=xxhash.xxh3_64_intdigest(body)))

    @classmethod
    def unpack(cls, data: bytes | memoryview, where: str) -> BatchHeader:
        """Parse a header; `is_sound` compares its checksum, which needs the body.

        Raises FormatError.
        """
        magic, version, _flags, *rest = _BATCH_HEADER.unpack_from(data)
        if magic != BATCH_MAGIC:
            raise FormatError(f"{where}: not a batch (magic {magic!r})")
        if version != BATCH_VERSION:
            raise FormatError(f"{where}: batch version {version}; this build knows {BATCH_VERSION}")
        return cls(*rest)

    @staticmethod
    def body_bytes_of(data: bytes | memoryview) -> int:
        """Return the body length in a packed header, whether or not its other fields are valid."""
        body_bytes: int = _BATCH_HEADER.unpack_from(data)[7]
        return body_bytes

    def is_sound(self, body: bytes) -> bool:
        return self.pack(body)[-8:] == _u64(self.checksum)


BATCH_BYTES_MAX = (1 << 32) - (1 << 20)
"""Most bytes of a batch: lengths and offsets have 32 bits, also the offset in its file."""


def check_batch_bytes(size: int) -> None:
    """Check that a batch of so many bytes can be written. Raises RequestError batch_too_large."""
    if size > BATCH_BYTES_MAX:
        message = f"the records have {size} bytes as they are stored: write less than 4 GiB at a time, in several calls"
        raise RequestError("batch_too_large", message)


def align_up(offset: int, to: int) -> int:
    """Return the smallest multiple of `to`, a power of two, that is at least `offset`."""
    return (offset + to - 1) & -to


# --- frames ----------------------------------------------------------------------------------------------------------


class FrameType(IntEnum):
    """The kinds of frames. A control frame's payload is compact JSON in `data`."""

    RECORD = 1
    TOPIC_CREATE = 2
    TOPIC_CONFIG = 3
    TOPIC_DELETE = 4
    DELETE_RECORDS = 5
    FLOORS = 6
    HEAD_RESERVATION = 7
    GAP = 8
    CHECKPOINT = 9
    CONSUME = 20
    """Completed jobs of a queue: their records are deleted individually."""
    LEASES = 21
    """Leases of a queue with durable leases: granted, extended or ended."""
    LEASE_IDS = 22
    """The highest lease id that may have been used, in `seq`, over all queues (topic id 0)."""
    ROUTER_PUT = 30
    ROUTER_DELETE = 31
    FORWARD = 32
    KEEP = 33
    """Records of a queue that were acknowledged before their router could forward them."""
    READER_PUT = 40
    """A named reader of a topic, new or with other settings."""
    READER_POSITION = 41
    """The position in `seq` up to which a named reader's records are done."""
    READER_DELETE = 42


ORDERED_TYPES = frozenset(
    {
        FrameType.TOPIC_CREATE,
        FrameType.TOPIC_CONFIG,
        FrameType.TOPIC_DELETE,
        FrameType.ROUTER_PUT,
        FrameType.ROUTER_DELETE,
    }
)
"""Kinds whose `seq` is the global order number.

Recovery applies them in its order over all shards.
"""

FLAG_TAG = 1
FLAG_NODE = 2
FLAG_META = 4
FLAG_EXT = 8
FLAG_FSYNC = 16
"""The record was written in class `fsync`."""

FLAG_COPY = 32
"""A copy by position: the row's frame is another record's, whose text it shares.

The flag is never in a frame, only in rows of an index. Topic, seq, time and which of tag and node
it keeps are the row's own. `codec.reframe` makes frames of copies.
"""

FLAG_ROUTED = 64
"""A copy made by an `exactly_once` router; its meta's claim may be trusted (R-EO-3)."""

FRAME_VERSION = 1
PAYLOAD_JSON = 0
PAYLOAD_BYTES = 1
"""The kind of `data` that is any bytes. A directory with such a record has the newest format."""
_FRAME_HEADER = struct.Struct("<IBBQQQHHIBBHHII")
FRAME_FIELDS = (
    *("frame_bytes", "type", "flags", "topic_id", "seq", "ts_ms", "node_len", "tag_len", "data_len", "version"),
    *("payload_kind", "ext_len", "zero", "meta_len", "size"),
)
"""frame_bytes: all after this field. Then ext, node, tag, data, meta, u64 XXH3-64 of [4, here), u8
deleted.
"""
FRAME_FIELD_TYPES = tuple(_FRAME_HEADER.format[1:])
"""I: u32, B: u8, Q: u64, H: u16, as in numpy."""
FRAME_START = struct.Struct(_FRAME_HEADER.format[: len("<IBBQQ")])
"""The beginning of a frame, by which one is looked for: frame_bytes to seq."""
FRAME_LENGTH = struct.Struct(_FRAME_HEADER.format[: len("<I")])
"""The first field of it."""
FRAME_TOPIC_AT = struct.calcsize("<IBB")
"""Offset of a frame's topic_id, a u64."""
FRAME_HEADER_BYTES = _FRAME_HEADER.size
FRAME_TRAILER_BYTES = 9
FRAME_MIN_BYTES = FRAME_HEADER_BYTES + FRAME_TRAILER_BYTES
FRAME_ROOM_BYTES = 128
"""Room for a frame beside its record: enough unless its tag or node is unusually long."""
DELETED_LIVE = 0
DELETED = 0xD5
"""The byte of a deleted frame, five bits from DELETED_LIVE.

No checksum covers the byte, so readers take the value it is nearer to.
"""
SAYS_DELETED = bytes((value ^ DELETED).bit_count() < value.bit_count() for value in range(256))
"""A table by the value of the deleted byte: 1 if nearer to DELETED than to DELETED_LIVE, else 0."""


class Frame(NamedTuple):
    """One decoded frame: slow and readable, for tools, tests and single frames."""

    type: int
    topic_id: int
    seq: int
    ts_ms: int
    data: bytes
    meta: bytes | None = None
    tag: bytes | None = None
    node: bytes | None = None
    ext: bytes = b""
    size: int = 0
    fsync: bool = False
    deleted: bool = False
    routed: bool = False
    payload_kind: int = PAYLOAD_JSON

    def pack(self) -> bytes:
        flags = (
            (FLAG_TAG if self.tag is not None else 0)
            | (FLAG_NODE if self.node is not None else 0)
            | (FLAG_META if self.meta is not None else 0)
            | (FLAG_EXT if self.ext else 0)
            | (FLAG_FSYNC if self.fsync else 0)
            | (FLAG_ROUTED if self.routed else 0)
        )
        node, tag, meta = self.node or b"", self.tag or b"", self.meta or b""
        texts = self.ext + node + tag + self.data + meta
        head = _FRAME_HEADER.pack(
            FRAME_MIN_BYTES + len(texts) - 4,
            self.type,
            flags,
            self.topic_id,
            self.seq,
            self.ts_ms,
            len(node),
            len(tag),
            len(self.data),
            FRAME_VERSION,
            self.payload_kind,
            len(self.ext),
            0,
            len(meta),
            self.size,
        )
        checksum = xxhash.xxh3_64_intdigest(head[4:] + texts)
        return head + texts + _u64(checksum) + bytes([DELETED if self.deleted else DELETED_LIVE])

    @classmethod
    def unpack(cls, data: bytes | memoryview, where: str) -> Frame:
        """Parse the frame that fills `data` exactly.

        where: for the messages of errors.
        Raises: FormatError, an unknown version; CorruptError.
        """
        raw = bytes(data)
        if len(raw) < FRAME_MIN_BYTES:
            raise CorruptError(f"{where}: {len(raw)} bytes are too few for a frame")
        (
            frame_bytes,
            kind,
            flags,
            topic_id,
            seq,
            ts_ms,
            node_len,
            tag_len,
            data_len,
            version,
            payload_kind,
            ext_len,
            _zero,
            meta_len,
            size,
        ) = _FRAME_HEADER.unpack_from(raw)
        if version != FRAME_VERSION:
            raise FormatError(f"{where}: frame version {version}; this build knows {FRAME_VERSION}")
        texts = ext_len + node_len + tag_len + data_len + meta_len
        if frame_bytes + 4 != len(raw) or texts + FRAME_MIN_BYTES != len(raw):
            raise CorruptError(f"{where}: the lengths in the frame disagree")
        if raw[-9:-1] != _u64(xxhash.xxh3_64_intdigest(raw[4:-9])):
            raise CorruptError(f"{where}: checksum of the frame is wrong (topic {topic_id}, seq {seq})")
        parts: list[bytes] = []
        at = FRAME_HEADER_BYTES
        for length in (ext_len, node_len, tag_len, data_len, meta_len):
            parts.append(raw[at : at + length])
            at += length
        ext, node, tag, payload, meta = parts
        return cls(
            kind,
            topic_id,
            seq,
            ts_ms,
            payload,
            meta if flags & FLAG_META else None,
            tag if flags & FLAG_TAG else None,
            node if flags & FLAG_NODE else None,
            ext,
            size,
            bool(flags & FLAG_FSYNC),
            raw[-1] == DELETED,
            bool(flags & FLAG_ROUTED),
            payload_kind,
        )


def record_size(frame: bytes) -> int:
    """Return the size of the record in a frame, as the frame states it; nothing is checked."""
    size: int = _FRAME_HEADER.unpack_from(frame)[-1]
    return size


# --- extension area: TLVs (u8 kind, u16 length, bytes) ---------------------------------------------------------------

EXT_IDEMPOTENCY = 1
_TLV = struct.Struct("<BH")
_IDEMPOTENCY = struct.Struct("<IQ")


class Idempotency(NamedTuple):
    """The entry of an idempotency key, on the first frame of a write that carried it.

    The write's records are seq, seq + 1, ... seq + records - 1.
    """

    records: int
    started_ms: int
    key: bytes


def pack_idempotency(entry: Idempotency) -> bytes:
    """Return an extension area with this one entry."""
    body = _IDEMPOTENCY.pack(entry.records, entry.started_ms) + entry.key
    return _TLV.pack(EXT_IDEMPOTENCY, len(body)) + body


EXT_PRODUCER = 2
_PRODUCER = struct.Struct("<IQQIQ")


class ProducerPart(NamedTuple):
    """The entry on a part's first frame; its records are seq, seq + 1, ... seq + records - 1."""

    records: int
    started_ms: int
    epoch: int
    part: int
    sum: int
    """The checksum of all records of the part, see `codec.sum_rows`."""
    producer: bytes


def pack_producer_part(entry: ProducerPart) -> bytes:
    """Return an extension area with this one entry."""
    body = _PRODUCER.pack(*entry[:-1]) + entry.producer
    return _TLV.pack(EXT_PRODUCER, len(body)) + body


EXT_PIECE = 3
_PIECE = struct.Struct("<IQQQQQIIH")


class StagedPiece(NamedTuple):
    """The entry on the first frame of a staged piece, whose records are in the staging area.

    Their seqs are consecutive.
    """

    records: int
    size: int
    """Accounted bytes of the records."""
    sum: int
    """The checksum of the piece's records, see `codec.sum_rows`."""
    staged_ms: int
    topic_id: int
    """The topic that the part is written to."""
    epoch: int
    part: int
    piece: int
    producer: bytes
    attempt: bytes


def pack_staged_piece(entry: StagedPiece) -> bytes:
    """Return an extension area with this one entry."""
    body = _PIECE.pack(*entry[:8], len(entry.producer)) + entry.producer + entry.attempt
    return _TLV.pack(EXT_PIECE, len(body)) + body


EXT_DELAY = 4
"""The delay of a job, ms (u64). It comes first in its extension, and is shown to readers."""
EXT_TTL = 5
"""The ttl of a record, ms (u64): it is expired later than so long after its time.

Only a delay comes before it in its extension.
"""
EXT_TIME_BYTES = _TLV.size + 8
"""Bytes of the entry of a delay, and of that of a ttl."""


def times_of(ext: bytes | memoryview) -> tuple[int, int]:
    """Return the delay and the ttl (ms) in an extension area; 0 for one that it does not have."""
    found, at = {EXT_DELAY: 0, EXT_TTL: 0}, 0
    for kind in found:
        if len(ext) >= at + EXT_TIME_BYTES and _TLV.unpack_from(ext, at) == (kind, 8):
            found[kind] = int.from_bytes(ext[at + _TLV.size : at + EXT_TIME_BYTES], "little")
            at += EXT_TIME_BYTES
    return found[EXT_DELAY], found[EXT_TTL]


def iterate_extension(ext: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (kind, bytes) of each entry. Raises CorruptError if an entry extends past the end."""
    at = 0
    while at < len(ext):
        if at + _TLV.size > len(ext):
            raise CorruptError("an extension entry is cut off")
        kind, length = _TLV.unpack_from(ext, at)
        at += _TLV.size
        if at + length > len(ext):
            raise CorruptError("an extension entry extends past its frame")
        yield kind, ext[at : at + length]
        at += length


Entry = Idempotency | ProducerPart | StagedPiece


def unpack_extension(ext: bytes) -> list[Entry]:
    """Return the entries of an extension area, without kinds unknown to this build.

    Raises CorruptError.
    """
    found: list[Entry] = []
    for kind, body in iterate_extension(ext):
        if kind == EXT_IDEMPOTENCY:
            _check_length(body, _IDEMPOTENCY)
            records, started_ms = _IDEMPOTENCY.unpack_from(body)
            found.append(Idempotency(records, started_ms, body[_IDEMPOTENCY.size :]))
        elif kind == EXT_PRODUCER:
            _check_length(body, _PRODUCER)
            records, started_ms, epoch, part, rows_sum = _PRODUCER.unpack_from(body)
            found.append(ProducerPart(records, started_ms, epoch, part, rows_sum, body[_PRODUCER.size :]))
        elif kind == EXT_PIECE:
            _check_length(body, _PIECE)
            numbers, texts = _PIECE.unpack_from(body), body[_PIECE.size :]
            found.append(StagedPiece._make((*numbers[:8], texts[: numbers[8]], texts[numbers[8] :])))
    return found


def _check_length(body: bytes, fixed: struct.Struct) -> None:
    if len(body) < fixed.size:
        raise CorruptError(f"an extension entry of {len(body)} bytes is cut off: {fixed.size} come first")


def _u64(value: int) -> bytes:
    return value.to_bytes(8, "little")
