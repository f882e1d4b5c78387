"""The outcome of a probe. This module needs no binding, as `probe.py`."""

from __future__ import annotations

import resource
from typing import NamedTuple


class RingSupport(NamedTuple):
    """The result of a probe.

    ok: a UringRing works here.
    reason, remedy: sentences, empty if ok.
    opcodes: the needed opcodes that the kernel has.
    flags: the setup flags that it accepted.
    memlock: RLIMIT_MEMLOCK in words.
    """

    ok: bool
    reason: str
    remedy: str
    opcodes: tuple[str, ...]
    flags: tuple[str, ...]
    memlock: str


def describe(support: RingSupport) -> str:
    """Return the lines for `topics doctor`."""
    if not support.ok:
        return f"io_uring: no: {support.reason}\n  remedy: {support.remedy}\n  locked memory: {support.memlock}"
    return f"io_uring: yes\n  setup flags: {', '.join(support.flags)}\n  locked memory: {support.memlock}"


def memlock_text() -> str:
    """Return RLIMIT_MEMLOCK in words."""
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return "unlimited" if limit == resource.RLIM_INFINITY else f"{limit // 1024} KiB"
