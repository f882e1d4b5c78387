"""One seed: a few lives, and what clients see between them."""

from __future__ import annotations

import errno
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tests.contract.world.sim_world import SimWorld
from tests.sim import SimStoppedError
from tests.sim.again.asks import TOPICS, Ask, Asks
from tests.sim.again.promised import Promised
from tests.sim.again.seen_state import Seen, look_when_still
from topics.common.values.backup_result import SKIPPED_SEQS
from topics.config import Config
from topics.engine.stored_engine import StoredEngine
from topics.errors import UsageError
from topics.loop import Loop
from topics.store.archive.restore_archive import copy_point
from topics.store.archive.restore_point import point_at
from topics.store.archive.timelines import find_timelines

_BACKUPS = "/srv/backups"
_ARCHIVE = "/srv/archive"
_SYNCED_SOON_MS = 50
_NOTED_NS = 100_000_000
"""Time after which a slow server has noted a failed sync."""
_LATENCIES_NS = (30_000, 1_000_000, 20_000_000)
_LOGS = ("/wal/", "/shard-00/", "/shard-01/")
_FAULTS = (
    ("write", errno.ENOSPC, (*_LOGS, "/topics/topics", "/snap")),
    ("write", errno.EIO, _LOGS),
    ("sync", errno.EIO, _LOGS),
    ("open", errno.EMFILE, ("",)),
)


def replay(seed: int) -> str:
    """Return the command that shows this run."""
    return f"make again SEED={seed}"


def run(seed: int, say: Callable[[str], None] | None = None, *, lives_max: int = 4) -> Counter[str]:
    """Run a seed; return counts of events. lives_max: only the first of its lives.

    Raises: Different, or any error of the server.
    """
    return _Run(seed, say or (lambda line: None)).go(lives_max)


def _settings(rng: random.Random) -> dict[str, Any]:
    settings: dict[str, Any] = {"wal_shards": rng.choice((1, 2, 2, 3, 4))}
    settings["sync_every_ms"] = rng.choice((_SYNCED_SOON_MS, 1000, 60_000))
    if rng.random() < 0.5:
        settings["commit_in_place_max_us"] = 0
    checkpoints = rng.random()
    if checkpoints < 0.4:
        settings |= {"checkpoint_wal_bytes": 1 << 30, "checkpoint_every_ms": 1 << 40}  # none
    elif checkpoints < 0.7:
        settings |= {"checkpoint_wal_bytes": 1, "segment_max_events": rng.choice((2, 4, 100))}
        settings["pack_run_bytes"] = rng.choice((0, 2000))
    return settings


class _Run:
    def __init__(self, seed: int, say: Callable[[str], None]) -> None:
        self.rng = random.Random(f"{seed}:again")
        self.backup_rng = random.Random(f"{seed}:backup")
        self.say = say
        self.asks = Asks(self.rng)
        self.promised = Promised()
        self.counts: Counter[str] = Counter()
        archive = {"archive_dir": _ARCHIVE, "archive_every_ms": 50} if self.backup_rng.random() < 0.4 else {}
        self.world = SimWorld(seed, backup_dir=_BACKUPS, **_settings(self.rng), **archive)
        self.changing = self.rng.choice((0.0, 0.2))
        self.is_faulty = False
        """Whether an operation of this life has failed, or may."""

    def go(self, lives_max: int) -> Counter[str]:
        self.world.start()
        for topic in TOPICS:
            self.request(self.asks.configure(topic))
        for _ in range(min(lives_max, self.rng.choice((2, 3, 4)))):
            self.live()
            seen, when = self.end()
            self.kill_and_compare(seen, f"second kill, after a {when}")
            self.write_everywhere()
            self.kill_and_compare(self.look(), f"writes and a third kill, after a {when}")
            if self.backup_rng.random() < 0.5:
                self.back_up_and_compare()
            if self.world.config.archive_dir:
                self.restore_and_compare()
        self.world.close()
        self.counts["runs"] += 1
        return self.counts

    # --- a life ------------------------------------------------------------------------------------------------------
    def live(self) -> None:
        rng, world = self.rng, self.world
        self.is_faulty = False
        for burst in range(rng.choice((1, 2, 4))):
            if rng.random() < 0.5:
                self.slow_down()
            if rng.random() < 0.2:
                self.let_fail()
            for _ in range(rng.choice((3, 10, 25))):
                if rng.random() < self.changing:
                    self.change(rng.choice(TOPICS))
                    continue
                if rng.random() < 0.5:
                    self.request(self.asks.any())
                    continue
                self.send(self.asks.any())
                if rng.random() < 0.3:
                    world.advance_us(rng.choice((10, 300, 3000, 25_000)))
                if rng.random() < 0.1:
                    self.slow_down()
            if rng.random() < 0.5:
                self.heal()
            if burst and rng.random() < 0.4:
                world.advance_ms(rng.choice((20, 300, 2500)))

    def request(self, ask: Ask) -> None:
        answer = ask.request(self.world)
        self.say(f"{ask}: {answer.status} {answer.text[:150]}")
        self.promised.answered(ask, answer)

    def send(self, ask: Ask) -> None:
        self.say(f"{ask}: sent")
        self.promised.sent(ask)
        ask.send(self.world)

    def change(self, topic: str) -> None:
        """Send several changes in a row, without waiting, and writes after them."""
        for _ in range(self.rng.choice((1, 2, 3))):
            self.send(self.asks.configure(topic))
            if self.rng.random() < 0.3:
                self.send(self.asks.write(topic))
        self.request(self.asks.configure(topic))
        self.request(self.asks.write(topic, create=False))

    def slow_down(self) -> None:
        for kind in ("write", "sync"):
            self.world.ring.slow_ns[kind] = self.rng.choice(_LATENCIES_NS)

    def let_fail(self) -> None:
        rng, world = self.rng, self.world
        self.is_faulty = True
        if rng.random() < 0.35:
            disk = world.ring.disk
            disk.capacity_bytes = disk.used_bytes + rng.choice((0, 5000, 100_000, 400_000))
            self.say(f"--- {disk.capacity_bytes - disk.used_bytes} bytes are free")
            return
        kind, error, path_parts = rng.choice(_FAULTS)
        path_part, nth = rng.choice(path_parts), rng.choice((1, 2, 5, 10))
        world.fail_storage(kind, error, path_part=path_part, nth=nth)
        self.say(f"--- {kind} number {nth} from now on, of *{path_part}*, fails: {errno.errorcode[error]}")

    def heal(self) -> None:
        self.world.heal_storage()
        self.world.free_disk()

    # --- its end, and what is seen behind it -------------------------------------------------------------------------
    def end(self) -> tuple[Seen, str]:
        """End a life and begin another. Return what clients see then, and how it ended."""
        rng, world = self.rng, self.world
        is_synced_soon = world.config.sync_every_ms == _SYNCED_SOON_MS
        before: Seen | None = None
        if self.is_faulty or rng.random() < 0.45:
            when = rng.choice(("kill in the middle", "kill in the middle", "kill", "power cut", "power cut"))
        else:
            before = look_when_still(world)
            when = rng.choice(("stop", "kill", "kill") + ("power cut",) * is_synced_soon)
        self.say(f"=== {when}" + (" after quiet" if before is not None else ""))
        self.end_by(when, is_quiet=before is not None)
        self.heal()
        loses = self.start() or when == "power cut"
        seen = self.look()
        if before is not None and not loses:
            self.compare(before, seen, when)
        elif before is not None and is_synced_soon:
            self.compare(before.after_a_power_cut(), seen.after_a_power_cut(), "power cut")
        return seen, when

    def end_by(self, how: str, *, is_quiet: bool) -> None:
        rng, world = self.rng, self.world
        if how == "stop":
            assert world.stop() == 0
            return
        if how == "kill in the middle":
            world.ring.stop_at(world.ring.effects + rng.randrange(1, 60))
            with suppress(SimStoppedError):
                for _ in range(12):
                    self.send(self.asks.any())
                    world.advance_us(rng.choice((5, 100, 1000)))
                world.advance_us(50_000)
        elif not is_quiet:
            world.advance_us(rng.choice((1, 100, 2000, 15_000)))
        failed_syncs = world.ring.failed_syncs
        if failed_syncs and world.ring.clock.monotonic_ns() - failed_syncs[-1][0] < _NOTED_NS:
            self.say("=== at once after a failed sync, which perhaps nobody has noted: seqs may be given again")
            self.promised.forget()
        if how == "power cut":
            world.power_cut()
        else:
            world.crash()

    def start(self) -> bool:
        """Start, perhaps after starts that are stopped. Return whether the power was cut in one."""
        rng, world = self.rng, self.world
        was_cut = False
        while rng.random() < 0.45:
            world.ring.stop_at(world.ring.effects + rng.randrange(1, 160))
            with suppress(SimStoppedError):
                world.start(**self.other_shards(0.3))
                world.advance_ms(rng.choice((1, 50, 300)))
            if rng.random() < 0.7:
                world.crash()
            else:
                world.power_cut()
                was_cut = True
            self.counts["starts stopped"] += 1
            self.say(f"=== a start stopped, by a {'power cut' if was_cut else 'kill'}")
        world.start(**self.other_shards(0.1))
        return was_cut

    def other_shards(self, share: float) -> dict[str, Any]:
        return {"wal_shards": self.rng.choice((1, 2, 3, 4))} if self.rng.random() < share else {}

    def write_everywhere(self) -> None:
        for topic in TOPICS:
            self.request(self.asks.write(topic, create=False))
        for queue in self.asks.queues:
            claimed = self.asks.claim(queue, 2).request(self.world)
            if claimed.status == 200:
                self.request(self.asks.ack(queue, [job["$seq"] for job in claimed.json["claimed"]]))

    def kill_and_compare(self, before: Seen, when: str) -> None:
        self.world.crash_and_start()
        self.compare(before, self.look(), when)

    def back_up_and_compare(self) -> None:
        """Compare a backup, copied beside requests, with what clients saw before its instant."""
        rng, world = self.backup_rng, self.world
        before = self.look()
        began = world.request("POST", "/v0/backups").json["backup"]
        assert began["state"] == "running", began
        world.wait_until(lambda: bool(self.backup["files"]), 60_000)
        if rng.random() < 0.5:
            world.ring.slow_ns["write"] = rng.choice(_LATENCIES_NS)
        for _ in range(rng.choice((0, 5, 20))):
            self.send(self.asks.any())
            world.advance_us(rng.choice((10, 3000, 25_000)))
            if rng.random() < 0.2:
                world.request("POST", "/v0/checkpoint", {"wait_ms": 0})
        world.ring.slow_ns.clear()
        world.wait_until(lambda: self.backup["state"] != "running", 60_000)
        assert self.backup["state"] == "done", self.backup
        path, own, after = self.backup["path"], world.config.data_dir, self.look()
        world.crash()
        self.say(f"=== the backup {path} is opened")
        world.start(data_dir=path, **self.other_shards(0.1))
        self.compare(before, look_when_still(world), "backup")
        world.crash()
        world.start(data_dir=own)
        self.compare(after, self.look(), "kill, after a backup")

    def restore_and_compare(self) -> None:
        """Compare the archive, as it was at a time, with what clients saw then."""
        rng, world = self.backup_rng, self.world
        before, at_ms, own = self.look(), world.ring.clock.now_ms(), world.config.data_dir
        world.advance_ms(2)
        for _ in range(rng.choice((0, 5, 20))):
            self.send(self.asks.any())
            world.advance_us(rng.choice((10, 3000, 25_000)))
            if rng.random() < 0.2:
                world.request("POST", "/v0/checkpoint", {"wait_ms": 0})
        after = self.look()
        for _ in range(20):  # leases and expiries would end in a longer time
            if self.archived_ms >= at_ms:
                break
            world.advance_ms(50)
        world.crash()
        loop, target = Loop(world.ring, world.ring.clock), f"/srv/restored-{at_ms}"
        try:
            point = point_at(loop.run_task(find_timelines(loop, _ARCHIVE)), at_ms)
        except UsageError as error:
            self.say(f"=== no restore: {error}")
            self.counts["restores refused"] += 1
        else:
            loop.run_task(copy_point(loop, point, target))
            settled = replace(Config(), data_dir=target)
            stored = loop.run_task(StoredEngine.open(loop, settled, skipped_seqs=SKIPPED_SEQS))
            loop.run_task(stored.close())
            self.say(f"=== the archive of {at_ms} is opened")
            world.start(data_dir=target, archive_dir="", **self.other_shards(0.1))
            # The power was cut since the base, perhaps, and a restore leaves out seqs anyway.
            self.compare(before.after_a_power_cut(), look_when_still(world).after_a_power_cut(), "restore")
            world.crash()
        world.start(data_dir=own, archive_dir=_ARCHIVE)
        self.compare(after, self.look(), "kill, after a restore")

    @property
    def archived_ms(self) -> int:
        """Unix ms up to which the archive is."""
        assert self.world.server is not None
        backend = self.world.server._backend
        assert backend is not None
        return backend.archive.upto_ms

    @property
    def backup(self) -> dict[str, Any]:
        """How far the backup is, without a request for it."""
        assert self.world.server is not None
        engine = self.world.server.engine
        assert engine is not None
        progress = engine.backups.progress
        return progress._asdict() | {"path": progress.result.path if progress.result is not None else ""}

    def look(self) -> Seen:
        """Return what clients see once the server is idle; from then on no request is in flight."""
        seen = look_when_still(self.world)
        for topic, records in seen.records():
            self.say(f"    {topic}: {[(record['$seq'], record['data']) for record in records]}")
        self.counts["promised records seen"] += self.promised.check(seen)
        self.promised.start(seen)
        return seen

    def compare(self, before: Seen, after: Seen, when: str) -> None:
        before.check_same(after, when)
        self.counts[f"the same after: {when.partition(',')[0]}"] += 1
