"""A named reader of a server, with blocking calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from topics.client.reader_script import HeldPage
from topics.client.scripts import Script
from topics.common.values.answers import ReaderLag, ReaderState
from topics.common.values.delivered import Record


class ClientReader:
    """A named reader (`Client.reader`). Use it as a context manager, or call `close`.

    Its methods are those of `LogReader`. A page belongs to it for `page_lease_ms`; a client that
    ends without `close` or `abandon` leaves it to others after that.
    """

    def __init__(self, held: HeldPage, play: Callable[[Script[Any]], Any]) -> None:
        self.topic = held.topic
        self.name = held.name
        self._held = held
        self._play = play

    @property
    def delivery(self) -> str:
        return self._held.delivery

    @property
    def closed(self) -> bool:
        return self._held.closed

    def read(self, *, limit: int = 0, max_bytes: int = 0, wait_ms: int = 0) -> list[Record]:
        found: list[Record] = self._play(self._held.read(limit, max_bytes, wait_ms, peek=False))
        return found

    def peek(self, *, limit: int = 0, max_bytes: int = 0, wait_ms: int = 0) -> list[Record]:
        found: list[Record] = self._play(self._held.read(limit, max_bytes, wait_ms, peek=True))
        return found

    def commit(self, seq: int | None = None) -> int:
        committed: int = self._play(self._held.commit(seq))
        return committed

    def seek(self, seq: int) -> int:
        position: int = self._play(self._held.seek(seq))
        return position

    def state(self) -> ReaderState:
        found: ReaderState = self._play(self._held.state())
        return found

    @property
    def position(self) -> int:
        return self.state().position

    @property
    def committed(self) -> int:
        return self.state().committed

    @property
    def lag(self) -> ReaderLag:
        state = self.state()
        return ReaderLag(state.lag_records, state.lag_ms)

    def close(self) -> None:
        self._play(self._held.close())

    def abandon(self) -> None:
        """Close without a commit: the page is handed out again."""
        self._play(self._held.abandon())

    def __enter__(self) -> ClientReader:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if error is None:
            self.close()
        else:
            self.abandon()
