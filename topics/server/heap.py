"""A garbage collector that does not stop the loop, however much the server holds.

Python visits all objects that may be in cycles whenever their number has grown by a quarter: 5 us a
topic, seconds with a million topics. Objects that survive a full collection here usually live long,
so they are removed from the collector's view ("frozen") at once. Each full collection then visits
only the objects created since the one before, a bounded number.

Nothing is collected before the server is ready. All modules together take 35 ms to visit, and have
160 KB of garbage. A list of a million names takes 10 ms at each of its ages, so what recovery has
created is frozen unseen.

Objects no longer in use are freed by reference counts only, because a frozen cycle would stay.
tests/contract/operation/test_no_garbage.py checks that the server creates no cycles, recovery
included.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

_YOUNG, _MIDDLE, _OLD = 700, 1, 0
"""Thresholds of the three generations; Python's default is 700, 10, 10.

Each is exceeded by one before it counts: a full collection follows when 700 * 3 * 2 more objects
live than at the one before. It takes some 2 ms.
"""
LOOK_EVERY_NS = 20_000_000
"""Time between two looks at the objects that are not frozen, while the loop makes passes."""
YOUNG_MAX = 4000
"""Objects not frozen from which a look collects."""


def tend_heap() -> Callable[[], None]:
    """Freeze survivors of collections until the result is called.

    There are none before `freeze_all`: the collector is disabled, as it is while modules load.
    """
    before = gc.get_threshold()
    gc.disable()
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)
    gc.callbacks.append(_freeze_survivors)

    def stop() -> None:
        gc.callbacks.remove(_freeze_survivors)
        gc.set_threshold(*before)
        gc.enable()

    return stop


class HeapWatch:
    """Collects when many objects are new, although no more of them live than before.

    Python counts how many more there are: an object that is freed, frozen or not, makes up for one
    that is made. Where thousands of connections, leases or keys are replaced one by one, it does
    not collect at all, and once it does, it visits all that have been replaced.
    """

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._looked_ns = now_ns()

    def look(self) -> None:
        """Look at the heap, at the end of a pass, unless that was done a moment ago."""
        now_ns = self._now_ns()
        if now_ns - self._looked_ns < LOOK_EVERY_NS or not gc.isenabled():
            return
        self._looked_ns = now_ns
        if sum([len(gc.get_objects(generation)) for generation in range(3)]) > YOUNG_MAX:
            gc.collect()


def freeze_all() -> None:
    """Freeze all objects that a start has created, unseen, and enable the collector."""
    gc.freeze()
    gc.enable()


def _freeze_survivors(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == 2:
        gc.freeze()
