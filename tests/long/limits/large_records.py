"""Measure the longest pass of a server's loop that one large record causes.

    python -m tests.long.limits.large_records [--megabytes 1,2,4,8,16] [--runs 5] [--only PATTERN]

One record of so many megabytes is written and read in each way, to a real server on tmpfs whose `max_record_bytes` is
raised. Printed is the CPU time of the loop's thread in the longest pass of each run, ms: the median, and the least and
the most in brackets. The allocation of log files does not count (serve_counted.py).
"""

from __future__ import annotations

import argparse
import base64
import gzip
import statistics
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from tests.contract.world.websocket_client import HEADERS
from tests.contract.world.world import Connection, request_bytes
from tests.long.limits.__main__ import LimitsWorld
from tests.long.limits.case_sender import ANSWER_MS, FRAME_BYTES
from tests.ws.frame_client import TEXT, Incoming, frame

_JSON = {"Content-Type": "application/json"}
_TOPIC = "/v0/topics/large"
_SETTINGS = {
    "max_record_bytes": 64 << 20,
    "max_body_bytes": 128 << 20,
    "ws_max_message_bytes": 128 << 20,
    "wal_file_bytes": 64 << 20,
    "checkpoint_every_ms": 1 << 40,
    "checkpoint_wal_bytes": 1 << 40,
    "durability": "memory",
}
_CONTINUATION = 0
_MB = 1_000_000
_OBJECT = b'{"name":"a name","n":123456.5,"list":[1,2,3],"is":true},'


class Case(NamedTuple):
    name: str
    record: Callable[[int], bytes]
    """The record of so many bytes of data, as JSON."""
    send: Callable[[Run, bytes], None]
    is_written: bool = False
    """Whether the record is written before, and only what comes after that is measured."""
    is_in_a_segment: bool = False


class Run:
    """One server, and clients of it."""

    def __init__(self, world: LimitsWorld) -> None:
        self._world = world
        self._other = world.connect()

    def probe(self) -> None:
        """Ask as another client: the passes before the answer have ended."""
        for _ in range(2):
            if self._other.over:
                self._other = self._world.connect()
            assert self._other.request("GET", "/v0/health").status == 200

    def longest_ms(self, case: Case, size: int) -> float:
        world, record = self._world, case.record(size)
        self.probe()
        world.request("DELETE", _TOPIC)
        if case.is_written:
            self.write(record)
        if case.is_in_a_segment:
            assert world.request("POST", "/v0/checkpoint").status == 200
        self.probe()
        world.begin()
        case.send(self, record)
        self.probe()
        return world.longest_ms

    def _answer(self, request: bytes) -> None:
        link = self._world.connect()
        assert link.send(request).answer("POST", ANSWER_MS).status in (200, 201)
        link._stream.reset()  # type: ignore[attr-defined]  # `Connection.reset` waits, too

    def write(self, record: bytes) -> None:
        self._answer(request_bytes("POST", _TOPIC, b'{"records":[%b]}' % record, _JSON))

    def write_packed(self, record: bytes) -> None:
        body = gzip.compress(b'{"records":[%b]}' % record, 1)
        self._answer(request_bytes("POST", _TOPIC, body, _JSON | {"Content-Encoding": "gzip"}))

    def publish(self, record: bytes) -> None:
        link = self._world.connect()
        link.start("GET", "/v0/ws", headers=HEADERS).head()
        link.send(b"".join(_frames(b'{"op":"publish","topic":"large","records":[%b]}' % record)))
        self._take_frame(link)
        link._stream.reset()  # type: ignore[attr-defined]

    def read(self, _record: bytes) -> None:
        self._answer(request_bytes("POST", f"{_TOPIC}/diff", b'{"from_seq":0}', _JSON))

    def read_packed(self, _record: bytes) -> None:
        self._answer(request_bytes("POST", f"{_TOPIC}/diff", b'{"from_seq":0}', _JSON | {"Accept-Encoding": "gzip"}))

    def subscribe(self, _record: bytes) -> None:
        link = self._world.connect()
        link.start("GET", "/v0/ws", headers=HEADERS).head()
        link.send(frame(TEXT, b'{"op":"subscribe","topic":"large","from_seq":0}'))
        self._take_frame(link, 2)
        link._stream.reset()  # type: ignore[attr-defined]

    def checkpoint(self, _record: bytes) -> None:
        assert self._world.request("POST", "/v0/checkpoint").status == 200

    def _take_frame(self, link: Connection, count: int = 1) -> None:
        incoming, found = Incoming(), []

        def answered() -> bool:
            found.extend(incoming.feed(link.take_bytes()))
            return len(found) >= count or link.over

        self._world.wait_until(answered, ANSWER_MS)
        assert found, "no answer"
        assert not found[-1][1].startswith(b'{"op":"error"'), found[-1][1][:200]


def _frames(message: bytes) -> Iterator[bytes]:
    """Yield the frames of a message, none longer than a server takes."""
    for at in range(0, len(message), FRAME_BYTES):
        piece = message[at : at + FRAME_BYTES]
        yield frame(_CONTINUATION if at else TEXT, piece, fin=at + FRAME_BYTES >= len(message), mask=bytes(4))


def _text(size: int) -> bytes:
    return b'{"data":"%b"}' % (b"x" * size)


def _objects(size: int) -> bytes:
    return b'{"data":[%b0]}' % (_OBJECT * (size // len(_OBJECT)))


def _escapes(size: int) -> bytes:
    return b'{"data":"%b"}' % (b"\\u00e9" * (size // 6))


def _blanks(size: int) -> bytes:
    return b'{"data":[%b0]}' % (b"0, " * (size // 3))


def _base64(size: int) -> bytes:
    return b'{"data_base64":"%b"}' % base64.b64encode(bytes(range(256)) * (size // 256))


CASES = (
    Case("write, text", _text, Run.write),
    Case("write, objects", _objects, Run.write),
    Case("write, escapes", _escapes, Run.write),
    Case("write, blanks to remove", _blanks, Run.write),
    Case("write, base64", _base64, Run.write),
    Case("write, gzip, objects", _objects, Run.write_packed),
    Case("publish, text", _text, Run.publish),
    Case("publish, objects", _objects, Run.publish),
    Case("read, objects", _objects, Run.read, is_written=True),
    Case("read, base64", _base64, Run.read, is_written=True),
    Case("read from a segment, objects", _objects, Run.read, is_written=True, is_in_a_segment=True),
    Case("read with gzip accepted, objects", _objects, Run.read_packed, is_written=True),
    Case("subscribe, objects", _objects, Run.subscribe, is_written=True),
    Case("checkpoint, objects", _objects, Run.checkpoint, is_written=True),
)


@contextmanager
def served(directory: Path) -> Iterator[Run]:
    """A server in an empty directory."""
    (directory / "longest").write_bytes(bytes(struct.calcsize("=Q")))
    world = LimitsWorld(directory, **_SETTINGS)
    world.start()
    try:
        yield Run(world)
    finally:
        world.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", default="1,2,4,8,16")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", default="*", help="cases whose names match")
    options = parser.parse_args()
    sizes = [float(size) for size in options.megabytes.split(",")]
    print(f"| one record, ms | {' | '.join(f'{size:g} MB' for size in sizes)} |")
    print("|---" * (1 + len(sizes)) + "|")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory, served(Path(directory)) as run:
        for case in CASES:
            if not fnmatchcase(case.name, options.only):
                continue
            cells = []
            for size in sizes:
                took = [run.longest_ms(case, int(size * _MB)) for _ in range(options.runs)]
                cells.append(f"{statistics.median(took):.1f} ({min(took):.1f}-{max(took):.1f})")
            print(f"| {case.name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
