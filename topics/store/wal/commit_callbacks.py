"""The callbacks of a shard's batches that have ended: batch after batch, some of them in a pass.

Those of a batch run in the order in which they were attached, and before those of later batches.
Until the last has run, no other batch is sent. A failure fails what is staged, too, up to the last
of its callbacks, because it may build on what failed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from topics.loop.loop import Loop
from topics.store.commits.write_batch import Commit, Done
from topics.store.wal.commitment import Commitment
from topics.store.wal.counters import LogCounters
from topics.store.wal.shard_state import ShardState
from topics.store.wal.staging import Staging

CALLBACKS_A_PASS = 256
"""Callbacks of batches that a pass runs: of topics that are created they take some 35 us each."""


class CommitCallbacks:
    """Runs the callbacks of one shard.

    on_last(): the last of them has run.
    """

    def __init__(
        self,
        loop: Loop,
        staging: Staging,
        commitment: Commitment,
        *,
        state: ShardState,
        counters: LogCounters,
        on_last: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._clock = loop.clock
        self._staging = staging
        self._owed = commitment.owed
        self._state = state
        self._counters = counters
        self._on_last = on_last
        self._is_running = False
        self._failure: Commit | None = None
        """The end of what is staged, once all of `_owed` ran; None: it is committed as usual."""

    @property
    def count(self) -> int:
        """Number of callbacks that wait for their turn."""
        return sum(len(waiters) for waiters, _commit in self._owed)

    def run(self, waiters: list[Done], commit: Commit) -> None:
        """Run callbacks of a batch that has ended, and have the next passes run the others.

        Those that wait come first. Callers that drive the loop wait for all of them.
        """
        waited = self._is_running or bool(self._owed)
        if waiters:
            self._owed.append((waiters, commit))
        if not waited:
            self._run_some()

    def fail(self, waiters: list[Done], failure: Commit) -> None:
        """Run callbacks of a batch that has failed, and fail what is staged after it."""
        self._failure = failure
        self.run(waiters, failure)

    def fail_after_batch(self, failure: Commit) -> None:
        """Fail what is staged, once the batch in flight has ended and its callbacks ran."""
        self._failure = failure

    def _run_some(self) -> None:
        owed, left, began_ns = self._owed, CALLBACKS_A_PASS, self._clock.monotonic_ns()
        self._is_running = True
        try:
            while left > 0 and (owed or (self._failure is not None and self._fails_more())):
                waiters, commit = owed.popleft()
                if not self._state.has_callers:
                    if len(waiters) > left:
                        owed.appendleft((waiters[left:], commit))
                        del waiters[left:]
                    left -= len(waiters)
                for done in waiters:
                    done(commit)
        finally:
            self._is_running = False
            if owed or (self._failure is not None and self._fails_more()):
                self._loop.call_soon(partial(self._run_others, self._loop.passes))
            else:
                self._on_last()
        self._counters.answer.add(self._clock.monotonic_ns() - began_ns)

    def _fails_more(self) -> bool:
        """Fail what is staged, too, as a batch before it failed; return whether it is owed."""
        failure, self._failure = self._failure, None
        assert failure is not None, "a batch failed"
        for batch in self._staging.take_all():
            if batch.waiters:
                self._owed.append((batch.waiters, failure))
        return bool(self._owed)

    def _run_others(self, number: int) -> None:
        """Continue in a pass after that of this number, whose tasks may follow its completions."""
        if self._loop.passes == number:
            self._loop.call_soon(partial(self._run_others, -1))
            return
        last = self._owed[-1][1]
        if last.error is not None:  # what was staged since may build on what fails
            self._failure = last
        self._run_some()
