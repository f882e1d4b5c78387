"""The request for a write, and the identity that it may have, by which it is recognized again.

There are several kinds of identities: `Key` and `Part`, and that of a piece in the staging area.

A write with an identity is appended once. Its frame carries the identity, so that a crash preserves
both or neither. The identity is known once the write is published. Until then, writes with the same
identity wait (`Topic.begin_identity`).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Literal, NamedTuple, Protocol

from topics.engine.state.idempotency import KeyCore, KeyedTopic
from topics.engine.state.producer_part import PartCore, PartTopic
from topics.engine.values.results import AppendResult, Done
from topics.engine.values.topic_config import TopicConfig
from topics.errors import RequestError
from topics.store.format.rows import NO_ROWS, Rows
from topics.store.in_memory.prebuilt_frames import PrebuiltFrames, check_room


class IdentityCore(KeyCore, PartCore, Protocol):
    """The part of the core that identities need."""


class IdentifyingTopic(KeyedTopic, PartTopic, Protocol):
    """The members of a topic that identities use."""


class KnownWrite(Protocol):
    """A published write, in its topic's memory."""

    def answer(self, request: AppendRequest) -> AppendResult | RequestError:
        """Return the answer to a later request with the same identity."""


class Identity(Protocol):
    """The identity of one request.

    The methods are called in the order of their definitions; `find` and `begin` may be called
    several times.
    """

    @property
    def name(self) -> Hashable:
        """A key that is unique among the identities of a topic, of all kinds."""

    @property
    def is_piece(self) -> bool:
        """Whether the write is a piece of a part, which the stager takes after `find`."""

    @property
    def is_last_piece(self) -> bool:
        """Whether it is the last piece of its part, with which the part is appended."""

    @property
    def extension_bytes(self) -> int:
        """Bytes of the extension area of its first frame (of a piece: in the staging area)."""

    def find(self, core: IdentityCore, topic: IdentifyingTopic, now_ms: int) -> KnownWrite | None:
        """Return the published write with this identity, None if there is none.

        Raises: RequestError, the topic refuses this write.
        """

    def begin(self, core: IdentityCore, topic: IdentifyingTopic, rows: Rows, node: bytes | None, now_ms: int) -> bytes:
        """Return the extension area of the write's first frame, before it is staged.

        node: the node of rows that name none.
        Raises: RequestError, the server has no room for the identity.
        """

    def hold(self, core: IdentityCore, topic: IdentifyingTopic) -> None:
        """Note that the write is staged. `publish` or `fail` follows."""

    def publish(self, core: IdentityCore, topic: IdentifyingTopic, first_seq: int, *, in_memory: bool) -> KnownWrite:
        """Note that the write is visible from `first_seq` on.

        in_memory: its records are of class `ephemeral`.
        """

    def fail(self, core: IdentityCore, topic: IdentifyingTopic) -> None:
        """End the identity of a write that failed; nothing of the write is stored."""


class AppendRequest(NamedTuple):
    """One write. Source: wire contract, section 7.5."""

    topic: str
    rows: Rows
    node: bytes | None = None
    """The node of rows that name none."""
    identity: Identity | None = None
    """The identity that recognizes a repetition of this write; None if the client sent none."""
    create: bool | None = None
    config: TopicConfig | None = None
    """Used only if this write creates the topic."""
    may_create_with_config: RequestError | Literal[True] = True
    """True if the client may create a topic with `config`, otherwise the refusal (no admin right,
    or a dead letter outside its prefixes).
    """
    violation: RequestError | None = None
    """`WriteBody.violation`: the refusal by checks 3 and 4, which follow that of
    `may_create_with_config`.
    """
    incarnation: str | None = None
    """The incarnation that the topic must have, otherwise the write is refused (R-INC-4). None:
    any.
    """
    frames: PrebuiltFrames | None = None
    """The rows of a large write as frames, which were encoded in turns."""

    def check_frames(self) -> None:
        """Check that the frames fit in a batch. Raises: RequestError batch_too_large."""
        if self.frames is None:  # otherwise they were built for one
            check_room(self.rows, self.node, 0 if self.identity is None else self.identity.extension_bytes)


PLAIN: tuple[object, ...] = AppendRequest("", NO_ROWS)[2:]
"""The other fields of a request without options."""

Waiting = list[tuple[AppendRequest, Done[AppendResult]]]
"""Requests with the identity of a write in flight, in order of arrival."""
