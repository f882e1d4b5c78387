"""Identities of writes: names of several kinds, by which a repeated write is recognized.

A write with an identity is appended once. Its frame carries the identity, so that a crash preserves
both or neither. The identity is known once the write is published. Until then, writes with the same
identity wait (`Topic.begin_identity`).
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
"""Requests with the identity of a write in flight, in order of arrival."""


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
        """A value that no other identity of the topic has, of any kind."""

    @property
    def is_piece(self) -> bool:
        """Whether the write is a piece of a part, which `core.stager` takes after `find`."""

    @property
    def is_last_piece(self) -> bool:
        """Whether it is the last piece of its part, with which the part is appended."""

    @property
    def extension_bytes(self) -> int:
        """Bytes of the extension area of its first frame (of a piece: in the staging area)."""

    def find(self, core: Core, topic: Topic, now_ms: int) -> KnownWrite | None:
        """Return the published write with this identity, None if there is none.

        Raises: RequestError, the topic refuses this write.
        """

    def begin(self, core: Core, topic: Topic, rows: Rows, node: bytes | None, now_ms: int) -> bytes:
        """Return the extension area of the write's first frame, before it is staged.

        node: the node of rows that name none.
        Raises: RequestError, the server has no room for the identity.
        """

    def hold(self, core: Core, topic: Topic) -> None:
        """Note that the write is staged. `publish` or `fail` follows."""

    def publish(self, core: Core, topic: Topic, first_seq: int, *, in_memory: bool) -> KnownWrite:
        """Note that the write is visible from `first_seq` on.

        in_memory: its records are of class `ephemeral`.
        """

    def fail(self, core: Core, topic: Topic) -> None:
        """Note that the write failed: nothing of it is stored."""
