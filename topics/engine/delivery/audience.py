"""Readers of a cohort that get the same bytes by the same protocol: one call queues their sends."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Protocol

from topics.engine.delivery.frames import Burst
from topics.engine.delivery.subscription import Subscription


class SharedSends(Protocol):
    """The calls of `topics.loop.ConnectionTable` that an audience makes."""

    def begin_sharing(self, conn: Any) -> bool:
        """Let `share` send from a connection. Return False if it is not open and idle."""

    def column(self, refs: list[int]) -> Any:
        """Return names of connections as a column; 0: of none."""

    def share(self, data: bytes, refs: Any, count: int) -> list[int]:
        """Queue sends of `data` from all that are idle. Return the indexes of the others."""


class Audience:
    """The readers of one protocol of a server, whose bytes for a burst do not depend on the reader.

    bytes_of: renders a burst. most_bytes: larger bursts are delivered one by one.
    """

    def __init__(self, sends: SharedSends, most_bytes: int, bytes_of: Callable[[Burst], bytes]) -> None:
        self._sends = sends
        self._most_bytes = most_bytes
        self._bytes_of = bytes_of

    def column(self, refs: list[int]) -> Any:
        return self._sends.column(refs)

    def send(self, row: AudienceRow, burst: Burst) -> list[Subscription]:
        """Send a burst to the readers whose connections are idle. Return the other readers.

        Raises whatever rendering raises; nothing was queued then.
        """
        members = row.members
        data = self._bytes_of(burst)
        if len(data) > self._most_bytes:
            return members
        sends = self._sends
        left = sends.share(data, row.refs, len(members))
        if not left:
            return []
        begun = [at for at in left if self._begin(row, at)]
        if begun:
            with suppress(MemoryError):  # these get the burst one by one, as `left` says then
                late = sends.share(data, sends.column([row.refs[at] for at in begun]), len(begun))
                left = sorted({*left}.difference(begun).union([begun[at] for at in late]))
        return [members[at] for at in left]

    def _begin(self, row: AudienceRow, at: int) -> bool:
        """Add a reader to the audience, if its connection is open and idle."""
        feed = row.members[at].feed
        conn = None if feed.paused else feed.sink.shared_connection
        if conn is None or not self._sends.begin_sharing(conn):
            return False
        row.refs[at] = conn.ref
        return True


class AudienceRow:
    """The members of a cohort that belong to one audience. refs: their connections, as a column."""

    __slots__ = ("_audience", "members", "refs")

    def __init__(self, audience: Audience | None, members: list[Subscription]) -> None:
        self._audience = audience
        self.members = members
        connections = [each.feed.sink.shared_connection for each in members]
        self.refs: Any = ()
        if audience is not None:
            self.refs = audience.column([0 if conn is None else conn.ref for conn in connections])

    def send(self, burst: Burst) -> list[Subscription]:
        """Send to all members at once, as far as possible. Return the others."""
        return self.members if self._audience is None else self._audience.send(self, burst)


def rows_of(members: Iterable[Subscription]) -> list[AudienceRow]:
    """Return the members by audience."""
    by_audience: dict[Any, list[Subscription]] = {}
    for each in members:
        by_audience.setdefault(each.feed.sink.audience, []).append(each)
    return [AudienceRow(audience, some) for audience, some in by_audience.items()]
