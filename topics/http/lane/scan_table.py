"""The scanner of one server and the memory that one scan of receives fills (scan.h)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from topics.engine.bodies.write_columns import GROUP
from topics.http.lane._scan import ffi, lib

if TYPE_CHECKING:
    from topics.http.lane._scan import tp_scanner


class ScanTable:
    """C columns of a scan, valid until the next one, and views of their bytes.

    By receive: `upto`, the end of the part that was taken, and `reasons`. By request: `requests`
    and `counts`, the records of each. `groups`: the requests by topic.
    """

    __slots__ = (
        "_room",
        "count_bytes",
        "counts",
        "group_bytes",
        "group_memory",
        "groups",
        "reasons",
        "request_bytes",
        "requests",
        "scanner",
        "upto",
        "upto_bytes",
    )

    def __init__(self, scanner: tp_scanner, receives: int, requests: int) -> None:
        """Allocate the columns for this many receives and requests of a pass."""
        self.scanner = scanner
        self._room = requests
        self.requests = ffi.new("struct tp_request[]", requests)
        self.groups = ffi.new("struct tp_group[]", requests)
        self.counts = ffi.new("uint32_t[]", requests)
        self.upto = ffi.new("uint32_t[]", receives)
        self.reasons = ffi.new("uint8_t[]", receives)
        self.request_bytes: Any = ffi.buffer(self.requests)
        self.group_bytes: Any = ffi.buffer(self.groups)
        self.group_memory = memoryview(self.group_bytes)
        self.count_bytes: Any = ffi.buffer(self.counts)
        self.upto_bytes: Any = ffi.buffer(self.upto)

    def group_topics(self, count: int) -> list[int]:
        """Return the numbers of the topics of the first `count` groups."""
        return self.group_memory[: count * GROUP.size].cast("I")[:: GROUP.size // 4].tolist()

    def scan(self, data: Any, starts: Any, ends: Any, count: int, room: int = 0) -> int:
        """Find the plain requests of `count` receives; return the number of groups of writes.

        data: C data, of which receive i is from starts[i] to ends[i]. room: the most requests, if
        it is not what the table has room for.
        """
        found: int = lib.tp_scan_requests(
            self.scanner, data, starts, ends, count, self.requests, self.groups, room or self._room, self.reasons
        )
        return found
