"""Methods of a log and of a client that make several calls, waiting for them or awaiting them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any

from topics.common.dead_letter_steps import DeadLetterCalls, dead_steps, redrive_steps
from topics.common.reader_tail import ReaderTail, check_reader_tail, tail_awaited_reader, tail_reader
from topics.common.record_steps import (
    OnGap,
    OnLeftOut,
    RecordCalls,
    made,
    made_awaited,
    read_steps,
    tail_many_steps,
    tail_steps,
)
from topics.common.values.answers import RedriveResult
from topics.common.values.begin import From
from topics.common.values.configs import Predicate
from topics.common.values.delivered import Record
from topics.common.values.which_records import WhichRecords
from topics.common.work import AsyncWorkJob, AwaitedQueueCalls, QueueCalls, WorkJob, work, work_awaited
from topics.common.work_steps import RETRY_MS, START_MS, WorkOptions

_NONE: Mapping[str, int | From | None] = {}


class ComposedCalls(QueueCalls):
    """Methods of `Log` and of `Client`. Each of these says how one call is made."""

    def __init__(self, reads: RecordCalls, dead_letters: DeadLetterCalls) -> None:
        self._reads = reads
        self._dead_letters = dead_letters

    @abstractmethod
    def _make(self, call: Any) -> Any:
        """Make a call, and return its answer."""

    @abstractmethod
    def reader(self, topic: str, name: str, *, from_seq: int | None = None, from_: From | None = None) -> Any:
        """Return a named reader."""

    def read(
        self,
        topic: str,
        from_seq: int | None = None,
        *,
        limit: int | None = None,
        max_bytes: int | None = None,
        node: str = "",
        only_node: str = "",
        match: str | Predicate | None = None,
        from_: From | None = None,
        from_time: int | None = None,
        on_gap: OnGap = "raise",
    ) -> Iterator[Record]:
        """Yield records above `from_seq` up to the current head, oldest first; at most `limit`.

        max_bytes: of all records together (accounted); the first comes whatever its size. node:
        leaves out records that this node wrote; only_node: leaves out all others. match: only
        records with this tag ("a", "a*" for a prefix). from_: instead of from_seq: "first" (the
        first live record, without a report of what was lost before it), "now" (the head),
        {"last": n} (the last n live records), {"time": ms} (the first record whose `ts` is at least
        this).
        from_time: the same as {"time": from_time}. on_gap: if records were lost (a cap, an expiry,
        a power cut below fsync), "raise" GapError, from whose `resume_from` a read continues;
        "skip" them; or call a function with the GapError, and read on.
        """
        return made(
            read_steps(
                self._reads,
                topic,
                from_seq,
                limit=limit,
                max_bytes=max_bytes,
                which=WhichRecords.of(node, only_node, match),
                from_=from_,
                from_time=from_time,
                on_gap=on_gap,
            ),
            self._make,
        )

    def tail(
        self,
        topic: str,
        from_seq: int | None = None,
        *,
        max_bytes: int | None = None,
        node: str = "",
        only_node: str = "",
        match: str | Predicate | None = None,
        from_: From | None = None,
        from_time: int | None = None,
        on_gap: OnGap = "raise",
        reader: str | None = None,
    ) -> Iterator[Record]:
        """Yield records above `from_seq` as they come, until the log is closed.

        from_seq: None for the head there is now. max_bytes: of the records (accounted) that are
        read ahead at a time, one at least. from_, from_time: as in `read`; the time may be a future
        one. node, only_node, match, on_gap: as in `read`. reader: a name by which the topic
        remembers how far this tail came; it continues there, and a new one begins with the first
        record, or as `from_seq` and `from_` say. A record is done when the next one is asked for.

        That of a client continues at its cursor when the server was away for less than `timeout`.
        """
        if reader is not None:
            check_reader_tail(WhichRecords.of(node, only_node, match), from_time, max_bytes, on_gap)
            name = reader
            return tail_reader(
                lambda: self.reader(topic, name, from_seq=from_seq, from_=from_),
                ReaderTail(lambda: self.closed, on_gap, max_bytes=max_bytes),
            )
        return made(
            tail_steps(
                self._reads,
                lambda: self.closed,
                topic,
                from_seq,
                max_bytes=max_bytes,
                which=WhichRecords.of(node, only_node, match),
                from_=from_,
                from_time=from_time,
                on_gap=on_gap,
            ),
            self._make,
        )

    def tail_many(
        self,
        topics: Mapping[str, int | From | None] = _NONE,
        *,
        prefixes: Mapping[str, int | From | None] = _NONE,
        max_bytes: int | None = None,
        node: str = "",
        only_node: str = "",
        match: str | Predicate | None = None,
        on_gap: OnGap = "raise",
        on_left_out: OnLeftOut = None,
    ) -> Iterator[tuple[str, Record]]:
        """Yield (topic, record) of several topics as records come, until the log is closed.

        topics: names to where each begins: a cursor, None for the head there is now, or a
        beginning as `from_` of `read`. prefixes: the same for the topics whose names begin so; ""
        is all there are. One that is made later, or created again, begins with its first record. At
        most 256 topics are followed at once; on_left_out: is called with the name of one beyond,
        instead of a warning in the log. Records of a topic come in order. max_bytes and which
        records come: as in `tail`, of each topic.
        """
        return made(
            tail_many_steps(
                self._reads,
                lambda: self.closed,
                topics,
                prefixes,
                max_bytes=max_bytes,
                which=WhichRecords.of(node, only_node, match),
                on_gap=on_gap,
                on_left_out=on_left_out,
            ),
            self._make,
        )

    def work(
        self,
        queue: str,
        node: str,
        max: int = 1,
        *,
        lease_ms: int | None = None,
        retry_ms: int = RETRY_MS,
        start_ms: int = START_MS,
    ) -> Iterator[WorkJob]:
        """Yield jobs of a queue as they come, until the log is closed.

        `with job:` completes a job. If the block raises an Exception, that is logged, and the job
        comes back after `retry_ms`; the loop continues. max: jobs that are held at a time; threads
        may work on several. lease_ms: None for the lease of the queue, as it is when the loop
        begins. While a job is held its lease is extended; after the death of this process the job
        comes back when that has passed. A job whose block has not begun comes back when the loop is
        left, and `start_ms` after it was handed out. An ack without an answer is repeated until the
        lease ends; `job.is_lost` is True then.
        """
        return work(self, WorkOptions(queue, node, max, lease_ms, retry_ms, start_ms))

    def dead(self, queue: str, from_seq: int = 0, *, limit: int | None = None) -> Iterator[Record]:
        """Yield the dead letters of a queue that there are now, oldest first; at most `limit`.

        They are records of its dead-letter topic; `meta` has their origin and the last reason of a
        nack. from_seq: a cursor in that topic.
        """
        return made(dead_steps(self._dead_letters, queue, from_seq, limit=limit), self._make)

    def redrive(self, queue: str, seqs: Iterable[Record | int] | None = None) -> RedriveResult:
        """Make new jobs of dead letters, and delete these; a job is durable before that.

        seqs: as `dead` has listed them, or by seq; None for all that there are now.
        Returns: how many were redriven, and the seqs that are no dead letters of this queue.
        Raises: OutcomeUnknown of a client that got no answer, since it repeats none. List the dead
        letters again: those that are gone are jobs, and one that is still there may be, too.
        """
        steps = redrive_steps(self._dead_letters, queue, seqs)
        try:
            step = next(steps)
            while True:
                step = steps.send(self._make(step))
        except StopIteration as end:
            result: RedriveResult = end.value
            return result


class AwaitedComposedCalls(AwaitedQueueCalls):
    """Methods of `AsyncLog` and of `AsyncClient`, as those of `ComposedCalls`."""

    def __init__(self, reads: RecordCalls, dead_letters: DeadLetterCalls) -> None:
        self._reads = reads
        self._dead_letters = dead_letters

    @abstractmethod
    async def _make(self, call: Any) -> Any:
        """Make a call, and return its answer."""

    @abstractmethod
    def reader(self, topic: str, name: str, *, from_seq: int | None = None, from_: From | None = None) -> Any:
        """Return a named reader, to be awaited."""

    def read(
        self,
        topic: str,
        from_seq: int | None = None,
        *,
        limit: int | None = None,
        max_bytes: int | None = None,
        node: str = "",
        only_node: str = "",
        match: str | Predicate | None = None,
        from_: From | None = None,
        from_time: int | None = None,
        on_gap: OnGap = "raise",
    ) -> AsyncIterator[Record]:
        """Read as `Log.read`: up to the head there is now, at most `limit` records.

        Raises: GapError if records were lost.
        """
        return made_awaited(
            read_steps(
                self._reads,
                topic,
                from_seq,
                limit=limit,
                max_bytes=max_bytes,
                which=WhichRecords.of(node, only_node, match),
                from_=from_,
                from_time=from_time,
                on_gap=on_gap,
            ),
            self._make,
        )

    def tail(
        self,
        topic: str,
        from_seq: int | None = None,
        *,
        max_bytes: int | None = None,
        node: str = "",
        only_node: str = "",
        match: str | Predicate | None = None,
        from_: From | None = None,
        from_time: int | None = None,
        on_gap: OnGap = "raise",
        reader: str | None = None,
    ) -> AsyncIterator[Record]:
        """Read as `Log.tail`: above `from_seq` (None: the head there is now), as records come.

        The iterator ends when the log is closed.
        """
        if reader is not None:
            check_reader_tail(WhichRecords.of(node, only_node, match), from_time, max_bytes, on_gap)
            name = reader
            return tail_awaited_reader(
                lambda: self.reader(topic, name, from_seq=from_seq, from_=from_),
                ReaderTail(lambda: self.closed, on_gap, max_bytes=max_bytes),
            )
        return made_awaited(
            tail_steps(
                self._reads,
                lambda: self.closed,
                topic,
                from_seq,
                max_bytes=max_bytes,
                which=WhichRecords.of(node, only_node, match),
                from_=from_,
                from_time=from_time,
                on_gap=on_gap,
            ),
            self._make,
        )

    def tail_many(
        self,
        topics: Mapping[str, int | From | None] = _NONE,
        *,
        prefixes: Mapping[str, int | From | None] = _NONE,
        max_bytes: int | None = None,
        node: str = "",
        only_node: str = "",
        match: str | Predicate | None = None,
        on_gap: OnGap = "raise",
        on_left_out: OnLeftOut = None,
    ) -> AsyncIterator[tuple[str, Record]]:
        """Read as `Log.tail_many`: pairs of a topic's name and a record, as they come."""
        return made_awaited(
            tail_many_steps(
                self._reads,
                lambda: self.closed,
                topics,
                prefixes,
                max_bytes=max_bytes,
                which=WhichRecords.of(node, only_node, match),
                on_gap=on_gap,
                on_left_out=on_left_out,
            ),
            self._make,
        )

    def work(
        self,
        queue: str,
        node: str,
        max: int = 1,
        *,
        lease_ms: int | None = None,
        retry_ms: int = RETRY_MS,
        start_ms: int = START_MS,
    ) -> AsyncIterator[AsyncWorkJob]:
        """Yield jobs as `Log.work`; use them by `async with job:`."""
        return work_awaited(self, WorkOptions(queue, node, max, lease_ms, retry_ms, start_ms))

    def dead(self, queue: str, from_seq: int = 0, *, limit: int | None = None) -> AsyncIterator[Record]:
        """List dead letters as `Log.dead`."""
        return made_awaited(dead_steps(self._dead_letters, queue, from_seq, limit=limit), self._make)

    async def redrive(self, queue: str, seqs: Iterable[Record | int] | None = None) -> RedriveResult:
        """Redrive as `Log.redrive`. A cancelled await ends it with the turn in progress."""
        steps = redrive_steps(self._dead_letters, queue, seqs)
        try:
            step = next(steps)
            while True:
                step = steps.send(await self._make(step))
        except StopIteration as end:
            result: RedriveResult = end.value
            return result
