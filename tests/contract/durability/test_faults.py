"""One disk operation fails, each in its turn: every request is answered, and nothing that was acknowledged is lost.

Method: a short life of a server with writes, deletes, a new configuration and a stop, counted once without faults, then
run again with operation number n failing; afterwards the power fails, and what a reader finds is held against that.
"""

from __future__ import annotations

import errno
from typing import Any

import pytest

from tests.amount import stride
from tests.contract.conftest import is_live
from tests.contract.world.sim_world import SimWorld

FAULTS = {
    "write": [errno.EIO, errno.ENOSPC],
    "sync": [errno.EIO],
    "open": [errno.EIO, errno.EMFILE],
    "rename": [errno.EIO],
    "unlink": [errno.EIO],
    "allocate": [errno.ENOSPC],
}
SETTINGS: dict[str, Any] = {"checkpoint_every_ms": 20, "checkpoint_wal_bytes": 4096, "hot_tail_bytes": 2048}


class Life:
    """A topic of class fsync as its client knows it: what was answered, and what may have happened besides."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.created = False
        self.acknowledged: dict[int, Any] = {}
        self.tried: set[str] = set()
        self.deleted_below = 1
        self.maybe_deleted_below = 1

    def run(self) -> None:
        self.created = self._ask("PUT", "/v0/topics/t", {"durability": "fsync"}) is not None
        for number in range(12):
            text = f"record {number} " + "x" * 200
            self.tried.add(text)
            answer = self._ask("POST", "/v0/topics/t", {"records": [{"data": text}] * 2})
            if answer is not None:
                self.created = True
                self.acknowledged |= dict.fromkeys(answer["seqs"], text)
            if number % 4 == 3:
                bound = self.deleted_below + 2
                self.maybe_deleted_below = max(self.maybe_deleted_below, bound)
                if self._ask("POST", "/v0/topics/t/delete", {"before_seq": bound}) is not None:
                    self.deleted_below = bound
                self.world.advance_ms(25)
            if number == 6:
                self._ask("PUT", "/v0/topics/t", {"durability": "fsync", "cap_records": 1000})
            self._ask("POST", "/v0/topics/t/diff", {"limit": 1000})

    def check(self) -> None:
        answer = self.world.request("POST", "/v0/topics/t/diff", {"limit": 1000})
        if answer.status == 404:
            assert not self.created
            return
        page = answer.json
        assert page["tombstone"] is None
        found = {record["$seq"]: record["data"] for record in page["records"]}
        assert set(found.values()) <= self.tried, "nothing is invented"
        for seq, text in self.acknowledged.items():
            if seq < self.deleted_below:
                assert seq not in found, f"{seq} was deleted"
            elif seq >= self.maybe_deleted_below:
                assert found.get(seq) == text, f"{seq} was acknowledged"
        texts = [text for seq, text in found.items() if seq >= self.maybe_deleted_below + 1]
        assert all(texts.count(text) in (1, 2) for text in texts)

    def _ask(self, method: str, path: str, body: Any) -> Any:
        """The answer of a success; a failure is one of the disk, or a consequence of it."""
        answer = self.world.request(method, path, body)
        assert answer.status in (200, 201, 404, 500), f"{answer.status} {answer.text}"
        return answer.json if answer.status in (200, 201) else None


def live_through(kind: str = "", error: int = 0, nth: int = 0, seed: int = 5) -> dict[str, int]:
    """One run; the operations it took by kind."""
    world = SimWorld(seed, shuffle=True, **SETTINGS)
    world.start()
    before = dict(world.ring.faults.seen)
    if kind:
        world.fail_storage(kind, error, nth=nth)
    life = Life(world)
    life.run()
    world.begin_stop()
    world.finish_stop()
    taken = {name: count - before.get(name, 0) for name, count in world.ring.faults.seen.items()}
    world.heal_storage()
    world.power_cut()
    world.start()
    life.check()
    world.write("t", "it goes on")
    world.close()
    return taken


@pytest.mark.parametrize(("kind", "error"), [(kind, error) for kind, errors in FAULTS.items() for error in errors])
def test_whichever_operation_fails_nothing_acknowledged_is_lost(
    request: pytest.FixtureRequest, kind: str, error: int
) -> None:
    """R-DUR-2, R-DUR-7, R-DUR-16, R-SEQ-6: and the server answers, stops and starts again."""
    if is_live(request.config):
        pytest.skip("a simulated disk")
    count = live_through().get(kind, 0)
    for nth in range(1, count + 1, stride(max(1, count // 8))):
        try:
            live_through(kind, error, nth)
        except Exception as problem:
            problem.add_note(f"{kind} number {nth} of {count} fails with {errno.errorcode[error]}")
            raise


def recover_with(kind: str = "", error: int = 0, nth: int = 0) -> dict[str, int]:
    """A start on the disk of a killed server, with one operation failing; the operations it took by kind."""
    world = SimWorld(7, shuffle=True, **SETTINGS)
    world.start()
    for name in ("t", "u"):
        world.put(name, durability="fsync", cap_records=30)
        for number in range(10):
            world.write(name, *[[number, part] for part in range(4)])
            world.advance_ms(5)
        world.delete(name, before_seq=20)
    before = (world.diff("t")["records"], world.diff("u")["records"])
    world.crash()
    seen = dict(world.ring.faults.seen)
    if kind:
        world.fail_storage(kind, error, nth=nth)
    if world.try_to_start():
        taken = {name: count - seen.get(name, 0) for name, count in world.ring.faults.seen.items()}
        assert (world.diff("t")["records"], world.diff("u")["records"]) == before
        world.power_cut()
    else:
        assert kind, "it starts on a sound disk"
        taken = {}
    world.heal_storage()
    world.start()
    assert (world.diff("t")["records"], world.diff("u")["records"]) == before
    world.close()
    return taken


@pytest.mark.parametrize(
    "kind",
    ["read", "write", "sync", "open", "rename", "unlink", "make_directory", "list_directory", "file_size", "lock"],
)
def test_a_start_that_fails_leaves_all_there_was_for_the_next(request: pytest.FixtureRequest, kind: str) -> None:
    """R-LIFE-6, R-LIFE-5: it gets ready with everything, or ends with an error."""
    if is_live(request.config):
        pytest.skip("a simulated disk")
    count = recover_with().get(kind, 0)
    for nth in range(1, count + 1, stride(max(1, count // 6))):
        try:
            recover_with(kind, errno.EIO, nth)
        except Exception as problem:
            problem.add_note(f"{kind} number {nth} of {count} fails")
            raise
