"""Runs on a target, one at a time, and commits that happen as a whole or not at all.

A run announces itself by a file, `_topics/runs/<run>.json`, which it holds locked (flock). To commit,
it writes the commit into that very file, syncs it, and links it to the commit's name, which fails when
the name is taken. So:

- a run that was killed has left an announcement that is locked no more: the next run renames it, then
  removes the files of that run. Should it be alive after all (a file system whose locks do not reach
  other machines), it cannot commit any more, because there is nothing left to link.
- of two runs that began at the same instant one links, and the other is told and removes its files.

Hard links are needed. Object stores, which have none, are not targets.
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
"""Ends the name of an announcement whose run was killed, until its files are removed."""
_HELD = (errno.EWOULDBLOCK, errno.EACCES)

Head = dict[str, Any]
"""The contents of an announcement: `run`, and `number` once the run has chosen one for its commit."""


class Run:
    """An announced run. Use as a context manager: what it wrote goes when it ends without a commit."""

    def __init__(self, target: str, run: str, fd: int, topics: Iterable[str]) -> None:
        self.id = run
        """22 hex digits: milliseconds since 1970, then chance."""
        self._target = target
        self._fd = fd
        self._path = os.path.join(target, RUNS, f"{run}.json")
        self._topics = tuple(topics)
        self._committed = False
        self.wrote = False
        """The run may have written files: set before the first one."""

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
        """Raise TargetError when another run took this one for dead and removed its files."""
        if not os.path.exists(self._path):
            raise self._taken()

    def _taken(self) -> TargetError:
        return TargetError(
            f"another export has taken over {self._target} and removed this run's files: nothing was committed; "
            "run one export at a time"
        )

    def commit(self, content: bytes, path: str) -> bool:
        """Make `content` the file `path`, durably. Return False when that file is there already.

        Raises TargetError: another run has taken over, the disk is full, or there are no hard links.
        """
        try:
            os.ftruncate(self._fd, 0)
            _write_all(self._fd, content)
            os.fsync(self._fd)
            os.link(self._path, path)
        except FileExistsError:
            if not os.path.samestat(os.fstat(self._fd), os.stat(path)):  # NFS may repeat a call that has succeeded
                return False
        except FileNotFoundError:
            raise self._taken() from None
        except OSError as error:
            if error.errno in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK):
                raise TargetError(
                    f"{self._target} lies on a file system without hard links, which a commit takes: choose another"
                ) from None
            raise disk_error(f"commit {path}", error) from error
        self._committed = True
        sync_directory(os.path.dirname(path))
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        return True


def begin(target: str, topics: Iterable[str], clock: Clock, is_committed: Callable[[Head], bool]) -> Run:
    """Announce a run, after what killed ones left was removed.

    Args: topics, those it may write files of; is_committed, whether a commit with this first line counts.
    Raises TargetError: another run is at work there, or the directory cannot be used.
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
        with contextlib.suppress(OSError):  # without locks on this file system the link decides alone
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _write_all(fd, json.dumps(about).encode() + b"\n")
        os.rename(f"{path}.new", path)  # whatever has this name is locked
    except BaseException:
        os.close(fd)
        with contextlib.suppress(OSError):
            os.unlink(f"{path}.new")
        raise
    return Run(target, run, fd, topics)


def _clear(target: str, path: str, run: str, is_committed: Callable[[Head], bool]) -> None:
    """Remove what a killed run left. Raises TargetError when it is alive."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # the run has ended since
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _HELD:
                return  # this file system has no locks, so the run may be alive: its files stay
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
    """Remove an announcement that never got its name, unless its run is just about to give it."""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)
        finally:
            os.close(fd)


def _head(fd: int) -> Head:
    """Return what an announcement says of its run, also one that holds a commit already; {} when it is torn."""
    content = os.pread(fd, os.fstat(fd).st_size, 0)
    try:
        head = json.loads(content.partition(b"\n")[0])
    except ValueError:
        return {}
    if isinstance(head, dict) and isinstance(head.get("commitInfo"), dict):
        return dict(head["commitInfo"])
    return head if isinstance(head, dict) else {}


def remove_files(target: str, run: str, topics: Iterable[str] | None) -> int:
    """Remove all Parquet files of a run, and directories that are empty then; returns how many. Raises nothing.

    topics: those it may have written; None when that is not known.
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
            os.rmdir(directory)  # it fails, as it should, unless the directory is empty
    with contextlib.suppress(OSError):
        os.rmdir(topic)
    return removed


def _write_all(fd: int, content: bytes) -> None:
    view, at = memoryview(content), 0
    while at < len(view):
        at += os.pwrite(fd, view[at:], at)
