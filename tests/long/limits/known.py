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


KNOWN: tuple[Known, ...] = ()


def known(operation: str, field: str, case: str) -> Known | None:
    for each in KNOWN:
        if fnmatchcase(operation, each.operation) and fnmatchcase(field, each.field) and fnmatchcase(case, each.case):
            return each
    return None
