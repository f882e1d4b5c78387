"""`choose` as a table: how a batch is committed, or what it waits for, from the facts of a shard."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import pytest

from topics.store.commits.commit_choice import (
    BARE_DIRECT_BYTES_MIN,
    BARE_IN_PLACE_BYTES_MAX,
    DSYNC_BYTES_MAX,
    WINDOW_BYTES_MAX,
    Choice,
    Held,
    Until,
    choose,
)
from topics.store.commits.primitive import Primitive

SMALL = 100
BARE = Choice(Primitive.BARE)
BARE_IN_PLACE = Choice(Primitive.BARE, in_place=True)
BARE_DIRECT = Choice(Primitive.BARE_DIRECT)
LINK = Choice(Primitive.LINK)
MEASURED = Choice(Primitive.DSYNC, in_place=True, is_measured=True)
MEASURED_RING = Choice(Primitive.LINK, is_measured=True)
DIRECT = Choice(Primitive.DIRECT)
DSYNC = Choice(Primitive.DSYNC)
DSYNC_IN_PLACE = Choice(Primitive.DSYNC, in_place=True)


@dataclass(frozen=True)
class Facts:
    """A shard on a quick device, with a file that has room, all bytes synced, and nothing that holds commits back."""

    setting: str = "auto"
    exclusive: bool = False
    unsynced: bool = False
    max_unsynced: int = 0
    unsynced_bytes: int = 0
    syncing: bool = False
    sync_planned: bool = True
    room: int = 1 << 30
    held_ns: int = 0
    window_ns: int = 0
    delay_ns: int = 0
    idle_ns: int = 0
    quick: bool = True
    quick_beside_sync: bool = True
    is_only: bool = True


QUICK = Facts()
SLOW = Facts(quick=False)
LIBRARY = Facts(exclusive=True, quick=False)
LARGE = BARE_DIRECT_BYTES_MIN


@pytest.mark.parametrize(
    ("facts", "size", "lone", "choice"),
    [
        (QUICK, SMALL, True, BARE_IN_PLACE),
        (QUICK, SMALL, False, BARE_IN_PLACE),
        (QUICK, LARGE, False, BARE_IN_PLACE),
        (QUICK, BARE_IN_PLACE_BYTES_MAX, False, BARE_IN_PLACE),
        (QUICK, BARE_IN_PLACE_BYTES_MAX + 1, False, BARE_DIRECT),
        (SLOW, SMALL, True, BARE),
        (SLOW, LARGE - 1, True, BARE),
        (SLOW, LARGE, True, BARE_DIRECT),
        (Facts(setting="link", quick=False), LARGE, False, BARE),
        (Facts(quick_beside_sync=False), SMALL, False, BARE),
        (Facts(quick_beside_sync=False), SMALL, True, BARE_IN_PLACE),
        (Facts(unsynced=True, syncing=True), SMALL, False, BARE_IN_PLACE),
        (LIBRARY, SMALL, True, BARE_IN_PLACE),
        (Facts(max_unsynced=SMALL + 10, unsynced=True, unsynced_bytes=10), SMALL, False, BARE_IN_PLACE),
        (LIBRARY, BARE_IN_PLACE_BYTES_MAX + 1, True, BARE_IN_PLACE),
    ],
)
def test_a_batch_without_a_sync_waiter_is_a_bare_write(facts: Facts, size: int, lone: bool, choice: Choice) -> None:
    assert choose(facts, size, fsync=False, lone=lone) == choice


@pytest.mark.parametrize(
    ("facts", "choice"),
    [
        (Facts(max_unsynced=SMALL + 9, unsynced=True, unsynced_bytes=10), LINK),
        (Facts(max_unsynced=SMALL + 9, unsynced=True, unsynced_bytes=10, syncing=True), Held(Until.SYNC)),
        (Facts(max_unsynced=SMALL - 1), MEASURED),
        (Facts(max_unsynced=SMALL - 1, exclusive=True), DSYNC_IN_PLACE),
    ],
)
def test_a_batch_that_would_exceed_the_bound_of_unsynced_bytes_is_synced(facts: Facts, choice: Choice | Held) -> None:
    assert choose(facts, SMALL, fsync=False, lone=facts.exclusive) == choice


@pytest.mark.parametrize(
    ("facts", "size", "lone", "choice"),
    [
        (QUICK, SMALL, True, DSYNC_IN_PLACE),
        (QUICK, DSYNC_BYTES_MAX, True, DSYNC_IN_PLACE),
        (QUICK, DSYNC_BYTES_MAX + 1, True, DIRECT),
        (QUICK, SMALL, False, MEASURED),
        (QUICK, LARGE - 1, False, MEASURED),
        (QUICK, LARGE, False, DIRECT),
        (SLOW, SMALL, True, MEASURED_RING),
        (Facts(is_only=False), SMALL, False, MEASURED_RING),
        (LIBRARY, SMALL, True, DSYNC_IN_PLACE),
        (Facts(setting="direct"), SMALL, True, DIRECT),
        (Facts(setting="dsync"), 1 << 20, True, DSYNC_IN_PLACE),
        (Facts(setting="dsync"), 1 << 20, False, DSYNC),
        (Facts(setting="link"), SMALL, True, LINK),
    ],
)
def test_a_batch_with_a_sync_waiter_is_synced(facts: Facts, size: int, lone: bool, choice: Choice) -> None:
    assert choose(facts, size, fsync=True, lone=lone) == choice


@pytest.mark.parametrize("setting", ["auto", "link", "direct", "dsync"])
def test_unsynced_bytes_before_a_batch_call_for_the_buffered_chain(setting: str) -> None:
    for size, lone, exclusive in product((SMALL, LARGE, 1 << 21), (True, False), (True, False)):
        facts = Facts(setting=setting, unsynced=True, exclusive=exclusive)
        assert choose(facts, size, fsync=True, lone=lone) == LINK


@pytest.mark.parametrize(
    ("facts", "fsync", "lone", "wait"),
    [
        (Facts(held_ns=7), False, True, Held(Until.TIME, 7)),
        (Facts(held_ns=7, exclusive=True), True, True, Held(Until.TIME, 7)),
        (Facts(window_ns=10, idle_ns=4), False, True, Held(Until.TIME, 6)),
        (Facts(window_ns=10, idle_ns=4, held_ns=7), False, True, Held(Until.TIME, 7)),
        (Facts(delay_ns=10, idle_ns=4), True, False, Held(Until.TIME, 6)),
        (Facts(window_ns=20, delay_ns=10, idle_ns=4), True, False, Held(Until.TIME, 16)),
        (Facts(syncing=True), True, True, Held(Until.SYNC)),
        (Facts(room=SMALL - 1), False, False, Held(Until.FILE)),
        (Facts(room=0), True, True, Held(Until.FILE)),
        (Facts(room=0, syncing=True), True, True, Held(Until.SYNC)),
        (Facts(sync_planned=False), False, True, Held(Until.TIMER)),
        (Facts(sync_planned=False, room=0), False, False, Held(Until.FILE)),
    ],
)
def test_what_holds_a_batch_back_is_said(facts: Facts, fsync: bool, lone: bool, wait: Held) -> None:
    assert choose(facts, SMALL, fsync=fsync, lone=lone) == wait


@pytest.mark.parametrize(
    ("facts", "size", "fsync", "lone"),
    [
        (Facts(window_ns=10, idle_ns=10), SMALL, True, False),
        (Facts(window_ns=10), WINDOW_BYTES_MAX, True, False),
        (Facts(delay_ns=10), SMALL, True, True),
        (Facts(delay_ns=10), SMALL, False, False),
        (Facts(delay_ns=10, idle_ns=10), SMALL, True, False),
        (Facts(syncing=True), SMALL, False, False),
        (Facts(sync_planned=False), SMALL, True, True),
        (Facts(room=SMALL), SMALL, True, True),
    ],
)
def test_what_holds_other_batches_back_does_not_hold_back_this_one(
    facts: Facts, size: int, fsync: bool, lone: bool
) -> None:
    assert isinstance(choose(facts, size, fsync=fsync, lone=lone), Choice)


def test_only_one_write_is_made_in_place_and_what_syncs_is_what_was_asked_for() -> None:
    sizes = (SMALL, LARGE - 1, LARGE, DSYNC_BYTES_MAX + 1, BARE_IN_PLACE_BYTES_MAX + 1)
    flags = (True, False)
    for setting, exclusive, unsynced, quick in product(("auto", "link", "direct", "dsync"), flags, flags, flags):
        facts = Facts(setting=setting, exclusive=exclusive, unsynced=unsynced, quick=quick)
        for size, fsync, lone in product(sizes, flags, flags):
            choice = choose(facts, size, fsync=fsync, lone=lone)
            assert isinstance(choice, Choice)
            assert choice.primitive.syncs == fsync
            assert not (choice.in_place and (choice.primitive.is_chain or choice.primitive is Primitive.BARE_DIRECT))
            assert not (choice.primitive is Primitive.DSYNC and unsynced)
            assert not (choice.primitive.is_direct and setting == "link")
