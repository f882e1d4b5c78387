"""An export killed at every file operation: its commits are right, and the next run continues from them."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from tests.pipelines.kills import survives
from tests.pipelines.pipeline_world import DAY_MS, START_MS, exported_rows, log_rows, opened, order, parquet_files
from topics.pipelines import export
from topics.pipelines.export import Options, open_layout
from topics.pipelines.source import Origin
from topics.pipelines.target import delta

TOPICS = ("orders", "prices:eur")


@pytest.fixture(scope="module", params=["manifest", "delta"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """A directory whose first records are exported to a target, and two days of two topics that are not."""
    path = tmp_path_factory.mktemp("kills")
    data, lake = path / "data", path / "lake"
    with opened(data) as log:
        log.append("orders", [order(n) for n in range(1, 6)])
    export.run(Options(Origin(path=str(data)), str(lake), layout=request.param))
    for day in range(2):
        with opened(data, START_MS + day * DAY_MS) as log:
            for topic in TOPICS:
                log.append(topic, [order(n) for n in range(10)])
    return data, lake, request.param


def run(world: tuple[Path, Path, str], lake: Path) -> None:
    data, _, layout = world
    export.run(Options(Origin(path=str(data)), str(lake), layout=layout))


def check_commits(world: tuple[Path, Path, str], lake: Path) -> int:
    """Each commit lists what is there, the records up to its marks; returns its number."""
    layout = open_layout(world[2], str(lake))
    state = layout.load()
    for topic in TOPICS:
        rows = exported_rows(lake, layout, topic)
        last = state.marks[topic].next_seq - 1 if topic in state.marks else 0
        assert rows.column("seq").to_pylist() == list(range(1, last + 1))
    return state.number


def check_whole(world: tuple[Path, Path, str], lake: Path) -> None:
    """Everything is exported, and nothing else is left."""
    assert check_commits(world, lake) == 1
    layout = open_layout(world[2], str(lake))
    for topic in TOPICS:
        assert exported_rows(lake, layout, topic).equals(log_rows(world[0], topic))
    assert parquet_files(lake) == {file.path for file in layout.files()}
    assert not list((lake / "_topics/runs").iterdir())


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kills lose no byte that was written, so nothing has to be synced here."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(delta, "CHECKPOINT_EVERY", 1)


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 6])
def test_a_run_killed_at_any_operation_leaves_right_commits_and_the_next_one_goes_on(
    world: tuple[Path, Path, str], tmp_path: Path, step: int
) -> None:
    kills = numbers = 0
    while True:
        lake = tmp_path / str(kills)
        shutil.copytree(world[1], lake)
        survived = survives(lambda lake=lake: run(world, lake), kills)  # type: ignore[misc]
        numbers += check_commits(world, lake)
        if survived:
            check_whole(world, lake)
            break
        run(world, lake)
        check_whole(world, lake)
        shutil.rmtree(lake)
        kills += step
    assert kills > 40
    assert step > 1 or 0 < numbers < kills, "some were killed before the commit, and some after"


def test_runs_killed_again_and_again_end_with_the_same(world: tuple[Path, Path, str], tmp_path: Path) -> None:
    for seed in range(3):
        chance = random.Random(seed)
        lake = tmp_path / str(seed)
        shutil.copytree(world[1], lake)
        while not survives(lambda lake=lake: run(world, lake), chance.randrange(80)):  # type: ignore[misc]
            check_commits(world, lake)
        check_whole(world, lake)
