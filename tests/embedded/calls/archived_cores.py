"""A data directory of several cores with an archive, whose cores run in the process of the test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from unittest import mock

import topics
from tests.embedded.calls.test_stopped_cores import given_cores, layout_of, write_two
from topics.config import Config
from topics.embedded.own_loop import own_loop
from topics.engine.moves.set_cores import set_cores
from topics.engine.stored_engine import StoredEngine
from topics.loop.loop import Loop
from topics.store.archive import archiver
from topics.store.archive.joint_timeline import choose_joint, named_joint
from topics.store.cores.core_directories import core_config
from topics.store.disk.data_directory import lock_directory

NAMES = [f"t{number}" for number in range(6)]
CORES = 2
SKIPPED = 1000


class Cores:
    """A data directory, whose cores run in this process while they are `running`."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.archive = path / "archive"
        self.joint = self.archive
        """The timeline of all of them, once they were started."""
        self.config = Config(
            data_dir=f"{path}/{name}", archive_dir=str(self.archive), archive_every_ms=10, io="portable"
        )
        self.running: list[tuple[Loop, StoredEngine]] = []
        self.taken_ms = 0
        """The time that it was restored to, Unix ms."""

    @contextmanager
    def started(self, cores: int = CORES) -> Iterator[None]:
        """Have the cores run. Each notes the time of its archive at once, though nothing is written."""
        with own_loop(self.config) as loop:
            locked = lock_directory(loop.ring, self.config)
            layout = loop.run_task(set_cores(loop, self.config, cores))
            assert layout is not None
            loop.run_task(choose_joint(loop, layout))
            joint = loop.run_task(named_joint(loop.files, layout))
            locked.release()
        self.joint = self.archive / joint
        with ExitStack() as stack, mock.patch.object(archiver, "_IDLE_NOTE_MS", 0):
            for core in range(cores):
                config = core_config(self.config, core, joint)
                loop = stack.enter_context(own_loop(config))
                directory = lock_directory(loop.ring, config, core=core, number=layout.number_of(core))
                stored = loop.run_task(StoredEngine.open(loop, config, directory=directory))
                self.running.append((loop, stored))
            yield
            for loop, stored in self.running:
                loop.run_task(stored.close())
            self.running.clear()

    def write(self, *names: str) -> None:
        """Write two records to each of these topics."""
        slots = layout_of(Path(self.config.data_dir)).slots
        for name in names:
            write_two(*self.running[slots.core_of(name)], name)

    def archived(self) -> int:
        """Wait until all that the cores have is archived, with a base of each. Return the time of it, Unix ms."""
        loop, _ = self.running[0]
        now_ms = loop.clock.now_ms()
        loop.run_until(lambda: loop.clock.now_ms() > now_ms)  # what follows has another time
        for loop, stored in self.running:
            loop.run_until(partial(is_archived, stored, now_ms))
        return now_ms

    def restored(
        self, name: str, at: int | None = None, source: Path | None = None, upto: tuple[str, int] | None = None
    ) -> Cores:
        made = Cores(self.path, name)
        result = topics.restore(source or self.archive, made.config.data_dir, at=at, upto=upto, skipped_seqs=SKIPPED)
        assert at in {None, result.taken_ms}
        made.taken_ms = result.taken_ms
        return made

    def counts(self) -> list[int]:
        """How many records each topic has; the cores are stopped."""
        copy = self.path / "copy"
        shutil.copytree(self.config.data_dir, copy)
        given_cores(copy, 1)
        with topics.open(copy, io="portable") as log:
            there = {state.name for state in log.topics()}
            found = [len([*log.read(name, on_gap="skip")]) if name in there else 0 for name in NAMES]
        shutil.rmtree(copy)
        return found


def is_archived(stored: StoredEngine, ms: int) -> bool:
    state = stored.engine.archive.state
    return state is not None and state.upto_ms > ms and bool(state.bases)


def next_seq(made: Cores) -> int:
    """Give a restored directory one core, and append to each topic. Return the lowest seq of that."""
    given_cores(Path(made.config.data_dir), 1)
    with topics.open(made.config.data_dir, io="portable") as log:
        return min(log.append(name, [1]).first_seq for name in NAMES)
