"""Named readers of a topic: their positions, the pages that they have handed out, what they hold.

A reader's records up to `position` were handed out. The page of a reader of delivery
`at-least-once` counts until it is done, given back, or late; a reader's committed position is below
the lowest page that is still out. Source: R-READER.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import msgspec

from topics.common.values.reader_config import AT_MOST_ONCE, ReaderConfig

_DESCRIBED = 1000
"""Readers in the description of a segment: some 60 bytes each."""
_DONE_PAGES = 1000
"""The done pages that a reader remembers: the latest ones."""
_UNKNOWN = -1
"""The value of `staged` after a commit that failed: the next position is staged in any case."""
NO_HOLD = (1 << 64) - 1
"""The value of `TopicReaders.held` if no reader holds records."""


class ReaderRow(msgspec.Struct, array_like=True, gc=False):
    """One reader in a frame, in the snapshot, or in the description of a segment."""

    name: str
    position: int
    """The committed position."""
    delivery: str
    holds: bool
    trims: bool

    @property
    def config(self) -> ReaderConfig:
        return ReaderConfig(self.delivery, self.holds, self.trims)


class Interval(NamedTuple):
    """Records above `after` and up to `upto`."""

    after: int
    upto: int


class HandedPage:
    """A page that was handed out: records above `after` and up to `upto`."""

    __slots__ = ("after", "records", "until_ms", "upto")

    def __init__(self, after: int, upto: int, records: int, until_ms: int) -> None:
        self.after = after
        self.upto = upto
        self.records = records
        self.until_ms = until_ms
        """The end of its lease, ms; 0: none, it is out until it is done or given back."""


class DonePages:
    """Pages that are done above the committed position, by token. Source: R-READER-13.

    Their commits are answered again, because an answer may have been lost. The committed position
    shows a client that a page below it is done, and nothing shows it of those above.
    """

    __slots__ = ("_upto",)

    def __init__(self) -> None:
        self._upto: dict[int, int] = {}
        """The end of each page, by token."""

    def knows(self, token: int, committed: int) -> bool:
        """Return whether this page is done above the committed position."""
        return self._upto.get(token, 0) > committed

    def note(self, token: int, upto: int, committed: int) -> None:
        """Remember a page that is done up to here, in the place of the oldest where it may go."""
        self._upto[token] = upto
        first = next(iter(self._upto))
        if len(self._upto) > _DONE_PAGES or self._upto[first] <= committed:
            del self._upto[first]

    def forget(self, token: int) -> None:
        """Note that the page is not done after all."""
        self._upto.pop(token, None)

    def clear(self) -> None:
        self._upto.clear()


class NamedReader:
    """One named reader. `TopicReaders` makes it and removes it.

    Its seqs, ascending, when no seek and no failed commit is in flight:

        committed    done, and so stated at the topic's class
        staged       done, and so stated in the log
        done_through done; then pages that are out or come again, with what is done between them
        position     handed out; then what is not
    """

    __slots__ = (
        "_intervals",
        "_lowest_in_flight",
        "_soonest_ms",
        "_stage_back",
        "_stages_begun",
        "_stages_ended",
        "busy",
        "committed",
        "config",
        "done_pages",
        "done_records",
        "gone",
        "holding",
        "line",
        "moves",
        "name",
        "pages",
        "position",
        "returns",
        "staged",
    )

    def __init__(self, name: str, config: ReaderConfig, position: int) -> None:
        self.name = name
        self.config = config
        self.committed = self.staged = self.position = position
        """`committed`: everything up to here is done, at the topic's class. `staged`: the latest
        position in the log, perhaps not committed yet. `position`: handed out up to here.
        """
        self.pages: dict[int, HandedPage] = {}
        """Pages that callers have, by token."""
        self.done_pages = DonePages()
        self._intervals: list[Interval] = []
        """Pages that were given back or are late, to be handed out again first. Ascending."""
        self._soonest_ms = NO_HOLD
        """No lease of a page that is out ends before it, so most calls of `expire` look at none."""
        self.done_records = 0
        """Number of records that are done above `staged`, at least: see `done_above`."""
        self.moves = 0
        """The number of seeks. A read that sees it change begins again."""
        self.returns = 0
        """The number of times that records came back, to be handed out again."""
        self.gone = False
        self.holding: int | None = None
        """Seq above which records are noted as held by this reader (`TopicReaders.hold`)."""
        # --- positions on their way, which are numbered as they are staged, and end in this order
        self._stages_begun = self._stages_ended = 0
        self._stage_back = 0
        """The number of the last one that was staged below an earlier one."""
        self._lowest_in_flight = NO_HOLD
        """Up to `_stage_back`, a seq that is not above any of them."""
        # --- reads, one at a time (readers/page_read.py)
        self.busy = False
        self.line: list[LinedUp] = []

    @property
    def row(self) -> ReaderRow:
        """The reader as the log and snapshots state it."""
        return ReaderRow(self.name, self.committed, *self.config)

    @property
    def done_through(self) -> int:
        """The position up to which everything is done: below the lowest page that is out.

        At most once it is the highest that was handed out: what was given back below it, because
        its commit failed, may come again in this process only.
        """
        lowest = self.position
        if self.config.delivery == AT_MOST_ONCE:
            return lowest
        if self._intervals:
            lowest = min(lowest, self._intervals[0].after)
        for page in self.pages.values():
            lowest = min(lowest, page.after)
        return lowest

    def done_above(self, seq: int) -> int:
        """Return the number of seqs above `seq` that are done, between pages that are not.

        No position covers these until the pages below them are done, so they count until then.
        """
        if self.config.delivery == AT_MOST_ONCE:
            return 0
        done = self.position - seq
        if done:
            for after, upto in self._intervals:
                done -= upto - after
            for page in self.pages.values():
                done -= page.upto - page.after
        return done

    @property
    def held(self) -> int:
        """Records above this seq are not to be lost: not committed, or perhaps again."""
        return min(self.committed, self._lowest_in_flight)

    # --- pages -------------------------------------------------------------------------------------------------------
    def next_interval(self, above: int = 0) -> Interval | None:
        """Return what is to be handed out again next; None: everything above `position`.

        above: intervals up to this seq are passed over.
        """
        return next((interval for interval in self._intervals if interval.upto > above), None)

    def pass_over(self, interval: Interval | None, upto: int) -> None:
        """Note that the records up to `upto` are handed out, or that there are none."""
        if interval is None:
            self.position = max(self.position, upto)
            return
        self._intervals.remove(interval)
        if upto < interval.upto:
            insort(self._intervals, Interval(upto, interval.upto))

    def hand_out(self, token: int, page: HandedPage, interval: Interval | None) -> None:
        self.pass_over(interval, page.upto)
        self.put_out(token, page)

    def put_out(self, token: int, page: HandedPage) -> None:
        """Add a page that a caller has got; `position` is above it already."""
        self.pages[token] = page
        self.done_pages.forget(token)
        if page.until_ms:
            self._soonest_ms = min(self._soonest_ms, page.until_ms)

    def finish(self, token: int, upto: int | None = None) -> bool:
        """Note that a page is done, or its records up to a seq.

        Returns: False if the page is neither out nor done above the committed position.
        """
        page = self.pages.get(token)
        if page is None:
            return self.done_pages.knows(token, self.committed)
        if upto is None or upto >= page.upto:
            del self.pages[token]
            self.done_records += page.records
            if page.until_ms:  # a caller without a lease hears of each commit
                self.done_pages.note(token, page.upto, self.committed)
        elif upto > page.after:
            page.after = upto
            self.done_records += 1  # at least: it is staged now in any case
        return True

    def give_back(self, token: int) -> bool:
        """Let a page be handed out again. False: it is not out."""
        page = self.pages.pop(token, None)
        if page is not None:
            self.give_back_interval(Interval(page.after, page.upto))
        return page is not None

    def give_back_interval(self, interval: Interval) -> None:
        insort(self._intervals, interval)
        self.returns += 1

    def expire(self, now_ms: int) -> None:
        """Take back the pages whose leases have ended."""
        if now_ms <= self._soonest_ms:
            return
        for token in [token for token, page in self.pages.items() if 0 < page.until_ms < now_ms]:
            self.give_back(token)
        self._soonest_ms = self.next_deadline() or NO_HOLD

    def next_deadline(self) -> int:
        """Return when the first lease ends, ms; 0 if none does."""
        return min((page.until_ms for page in self.pages.values() if page.until_ms), default=0)

    def seek(self, seq: int) -> None:
        """Continue above this seq; pages that are out are late."""
        self.pages.clear()
        self.done_pages.clear()
        self._intervals.clear()
        self.position = seq
        self.done_records = 0
        self.moves += 1

    # --- positions in the log ----------------------------------------------------------------------------------------
    def stage(self, position: int) -> None:
        """Note that a position is in the log, and not committed yet."""
        self._stages_begun += 1
        if position < max(self.committed, self.staged):
            self._lowest_in_flight = min(self._lowest_in_flight, position)
            self._stage_back = self._stages_begun
        self.staged = position
        self.done_records = self.done_above(position)

    def settle(self, position: int | None) -> None:
        """Note the end of the earliest staged position; None: it failed."""
        if position is None:
            self.staged = _UNKNOWN
        else:
            self.committed = position
        self._stages_ended += 1
        if self._stages_ended >= self._stage_back:
            self._lowest_in_flight = NO_HOLD

    @property
    def is_settled(self) -> bool:
        """Whether no position is in flight."""
        return self._stages_ended == self._stages_begun

    # --- recovery ----------------------------------------------------------------------------------------------------
    def found(self, position: int) -> None:
        """Continue from this position."""
        self.committed = self.staged = self.position = position


class LinedUp:
    """A read that waits for its turn at a reader."""

    __slots__ = ()

    def take_turn(self) -> None:
        """Begin the read, since no other read of this reader is in progress."""
        raise NotImplementedError


class TopicReaders:
    """The named readers of one topic."""

    __slots__ = ("_holding", "by_name", "changing", "held")

    def __init__(self) -> None:
        self.by_name: dict[str, NamedReader] = {}
        self.changing = False
        """Whether a creation, change or deletion of a reader is staged; the next one waits."""
        self.held = NO_HOLD
        """Caps and expiry take no record above this seq."""
        self._holding: list[int] = []
        """For each reader that holds records, the seq above which it does."""

    def put(self, name: str, config: ReaderConfig, position: int) -> bool:
        """Make a reader, or change the settings of one; return whether it is new.

        A reader that delivers at most once from now on begins at the lowest record that is not
        done: no position can be above what it delivers and below the pages that are out.
        """
        reader = self.by_name.get(name)
        is_new = reader is None
        if reader is None:
            reader = self.by_name[name] = NamedReader(name, config, position)
        else:
            if config.delivery == AT_MOST_ONCE and reader.config.delivery != AT_MOST_ONCE:
                reader.seek(reader.done_through)
            reader.config = config
        self.hold(reader)
        return is_new

    def remove(self, name: str) -> NamedReader | None:
        reader = self.by_name.pop(name, None)
        if reader is not None:
            reader.gone = True
            self.hold(reader)
        return reader

    def restore(self, row: ReaderRow) -> None:
        """Make a reader as a snapshot or a segment states it."""
        self.put(row.name, row.config, row.position)
        self.found(self.by_name[row.name], row.position)

    def found(self, reader: NamedReader, position: int) -> None:
        """Continue a reader from this position, in recovery."""
        reader.found(position)
        self.hold(reader)

    def hold(self, reader: NamedReader) -> None:
        """Update `held` after a change of one reader. The cost is independent of the others."""
        holding = reader.held if reader.config.holds and not reader.gone else None
        if holding == reader.holding:
            return
        if reader.holding is not None:
            del self._holding[bisect_left(self._holding, reader.holding)]
        if holding is not None:
            insort(self._holding, holding)
        reader.holding = holding
        self.held = self._holding[0] if self._holding else NO_HOLD

    @property
    def holder(self) -> str | None:
        """The name of a reader that holds the lowest record of those held."""
        return next((name for name, reader in self.by_name.items() if reader.holding == self.held), None)

    def is_trimming(self, name: str) -> bool:
        reader = self.by_name.get(name)
        return reader is not None and reader.config.trims

    def trimmed(self) -> int:
        """Return the seq up to which every trimming reader has committed, or has that staged."""
        return min((reader.staged for reader in self.by_name.values() if reader.config.trims), default=0)

    def limit(self, head: int) -> None:
        """End recovery: no position is above the head."""
        for reader in self.by_name.values():
            self.found(reader, min(reader.committed, head))

    def described(self) -> list[ReaderRow]:
        """Return the rows of the first readers for headers and footers of segments."""
        return [reader.row for reader in islice(self.by_name.values(), _DESCRIBED)]

    def images_in_steps(self, step: int) -> Iterator[list[ReaderRow]]:
        """Yield all rows, a bounded number at a time."""
        names = list(self.by_name)
        for at in range(0, len(names), step):
            yield [reader.row for reader in self._present(names[at : at + step])]

    def _present(self, names: Iterable[str]) -> Iterator[NamedReader]:
        return (self.by_name[name] for name in names if name in self.by_name)
