"""Any bytes as an input of the lane beside the general path: streams, and where they are cut."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests.server.lane_streams import BODIES, READS, plain, plain_read
from tests.server.test_lane import CONNECTIONS, Pair

CUT, NEXT = b"\xfe", b"\xfd"
"""In an input: the next piece begins; the next connection's stream begins."""
_INPUTS_A_PAIR = 2000
_INPUTS_A_LOOK = 250
_OF_CHANCE = re.compile(rb"metric|health|ready|live|watch|/ws|openapi|docs|/work", re.IGNORECASE)
"""The requests whose answers have counters, random ids or the time."""
_PATH = re.compile(rb"/v0[^ ]*")


def samples() -> tuple[bytes, ...]:
    """Requests the lane takes, whole, in a row, cut and side by side."""
    write, read = plain("t0-1"), plain_read("t0-1")
    found = [
        write,
        read,
        write * 3 + read * 2,
        CUT.join([write[:30], write[30:] + write]),
        NEXT.join([write, plain("t1-0")]),
    ]
    found += [plain("t0-0", body) for body in BODIES[11:]] + [plain_read("t0-0", body) for body in READS[5:]]
    return tuple(found)


class LaneBytes:
    """Feeds inputs to a pair of servers, and to a fresh one after some: what one did is there for the next."""

    def __init__(self) -> None:
        self._pair: Pair | None = None
        self._inputs = 0

    def feed(self, data: bytes) -> None:
        """Raises AssertionError for any difference."""
        streams = [pieces for pieces in map(_pieces, data.split(NEXT)[:CONNECTIONS]) if pieces]
        if not streams or _OF_CHANCE.search(data):
            return
        if self._pair is None:
            self._pair = Pair()
        # No promise says which request comes first when two connections ask for the same in one
        # pass.
        apart = all(map(_asks_for_its_own, streams, range(CONNECTIONS)))
        for together in [streams] if apart else [[stream] for stream in streams]:
            self._pair.send(together)
        self._inputs += 1
        if self._inputs % _INPUTS_A_LOOK == 0:
            self._pair.compare_state()
        if self._inputs % _INPUTS_A_PAIR == 0:
            self._pair.close()
            self._pair = None


def _asks_for_its_own(stream: Sequence[bytes], at: int) -> bool:
    """Whether it names the topics of its connection and nothing else."""
    paths = _PATH.findall(b"".join(stream))
    return all(path.startswith(b"/v0/topics/t%d-" % at) for path in paths)


def _pieces(stream: bytes) -> Sequence[bytes]:
    return [piece for piece in stream.split(CUT) if piece]
