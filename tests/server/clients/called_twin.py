"""A log or client for asyncio, called without an await: its calls run in the event loop of another thread.

With it the tests of the library ask the twins for asyncio. A call that is interrupted is cancelled.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from topics.common.work import AsyncWorkJob


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="twin", daemon=True)
        self._thread.start()

    def run(self, awaitable: Any) -> Any:
        """Return what an awaitable gives, or raise its error."""

        async def awaited() -> Any:
            return await awaitable

        future = asyncio.run_coroutine_threadsafe(awaited(), self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def __enter__(self) -> LoopThread:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.run(self._cancel_all())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    async def _cancel_all(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.loop.shutdown_asyncgens()


class Called:
    """An object whose awaitables are awaited by the caller's thread."""

    def __init__(
        self, twin: Any, thread: LoopThread, aio: Any = None, close: Callable[[], object] | None = None
    ) -> None:
        """aio: for tests that await in an event loop of their own; close: where the twin has none."""
        self._twin = twin
        self._thread = thread
        self.aio = aio
        if close is not None:
            self.close = close

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._twin, name)
        if not inspect.ismethod(found):
            return self._given(found)
        return lambda *arguments, **named: self._given(found(*arguments, **named))

    def _given(self, value: Any) -> Any:
        if isinstance(value, AsyncIterator):
            return self._records(value)
        if inspect.isawaitable(value):
            return self._given(self._thread.run(value))
        if isinstance(value, AsyncWorkJob) or hasattr(value, "commit"):  # a job at work, or a named reader
            return Called(value, self._thread)
        return value

    def _records(self, values: AsyncIterator[Any]) -> Iterator[Any]:
        try:
            while True:
                try:
                    value = self._thread.run(anext(values))
                except StopAsyncIteration:
                    return
                yield self._given(value)
        finally:
            self._thread.run(values.aclose())  # type: ignore[attr-defined]  # they are generators

    def __enter__(self) -> Any:
        return self._given(self._thread.run(self._twin.__aenter__()))

    def __exit__(self, *raised: Any) -> Any:
        return self._thread.run(self._twin.__aexit__(*raised))

    def __repr__(self) -> str:
        return repr(self._twin)
