"""Passes that are known to be longer than the limit, each with the reason."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import NamedTuple


class Known(NamedTuple):
    """operation, field and case: patterns of `fnmatch`; most_ms: more than this is a failure again."""

    operation: str
    field: str
    case: str
    most_ms: int
    why: str


LARGE_BODY = "a body or a message of megabytes is unpacked, joined and scanned at one go"
MS_A_MIB = 8
"""What that takes at most."""
KNOWN = (
    Known(
        "*", "body.records*", "equal members", 1500,
        "objects that repeat keys are rewritten one by one, in one pass for all of a body's records",
    ),
    Known(
        "PUT /v0/topics/:", "body.cap_*", "1", 1500,
        "a cap that evicts a million records counts their tags down one by one",
    ),
    Known(
        "POST /v0/topics/:/delete", "body.match", "*tags*", 400,
        "a delete by tag is applied at one instant, and looks at each of a million tags and records",
    ),
    Known(
        "DELETE /v0/topics/:", "path", "a large topic", 100,
        "a million tags are freed at once",
    ),
)  # fmt: skip


def known(operation: str, field: str, case: str) -> Known | None:
    for each in KNOWN:
        if fnmatchcase(operation, each.operation) and fnmatchcase(field, each.field) and fnmatchcase(case, each.case):
            return each
    return None
