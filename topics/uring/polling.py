"""Polling before a wait sleeps: whether this machine has a core for it.

A thread that sleeps is woken by an interrupt, which in a virtual machine takes longer than many a
request. A thread that polls needs a core, which no other thread may be waiting for.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from topics.uring._ring import lib

if TYPE_CHECKING:
    from topics.uring._ring import tp_ring

AUTO_NS = 100_000
"""Time that `auto` polls: a client that asks again at once is back by then."""
_CGROUPS = Path("/proc/self/cgroup")
_CGROUPS_MOUNT = Path("/sys/fs/cgroup")
LOAD = "/proc/loadavg"


class Polling:
    """The polling of one ring, and the file that it reads."""

    def __init__(self) -> None:
        self._load_fd = -1

    def begin(self, ring: tp_ring, setting: str) -> None:
        """Make the waits of a ring poll. setting: `auto`, or microseconds."""
        if setting != "auto":
            lib.tp_spin(ring, int(setting) * 1000, -1, 0)
            return
        cores = spare_cores()
        if not cores.count:
            return
        try:
            self._load_fd = os.open(LOAD, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return  # without descriptors waits sleep
        lib.tp_spin(ring, AUTO_NS, self._load_fd, cores.count)

    def end(self) -> None:
        """Close the file. The ring is closed by then."""
        if self._load_fd >= 0:
            os.close(self._load_fd)
            self._load_fd = -1


class Cores(NamedTuple):
    """The cores among which one may be idle; 0 if polling must not use any."""

    count: int  # type: ignore[assignment]  # It hides tuple.count, which no caller needs here.
    reason: str


def spare_cores() -> Cores:
    """Return the number of cores that this process may use, and why polling must not.

    The threads that run are counted on the whole machine. So if they are no more than the cores of
    a process that is bound to some, no thread waits for one of these, wherever the others run.
    """
    count = len(os.sched_getaffinity(0))
    if count < 2:
        return Cores(0, "there is one core" if os.cpu_count() == 1 else "the process is bound to one core")
    if _has_quota():
        return Cores(0, "the process has a quota of CPU time")
    if not os.access(LOAD, os.R_OK):
        return Cores(0, f"{LOAD} cannot be read")
    return Cores(count, "")


def describe_polling(setting: str) -> str:
    """Return whether waits poll, and why. setting: `auto`, or microseconds."""
    if setting != "auto":
        return f"up to {setting} us, as asked for" if int(setting) else "never, as asked for"
    cores = spare_cores()
    if not cores.count:
        return f"auto: never, because {cores.reason}"
    return f"auto: up to {AUTO_NS // 1000} us, while one client is served and one of {cores.count} cores is idle"


def _has_quota() -> bool:
    """Return whether a control group of this process, or one above it, limits its CPU time.

    Source: cgroups(7): a line of the file is number:controllers:path, without controllers for
    version 2. In a container the path may be the host's, and the mount is the container's group.
    """
    for line in _text(_CGROUPS).splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            mount, name, unlimited = _CGROUPS_MOUNT, "cpu.max", "max"
        elif "cpu" in controllers.split(","):
            mount, name, unlimited = _CGROUPS_MOUNT / "cpu", "cpu.cfs_quota_us", "-1"
        else:
            continue
        group = mount / path.lstrip("/")
        for each in (group, *group.parents):
            quota = _text(each / name) if each.is_relative_to(mount) else ""
            if quota and not quota.startswith(unlimited):
                return True
    return False


def _text(path: Path) -> str:
    """Return the text of a file; none if it cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""
