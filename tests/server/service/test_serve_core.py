"""The process of a core, as far as it needs none: it opens nothing without its supervisor, or without its directory."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from topics.config import Config
from topics.engine.moves.set_cores import set_cores
from topics.errors import StorageError
from topics.loop.choose import open_loop
from topics.server.cores.core_shares import SHARED, cpu_of, share_of
from topics.server.processes.serve_core import serve_core


def test_a_core_whose_supervisor_has_ended_opens_nothing(tmp_path: Path) -> None:
    """Another one may have the directory by now, and move slots."""
    config = Config(data_dir=str(tmp_path), port=0)
    with open_loop(config) as loop:
        loop.run_task(set_cores(loop, config, 2))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    life, supervisor = socket.socketpair()
    with life:
        supervisor.close()
        assert serve_core(config, 1, life.fileno()) == 0
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert set(after) - set(before) == {tmp_path / "core-01" / "lock"}
    assert before.items() <= after.items()


def test_a_core_of_a_directory_of_one_core_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="has no core directories"):
        serve_core(Config(data_dir=str(tmp_path), port=0), 1, os.open(os.devnull, os.O_RDONLY))


@pytest.mark.parametrize("cores", [1, 2, 3, 64])
def test_the_shares_of_all_cores_are_the_limit_or_a_little_more(cores: int) -> None:
    """R-CORE-7."""
    config = Config(max_connections=1000, max_total_bytes=1 << 40)
    share = share_of(config, cores)
    for name in SHARED:
        whole, part = getattr(config, name), getattr(share, name)
        assert whole <= part * cores < whole + cores, name
    assert share.max_record_bytes == config.max_record_bytes
    assert share_of(config, 1) == config


def test_no_limit_stays_none() -> None:
    assert share_of(Config(max_connections=0, max_total_bytes=0), 4).max_total_bytes == 0


def test_each_core_has_a_cpu_of_its_own_where_there_are_enough() -> None:
    assert [cpu_of(core, 2, (7, 3, 5)) for core in range(2)] == [3, 5]
    assert [cpu_of(core, 3, (0, 1)) for core in range(3)] == [None, None, None]
