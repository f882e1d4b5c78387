"""The decoders, as functions of bytes. A sample is a good input; damage of it reaches further in than chance does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from tests.contract.sim_world import SimWorld
from tests.http.wire import Echo, Peer, make_service
from tests.server.lane_bytes import LaneBytes, samples
from topics.config import Config
from topics.engine.snapshot import Snapshot, TopicImage
from topics.engine.write_body import WriteScanner
from topics.errors import CorruptError, FormatError, RequestError
from topics.store import codec
from topics.store.format import BATCH_HEADER_BYTES, BatchHeader, WalHeader
from topics.store.manifest import unpack_store_part
from topics.store.pack import scan_pack
from topics.store.segment import read_footer
from topics.store.segment_format import IndexHeader, PackHeader, SegmentFooter, SegmentHeader, SnapshotFile


class Decoder(NamedTuple):
    name: str
    decode: Callable[[bytes], object]
    errors: tuple[type[Exception], ...]
    """What it may raise."""
    samples: tuple[bytes, ...]


def _files() -> dict[str, bytes]:
    """A file of each kind, from a small server's directory; by the beginning of its name."""
    world = SimWorld(wal_file_bytes=64 << 10, pack_run_bytes=600, segment_max_events=4, checkpoint_wal_bytes=1)
    world.start()
    for name, count in (("long", 12), ("short", 2)):
        world.write_records(name, [{"data": {"n": at}, "tag": f"t:{at}", "meta": {"k": at}} for at in range(count)])
    world.delete("long", match="t:2")
    world.advance_ms(1100)
    world.write("short", 1)
    paths = world._files("/srv/topics")
    world.crash()
    names = ("wal-", "seg-00000000000000000001.data", "seg-00000000000000000001.idx", "pack-", "snapshot-")
    found = {}
    for path in paths:
        for name in names:
            if path.rpartition("/")[2].startswith(name):
                found.setdefault(name, world.ring.file_bytes(path).rstrip(b"\0") + b"\0")
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


def _batch(data: bytes) -> None:
    BatchHeader.unpack(data[:BATCH_HEADER_BYTES])


def _snapshot(data: bytes) -> None:
    """The parts of a snapshot are decoded only when its checksum is right; here they are in any case."""
    with contextlib.suppress(CorruptError):
        SnapshotFile.unpack(data, "x")
    with contextlib.suppress(msgspec.DecodeError, CorruptError, FormatError):
        msgspec.json.decode(data, type=Snapshot[TopicImage])
    with contextlib.suppress(msgspec.DecodeError, CorruptError, FormatError):
        unpack_store_part(data)
    SnapshotFile.unpack(data, "x")


_scanner = WriteScanner(Config())
_lane = LaneBytes()
"""Not a decoder: a server that has the lane, and one that has not, answer alike."""


def _http(data: bytes) -> None:
    """A connection's bytes, whole and in two pieces."""
    for pieces in ((), (len(data) // 2,)):
        service = make_service(Echo().routes())
        Peer(service).send(data, pieces=pieces)


_REQUEST = b"POST /echo/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
_CHUNKED = (
    b"POST /echo/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"1\r\n{\r\n1;x=y\r\n}\r\n0\r\nX: y\r\n\r\n"
)
_WRITE = (
    b'{"records":[{"data":{"a":[1,-2.5e3,"\\u00e9",true,null]},"tag":"t","node":"n","meta":{"k":"v"}},{"data":0}],'
    b'"node":"m","idempotency_key":"k","create":true,"config":{"cap_records":5}}'
)


def decoders() -> list[Decoder]:
    """All of them."""
    files = _files()
    damaged: tuple[type[Exception], ...] = (CorruptError, FormatError)
    segment, index = files["seg-00000000000000000001.data"], files["seg-00000000000000000001.idx"]

    def of(decode: Callable[[bytes, str], Any]) -> Callable[[bytes], object]:
        return lambda data: decode(data, "x")

    return [
        Decoder("log", _log, damaged, (files["wal-"],)),
        Decoder("frames", _frames, damaged, (segment[4096:], files["wal-"][4096 + 64 :])),
        Decoder("segment header", of(SegmentHeader.unpack), damaged, (segment,)),
        Decoder("segment footer", of(SegmentFooter.unpack), damaged, (segment[-512:],)),
        Decoder("end of a segment", of(read_footer), damaged, (segment[-512:],)),
        Decoder("segment index", of(IndexHeader.unpack), damaged, (index,)),
        Decoder("pack", of(scan_pack), damaged, (files["pack-"],)),
        Decoder("pack header", of(PackHeader.unpack), damaged, (files["pack-"],)),
        Decoder("snapshot", _snapshot, damaged, (files["snapshot-"],)),
        Decoder("write body", _scanner.scan, (RequestError,), (_WRITE,)),
        Decoder("lane", _lane.feed, (), samples()),
        Decoder("HTTP/1.1", _http, (), (_REQUEST, _CHUNKED, _REQUEST + _REQUEST)),
    ]
