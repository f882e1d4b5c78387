"""Writes with an identity that are in flight: duplicates wait for the write they repeat.

Source: wire contract R-IDEM.
"""

from __future__ import annotations

from collections.abc import Callable

from topics.engine.state.append_request import AppendRequest, Identity, IdentityCore
from topics.engine.state.topic import Topic
from topics.engine.values.results import AppendResult, Done
from topics.errors import TopicsError


class IdentifiedWrites:
    """Begins and ends the identities of writes."""

    def __init__(
        self,
        core: IdentityCore,
        appended: Callable[[Topic, Identity], None],
        append: Callable[[AppendRequest, Done[AppendResult]], None],
    ) -> None:
        """appended: called for each identity that is published. append: repeats a write."""
        self._core = core
        self._appended = appended
        self._append = append

    def is_duplicate(
        self, topic: Topic, identity: Identity, now_ms: int, request: AppendRequest, done: Done[AppendResult]
    ) -> bool:
        """Answer a duplicate (R-IDEM-3), or let it wait for the write it repeats (R-IDEM-5).

        Returns: False, and nothing is done, if it is no duplicate.
        """
        known = identity.find(self._core, topic, now_ms)
        if known is not None:
            done(known.answer(request))
            return True
        waiting = topic.waiting_for(identity.name)
        if waiting is None:
            return False
        waiting.append((request, done))
        return True

    def begin(self, topic: Topic, identity: Identity, done: Done[AppendResult]) -> Done[AppendResult]:
        """Enter a write in flight under an identity; return its `done`."""
        topic.begin_identity(identity.name)
        identity.hold(self._core, topic)
        return self.ending(topic, identity, done)

    def ending(self, topic: Topic, identity: Identity, done: Done[AppendResult]) -> Done[AppendResult]:
        """Return a `done` that first ends the identity, and then answers waiting duplicates."""
        in_memory = topic.stage_class == "ephemeral"

        def end(result: AppendResult | TopicsError) -> None:
            if not isinstance(result, TopicsError):
                self._on_published(topic, identity, result.first_seq, in_memory=in_memory)
                done(result)
                return
            identity.fail(self._core, topic)
            waiting = topic.end_identity(identity.name)
            done(result)
            for request, later in waiting:
                self._append(request, later)

        return end

    def _on_published(self, topic: Topic, identity: Identity, first_seq: int, *, in_memory: bool) -> None:
        """Enter a published write (R-IDEM-6), and answer the waiting duplicates."""
        known = identity.publish(self._core, topic, first_seq, in_memory=in_memory)
        self._appended(topic, identity)
        for request, done in topic.end_identity(identity.name):
            if request.identity is not None and request.identity.is_piece:
                self._append(request, done)
            else:
                done(known.answer(request))
