"""The memory that one scan of receives fills (scan.h)."""

from __future__ import annotations

from typing import Any

from topics.http.lane._scan import ffi


class ScanTable:
    """C columns of a scan, valid until the next one, and views of their bytes.

    By receive: `upto`, the end of the part that was taken, and `reasons`. By request: `requests`
    and `counts`, the records of each. `groups`: the requests by topic.
    """

    __slots__ = ("count_bytes", "counts", "group_bytes", "groups", "reasons", "request_bytes", "requests", "upto")

    def __init__(self, receives: int, requests: int) -> None:
        """Make room for so many of both."""
        self.requests = ffi.new("struct tp_request[]", requests)
        self.groups = ffi.new("struct tp_group[]", requests)
        self.counts = ffi.new("uint32_t[]", requests)
        self.upto = ffi.new("uint32_t[]", receives)
        self.reasons = ffi.new("uint8_t[]", receives)
        self.request_bytes: Any = ffi.buffer(self.requests)
        self.group_bytes: Any = ffi.buffer(self.groups)
        self.count_bytes: Any = ffi.buffer(self.counts)
