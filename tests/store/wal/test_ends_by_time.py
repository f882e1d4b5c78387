"""Where the log ended at a time, by what captures of a later instant than their checkpoint hold."""

from __future__ import annotations

import pytest

from tests.store.backup.test_write_backup import ROOT, check_opens_with, filled, seqs
from tests.store.store_world import StoreWorld
from topics.loop.tasks import Future
from topics.store.backup.capture_copy import Captured
from topics.store.backup.write_backup import BackupWriter, OwnCopies
from topics.store.checkpoint.capture import Capture
from topics.store.disk.directory_format import CORES, Marker


class LaterInstant:
    """An instant that a test gives. is_asked: a checkpoint waits for it."""

    def __init__(self) -> None:
        self.is_asked = False
        self.given: Future[int | None] = Future()
        self.kept = True

    async def agreed_ms(self) -> int | None:
        self.is_asked = True
        return await self.given

    def is_kept(self) -> bool:
        return self.kept


def awaited(world: StoreWorld, instant: LaterInstant) -> list[Capture]:
    """Begin a checkpoint that waits for an instant; return the list that will have its capture."""
    captures: list[Capture] = []
    world.loop.spawn(world.store.checkpointer.run(on_captured=captures.append, instant=instant), "checkpoint")
    world.loop.run_until(lambda: instant.is_asked)
    return captures


def write(world: StoreWorld, times: int) -> None:
    """Write to all topics, a batch each, over several files of the log."""
    for _ in range(times):
        for topic_id in (1, 2, 3):
            world.append(topic_id, 2, size=9000)


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize(("before", "after"), [(0, 0), (0, 9), (9, 0), (9, 9)])
def test_a_capture_of_a_later_instant_has_what_was_written_by_then_and_no_more(
    shards: int, before: int, after: int
) -> None:
    world, instant = filled(wal_shards=shards), LaterInstant()
    captures = awaited(world, instant)
    write(world, before)
    at_ms, expected = world.ring.clock.now_ms(), seqs(world)
    world.ring.clock.advance_ns(1_000_000)
    write(world, after)
    instant.given.set_result(at_ms)
    world.loop.run_until(lambda: bool(captures))
    copies = OwnCopies(world.loop, [Captured(captures[0], Marker(captures[0].format_number, CORES))], lambda: False)
    written = world.run(BackupWriter(world.loop, copies, ROOT).write())
    captures[0].release()
    assert written.taken_ms == at_ms
    check_opens_with(world, written, expected)


@pytest.mark.parametrize("is_given", [False, True])
def test_a_capture_whose_instant_is_given_up_or_not_kept_holds_nothing(is_given: bool) -> None:
    world, instant = filled(), LaterInstant()
    captures = awaited(world, instant)
    instant.kept = False
    instant.given.set_result(world.ring.clock.now_ms() if is_given else None)
    world.run(world.store.checkpointer.until_idle())
    assert captures == []
    assert not [file.path for file in world.store.files if file.readers]
