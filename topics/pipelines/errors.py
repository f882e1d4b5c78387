"""Errors that stop a pipeline: one sentence each, with the remedy.

    TopicsError
    ├── PipelineError        it could not run, or not to its end; what it had committed stays
    │   ├── DataLossError    records were lost since the last run and the policy is `fail`
    │   ├── TargetError      the target cannot be used, or another run was quicker
    │   └── StoppedError     a signal asked it to stop
    └── UsageError           options that contradict each other or mean nothing

`DataLossError` ends a command with exit code 1, the others with 2.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from topics.errors import TopicsError


class PipelineError(TopicsError):
    """The pipeline could not run to its end."""


class DataLossError(PipelineError):
    """Records that the pipeline had not seen yet are gone."""


class TargetError(PipelineError):
    """The target of an export cannot be used."""


class StoppedError(PipelineError):
    """SIGINT or SIGTERM came; the run ended between two units of work."""


def disk_error(what: str, error: OSError) -> TargetError:
    """Return the error for an OSError of a target; it names the remedy for a full disk."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return TargetError(f"{what}: no space left: free some, then run it again; nothing half-written counts")
    return TargetError(f"{what}: {error.strerror or error}")


@contextmanager
def disk_errors(what: str) -> Iterator[None]:
    """Raise OSErrors of the block as `disk_error` words them."""
    try:
        yield
    except OSError as error:
        raise disk_error(what, error) from error
