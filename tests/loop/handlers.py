"""A stream handler that records its calls; tests look at `events` and may hook into `on_receive`."""

from __future__ import annotations

from collections.abc import Callable

from topics.loop import Connection


class Recorder:
    """Events are tuples: ("connected", id), ("data", id, bytes), ("end", id), ("drained", id), ("lost", id, errno)."""

    def __init__(self) -> None:
        self.events: list[tuple[object, ...]] = []
        self.batches: list[int] = []
        self.conns: list[Connection] = []
        self.on_receive: Callable[[Connection, bytes], None] = lambda conn, data: None

    @property
    def conn(self) -> Connection:
        return self.conns[-1]

    def take(self) -> list[tuple[object, ...]]:
        events, self.events = self.events, []
        return events

    def data(self) -> bytes:
        """Everything received so far, joined."""
        return b"".join(event[2] for event in self.events if event[0] == "data")  # type: ignore[misc]

    def has(self, kind: str) -> bool:
        return any(event[0] == kind for event in self.events)

    def connected(self, conn: Connection) -> None:
        self.conns.append(conn)
        self.events.append(("connected", conn.id))

    def receive(self, batch: list[tuple[Connection, memoryview]]) -> None:
        self.batches.append(len(batch))
        for conn, view in batch:
            self.events.append(("data", conn.id, bytes(view)))
            self.on_receive(conn, bytes(view))

    def end_of_stream(self, conn: Connection) -> None:
        self.events.append(("end", conn.id))

    def drained(self, conn: Connection) -> None:
        self.events.append(("drained", conn.id))

    def lost(self, conn: Connection, error: int) -> None:
        self.events.append(("lost", conn.id, error))
