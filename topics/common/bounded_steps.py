"""Work as a generator that yields between two steps of bounded length, and returns a result."""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple, TypeVar, cast

FOUND_A_STEP = 1 << 20
"""Bytes that a step searches."""
_T = TypeVar("_T")


def result_of(steps: Generator[None, None, _T]) -> _T:
    """Take all steps at once; return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast(_T, end.value)


class MemberList(NamedTuple):
    """A long list of objects in JSON without spaces, by the bytes around it and them.

    before: the name of the list and `[`. begins: `{` and the first name in each object, which no
    other object in the list begins with. after: `]` and the name that follows the list.
    """

    before: bytes
    begins: bytes
    after: bytes


def members_in_steps(
    text: bytes | memoryview, *lists: MemberList
) -> Generator[None, None, tuple[bytes | memoryview, list[list[memoryview]]]]:
    """Take the objects of long lists out of JSON; return the rest of it, and those of each list.

    They are found by the bytes around them, which are nowhere else: within a string a quote has a
    backslash before it, and after the end of one there is no letter. A list whose bytes are not
    found stays in the rest.
    """
    view = memoryview(text)
    found: list[list[memoryview]] = []
    ranges: list[tuple[int, int]] = []
    for before, begins, after in lists:
        begin = yield from _find_in_steps(view, 0, before + begins)
        end = None if begin is None else (yield from _find_in_steps(view, begin, b"}" + after))
        if begin is None or end is None:
            found.append([])
            continue
        ranges.append((begin + len(before), end + 1))
        found.append((yield from _divided_in_steps(view, *ranges[-1], b"}," + begins)))
    if not ranges:
        return text, found
    rest: list[memoryview] = []
    at = 0
    for begin, end in sorted(ranges):
        rest.append(view[at:begin])
        at = end
    return b"".join((*rest, view[at:])), found


def _divided_in_steps(
    view: memoryview, begin: int, end: int, between: bytes
) -> Generator[None, None, list[memoryview]]:
    """Return the members of a list. between: a comma between two, and what is around it."""
    members: list[memoryview] = []
    at = begin
    for start in range(begin, end, FOUND_A_STEP):
        if start > begin:
            yield
        part = bytes(view[start : min(end, start + FOUND_A_STEP + len(between) - 1)])
        found = part.find(between)
        while found >= 0:
            members.append(view[at : start + found + 1])
            at = start + found + 2
            found = part.find(between, found + 1)
    members.append(view[at:end])
    return members


def _find_in_steps(view: memoryview, at: int, wanted: bytes) -> Generator[None, None, int | None]:
    """Return where these bytes are, from `at` on; None if they are not."""
    while at < len(view):
        found = bytes(view[at : at + FOUND_A_STEP + len(wanted) - 1]).find(wanted)
        if found >= 0:
            return at + found
        at += FOUND_A_STEP
        yield
    return None
