"""Run a function in a forked process that is killed, as by `kill -9`, right before its nth file operation."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

from topics.pipelines.target import part_files

HANGS_S = 120
"""A forked process that takes longer writes the stacks of its threads, and fails the test."""
OPERATIONS = ("open", "link", "rename", "unlink", "rmdir", "fsync", "makedirs", "pwrite", "ftruncate")


def survives(work: Callable[[], object], operation: int) -> bool:
    """Whether `work` came to its end before that operation, counted from 0."""
    pid = os.fork()
    if not pid:
        try:
            faulthandler.dump_traceback_later(HANGS_S, exit=True)
            _kill_at(operation)
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    assert os.WEXITSTATUS(status) == 0, "the run failed: see the traceback above"
    return True


def _kill_at(operation: int) -> None:
    left = operation

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*arguments: Any, **named: Any) -> Any:
            nonlocal left
            if not left:
                sys.stderr.flush()
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
            return call(*arguments, **named)

        return counting

    for name in OPERATIONS:
        setattr(os, name, counted(getattr(os, name)))
    part_files._create = counted(part_files._create)
