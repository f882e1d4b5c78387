"""A named reader of a server as its object knows it: the pages it has, and the calls that end them.

Pages are done by commits. Others come again once they are given back, or their lease has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from topics.client import server_calls as calls
from topics.client.scripts import Script
from topics.common.values import arguments
from topics.common.values.answers import ReaderState
from topics.common.values.delivered import GapError, Record
from topics.common.values.reader_config import AT_MOST_ONCE, Opening
from topics.errors import NoAnswerError, RequestError, TopicsError, UsageError

_EARLY = 3
"""Finished pages are committed before a third of their lease has passed."""


class _Held(NamedTuple):
    """A page that is this object's."""

    token: str
    upto: int
    records: int
    since: float


class HeldPages:
    """The pages of one reader's object."""

    def __init__(
        self, asked: Opening, state: ReaderState, incarnation: str | None, lease_ms: int, now: Callable[[], float]
    ) -> None:
        self.topic = asked.topic
        self.name = asked.name
        self.delivery = state.config.delivery
        self._commit_every = asked.commit_every
        self._incarnation = incarnation
        """The topic's, when the reader was opened: the only one that is meant; None: not known."""
        self._lease_ms = lease_ms
        self._now = now
        self._page: _Held | None = None
        """The page that the caller has."""
        self._done: list[_Held] = []
        """Pages that are done and not committed."""
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
        if not peek:
            if self._page is not None:
                self._done.append(self._page)
                self._page = None
            if self._is_due():
                yield from self._commit_done()
        began = self._now()
        page, handed = yield calls.read_reader(
            self.topic,
            self.name,
            limit=limit,
            max_bytes=max_bytes,
            wait_ms=wait_ms,
            lease_ms=self._lease_ms,
            peek=peek,
            incarnation=self._incarnation,
        )
        held = _Held(handed.token, page.next_from_seq, len(page.records), began) if handed.token else None
        if page.tombstone is not None:
            gap = GapError(self.topic, page.tombstone)
            if not peek:
                self._gap = gap
            raise gap
        if held is not None:
            self._page = held
        found: list[Record] = page.records
        return found

    def _is_due(self) -> bool:
        done = self._done
        if not done:
            return False
        is_old = self._now() - done[0].since > self._lease_ms / 1000 / _EARLY
        return is_old or sum(page.records for page in done) >= self._commit_every

    def _commit_done(self) -> Script[int | None]:
        committed: int | None = None
        while self._done:
            page = self._done.pop(0)
            try:
                committed = yield from self._commit_page(page, None)
            except (NoAnswerError, GeneratorExit):  # the next commit is one of it, too
                self._done.insert(0, page)
                raise
        return committed

    def _commit_page(self, page: _Held, seq: int | None) -> Script[int]:
        try:
            committed: int = yield calls.commit(self.topic, self.name, page.token, seq, incarnation=self._incarnation)
        except RequestError as error:
            known = (error.detail or {}).get("committed")
            upto = page.upto if seq is None else seq
            # A repetition of a commit that was made, and whose answer was lost.
            if error.code == "reader_fenced" and isinstance(known, int) and known >= upto:
                return known
            if error.code == "reader_fenced":
                self._page = None
            raise
        return committed

    def commit(self, seq: int | None) -> Script[int]:
        self.check()
        seq = arguments.optional_count("seq", seq)
        committed = yield from self._commit_done()
        page = self._page
        if page is not None:
            committed = yield from self._commit_page(page, seq)
            if seq is None or seq >= page.upto:
                self._page = None
        if committed is None:
            state: ReaderState = yield calls.reader_state(self.topic, self.name, incarnation=self._incarnation)
            committed = state.committed
        if page is None and seq is not None and seq > committed:
            raise UsageError(f"seq is {seq}, and this reader has no page with it: read before you commit")
        return committed

    def seek(self, seq: int) -> Script[int]:
        self.check()
        position: int = yield calls.seek(self.topic, self.name, seq, incarnation=self._incarnation)
        self._page, self._gap = None, None
        self._done.clear()
        return position

    def state(self) -> Script[ReaderState]:
        self.check()
        state: ReaderState = yield calls.reader_state(self.topic, self.name, incarnation=self._incarnation)
        return state

    def close(self) -> Script[None]:
        if self.closed:
            return
        if self.delivery != AT_MOST_ONCE and (self._page is not None or self._done):
            yield from self.commit(None)
        yield from self.abandon()

    def abandon(self) -> Script[None]:
        """Close at once. Return the script that gives back the pages that are not committed."""
        held = [*self._done, *([] if self._page is None else [self._page])]
        self.closed, self._page = True, None
        self._done.clear()
        return self._giving_back(held)

    def _giving_back(self, held: list[_Held]) -> Script[None]:
        for page in held:
            try:
                yield calls.release(self.topic, self.name, page.token)
            except TopicsError:  # its lease ends by itself, and so do those of the others
                return
