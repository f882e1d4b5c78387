"""The choices of a seed before anything runs: settings of each life, how each ends, and its planned
faults.
"""

from __future__ import annotations

import errno
import random
from dataclasses import fields, replace
from typing import Any, NamedTuple

from tests.sim.genome import Seed, stream
from tests.sim.whole.clients.state import PRODUCER_EPOCHS
from tests.sim.world.faults import NO_SPACE
from topics.config import Config

PORT = 4000
COLD = "/srv/cold"
LONGEST_SHORT_LOG = 256 << 10
"""Lives with a longer bound never reach it."""
_BASE = Config(
    data_dir="/srv/topics",
    port=PORT,
    wal_file_bytes=64 << 10,
    disk_reserve_bytes=0,
    disk_low_water_bytes=0,
    receive_buffer_bytes=1024,
    checkpoint_bytes_per_pass=4096,
    producer_epochs=PRODUCER_EPOCHS,
    default_batch_bytes=8 << 20,  # a page ends only by its limit
    http_parser="httptools",
    verify=True,
)


_PASS_NS = ((1000,), (1000, 20_000, 60_000), (1000, 20_000, 60_000), (30_000, 100_000), (30_000, 100_000))
"""Times of a pass: a quick loop sees completions one by one, a slow one many in a pass."""


class PlannedFault(NamedTuple):
    """One fault: only `keep` bytes of a transfer, or `error`; the `nth` of its kind from now on,
    `times` in a row.

    ends: nothing fails, and the life ends with it. file: the common name of all files of its kind.
    """

    kind: str
    error: int = 0
    keep: int | None = None
    nth: int = 1
    times: int = 1
    path_part: str = ""
    file: str = ""
    ends: bool = False


class Faulty(NamedTuple):
    """The faults of one life."""

    plans: tuple[PlannedFault, ...] = ()
    space_bytes: int | None = None
    space_back_ns: int = 0
    """Time after which the usual space is free again; 0: not in this life."""
    descriptors: int = 0
    """Number of further descriptors that may be open; 0: plenty."""
    completions_max: int = 0
    """Room of the completion queue; 0: plenty."""
    sync_factor: int = 1
    """Factor by which syncs take longer than usual."""
    lies: tuple[int, int] | None = None
    """The sync from which on the disk answers without having synced, and how many in a row do."""


class Starting(NamedTuple):
    """The crashes between the end of one life and the beginning of the next."""

    interrupted: tuple[tuple[int, bool], ...] = ()
    """Recoveries stopped after so many operations, each by a kill or (True) a power cut."""
    twice: bool = False
    """Whether the first recovery that succeeds is followed by a crash and another one, which has to
    find the same.
    """
    faulty: Faulty = Faulty()
    """Faults of a start before all of them: it may fail, and is killed when it serves."""
    cut_after: bool = False
    """Whether the power is cut after that start."""

    @property
    def crashes(self) -> int:
        return len(self.interrupted) + self.twice


def _choose_starting(rng: random.Random, crashes_max: int) -> Starting:
    interrupted = tuple(
        (rng.choice((rng.randint(1, 15), rng.randint(1, 150))), rng.random() < 0.5)
        for _ in range(min(crashes_max, rng.choice((0, 0, 0, 0, 0, 0, 0, 0, 1, 2))))
    )
    return Starting(interrupted, twice=rng.random() < 0.15 and len(interrupted) < crashes_max)


class Life(NamedTuple):
    """The course of a life: it ends once clients have sent `operations` in all, and `effects_left`
    of the ring came after.
    """

    starting: Starting
    operations: int
    effects_left: int
    power_cut: bool
    graceful: bool
    faulty: Faulty
    settles: bool
    """Whether all requests are answered before its end."""
    ending: tuple[PlannedFault, ...] = ()
    """Faults planned when a graceful stop begins."""
    clock_step_ms: int = 0
    """Step of the wall clock, back or forth, before the machine starts."""
    tear: int = 0
    """The number that decides what the crash leaves of bytes that are not durable; 0: the seed
    does.
    """


_CLOCK_STEPS_MS = (0, 0, 0, 5, -5, 2_000, -2_000, 70_000, -70_000, 200_000, -200_000)
"""Steps within the times to live of topics, around them, and beyond the window of a key."""


class Length(NamedTuple):
    """The number of crashes of a seed, and the rough number of requests."""

    crashes: int
    operations: int


WHOLE = Length(3, 200)
SHORT = Length(1, 40)
"""A third of the time: as many faults and settings, but no failure that takes two crashes."""


class Plan:
    """The plan of a seed, chosen only by `seed`. lives: each ends in a crash or a graceful stop;
    the last one is audited.

    At least one of its crashes ends a life in which clients were at work; any other may instead
    interrupt a recovery, or end one that has just succeeded. The lives share the operations.
    """

    def __init__(self, seed: Seed, length: Length = WHOLE) -> None:
        self.seed = seed
        self.crashes = length.crashes
        rng = stream(seed, "plan")
        self.split = rng.random() < 0.5
        buffers = rng.choice((4, 16, 64))
        self.ring_options: dict[str, Any] = {
            "receive_buffers": buffers,
            "receive_buffer_bytes": 1024,
            "pass_ns": rng.choice(_PASS_NS),
            "signals": stream(seed, "signals").random() < 0.5,
        }
        shards = rng.choice((1, 1, 2, 3))
        rng.random()  # decided something once: without this draw every seed would be another life
        self.base = replace(
            _BASE,
            receive_buffers=buffers,
            wal_shards=shards,
            cold_dir=COLD if stream(seed, "cold").random() < 0.3 else "",
            disk_reserve_bytes=stream(seed, "reserve bytes").choice((0, 0, 128 << 10)),
            disk_low_water_bytes=stream(seed, "low water").choice((0, 0, 0, 40_000)),
        )
        self.with_faults = rng.random() < 0.5
        self.heavy = rng.random() < 0.15
        """Whether records below `fsync` are large, so that the log changes files with bytes that
        are not synced.
        """
        self.has_streaks = stream(seed, "streaks").random() < 0.2
        """Whether owners write to one topic again and again now and then, while all others rest."""
        self.one_sender_passes = 0 if self.has_streaks else stream(seed, "alone").choice((0, 1, 8))
        """Passes with only one connection after which its commits and answers are made in place."""
        self.stall_ns = stream(seed, "stall").choice((0, 0, 0, 0, 0, 0, 200_000, 3_000_000))
        """The latest that clients take answers, in small parts, out of small sockets; 0: at once.
        """
        self.large = False
        """Whether some records have several blocks."""
        self.shard_counts: tuple[int, ...] = ()
        """The number of shards of each life, if there are any; else most lives have the number of
        the first.
        """
        self.look_every_ns = 0
        """Time between two checks whether a checkpoint is due; 0: the usual time, or less by the
        seed.
        """
        self.is_library = False
        self.forced: dict[str, Any] = {}
        """Settings of all lives."""
        self._configs: dict[int, Config] = {}
        self.lives: list[Life] = []
        left = length.crashes
        while True:
            starting = _choose_starting(rng, left if self.lives else left - 1)
            left -= starting.crashes
            if not left:
                break
            self.lives.append(self._life(rng, starting))
            left -= 1
        self.last = self._life(rng, starting)
        if rng.random() < 0.3:
            graceful = self._life(rng, Starting())._replace(graceful=True)
            self.lives.insert(rng.randrange(len(self.lives) + 1), graceful)
        clock = stream(seed, "clock")
        steps = [clock.choice(_CLOCK_STEPS_MS) if clock.random() < 0.6 else 0 for _ in self.lives]
        self.lives = [life._replace(clock_step_ms=step) for life, step in zip(self.lives, steps, strict=True)]
        self.last = self.last._replace(clock_step_ms=clock.choice(_CLOCK_STEPS_MS))
        share = -(-length.operations // len(self.lives))
        self.lives = [life._replace(operations=share * number) for number, life in enumerate(self.lives, 1)]
        if rng.random() < 0.08:
            # In the last life: afterwards the content is unknown, and only wrong records may not be
            # served. Nothing else fails then: a failing sync removes from the cache what a false
            # one left there.
            lies = rng.choice((1, rng.randint(1, 40))), rng.choice((1, 3, 1 << 30))
            self.lives[-1] = self.lives[-1]._replace(faulty=Faulty(lies=lies))

    def _life(self, rng: random.Random, starting: Starting) -> Life:
        return Life(
            starting=starting,
            operations=0,
            effects_left=rng.choice((1, 2, 3, rng.randint(1, 30), rng.randint(1, 200))),
            power_cut=rng.random() < 0.5,
            graceful=False,
            faulty=choose_faults(rng) if self.with_faults and rng.random() < 0.6 else Faulty(),
            settles=rng.random() < 0.3,
        )

    def config(self, life: int) -> Config:
        """Return the settings of the process number `life`; processes of one seed differ."""
        found = self._configs.get(life)
        if found is None:
            rng = stream(self.seed, f"{life}:settings")
            settings = choose_settings(rng, self.base) | self.forced
            settings |= choose_bound(stream(self.seed, f"{life}:bound")) | self.forced
            settings |= choose_space(stream(self.seed, f"{life}:space"), self.base) | self.forced
            settings |= choose_bodies(stream(self.seed, f"{life}:bodies"), self.base) | self.forced
            settings |= choose_unsynced(stream(self.seed, f"{life}:unsynced")) | self.forced
            if self.is_library:
                settings |= choose_library(stream(self.seed, f"{life}:library")) | self.forced
            if self.has_streaks:
                settings |= _FOR_STREAKS | self.forced
            if self.shard_counts:
                settings["wal_shards"] = rng.choice(self.shard_counts)
            found = self._configs[life] = replace(self.base, **settings)
        return found

    @property
    def may_lack_space(self) -> bool:
        """Return whether in one of its lives the disk is full, or reports that."""
        lives = [*self.lives, self.last]
        faulty = [*(life.faulty for life in lives), *(life.starting.faulty for life in lives)]
        plans = [*(plan for each in faulty for plan in each.plans), *(plan for life in lives for plan in life.ending)]
        return any(each.space_bytes is not None for each in faulty) or any(plan.error in NO_SPACE for plan in plans)

    @staticmethod
    def differences(config: Config) -> str:
        """Return the settings that are not the usual ones, for the trace."""
        usual = Config()
        return " ".join(
            f"{field.name}={getattr(config, field.name)}"
            for field in fields(config)
            if getattr(config, field.name) != getattr(usual, field.name)
        )


_FOR_STREAKS: dict[str, Any] = {
    "http_lane": "auto",
    "commit": "auto",
    "commit_window_us": 0,
    "commit_in_place_max_us": 20_000,
    "checkpoint_every_ms": 60_000,
}
"""Without these settings lone writes form no streaks."""


def choose_settings(rng: random.Random, base: Config) -> dict[str, Any]:
    """Choose small settings, so that rotation, checkpoints, seals, merges and moves happen all the
    time.
    """
    settings: dict[str, Any] = {
        "wal_shards": rng.choice((1, 2, 3)) if rng.random() < 0.15 else base.wal_shards,
        "wal_spare_files": rng.choice((0, 1, 1, 2)),
        "checkpoint_wal_bytes": rng.choice((8 << 10, 24 << 10, 64 << 10, 1 << 20)),
        "checkpoint_every_ms": rng.choice((3, 10, 60_000)),
        "segment_max_events": rng.choice((3, 20, 20, 20, 1000, 1000)),
        "segment_max_bytes": rng.choice((4 << 10, 64 << 10)),
        "pack_run_bytes": rng.choice((256, 4 << 10, 64 << 10)),
        "hot_tail_bytes": rng.choice((0, 8 << 10, 1 << 20)),
        "sync_every_ms": rng.choice((1, 3, 20, 1000)),
        "http_lane": rng.choice(("auto", "auto", "off")),
        "http_parser": "h11" if rng.random() < 0.05 else base.http_parser,
        "commit": rng.choice(("auto", "auto", "link", "direct", "dsync")),
        "commit_window_us": rng.choice((0, 0, 0, 200)),
        "commit_in_place_max_us": rng.choice((0, 20_000, 20_000)),
        "checkpoint_topics_per_pass": rng.choice((1, 1, 2, base.checkpoint_topics_per_pass)),
        "pass_read_bytes": rng.choice((1, 3000, base.pass_read_bytes, base.pass_read_bytes)),
    }
    # windows of one block, of three, or none
    settings["prefetch_bytes"] = {0: 80 << 10, 8 << 10: base.prefetch_bytes}.get(settings["hot_tail_bytes"], 0)
    if settings["pass_read_bytes"] == 1:
        settings["pass_search_steps"] = 1
        settings["pass_requests_us"] = 20  # two requests
    if base.cold_dir:
        settings |= {"hot_retain_segments": rng.choice((0, 0, 1, 4)), "hot_retain_bytes": rng.choice((0, 2000))}
    return settings


def choose_bodies(rng: random.Random, base: Config) -> dict[str, Any]:
    """Choose the size from which a body is taken in turns: a third of the shortest bodies, in
    hundreds of the longest.
    """
    return {"pass_body_bytes": rng.choice((64, 400, base.pass_body_bytes, base.pass_body_bytes))}


def choose_space(rng: random.Random, base: Config) -> dict[str, Any]:
    """Choose the live share from which a file stays as it is: at 1.0 each deleted record leaves the
    disk soon.
    """
    settings: dict[str, Any] = {"compact_below": rng.choice((0.0, base.compact_below, 1.0, 1.0))}
    if base.cold_dir:
        settings |= {"hot_retain_ms": rng.choice((0, 0, 1, 20)), "segment_codec": rng.choice(("none", "zstd"))}
    return settings


def choose_bound(rng: random.Random) -> dict[str, Any]:
    """Choose the bound of the log: in many lives so short that writers wait and are refused."""
    if rng.random() < 0.7:
        return {}
    bounds = (16 << 10, 64 << 10, LONGEST_SHORT_LOG)
    return {"max_log_bytes": rng.choice(bounds), "max_log_wait_ms": rng.choice((0, 1, 20))}


def choose_unsynced(rng: random.Random) -> dict[str, Any]:
    """Choose how many bytes may be acknowledged and not synced."""
    return {"max_unsynced_bytes": rng.choice((1, 3000, 20_000))} if rng.random() < 0.2 else {}


def choose_library(rng: random.Random) -> dict[str, Any]:
    """Choose settings for lives of the library, whose clients know of them."""
    settings: dict[str, Any] = {"durability": rng.choice(("disk", "disk", "fsync", "memory"))}
    if rng.random() < 0.3:
        settings["sync_every_ms"] = None
    if rng.random() < 0.3:
        settings |= {
            "max_unsynced_bytes": rng.choice((1, 1000, 3000)),
            "max_backlog_bytes": rng.choice((4096, 1 << 20)),
        }
    return settings


def choose_faults(rng: random.Random) -> Faulty:
    """Choose one to three kinds of fault."""
    plans: list[PlannedFault] = []
    space = None
    descriptors = completions = space_back_ns = 0
    sync_factor = 1
    for _ in range(rng.randint(1, 3)):
        match rng.randrange(16):
            case 0 | 1:
                plans.append(
                    PlannedFault("write", keep=rng.choice((0, 1, 511, 512, 4096, 5000)), nth=rng.randint(1, 60))
                )
            case 2:
                plans.append(PlannedFault("write", errno.EIO, nth=rng.randint(1, 150)))
            case 3 | 12 | 13:
                nth = rng.choice((rng.randint(1, 10), rng.randint(1, 60)))
                plans.append(PlannedFault("sync", errno.EIO, nth=nth, times=rng.choice((1, 1 << 30))))
            case 4:
                kind = rng.choice(("open", "rename", "unlink", "close", "read"))
                plans.append(PlannedFault(kind, errno.EIO, nth=rng.randint(1, 30)))
                plans.append(PlannedFault("read", keep=rng.choice((1, 512, 4096)), nth=rng.randint(1, 30), times=5))
            case 5 | 15:
                space = rng.choice((0, 4096, 20_000, 100_000))
                space_back_ns = rng.choice((0, 1_000_000, 3_000_000, 10_000_000))
            case 6:
                plans += [PlannedFault("more", 1, nth=rng.randint(1, 20)) for _ in range(rng.randint(1, 20))]
            case 7:
                plans += [
                    PlannedFault("send", errno.ECONNRESET, nth=rng.randint(1, 100)),
                    PlannedFault("recv", errno.ECONNRESET, nth=rng.randint(1, 100)),
                ]
            case 8:
                plans.append(
                    PlannedFault("accept", rng.choice((errno.EMFILE, errno.ECONNABORTED)), nth=rng.randint(1, 5))
                )
            case 9:
                plans.append(PlannedFault("bogus", 1, nth=rng.randint(1, 5)))
            case 10:
                descriptors = rng.randint(1, 8)
            case 14:
                sync_factor = rng.choice((5, 20, 50))
            case _:
                completions = rng.choice((1, 2, 4))
    return Faulty(tuple(plans), space, space_back_ns, descriptors, completions, sync_factor)
