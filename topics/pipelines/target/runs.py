"""Runs on a target, one at a time, and commits that take effect completely or not at all.

A run announces itself by a file, `_topics/runs/<run>.json`, which it holds locked (flock). To
commit, it writes the commit into that file, syncs it, and links it to the commit's name, which
fails if the name exists. Two properties follow:

- A killed run leaves an announcement without a lock. The next run renames it, then removes the
  files of that run. If the run is alive after all (on a file system whose locks do not reach other
  machines), it can no longer commit, because the file to link is missing.
- Of two runs that begin at the same instant, one links its commit; the other gets an error and
  removes its files.

Hard links are needed. Object stores, which have none, cannot be targets.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
import socket
from collections.abc import Callable, Iterable
from typing import Any

from topics.clock import Clock
from topics.pipelines.errors import TargetError, disk_error
from topics.pipelines.target.file_names import run_of, topic_directory, topic_of
from topics.pipelines.target.whole import sync_directory

OWN = "_topics"
RUNS = os.path.join(OWN, "runs")
DEAD = ".dead"
"""The suffix of a killed run's announcement, until the run's files are removed."""
_HELD = (errno.EWOULDBLOCK, errno.EACCES)

Head = dict[str, Any]
"""The content of an announcement: `run`, and `number` once the run has chosen it for its commit."""


class Run:
    """An announced run. Use as a context manager: without a commit its files are removed."""

    def __init__(self, target: str, run: str, fd: int, topics: Iterable[str]) -> None:
        self.id = run
        """22 hex digits: 12 of milliseconds since 1970, then 10 random ones."""
        self._target = target
        self._fd = fd
        self._path = os.path.join(target, RUNS, f"{run}.json")
        self._topics = tuple(topics)
        self._committed = False
        self.wrote = False
        """Whether the run may have written files; set before the first one."""

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._committed:
            if self.wrote:
                remove_files(self._target, self.id, self._topics)
            with contextlib.suppress(OSError):
                os.unlink(self._path)
        os.close(self._fd)

    def refuse_taken(self) -> None:
        """Raise TargetError if another run considered this one dead and removed its files."""
        if not os.path.exists(self._path):
            raise self._taken()

    def _taken(self) -> TargetError:
        return TargetError(
            f"another export has taken over {self._target} and removed this run's files: nothing was committed; "
            "run one export at a time"
        )

    def commit(self, content: bytes, path: str) -> bool:
        """Create the file `path` with `content`, durably. Return False if the file exists.

        Raises: TargetError, another run has taken over, the disk is full, or there are no hard
            links.
        """
        try:
            os.ftruncate(self._fd, 0)
            _write_all(self._fd, content)
            os.fsync(self._fd)
            os.link(self._path, path)
        except FileExistsError:
            # NFS may repeat a call that has succeeded.
            if not os.path.samestat(os.fstat(self._fd), os.stat(path)):
                return False
        except FileNotFoundError:
            raise self._taken() from None
        except OSError as error:
            if error.errno in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK):
                raise TargetError(
                    f"{self._target} is on a file system without hard links, which a commit needs: choose another"
                ) from None
            raise disk_error(f"commit {path}", error) from error
        self._committed = True
        sync_directory(os.path.dirname(path))
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        return True


def begin(target: str, topics: Iterable[str], clock: Clock, is_committed: Callable[[Head], bool]) -> Run:
    """Announce a run, after removing the files of killed runs.

    Args: topics, those whose files it may write; is_committed, whether the commit of an
        announcement is valid.
    Raises: TargetError, another run is active there, or the directory cannot be used.
    """
    topics = tuple(topics)
    runs = os.path.join(target, RUNS)
    try:
        os.makedirs(runs, exist_ok=True)
        for name in sorted(os.listdir(runs)):
            if name.endswith((".json", DEAD)):
                _clear(target, os.path.join(runs, name), name.partition(".")[0], is_committed)
            elif name.endswith(".new"):
                _clear_unannounced(os.path.join(runs, name))
        return _announce(target, runs, topics, clock)
    except OSError as error:
        raise disk_error(f"target {target} cannot be used", error) from error


def _announce(target: str, runs: str, topics: tuple[str, ...], clock: Clock) -> Run:
    run = f"{clock.now_ms():012x}{secrets.token_hex(5)}"
    about = {"run": run, "host": socket.gethostname(), "pid": os.getpid(), "topics": topics}
    path = os.path.join(runs, f"{run}.json")
    fd = os.open(f"{path}.new", os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o644)
    try:
        # Without locks on this file system only the link decides.
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _write_all(fd, json.dumps(about).encode() + b"\n")
        os.rename(f"{path}.new", path)  # an announcement of this name is always locked
    except BaseException:
        os.close(fd)
        with contextlib.suppress(OSError):
            os.unlink(f"{path}.new")
        raise
    return Run(target, run, fd, topics)


def _clear(target: str, path: str, run: str, is_committed: Callable[[Head], bool]) -> None:
    """Remove the files of a killed run. Raises TargetError if the run is alive."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # the run has ended meanwhile
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _HELD:
                return  # This file system has no locks, so the run may be alive: its files stay.
            head = _head(fd)
            place = f" (process {head['pid']} on {head['host']})" if "pid" in head else ""
            raise TargetError(
                f"another export{place} is writing to {target}: wait for its end, then run again"
            ) from None
        if not path.endswith(DEAD):
            os.rename(path, path + DEAD)  # from here on the run cannot commit
            path += DEAD
        head = _head(fd)
        if not is_committed(head):
            topics = head.get("topics")
            named = [name for name in topics if isinstance(name, str)] if isinstance(topics, list) else None
            remove_files(target, run, named)
        os.unlink(path)
    finally:
        os.close(fd)


def _clear_unannounced(path: str) -> None:
    """Remove an announcement that was never renamed, unless its run is about to rename it."""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)
        finally:
            os.close(fd)


def _head(fd: int) -> Head:
    """Return what an announcement records about its run; {} if it is torn.

    An announcement that holds a commit already is read, too.
    """
    content = os.pread(fd, os.fstat(fd).st_size, 0)
    try:
        head = json.loads(content.partition(b"\n")[0])
    except ValueError:
        return {}
    if isinstance(head, dict) and isinstance(head.get("commitInfo"), dict):
        return dict(head["commitInfo"])
    return head if isinstance(head, dict) else {}


def remove_files(target: str, run: str, topics: Iterable[str] | None) -> int:
    """Remove all Parquet files of a run, and then empty directories. Return the number of files.

    Errors are ignored. topics: those whose files it may have written; None if unknown.
    """
    removed = 0
    with contextlib.suppress(OSError):
        names = os.listdir(target) if topics is None else [topic_directory(topic) for topic in topics]
        for name in names:
            if topic_of(name) is not None:
                removed += _remove_below(os.path.join(target, name), run)
    return removed


def _remove_below(topic: str, run: str) -> int:
    removed = 0
    try:
        days = os.listdir(topic)
    except OSError:
        return 0
    for day in days:
        directory = os.path.join(topic, day)
        with contextlib.suppress(OSError):
            for file in os.listdir(directory):
                if run_of(file) == run:
                    os.unlink(os.path.join(directory, file))
                    removed += 1
            os.rmdir(directory)  # fails, as intended, unless the directory is empty
    with contextlib.suppress(OSError):
        os.rmdir(topic)
    return removed


def _write_all(fd: int, content: bytes) -> None:
    view, at = memoryview(content), 0
    while at < len(view):
        at += os.pwrite(fd, view[at:], at)
