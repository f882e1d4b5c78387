"""Opening the queues: first with the wanted flags and sizes, then with fewer flags and half sizes.

The kernel's answers decide, never its version.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from topics.uring._ring import ffi, lib
from topics.uring.support import memlock_text

if TYPE_CHECKING:
    from topics.uring._ring import tp_ring

SMALLEST_ENTRIES = 64
SMALLEST_COMPLETIONS = 256
DISABLED_SYSCTL = "/proc/sys/kernel/io_uring_disabled"

OWN_SETUPS = (
    lib.TP_SUBMIT_ALL | lib.TP_SINGLE_ISSUER | lib.TP_DEFER_TASKRUN,
    lib.TP_SUBMIT_ALL | lib.TP_SINGLE_ISSUER | lib.TP_COOP_TASKRUN,
    lib.TP_SUBMIT_ALL | lib.TP_COOP_TASKRUN,
    lib.TP_SUBMIT_ALL,
)
"""Flags that a ring of one thread tries in turn.

All include SUBMIT_ALL: one bad SQE must not hold back the SQEs after it.
"""
SHARED_SETUPS = (lib.TP_SUBMIT_ALL,)
"""Flags that a shared ring tries.

COOP_TASKRUN is left out, too: the thread that submitted may not be in the kernel when its
completion is due.
"""
FLAG_NAMES = {
    lib.TP_SUBMIT_ALL: "SUBMIT_ALL",
    lib.TP_SINGLE_ISSUER: "SINGLE_ISSUER",
    lib.TP_DEFER_TASKRUN: "DEFER_TASKRUN",
    lib.TP_COOP_TASKRUN: "COOP_TASKRUN",
}


class RingSetup(NamedTuple):
    """An open ring, with the sizes and flags that the kernel accepted."""

    ring: tp_ring
    entries: int
    completions: int
    flags: tuple[str, ...]


def open_ring_memory(entries: int, completions: int, wake_fd: int, workers: int, *, shared: bool) -> RingSetup:
    """Open a ring with the largest sizes and most flags that the kernel accepts.

    Raises: OSError with the errno of the last attempt, naming cause and remedy.
    """
    setups = SHARED_SETUPS if shared else OWN_SETUPS
    out = ffi.new("tp_ring **")
    asked = (entries, completions)
    while True:
        result = 0
        for setup in setups:
            result = lib.tp_open(out, entries, completions, setup, workers, wake_fd)
            if result == 0:
                names = tuple(name for bit, name in FLAG_NAMES.items() if setup & bit)
                return RingSetup(out[0], entries, completions, names)
            if result != -errno.EINVAL:
                break
        if result == -errno.ENOMEM and (entries > SMALLEST_ENTRIES or completions > SMALLEST_COMPLETIONS):
            entries = max(SMALLEST_ENTRIES, entries // 2)
            completions = max(SMALLEST_COMPLETIONS, completions // 2)
            continue
        reason, remedy = explain_refusal(-result, asked, (entries, completions))
        raise OSError(-result, f"io_uring is not available: {reason}. {remedy}")


def explain_refusal(error: int, asked: tuple[int, int] = (0, 0), tried: tuple[int, int] = (0, 0)) -> tuple[str, str]:
    """Return why io_uring_setup failed with this errno, and what to do.

    Both are clauses without a full stop. asked, tried: (SQEs, CQEs).
    """
    if error == errno.EPERM:
        level = disabled_level()
        if level:
            who = "every process" if level == 2 else "processes without CAP_SYS_ADMIN or the group of io_uring_group"
            return (
                f"the sysctl kernel.io_uring_disabled is {level}, which refuses it to {who}",
                "Run: sysctl -w kernel.io_uring_disabled=0 (and put it into /etc/sysctl.d), or use --io portable",
            )
        return (
            "a seccomp profile refuses io_uring_setup, as the default profiles of Docker and containerd do",
            "Run the container with a profile that allows io_uring_setup, io_uring_enter and io_uring_register"
            " (docker run --security-opt seccomp=PROFILE.json), or use --io portable",
        )
    if error == errno.ENOSYS:
        return (
            "this kernel was built without io_uring, is older than 5.1, or a seccomp profile hides it",
            "Use Linux 6.0 or newer, allow io_uring_setup in the profile, or use --io portable",
        )
    if error == errno.EINVAL:
        return ("this kernel is too old for the setup flags needed", "Use Linux 6.0 or newer, or --io portable")
    if error == errno.ENOMEM:
        return (
            f"RLIMIT_MEMLOCK is {memlock_text()} and too small for a ring of {tried[0]} SQEs and {tried[1]} CQEs"
            f" ({asked[0]} and {asked[1]} were asked for; all rings of a user count together)",
            "Raise it: ulimit -l 65536, LimitMEMLOCK=64M in the systemd unit, or docker run --ulimit memlock=67108864",
        )
    if error in (errno.EMFILE, errno.ENFILE):
        return ("no file descriptor is free", "Raise RLIMIT_NOFILE: ulimit -n 65536, or LimitNOFILE=65536")
    return (f"io_uring_setup failed: {os.strerror(error)}", "Use --io portable")


def disabled_level() -> int:
    """Return the sysctl kernel.io_uring_disabled; 0 if it is missing.

    0: allowed. 1: for privileged processes only. 2: off.
    """
    try:
        return int(Path(DISABLED_SYSCTL).read_text())
    except (OSError, ValueError):
        return 0
