"""One read of a named reader: a page that it hands out, or a look at the next one (`peek`).

The reads of a reader take turns, because each begins where the one before has ended. A read that
waits for records is not in that line, and looks again after every change of the topic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from topics.common.values.reader_config import AT_MOST_ONCE
from topics.engine.read.chosen_read import ChoosingPass
from topics.engine.read.consumption import mark_read
from topics.engine.read.read_pass import ReadCore, ReadPass
from topics.engine.readers.page_wait import PageWait, PageWaitCore
from topics.engine.readers.reader_positions import PositionCore, refusal_of_gone, stage_position
from topics.engine.readers.reader_results import ReaderPage, ReaderQuery
from topics.engine.state import refusals
from topics.engine.state.named_reader import HandedPage, Interval, LinedUp, NamedReader
from topics.engine.state.topic import Life, Topic
from topics.engine.state.wakes import CatchUpFirst, wake
from topics.engine.values.read_bounds import ReadBounds
from topics.engine.values.results import DiffQuery, DiffResult, Done
from topics.errors import TopicsError

_BYTES_AN_END = 8192
"""Share of a pass's budget for reads that the answer of a topic that is gone takes."""


class PageCore(ReadCore, PositionCore, PageWaitCore, Protocol):
    """The part of the core that a read of a named reader needs."""

    bounds: ReadBounds
    closing: bool


class PageSource(NamedTuple):
    """The part that all reads of named readers share."""

    core: PageCore
    catch_up: CatchUpFirst
    take_token: Callable[[], int]
    """Returns the token of a new page, not 0."""


class PageRead(LinedUp):
    """One read in progress. `cancel` may be called at any time: its page is given back.

    It lines up for its turn, looks for a page, and then either answers or waits for a change of the
    topic, after which it lines up again. An answer waits for the positions that were staged on the
    way. After the answer `_done` is None, and whatever comes then ends without effect.
    """

    __slots__ = (
        "_commits",
        "_core",
        "_done",
        "_interval",
        "_moves",
        "_page",
        "_passed",
        "_query",
        "_read_query",
        "_reader",
        "_returns",
        "_source",
        "_taken",
        "_topic",
        "_wait",
    )

    def __init__(
        self, source: PageSource, topic: Topic, reader: NamedReader, query: ReaderQuery, done: Done[ReaderPage]
    ) -> None:
        core = self._core = source.core
        self._source = source
        self._topic = topic
        self._reader = reader
        self._query = query
        self._read_query = core.bounds.one_pass(
            DiffQuery(
                limit=query.limit,
                include_tags=True,
                max_batch_bytes=query.max_bytes,
                bytes_apart=query.bytes_apart,
            )
        )
        self._done: Done[ReaderPage] | None = done
        waits = query.wait_ms and not core.closing
        self._wait = PageWait(core, topic, self._line_up, self._on_topic_gone) if waits else None
        """The wait for records; None: the next page is the answer, even without records."""
        # --- the page that is being read
        self._interval: Interval | None = None
        self._moves = 0
        """The reader's seeks when the read began."""
        self._passed = 0
        """The look at the next page found nothing up to here, and moves nothing."""
        self._returns = 0
        """The reader's returns of pages when that look began."""
        # --- the answer
        self._taken: Interval | None = None
        """Records that are delivered at most once, until their position is committed."""
        self._commits = 0
        """Positions in flight that the answer waits for."""
        self._page: ReaderPage | None = None
        """The answer, while it waits for them."""

    def begin(self) -> None:
        """Read for the first time. Raises: TopicsError; nothing was done then."""
        core, query, reader = self._core, self._query, self._reader
        now_ms = core.clock.now_ms()
        if query.done:
            reader.expire(now_ms)
            if not reader.finish(query.done):
                raise refusals.reader_fenced(self._topic.name, reader)
            if reader.done_records >= query.commit_every:
                self._commit()
        mark_read(self._topic, now_ms)
        if self._wait is not None:
            self._wait.begin(core.bounds.wait_ms(query.wait_ms))
        self._source.catch_up(self._topic, self._line_up)

    def cancel(self) -> None:
        """Give up the answer."""
        self._done = None
        page, self._page = self._page, None
        if page is not None and page.token and self._reader.give_back(page.token):
            wake(self._core, self._topic)
        self._leave()

    # --- turns -------------------------------------------------------------------------------------------------------
    def _line_up(self) -> None:
        """Look as soon as no other read of the reader does; a `peek` disturbs none."""
        if self._query.peek:
            self._core.turns.take(self._look)
        elif self._reader.busy:
            self._reader.line.append(self)
        else:
            self._reader.busy = True
            self._core.turns.take(self._look)

    def take_turn(self) -> None:
        self._core.turns.take(self._look)

    def _end_turn(self) -> None:
        """Let the next read in the line look."""
        if self._query.peek:
            return
        line = self._reader.line
        if line:
            line.pop(0).take_turn()
        else:
            self._reader.busy = False

    # --- reading -----------------------------------------------------------------------------------------------------
    def _look(self) -> None:
        """Read what is to be handed out next: a page that comes again, else what is new."""
        topic, reader = self._topic, self._reader
        if self._done is None:
            self._end_turn()
            return
        if reader.gone or topic.life is Life.GONE:
            self._end_turn()
            self._fail(refusal_of_gone(topic, reader))
            return
        reader.expire(self._core.clock.now_ms())
        if not self._passed:
            self._returns = reader.returns
        interval = self._interval = reader.next_interval(self._passed)
        self._moves = reader.moves
        after, upto = (max(reader.position, self._passed), 0) if interval is None else interval
        query, lender = self._read_query._replace(from_seq=after), self._query.lender
        if lender is None or (reader.config.delivery == AT_MOST_ONCE and not self._query.peek):
            read = ReadPass(self._core, topic, query, self._on_read)
        else:
            read = ChoosingPass(lender, self._core, topic, query, self._on_read)
        read.upto(upto).begin()

    def _on_read(self, result: DiffResult | TopicsError) -> None:
        """Hand out what was read; without a record, look on, wait, or answer an empty page."""
        reader, interval = self._reader, self._interval
        if isinstance(result, TopicsError) or self._done is None:
            self._end_turn()
            if isinstance(result, TopicsError):
                self._fail(result)
            return
        if reader.moves != self._moves:
            self._passed = 0
            self.take_turn()
        elif result.count or result.tombstone is not None:
            self._on_page(result, interval)
        else:
            if self._query.peek:
                self._passed = result.next_from_seq if interval is None else interval.upto
            elif not self._pass_over(interval, result.next_from_seq):
                return
            if interval is not None or not result.caught_up:
                self.take_turn()
                return
            self._end_turn()
            if self._wait is None or self._wait.has_ended or self._core.closing:
                self._answer(ReaderPage(result, 0, 0))
            else:
                self._park(self._wait, result.head_seq)

    def _pass_over(self, interval: Interval | None, upto: int) -> bool:
        """Note that there is no record up to `upto`. Return False if the read has failed.

        That may be what the records that are done above it waited for.
        """
        reader = self._reader
        reader.pass_over(interval, upto)
        if interval is not None and reader.done_records >= self._query.commit_every:
            return self._commit_or_fail()
        return True

    def _on_page(self, result: DiffResult, interval: Interval | None) -> None:
        """Hand out what was read, and commit it first where a page is delivered at most once."""
        core, query, reader = self._core, self._query, self._reader
        token = until_ms = upto = 0
        if not query.peek and (result.tombstone is None or query.passes_gaps):
            after = reader.position if interval is None else interval.after
            upto = result.next_from_seq if interval is None else min(result.next_from_seq, interval.upto)
            if reader.config.delivery == AT_MOST_ONCE:
                reader.pass_over(interval, upto)
                self._taken = Interval(after, upto)
                if not self._commit_or_fail():
                    return
            elif 0 < core.config.max_reader_pages <= len(reader.pages):
                self._end_turn()
                self._fail(refusals.limit_reached("max_reader_pages", core.config.max_reader_pages))
                return
            else:
                token = self._source.take_token()
                if query.lease_ms is not None:
                    until_ms = core.clock.now_ms() + query.lease_ms
                reader.hand_out(token, HandedPage(after, upto, result.count, until_ms), interval)
        self._end_turn()
        self._answer(ReaderPage(result, token, until_ms, upto))

    # --- commits -----------------------------------------------------------------------------------------------------
    def _commit(self) -> None:
        """Stage what is done; the answer waits for its commit. Raises: TopicsError."""
        self._commits += 1
        try:
            stage_position(self._core, self._topic, self._reader, self._on_commit)
        except TopicsError:
            self._commits -= 1
            raise

    def _commit_or_fail(self) -> bool:
        """Commit during the read's turn. Return False if that is refused: the read has failed."""
        try:
            self._commit()
        except TopicsError as error:
            self._end_turn()
            self._fail(error)
            return False
        return True

    def _on_commit(self, error: TopicsError | None) -> None:
        self._commits -= 1
        if error is not None:
            self._fail(error)
        elif self._page is not None and not self._commits:
            self._answer(self._page)

    # --- the answer --------------------------------------------------------------------------------------------------
    def _answer(self, page: ReaderPage) -> None:
        """Answer once no position is in flight."""
        if self._commits:
            self._page = page
            return
        self._page = None
        done, self._done = self._done, None
        self._leave()
        if done is not None:
            done(page)

    def _fail(self, error: TopicsError) -> None:
        """Answer the error at once; nothing stays handed out."""
        done = self._done
        if self._taken is not None:  # No caller gets it.
            if self._reader.moves == self._moves:
                self._reader.give_back_interval(self._taken)
            self._taken = None
        self.cancel()
        if done is not None:
            done(error)

    def _leave(self) -> None:
        wait, self._wait = self._wait, None
        if wait is not None:
            wait.end()

    # --- waiting -----------------------------------------------------------------------------------------------------
    def _park(self, wait: PageWait, head: int) -> None:
        """Wait for a change, unless one has come since the look that ended at `head`."""
        topic, reader = self._topic, self._reader
        self._passed = 0
        is_new = topic.head != head or topic.floors.lost > reader.position
        # A look leaves intervals without live records where they are.
        came_back = reader.returns != self._returns if self._query.peek else reader.next_interval() is not None
        if is_new or came_back:
            self._line_up()
            return
        wait.park(reader.next_deadline())

    def _on_topic_gone(self) -> None:
        if self._done is not None:
            self._core.turns.spend(_BYTES_AN_END)
            self._fail(refusal_of_gone(self._topic, self._reader))
