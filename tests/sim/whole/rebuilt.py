"""After the last life: all snapshots are lost, and a rebuild finds the records by what the files say of themselves.

The process before it was stopped well, so that everything is in segments and packs. What was live is there again, and
nothing else: no record that was deleted, and none of a topic that is gone. Only records below a floor may return, since
a file states the floors of the time when it was written (docs/operations.md).
"""

from __future__ import annotations

from typing import NamedTuple

from tests.sim import SimRing
from tests.sim.whole.machine import Machine
from topics.config import Config
from topics.engine.stored_engine import StoredEngine
from topics.loop import Loop
from topics.store.disk.data_directory import take
from topics.store.repair.rebuild import rebuild


class _Rows(NamedTuple):
    """Of one topic."""

    live: set[int]
    floor: int
    """No record up to it is live."""


def rebuild_without_snapshots(machine: Machine) -> None:
    machine.crash(power_cut=False)
    before = _stopped(machine.ring, machine.config)
    ring = machine.ring.next_life(power_cut=False)
    directory = f"{machine.config.data_dir}/snapshots"
    for name in ring.disk.list_directory(directory):
        ring.disk.unlink(f"{directory}/{name}")
    loop = Loop(ring, ring.clock)
    loop.run_task(rebuild(loop, machine.config.data_dir, machine.config.cold_dir))
    after = _stopped(ring.next_life(power_cut=False), machine.config)
    for topic_id in before.keys() | after.keys():
        was, now = before.get(topic_id, _Rows(set(), 0)), after.get(topic_id, _Rows(set(), 0))
        if lost := was.live - now.live:
            raise machine.wrong(f"a rebuild without a snapshot lost of topic {topic_id} {sorted(lost)[:9]}")
        if back := {seq for seq in now.live - was.live if seq > was.floor}:
            raise machine.wrong(f"a rebuild without a snapshot brought back of topic {topic_id} {sorted(back)[:9]}")
    machine.counts["rebuilds without a snapshot"] += 1


def _stopped(ring: SimRing, config: Config) -> dict[int, _Rows]:
    """What a process finds that is started and stopped, by topic id."""
    ring.disk.watch = lambda _old, _new, _node: None
    loop = Loop(ring, ring.clock)
    stored = loop.run_task(StoredEngine.open(loop, config, directory=take(ring, config)))
    stored.engine.begin_shutdown()
    loop.run_task(stored.store.close())
    registry = stored.engine._core.registry
    found = {}
    for topic_id in [*registry.by_id, *registry.dormant.by_id]:
        topic = registry.with_id(topic_id)
        live = topic.index.live_seqs(0, topic.index.last_seq, 1 << 30)
        found[topic_id] = _Rows(set(live), topic.floors.dead_through)
    return found
