"""Faults that chance alone would hardly lay where they matter: in some of the seeds they are aimed.

- Commits that are written in part: every write of the log that spans blocks ends after the first, however it is synced.
- A sync that fails, of the log or of what a checkpoint copies, then a kill, and in the life after it a power cut: what
  the page cache goes on showing was never on the disk.
- A sync that fails while the server stops.

And reservations of seqs are small in some seeds, so that topics of a few dozen records outgrow them.
"""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Iterator

from tests.sim.whole.plan import Faulty, Life, Plan, PlannedFault, Starting
from topics.engine import append

_AIMED = 0.15
"""Share of the seeds."""
_ALWAYS = 1 << 30
_BLOCK_BYTES = 4096


def aim(plan: Plan) -> None:
    """Changes what a plan has in store, if it is the seed for it."""
    rng = random.Random(f"{plan.seed}:aim")
    if rng.random() < _AIMED:
        rng.choice((_short_commits, _failed_sync, _failed_sync, _failed_stop))(plan, rng)


def _short_commits(plan: Plan, rng: random.Random) -> None:
    times = rng.choice((20, _ALWAYS, _ALWAYS))
    fault = PlannedFault("write", keep=_BLOCK_BYTES, nth=rng.randint(1, 30), times=times, path_part="/wal-")
    plan.forced = {"commit": rng.choice(("dsync", "dsync", "dsync", "link", "direct", "auto"))}
    plan.large = True
    _change(plan, rng.randrange(len(plan.lives)), faulty=Faulty((fault,)))


def _failed_sync(plan: Plan, rng: random.Random) -> None:
    at = rng.randrange(len(plan.lives))
    part = rng.choice(("/wal-", "/seg-", "/seg-", "/pack-", ""))
    fault = PlannedFault("sync", errno.EIO, nth=rng.choice((1, rng.randint(1, 20))), path_part=part)
    _change(plan, at, faulty=Faulty((fault,)), graceful=False, power_cut=False, effects_left=rng.randint(1, 200))
    if at + 1 < len(plan.lives):
        _change(plan, at + 1, power_cut=True)
    else:
        plan.last = plan.last._replace(starting=Starting(twice=True), power_cut=True)


def _failed_stop(plan: Plan, rng: random.Random) -> None:
    fault = PlannedFault("sync", errno.EIO, nth=rng.randint(1, 3), path_part=rng.choice(("/wal-", "/wal-", "")))
    _change(plan, rng.randrange(len(plan.lives)), ending=(fault,), graceful=True, power_cut=False, settles=False)


def _change(plan: Plan, at: int, **changes: object) -> None:
    plan.lives[at] = Life(**{**plan.lives[at]._asdict(), **changes})  # type: ignore[arg-type]


@contextlib.contextmanager
def small_reservations(seed: int) -> Iterator[None]:
    """For the run of a seed."""
    before = append._RESERVE_MIN, append._RESERVE_REQUESTS
    append._RESERVE_MIN, append._RESERVE_REQUESTS = random.Random(f"{seed}:reserve").choice((before, (1, 1), (4, 2)))
    try:
        yield
    finally:
        append._RESERVE_MIN, append._RESERVE_REQUESTS = before
