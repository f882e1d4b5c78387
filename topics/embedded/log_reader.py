"""A named reader as a program uses it: pages in, commits out, by calls or by awaits.

An object has one page at a time. A page that never reached its caller (a signal's exception, a
cancelled await) is given back; one of delivery `at-most-once` is lost then.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

from topics.common.tuples import make_tuple
from topics.common.values import arguments
from topics.common.values.answers import ReaderLag
from topics.common.values.delivered import GapError, Page, Record
from topics.common.values.reader_config import AT_LEAST_ONCE, AT_MOST_ONCE, Opening, ReaderConfig
from topics.embedded.driving.calls import Start
from topics.embedded.driving.driver import Driver
from topics.embedded.records import UnreadPage
from topics.engine.readers.reader_calls import ReaderCalls
from topics.engine.readers.reader_results import ReaderPage, ReaderPut, ReaderQuery, ReaderState
from topics.engine.values.results import Done
from topics.errors import RequestError, TopicsError, UsageError
from topics.store.read.lender import Lender

R = TypeVar("R")


class ReaderHome(NamedTuple):
    """The parts of a log that the objects of its readers use."""

    calls: ReaderCalls
    driver: Driver
    most: int
    """Records of a page."""
    lender: Lender


def opened(calls: ReaderCalls, asked: Opening) -> Start[ReaderPut]:
    """Return the call that makes the reader, or changes the settings that are given."""

    def start(done: Done[ReaderPut]) -> None:
        def on_state(found: ReaderState | TopicsError) -> None:
            if isinstance(found, ReaderState):
                config = found.config
            elif isinstance(found, RequestError) and found.code == "reader_not_found":
                config = ReaderConfig()
            else:
                done(found)
                return
            config = ReaderConfig(
                config.delivery if asked.delivery is None else asked.delivery,
                config.holds if asked.holds is None else asked.holds,
                config.trims if asked.trims is None else asked.trims,
            )
            calls.put(asked.topic, asked.name, config, done, begin=asked.begin)

        calls.state(asked.topic, asked.name, on_state)

    return start


class _Handed:
    """The answer of one read, which a caller takes or leaves."""

    __slots__ = ("_lock", "give_up", "left", "page")

    def __init__(self) -> None:
        self.page: ReaderPage | None = None
        self.left = False
        """Whether no caller waits for the answer."""
        self.give_up: Callable[[], None] | None = None
        """End the read, on the loop; None while it has not begun, and once it is answered."""
        self._lock = threading.Lock()

    def arrive(self, page: ReaderPage) -> bool:
        """Take the engine's answer. False: no caller waits for it."""
        with self._lock:
            self.page = page
            return not self.left

    def leave(self) -> ReaderPage | None:
        """Note that no caller waits; return the page that has arrived already."""
        with self._lock:
            self.left = True
            return self.page


class ReaderObject:
    """The part of a reader's object that calls and awaits share."""

    _commits_at_end = True

    def __init__(self, home: ReaderHome, asked: Opening, put: ReaderPut) -> None:
        self.topic = asked.topic
        self.name = asked.name
        self.delivery = put.state.config.delivery
        """The delivery when it was made; at least once from the first page that needs a commit."""
        self._commit_every = asked.commit_every
        self._incarnation = put.incarnation
        self._readers, self._driver, self._most, self._lender = home
        self._token = 0
        """The page that the caller has; 0: none, or one that needs no commit."""
        self._upto = 0
        """The page is done with a commit up to here."""
        self._closed = False
        self._callers: dict[object, None] = {}
        """Calls in progress, of which only the first continues.

        Each begins, and ends by `pop`, in one step of the interpreter within a `try`, so that no
        signal's exception leaves one here that has ended.
        """

    @property
    def closed(self) -> bool:
        return self._closed

    # --- calls -------------------------------------------------------------------------------------------------------
    def _begin(self, call: object) -> None:
        """Begin a call of this object. Raises: UsageError, it is closed, or in use."""
        if self._closed:
            raise UsageError(f"reader {self.name} is closed: open it again with log.reader")
        self._callers[call] = None
        first, *_others = self._callers
        if first is not call:
            raise UsageError(f"reader {self.name} is in use by another call: open one for each thread")

    def _reading(self, handed: _Handed, limit: int, max_bytes: int, wait_ms: int, *, peek: bool) -> Start[ReaderPage]:
        limit = arguments.count("limit", limit)
        max_bytes = arguments.count("max_bytes", max_bytes)
        wait_ms = arguments.count("wait_ms", wait_ms)
        if max_bytes and not limit:
            limit = self._most

        def start(done: Done[ReaderPage]) -> None:
            if handed.left:  # A call that its caller left may begin late.
                done(_left_by_caller())
                return
            token = 0
            if not peek:
                # Whatever the answer is, this page is done, or late.
                token, self._token = self._token, 0
            query = make_tuple(
                ReaderQuery,
                (limit, max_bytes, wait_ms, peek, token, self._commit_every, None, False, True, self._lender),
            )

            answered = False

            def on_page(page: ReaderPage | TopicsError) -> None:
                nonlocal answered
                answered, handed.give_up = True, None
                if isinstance(page, ReaderPage) and not handed.arrive(page):
                    self._give_back(page.token)
                done(page)

            cancel = self._readers.read(self.topic, self.name, query, on_page, incarnation=self._incarnation)

            def give_up() -> None:
                handed.give_up = None
                cancel()
                done(_left_by_caller())

            if not answered:
                handed.give_up = give_up

        return start

    def _left(self, handed: _Handed) -> None:
        """Give back the page of a call that its caller has left, or end its wait for one."""
        page = handed.leave()
        if page is None:
            self._submit(lambda: handed.give_up() if handed.give_up is not None else None)
        else:
            self._not_delivered(page)

    def _not_delivered(self, page: ReaderPage | None) -> None:
        """Give back the page that a call took and that its caller does not get; None: it took none.

        The page that the caller has from an earlier call stays the caller's.
        """
        if page is not None and page.token:
            self._token = 0
            self._release(page.token)

    def _release(self, token: int) -> None:
        self._submit(lambda: self._give_back(token))

    def _submit(self, do: Callable[[], None]) -> None:
        """Run `do` on the loop, after the calls that were made before."""
        with contextlib.suppress(TopicsError):  # A closed log has no pages any more.
            self._driver.call_soon(do)

    def _give_back(self, token: int) -> None:
        self._readers.give_back(self.topic, self.name, token, incarnation=self._incarnation)

    def _took(self, page: ReaderPage, *, peek: bool) -> UnreadPage:
        """Note which page the caller has, to be read. Raises: GapError."""
        if not peek:
            self._token, self._upto = page.token, page.upto
            if page.token:  # Another object may have changed the delivery.
                self.delivery = AT_LEAST_ONCE
        if page.result.tombstone is not None:
            raise GapError(self.topic, page.result.tombstone)
        return UnreadPage(self.topic, page.result)

    def _committing(self, seq: int | None) -> Start[int]:
        seq = arguments.optional_count("seq", seq)

        def start(done: Done[int]) -> None:
            token = self._token

            def on_commit(committed: int | TopicsError) -> None:
                is_late = isinstance(committed, RequestError) and committed.code == "reader_fenced"
                is_done = not isinstance(committed, TopicsError) and (seq is None or seq >= self._upto)
                if is_late or is_done:
                    self._token = 0
                done(committed)

            self._readers.commit(self.topic, self.name, token, seq, on_commit, incarnation=self._incarnation)

        return start

    def _seeking(self, seq: int) -> Start[int]:
        seq = arguments.count("seq", seq)

        def start(done: Done[int]) -> None:
            def on_seek(position: int | TopicsError) -> None:
                if not isinstance(position, TopicsError):
                    self._token = 0
                done(position)

            self._readers.seek(self.topic, self.name, seq, on_seek, incarnation=self._incarnation)

        return start

    def _asking(self) -> Start[ReaderState]:
        return lambda done: self._readers.state(self.topic, self.name, done, incarnation=self._incarnation)

    def _end(self, call: object) -> bool:
        """Begin the close. Return whether there is something to commit; False: nothing to do.

        Raises: UsageError, it is in use, or this thread is within a call. It stays open then.
        """
        if self._closed:
            return False
        self._begin(call)
        commits = self._commits_at_end and self.delivery != AT_MOST_ONCE
        if commits:
            self._driver.check_outside()
        self._closed = True
        return commits

    def abandon(self) -> None:
        """Close without a commit: the page is handed out again."""
        self._closed = True
        token, self._token = self._token, 0
        if token:
            self._release(token)

    def __del__(self) -> None:
        """Let the page be handed out again, to a read that waits, too.

        A finalizer runs in the midst of any call; `Driver.submit` takes no lock.
        """
        token = getattr(self, "_token", 0)
        if token:
            readers, topic, name, incarnation = self._readers, self.topic, self.name, self._incarnation
            self._submit(lambda: readers.give_back(topic, name, token, incarnation=incarnation))


class LogReader(ReaderObject):
    """A named reader (`Log.reader`). Use it as a context manager, or call `close`.

    Raises: GapError where records were lost; RequestError `reader_fenced` after a seek by another
    object, `reader_not_found` once the reader is gone; UsageError after `close`.
    """

    def read(self, *, limit: int = 0, max_bytes: int = 0, wait_ms: int = 0) -> list[Record]:
        """Return the next page and move on. The page before is done; an empty list: no records.

        limit: 0 for the default. max_bytes: as many records as fit, one at least. wait_ms: how long
        to wait for a record.
        """
        return self._page(limit, max_bytes, wait_ms, peek=False)

    def peek(self, *, limit: int = 0, max_bytes: int = 0, wait_ms: int = 0) -> list[Record]:
        """Return what `read` would return, and move nothing."""
        return self._page(limit, max_bytes, wait_ms, peek=True)

    def _page(self, limit: int, max_bytes: int, wait_ms: int, *, peek: bool) -> list[Record]:
        handed = _Handed()
        try:
            try:
                self._begin(handed)
                page = self._driver.call(self._reading(handed, limit, max_bytes, wait_ms, peek=peek))
                return self._took(page, peek=peek).read(self._driver.rests.pause).records
            finally:
                self._callers.pop(handed, None)
        except TopicsError:
            self._not_delivered(handed.page)
            raise
        except BaseException:
            self._left(handed)
            raise

    def commit(self, seq: int | None = None) -> int:
        """Commit what was read, or the records up to `seq`. Return the committed position.

        It returns once the class of the topic is met.
        """
        return self._call(self._committing, seq)

    def seek(self, seq: int) -> int:
        """Continue above `seq`, up or down. Pages that other objects have are late then."""
        return self._call(self._seeking, seq)

    def _call(self, start: Callable[[Any], Start[R]], argument: Any) -> R:
        call = object()
        try:
            self._begin(call)
            return self._driver.call(start(argument))
        finally:
            self._callers.pop(call, None)

    def state(self) -> ReaderState:
        """Return settings, position, committed position and lag at one instant."""
        return self._call(lambda _nothing: self._asking(), None)

    @property
    def position(self) -> int:
        """Records up to here were handed out, to any object of this reader."""
        return self.state().position

    @property
    def committed(self) -> int:
        return self.state().committed

    @property
    def lag(self) -> ReaderLag:
        return _lag_of(self.state())

    def close(self) -> None:
        """Commit what was read, and end. Idempotent. The reader stays in the topic."""
        call = object()
        try:
            if self._end(call):
                self._driver.call(self._committing(None))
        finally:
            self._callers.pop(call, None)

    def __enter__(self) -> LogReader:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if error is None:
            self.close()
        else:
            self.abandon()


class AsyncLogReader(ReaderObject):
    """A named reader (`log.aio.reader`), whose calls are awaited. See `LogReader`."""

    def __init__(
        self,
        home: ReaderHome,
        asked: Opening,
        put: ReaderPut,
        run: Callable[[Start[Any]], Awaitable[Any]],
        finish: Callable[[UnreadPage], Awaitable[Page]],
    ) -> None:
        """run: awaits the answer of a call. finish: reads a page."""
        super().__init__(home, asked, put)
        self._run = run
        self._finish = finish

    async def read(self, *, limit: int = 0, max_bytes: int = 0, wait_ms: int = 0) -> list[Record]:
        return await self._page(limit, max_bytes, wait_ms, peek=False)

    async def peek(self, *, limit: int = 0, max_bytes: int = 0, wait_ms: int = 0) -> list[Record]:
        return await self._page(limit, max_bytes, wait_ms, peek=True)

    async def _page(self, limit: int, max_bytes: int, wait_ms: int, *, peek: bool) -> list[Record]:
        handed = _Handed()
        try:
            try:
                self._begin(handed)
                page = await self._run(self._reading(handed, limit, max_bytes, wait_ms, peek=peek))
                read: Page = await self._finish(self._took(page, peek=peek))
                return read.records
            finally:
                self._callers.pop(handed, None)
        except TopicsError:
            self._not_delivered(handed.page)
            raise
        except BaseException:
            self._left(handed)
            raise

    async def commit(self, seq: int | None = None) -> int:
        return await self._call(self._committing, seq)

    async def seek(self, seq: int) -> int:
        return await self._call(self._seeking, seq)

    async def state(self) -> ReaderState:
        return await self._call(lambda _nothing: self._asking(), None)

    @property
    def position(self) -> Awaitable[int]:
        return self._of_state(lambda state: state.position)

    @property
    def committed(self) -> Awaitable[int]:
        return self._of_state(lambda state: state.committed)

    @property
    def lag(self) -> Awaitable[ReaderLag]:
        return self._of_state(_lag_of)

    async def _of_state(self, part: Callable[[ReaderState], R]) -> R:
        return part(await self.state())

    async def _call(self, start: Callable[[Any], Start[R]], argument: Any) -> R:
        call = object()
        try:
            self._begin(call)
            answer: R = await self._run(start(argument))
            return answer
        finally:
            self._callers.pop(call, None)

    async def close(self) -> None:
        call = object()
        try:
            if self._end(call):
                await self._run(self._committing(None))
        finally:
            self._callers.pop(call, None)

    async def __aenter__(self) -> AsyncLogReader:
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if error is None:
            await self.close()
        else:
            self.abandon()


def _lag_of(state: ReaderState) -> ReaderLag:
    return ReaderLag(state.lag_records, state.lag_ms)


def _left_by_caller() -> UsageError:
    """Return the answer of a read whose caller has left."""
    return UsageError("the caller left this read before it was answered")
