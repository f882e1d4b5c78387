"""The messages with which the cores of a server write one backup. Source: R-CORE-14.

    the core that joins                  each core, this one too
    CopyOrder -------------------------> a checkpoint, whose state and files are held
    ReadyOrder ------------------------>
      <-------------------------- Ready  only the instant is missing
    InstantOrder ----------------------> what its log has by then is copied
      <--------------------- CoreCopied  the answer to the first order

They are of one build, and pass between the cores as bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from topics.errors import TopicsError
from topics.store.backup.backup_manifest import BackupFile


class CopyOrder(msgspec.Struct, array_like=True, tag=True):
    """Copy all that a core has at an instant that follows. Answer: `CoreCopied`.

    The copy is given up if the core that has ordered it ends.
    """

    token: str
    """Names the backup; drawn for each."""
    tree: str
    """The new backup, which the core that joins holds the lock of."""
    before: str
    """The newest complete backup beside it; "": there is none."""


class ReadyOrder(msgspec.Struct, array_like=True, tag=True):
    """Answer `Ready` once only the instant of a copy is missing."""

    token: str


class InstantOrder(msgspec.Struct, array_like=True, tag=True):
    """Copy what there is at this instant. Answer, at once: `Ready`."""

    token: str
    ms: int
    """Unix ms."""
    monotonic_ns: int
    """That instant by the clock that is never set, which all processes share."""


class GiveUpOrder(msgspec.Struct, array_like=True, tag=True):
    """Give up the copy that is being made, of whatever backup. Answer: `Ready`, once none is."""


class Ready(msgspec.Struct, array_like=True, tag=True):
    """The answer to all orders but the first."""


class CoreCopied(msgspec.Struct, array_like=True, tag=True):
    """The answer of a core whose files are all in the backup, synced."""

    files: list[BackupFile]
    format_number: int
    """Format of its directory."""
    copied_bytes: int
    linked_files: int


Order = CopyOrder | ReadyOrder | InstantOrder | GiveUpOrder
Reply = Ready | CoreCopied
_ENCODER = msgspec.msgpack.Encoder()
_ORDERS = msgspec.msgpack.Decoder(Order)
_REPLIES = msgspec.msgpack.Decoder(Reply)
encode: Callable[[Order | Reply], bytes] = _ENCODER.encode
decode_order: Callable[[bytes], Order] = _ORDERS.decode
decode_reply: Callable[[bytes], Reply] = _REPLIES.decode
Replied = Callable[[bytes | TopicsError], None]
"""Gets a reply, encoded."""
GiveUp = Callable[[], None]
"""Gives up what an order has begun."""


class CoresToCopy(Protocol):
    """The cores of a server."""

    @property
    def own(self) -> int:
        """The number of this one."""

    @property
    def count(self) -> int: ...

    def ask_to_copy(self, core: int, order: bytes, done: Replied) -> None:
        """Have a core execute an order, encoded. One that ends meanwhile answers with an error."""
