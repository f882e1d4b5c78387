"""A named reader of a server as its object knows it: the page it has, and the calls that end it.

A read says that the page before is done; the server commits what is done. A page that is not done
comes again once it is given back, or its lease has ended.
"""

from __future__ import annotations

from typing import NamedTuple

from topics.client import server_calls as calls
from topics.client.attempts import ServerCall
from topics.client.parsing import HandedOut
from topics.client.scripts import Script
from topics.common.values import arguments
from topics.common.values.answers import ReaderState
from topics.common.values.delivered import GapError, Page, Record
from topics.common.values.reader_config import AT_MOST_ONCE, Opening
from topics.errors import RequestError, TopicsError, UsageError


class _Held(NamedTuple):
    """A page that is this object's."""

    token: str
    upto: int


class HeldPage:
    """The page of one reader's object."""

    def __init__(self, asked: Opening, state: ReaderState, incarnation: str | None, lease_ms: int) -> None:
        self.topic = asked.topic
        self.name = asked.name
        self.delivery = state.config.delivery
        self._commit_every = asked.commit_every
        self._incarnation = incarnation
        """The topic's, when the reader was opened: the only one that is meant; None: not known."""
        self._lease_ms = lease_ms
        self._page: _Held | None = None
        """The page that the caller has, or has had, until the server knows that it is done."""
        self._is_ahead = False
        """Whether more may be done than is committed."""
        self._gap: GapError | None = None
        """A gap that was reported, and not passed by a seek."""
        self.closed = False

    def check(self) -> None:
        if self.closed:
            raise UsageError(f"reader {self.name} is closed: open it again with log.reader")

    def read(self, limit: int, max_bytes: int, wait_ms: int, *, peek: bool) -> Script[list[Record]]:
        self.check()
        if self._gap is not None:
            raise self._gap
        held = None if peek else self._page
        try:
            answered = yield self._reading(limit, max_bytes, wait_ms, held, peek=peek)
        except RequestError as error:
            if not self._is_done(error, held):
                raise
            held = None
            answered = yield self._reading(limit, max_bytes, wait_ms, held, peek=peek)
        page, handed = answered
        if held is not None:
            self._page, self._is_ahead = None, self._commit_every > 1
        if page.tombstone is not None:
            gap = GapError(self.topic, page.tombstone)
            if not peek:
                self._gap = gap
            raise gap
        if handed.token:
            self._page = _Held(handed.token, page.next_from_seq)
        found: list[Record] = page.records
        return found

    def _reading(
        self, limit: int, max_bytes: int, wait_ms: int, done: _Held | None, *, peek: bool
    ) -> ServerCall[tuple[Page, HandedOut]]:
        return calls.read_reader(
            self.topic,
            self.name,
            limit=limit,
            max_bytes=max_bytes,
            wait_ms=wait_ms,
            lease_ms=self._lease_ms,
            peek=peek,
            done=None if done is None else done.token,
            commit_every=self._commit_every,
            incarnation=self._incarnation,
        )

    def _is_done(self, error: RequestError, page: _Held | None, seq: int | None = None) -> bool:
        """Return whether a page that is no longer out was done before: an answer was lost.

        Otherwise its lease has ended, or the reader was moved. It is this object's no more.
        """
        if error.code != "reader_fenced":
            return False
        self._page, self._is_ahead = None, False
        committed = (error.detail or {}).get("committed", -1)
        return page is not None and bool(committed >= (page.upto if seq is None else seq))

    def commit(self, seq: int | None) -> Script[int]:
        self.check()
        seq = arguments.optional_count("seq", seq)
        page = self._page
        token = None if page is None else page.token
        try:
            committed: int = yield calls.commit(self.topic, self.name, token, seq, incarnation=self._incarnation)
        except RequestError as error:
            if not self._is_done(error, page, seq):
                raise
            return int((error.detail or {})["committed"])
        self._is_ahead = False
        if page is not None and (seq is None or seq >= page.upto):
            self._page = None
        return committed

    def seek(self, seq: int) -> Script[int]:
        self.check()
        position: int = yield calls.seek(self.topic, self.name, seq, incarnation=self._incarnation)
        self._page, self._gap, self._is_ahead = None, None, False
        return position

    def state(self) -> Script[ReaderState]:
        self.check()
        state: ReaderState = yield calls.reader_state(self.topic, self.name, incarnation=self._incarnation)
        return state

    def close(self) -> Script[None]:
        if self.closed:
            return
        if self.delivery != AT_MOST_ONCE and (self._page is not None or self._is_ahead):
            yield from self.commit(None)
        yield from self.abandon()

    def abandon(self) -> Script[None]:
        """Close at once. Return the script that gives the page back."""
        page, self._page = self._page, None
        self.closed = True
        return self._giving_back(page)

    def _giving_back(self, page: _Held | None) -> Script[None]:
        if page is not None:
            try:
                yield calls.release(self.topic, self.name, page.token)
            except TopicsError:  # its lease ends by itself
                return
