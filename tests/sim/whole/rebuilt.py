"""After the last life: all snapshots are lost, and a rebuild finds the records from the segments
and packs.

The process before it was stopped as a server is: its routers are at their end before the last
checkpoint (R-LIFE-7), so that everything is in segments and packs. All live records exist again,
and no others: none that was deleted, and none of a deleted topic. A file states a topic's config
and floors at the time it was written (docs/operations.md): only records below a floor may return,
and a cap or a ttl that was raised or switched off since, or that has become one that rejects
writes, may remove records, up to the floor that this leaves.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from tests.sim import SimRing
from tests.sim.whole.machine import Machine
from topics.config import Config
from topics.engine.stored_engine import StoredEngine
from topics.engine.values.topic_config import TopicConfig
from topics.loop import Loop
from topics.store.disk.data_directory import lock_directory
from topics.store.repair.rebuild import rebuild


class _Rows(NamedTuple):
    """The records of one topic."""

    live: set[int]
    floor: int
    """No record up to it is live."""
    config: TopicConfig


_NONE = _Rows(set(), 0, TopicConfig())


class _Found(NamedTuple):
    """The content at a process's start, and at its stop, by topic id."""

    at_start: dict[int, _Rows]
    at_end: dict[int, _Rows]


def rebuild_without_snapshots(machine: Machine) -> None:
    machine.crash(power_cut=False)
    before = _stopped(machine.ring, machine.config).at_end
    ring = machine.ring.next_life(power_cut=False)
    directory = f"{machine.config.data_dir}/snapshots"
    for name in ring.disk.list_directory(directory):
        ring.disk.unlink(f"{directory}/{name}")
    loop = Loop(ring, ring.clock)
    loop.run_task(rebuild(loop, machine.config.data_dir, machine.config.cold_dir))
    # At the start, because routers then copy again what they had copied since their destination's
    # file was written.
    after = _stopped(ring.next_life(power_cut=False), machine.config).at_start
    for topic_id in before.keys() | after.keys():
        was, now = before.get(topic_id, _NONE), after.get(topic_id, _NONE)
        removed_upto = now.floor if _has_lower_limit(now.config, was.config) else 0
        if lost := {seq for seq in was.live - now.live if seq > removed_upto}:
            raise machine.wrong(f"a rebuild without a snapshot lost of topic {topic_id} {sorted(lost)[:9]}")
        if back := {seq for seq in now.live - was.live if seq > was.floor}:
            raise machine.wrong(f"a rebuild without a snapshot brought back of topic {topic_id} {sorted(back)[:9]}")
    machine.counts["rebuilds without a snapshot"] += 1


def _has_lower_limit(config: TopicConfig, than: TopicConfig) -> bool:
    """Return whether a cap or the ttl of a config removes records that the other one leaves."""
    return any(0 < limit < other for limit, other in zip(_limits(config), _limits(than), strict=True))


def _limits(config: TopicConfig) -> tuple[float, float, float]:
    """Return the ttl, and the caps that remove records: a topic that rejects writes may hold more than its caps."""
    caps = (config.cap_records, config.cap_bytes) if config.discard == "old" else (0, 0)
    ttl_ms, records, size = (limit or math.inf for limit in (config.ttl_ms, *caps))
    return ttl_ms, records, size


def _stopped(ring: SimRing, config: Config) -> _Found:
    """Start and stop a process. Return the content at both."""
    ring.disk.watch = lambda _old, _new, _node: None
    loop = Loop(ring, ring.clock)
    stored = loop.run_task(StoredEngine.open(loop, config, directory=lock_directory(ring, config)))
    at_start = _rows(stored)
    stored.engine.begin_shutdown()
    loop.run_task(stored.close())
    return _Found(at_start, _rows(stored))


def _rows(stored: StoredEngine) -> dict[int, _Rows]:
    registry = stored.engine._core.registry
    found = {}
    for topic_id in [*registry.by_id, *registry.dormant.by_id]:
        topic = registry.with_id(topic_id)
        assert topic is not None
        live = topic.index.live_seqs(0, topic.index.last_seq, 1 << 30)
        found[topic_id] = _Rows(set(live), topic.floors.dead_through, topic.config)
    return found
