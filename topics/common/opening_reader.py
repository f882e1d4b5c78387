"""The awaitable that opens a named reader, of a log and of a client."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any, Generic, Protocol, TypeVar


class Awaited(Protocol):
    """A reader that is used by `async with`."""

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object, /) -> None: ...


Q = TypeVar("Q", bound=Awaited)


class OpeningReader(Coroutine[Any, Any, Q], Generic[Q]):
    """The call `reader(...)` for asyncio: awaited for the reader, or used by `async with`."""

    __slots__ = ("_opening", "_reader")

    def __init__(self, opening: Coroutine[Any, Any, Q]) -> None:
        self._opening = opening
        self._reader: Q | None = None

    def send(self, value: Any) -> Any:
        return self._opening.send(value)

    def throw(self, *error: Any) -> Any:
        return self._opening.throw(*error)

    def close(self) -> None:
        self._opening.close()

    def __await__(self) -> Generator[Any, Any, Q]:
        return self._opening.__await__()

    async def __aenter__(self) -> Q:
        self._reader = await self._opening
        return self._reader

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        assert self._reader is not None, "it was entered"
        await self._reader.__aexit__(kind, error, traceback)
