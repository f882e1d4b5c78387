"""Keeps the garbage collector from stopping the loop, however much the server holds.

Python looks at all objects that may lie in cycles whenever a quarter more have come: 5 us a topic, seconds with a
million of them. What has lived through a full collection here lives on, so it is taken out of the collector's sight
("frozen") there and then: each full collection sees only what came since the one before, which is a bounded number.
What is over is freed by reference counts alone: tests/contract/operation/test_no_garbage.py holds the server to it, as
a cycle would stay.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

_YOUNG, _MIDDLE, _OLD = 700, 3, 2
"""Python's default is 700, 10, 10. A full collection sees some 8,000 objects, which takes 2 to 4 ms."""


def tend_heap() -> Callable[[], None]:
    """From now on, until what is returned is called. All that is there already is frozen."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)
    gc.callbacks.append(_freeze_survivors)

    def stop() -> None:
        gc.callbacks.remove(_freeze_survivors)
        gc.set_threshold(*before)

    return stop


def _freeze_survivors(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == 2:
        gc.freeze()
