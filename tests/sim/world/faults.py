"""The operations that fail, and how. The ring asks once for every operation, when it takes effect.

Kinds: open close read write sync rename unlink (files), accept connect recv send (sockets), more (a multishot that
ends although all is well), bogus (an accept of a bad descriptor), make_directory remove_directory
link list_directory file_size lock allocate (blocking calls).
"""

from __future__ import annotations

import errno
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

FOREVER = 1 << 62
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
AGAIN = (errno.EINTR, errno.EAGAIN)
"""Nothing has failed, and nothing was done; but of a sync, which may have used up the only report of an error."""


@dataclass(slots=True)
class Rule:
    """Strikes the `nth` matching operation from now on and the `times - 1` after it."""

    kind: str
    error: int
    """errno; 0: a short transfer of `keep` bytes."""
    keep: int
    skip: int
    left: int
    path_part: str
    file: str = ""
    """The name of all files of its kind (`file_kind`); "": any."""
    ends: bool = False
    """It succeeds, and nothing comes after it: `on_end` is called."""
    hangs: bool = False
    """It never completes."""


class HangsError(BaseException):
    """Raised in the place of an operation's effect: it stays in flight."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Fail instead: fail with `error`, or (0) transfer only `keep` bytes."""

    error: int
    keep: int = 0


class Faults:
    """The plan of faults of a run, and the count of operations seen per kind (what a sweep covers)."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.struck: Counter[str] = Counter()
        self.failures: list[tuple[str, str]] = []
        """Kind and path of each operation that failed or transferred nothing, without cuts and interruptions."""
        self.on_struck: Callable[[str, int, str], object] = _nobody
        """Called with each operation that is to fail: its kind, the errno, its path."""
        self.on_seen: Callable[[str, str], object] | None = None
        """Called with each operation: its kind and its path."""
        self.on_end: Callable[[], object] = _nobody
        """Called by the operation that the process is to end with."""
        self._rules: list[Rule] = []
        self.lies = 0
        self.deceived: dict[object, int] = {}
        """Files and directories that no sync has made durable up to this change, although one has said so."""

    def fail(self, kind: str, error: int, *, nth: int = 1, times: int = 1, path_part: str = "", file: str = "") -> None:
        """The `nth` operation of this kind from now on fails with `error` (an errno), and `times` in all.

        A failing sync loses what it should have made durable: reads still show it, the disk never gets it.
        """
        self._rules.append(Rule(kind, error, 0, nth - 1, times, path_part, file))

    def end(self, kind: str, *, nth: int, file: str) -> None:
        """The `nth` operation of this kind from now on, on a file of this kind, is the last."""
        self._rules.append(Rule(kind, 0, 0, nth - 1, 1, "", file, ends=True))

    def hang(self, kind: str, *, times: int = FOREVER, path_part: str = "") -> None:
        """Operations of this kind never complete. Not for blocking calls."""
        self._rules.append(Rule(kind, 0, 0, 0, times, path_part, hangs=True))

    def shorten(self, kind: str, keep: int, *, nth: int = 1, times: int = 1, path_part: str = "") -> None:
        """The `nth` read, write or send from now on transfers only `keep` bytes."""
        self._rules.append(Rule(kind, 0, keep, nth - 1, times, path_part))

    def lie(self, *, nth: int = 1, times: int = 1, path_part: str = "") -> None:
        """The `nth` sync from now on answers 0 and makes nothing durable (a device with a false flush)."""
        self._rules.append(Rule("sync", 0, 0, nth - 1, times, path_part))

    def clear(self) -> None:
        self._rules.clear()

    def synced(self, node: object, upto: int, *, honestly: bool) -> None:
        """A sync of the changes up to this number was answered well."""
        if not honestly:
            self.lies += 1
            self.deceived[node] = max(upto, self.deceived.get(node, 0))
        elif self.deceived.get(node, 0) <= upto:
            self.deceived.pop(node, None)

    def take(self, kind: str, path: str = "", *, is_held: bool = False) -> Fault | None:
        """Counts an operation; returns its fault if one is planned for it.

        is_held: it does not fail, and counts for no rule.
        """
        self.seen[kind] += 1
        if self.on_seen is not None:
            self.on_seen(kind, path)
        for rule in () if is_held else self._rules:
            if rule.kind != kind or rule.path_part not in path or rule.left == 0:
                continue
            if rule.file and rule.file != file_kind(path):
                continue
            if rule.skip > 0:
                rule.skip -= 1
                continue
            rule.left -= 1
            if rule.hangs:
                raise HangsError(path)
            if rule.ends:
                self.on_end()
                continue
            self.struck[kind] += 1
            self.on_struck(kind, rule.error, path)
            if kind == "sync":
                has_failed = rule.error != 0
            else:
                has_failed = rule.error not in AGAIN and (rule.error or not rule.keep) != 0
            if has_failed:
                self.failures.append((kind, path))
            return Fault(rule.error, rule.keep)
        return None


def _nobody(*_told: object) -> None:
    pass


@lru_cache(maxsize=4096)
def file_kind(path: str) -> str:
    """Return the name of all files of its kind."""
    return re.sub(r"[0-9a-f]{4,}|\d+", "#", path)


def sweep(run: Callable[[Faults], None], errors: dict[str, int], *, once: bool = True) -> int:
    """Runs once without faults to count, then once for every operation of these kinds, failing it with its errno.

    once: only that operation fails; else it and all that follow. Returns the number of runs that met their fault;
    an exception of `run` says which fault it was under.
    """
    counting = Faults()
    run(counting)
    met = 0
    for kind, error in errors.items():
        for nth in range(1, counting.seen[kind] + 1):
            faults = Faults()
            faults.fail(kind, error, nth=nth, times=1 if once else FOREVER)
            try:
                run(faults)
            except Exception as problem:
                problem.add_note(f"under the fault: {kind} number {nth} fails with errno {error}, once: {once}")
                raise
            met += faults.struck[kind] > 0
    return met
