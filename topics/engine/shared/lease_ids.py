"""Lease ids: one sequence for all queues, never reused after any end of the process.

A range is reserved on stable storage before its first number is used. A restart continues after the
last range. Source: R-Q-5.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Protocol

from topics.clock import Clock
from topics.engine.shared.read_turns import ReadTurns
from topics.engine.values.ports import LogPort
from topics.errors import StorageError
from topics.store.commits.write_batch import Commit
from topics.store.format.log_format import FrameType

_RANGE_MIN, _RANGE_MAX = 4096, 1 << 20
_REBUILT_SHIFT = 16
"""The shift of the wall clock's milliseconds in `recovered`: room for 65 million leases a
second.
"""
_NO_TOPIC = 0

Then = Callable[[StorageError | None], None]


class LeaseIdsCore(Protocol):
    """The part of the core that a reservation needs."""

    clock: Clock
    log: LogPort
    turns: ReadTurns


class LeaseIds:
    """The source of lease ids.

    `reserved` is the highest number that may have been used; every snapshot holds it.
    """

    def __init__(self) -> None:
        self._next = 1
        self._free_upto = 0
        """Numbers up to here may be given out."""
        self.reserved = 0
        self._range = _RANGE_MIN
        self._is_staged = False
        self._waiting: list[tuple[int, Then]] = []

    # --- recovery ----------------------------------------------------------------------------------------------------
    def restore(self, reserved: int) -> None:
        """Note that numbers up to this one may have been used."""
        self.reserved = max(self.reserved, reserved)

    def recovered(self, *, rebuilt_at_ms: int) -> None:
        """Continue after all reserved numbers.

        rebuilt_at_ms: not 0 if the directory was rebuilt from segments, which do not state what was
        reserved. The numbers then continue from the clock, far above any that were used.
        """
        self.reserved = max(self.reserved, rebuilt_at_ms << _REBUILT_SHIFT)
        self._free_upto = self.reserved
        self._next = self.reserved + 1

    # --- use ---------------------------------------------------------------------------------------------------------
    def take(self, count: int) -> int:
        """Return the first of `count` consecutive numbers, after `when_free(count)`."""
        first = self._next
        self._next += count
        assert self._next <= self._free_upto + 1, "lease ids are reserved before they are used"
        return first

    def when_free(self, core: LeaseIdsCore, count: int, then: Then) -> None:
        """Call `then` once `count` numbers may be taken, or with the error that prevents it.

        Usually it is called at once.
        """
        left = self._free_upto + 1 - self._next
        if left >= count and not self._waiting:
            if left - count < self._range // 2 and not self._is_staged:
                # A later call that needs more than what is left gets the error.
                with contextlib.suppress(StorageError):
                    self._reserve(core, count)
            then(None)
            return
        if not self._is_staged:
            try:
                self._reserve(core, count)
            except StorageError as error:
                then(error)
                return
        self._waiting.append((count, then))

    def _reserve(self, core: LeaseIdsCore, count: int) -> None:
        """Stage the next range. Raises: StorageError, the log accepts nothing."""
        upto = self.reserved + max(self._range, 2 * count)
        with core.log.use_reserve():
            core.log.stage_control(_NO_TOPIC, FrameType.LEASE_IDS, upto, core.clock.now_ms(), b"{}")
        self.reserved = upto
        self._range = min(2 * self._range, _RANGE_MAX)
        self._is_staged = True
        core.log.when_committed(_NO_TOPIC, True, lambda commit: self._on_commit(core, upto, commit))

    def _on_commit(self, core: LeaseIdsCore, upto: int, commit: Commit) -> None:
        self._is_staged = False
        if commit.error is None:
            self._free_upto = upto
        waiting, self._waiting = self._waiting, []
        for count, then in waiting:  # thousands, if one write has woken them
            if commit.error is not None:
                core.turns.take(partial(then, commit.error))
            else:
                core.turns.take(partial(self.when_free, core, count, then))
