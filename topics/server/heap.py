"""A garbage collector that does not stop the loop, however much the server holds.

Python visits all objects that may be in cycles whenever their number has grown by a quarter: 5 us a
topic, seconds with a million topics. Objects that survive a full collection here usually live long,
so they are removed from the collector's view ("frozen") at once. Each full collection then visits
only the objects created since the one before, a bounded number. What recovery has created is frozen
before the first request: a list of a million names takes 10 ms to visit, at each of its ages.

Objects no longer in use are freed by reference counts only, because a frozen cycle would stay.
tests/contract/operation/test_no_garbage.py checks that the server creates no cycles.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

_YOUNG, _MIDDLE, _OLD = 700, 3, 2
"""Thresholds of the three generations; Python's default is 700, 10, 10.

A full collection then visits some 8,000 objects, which takes 2 to 4 ms.
"""


def tend_heap() -> Callable[[], None]:
    """Freeze all objects now, and survivors of later collections, until the result is called."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)
    gc.callbacks.append(_freeze_survivors)

    def stop() -> None:
        gc.callbacks.remove(_freeze_survivors)
        gc.set_threshold(*before)

    return stop


def freeze_recovered() -> None:
    """Freeze what recovery has created, whose lists are as long as there are topics."""
    gc.collect()
    gc.freeze()


def _freeze_survivors(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == 2:
        gc.freeze()
