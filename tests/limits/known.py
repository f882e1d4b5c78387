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
)  # fmt: skip


def known(operation: str, field: str, case: str) -> Known | None:
    for each in KNOWN:
        if fnmatchcase(operation, each.operation) and fnmatchcase(field, each.field) and fnmatchcase(case, each.case):
            return each
    return None
