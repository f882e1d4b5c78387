"""Steps of `dead` and `redrive`, of a log and of a client, for callers that wait and that await.

A step of a redrive is a call to be made, whose answer is sent back. Steps of a list are as in
record_steps.py.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any, Protocol

from topics.common.record_steps import RecordSteps
from topics.common.values import arguments
from topics.common.values.answers import RedriveResult
from topics.common.values.delivered import Record
from topics.errors import UsageError

RedriveSteps = Generator[Any, Any, RedriveResult]


class DeadLetterCalls(Protocol):
    """The calls of which lists of dead letters and redrives are made."""

    max_limit: int
    """Dead letters of a page at most."""
    max_claim: int
    """Dead letters that one call redrives at most."""

    def listing_dead(self, queue: str, from_seq: int, limit: int) -> Any:
        """Return a call whose answer has `records`, `next_from_seq` and `head_seq`."""

    def redriving(self, queue: str, seqs: Sequence[int] | None, from_seq: int = 0) -> Any:
        """Return a call whose answer has `redriven`, `skipped`, `next_from_seq` and `head_seq`.

        seqs: None for all above `from_seq`.
        """


def dead_steps(calls: DeadLetterCalls, queue: str, from_seq: int, *, limit: int | None) -> RecordSteps:
    """Yield the steps of `dead`: up to the head that its topic has at the first of them."""
    queue = arguments.text("queue", queue)
    from_seq = arguments.count("from_seq", from_seq)
    limit = arguments.optional_count("limit", limit)
    left, largest, head = limit, calls.max_limit, None
    while left is None or left > 0:
        page = yield calls.listing_dead(queue, from_seq, min(left or largest, largest))
        yield page.records
        head = page.head_seq if head is None else head
        from_seq = page.next_from_seq
        if left is not None:
            left -= len(page.records)
        if from_seq >= min(head, page.head_seq):  # lower if the topic was deleted meanwhile
            return


def redrive_steps(calls: DeadLetterCalls, queue: str, seqs: Iterable[Record | int] | None) -> RedriveSteps:
    """Yield the steps of `redrive`; return the outcome.

    seqs: None for all dead letters that there are now.
    """
    queue = arguments.text("queue", queue)
    redriven = 0
    skipped: list[int] = []
    if seqs is not None:
        asked, most = _seqs(seqs), calls.max_claim
        for at in range(0, len(asked), most):
            turn = yield calls.redriving(queue, asked[at : at + most])
            redriven += turn.redriven
            skipped += turn.skipped
        return RedriveResult(redriven, skipped)
    turn = yield calls.redriving(queue, None)
    head = turn.head_seq
    redriven += turn.redriven
    while turn.next_from_seq < min(head, turn.head_seq):  # as in a list
        turn = yield calls.redriving(queue, None, turn.next_from_seq)
        redriven += turn.redriven
    return RedriveResult(redriven, skipped)


def _seqs(given: Iterable[Record | int]) -> list[int]:
    """Return the seqs of dead letters, given as they were listed or by seq. Raises UsageError."""
    if isinstance(given, Record | int | str | bytes) or not isinstance(given, Iterable):
        raise UsageError(f"seqs is {arguments.shown(given)}: use a list of dead letters as listed, or of seqs")
    return [arguments.count("seqs", one.seq if isinstance(one, Record) else one) for one in given]
