"""Queues of the library: jobs as a worker gets them, and as it completes or returns them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from topics.common.values.delivered import Job
from topics.embedded.driving.calls import Start
from topics.embedded.records import put_payloads
from topics.engine.queue.queue_results import AckResult, ClaimResult
from topics.engine.values.results import Cancel, Done
from topics.errors import TopicsError


class AwaitedClaim:
    """A claim whose caller may leave before it has the jobs, which are then given back.

    claiming: begins it, and returns what cancels it. nacking: returns the call that gives jobs
    back. The driving thread calls `begin` and `give_up`.
    """

    __slots__ = ("_cancel", "_claiming", "_done", "_given_up", "_jobs", "_nacking")

    def __init__(
        self, claiming: Callable[[Done[list[Job]]], Cancel], nacking: Callable[[list[Job]], Start[AckResult]]
    ) -> None:
        self._claiming = claiming
        self._nacking = nacking
        self._done: Done[list[Job]] | None = None
        """The receiver of the jobs, while the claim is in progress."""
        self._cancel: Cancel | None = None
        self._jobs: list[Job] = []
        self._given_up = False

    def begin(self, done: Done[list[Job]]) -> None:
        if self._given_up:
            done([])
            return
        self._done = done
        self._cancel = self._claiming(self._on_jobs)

    def _on_jobs(self, result: list[Job] | TopicsError) -> None:
        done, self._done = self._done, None
        if not isinstance(result, TopicsError):
            self._jobs = result
        assert done is not None, "it is answered once"
        done(result)

    def give_up(self, done: Done[AckResult | None]) -> None:
        """Cancel the claim, or give back the jobs that its caller did not get."""
        self._given_up = True
        if self._done is not None:
            assert self._cancel is not None, "it was begun"
            self._cancel()
            self._on_jobs([])
        if self._jobs:
            self._nacking(self._jobs)(done)
        else:
            done(None)


_decoder = msgspec.json.Decoder(list[Job])


def parse_jobs(result: ClaimResult | TopicsError) -> list[Job] | TopicsError:
    """Return the decoded jobs of the engine's answer; an error is returned unchanged."""
    if isinstance(result, TopicsError):
        return result
    jobs = _decoder.decode(b"[" + result.records + b"]")
    put_payloads(jobs, result.payloads)
    return jobs
