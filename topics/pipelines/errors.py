"""Errors that stop a pipeline: one sentence each, with the remedy.

    TopicsError
    ├── PipelineError        it did not run, or not to its end; its commits stay
    │   ├── DataLossError    records were lost since the last run and the policy is `fail`
    │   ├── TargetError      the target cannot be used, or another run committed first
    │   └── StoppedError     a signal stopped it
    └── UsageError           options that contradict each other or have no meaning

`DataLossError` ends a command with exit code 1, the others with 2.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from topics.errors import TopicsError


class PipelineError(TopicsError):
    """A pipeline that could not run to its end."""


class DataLossError(PipelineError):
    """Records that were lost before the pipeline read them."""


class TargetError(PipelineError):
    """A target of an export that cannot be used."""


class StoppedError(PipelineError):
    """A run that SIGINT or SIGTERM ended, between two units of work."""


def disk_error(what: str, error: OSError) -> TargetError:
    """Return the error for an OSError of a target. It names the remedy for a full disk."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return TargetError(f"{what}: no space left: free some, then run it again; nothing half-written counts")
    return TargetError(f"{what}: {error.strerror or error}")


@contextmanager
def disk_errors(what: str) -> Iterator[None]:
    """Raise an OSError of the block as the error that `disk_error` returns."""
    try:
        yield
    except OSError as error:
        raise disk_error(what, error) from error
