"""Deletion of records by seq, by tag, or both. Source: wire contract 7.7, R-DEL, R-DUR-7."""

from __future__ import annotations

from topics.engine import refusals
from topics.engine.controls import encode, removal
from topics.engine.core import Core
from topics.engine.operations import Operation
from topics.engine.predicate import Predicate
from topics.engine.results import DeleteResult, Done
from topics.engine.retention import expire
from topics.engine.topic import Life, Topic
from topics.errors import TopicsError
from topics.store.commit import Commit
from topics.store.format import FrameType


class RecordDeletion(Operation):
    """Applied when all that was written before it is published, and to nothing written later (R-DEL-4)."""

    __slots__ = ("before_seq", "done", "match", "upto")

    def __init__(  # noqa: PLR0917 - built in one place
        self,
        core: Core,
        topic: Topic,
        upto: int,
        before_seq: int | None,
        match: Predicate | None,
        done: Done[DeleteResult],
    ) -> None:
        super().__init__(core, topic)
        self.upto = upto
        self.before_seq = before_seq
        self.match = match
        self.done = done

    def apply(self, commit: Commit) -> None:
        topic = self.topic
        deleted = delete_now(self.core, topic, self.upto, self.before_seq, self.match)
        self.core.wake(topic)
        self.done(DeleteResult(deleted, topic.earliest, topic.head, topic.index.live, topic.index.bytes))

    def fail(self, error: TopicsError) -> None:
        self.done(error)


def delete_now(core: Core, topic: Topic, upto: int, before_seq: int | None, match: Predicate | None) -> int:
    """Removes live records up to `upto` that are below `before_seq` and match; returns how many."""
    upto = min(upto, topic.head)  # what was staged behind it may have failed: a floor is never above the head
    bound = upto if before_seq is None else min(before_seq - 1, upto)
    if bound <= 0:
        return 0
    if match is None:
        return topic.lose_through(deleted=bound)
    deleted = 0
    for rows in topic.index.kill_matching(match, bound):
        deleted += len(rows.seqs)
        for file_id in set(rows.file_ids.tolist()):
            if core.usage.is_sealed(file_id):
                its = rows.rows(rows.file_ids == file_id)
                core.deletions.add(topic.id, file_id, its.seqs, its.offsets, its.lengths)
        if topic.queue is not None:
            topic.queue.forget(rows.seqs.tolist())
    topic.floors.settle_gaps(topic.earliest)
    return deleted


def delete_records(
    core: Core, name: str, before_seq: int | None, match: Predicate | None, done: Done[DeleteResult]
) -> None:
    """Stages the deletion; answers at the class's commit point. At least one of before_seq and match is given."""
    assert before_seq is not None or match is not None, "the caller checks that something is to be deleted"
    topic = core.registry.by_name.get(name)
    if topic is None or topic.life is Life.CREATING:
        done(refusals.topic_not_found(name))
        return
    core.catch_up(topic, lambda: _delete_records(core, name, before_seq, match, done))


def _delete_records(
    core: Core, name: str, before_seq: int | None, match: Predicate | None, done: Done[DeleteResult]
) -> None:
    """After the copies on their way are there."""
    topic = core.registry.by_name.get(name)
    if topic is None:
        done(refusals.topic_not_found(name))
        return
    if topic.life is Life.DELETING:
        topic.parked.append(lambda: delete_records(core, name, before_seq, match, done))
        return
    now_ms = core.clock.now_ms()
    try:
        core.check_backlog()
        expire(core, topic, now_ms)
        operation = RecordDeletion(core, topic, topic.next_seq - 1, before_seq, match, done)
        if topic.stage_class == "ephemeral":
            operation.stage_unlogged()
            return
        payload = removal(topic, before=before_seq, match=match and (match.is_prefix, match.value.decode()))
        with core.log.use_reserve():
            core.log.stage_control(topic.id, FrameType.DELETE_RECORDS, payload.upto, now_ms, encode(payload))
    except TopicsError as error:
        done(error)
        return
    topic.filling = None
    operation.stage(synced=topic.stage_class == "fsync")
