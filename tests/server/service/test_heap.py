"""The garbage collector of a server looks at what came since it last looked, not at all there is."""

from __future__ import annotations

import gc
import subprocess
import sys

PROGRAM = """
import gc
from topics.server.heap import tend_heap

before = gc.get_threshold(), list(gc.callbacks)
stop = tend_heap()
seen = []

def look(phase, info):
    if phase == "start" and info["generation"] == 2:
        seen.append(len(gc.get_objects(2)))

gc.callbacks.append(look)
kept = [[[]] for _ in range(300_000)]
assert len(seen) > 10, seen
assert max(seen[1:]) < 30_000, seen
del gc.callbacks[-1]
stop()
assert (gc.get_threshold(), list(gc.callbacks)) == before
"""


def test_a_full_collection_sees_a_bounded_number_of_objects_however_many_live() -> None:
    assert "freeze" in dir(gc)
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=60)
