"""All operations on named readers. Source: wire contract, R-READER."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Protocol

from topics.common.values.begin import Begin
from topics.common.values.reader_config import ReaderConfig
from topics.engine.read.begin_cursor import begin_cursor
from topics.engine.readers.page_read import PageCore, PageRead, PageSource
from topics.engine.readers.reader_positions import Then, reserve_for, stage_position
from topics.engine.readers.reader_results import ReaderPage, ReaderPut, ReaderQuery, ReaderState
from topics.engine.state import refusals
from topics.engine.state.control_frames import ReaderPayload, encode
from topics.engine.state.named_reader import HandedPage, Interval, NamedReader, TopicReaders
from topics.engine.state.staged_operations import Operation, Turn
from topics.engine.state.topic import Life, Topic
from topics.engine.state.wakes import CatchUpFirst, wake
from topics.engine.values.name_rules import Prefixes, check_reader_name
from topics.engine.values.ports import FormatPort
from topics.engine.values.results import Cancel, Done
from topics.engine.write.admission import check_backlog
from topics.engine.write.delete import trim
from topics.engine.write.evictions import log_caps
from topics.engine.write.retention import when_retained
from topics.errors import TopicsError
from topics.store.commits.write_batch import Commit
from topics.store.format.log_format import FrameType
from topics.store.layouts.directory_names import SECOND_DIRECTORY_FORMAT

_AT_ZERO = Begin("seq", 0)
_READERS_A_STEP = 100
_BYTES_A_STATE = 4096
"""Share of a pass's budget for reads that the state of a reader costs: it counts live records."""


class ReadersCore(PageCore, Protocol):
    """The part of the core that named readers need."""

    format: FormatPort


class ReaderChange(Operation[ReadersCore]):
    """A reader, new or with other settings."""

    __slots__ = ("config", "done", "name", "position")

    def __init__(  # noqa: PLR0917 - built in one place
        self,
        core: ReadersCore,
        topic: Topic,
        name: str,
        config: ReaderConfig,
        position: int,
        done: Done[ReaderPut],
    ) -> None:
        super().__init__(core, topic)
        self.name = name
        self.config = config
        self.position = position
        self.done = done

    def apply(self, commit: Commit) -> None:
        topic = self.topic
        assert topic.readers is not None, "made when the change was staged"
        topic.readers.changing = False
        trimmed = topic.readers.is_trimming(self.name)
        created = topic.readers.put(self.name, self.config, self.position)
        self.core.registry.with_readers[topic] = None
        _on_change(self.core, topic, trims_less=trimmed and not self.config.trims)
        state = state_of(topic, topic.readers.by_name[self.name], self.core.clock.now_ms())
        self.done(ReaderPut(created, state, topic.incarnation))

    def fail(self, error: TopicsError) -> None:
        assert self.topic.readers is not None, "made when the change was staged"
        self.topic.readers.changing = False
        self.done(error)


class ReaderEnd(Operation[ReadersCore]):
    """The deletion of a reader."""

    __slots__ = ("done", "name")

    def __init__(self, core: ReadersCore, topic: Topic, name: str, done: Done[bool]) -> None:
        super().__init__(core, topic)
        self.name = name
        self.done = done

    def apply(self, commit: Commit) -> None:
        topic = self.topic
        assert topic.readers is not None, "it has this reader"
        topic.readers.changing = False
        trimmed = topic.readers.is_trimming(self.name)
        topic.readers.remove(self.name)
        if not topic.readers.by_name:
            self.core.registry.with_readers.pop(topic, None)
        # It wakes reads that wait, and they find the reader gone.
        _on_change(self.core, topic, trims_less=trimmed)
        self.done(True)

    def fail(self, error: TopicsError) -> None:
        assert self.topic.readers is not None, "it has this reader"
        self.topic.readers.changing = False
        self.done(error)


def _on_change(core: ReadersCore, topic: Topic, *, trims_less: bool) -> None:
    """Find the topic's short ways again, and let caps take what no reader holds any more.

    trims_less: a reader trims no more, so what the others have committed is deleted now.
    """
    topic.set_config(topic.config, topic.next_config)
    core.quiet_until_ms = 0
    topic.retain_caps()
    if trims_less:
        trim(core, topic)
    wake(core, topic)


def state_of(topic: Topic, reader: NamedReader, now_ms: int) -> ReaderState:
    """Return the state of a reader. The cost is that of the chunks above its position."""
    return _state(topic, reader, topic.index.live_above([reader.committed])[0], now_ms)


def states_of(topic: Topic, readers: Sequence[NamedReader], now_ms: int) -> list[ReaderState]:
    """Return the states of readers, by name, at the cost of the one that lags most."""
    descending = sorted(readers, key=lambda reader: reader.committed, reverse=True)
    lags = topic.index.live_above([reader.committed for reader in descending])
    states = [_state(topic, reader, lag, now_ms) for reader, lag in zip(descending, lags, strict=True)]
    return sorted(states)


def _state(topic: Topic, reader: NamedReader, lag: int, now_ms: int) -> ReaderState:
    reader.expire(now_ms)
    index = topic.index
    oldest = index.next_live(reader.committed + 1) if lag else 0
    lag_ms = max(0, now_ms - index.ts_of(oldest)) if oldest else 0
    return ReaderState(reader.name, reader.config, reader.position, reader.committed, lag, lag_ms, len(reader.pages))


class ReaderCalls:
    """The operations. Each answers through `done`, once, perhaps before it returns."""

    def __init__(self, core: ReadersCore, catch_up: CatchUpFirst) -> None:
        self._core = core
        self._catch_up = catch_up
        self._source = PageSource(core, catch_up, self._take_token)
        self._last_token = 0

    def _take_token(self) -> int:
        """Return a new token, unequal to every token of another process."""
        if not self._last_token:
            self._last_token = int.from_bytes(self._core.loop.random_bytes(4), "little") << 32
        self._last_token += 1
        return self._last_token

    # --- readers -----------------------------------------------------------------------------------------------------
    def put(
        self,
        topic_name: str,
        name: str,
        config: ReaderConfig,
        done: Done[ReaderPut],
        *,
        begin: Begin = _AT_ZERO,
        incarnation: str | None = None,
        is_settled: bool = False,
    ) -> None:
        """Make a reader, or change the settings of one. Durable before `done`.

        begin: where a new one begins; taken once. is_settled: routers and expiry have been waited
        for.
        """
        core = self._core

        def again(*, is_settled: bool = is_settled) -> None:
            self.put(topic_name, name, config, done, begin=begin, incarnation=incarnation, is_settled=is_settled)

        try:
            check_reader_name(name)
            topic = self._topic(topic_name, name, incarnation)
            if self._waits(topic, again, done):
                return
            if not is_settled:
                self._settle(topic, lambda error: done(error) if error is not None else again(is_settled=True))
                return
            found = topic.readers.by_name.get(name) if topic.readers is not None else None
            if found is not None and found.config == config:
                done(ReaderPut(False, state_of(topic, found, core.clock.now_ms()), topic.incarnation))
                return
            check_backlog(core.log)
            core.log.check_writable()
            if topic.readers is None:
                topic.readers = TopicReaders()
            readers = topic.readers
            position = self._position_of_new(topic, readers, begin) if found is None else 0
            if core.format.number < SECOND_DIRECTORY_FORMAT:
                # An older build would lose the positions.
                core.format.when_raised(
                    SECOND_DIRECTORY_FORMAT, lambda error: done(error) if error is not None else again()
                )
                return
            self._log_put(topic, name, config, found, position)
        except TopicsError as error:
            done(error)
            return
        readers.changing = True
        ReaderChange(core, topic, name, config, position, done).stage(synced=True)

    def _log_put(self, topic: Topic, name: str, config: ReaderConfig, found: NamedReader | None, position: int) -> None:
        """Stage the frame of a new reader, or of `found` as it will be. Raises: StorageError."""
        core = self._core
        payload = encode(ReaderPayload(name, *config))
        now_ms = core.clock.now_ms()
        with reserve_for(core, found):
            if config.holds and (found is None or not found.config.holds):
                log_caps(core.log, topic, now_ms, counted=False)
            core.log.stage_control(topic.id, FrameType.READER_PUT, position, now_ms, payload, counted=False)

    def _settle(self, topic: Topic, then: Then) -> None:
        """Call `then` in a turn, once all is forwarded to the topic, and its expired records gone.

        A beginning and what a reader lags depend on both.
        """
        core = self._core
        look = partial(when_retained, core, topic, core.clock.now_ms(), then)
        self._catch_up(topic, lambda: core.turns.take(look))

    def _position_of_new(self, topic: Topic, readers: TopicReaders, begin: Begin) -> int:
        """Return the position of another reader that begins there. Raises: RequestError."""
        most = self._core.config.max_readers
        if most and len(readers.by_name) >= most:
            raise refusals.limit_reached("max_readers", most)
        position = begin_cursor(self._core.turns, topic, begin)
        if position > topic.head:
            raise refusals.above_head("from_seq", position, topic)
        return position

    def state(self, topic_name: str, name: str, done: Done[ReaderState], *, incarnation: str | None = None) -> None:
        """Return a reader's position, and what it has not committed."""

        def answer(error: TopicsError | None) -> None:
            try:
                if error is not None:
                    raise error
                topic, reader = self._find(topic_name, name, incarnation)
            except TopicsError as problem:
                done(problem)
            else:
                done(state_of(topic, reader, self._core.clock.now_ms()))

        try:
            topic, _reader = self._find(topic_name, name, incarnation)
        except TopicsError as error:
            done(error)
        else:
            self._settle(topic, answer)

    def of_topic(self, topic_name: str, done: Done[list[ReaderState]]) -> None:
        """Return the states of all readers of a topic, by name; many take several passes."""
        topic = self._core.registry.visible(topic_name)
        if topic is None:
            done(refusals.topic_not_found(topic_name))
            return
        turns = self._core.turns
        rest: Iterator[NamedReader] = iter(())
        states: list[ReaderState] = []

        def begin(error: TopicsError | None) -> None:
            nonlocal rest
            if error is not None:
                done(error)
                return
            rest = iter(list(topic.readers.by_name.values()) if topic.readers is not None else ())
            turns.take(take_some)

        def take_some() -> None:
            some = list(islice(rest, _READERS_A_STEP))
            turns.spend(len(some) * _BYTES_A_STATE)
            if topic.life is Life.GONE:
                done(refusals.topic_not_found(topic_name))
                return
            states.extend(states_of(topic, [reader for reader in some if not reader.gone], self._core.clock.now_ms()))
            if some:
                turns.take(take_some)
            else:
                done(sorted(states))

        self._settle(topic, begin)

    def delete(self, topic_name: str, name: str, done: Done[bool]) -> None:
        """Delete a reader, durably; an absent one is no error."""
        core = self._core
        try:
            topic = self._topic(topic_name, name, None)
            if self._waits(topic, lambda: self.delete(topic_name, name, done), done):
                return
            core.log.check_writable()
            if topic.readers is None or name not in topic.readers.by_name:
                done(False)
                return
            payload = encode(ReaderPayload(name))
            with core.log.use_reserve():  # What it held may go.
                core.log.stage_control(
                    topic.id, FrameType.READER_DELETE, 0, core.clock.now_ms(), payload, counted=False
                )
        except TopicsError as error:
            done(error)
            return
        topic.readers.changing = True
        ReaderEnd(core, topic, name, done).stage(synced=True)

    # --- records -----------------------------------------------------------------------------------------------------
    def read(
        self,
        topic_name: str,
        name: str,
        query: ReaderQuery,
        done: Done[ReaderPage],
        *,
        incarnation: str | None = None,
    ) -> Cancel:
        """Hand out the next page, or show it."""
        try:
            topic, reader = self._find(topic_name, name, incarnation)
            read = PageRead(self._source, topic, reader, query, done)
            read.begin()
        except TopicsError as error:
            done(error)
            return _nothing
        return read.cancel

    def commit(
        self,
        topic_name: str,
        name: str,
        token: int,
        upto: int | None,
        done: Done[int],
        *,
        incarnation: str | None = None,
        gives_back: bool = False,
    ) -> None:
        """Note that a page is done, or its records up to a seq; commit all that is done.

        token: 0 for no page. done: gets the committed position. gives_back: the rest of the page is
        handed out again at once; without `upto` all of it (R-READER-10).
        """
        try:
            topic, reader = self._find(topic_name, name, incarnation)
            reader.expire(self._core.clock.now_ms())
            page = reader.pages.get(token)
            if token and page is None and not reader.done_pages.knows(token, reader.committed):
                raise refusals.reader_fenced(topic_name, reader)
            limit = reader.position if page is None else page.upto
            if upto is not None and upto > limit:
                raise refusals.above_position(upto, limit, reader)
            if page is not None and gives_back:
                done = self._giving_back(topic, reader, token, page, max(upto or 0, page.after), done)
            elif page is not None:
                done = self._reopening(topic, reader, token, page, done)
                reader.finish(token, upto)
            stage_position(self._core, topic, reader, _committed(reader, done))
        except TopicsError as error:
            done(error)

    def give_back(self, topic_name: str, name: str, token: int, *, incarnation: str | None = None) -> None:
        """Let a page be handed out again at once. Nothing happens if it is not out."""
        try:
            topic, reader = self._find(topic_name, name, incarnation)
        except TopicsError:
            return
        if reader.give_back(token):
            wake(self._core, topic)

    def _giving_back(  # noqa: PLR0917 - called in one place
        self, topic: Topic, reader: NamedReader, token: int, page: HandedPage, upto: int, done: Done[int]
    ) -> Done[int]:
        """Give back what is above `upto` of a page, and what is below it if its commit fails."""
        after, moves = page.after, reader.moves
        reader.finish(token, upto)
        if reader.give_back(token):
            wake(self._core, topic)

        def on_commit(committed: int | TopicsError) -> None:
            if isinstance(committed, TopicsError) and reader.moves == moves and after < upto:
                reader.done_pages.forget(token)
                reader.give_back_interval(Interval(after, upto))
                wake(self._core, topic)
            done(committed)

        return on_commit

    def _reopening(self, topic: Topic, reader: NamedReader, token: int, page: HandedPage, done: Done[int]) -> Done[int]:
        """Return a callback that lets a page be out again if its commit failed, and answers.

        Its caller may commit it again. If that does not happen, it is handed out again, to reads
        that wait, too, which hear of the end of its lease.
        """
        after, moves = page.after, reader.moves

        def on_commit(committed: int | TopicsError) -> None:
            if isinstance(committed, TopicsError) and reader.moves == moves and reader.committed < page.upto:
                page.after = after
                reader.put_out(token, page)
                wake(self._core, topic)
            done(committed)

        return on_commit

    def seek(self, topic_name: str, name: str, seq: int, done: Done[int], *, incarnation: str | None = None) -> None:
        """Continue above this seq, durably at the topic's class. Pages that are out are late."""
        try:
            topic, reader = self._find(topic_name, name, incarnation)
            if seq > topic.head:
                raise refusals.above_head("seq", seq, topic)
            self._core.log.check_writable()
            stage_position(self._core, topic, reader, _committed(reader, done), seq)
            reader.seek(seq)
            wake(self._core, topic)
        except TopicsError as error:
            done(error)

    # --- numbers -----------------------------------------------------------------------------------------------------
    def states(self, within: Prefixes) -> Iterator[tuple[str, list[ReaderState]]]:
        """Yield topics with one of these prefixes, and the states of some of their readers."""
        for topic in list(self._core.registry.with_readers):
            if topic.visible and topic.readers is not None and (not within or topic.name.startswith(within)):
                readers = list(topic.readers.by_name.values())
                for at in range(0, len(readers), _READERS_A_STEP):
                    some = readers[at : at + _READERS_A_STEP]
                    yield topic.name, states_of(topic, some, self._core.clock.now_ms())

    def _waits(self, topic: Topic, again: Callable[[], None], failed: Callable[[TopicsError], None]) -> bool:
        """Return whether a change of the topic or its readers is in flight.

        `again` is called after it.
        """
        if topic.life is Life.DELETING:
            topic.parked.append(again)
        elif topic.readers is not None and topic.readers.changing:
            Turn(self._core, topic, again, failed).wait()
        else:
            return False
        return True

    # --- finding -----------------------------------------------------------------------------------------------------
    def _topic(self, topic_name: str, name: str, incarnation: str | None) -> Topic:
        topic = self._core.registry.visible(topic_name)
        if topic is None:
            raise refusals.topic_not_found(topic_name)
        if incarnation is not None and topic.incarnation != incarnation:
            raise refusals.reader_recreated(topic_name, name)
        return topic

    def _find(self, topic_name: str, name: str, incarnation: str | None) -> tuple[Topic, NamedReader]:
        topic = self._topic(topic_name, name, incarnation)
        reader = topic.readers.by_name.get(name) if topic.readers is not None else None
        if reader is None:
            raise refusals.reader_not_found(topic_name, name)
        return topic, reader


def _committed(reader: NamedReader, done: Done[int]) -> Then:
    """Return a callback that answers with the committed position, or the error."""

    def then(error: TopicsError | None) -> None:
        done(error if error is not None else reader.committed)

    return then


def _nothing() -> None:
    pass
