"""Deletion of records by seq, by tag, or both. Source: wire contract 7.7, R-DEL, R-DUR-7."""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from topics.clock import Clock
from topics.engine.index.chunk import Dead
from topics.engine.index.pending_delete_flags import PendingDeleteFlags
from topics.engine.index.tagged_search import TaggedSearch
from topics.engine.shared.topic_registry import Registry
from topics.engine.state import refusals
from topics.engine.state.control_frames import encode, removal
from topics.engine.state.staged_operations import Operation
from topics.engine.state.topic import Life, Topic
from topics.engine.state.wakes import CatchUpFirst, wake
from topics.engine.values.predicate import Predicate
from topics.engine.values.results import DeleteResult, Done
from topics.engine.values.step_queue import StepQueue
from topics.engine.write.admission import check_backlog
from topics.engine.write.retention import ExpiryCore, expire
from topics.errors import StorageError, TopicsError
from topics.store.commits.write_batch import Commit
from topics.store.format.log_format import FrameType


class RecordDeletionCore(ExpiryCore, Protocol):
    """The part of the core that a request to delete records needs."""

    clock: Clock
    registry: Registry
    searches: StepQueue


class RecordDeletion(Operation[RecordDeletionCore]):
    """A deletion that covers all records written before it and none written later (R-DEL-4)."""

    __slots__ = ("before_seq", "done", "search", "upto")

    def __init__(  # noqa: PLR0917 - built in one place
        self,
        core: RecordDeletionCore,
        topic: Topic,
        upto: int,
        before_seq: int | None,
        search: TaggedSearch | None,
        done: Done[DeleteResult],
    ) -> None:
        """search: a search that has ended; None to delete by seq only."""
        super().__init__(core, topic)
        self.upto = upto
        self.before_seq = before_seq
        self.search = search
        self.done = done

    def apply(self, commit: Commit) -> None:
        topic = self.topic
        if self.search is not None:
            deleted = _kill(self.core.deletions, topic, self.search)
        else:
            deleted = delete_now(self.core.deletions, topic, self.upto, self.before_seq, None)
        wake(self.core, topic)
        self.done(DeleteResult(deleted, topic.earliest, topic.head, topic.index.live, topic.index.bytes))

    def fail(self, error: TopicsError) -> None:
        self.done(error)

    def deletes(self, seqs: NDArray[np.uint64]) -> NDArray[np.bool_] | bool:
        upto = self.upto if self.before_seq is None else min(self.upto, self.before_seq - 1)
        return seqs <= np.uint64(max(upto, 0))


def delete_now(
    deletions: PendingDeleteFlags, topic: Topic, upto: int, before_seq: int | None, match: Predicate | None
) -> int:
    """Delete matching live records up to `upto` and below `before_seq`; return their number."""
    # Later staged writes may have failed, and a floor is never above the head.
    upto = min(upto, topic.head)
    bound = upto if before_seq is None else min(before_seq - 1, upto)
    if bound <= 0:
        return 0
    if match is None:
        return topic.lose_through(deleted=bound)
    search = TaggedSearch(topic.index, match, bound)
    for _ in search.steps():
        pass
    return _kill(deletions, topic, search)


def _kill(deletions: PendingDeleteFlags, topic: Topic, search: TaggedSearch) -> int:
    """Kill the records that a search has found; return their number."""
    found = search.kill()
    deleted = sum([each.records for each in found])
    for each in found:
        deletions.add_later(topic.id, Dead(each.chunk, each.which))
    if topic.queue is not None:
        for each in found:
            topic.queue.forget_rows(each.chunk.first, Dead(each.chunk, each.which).mask)
    topic.settle_gaps()
    return deleted


def delete_records(  # noqa: PLR0917 - as in Engine
    core: RecordDeletionCore,
    catch_up: CatchUpFirst,
    name: str,
    before_seq: int | None,
    match: Predicate | None,
    done: Done[DeleteResult],
) -> None:
    """Stage the deletion; answer at the commit point of the topic's class.

    At least one of before_seq and match is given.
    """
    assert before_seq is not None or match is not None, "the caller checks that something is to be deleted"
    topic = core.registry.named(name)
    if topic is None or topic.life is Life.CREATING:
        done(refusals.topic_not_found(name))
        return
    catch_up(topic, lambda: _delete_records(core, catch_up, name, before_seq, match, done))


def _delete_records(  # noqa: PLR0917 - as `delete_records`
    core: RecordDeletionCore,
    catch_up: CatchUpFirst,
    name: str,
    before_seq: int | None,
    match: Predicate | None,
    done: Done[DeleteResult],
) -> None:
    """Delete after the catch-up.

    Matching records are searched for first, a bounded share a pass.
    """
    topic = core.registry.named(name)
    if topic is None:
        done(refusals.topic_not_found(name))
    elif topic.life is Life.DELETING:
        topic.parked.append(lambda: delete_records(core, catch_up, name, before_seq, match, done))
    elif match is None:
        _stage(core, topic, before_seq, None, done)
    else:
        upto = topic.next_seq - 1
        search = TaggedSearch(topic.index, match, upto if before_seq is None else min(before_seq - 1, upto))

        def on_found() -> None:
            bound = before_seq
            # Only records from before the start of the search are deleted.
            if topic.next_seq - 1 > upto:
                bound = upto + 1 if before_seq is None else min(before_seq, upto + 1)
            _stage(core, topic, bound, search, done)

        core.searches.run(search.steps(), on_found)


def _stage(
    core: RecordDeletionCore,
    topic: Topic,
    before_seq: int | None,
    search: TaggedSearch | None,
    done: Done[DeleteResult],
) -> None:
    if topic.life is Life.DELETING:  # The topic may have changed during the search.
        topic.parked.append(lambda: _stage(core, topic, before_seq, search, done))
        return
    if topic.life is Life.GONE:
        done(refusals.topic_not_found(topic.name))
        return
    now_ms = core.clock.now_ms()
    try:
        check_backlog(core.log)
        expire(core, topic, now_ms)
        _stage_frame(core, topic, before_seq, search, now_ms, done)
    except TopicsError as error:
        done(error)


def trim(core: RecordDeletionCore, topic: Topic) -> None:
    """Delete what every trimming reader has committed and every router has forwarded (R-READER-9).

    The frame comes after those of the positions. If the log refuses it, the next position asks
    again.
    """
    if topic.readers is None or topic.life is not Life.LIVE:
        return
    upto, earliest = topic.readers.trimmed(), topic.index.earliest
    if not 0 < earliest <= upto:
        return
    routers = topic.routers
    # Of many routers the last one usually catches up last, so mostly only that is checked.
    if any(router.position < earliest for router in reversed(routers)):
        return
    upto = min([upto, *(router.position for router in routers)])
    with suppress(StorageError):
        _stage_frame(core, topic, upto + 1, None, core.clock.now_ms(), _ignore)


def _ignore(_result: DeleteResult | TopicsError) -> None:
    pass


def _stage_frame(  # noqa: PLR0917 - the parts of one operation
    core: RecordDeletionCore,
    topic: Topic,
    before_seq: int | None,
    search: TaggedSearch | None,
    now_ms: int,
    done: Done[DeleteResult],
) -> None:
    """Stage a deletion, with its frame where the class has one. Raises: StorageError."""
    operation = RecordDeletion(core, topic, topic.next_seq - 1, before_seq, search, done)
    if topic.stage_class == "ephemeral":
        operation.stage_unlogged()
        return
    match = search and (search.predicate.is_prefix, search.predicate.value.decode())
    payload = removal(topic, before=before_seq, match=match)
    with core.log.use_reserve():
        core.log.stage_control(topic.id, FrameType.DELETE_RECORDS, payload.upto, now_ms, encode(payload))
    operation.stage(synced=topic.stage_class == "fsync")
