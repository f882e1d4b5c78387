"""Paths of directories that options name: an error names the option, before anything is done."""

from __future__ import annotations

import errno
import os

from topics.cli.exit_codes import options_named
from topics.common.values import arguments
from topics.errors import UsageError


def check_given(option: str, path: str) -> None:
    """Raises: UsageError, the path is empty, as of a variable of a shell that is not set."""
    if not path.strip():
        raise UsageError(f"{option} is {path!r}, which is no path: name a directory")


def check_new_path(option: str, path: str) -> None:
    """Raises: UsageError, no directory can be made there."""
    _check_on_disk(option, path)
    with options_named({"to": option}):
        arguments.new_path(path, "to")


def _check_on_disk(option: str, path: str) -> None:
    """Raises: UsageError, the path is empty, or that of a bucket."""
    check_given(option, path)
    if "://" in path:
        remedy = "name a directory (`topics copy-backup` copies one to a bucket)"
        raise UsageError(f"{option} is {path!r}, which is on no disk: {remedy}")


def check_directory_path(option: str, path: str) -> None:
    """Raises: UsageError, nothing can have the path, or it is that of no directory."""
    _check_on_disk(option, path)
    try:
        os.stat(path)
    except PermissionError as error:
        raise _not_allowed(option, path) from error
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENAMETOOLONG} and not os.path.lexists(path):
            raise UsageError(f"{option} is {path!r}: {error.strerror}: name a directory") from error
    if os.path.lexists(path) and not os.path.isdir(path):
        raise UsageError(f"{option} is {path!r}, which is no directory: name a directory")
    if os.path.isdir(path) and not os.access(path, os.R_OK | os.X_OK):
        raise _not_allowed(option, path)


def _not_allowed(option: str, path: str) -> UsageError:
    remedy = "name another directory, or run this as a user who may read it"
    return UsageError(f"{option} is {path!r}, which this user may not read: {remedy}")
