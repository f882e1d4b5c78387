"""TOPICS_VERIFY: a counter that is wrong is noticed at the end of the pass."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.cli.forked import run
from tests.engine.harness import Harness, records
from tests.sim import SimRing
from topics import config
from topics.config import Config, tiny_config
from topics.engine.index.chunk import DEAD
from topics.engine.state.topic import Topic
from topics.engine.stored_engine import StoredEngine
from topics.engine.write.append import Append
from topics.loop import Loop
from topics.store.disk.data_directory import lock_directory

_TESTS = Path(__file__).parents[2]
_WITHOUT = {
    "engine/read/test_wait_costs.py": "it counts lists of topics that a stop takes, and the check takes them, too",
    "engine/state/test_verify.py": "it asks what is there without the check",
    "files/test_piece_rot.py": "the word means checksums of frames there",
    "store/format/test_text_columns.py": "the word means checksums of frames there",
}
"""Files of tests that write `verify=False`, and why."""


@pytest.fixture
def world() -> Harness:
    world = Harness()
    world.put(durability="disk")
    world.start_append(records(1, 2, 3, tag="a"))
    world.settle()
    return world


def test_it_is_on_in_every_test() -> None:
    """For engines of tests, for servers with a config of their own, and for processes that tests start."""
    assert Config().verify
    assert tiny_config("data").verify
    assert os.environ["TOPICS_VERIFY"] == "1"


def test_no_process_starts_without_it(tmp_path: Path) -> None:
    """tests/conftest.py sets a hook for that, and so does the process that forks commands."""
    for bare in ({}, {"TOPICS_VERIFY": "0"}):
        with pytest.raises(AssertionError, match="starts a process without TOPICS_VERIFY"):
            subprocess.run([sys.executable, "-c", ""], env=bare, check=False)
        with pytest.raises(AssertionError, match="starts a process without TOPICS_VERIFY"):
            os.posix_spawn(sys.executable, [sys.executable, "-c", ""], bare)
    shown = run(["config", "show"], {"HOME": str(tmp_path), "TOPICS_VERIFY": "0"}).stderr
    assert re.search("verify *= *true", shown), shown
    short = tmp_path / "short.toml"
    short.write_text('[run]\nseconds = 0.1\nwarmup = 0\nrounds = 1\n[[load]]\nkind = "write"\n')
    begun = run(["bench", "run", str(short), "--dir", str(tmp_path), "--out", str(tmp_path)], {"HOME": str(tmp_path)})
    assert begun.code == 1
    assert "starts a process without TOPICS_VERIFY" in begun.stderr


def test_an_engine_of_a_test_is_without_it_for_a_reason() -> None:
    found = {str(path.relative_to(_TESTS)) for path in _TESTS.rglob("*.py") if "verify=False" in path.read_text()}
    assert found == _WITHOUT.keys()


def topic_of(world: Harness) -> Topic:
    topic = world.engine._core.registry.named("t")
    assert topic is not None
    return topic


def one_more_live(topic: Topic) -> None:
    topic.index.live += 1


def fewer_bytes(topic: Topic) -> None:
    topic.index.bytes -= 1


def dead_row_that_counts(topic: Topic) -> None:
    chunk = topic.index.chunks[-1]
    flags = chunk.flags.copy()
    flags[0] |= DEAD
    chunk.set_flags(flags)
    topic.index.deaths += 1


def earlier_row(topic: Topic) -> None:
    topic.index.earliest = 2
    topic.index.deaths += 1


def head_of_no_record(topic: Topic) -> None:
    topic.head = topic.next_seq


def head_before_a_row(topic: Topic) -> None:
    topic.head -= 1


def falling_time(topic: Topic) -> None:
    chunk = topic.index.chunks[-1]
    chunk.set_flags(chunk.flags.copy())
    chunk.ts[1] = np.uint64(1)
    topic.index.deaths += 1


def staged_without_a_batch(topic: Topic) -> None:
    topic.pending_records += 1
    topic.head = topic.next_seq - 1
    topic.index.deaths += 1


def staged_bytes_without_a_batch(topic: Topic) -> None:
    topic.pending_bytes += 5
    topic.index.usage.pending_bytes += 5


def filled_batch_that_is_not_staged(topic: Topic) -> None:
    topic.filling = Append.__new__(Append)
    topic.index.deaths += 1


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (one_more_live, "t: live records: 4 by the counter, 3 in truth"),
        (fewer_bytes, "t: bytes of live records"),
        (dead_row_that_counts, "t: live rows of the chunk at 1: 3 by the counter, 2 in truth"),
        (earlier_row, "t: the earliest live seq: 2 by the counter, 1 in truth"),
        (head_of_no_record, "t: the head is 4, the next seq 4"),
        (head_before_a_row, "t: the head is 2, before the last row 3"),
        (falling_time, r"t: \$ts falls"),
        (staged_without_a_batch, "t: staged records: 1 by the counter, 0 in truth"),
        (staged_bytes_without_a_batch, "t: bytes of staged records: 5 by the counter, 0 in truth"),
        (filled_batch_that_is_not_staged, "t: the batch that takes rows is not the last that is staged"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_wrong_number_of_a_topic_is_noticed_at_the_end_of_the_pass(
    world: Harness, harm: Callable[[Topic], None], message: str
) -> None:
    harm(topic_of(world))
    with pytest.raises(AssertionError, match=message):
        world.engine.flush()


@pytest.mark.parametrize(
    ("total", "number"),
    [
        ("records", "live records"),
        ("bytes", "bytes of live records"),
        ("pending_bytes", "bytes of staged records"),
    ],
)
def test_a_wrong_total_over_all_topics_is_noticed(world: Harness, total: str, number: str) -> None:
    usage = world.engine._core.usage
    right = getattr(usage, total)
    setattr(usage, total, right + 1)
    with pytest.raises(AssertionError, match=f"all topics: {number}: {right + 1} by the counter, {right} in truth"):
        world.engine.flush()


def test_a_row_that_no_file_counts_is_noticed_at_the_end_of_a_pass_that_changes_a_topic(world: Harness) -> None:
    world.store.log.file.live_rows -= 1
    world.engine.flush()
    topic_of(world).index.deaths += 1
    with pytest.raises(AssertionError, match="rows: 2 by the counter, 3 in truth"):
        world.engine.flush()


def test_a_row_that_no_file_counts_is_noticed_at_the_close(world: Harness) -> None:
    world.engine.verify()
    world.store.log.file.live_rows -= 1
    with pytest.raises(AssertionError, match="rows: 2 by the counter, 3 in truth"):
        world.engine.verify()


def test_the_close_compares_all_counters() -> None:
    """Also what no pass has looked at."""
    ring = SimRing(0)
    loop = Loop(ring, ring.clock)
    config = tiny_config("data")
    stored = loop.run_task(StoredEngine.open(loop, config, directory=lock_directory(ring, config)))
    next(iter(stored.store.files)).live_rows += 1
    with pytest.raises(AssertionError, match="rows: 1 by the counter, 0 in truth"):
        loop.run_task(stored.close())


def test_a_tag_that_was_forgotten_too_early_is_noticed_at_the_close(world: Harness) -> None:
    index = topic_of(world).index
    index.tags = None
    with pytest.raises(AssertionError, match="t: rows bear tags that were forgotten"):
        world.engine.verify()


def test_a_topic_that_has_not_changed_is_not_looked_at_again(world: Harness) -> None:
    verifier = world.engine._verifier
    assert verifier is not None
    world.engine.flush()
    looks = verifier.looks
    world.engine.flush()
    assert verifier.looks == looks


def test_fifty_topics_that_have_changed_are_looked_at_in_one_pass_and_more_of_them_in_turns() -> None:
    world = Harness()
    for number in range(120):
        world.put(f"t{number}")
    verifier = world.engine._verifier
    assert verifier is not None
    while verifier._next < 120:
        world.engine.flush()
    for topic in world.engine._core.registry.by_id.values():
        topic.index.deaths += 1
    looks = [verifier.looks]
    for _ in range(4):
        world.engine.flush()
        looks.append(verifier.looks)
    assert [after - before for before, after in pairwise(looks)] == [50, 50, 20, 0]


def test_it_is_off_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine without it has nothing to call at the end of a pass, and the variable is the default of the setting."""
    assert Harness(verify=False).engine._verifier is None
    monkeypatch.delenv("TOPICS_VERIFY")
    spec = spec_from_file_location("config_without_variable", config.__file__)
    assert spec is not None
    assert spec.loader is not None
    bare = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, bare)  # where dataclasses look for the module of a class
    spec.loader.exec_module(bare)
    assert not bare.Config().verify
