"""Expiry: the loss of records that grew too old, durable before any client sees it.

Nothing expires without a request: each operation that depends on expiry asks first. While nothing
is due, asking costs one comparison. A topic's `ttl_ms` takes the oldest records, which a floor
states. A record with a `ttl_ms` of its own may expire among others that live: it becomes part of a
hole. Source: R-TTL, R-RTTL, R-DUR-8.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

import numpy as np

from topics.engine.index.expiries import A_LOOK
from topics.engine.index.pending_delete_flags import PendingDeleteFlags
from topics.engine.shared.expiry_turns import A_PORTION, ExpiryTurns
from topics.engine.state.control_frames import encode, removal, to_runs
from topics.engine.state.staged_operations import Operation, OperationCore
from topics.engine.state.topic import Life, PendingExpiry, Topic
from topics.engine.state.wakes import WakeCore, wake
from topics.errors import TopicsError
from topics.store.commits.write_batch import Commit
from topics.store.format.log_format import FrameType

Then = Callable[[TopicsError | None], None]


class LoseRecordsCore(Protocol):
    """The part of the core that `lose_records` needs: recovery calls it, too."""

    deletions: PendingDeleteFlags


class ExpiryCore(LoseRecordsCore, OperationCore, WakeCore, Protocol):
    """The part of the core that an expiry needs."""

    expiring: ExpiryTurns


class Expiry(Operation[ExpiryCore]):
    """The expiry of records up to `ttl`, and of single ones.

    `then` holds the callbacks that wait for it.
    """

    __slots__ = ("seqs", "then", "ttl")

    def __init__(self, core: ExpiryCore, topic: Topic, ttl: int, seqs: list[int]) -> None:
        """seqs: of records that expired by a ttl of their own, ascending."""
        super().__init__(core, topic)
        self.ttl = ttl
        self.seqs = seqs
        self.then: list[Then] = []

    def apply(self, commit: Commit) -> None:
        topic = self.topic
        topic.lose_through(ttl=self.ttl)
        if self.seqs:
            self._lose_single()
        wake(self.core, topic)
        self._end(None)

    def _lose_single(self) -> None:
        topic = self.topic
        lose_records(self.core.deletions, topic, self.seqs)
        topic.floors.open_holes(self.seqs, topic.index)
        topic.settle_gaps()
        if topic.queue is not None:
            topic.queue.forget(self.seqs)
        if topic.expiries is not None:
            topic.expiries.forget(self.seqs)
            if not topic.expiries.ends:
                topic.set_expiries(None)

    def fail(self, error: TopicsError) -> None:
        """End the wait. In a topic that is gone nothing can expire: the callbacks find it gone."""
        if self.topic.expiries is not None:
            self.topic.expiries.put_back(self.seqs)
        self._end(None if self.topic.life is Life.GONE else error)

    def _end(self, error: TopicsError | None) -> None:
        if self.topic.expiry is self:
            self.topic.expiry = None
        for then in self.then:
            then(error)


def lose_records(deletions: PendingDeleteFlags, topic: Topic, seqs: list[int]) -> None:
    """Remove records that expired by a ttl of their own; they become part of holes after that."""
    for chunk, rows in topic.index.lose_seqs(np.array(seqs, np.uint64)):
        deletions.add_rows(topic.id, chunk, rows)


def is_expired(topic: Topic, now_ms: int) -> bool:
    """Return whether `expire` may find anything."""
    expiries = topic.expiries
    return bool(expired_through(topic, now_ms)) or (expiries is not None and expiries.is_due(now_ms, topic.held))


def expired_through(topic: Topic, now_ms: int) -> int:
    """Return the seq up to which records are expired, now - $ts > ttl_ms (R-TTL-1); 0: none is."""
    ttl_ms, index = topic.config.ttl_ms, topic.index
    if not ttl_ms or not index.live or now_ms - index.earliest_ts() <= ttl_ms:
        return 0
    expired = index.last_before(now_ms - ttl_ms)
    held = topic.held
    if held < expired:  # A named reader holds what it has not committed.
        return index.last_live(1, held) if index.earliest <= held else 0  # not one that was deleted
    return expired


def expire(core: ExpiryCore, topic: Topic, now_ms: int, most: int = A_LOOK) -> PendingExpiry | None:
    """Stage the loss of expired records, or return the one staged; None if there is none.

    most: of records with a ttl of their own, the most that go by it. Raises: StorageError, the loss
    cannot be made durable.
    """
    ttl, pending = expired_through(topic, now_ms), topic.expiry
    seqs = _own_expired(core, topic, now_ms, most) if topic.expiries is not None else []
    if not seqs and (pending is not None or not ttl) and (pending is None or pending.ttl >= ttl):
        return pending
    expiry = Expiry(core, topic, ttl if pending is None else max(ttl, pending.ttl), seqs)
    try:
        return _stage(core, topic, expiry, now_ms)
    except TopicsError:
        if topic.expiries is not None:
            topic.expiries.put_back(seqs)
        raise


def _own_expired(core: ExpiryCore, topic: Topic, now_ms: int, most: int) -> list[int]:
    """Take records that have expired by a ttl of their own, without those about to be deleted."""
    expiries = topic.expiries
    assert expiries is not None, "the caller has looked"
    if core.expiring.over and expiries.pass_of_look == core.expiring.number:
        return []  # The others go with a later request, of another pass (R-RTTL-1).
    expiries.pass_of_look = core.expiring.number
    seqs: list[int] = []
    stay: list[int] = []
    for _ in range(-(-A_LOOK // most)):  # at least what one look of `A_LOOK` would find
        seqs = expiries.take_due(now_ms, topic.held, most)
        if seqs and topic.pending:
            seqs, deleted = _without_deleted(topic, seqs)
            stay += deleted
        if seqs or not expiries.is_due(now_ms, topic.held):
            break
    core.expiring.spend(len(seqs))
    if stay:
        expiries.put_back(sorted(stay))
    return seqs


def _without_deleted(topic: Topic, seqs: list[int]) -> tuple[list[int], list[int]]:
    """Return seqs that no staged operation deletes, and the others, whose loss is silent."""
    taken = np.array(seqs, np.uint64)
    deleted = np.zeros(len(seqs), np.bool_)
    for operation in topic.pending:
        deleted |= operation.deletes(taken)
    return [int(seq) for seq in taken[~deleted].tolist()], [int(seq) for seq in taken[deleted].tolist()]


def _stage(core: ExpiryCore, topic: Topic, expiry: Expiry, now_ms: int) -> PendingExpiry | None:
    """Stage an expiry. Raises: StorageError."""
    if topic.stage_class == "ephemeral" or core.log.is_frozen:
        topic.expiry = expiry
        expiry.stage_unlogged()
        return topic.expiry
    with core.log.use_reserve():
        payload = encode(removal(topic, ttl=expiry.ttl, seqs=to_runs(expiry.seqs)))
        core.log.stage_control(topic.id, FrameType.FLOORS, topic.next_seq - 1, now_ms, payload)
    topic.expiry = expiry
    expiry.stage(synced=topic.stage_class == "fsync")
    return expiry


def when_retained(core: ExpiryCore, topic: Topic, now_ms: int, then: Then) -> None:
    """Call `then` once the loss of all records expired at `now_ms` is durable, or with the error.

    If nothing is expired, it is called at once. Records with a ttl of their own take turns, in
    which only some of all topics go in a pass.
    """

    def again(error: TopicsError | None) -> None:
        """Look again: a write in flight may have become visible meanwhile with records as old."""
        if error is None and topic.life is not Life.GONE:
            when_retained(core, topic, now_ms, then)
        else:
            then(error)

    if topic.expires:
        if core.expiring.over and is_expired(topic, now_ms):
            core.expiring.wait(partial(again, None))
            return
        try:
            expiry = expire(core, topic, now_ms, A_PORTION)
        except TopicsError as error:
            then(error)
            return
        if expiry is not None:
            expiry.then.append(again)
            return
    then(None)
