"""Plain writes of a pass to many topics as one operation: one call frames all rows, one puts them into the indexes.

What is left by the topic is its numbers, and now and then a reservation of more. Whatever needs more than that (rows
staged in this pass already, tags) is not taken, and goes through `Appender.append` with the same meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from topics.common.tuples import make_tuple
from topics.engine.state.staged_operations import Operation, settle
from topics.engine.state.topic import Life, Topic
from topics.engine.write.append import Appender, publish, reserve
from topics.engine.write.write_columns import GroupRow
from topics.errors import TopicsError
from topics.store.format.rows import PLACED, ROW_BYTES, any_tagged
from topics.store.format.topic_rows import TopicRows, place_rows
from topics.store.wal.commit import Commit

_PLACED_BYTES = PLACED.size


class PlainAppended(NamedTuple):
    """What became of writes to several topics that were committed together."""

    error: TopicsError | None
    """Then the rest means nothing but `groups` and `names`."""
    groups: list[GroupRow]
    names: list[str]
    first_seqs: list[int]
    """One a group, as are the names."""
    append_ns: int
    sync_ns: int
    """0 unless their class is `fsync`."""


_Taken = tuple[Topic, GroupRow, int]
"""A topic, its group and its place among those given."""
PlainDone = Callable[[PlainAppended], None]


class PlainBatch(Operation):
    """Stands in the queue of each of its topics: they share a shard, so all before it is decided when its commit is."""

    __slots__ = ("_done", "_first_seqs", "_fsync", "_groups", "_placed", "_reserves", "_size", "_stamps", "_topics")

    def __init__(  # noqa: PLR0917 - columns
        self,
        appender: Appender,
        topics: list[Topic],
        groups: list[GroupRow],
        first_seqs: list[int],
        stamps: list[int],
        placed: bytes,
        size: int,
        done: PlainDone,
        *,
        fsync: bool,
        reserves: bool,
    ) -> None:
        """reserves: a reservation of each topic lies in the same commit.

        stamps: `$ts` of each topic's rows, ms; placed: a packed PLACED a row, topic by topic; size: of all rows."""
        super().__init__(appender.core, topics[0])
        self._topics = topics
        self._groups = groups
        self._first_seqs = first_seqs
        self._stamps = stamps
        self._placed = placed
        self._size = size
        self._done = done
        self._fsync = fsync
        self._reserves = reserves

    def staged(self, topic: Topic) -> tuple[int, int]:
        """Records of one of its topics, and their bytes."""
        group = self._groups[self._topics.index(topic)]
        return group[5], group[6]

    def on_commit(self, commit: Commit) -> None:
        """All topics at once: the result is that of one AppendBatch after the other."""
        core, topics = self.core, self._topics
        core.usage.pending_bytes -= self._size
        if commit.error is None:
            busy = self._publish(commit.file_id, commit.base)
            core.in_log.update([topic.id for topic in topics])
            for topic in busy:
                topic.retain_caps()
                if topic.waiters:
                    core.awake[topic] = None
                if topic.routers:
                    core.forwardable[topic] = None
        else:
            busy = self._undo()
        names = [topic.name for topic in topics]
        sync_ns = commit.sync_ns if self._fsync else 0
        fields = (commit.error, self._groups, names, self._first_seqs, commit.write_ns, sync_ns)
        self._done(make_tuple(PlainAppended, fields))
        for topic in busy:
            if topic.pending:
                settle(topic)

    def _publish(self, file_id: int, base: int) -> list[Topic]:
        """Index and head of every topic; returns those that ask for more."""
        columns: list[bytes] = []
        runs: list[int] = []
        others: list[tuple[Topic, int, int, int]] = []
        busy: list[Topic] = []
        at = records = size = 0
        for topic, group, first, ts in zip(self._topics, self._groups, self._first_seqs, self._stamps, strict=True):
            rows, nbytes = group[5], group[6]
            topic.dequeue(self)
            topic.unstage(self, rows, nbytes)
            chunk = topic.index.extend(first, rows, nbytes, file_id)
            if chunk is None:
                others.append((topic, first, at, rows))
            else:
                columns.append(chunk.addresses or chunk.find_addresses())
                runs += (at, chunk.count - rows, rows)
                records += rows
                size += nbytes
                topic.last_write_ms = ts
            at += rows
            topic.show(first + rows - 1)
            if topic.pending or topic.has_caps or topic.waiters or topic.routers:
                busy.append(topic)
        if runs:
            place_rows(b"".join(columns), runs, self._placed, file_id, base)
            usage = self.core.usage
            usage.records += records
            usage.bytes += size
            usage.placed(file_id, records)
        for topic, first, at, rows in others:
            placed = self._placed[at * _PLACED_BYTES : (at + rows) * _PLACED_BYTES]
            publish(topic, first, file_id, base, placed, None)
        return busy

    def _undo(self) -> list[Topic]:
        """Nothing becomes visible; the seqs are burned, since the frames may still be found after a restart."""
        for topic, group in zip(self._topics, self._groups, strict=True):
            topic.dequeue(self)
            topic.unstage(self, group[5], group[6])
            if self._reserves:
                topic.lose_reservation()
        return self._topics


class PlainAppender:
    """Takes what is plain of many groups at once."""

    def __init__(self, appender: Appender) -> None:
        self._appender = appender
        self._core = appender.core
        self._by_name = appender.core.registry.by_name

    def not_plain(self, names: Sequence[str]) -> list[int]:
        """The places of names that `Engine.takes_plain` says no to."""
        get, live = self._by_name.get, Life.LIVE
        if self._appender.has_quota:
            return list(range(len(names)))
        return [
            at
            for at, name in enumerate(names)
            if (topic := get(name)) is None or not topic.plain or topic.life is not live
        ]

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
        if not core.log.is_one_shard or self._appender.has_quota or core.log.append_retry_ms():
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
                or not topic.plain
                or topic.life is not Life.LIVE
                or topic.filling is not None
                or at in twice
                or (tagged and _has_tag(spans, group))
            ):
                left.append(at)
            elif topic.stage_class == "fsync":
                synced.append((topic, group, at))
            elif topic.lacks(group[5]):
                short.append((topic, group, at))
            else:
                others.append((topic, group, at))
        for taken, fsync, reserves in ((others, False, False), (short, False, True), (synced, True, False)):
            if taken:
                try:
                    core.check_backlog()
                    self._stage(taken, buffer, spans, done, fsync=fsync, reserves=reserves)
                except TopicsError:  # worded one by one
                    left += [at for _topic, _group, at in taken]
        left.sort()  # those of one topic in their order
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
        """Gives out seqs and puts all frames into the log's filling batch. Raises, and then no record was staged.

        reserves: the seqs go beyond what is reserved, so the commit is synced.
        """
        core = self._core
        now_ms = core.clock.now_ms()
        reserved: list[int] = []
        if reserves:
            for topic, group, _at in taken:
                reserved.append(reserve(core, topic, topic.next_seq + group[5] - 1, now_ms, group[5]))
        numbers: list[int] = []
        first_seqs: list[int] = []
        stamps: list[int] = []
        records = size = 0
        for topic, (_number, _first, _count, _requests, row, rows, nbytes), _at in taken:
            first = topic.next_seq
            ts = topic.stamp(now_ms)
            numbers += (topic.id, first, ts, row, rows)
            first_seqs.append(first)
            stamps.append(ts)
            records += rows
            size += nbytes
        framed = core.log.stage_topics(make_tuple(TopicRows, (buffer, spans, numbers, records)), fsync=fsync)
        topics = [topic for topic, _group, _at in taken]
        batch = PlainBatch(
            self._appender,
            topics,
            [group for _topic, group, _at in taken],
            first_seqs,
            stamps,
            framed.placed,
            size,
            done,
            fsync=fsync,
            reserves=reserves,
        )
        for topic, upto in zip(topics, reserved, strict=reserves):
            topic.reserve(upto)
        for (topic, group, _at), ts in zip(taken, stamps, strict=True):
            topic.take(group[5], group[6], ts)
            topic.enqueue(batch)
        core.usage.pending_bytes += size
        core.log.when_committed(topics[0].id, fsync or reserves, batch.on_commit)
        for topic, first in zip(topics, first_seqs, strict=True):
            if topic.reserved - first < first >> 2 and topic.is_short(first):
                self._appender.grow(topic, topic.next_seq - 1, now_ms, topic.next_seq - first)


def _has_tag(spans: bytes, group: GroupRow) -> bool:
    """One of its rows."""
    return any_tagged(spans[group[4] * ROW_BYTES : (group[4] + group[5]) * ROW_BYTES])


def _repeated(names: Sequence[str]) -> set[int]:
    """The places of names that were there before."""
    seen: set[str] = set()
    found = set()
    for at, name in enumerate(names):
        if name in seen:
            found.add(at)
        seen.add(name)
    return found
