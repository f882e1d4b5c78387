"""Moves of slots that are refused: each with a sentence that names the reason, which has to hold.

Excused: `docs/internals/cores.md`, "What is refused".
"""

from __future__ import annotations

import re

from topics.store.cores.slot_map import SlotMap

_BETWEEN = re.compile(
    r"router \S+ copies between (\S+) and (\S+), on cores (\d+) and (\d+), which would be on cores (\d+) and (\d+)"
)
_DIVIDED = re.compile(r"router \S+ copies from (\S+) to (\S+), which would be on cores (\d+) and (\d+),")
_STAGED = re.compile(
    r"topic (\S+) would be on core (\d+), and a part of producer \S+ waits for its last pieces on core (\d+):"
)


def is_right(sentence: str, before: SlotMap, cores: int) -> bool:
    """Return whether a move to this number of cores may be refused with this sentence."""
    after = before.moved_to(cores)
    if found := _BETWEEN.match(sentence):
        names = found[1], found[2]
        was, now = [[slots.core_of(name) for name in names] for slots in (before, after)]
        return was != now and [*map(int, found.groups()[2:])] == [*was, *now]
    if found := _DIVIDED.match(sentence):
        now = [after.core_of(name) for name in found.groups()[:2]]
        return now[0] != now[1] and [*map(int, found.groups()[2:])] == now
    if found := _STAGED.match(sentence):
        cores_of = before.core_of(found[1]), after.core_of(found[1])
        return cores_of[0] != cores_of[1] and (int(found[3]), int(found[2])) == cores_of
    return False
