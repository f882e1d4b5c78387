"""Incoming writes: the checks that each has to pass, in the order of the contract.

`BatchFiller` stages what has passed, `Append` publishes it; a lone write takes the short way
(`LoneAppender`). Source: wire contract 7.5, R-CAP-5.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from topics.engine.shared.held_appends import HeldAppends
from topics.engine.state import refusals
from topics.engine.state.append_request import AppendRequest, Identity
from topics.engine.state.producer_part import PartTopic
from topics.engine.state.staged_operations import Operation, OperationCore, Turn
from topics.engine.state.topic import Life, Topic
from topics.engine.values.results import AppendResult, Done, repeated
from topics.engine.values.topic_config import DEFAULT
from topics.engine.write.admission import (
    QuotaCore,
    check_admission,
    check_log,
    exceeded_cap,
    expire_for_quota,
)
from topics.engine.write.batch_filler import BatchFiller, FillingCore
from topics.engine.write.evictions import has_to_wait
from topics.engine.write.format_wait import NEWER_FLAGS, FormatWait
from topics.engine.write.identified_writes import IdentifiedWrites
from topics.engine.write.lifecycle import Lifecycle
from topics.engine.write.lone_append import LoneAppender
from topics.engine.write.retention import expire
from topics.errors import TopicsError
from topics.store.commits.write_batch import Commit
from topics.store.format.rows import (
    TIMES,
    Rows,
    any_delayed,
    any_timed,
    flags_in,
)
from topics.store.layouts.directory_names import DIRECTORY_FORMAT


def check_meant(topic: Topic, request: AppendRequest) -> None:
    """Check that the topic has the incarnation that the write requires (R-INC-4).

    Raises: RequestError incarnation_mismatch.
    """
    present = topic.incarnation if topic.visible else None
    if present != request.incarnation:
        raise refusals.incarnation_mismatch(request.topic, present)


class AppenderCore(FillingCore, QuotaCore, Protocol):
    """The part of the core that the taking of writes needs."""

    held_appends: HeldAppends


class OnceAppended(Identity, Protocol):
    """The identity of copies that come from another core (queue/moved_part.py)."""

    def was_appended(self, topic: PartTopic | None, now_ms: int) -> bool: ...


class Pieces(Protocol):
    """The receiver of pieces of parts (producers/stager.py)."""

    def take(
        self,
        appender: Appender,
        topic: Topic,
        request: AppendRequest,
        now_ms: int,
        *,
        created: bool,
        done: Done[AppendResult],
    ) -> None:
        """Take a piece of a part that has no other write in progress.

        appender: it appends the pieces, and the whole part after the last one.
        Raises: TopicsError; nothing was done then.
        """

    def appended(self, topic: Topic, identity: Identity) -> None:
        """Delete the pieces of a part that was appended; other identities have none."""


class LateRefusal(Operation[OperationCore]):
    """A refused write that created its topic.

    The refusal is sent once the topic is durable, because the topic stays (7.5).
    """

    __slots__ = ("done", "error")

    def __init__(self, core: OperationCore, topic: Topic, error: TopicsError, done: Done[AppendResult]) -> None:
        super().__init__(core, topic)
        self.error = error
        self.done = done

    def apply(self, commit: Commit) -> None:
        self.done(self.error)

    def fail(self, error: TopicsError) -> None:
        self.done(error)


class Appender:
    """Takes writes by `append`. At the end of a pass, the staged writes are one batch a topic."""

    def __init__(
        self, core: AppenderCore, lifecycle: Lifecycle, pieces: Pieces, format_wait: FormatWait, lone: LoneAppender
    ) -> None:
        self._core = core
        self._lone = lone
        self._format_wait = format_wait
        self._format = format_wait.format
        self._lifecycle = lifecycle
        self._pieces = pieces
        self._by_name = core.registry.by_name
        self._identified = IdentifiedWrites(core, pieces.appended, self.append)
        self.filler = BatchFiller(core, self._identified)
        """For pieces of parts, and parts that are whole, which were checked elsewhere."""

    def takes_plain(self, name: str) -> bool:
        """See `Engine.takes_plain`."""
        return self.plain_topic(name) is not None

    def plain_topic(self, name: str) -> Topic | None:
        """See `Engine.plain_topic`."""
        topic = self._by_name.get(name)
        return topic if topic is not None and topic.writable else None

    def will_take_plain(self, name: str) -> bool:
        """See `Engine.will_take_plain`."""
        topic = self._by_name.get(name)
        return topic is not None and topic.plain

    def key_in_flight(self, name: str, key: bytes) -> bool:
        """See `Engine.key_in_flight`."""
        topic = self._by_name.get(name)
        return topic is not None and topic.waiting_for(key) is not None

    def _plain(self, request: AppendRequest) -> Topic | None:
        """Return the topic of a write that may take the short way; None for other writes.

        A write by the short way needs nothing except its seqs.
        """
        if request.identity is not None or request.violation is not None or request.incarnation is not None:
            return None
        return self.plain_topic(request.topic)

    def append(self, request: AppendRequest, done: Done[AppendResult]) -> None:
        """See `Engine.append`."""
        if self._format_wait.waiting and self._format_wait.join(request, done):
            return
        rows = request.rows
        flags = flags_in(rows.spans)
        topic = None if flags & TIMES else self._plain(request)
        try:
            if topic is not None and request.frames is None:
                if flags & NEWER_FLAGS and not self._format.takes_all and self.waits_for_format(topic, request, done):
                    return
                now_ms = self._core.clock.now_ms()
                if not topic.needs_only_seqs and topic.expires:
                    expire(self._core, topic, now_ms)
                self.filler.stage(topic, rows, flags, request.node, now_ms, None, False, done)
            else:
                self._append_checked(self._core.registry.named(request.topic), request, done)
        except TopicsError as error:
            done(error)

    def append_lone(
        self, request: AppendRequest, on_committed: Callable[[AppendResult], None] | None = None
    ) -> AppendResult | None:
        """Commit a write in place, by the short way. See `Engine.append_lone`."""
        topic = None if any_timed(request.rows.spans) else self._plain(request)
        return None if topic is None else self._lone.append(topic, request.rows, request.node, on_committed)

    def append_copies(
        self, name: str, rows: Rows, done: Done[AppendResult], identity: OnceAppended | None = None
    ) -> None:
        """Append records that the server copies into a topic, which is created if missing (R-Q-25).

        The topic's limits refuse nothing. In any class the records are on stable storage when
        `done` is called, because the originals are deleted after that. identity: of copies that
        come from another core, perhaps once more.
        """
        topic = self._core.registry.named(name)
        again = partial(self.append_copies, name, rows, done, identity)
        if topic is not None and topic.life is Life.DELETING:
            topic.parked.append(again)
            return
        if topic is not None and (
            has_to_wait(topic) or (identity is not None and topic.waiting_for(identity.name) is not None)
        ):
            Turn(self._core, topic, again, done).wait()
            return
        try:
            if identity is not None and identity.was_appended(topic, self._core.clock.now_ms()):
                done(repeated(0, 0))  # on stable storage: a start syncs its log
                return
            if topic is None:
                topic = self._lifecycle.create_for(AppendRequest(name, rows, config=DEFAULT))
            topic.stop_filling()
            now_ms = self._core.clock.now_ms()
            self.filler.stage(topic, rows, flags_in(rows.spans), None, now_ms, identity, False, done, synced=True)
            topic.stop_filling()
        except TopicsError as error:
            done(error)

    def append_moved(self, topic: Topic, rows: Rows, done: Done[AppendResult]) -> None:
        """Append records that the server moves on request, which the topic's limits may refuse.

        As those of `append_copies`, they are on stable storage when `done` is called.
        """
        if topic.life is Life.GONE:
            done(refusals.topic_not_found(topic.name))
        elif topic.life is Life.DELETING:
            topic.parked.append(lambda: self.append_moved(topic, rows, done))
        elif has_to_wait(topic):
            Turn(self._core, topic, lambda: self.append_moved(topic, rows, done), done).wait()
        else:
            try:
                now_ms = self._core.clock.now_ms()
                check_admission(self._core, topic, rows, now_ms)
                topic.stop_filling()
                self.filler.stage(topic, rows, flags_in(rows.spans), None, now_ms, None, False, done, synced=True)
                topic.stop_filling()
            except TopicsError as error:
                done(error)

    # --- checks ------------------------------------------------------------------------------------------------------
    def _append_checked(self, topic: Topic | None, request: AppendRequest, done: Done[AppendResult]) -> None:
        """Make all checks in the order of 7.5; raise the first that fails."""
        core = self._core
        if topic is not None and topic.life is Life.DELETING:
            done = core.held_appends.hold(done)
            topic.parked.append(lambda: self.append(request, done))
            return
        created = topic is None
        now_ms = core.clock.now_ms()
        if topic is None:
            if self._lifecycle.lacks_format(request.topic, request.config):
                self._lifecycle.check_creation(request)
                self._format_wait.hold(request, done, self.append, DIRECTORY_FORMAT)
                return
            if not self._format.takes_all and self._waits_to_create(request, done):
                return
            if request.frames is not None:
                # The batch that the creation begins has no room for the losses of other topics.
                expire_for_quota(core, request.rows.size, now_ms)
            topic = self._lifecycle.create_for(request)
        elif request.violation is not None:
            raise request.violation
        elif request.incarnation is not None:
            check_meant(topic, request)
        if topic.queue is None and any_delayed(request.rows.spans):
            raise refusals.not_a_queue_for_delays(topic.name)
        config = topic.config
        if topic.expires:
            expiry = expire(core, topic, now_ms)
            if expiry is not None and config.discard == "reject":
                # Expired records make room once their loss is durable.
                done = core.held_appends.hold(done)
                expiry.then.append(lambda error: done(error) if error is not None else self.append(request, done))
                return
        if has_to_wait(topic):
            done = core.held_appends.hold(done)
            Turn(core, topic, lambda: self.append(request, done), done).wait()
            return
        try:
            identity = request.identity
            if identity is not None:
                if self._identified.is_duplicate(topic, identity, now_ms, request, done):
                    return
                if identity.is_piece:
                    self._pieces.take(self, topic, request, now_ms, created=created, done=done)
                    return
            check_admission(core, topic, request.rows, now_ms)
            if not self._format.takes_all and self.waits_for_format(topic, request, done):
                return
            self.filler.stage_request(topic, request, now_ms, identity, created, done)
        except TopicsError as error:
            if not created:
                raise
            LateRefusal(core, topic, error, done).stage_unlogged()

    def waits_for_format(self, topic: Topic, request: AppendRequest, done: Done[AppendResult]) -> bool:
        """Let a write that passed its other checks wait for the format of its records.

        Returns: whether it waits; the caller returns then, and `append` repeats the write.
        Raises: TopicsError, as `BatchFiller.stage`; the format is not raised then.
        """
        core, rows, identity = self._core, request.rows, request.identity
        if not self._format_wait.lacks(rows.spans):
            return False
        if identity is not None and not identity.is_piece:
            identity.begin(core, topic, rows, request.node, core.clock.now_ms())
        if topic.stage_class != "ephemeral":
            check_log(core)
            core.log.check_writable()
        request.check_frames()
        return self._format_wait.hold(request, done, self.append)

    def _waits_to_create(self, request: AppendRequest, done: Done[AppendResult]) -> bool:
        """Let a write that will create its topic wait, as `waits_for_format`."""
        if not self._format_wait.lacks(request.rows.spans):
            return False
        config = self._lifecycle.check_creation(request)
        if config.discard == "reject" and exceeded_cap(config, request.rows.count, request.rows.size):
            return False  # the write is refused once the topic exists, and stages no record
        self._core.log.check_writable()
        return self._format_wait.hold(request, done, self.append)
