"""When a joint timeline was just begun."""

from __future__ import annotations

from topics.store.archive.joint_timeline import is_just_begun

JOINT = "archive/2026-11-27T12-13-14Z-5f3a9c01"
TIMELINE = "2026-11-27T12-13-15Z-0123abcd"
OF_FIRST = f"{JOINT}/core-00"
BASES = f"{OF_FIRST}/{TIMELINE}/bases"
BASE = "2026-11-27T12-13-16Z"


def test_one_is_just_begun_until_core_0_has_a_base_or_the_note_is_there() -> None:
    directories = {JOINT: ["core-00", "core-01"], OF_FIRST: [TIMELINE]}

    def is_begun_with(**more: list[str]) -> bool:
        return is_just_begun(lambda path: (directories | more).get(path, []), JOINT)

    assert is_begun_with()
    assert is_begun_with(**{BASES: [f"{BASE}.partial"]}), "no base is complete"
    assert is_begun_with(**{BASES.replace("core-00", "core-01"): [BASE]}), "core 1 may have one before"
    assert not is_begun_with(**{BASES: [BASE]}), "the note is missing, which was there before it"
    assert not is_begun_with(**{JOINT: ["core-00", "slot-map", "archive.json"]})
