"""Faults that random choice would rarely place where they matter: in some of the seeds they are
aimed.

- Commits that are written in part: every write of the log that spans blocks ends after the first,
  with any way of syncing.
- A sync that fails, of the log or of a checkpoint's copies, then a kill, and in the life after it a
  power cut: the page cache still shows bytes that were never on the disk.
- A sync that fails while the server stops.
- A file of a checkpoint that finds no space or no descriptor, once, checkpoints that follow it, then
  a power cut.
- Starts that are killed again and again, with another number of log shards each time.
- A start with a disk that fails or is full, or in a process that may open few files.
- A commit whose write was interrupted before its first byte, so that its chain is broken: nothing
  has failed.

In some seeds the fixed numbers of the code are small, too: reservations of seqs, so that topics of
a few dozen records outgrow them; the answers to a commit, and to writes that fail together, that a
pass gives, so that faults and cuts come between them; the jobs that are dealt and the bytes of them
that are read in a turn of a claim, and the bytes of a round of a read, so that other requests,
expiries and crashes come between; the time between two checks whether a checkpoint is due, so that
a life has many; and the time between two checks whether a full disk has space again, so that writes
continue in the same life.
"""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Iterator
from typing import Any

from tests.sim.genome import stream
from tests.sim.whole.seed_plan import WHOLE, Faulty, Life, Plan, PlannedFault, Starting
from topics.engine.queue import claim, fetch
from topics.engine.read import read_pass
from topics.engine.state import topic_numbers as numbers
from topics.http.plan import answer_turns
from topics.store.checkpoint import checkpointer
from topics.store.disk import disk_space
from topics.store.wal import commit_callbacks

_AIMED = 0.2
"""Share of the seeds that are aimed."""
_CHAINS = 0.03
"""Share of the other seeds, whose chains are broken."""
_KILLED_STARTS = 0.05
"""Share of the seeds left, whose starts are killed."""
_FAILED_STARTS = 0.06
"""Share of the seeds left then, whose starts fail."""
_ALWAYS = 1 << 30
_BLOCK_BYTES = 4096


def aim(plan: Plan) -> None:
    """Change the faults of a plan, if it is the seed for it; a plan with many crashes more than
    once.
    """
    aims, others = stream(plan.seed, "aim"), stream(plan.seed, "chain")
    for _ in range(max(1, plan.crashes // WHOLE.crashes)):
        _aim_once(plan, aims, others)


def _aim_once(plan: Plan, aims: random.Random, rng: random.Random) -> None:
    if aims.random() < _AIMED:
        kinds = (_short_commits, _failed_sync, _failed_sync, _failed_stop, _scarce_checkpoint, _scarce_checkpoint)
        aims.choice(kinds)(plan, aims)
        return
    if rng.random() < _CHAINS:
        _broken_chain(plan, rng)
    elif rng.random() < _KILLED_STARTS:
        _killed_starts(plan, rng)
    elif rng.random() < _FAILED_STARTS:
        _failed_starts(plan, rng)


def _short_commits(plan: Plan, rng: random.Random) -> None:
    times = rng.choice((20, _ALWAYS, _ALWAYS))
    fault = PlannedFault("write", keep=_BLOCK_BYTES, nth=rng.randint(1, 30), times=times, path_part="/wal-")
    plan.forced |= {"commit": rng.choice(("dsync", "dsync", "dsync", "link", "direct", "auto"))}
    plan.large = True
    _change(plan, rng.randrange(len(plan.lives)), faulty=Faulty((fault,)))


def _failed_sync(plan: Plan, rng: random.Random) -> None:
    at = rng.randrange(len(plan.lives))
    part = rng.choice(("/wal-", "/seg-", "/seg-", "/pack-", "", *_cold(plan)))
    fault = PlannedFault("sync", errno.EIO, nth=rng.choice((1, rng.randint(1, 20))), path_part=part)
    _change(plan, at, faulty=Faulty((fault,)), graceful=False, power_cut=False, effects_left=rng.randint(1, 200))
    if at + 1 < len(plan.lives):
        _change(plan, at + 1, power_cut=True)
    else:
        plan.last = plan.last._replace(starting=Starting(twice=True), power_cut=True)


def _cold(plan: Plan) -> tuple[str, ...]:
    return (f"{plan.base.cold_dir}/",) if plan.base.cold_dir else ()


def _failed_stop(plan: Plan, rng: random.Random) -> None:
    fault = PlannedFault("sync", errno.EIO, nth=rng.randint(1, 3), path_part=rng.choice(("/wal-", "/wal-", "")))
    at = rng.randrange(len(plan.lives))
    faulty = plan.lives[at].faulty._replace(
        lies=None
    )  # it would remove from the cache what a false sync has left there
    _change(plan, at, faulty=faulty, ending=(fault,), graceful=True, power_cut=False, settles=False)


def _scarce_checkpoint(plan: Plan, rng: random.Random) -> None:
    part = rng.choice(("/seg-", "/seg-", "/pack-", "/snapshot-", "/wal-", "", *_cold(plan)))
    kind, error = rng.choice((("open", errno.EMFILE), ("open", errno.ENOSPC), ("write", errno.ENOSPC)))
    faults = [PlannedFault(kind, error, nth=rng.randint(1, 12), path_part=part) for _ in range(rng.choice((1, 1, 3)))]
    plan.forced |= {"checkpoint_every_ms": 3, "checkpoint_wal_bytes": rng.choice((1, 4096))}
    plan.look_every_ns = 3_000_000
    _change(plan, rng.randrange(len(plan.lives)), faulty=Faulty(tuple(faults)), graceful=False, power_cut=True)


def _broken_chain(plan: Plan, rng: random.Random) -> None:
    error = rng.choice((errno.EINTR, errno.EAGAIN))
    times = rng.choice((1, 3, 20))
    fault = PlannedFault("write", error, nth=rng.randint(1, 30), times=times, path_part="/wal-")
    plan.forced |= {"commit": rng.choice(("link", "direct", "auto", "auto"))}
    _change(plan, rng.randrange(len(plan.lives)), faulty=Faulty((fault,)))


def _killed_starts(plan: Plan, rng: random.Random) -> None:
    plan.forced |= {"checkpoint_every_ms": 3, "checkpoint_wal_bytes": rng.choice((1, 4096, 1 << 20))}
    plan.look_every_ns = 3_000_000
    plan.shard_counts = (1, 2, 3, 4)
    for at in range(1, len(plan.lives)):
        _change(plan, at, starting=choose_killed(rng))
    plan.last = plan.last._replace(starting=choose_killed(rng))


def choose_killed(rng: random.Random) -> Starting:
    effects = [rng.choice((rng.randint(1, 40), rng.randint(1, 250))) for _ in range(rng.choice((1, 2, 3, 5)))]
    return Starting(tuple((count, rng.random() < 0.5) for count in effects), twice=rng.random() < 0.3)


def _failed_starts(plan: Plan, rng: random.Random) -> None:
    for at in range(len(plan.lives)):
        if rng.random() < 0.6:
            starting = plan.lives[at].starting._replace(faulty=choose_trouble(rng), cut_after=rng.random() < 0.4)
            _change(plan, at, starting=starting)
    starting = plan.last.starting._replace(faulty=choose_trouble(rng), cut_after=rng.random() < 0.4)
    plan.last = plan.last._replace(starting=starting)


def choose_trouble(rng: random.Random) -> Faulty:
    kind = rng.choice(("open", "read", "write", "write", "sync", "sync", "rename", "unlink", "space", "descriptors"))
    if kind == "space":
        return Faulty(space_bytes=rng.choice((0, 4096, 20_000, 100_000)))
    if kind == "descriptors":
        return Faulty(descriptors=rng.randint(1, 8))
    error = errno.EIO if kind in {"read", "sync"} else rng.choice((errno.EIO, errno.ENOSPC))
    nth = rng.choice((rng.randint(1, 10), rng.randint(1, 60)))
    return Faulty((PlannedFault(kind, error, nth=nth, times=rng.choice((1, 1, _ALWAYS))),))


def _change(plan: Plan, at: int, **changes: Any) -> None:
    plan.lives[at] = Life(**{**plan.lives[at]._asdict(), **changes})


@contextlib.contextmanager
def small_numbers(plan: Plan) -> Iterator[None]:
    """Set small numbers for the run of a plan."""
    reserve, look_ns = (numbers._RESERVE_MIN, numbers._RESERVE_REQUESTS), checkpointer._LOOK_EVERY_NS
    check_ns, committed, sent = disk_space._CHECK_NS, commit_callbacks.CALLBACKS_A_PASS, answer_turns.ANSWERS_A_PASS
    dealt, read_bytes, pieces = claim._DEALT, fetch._TURN_BYTES, fetch._TURN_PIECES
    claims = stream(plan.seed, "claims")
    claim._DEALT = claims.choice((dealt, dealt, 1, 2))
    fetch._TURN_BYTES = claims.choice((read_bytes, read_bytes, 1, 300))
    fetch._TURN_PIECES = claims.choice((pieces, pieces, 1))
    long_bytes = read_pass._LONG_BYTES
    read_pass._LONG_BYTES = stream(plan.seed, "rounds").choice((long_bytes, long_bytes, 1, 300))
    numbers._RESERVE_MIN, numbers._RESERVE_REQUESTS = stream(plan.seed, "reserve").choice((reserve, (1, 1), (4, 2)))
    commit_callbacks.CALLBACKS_A_PASS = stream(plan.seed, "answers").choice((committed, committed, 1, 3))
    answer_turns.ANSWERS_A_PASS = stream(plan.seed, "failures").choice((sent, 1, 3))
    looks_ns = (look_ns, look_ns, 20_000_000, 3_000_000)
    checkpointer._LOOK_EVERY_NS = plan.look_every_ns or stream(plan.seed, "look").choice(looks_ns)
    quick_ns = stream(plan.seed, "check").choice((check_ns, 3_000_000, 3_000_000))
    disk_space._CHECK_NS = quick_ns if plan.may_lack_space else check_ns  # else each check is a pass without work
    try:
        yield
    finally:
        commit_callbacks.CALLBACKS_A_PASS, answer_turns.ANSWERS_A_PASS = committed, sent
        disk_space._CHECK_NS = check_ns
        read_pass._LONG_BYTES = long_bytes
        claim._DEALT, fetch._TURN_BYTES, fetch._TURN_PIECES = dealt, read_bytes, pieces
        numbers._RESERVE_MIN, numbers._RESERVE_REQUESTS = reserve
        checkpointer._LOOK_EVERY_NS = look_ns
