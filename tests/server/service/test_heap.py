"""The garbage collector of a server looks at what came since it last looked, not at all there is."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import topics

PROGRAM = """
import gc
from topics.server.heap import freeze_all, tend_heap

before = gc.get_threshold(), list(gc.callbacks)
stop = tend_heap()
freeze_all()
seen = []

def look(phase, info):
    if phase == "start" and info["generation"] == 2:
        seen.append(len(gc.get_objects(2)))

gc.callbacks.append(look)
kept = [[[]] for _ in range(300_000)]
assert len(seen) > 10, seen
assert max(seen[1:]) < 5_000, seen
del gc.callbacks[-1]
stop()
assert (gc.get_threshold(), list(gc.callbacks)) == before and gc.isenabled()
"""


REPLACED = """
import gc
import sys
from topics.server.heap import LOOK_EVERY_NS, YOUNG_MAX, HeapWatch, freeze_all, tend_heap

kept = [[[]] for _ in range(50_000)]
tend_heap()
freeze_all()
now_ns = 0
watch = HeapWatch(lambda: now_ns)
seen = []

def look(phase, info):
    if phase == "start":
        seen.append(sum(len(gc.get_objects(generation)) for generation in range(3)))

gc.callbacks.append(look)
for at in range(len(kept)):
    kept[at] = [[]]
    if at % 100 == 0 and sys.argv[1] == "watched":
        now_ns += LOOK_EVERY_NS
        watch.look()
more = [[] for _ in range(1000)]
print(max(seen), YOUNG_MAX)
"""


def test_objects_that_replace_others_one_by_one_are_not_all_seen_by_one_collection() -> None:
    def most_seen(kind: str) -> tuple[int, int]:
        command = [sys.executable, "-c", REPLACED, kind]
        done = subprocess.run(command, check=True, timeout=60, capture_output=True)
        most, bound = map(int, done.stdout.split())
        return most, bound

    most, bound = most_seen("watched")
    assert most < bound + 1500
    assert most_seen("not watched")[0] > 50_000, "what Python does by itself"


def test_a_full_collection_sees_a_bounded_number_of_objects_however_many_live() -> None:
    assert "freeze" in dir(gc)
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=60)


SERVED = """
import gc
import logging
import os
import signal
import sys
from topics.cli import main

class OnReady(logging.Handler):
    def emit(self, record):
        if record.getMessage().startswith("ready after"):
            longest = max((len(each) for each in gc.get_objects() if type(each) is list), default=0)
            print(longest, len(collections), gc.isenabled(), "numpy.ma" in sys.modules)
            os.kill(os.getpid(), signal.SIGTERM)

collections = []
logging.getLogger("topics.server").addHandler(OnReady())
gc.disable()
gc.callbacks.append(lambda phase, info: collections.append(phase))
main()
"""


def test_until_a_server_is_ready_it_collects_nothing_and_then_no_list_of_names_is_seen(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data") as log:
        for number in range(2000):
            log.put_topic(f"t{number}")
    ran = subprocess.run(
        [sys.executable, "-c", SERVED, "serve", "--data-dir", str(tmp_path / "data"), "--port", "0"],
        check=True,
        timeout=60,
        stdout=subprocess.PIPE,
    )
    longest, collections, enabled, imported = ran.stdout.split()
    assert int(longest) < 1000, "the names of all topics are out of its sight"
    assert int(collections) == 0
    assert enabled == b"True"
    assert imported == b"True", "no pass imports what np.unique does"
