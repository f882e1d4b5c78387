"""Identities of writes: how a write is known when it is sent again, by a name of one kind or another.

A write with an identity is appended once. Its frame carries the identity, so that a crash keeps both or neither; it is
known from its publication on, and writes of the same identity wait while it is on its way (`Topic.begin_identity`).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Protocol

from topics.store.format.rows import Rows

if TYPE_CHECKING:
    from topics.engine.shared.core import Core
    from topics.engine.state.topic import Topic
    from topics.engine.values.results import AppendRequest, AppendResult, Done
    from topics.errors import RequestError

Waiting = list[tuple["AppendRequest", "Done[AppendResult]"]]
"""Requests whose identity is that of a write which is not decided yet, in the order they came."""


class KnownWrite(Protocol):
    """A write that was published, as its topic remembers it."""

    def answer(self, request: AppendRequest) -> AppendResult | RequestError:
        """Return the answer to a later request with the same identity."""


class Identity(Protocol):
    """The identity of one request.

    Its methods are called in the order they stand in; `find` and `begin` perhaps several times.
    """

    @property
    def name(self) -> Hashable:
        """A value that no other identity of the same topic has, of any kind."""

    @property
    def is_piece(self) -> bool:
        """Whether the write is a piece of a part: `core.stager` takes it once `find` has found nothing to raise."""

    @property
    def is_last_piece(self) -> bool:
        """Whether it is the piece with which its part is appended."""

    @property
    def extension_bytes(self) -> int:
        """Bytes of the extension area of its first frame, with a piece in the staging area."""

    def find(self, core: Core, topic: Topic, now_ms: int) -> KnownWrite | None:
        """The write of this identity that the topic knows. Raises RequestError: the topic takes no such write."""

    def begin(self, core: Core, topic: Topic, rows: Rows, node: bytes | None, now_ms: int) -> bytes:
        """The write is about to be staged: the extension area of its first frame.

        Raises RequestError: the server has no room for the identity. node: of rows without their own.
        """

    def hold(self, core: Core, topic: Topic) -> None:
        """The write is staged; `publish` or `fail` follows."""

    def publish(self, core: Core, topic: Topic, first_seq: int, *, in_memory: bool) -> KnownWrite:
        """The write is visible, from `first_seq` on. in_memory: its records are of class `ephemeral`."""

    def fail(self, core: Core, topic: Topic) -> None:
        """The write failed: nothing of it is there."""
