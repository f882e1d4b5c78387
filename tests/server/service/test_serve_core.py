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
