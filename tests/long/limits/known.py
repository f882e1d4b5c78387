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


LARGE_BODY = (
    "the frames of a body of megabytes are numbered at one go, and made at one go where the write creates its topic"
)
MS_A_MIB = 1.5
"""What that takes at most."""
KNOWN: tuple[Known, ...] = ()


def known(operation: str, field: str, case: str) -> Known | None:
    for each in KNOWN:
        if fnmatchcase(operation, each.operation) and fnmatchcase(field, each.field) and fnmatchcase(case, each.case):
            return each
    return None
