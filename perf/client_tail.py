"""CPU of `Client.tail` beside a raw socket that decodes the same JSON.

    python -m perf.client_tail [--records 200000] [--rounds 9] [--directory DIR] [--smoke]

One topic of records of some 100 bytes of JSON, in a server of its own. Each side reads all of it from the beginning, in
pages of 1000 records, by turns. The raw side sends the requests that the client sends, over one blocking socket, splits
head and body, and decodes the body by msgspec into dictionaries, or, typed, into the structs of the client. A figure is
the CPU of this process a record in microseconds, user plus system; the server's is not in it. Ratios are those of
neighbours, one turn of each side.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

import topics
from perf.figures import commit_id
from perf.peers import machine, spread
from perf.servers import topics_server
from topics import Record

TOPIC = "tail"
BATCH = 5000
TEXT = "x" * 80
GOAL = 2.0
_PIECE = 256 << 10
_HEAD = (
    b"POST /v0/topics/tail/diff HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
)


class TypedPage(msgspec.Struct):
    """The records of a page, and where the next one begins."""

    records: list[Record]
    next_from_seq: int


def fill(log: topics.Client, records: int) -> None:
    for begin in range(0, records, BATCH):
        end = min(begin + BATCH, records)
        log.append(TOPIC, [{"n": number, "text": TEXT} for number in range(begin, end)])


def tail(log: topics.Client, records: int) -> int:
    """Read by the client; return how many records came."""
    seen = 0
    for record in log.tail(TOPIC, 0):
        seen += 1
        if record.seq == records:
            break
    return seen


def read_raw(port: int, records: int, decode: Callable[[bytes], Any], *, typed: bool) -> int:
    """Read by a socket; return how many records came."""
    at = seen = 0
    with socket.create_connection(("127.0.0.1", port)) as sock:
        while at < records:
            body = b'{"include_tags":true,"wait_ms":30000,"from_seq":%d,"limit":1000}' % at
            sock.sendall(_HEAD % (len(body), body))
            page = decode(_answer(sock))
            at = page.next_from_seq if typed else page["next_from_seq"]
            seen += sum(1 for _record in (page.records if typed else page["records"]))
    return seen


def _answer(sock: socket.socket) -> bytes:
    data = b""
    while (end := data.find(b"\r\n\r\n")) < 0:
        data += sock.recv(_PIECE)
    size = int(data[:end].lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    pieces, left = [data[end + 4 :]], size - (len(data) - end - 4)
    while left:
        pieces.append(sock.recv(_PIECE))
        left -= len(pieces[-1])
    return b"".join(pieces)


def cpu_us(read: Callable[[], int], records: int) -> float:
    """Return the CPU of one read of all records, in us a record."""
    began = time.process_time()
    assert read() == records, "a record is missing"
    return (time.process_time() - began) / records * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--directory", type=Path, default=None)
    parser.add_argument("--smoke", action="store_true", help="tiny, to see that it runs")
    options = parser.parse_args()
    records, rounds = (2000, 1) if options.smoke else (options.records, options.rounds)
    plain, typed = msgspec.json.Decoder(), msgspec.json.Decoder(TypedPage)
    path = Path(tempfile.mkdtemp(dir=options.directory))
    try:
        with (
            topics_server(path / "data") as server,
            topics.connect(f"http://127.0.0.1:{server.port}") as log,
        ):
            fill(log, records)
            sides: dict[str, Callable[[], int]] = {
                "raw socket, dictionaries": lambda: read_raw(server.port, records, plain.decode, typed=False),
                "raw socket, structs": lambda: read_raw(server.port, records, typed.decode, typed=True),
                "Client.tail": lambda: tail(log, records),
            }
            found: dict[str, list[float]] = {name: [] for name in sides}
            for _ in range(rounds):
                for name, read in sides.items():
                    found[name].append(cpu_us(read, records))
    finally:
        shutil.rmtree(path)
    print(f"{machine()}, commit {commit_id()}; {records:,} records, {rounds} rounds; CPU in us a record")
    print("| side | CPU | Client.tail by it | goal |\n|---|---|---|---|")
    ours = found["Client.tail"]
    for name, times in found.items():
        ratios = [one / other for one, other in zip(ours, times, strict=True)]
        goal = f"< {GOAL:g}" + (": **missed**" if statistics.median(ratios) >= GOAL else "")
        last = " - | - |" if times is ours else f" {spread(ratios, 2)} | {goal} |"
        print(f"| {name} | {spread(times, 2)} |{last}")


if __name__ == "__main__":
    main()
