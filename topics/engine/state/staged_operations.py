"""What is staged on a topic and waits for its commit, and the queue that applies it in order.

A topic's operations lie in one shard of the log and are applied in the order they were staged, whatever their commit
classes: so records become visible in the order of their seqs, and a delete finds exactly what was written before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from topics.engine.state.topic import Life, Topic
from topics.errors import NotCreatedError, TopicsError
from topics.store.wal.commit import Commit
from topics.store.wal.commitment import AT_ONCE

if TYPE_CHECKING:
    from topics.engine.shared.core import Core


class Operation:
    """Subclasses say what applying means; `apply` and `fail` answer whoever asked. Exactly one of them is called."""

    __slots__ = ("commit", "core", "topic")

    def __init__(self, core: Core, topic: Topic) -> None:
        self.core = core
        self.topic = topic
        self.commit: Commit | None = None

    def apply(self, commit: Commit) -> None:
        """Durable in its class, and all before it is applied or has failed."""
        raise NotImplementedError

    def fail(self, error: TopicsError) -> None:
        """Nothing of it happened."""
        raise NotImplementedError

    def staged(self, _topic: Topic) -> tuple[int, int]:
        """Return how many records it has staged on a topic, and their bytes."""
        return 0, 0

    # --- the way there -----------------------------------------------------------------------------------------------
    def stage(self, *, synced: bool) -> None:
        """Queues it behind what is staged on the topic; its frames are in the log's filling batch."""
        self.topic.enqueue(self)
        self.core.log.when_committed(self.topic.id, synced, self.on_commit)

    def stage_unlogged(self) -> None:
        """Queues it without a frame: it is applied as soon as all before it is."""
        self.topic.enqueue(self)
        self.on_commit(AT_ONCE)

    def on_commit(self, commit: Commit) -> None:
        self.commit = commit
        settle(self.topic)


class Turn(Operation):
    """A change that waits until all before it is decided; then it is asked again."""

    __slots__ = ("again", "failed")

    def __init__(
        self, core: Core, topic: Topic, again: Callable[[], None], failed: Callable[[TopicsError], None]
    ) -> None:
        super().__init__(core, topic)
        self.again = again
        self.failed = failed

    def wait(self) -> None:
        """Queues it behind something that is no Turn: whatever ends that goes on with this one.

        Turns that wait for nothing but each other would ask again for ever.
        """
        self.commit = AT_ONCE
        self.topic.pending.append(self)

    def apply(self, commit: Commit) -> None:
        self.again()

    def fail(self, error: TopicsError) -> None:
        self.failed(error)


def settle(topic: Topic) -> None:
    """Applies what is decided at the front of the topic's queue."""
    pending = topic.pending
    while pending:
        operation = pending[0]
        commit = operation.commit
        if commit is None:
            return
        del pending[0]
        filling: object = topic.filling
        if filling is operation:
            topic.stop_filling()
        if commit.error is not None:
            operation.fail(commit.error)
        elif topic.life is Life.GONE:
            operation.fail(NotCreatedError(f"topic {topic.name} could not be created"))
        else:
            operation.apply(commit)


def settle_all(operation: Operation, topics: Sequence[Topic]) -> None:
    """`settle` for an operation in the queues of several topics, whose commit has ended.

    They share a shard of the log, where commits end in order, so the operation is the first one in every queue; and
    none of them is gone, since the end of a topic would be queued after it.
    """
    queued: list[Topic] = []
    """Those in which something comes after it."""
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
