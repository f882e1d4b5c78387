"""A named reader of a server, whose calls are awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from topics.client.reader_script import HeldPage
from topics.client.scripts import Script
from topics.common.values.answers import ReaderLag, ReaderState
from topics.common.values.delivered import Record

R = TypeVar("R")


class AsyncClientReader:
    """A named reader (`AsyncClient.reader`), whose calls are awaited. See `ClientReader`."""

    def __init__(self, held: HeldPage, play: Callable[[Script[Any]], Awaitable[Any]]) -> None:
        self.topic = held.topic
        self.name = held.name
        self._held = held
        self._play = play
        self._leaving: Awaitable[None] | None = None
        """The request that gives back a page, in progress."""

    @property
    def delivery(self) -> str:
        return self._held.delivery

    @property
    def closed(self) -> bool:
        return self._held.closed

    async def read(self, *, limit: int = 0, max_bytes: int = 0, wait_ms: int = 0) -> list[Record]:
        found: list[Record] = await self._play(self._held.read(limit, max_bytes, wait_ms, peek=False))
        return found

    async def peek(self, *, limit: int = 0, max_bytes: int = 0, wait_ms: int = 0) -> list[Record]:
        found: list[Record] = await self._play(self._held.read(limit, max_bytes, wait_ms, peek=True))
        return found

    async def commit(self, seq: int | None = None) -> int:
        committed: int = await self._play(self._held.commit(seq))
        return committed

    async def seek(self, seq: int) -> int:
        position: int = await self._play(self._held.seek(seq))
        return position

    async def state(self) -> ReaderState:
        found: ReaderState = await self._play(self._held.state())
        return found

    @property
    def position(self) -> Awaitable[int]:
        return self._of_state(lambda state: state.position)

    @property
    def committed(self) -> Awaitable[int]:
        return self._of_state(lambda state: state.committed)

    @property
    def lag(self) -> Awaitable[ReaderLag]:
        return self._of_state(lambda state: ReaderLag(state.lag_records, state.lag_ms))

    async def _of_state(self, part: Callable[[ReaderState], R]) -> R:
        return part(await self.state())

    async def close(self) -> None:
        await self._play(self._held.close())

    def abandon(self) -> Awaitable[None] | None:
        """Close without a commit: the page is handed out again, which may be awaited.

        Where no event loop runs, that happens once its lease has ended.
        """
        giving_back = self._held.abandon()
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return None
        self._leaving = asyncio.ensure_future(self._play(giving_back))
        return self._leaving

    async def __aenter__(self) -> AsyncClientReader:
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if error is None:
            await self.close()
        else:
            await self._play(self._held.abandon())
