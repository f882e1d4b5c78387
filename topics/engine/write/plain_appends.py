"""Plain writes of a pass to many topics as one `Append`: one call encodes all, one indexes them.

Per topic there remain only its numbers and, now and then, a reservation. A write that needs more
(rows staged in this pass already, tags) is not taken. `Appender.append` takes it, with the
same meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, cast

from topics.clock import Clock
from topics.common.tuples import make_tuple
from topics.engine.bodies.write_columns import GroupColumns
from topics.engine.shared.topic_lines import load_lines
from topics.engine.shared.topic_registry import Registry
from topics.engine.state.topic import Topic
from topics.engine.state.topic_numbers import stamps_of
from topics.engine.write.admission import check_backlog
from topics.engine.write.append import Append, AppendCore
from topics.engine.write.format_wait import FormatWait
from topics.engine.write.reservations import reserve, reserve_ahead
from topics.engine.write.retention import ExpiryCore, expire
from topics.errors import TopicsError
from topics.store.format.rows import ROW_BYTES, Framed, TopicRows, any_tagged
from topics.store.in_memory.ephemeral import EphemeralFrames
from topics.store.wal.commitment import AT_ONCE

_MANY = 16
"""Topics of a pass from which on their lines are loaded together."""
_TOPICS_A_PART = 64
"""Topics whose writes are published or failed in the time of one that comes by itself, some 30 us.

The writes of many passes may be in one batch, 8,192 topics of each.
"""


class PlainAppended(NamedTuple):
    """The outcome of writes to several topics that were committed together."""

    error: TopicsError | None
    """If not None, only `groups` and `names` are valid."""
    groups: GroupColumns
    names: Sequence[str]
    first_seqs: list[int]
    """One element for each group, like `names`."""
    append_ns: int
    sync_ns: int
    """0 unless their class is `fsync`."""


PlainDone = Callable[[PlainAppended], None]


class PlainAppendCore(AppendCore, ExpiryCore, Protocol):
    """The part of the core that a plain append needs."""

    clock: Clock
    memory: EphemeralFrames
    registry: Registry
    routed: dict[Topic, None]


class PlainAppender:
    """Takes the plain groups among many at once."""

    def __init__(self, core: PlainAppendCore, format_wait: FormatWait) -> None:
        self._core = core
        self._format_wait = format_wait
        self._by_name = core.registry.by_name

    def not_plain(self, names: Sequence[str]) -> list[int]:
        """Return the indexes of the names for which `Engine.takes_plain` is false."""
        topics = list(map(self._by_name.get, names))
        if len(topics) >= _MANY:
            load_lines(topics)
        return [at for at, topic in enumerate(topics) if topic is None or not topic.writable]

    def append(
        self,
        names: Sequence[str],
        groups: GroupColumns,
        buffer: bytes | bytearray | memoryview,
        spans: bytes,
        done: PlainDone,
    ) -> list[int]:
        """See `Engine.append_plain`."""
        core = self._core
        if not core.log.is_one_shard or core.log.append_retry_ms():
            return list(range(len(names)))
        if not self._format_wait.format.takes_all and self._format_wait.concerns(spans):
            return list(range(len(names)))
        topics = list(map(self._by_name.get, names))
        for at in _odd(names, groups, spans):
            topics[at] = None
        left: list[int] = []
        in_memory: list[int] = []
        synced: list[int] = []
        short: list[int] = []
        others: list[int] = []
        ahead: list[tuple[Topic, int]] = []
        for at, (topic, count) in enumerate(zip(topics, groups.records, strict=True)):
            if topic is None or topic.filling is not None or not (topic.needs_only_seqs or self._expire_first(topic)):
                left.append(at)
            elif topic.stage_class == "fsync":
                synced.append(at)
            elif topic.stage_class == "ephemeral":
                in_memory.append(at)
            elif topic.next_seq + count <= topic.ample:
                others.append(at)
            elif topic.lacks(count):
                short.append(at)
            else:
                others.append(at)
                ahead.append((topic, topic.next_seq))
        writes = _Writes(names, topics, groups, buffer, spans, done)
        for taken, fsync, reserves in ((others, False, False), (short, False, True), (synced, True, False)):
            if taken:
                try:
                    check_backlog(core.log)
                    part = writes if len(taken) == len(names) else writes.select(taken)
                    self._stage(part, () if fsync else ahead, fsync=fsync, reserves=reserves)
                except TopicsError:  # `Appender.append` reports the error for each write.
                    left += taken
        if in_memory:
            self._append_in_memory(writes if len(in_memory) == len(names) else writes.select(in_memory))
        left.sort()  # Writes to one topic keep their order.
        return left

    def _expire_first(self, topic: Topic) -> bool:
        """Stage the expiry that is due before a write; return whether the write may be a column."""
        core = self._core
        if topic.writable and topic.expires:
            try:
                expire(core, topic, core.clock.now_ms())
            except TopicsError:
                return False
        return topic.writable and not (topic.stage_class == "ephemeral" and topic.pending)

    def _stage(self, writes: _Writes, ahead: Iterable[tuple[Topic, int]], *, fsync: bool, reserves: bool) -> None:
        """Give out seqs and put all frames into the log's filling batch.

        ahead: topics that have enough seqs reserved but may soon need more, with their first seqs;
        with `reserves` it is not used, because that may be true of all.
        reserves: the seqs exceed the reservation, so the commit is synced.
        Raises: TopicsError; no record is staged then.
        """
        core, counts = self._core, writes.groups.records
        topics = cast("list[Topic]", writes.topics)
        now_ms = core.clock.now_ms()
        reserved = (
            [reserve(core.log, topic, count, now_ms) for topic, count in zip(topics, counts, strict=True)]
            if reserves
            else []
        )
        rows = writes.numbered(now_ms)
        framed = core.log.stage_topics(rows, fsync=fsync)
        append = writes.append(core, rows, framed, fsync=fsync)
        if reserves:
            append.rely_on(reserved)
        append.hold_all()
        append.batch_number = core.log.batch_number(topics[0].id)
        core.routed.update(dict.fromkeys([topic for topic in topics if topic.routers]))
        parts = 1 + len(topics) // _TOPICS_A_PART
        core.log.when_committed(topics[0].id, fsync or reserves, append.on_commit, parts)
        for topic, first in zip(topics, append.first_seqs, strict=True) if reserves else ahead:
            if topic.next_seq > topic.ample and topic.is_short(first):
                reserve_ahead(core.log, topic, topic.next_seq - first, now_ms)

    def _append_in_memory(self, writes: _Writes) -> None:
        """Append to topics of class `ephemeral`, in whose queues is nothing, within this call."""
        core = self._core
        rows = writes.numbered(core.clock.now_ms())
        file_id, framed = core.memory.stage_topics(rows)
        append = writes.append(core, rows, framed, fsync=False)
        append.file_id = file_id
        append.hold_all()
        append.on_commit(AT_ONCE)


class _Writes(NamedTuple):
    """Columns over the topics of an append; topics: None where it takes nothing."""

    names: Sequence[str]
    topics: list[Topic | None]
    groups: GroupColumns
    buffer: bytes | bytearray | memoryview
    spans: bytes
    done: PlainDone

    def numbered(self, now_ms: int) -> TopicRows:
        """Return the rows with the next seqs and stamps of their topics, all of which are there."""
        topics, groups = cast("list[Topic]", self.topics), self.groups
        first_seqs = [topic.next_seq for topic in topics]
        stamps = stamps_of(topics, now_ms)
        ids = [topic.id for topic in topics]
        columns = (self.buffer, self.spans, ids, first_seqs, stamps, groups.rows, groups.records)
        return make_tuple(TopicRows, columns)

    def append(self, core: AppendCore, rows: TopicRows, framed: Framed, *, fsync: bool) -> Append:
        """Build the operation that publishes these rows and answers for all of them."""
        groups, names, done = self.groups, self.names, self.done

        def decided(error: TopicsError | None, first_seqs: list[int], append_ns: int, sync_ns: int) -> None:
            done(make_tuple(PlainAppended, (error, groups, names, first_seqs, append_ns, sync_ns)))

        topics, counts, sizes = cast("list[Topic]", self.topics), groups.records, groups.sizes
        first_seqs, stamps = list(rows.first_seqs), list(rows.stamps)
        return Append(core, topics, first_seqs, counts, sizes, stamps, framed.placed, fsync=fsync, decided=decided)

    def select(self, positions: Sequence[int]) -> _Writes:
        """Return the columns over the topics at these positions."""
        names = [self.names[at] for at in positions]
        topics = [self.topics[at] for at in positions]
        return self._replace(names=names, topics=topics, groups=self.groups.select(positions))


def _odd(names: Sequence[str], groups: GroupColumns, spans: bytes) -> set[int]:
    """Return the positions of groups with a tag, and of names that occurred before."""
    odd = set() if len(set(names)) == len(names) else _repeated(names)
    if any_tagged(spans):
        odd.update(
            at
            for at, (row, count) in enumerate(zip(groups.rows, groups.records, strict=True))
            if any_tagged(spans[row * ROW_BYTES : (row + count) * ROW_BYTES])
        )
    return odd


def _repeated(names: Sequence[str]) -> set[int]:
    """Return the indexes of names that occurred before."""
    seen: set[str] = set()
    found = set()
    for at, name in enumerate(names):
        if name in seen:
            found.add(at)
        seen.add(name)
    return found
