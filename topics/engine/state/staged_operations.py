"""Operations that are staged on a topic and wait for their commit, applied in order.

A topic's operations are in one shard of the log and are applied in the order they were staged,
whatever their commit classes. Records therefore become visible in the order of their seqs, and a
delete finds exactly the records written before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from topics.engine.state.topic import Life, Topic
from topics.engine.values.ports import LogPort
from topics.errors import NotCreatedError, TopicsError
from topics.store.commits.write_batch import Commit
from topics.store.wal.commitment import AT_ONCE


class OperationCore(Protocol):
    """The part of the core that every operation needs."""

    log: LogPort


C = TypeVar("C", bound=OperationCore)


class Operation(Generic[C]):
    """A staged change of a topic, whose subclass implements its application.

    Exactly one of `apply` and `fail` is called; it answers the request.
    """

    __slots__ = ("commit", "core", "topic")

    def __init__(self, core: C, topic: Topic) -> None:
        self.core = core
        self.topic = topic
        self.commit: Commit | None = None

    def apply(self, commit: Commit) -> None:
        """Apply the operation: it is durable in its class, and all before it are decided."""
        raise NotImplementedError

    def fail(self, error: TopicsError) -> None:
        """Report the failure: nothing of the operation happened."""
        raise NotImplementedError

    def deletes(self, seqs: NDArray[np.uint64]) -> NDArray[np.bool_] | bool:
        """Return which of these seqs it may delete once it is applied, silently."""
        return False

    # --- staging ----------------------------------------------------------------------------------------------------
    def stage(self, *, synced: bool) -> None:
        """Queue it after all operations of the topic; its frames are in the filling batch."""
        self.topic.enqueue(self)
        self.core.log.when_committed(self.topic.id, synced, self.on_commit)

    def stage_unlogged(self) -> None:
        """Queue it without a frame: it is applied as soon as all before it are."""
        self.topic.enqueue(self)
        self.on_commit(AT_ONCE)

    def on_commit(self, commit: Commit) -> None:
        self.commit = commit
        settle(self.topic)


class Notice(Operation[OperationCore]):
    """An operation that changes no state when it is applied: `then` gets its outcome.

    Either its frame records a change that is in force already, or it has none and marks the end
    of the operations before it.
    """

    __slots__ = ("then",)

    def __init__(self, core: OperationCore, topic: Topic, then: Callable[[TopicsError | None], None]) -> None:
        super().__init__(core, topic)
        self.then = then

    def apply(self, commit: Commit) -> None:
        self.then(None)

    def fail(self, error: TopicsError) -> None:
        self.then(error)


class Turn(Operation[OperationCore]):
    """A change that waits until all operations before it are decided, and is then tried again."""

    __slots__ = ("again", "failed")

    def __init__(
        self, core: OperationCore, topic: Topic, again: Callable[[], None], failed: Callable[[TopicsError], None]
    ) -> None:
        super().__init__(core, topic)
        self.again = again
        self.failed = failed

    def wait(self) -> None:
        """Queue it after an operation that is no Turn, whose end continues with this one.

        Turns that wait only for each other would try again for ever.
        """
        self.commit = AT_ONCE
        self.topic.pending.append(self)

    def apply(self, commit: Commit) -> None:
        self.again()

    def fail(self, error: TopicsError) -> None:
        self.failed(error)


def settle(topic: Topic) -> None:
    """Apply the decided operations at the front of the topic's queue.

    If its creation fails, those after it fail in the same call: no topic is half undone, although
    the callbacks of a failed commit take turns.
    """
    pending = topic.pending
    failed: Commit | None = None
    while pending:
        operation = pending[0]
        commit = operation.commit or failed
        if commit is None:
            return
        del pending[0]
        filling: object = topic.filling
        if filling is operation:
            topic.stop_filling()
        if commit.error is not None:
            operation.fail(commit.error)
            if topic.life is Life.GONE:
                failed = commit
        elif topic.life is Life.GONE:
            operation.fail(NotCreatedError(f"topic {topic.name} could not be created"))
        else:
            operation.apply(commit)


def settle_all(operation: Operation[Any], topics: Sequence[Topic]) -> None:
    """`settle` an operation that is in the queues of several topics and whose commit has ended.

    The topics share a shard of the log, in which commits end in order, so the operation is the
    first in every queue. None of the topics is gone, because the end of a topic would be queued
    after it.
    """
    # Topics with further operations after it
    queued: list[Topic] = []
    for topic in topics:
        pending = topic.pending
        assert pending[0] is operation, "a topic's operations are decided in order"
        del pending[0]
        if pending:
            queued.append(topic)
    commit = operation.commit
    assert commit is not None, "it has ended"
    if commit.error is not None:
        operation.fail(commit.error)
    else:
        operation.apply(commit)
    for topic in queued:
        settle(topic)
