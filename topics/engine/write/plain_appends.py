"""Plain writes of a pass to many topics as one `Append`: one call encodes all, one indexes them.

Per topic there remain only its numbers and, now and then, a reservation. A write that needs more
(rows staged in this pass already, tags) is not taken. `Appender.append` takes it, with the
same meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from topics.clock import Clock
from topics.common.tuples import make_tuple
from topics.engine.shared.topic_registry import Registry
from topics.engine.state.topic import Topic
from topics.engine.write.admission import check_backlog
from topics.engine.write.append import Append, AppendCore
from topics.engine.write.format_wait import FormatWait
from topics.engine.write.reservations import reserve, reserve_ahead
from topics.engine.write.write_columns import GroupRow
from topics.errors import TopicsError
from topics.store.format.rows import ROW_BYTES, any_tagged
from topics.store.format.topic_rows import TopicRows


class PlainAppended(NamedTuple):
    """The outcome of writes to several topics that were committed together."""

    error: TopicsError | None
    """If not None, only `groups` and `names` are valid."""
    groups: list[GroupRow]
    names: list[str]
    first_seqs: list[int]
    """One for each group, like `names`."""
    append_ns: int
    sync_ns: int
    """0 unless their class is `fsync`."""


_Taken = tuple[Topic, GroupRow, int]
"""A topic, its group, and the index of the group in the call."""
PlainDone = Callable[[PlainAppended], None]


class PlainAppendCore(AppendCore, Protocol):
    """The part of the core that a plain append needs."""

    clock: Clock
    registry: Registry


class PlainAppender:
    """Takes the plain groups among many at once."""

    def __init__(self, core: PlainAppendCore, format_wait: FormatWait) -> None:
        self._core = core
        self._format_wait = format_wait
        self._by_name = core.registry.by_name

    def not_plain(self, names: Sequence[str]) -> list[int]:
        """Return the indexes of the names for which `Engine.takes_plain` is false."""
        get = self._by_name.get
        return [at for at, name in enumerate(names) if (topic := get(name)) is None or not topic.writable]

    def append(
        self,
        names: Sequence[str],
        groups: Sequence[GroupRow],
        buffer: bytes | bytearray | memoryview,
        spans: bytes,
        done: PlainDone,
    ) -> list[int]:
        """See `Engine.append_plain`."""
        core = self._core
        if not core.log.is_one_shard or core.log.append_retry_ms():
            return list(range(len(groups)))
        if not self._format_wait.format.is_newest and self._format_wait.concerns(spans):
            return list(range(len(groups)))
        tagged = any_tagged(spans)
        left: list[int] = []
        synced: list[_Taken] = []
        short: list[_Taken] = []
        others: list[_Taken] = []
        get = self._by_name.get
        twice: set[int] = set() if len(set(names)) == len(names) else _repeated(names)
        for at, (name, group) in enumerate(zip(names, groups, strict=True)):
            topic = get(name)
            if (
                topic is None
                or not topic.writable
                or topic.filling is not None
                or at in twice
                or (tagged and _has_tag(spans, group))
            ):
                left.append(at)
            elif topic.stage_class == "fsync":
                synced.append((topic, group, at))
            elif topic.next_seq + group[5] > topic.ample and topic.lacks(group[5]):
                short.append((topic, group, at))
            else:
                others.append((topic, group, at))
        for taken, fsync, reserves in ((others, False, False), (short, False, True), (synced, True, False)):
            if taken:
                try:
                    check_backlog(core.log)
                    self._stage(taken, buffer, spans, done, fsync=fsync, reserves=reserves)
                except TopicsError:  # `Appender.append` reports the error for each write.
                    left += [at for _topic, _group, at in taken]
        left.sort()  # Writes to one topic keep their order.
        return left

    def _stage(
        self,
        taken: list[_Taken],
        buffer: bytes | bytearray | memoryview,
        spans: bytes,
        done: PlainDone,
        *,
        fsync: bool,
        reserves: bool,
    ) -> None:
        """Give out seqs and put all frames into the log's filling batch.

        reserves: the seqs exceed the reservation, so the commit is synced.
        Raises: TopicsError; no record is staged then.
        """
        core = self._core
        now_ms = core.clock.now_ms()
        topics = [topic for topic, _group, _at in taken]
        groups = [group for _topic, group, _at in taken]
        counts = [group[5] for group in groups]
        reserved = (
            [reserve(core.log, topic, count, now_ms) for topic, count in zip(topics, counts, strict=True)]
            if reserves
            else []
        )
        first_seqs = [topic.next_seq for topic in topics]
        stamps = [topic.stamp(now_ms) for topic in topics]
        numbers: list[int] = []
        for topic, group, first, ts in zip(topics, groups, first_seqs, stamps, strict=True):
            numbers += (topic.id, first, ts, group[4], group[5])
        rows = make_tuple(TopicRows, (buffer, spans, numbers, sum(counts)))
        framed = core.log.stage_topics(rows, fsync=fsync)

        def decided(error: TopicsError | None, first_seqs: list[int], append_ns: int, sync_ns: int) -> None:
            names = [topic.name for topic in topics]
            done(make_tuple(PlainAppended, (error, groups, names, first_seqs, append_ns, sync_ns)))

        sizes = [group[6] for group in groups]
        append = Append(core, topics, first_seqs, counts, sizes, stamps, framed.placed, fsync=fsync, decided=decided)
        if reserves:
            append.rely_on(reserved)
        append.hold_all()
        core.log.when_committed(topics[0].id, fsync or reserves, append.on_commit)
        for topic, first in zip(topics, first_seqs, strict=True):
            if topic.next_seq > topic.ample and topic.is_short(first):
                reserve_ahead(core.log, topic, topic.next_seq - first, now_ms)


def _has_tag(spans: bytes, group: GroupRow) -> bool:
    """Return whether one of its rows has a tag."""
    return any_tagged(spans[group[4] * ROW_BYTES : (group[4] + group[5]) * ROW_BYTES])


def _repeated(names: Sequence[str]) -> set[int]:
    """Return the indexes of names that occurred before."""
    seen: set[str] = set()
    found = set()
    for at, name in enumerate(names):
        if name in seen:
            found.add(at)
        seen.add(name)
    return found
