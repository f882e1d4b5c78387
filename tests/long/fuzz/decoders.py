"""The decoders, as functions of bytes, each with examples: damage of them reaches further in than chance does."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from tests.contract.world.sim_world import SimWorld
from tests.long.fuzz import protocols
from tests.long.fuzz.examples import EXAMPLES, damaged
from tests.server.lane_bytes import LaneBytes, samples
from topics.common.values.reader_config import ReaderConfig
from topics.engine.shared.topic_snapshot import TopicsSnapshot
from topics.engine.state.control_frames import ReaderPayload, encode
from topics.engine.state.named_reader import ReaderRow, TopicReaders
from topics.errors import CorruptError, FormatError, RequestError
from topics.store.format import codec
from topics.store.format.compressed_segment import (
    Blocks,
    CompressedHeader,
    compressor,
    image_of,
    packed_table,
)
from topics.store.format.log_format import (
    Idempotency,
    ProducerPart,
    WalHeader,
    pack_idempotency,
    pack_producer_part,
    unpack_extension,
)
from topics.store.layouts.index_format import IndexHeader
from topics.store.layouts.pack_format import PackHeader
from topics.store.layouts.segment_format import SegmentFooter, SegmentHeader
from topics.store.layouts.snapshot_format import SnapshotFile
from topics.store.repair.salvage import salvaged_image
from topics.store.segments.data_files import Pack
from topics.store.segments.pack import read_pack, scan_pack
from topics.store.segments.segment import read_footer
from topics.store.segments.store_part import unpack_store_part


class Decoder(NamedTuple):
    name: str
    decode: Callable[[bytes], object]
    errors: tuple[type[Exception], ...]
    """The errors that it may raise."""
    examples: Mapping[str, bytes]
    """By what they are."""


def _files() -> dict[str, bytes]:
    """A file of each kind, from a small server's directory; by the beginning of its name."""
    world = SimWorld(wal_file_bytes=64 << 10, pack_run_bytes=600, segment_max_events=4, checkpoint_wal_bytes=1)
    world.start()
    for name, count in (("long", 12), ("short", 2)):
        texts: list[dict[str, Any]] = [
            {"data_base64": "/wA="} if at % 2 else {"data": {"n": at}} for at in range(count)
        ]
        world.write_records(name, [text | {"tag": f"t:{at}", "meta": {"k": at}} for at, text in enumerate(texts)])
        world.request("PUT", f"/v0/topics/{name}/readers/r", {"from_seq": 1, "holds": True})
    world.delete("long", match="t:2")
    world.advance_ms(1100)
    world.write_records("short", [{"data_base64": "/wA="}])
    world.request("PUT", "/v0/topics/short/readers/s", {"from_seq": 1})
    paths = world._files("/srv/topics")
    world.crash()
    names = ("wal-", "seg-00000000000000000001.data", "seg-00000000000000000001.idx", "pack-", "snapshot-")
    found = {}
    for path in paths:
        for name in names:
            if path.rpartition("/")[2].startswith(name):
                data = world.ring.file_bytes(path)
                found.setdefault(name, data.rstrip(b"\0") + b"\0" if name == "wal-" else data)
    return found


def _log(data: bytes) -> None:
    """A log file from its header to its last batch, as recovery reads it."""
    header = WalHeader.unpack(data, "x")
    codec.scan_log(
        data, epoch=header.epoch, batch_no=header.first_batch_no, chain=header.checksum, start=min(4096, len(data))
    )
    codec.find_batch(data, epoch=header.epoch, start=0)


def _frames(data: bytes) -> None:
    codec.scan_frames(data, start=0)


def _compressed(image: bytes) -> bytes:
    """A compressed file of this segment, in blocks as small as the inputs."""
    size = 512
    blocks = [compressor().compress(image[at : at + size]) for at in range(0, len(image), size)]
    table = packed_table([len(block) for block in blocks])
    header = CompressedHeader(size, len(blocks), len(image), 0)
    return header.pack(table) + bytes(header.flags_bytes) + table + b"".join(blocks)


def _compressed_segment(data: bytes) -> None:
    """A compressed file as reads take it, with a table that its checksum does not cover, and as a rebuild mends it."""
    with contextlib.suppress(CorruptError, FormatError):
        header = CompressedHeader.unpack(data, "x")
        table = data[header.table_at : header.blocks_at]
        stated = CompressedHeader.unpack(header.pack(table), "x")
        blocks = Blocks(stated, table, "x")
        for block in range(stated.blocks):
            with contextlib.suppress(CorruptError):
                assert len(blocks.inflate(block, data)) <= stated.block_bytes
    salvaged_image(data, "x", 1, [])
    image_of(data, "x")


def _reader_frame(data: bytes) -> None:
    """A payload as a start takes it, as a new reader, a position and an end; a snapshot states the same reader."""
    stated = msgspec.json.decode(data, type=ReaderPayload)
    assert msgspec.json.decode(encode(stated), type=ReaderPayload) == stated
    readers = TopicReaders()
    readers.put(stated.reader, ReaderConfig(stated.delivery, stated.holds, stated.trims), len(data))
    readers.found(readers.by_name[stated.reader], len(data) + 1)
    rows = readers.described()
    assert msgspec.json.decode(msgspec.json.encode(rows), type=list[ReaderRow]) == rows
    assert (readers.trimmed() == len(data) + 1) == stated.trims
    readers.remove(stated.reader)
    assert not readers.by_name


class _Bytes:
    """A file that is read as a pack is."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        return 0

    async def close(self, fd: int) -> None:
        pass

    async def read_into(self, fd: int, buffer: Any, offset: int) -> int:
        piece = self._data[offset : offset + len(memoryview(buffer))]
        memoryview(buffer)[: len(piece)] = piece
        return len(piece)

    def file_size(self, path: str) -> int:
        return len(self._data)


def _pack_index(epoch: int, data: bytes) -> None:
    """The index at a pack's end, or what its runs say where that is damaged."""
    reading = read_pack(_Bytes(data), "x", Pack(1, epoch, len(data), {}))
    with contextlib.suppress(StopIteration):
        reading.send(None)


def _snapshot(data: bytes) -> None:
    """The parts of a snapshot are decoded only when its checksum is right; here they are in any case."""
    with contextlib.suppress(CorruptError):
        SnapshotFile.unpack(data, "x")
    with contextlib.suppress(*_of_json):
        msgspec.json.decode(data, type=TopicsSnapshot)
    with contextlib.suppress(*_of_json, CorruptError, FormatError):
        unpack_store_part(data)
    SnapshotFile.unpack(data, "x")


_of_json: tuple[type[Exception], ...] = (msgspec.DecodeError, UnicodeDecodeError)
"""Errors of decoding text that is not JSON, or not UTF-8."""
_lane = LaneBytes()
"""Not a decoder: a server that has the lane, and one that has not, answer alike."""
_server = protocols.WholeServer()


def decoders() -> list[Decoder]:
    """All of them."""
    return [*_of_files(), *_of_clients()]


def _of_files() -> list[Decoder]:
    files = _files()
    errors: tuple[type[Exception], ...] = (CorruptError, FormatError)
    segment, index = files["seg-00000000000000000001.data"], files["seg-00000000000000000001.idx"]
    pack, snapshot = files["pack-"], SnapshotFile.unpack(files["snapshot-"], "x")

    def of(decode: Callable[[bytes, str], Any]) -> Callable[[bytes], object]:
        return lambda data: decode(data, "x")

    return [
        Decoder("log", _log, errors, damaged(files["wal-"])),
        Decoder("frames", _frames, errors, damaged(segment[4096:]) | {"of a log": files["wal-"][4096 + 64 :]}),
        Decoder("segment header", of(SegmentHeader.unpack), errors, damaged(segment)),
        Decoder("segment footer", of(SegmentFooter.unpack), errors, damaged(segment[-900:])),
        Decoder("end of a segment", of(read_footer), errors, damaged(segment[-900:])),
        Decoder("segment index", of(IndexHeader.unpack), errors, damaged(index)),
        Decoder("pack", of(scan_pack), errors, damaged(pack)),
        Decoder("pack header", of(PackHeader.unpack), errors, damaged(pack)),
        Decoder(
            "pack index", functools.partial(_pack_index, PackHeader.unpack(pack, "x").epoch), errors, damaged(pack)
        ),
        Decoder(
            "extension",
            unpack_extension,
            errors,
            damaged(pack_idempotency(Idempotency(3, 1_000, b"key")))
            | {"of a part": pack_producer_part(ProducerPart(3, 1_000, 5, 6, 1 << 63, b"producer"))},
        ),
        Decoder(
            "reader frame",
            _reader_frame,
            _of_json,
            damaged(encode(ReaderPayload("r", "at-most-once", True, True)))
            | {"of a position": encode(ReaderPayload("r"))},
        ),
        Decoder("compressed segment", _compressed_segment, errors, damaged(_compressed(segment))),
        Decoder(
            "snapshot",
            _snapshot,
            errors,
            damaged(files["snapshot-"]) | {"its catalog": snapshot.catalog, "its part of the store": snapshot.store},
        ),
    ]


def _of_clients() -> list[Decoder]:
    lane = {f"{number} of the lane's": data for number, data in enumerate(samples())}

    def of(name: str, decode: Callable[[bytes], object], *errors: type[Exception]) -> Decoder:
        return Decoder(name, decode, errors, EXAMPLES[name])

    return [
        of("HTTP/1.1 by httptools", functools.partial(protocols.http1, "httptools")),
        of("HTTP/1.1 by h11", functools.partial(protocols.http1, "h11")),
        of("HTTP/1.1 by both", protocols.http1_by_both),
        of("HTTP/2", protocols.http2),
        of("WebSocket frames", protocols.websocket_frames),
        of("WebSocket message", protocols.websocket_message),
        of("query", protocols.query),
        of("write body", protocols.SCANNER.scan, RequestError),
        Decoder("lane", _lane.feed, (), lane | EXAMPLES["lane"]),
        of("server", _server.feed),
    ]
