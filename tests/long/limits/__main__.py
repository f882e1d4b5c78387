"""Measure the longest pass of a server's loop, whatever a client sends in a field.

    python -m tests.long.limits [--records 1000000] [--topics 100000] [--body-bytes 67000000] [--only PATTERN]

For every field of every operation of the route table and of the WebSocket's commands the costliest values are sent to a
real server on tmpfs that has stored data. Printed: operation, field, case, the answer's status (0: an error over a
WebSocket), and the CPU time of the loop's thread in its longest pass (the best of up to three runs), worst first. The
exit code is 1 when a pass is longer than 20 ms (TOPICS_LIMITS_MS) and `known.py` does not say why.
"""

from __future__ import annotations

import argparse
import os
import select
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import ClassVar, NamedTuple

from tests.contract.world.live_world import LiveWorld
from tests.contract.world.world import Connection
from tests.long.limits.case_sender import ANSWER_MS, ROOM_BYTES, Client
from tests.long.limits.cases import Case, cases
from tests.long.limits.known import known
from tests.long.limits.values import Scale
from topics.config import Config

_RUNS = 3
_U64 = struct.Struct("=Q")


class LimitsWorld(LiveWorld):
    """Its server is without TOPICS_VERIFY, which would lengthen the passes that are measured."""

    command: ClassVar[tuple[str, ...] | None] = (
        *("env", "-u", "TOPICS_VERIFY"),
        *(sys.executable, "-m", "tests.long.limits.serve_counted", "serve"),
    )

    @property
    def longest_ms(self) -> float:
        data = (self.directory / "longest").read_bytes()
        return int(_U64.unpack(data)[0]) / 1e6

    def connect(self) -> Connection:
        """One that waits longer than a test's: all of a large value is one send."""
        link = super().connect()
        self._streams[-1].socket.settimeout(ANSWER_MS / 1000)
        return link

    def begin(self) -> None:
        """Forgets the passes so far."""
        with (self.directory / "longest").open("r+b") as file:
            file.write(bytes(_U64.size))

    def wait_until(self, done: Callable[[], bool], within_ms: int) -> None:
        """Wait on any connection; reset ones are forgotten."""
        self._streams = [stream for stream in self._streams if not stream.ended]
        until = time.monotonic() + within_ms / 1000
        while not done() and time.monotonic() < until:
            select.select([stream.socket for stream in self._streams if not stream.ended], (), (), 0.1)


class Row(NamedTuple):
    ms: float
    case: Case
    status: int

    @property
    def excess(self) -> str:
        """Why it may be longer than the limit; "" where nothing says so."""
        reason = known(self.case.operation, self.case.field, self.case.name)
        return reason.why if reason is not None and self.ms <= reason.most_ms else ""


def measure(world: LimitsWorld, client: Client, case: Case, limit_ms: float) -> Row:
    best = Row(float("inf"), case, 0)
    for _ in range(_RUNS):
        request = client.prepare(case)
        client.probe()
        world.begin()
        status = client.send(case, request)
        best = min(best, Row(world.longest_ms, case, status), key=lambda row: row.ms)
        if best.ms <= limit_ms or best.excess:
            break
    return best


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--topics", type=int, default=100_000)
    parser.add_argument("--body-bytes", type=int, default=Config().max_body_bytes)
    parser.add_argument("--only", default="*", help="of `operation field: case`")
    options = parser.parse_args()
    limit_ms = float(os.environ.get("TOPICS_LIMITS_MS", "20"))
    scale = Scale(Config(), options.body_bytes - ROOM_BYTES, options.records, options.topics)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        (Path(directory) / "longest").write_bytes(bytes(_U64.size))
        settings = {"wal_file_bytes": 64 << 20, "max_topics": 200_000 + options.topics, "checkpoint_every_ms": 1 << 40}
        world = LimitsWorld(Path(directory), **settings)
        world.start()
        try:
            client = Client(world, scale)
            client.fill()
            for case in cases():  # an interrupt ends them, and what was measured is shown
                if fnmatchcase(f"{case.operation} {case.field}: {case.name}", options.only):
                    rows.append(measure(world, client, case, limit_ms))
                    if rows[-1].ms > limit_ms:
                        print(f"{rows[-1].ms:.1f} ms: {case.operation} {case.field}: {case.name}", file=sys.stderr)
        except KeyboardInterrupt:
            print("interrupted: not all cases ran", file=sys.stderr)
        finally:
            world.close()
    rows.sort(reverse=True, key=lambda row: row.ms)
    print("| operation | field | case | status | longest pass, ms of CPU | known |\n|---|---|---|---|---|---|")
    for row in rows:
        why = row.excess if row.ms > limit_ms else ""
        print(f"| {row.case.operation} | {row.case.field} | {row.case.name} | {row.status} | {row.ms:.1f} | {why} |")
    over = [row for row in rows if row.ms > limit_ms and not row.excess]
    print(f"{len(rows)} cases, {len(over)} with a pass above {limit_ms:g} ms that nothing explains")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
