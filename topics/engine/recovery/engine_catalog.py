"""The engine's part in recovery and checkpoint: implements `topics.store.format.catalog.Catalog`.

The Protocol documents the rules. The log does not state what a cap evicted, because that follows
from the records and the caps. Recovery therefore evicts again where a control frame states the caps
of that time, and at the end with the current caps (control_frames.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray

from topics.common.default_incarnation import incarnation_of_id
from topics.engine.index.chunk import DEAD, Chunk
from topics.engine.queue.job_removal import remove_jobs
from topics.engine.routers.copy_replay import runs_by_file
from topics.engine.routers.forward import add_hops, seq_runs
from topics.engine.routers.router_recovery import ROUTER_TYPES, RouterRecovery
from topics.engine.shared.dormant import Dormant, add_rows, run_of
from topics.engine.shared.stored_state import StoredState
from topics.engine.shared.topic_snapshot import (
    PlainTopics,
    PreparedSnapshot,
    Rest,
    TopicImage,
    TopicsSnapshot,
    image_of,
    is_plain,
    key_rows_of,
)
from topics.engine.state.control_frames import (
    ConfigPayload,
    CreatePayload,
    LeasesPayload,
    ReaderPayload,
    RemovalPayload,
    ReservationPayload,
    from_runs,
    parse_config,
)
from topics.engine.state.idempotency import KeyEntry
from topics.engine.state.known_producers import producers_of
from topics.engine.state.losses import CRASH, Gap
from topics.engine.state.named_reader import ReaderConfig, TopicReaders
from topics.engine.state.router_frames import images_of
from topics.engine.state.topic import Life, Topic
from topics.engine.values import incarnation
from topics.engine.values.ports import LoopPort
from topics.engine.values.topic_config import TopicConfig
from topics.engine.write.delete import delete_now
from topics.store.format.catalog import NO_TAG, SEQ_MAX, Deletions, PackRows, RowColumns, SeqRange
from topics.store.format.file_table import FileTable
from topics.store.format.log_format import FLAG_COPY, ORDERED_TYPES, FrameType, ProducerPart, StagedPiece

_ANY_AGE_MS = 1 << 64
_READERS_A_STEP = 1000
_OF_READERS = frozenset({FrameType.READER_PUT, FrameType.READER_POSITION, FrameType.READER_DELETE})
_DORMANT_A_STEP = 8
"""The number of dormant topics that cost a snapshot as much as one other topic."""
_AT_ONCE = ORDERED_TYPES | {FrameType.FORWARD, FrameType.KEEP, FrameType.HEAD_RESERVATION, FrameType.LEASE_IDS}
"""Control frames that are applied independently of the rows."""


class EngineCatalog:
    """The catalog, created with the engine and used by the store in opening and checkpoints."""

    def __init__(self, loop: LoopPort, stored: StoredState) -> None:
        self._clock = loop.clock
        self._random_bytes = loop.random_bytes
        self._stored = stored
        self._topic = stored.registry.with_id
        # --- while recovering
        self._gaps: dict[int, list[Gap]] = {}
        """Interior gaps wait until all rows are known, because settling them needs the live rows
        below.
        """
        self._reserved: dict[int, int] = {}
        self._is_exact = False
        """Whether there are a snapshot and the whole log after it."""
        self._is_cut = False
        """Whether a rebuild gave up part of the log."""
        self._described_ms: dict[int, int] = {}
        """By topic id the time of the description that its readers are from."""
        self._lost: dict[int, list[NDArray[np.uint64]]] = {}
        """Seqs of copies whose originals are lost."""
        self._prepared: PreparedSnapshot | None = None
        """The prepared parts of the next snapshot, once they are complete."""
        self._routers = RouterRecovery(stored.registry, stored.routers, self._gaps)
        self._log_rows = self._routers.log_rows

    @property
    def files(self) -> FileTable:
        return self._stored.files

    # --- recovery ----------------------------------------------------------------------------------------------------
    def restore(self, snapshot: bytes | None, *, log_cut: bool = False) -> None:
        self._is_exact, self._is_cut = snapshot is not None and not log_cut, log_cut
        if snapshot is None:
            return
        image = msgspec.json.decode(snapshot, type=TopicsSnapshot)
        registry = self._stored.registry
        registry.add_dormant(Dormant(self._stored.usage, image.plain))
        if log_cut:  # After a cut, not everything that was given out is known.
            registry.make_all()
        for each in image.topics:
            self._take_image(each)
        for topic_id, keys in image.keys:
            for key in keys:
                self.add_idempotency(topic_id, key.key, key.first_seq, key.count, key.started_ms)
        for topic_id, rows in image.producers:
            topic = self._topic(topic_id)
            if topic is not None:
                for row in rows:
                    producers_of(topic, self._stored.producers).restore(row)
        for topic_id, readers in image.readers:
            topic = self._topic(topic_id)
            if topic is not None:
                for reader in readers:
                    _readers_of(topic).restore(reader)
        for router in image.routers:
            self._routers.take_image(router)
        for pair in image.ties:
            self._routers.tie(pair)
        registry.last_id = max(registry.last_id, image.last_id)
        registry.last_order = max(registry.last_order, image.last_order)
        self._stored.lease_ids.restore(image.last_lease)

    def adopt(self, topic_id: int, description: bytes, described_ms: int) -> None:
        image = msgspec.json.decode(description, type=TopicImage)
        topic = self._take_image(image)
        self._routers.adopt(image.feeders)
        if topic is not None and image.order >= topic.order:
            topic.order = image.order
            config = parse_config(image.config)
            self._stored.registry.configure(topic, config, config)
            if image.head == topic.head:
                topic.readers = None  # A later description has those that there were then.
                for reader in image.readers:
                    _readers_of(topic).restore(reader)
                self._described_ms[topic.id] = described_ms

    def _take_image(self, image: TopicImage) -> Topic | None:
        topic = self._topic(image.id)
        if topic is None:
            config = parse_config(image.config)
            topic = self._add(image.name, image.id, image.order, config, image.incarnation)
            if topic is None:
                return None
        topic.found(image.head, image.last_ts)
        topic.found_generation(image.generation)
        image.floors.raise_floors(topic.floors)
        if image.gaps:
            self._gaps[topic.id] = image.gap_list()
        if image.reserved:
            self._reserved[topic.id] = image.reserved
        if image.hops:
            add_hops(topic, image.hops)
        for row in image.keys:
            self.add_idempotency(topic.id, row.key, row.first_seq, row.count, row.started_ms)
        for producer in image.producers:
            producers_of(topic, self._stored.producers).restore(producer)
        for staged in image.staged:
            self._stored.staged.restore(staged)
        if topic.queue is not None:
            for lease in image.leases:
                topic.queue.restore(lease)
        return topic

    def _add(self, name: str, topic_id: int, order: int, config: TopicConfig, stored: str) -> Topic | None:
        """Add a topic, unless a later one has its name.

        stored: its incarnation, "" if it is unknown.
        """
        registry = self._stored.registry
        holder = registry.holder(name)
        if holder is not None:
            if holder.order >= order:
                return None
            self._remove(holder)
        topic = Topic(name, topic_id, config, order, self._stored.usage, stored or incarnation_of_id(topic_id))
        topic.enter(Life.LIVE)
        topic.is_made = True
        registry.add(topic)
        return topic

    def _remove(self, topic: Topic) -> None:
        topic.index.kill_through(topic.index.last_seq)
        self._routers.topic_gone(topic)
        self._stored.registry.remove(topic)
        self._gaps.pop(topic.id, None)
        self._reserved.pop(topic.id, None)

    def add_rows(self, topic_id: int, rows: RowColumns) -> None:
        topic = self._topic(topic_id)
        if topic is None or not len(rows.seqs):
            return
        topic.found(int(rows.seqs[-1]), int(rows.ts[-1]))
        if self._log_rows.holds(topic_id) and self._stored.usage.is_log(rows.file_id):
            return  # `_add_held` adds them, in one order with the copies between them.
        if add_rows(topic, rows):
            self._stored.in_log.add(topic_id)

    def add_pack(self, pack: PackRows) -> None:
        left = self._stored.registry.dormant.add_pack(pack) if len(pack.topic_ids) else []
        for at in left:
            self.add_rows(int(pack.topic_ids[at]), run_of(pack, at))

    def log_begins(self, copied_upto: Mapping[int, int]) -> None:
        self._log_rows.copied_upto = copied_upto
        # Rebuilt: a segment may hold newer rows than its description of the topic states.
        if not self._is_exact:
            for topic_id, upto in copied_upto.items():
                topic = self._topic(topic_id)
                if topic is not None:
                    topic.found(upto)

    def see_rows(self, topic_id: int, rows: RowColumns) -> None:
        self._log_rows.see(topic_id, rows)

    def _head_of(self, topic_id: int) -> int | None:
        topic = self._topic(topic_id)
        return None if topic is None else topic.head

    def _add_held(self, lost_file: int) -> None:
        """Add rows of destinations, with copies by position, and then apply their controls.

        Copies whose originals a power cut took are in `lost_file` until `_report_lost`.
        """
        for topic_id, rows in self._log_rows.resolve(self._head_of, lost_file):
            topic = self._topic(topic_id)
            if topic is None or not len(rows.columns.seqs):
                continue
            floor = max(topic.index.last_seq, topic.floors.dead_through)
            for part in runs_by_file(rows.rows(rows.columns.seqs > np.uint64(floor))):
                columns = part.columns
                tags = [] if part.tags is None else part.tags.tolist()
                topic.index.add_scattered(columns.seqs, int(columns.file_ids[0]), columns, columns.ts, tags)
                self._stored.in_log.add(topic_id)
                if int(columns.file_ids[0]) == lost_file:
                    self._lost.setdefault(topic_id, []).append(columns.seqs)
        controls, self._log_rows.controls = self._log_rows.controls, []
        self._log_rows.clear()
        for control in controls:
            self.apply_control(*control)

    def apply_control(self, kind: int, topic_id: int, seq: int, ts_ms: int, payload: bytes) -> None:
        if kind not in _AT_ONCE and self._log_rows.holds(topic_id):
            self._log_rows.controls.append((kind, topic_id, seq, ts_ms, payload))
            return
        registry = self._stored.registry
        if kind == FrameType.LEASE_IDS:
            self._stored.lease_ids.restore(seq)
            return
        if kind == FrameType.TOPIC_CREATE:
            registry.last_id = max(registry.last_id, topic_id)
            registry.last_order = max(registry.last_order, seq)
            if not registry.has_id(topic_id):
                create = msgspec.json.decode(payload, type=CreatePayload)
                self._add(create.name, topic_id, seq, parse_config(create.config), create.incarnation)
            return
        if kind in ORDERED_TYPES:
            registry.last_order = max(registry.last_order, seq)
        if kind in ROUTER_TYPES:
            self._routers.apply_control(kind, topic_id, seq, ts_ms, payload)
            return
        topic = self._topic(topic_id)
        if topic is None:
            return
        if kind in _OF_READERS:
            stated = msgspec.json.decode(payload, type=ReaderPayload)
            if not (self._is_cut and self._is_described_later(topic, stated.reader, ts_ms)):
                _apply_to_reader(topic, kind, seq, stated)
            return
        if kind == FrameType.TOPIC_DELETE:
            self._remove(topic)
        elif kind == FrameType.TOPIC_CONFIG:
            self._configure(topic, seq, msgspec.json.decode(payload, type=ConfigPayload))
        elif kind == FrameType.HEAD_RESERVATION:
            generation = msgspec.json.decode(payload, type=ReservationPayload).generation
            if generation > topic.generation:
                topic.found_generation(generation)
                self._reserved[topic_id] = max(seq, self._reserved.get(topic_id, 0))
        elif kind == FrameType.LEASES and topic.queue is not None:
            change = msgspec.json.decode(payload, type=LeasesPayload)
            if change.forgotten:
                topic.queue.jobs.clear()
            for lease in change.leases:
                topic.queue.restore(lease)
            for ended in from_runs(change.ended):
                topic.queue.restore_end(ended)
        elif kind in (FrameType.DELETE_RECORDS, FrameType.FLOORS, FrameType.CONSUME):
            # Seqs up to here were given out, perhaps only to writes that failed. If one were given
            # out again, the next replay of this frame would remove its record.
            topic.found_taken(seq)
            removal = msgspec.json.decode(payload, type=RemovalPayload)
            topic.enforce_caps(removal.upto, *removal.cap)
            if kind == FrameType.FLOORS:
                topic.lose_through(cap=removal.evicted, ttl=removal.ttl)
            elif kind == FrameType.CONSUME:
                remove_jobs(self._stored, topic, removal.seqs)
                self._routers.consumed(topic, removal.seqs)
            else:
                delete_now(self._stored.deletions, topic, removal.upto, removal.before, removal.predicate())

    def _is_described_later(self, topic: Topic, reader: str, ts_ms: int) -> bool:
        """Return whether a description that has this reader is later than a frame of it.

        The frames between may be in the part of the log that a rebuild gave up.
        """
        is_described = topic.readers is not None and reader in topic.readers.by_name
        return is_described and ts_ms < self._described_ms.get(topic.id, 0)

    def _configure(self, topic: Topic, order: int, change: ConfigPayload) -> None:
        if change.keys_forgotten:
            topic.keys_forgotten = max(topic.keys_forgotten, change.keys_forgotten)
            if topic.keys is not None:
                topic.keys.forget_through(change.keys_forgotten)
            if topic.producers is not None:
                topic.producers.forget_through(change.keys_forgotten)
        if order <= topic.order:
            return
        topic.order = order
        config = parse_config(change.config)
        self._stored.registry.configure(topic, config, config)
        topic.incarnation = change.incarnation or topic.incarnation
        topic.found(change.head)
        if change.floors is not None:
            change.floors.raise_floors(topic.floors)
            topic.index.kill_through(topic.floors.dead_through)
        if change.generation and change.generation >= topic.generation:
            topic.found_generation(change.generation)
            self._reserved.pop(topic.id, None)

    def add_idempotency(self, topic_id: int, key: bytes, first_seq: int, count: int, started_ms: int) -> None:
        topic = self._topic(topic_id)
        # A frame after its record may have stated that the key was forgotten.
        if topic is not None and first_seq > topic.keys_forgotten:
            topic.key_store().store(key, KeyEntry(first_seq, count, started_ms), started_ms, _ANY_AGE_MS)

    def add_part(self, topic_id: int, first_seq: int, part: ProducerPart) -> None:
        topic = self._topic(topic_id)
        if topic is not None and first_seq > topic.keys_forgotten:
            producers_of(topic, self._stored.producers).add(part, first_seq)

    def add_piece(self, topic_id: int, first_seq: int, piece: StagedPiece) -> None:
        self._stored.staged.add(piece, first_seq)

    def recovered(self, *, power_lost: bool) -> bool:
        has_lost = self._routers.has_half
        self._routers.before_rows()
        lost_file = self._stored.usage.add_file()
        self._add_held(lost_file.file_id)
        # Segments do not state which seqs and lease ids were given out, nor does a log that was
        # cut.
        registry = self._stored.registry
        rebuilt = not self._is_exact and bool(registry.by_id)
        for topic in registry.by_id.values():
            index, floors = topic.index, topic.floors
            if rebuilt or incarnation.ends_with_process(topic.config):
                topic.incarnation = incarnation.draw(self._random_bytes)
            # Seqs that a router has forwarded or holds were given out. Their records may be lost by
            # a class that may lose them, or by a failed sync that a process killed at once could
            # not note; but other topics and clients know these seqs.
            known = self._routers.given_out(topic)
            if topic.config.durability == "ephemeral":
                topic.found(known)
                index.kill_through(topic.head)
                # Rows from a time in another class stay gone (R-DUR-5).
                floors.raise_to(deleted=topic.head)
                topic.keys = None  # Keys live as long as their records (R-IDEM-8).
                if topic.producers is not None:
                    topic.producers.clear()
                topic.keys_forgotten = topic.head
            floors.gaps = self._gaps.get(topic.id, [])
            reserved = self._reserved.get(topic.id, 0)
            given_out = max(known, reserved if power_lost else 0)
            if given_out > topic.head:
                floors.add_gap(Gap(topic.head + 1, given_out, CRASH))
                topic.found(given_out)
                has_lost = True
            topic.begin(reserved)
            if topic.readers is not None:
                topic.readers.limit(topic.head)
                topic.set_config(topic.config, topic.next_config)
                registry.with_readers[topic] = None
            topic.retain_caps()
            if topic.id in self._lost:
                has_lost |= self._report_lost(topic, np.concatenate(self._lost.pop(topic.id)))
            floors.settle_gaps(topic.earliest)
            if topic.queue is not None:
                topic.queue.recovered(keep=topic.keeps_leases)
        self._stored.staged.recovered(registry.with_id, registry.staging)
        # In a rebuilt directory, lease ids continue from the clock.
        self._stored.lease_ids.recovered(rebuilt_at_ms=self._clock.now_ms() if rebuilt else 0)
        self._gaps.clear()
        self._reserved.clear()
        self._lost.clear()
        self._described_ms.clear()
        self._stored.usage.remove_file(lost_file)
        self._routers.recovered()
        return has_lost

    def _report_lost(self, topic: Topic, seqs: NDArray[np.uint64]) -> bool:
        """Turn copies whose originals are lost into gaps, unless a cap or a delete removed them.

        Readers may have seen these copies, and the records that they evicted are gone.
        Returns: whether there were any.
        """
        seqs = seqs[topic.index.alive(seqs)]
        if not len(seqs):
            return False
        topic.index.kill_seqs(seqs)
        gaps, topic.floors.gaps = topic.floors.gaps, []
        for gap in sorted([*gaps, *(Gap(first, last, CRASH) for first, last in seq_runs(seqs))]):
            topic.floors.add_gap(gap)
        return True

    # --- checkpoint --------------------------------------------------------------------------------------------------
    def topics_in_log(self) -> list[int]:
        return sorted(self._stored.in_log)

    def _is_in_log(self, chunks: Sequence[Chunk]) -> bool:
        """Return whether the newest live row is in the log, which decides it for all rows.

        Rows move to segments in the order of their seqs. Only rows in memory never move: rows
        before them may be from a time in another class, so all are checked then.
        """
        usage = self._stored.usage
        for chunk in reversed(chunks):
            if chunk.file_id and chunk.live and not usage.is_memory(chunk.file_id):
                return usage.is_log(chunk.file_id)
            file_ids = chunk.file_ids[chunk.live_rows(0, chunk.count)]
            if len(file_ids) and not usage.is_memory(int(file_ids[-1])):
                return usage.is_log(int(file_ids[-1]))
            for file_id in np.unique(file_ids).tolist():
                if usage.is_log(file_id):
                    return True
        return False

    def rows_in_files(
        self,
        topic_id: int,
        file_ids: NDArray[np.uint32],
        *,
        first_seq: int = 0,
        last_seq: int = SEQ_MAX,
        rows_max: int = SEQ_MAX,
    ) -> list[RowColumns]:
        topic = self._topic(topic_id)
        if topic is None:
            return []
        found: list[tuple[int, list[tuple[Chunk, NDArray[np.intp]]]]] = []
        count = 0
        wanted = set(file_ids.tolist())
        for chunk, rows, here in topic.index.locations(first_seq, last_seq, wanted):
            for file_id, start, end in _runs(here):
                if file_id in wanted:
                    if not found or found[-1][0] != file_id:
                        found.append((file_id, []))
                    found[-1][1].append((chunk, rows[start:end]))
                    count += end - start
            if count >= rows_max:
                break
        return [self._columns(topic, file_id, parts) for file_id, parts in found]

    def last_in_files(self, topic_id: int, file_ids: NDArray[np.uint32]) -> int:
        topic = self._topic(topic_id)
        wanted = set(file_ids.tolist())
        for chunk in reversed(topic.index.chunks) if topic is not None else ():
            if chunk.live and chunk.may_be_in(wanted):
                rows = chunk.live_rows(0, chunk.count)
                for file_id, _start, end in reversed(list(_runs(chunk.file_ids[rows]))):
                    if file_id in wanted:
                        return chunk.first + int(rows[end - 1])
        if topic is None or not self._is_in_log(topic.index.chunks):
            self._stored.in_log.discard(topic_id)
        return 0

    def bytes_in_files(
        self,
        topic_id: int,
        file_ids: NDArray[np.uint32],
        *,
        first_seq: int = 0,
        last_seq: int = SEQ_MAX,
        rows_max: int = SEQ_MAX,
    ) -> SeqRange:
        topic = self._topic(topic_id)
        first = last = count = total = 0
        wanted = set(file_ids.tolist())
        for chunk, rows, here in topic.index.locations(first_seq, last_seq, wanted) if topic is not None else ():
            for file_id, start, end in _runs(here):
                if file_id in wanted:
                    inside = rows[start:end]
                    first = first or chunk.first + int(inside[0])
                    last = max(last, chunk.first + int(inside[-1]))
                    count += end - start
                    total += int(chunk.lengths[_where(inside)].sum(dtype=np.uint64))
            if count >= rows_max:
                break
        return SeqRange(first, last, count, total)

    def _columns(self, topic: Topic, file_id: int, parts: list[tuple[Chunk, NDArray[np.intp]]]) -> RowColumns:
        table: list[bytes] = []
        if all(chunk.tags is None for chunk, _rows in parts):
            tags = np.full(sum([len(rows) for _chunk, rows in parts]), NO_TAG, np.uint32)
        else:
            numbers = np.concatenate(
                [
                    np.full(len(rows), NO_TAG, np.uint32) if chunk.tags is None else chunk.tags[rows]
                    for chunk, rows in parts
                ]
            )
            names, places = np.unique(numbers, return_inverse=True)
            if topic.index.tags is not None:
                table = [topic.index.tags.name(number) for number in names.tolist() if number != NO_TAG]
            # NO_TAG is the highest number, so it comes last, and all others are indexes into the
            # table.
            tags = np.where(numbers == NO_TAG, NO_TAG, places).astype(np.uint32)
        found = [(chunk, _where(rows)) for chunk, rows in parts]
        return RowColumns(
            file_id,
            np.concatenate([(rows + chunk.first).astype(np.uint64) for chunk, rows in parts]),
            np.concatenate([chunk.offsets[where] for chunk, where in found]),
            np.concatenate([chunk.lengths[where] for chunk, where in found]),
            np.concatenate([chunk.sizes[where] for chunk, where in found]),
            np.concatenate([chunk.ts[where] for chunk, where in found]),
            np.concatenate([chunk.flags[where] for chunk, where in found]),
            tags,
            table,
        )

    def last_shared(self, topic_id: int) -> int:
        topic = self._topic(topic_id)
        for chunk in reversed(topic.index.chunks) if topic is not None else ():
            shared = np.flatnonzero((chunk.flags[: chunk.count] & np.uint8(FLAG_COPY | DEAD)) == FLAG_COPY)
            if len(shared):
                return chunk.first + int(shared[-1])
        return 0

    def moved(
        self,
        topic_id: int,
        seqs: NDArray[np.uint64],
        file_id: int,
        offsets: NDArray[np.uint32],
        lengths: NDArray[np.uint32] | None = None,
    ) -> NDArray[np.uint64]:
        self._log_rows.moved(topic_id, seqs, file_id, offsets)
        topic = self._topic(topic_id)
        if topic is None:
            return seqs
        died = np.ones(len(seqs), np.bool_)
        for chunk, start, end in topic.index.by_chunk(seqs):
            rows = (seqs[start:end] - np.uint64(chunk.first)).astype(np.intp)
            where = _where(rows)
            alive = chunk.flags[where] < DEAD
            died[start:end] = ~alive
            if lengths is None:
                alive &= self._are_in_log(chunk.file_ids[where])
            if not alive.all():
                rows = rows[alive]
            if len(rows):
                where = _where(rows)
                self._stored.usage.left_files(chunk.file_ids[where])
                self._stored.usage.placed(file_id, len(rows))
                chunk.moved(where, file_id)
                chunk.offsets[where] = offsets[start:end][alive]
                if lengths is not None:
                    chunk.lengths[where] = lengths[start:end][alive]
                    chunk.set_flags(chunk.flags.copy())  # A search may hold the old array.
                    chunk.flags[where] &= np.uint8(~FLAG_COPY & 0xFF)
                    topic.index.table = None
        return seqs[died]

    def _are_in_log(self, file_ids: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """Return which of these files are log files, row by row.

        A row may be elsewhere: a checkpoint copied it, and a kill then prevented the log from being
        recycled.
        """
        unique, inverse = np.unique(file_ids, return_inverse=True)
        return np.array([self._stored.usage.is_log(file_id) for file_id in unique.tolist()], np.bool_)[inverse]

    def exists(self, topic_id: int) -> bool:
        return self._stored.registry.has_id(topic_id)

    def untouched(self) -> Set[int]:
        return self._stored.registry.dormant.by_id.keys()

    def lowest_live_seq(self, topic_id: int) -> int:
        topic = self._topic(topic_id)
        assert topic is not None, "a topic that exists"
        return topic.earliest

    def describe(self, topic_id: int) -> bytes:
        topic = self._topic(topic_id)
        assert topic is not None, "a topic that exists"
        return msgspec.json.encode(image_of(topic, None))

    def prepare_snapshot(self, topics_a_step: int) -> Iterator[None]:
        """Encode topics, keys and producers, a bounded number a step.

        Each topic is encoded in its state at its step. Later changes are in the log after the cut,
        like those after the snapshot.

        Reservations are released: seqs above those given out need a new reservation.
        """
        now_ms = self._clock.now_ms()
        prepared = PreparedSnapshot()
        topics = list(self._stored.registry.by_id.values())
        step = max(1, topics_a_step)
        for block in self._stored.registry.dormant.blocks(_DORMANT_A_STEP * step):
            prepared.plain.append(b"," + msgspec.json.encode(block))
            yield
        with_keys: list[Topic] = []
        with_producers: list[Topic] = []
        with_readers: list[Topic] = []
        for at in range(0, len(topics), step):
            some = [topic for topic in topics[at : at + step] if topic.visible]
            self._describe(prepared, some, now_ms)
            with_keys += [topic for topic in some if topic.keys is not None]
            with_producers += [topic for topic in some if topic.producers is not None]
            with_readers += [topic for topic in some if topic.readers is not None]
            yield
        for topic in with_keys:
            for rows in key_rows_of(topic, now_ms) if topic.visible else ():
                prepared.keys.append(b"," + msgspec.json.encode((topic.id, rows)))
                yield
        for topic in with_producers:
            if topic.producers is not None and topic.visible:
                for producers in topic.producers.images_in_steps(now_ms):
                    prepared.producers.append(b"," + msgspec.json.encode((topic.id, producers)))
                    yield
        for topic in with_readers:
            if topic.readers is not None and topic.visible:
                for readers in topic.readers.images_in_steps(_READERS_A_STEP):
                    prepared.readers.append(b"," + msgspec.json.encode((topic.id, readers)))
                    yield
        self._prepared = prepared

    def _describe(self, prepared: PreparedSnapshot, topics: Sequence[Topic], now_ms: int) -> None:
        plain: list[Topic] = []
        others: list[bytes] = []
        for topic in topics:
            topic.release_reservation()
            if is_plain(topic):
                plain.append(topic)
            else:
                others.append(b"," + self._image(topic, now_ms))
        if plain:
            prepared.plain.append(b"," + msgspec.json.encode(PlainTopics.of(plain)))
        prepared.topics.append(b"".join(others))

    def _image(self, topic: Topic, now_ms: int) -> bytes:
        image = image_of(topic, now_ms)
        if topic is self._stored.registry.staging:
            image.staged = self._stored.staged.images()
        return msgspec.json.encode(image)

    def snapshot(self) -> list[bytes | memoryview]:
        stored = self._stored
        if self._prepared is None:
            for _ in self.prepare_snapshot(len(stored.registry)):
                pass
        prepared, self._prepared = self._prepared, None
        assert prepared is not None
        rest = Rest(
            stored.registry.last_id,
            stored.registry.last_order,
            stored.lease_ids.reserved,
            images_of(list(stored.routers.by_name.values())),
            stored.routers.ties(stored.usage.log_files()),
        )
        lists = {b"topics": prepared.topics, b"plain": prepared.plain, b"keys": prepared.keys}
        lists[b"producers"] = prepared.producers
        if prepared.readers:
            lists[b"readers"] = prepared.readers
        return rest.pack(lists)

    def prepare_deletions(self) -> Iterator[None]:
        return self._stored.deletions.gather()

    def take_deletions(self) -> list[Deletions]:
        usage = self._stored.usage
        deletions = self._stored.deletions.take()
        return [
            part for part in deletions if part.topic_id in self._stored.registry.by_id and usage.is_sealed(part.file_id)
        ]


def _readers_of(topic: Topic) -> TopicReaders:
    if topic.readers is None:
        topic.readers = TopicReaders()
    return topic.readers


def _apply_to_reader(topic: Topic, kind: int, position: int, stated: ReaderPayload) -> None:
    """Apply a frame of a named reader. A position of one that the topic does not have is old."""
    readers = _readers_of(topic)
    if kind == FrameType.READER_PUT:
        readers.put(stated.reader, ReaderConfig(stated.delivery, stated.holds, stated.trims), position)
    elif kind == FrameType.READER_DELETE:
        readers.remove(stated.reader)
    else:
        reader = readers.by_name.get(stated.reader)
        if reader is not None:
            readers.found(reader, position)


def _where(rows: NDArray[np.intp]) -> slice | NDArray[np.intp]:
    """Return ascending rows as an index: a slice if they are a run, which is many times as fast."""
    first, last = int(rows[0]), int(rows[-1])
    return slice(first, last + 1) if last - first == len(rows) - 1 else rows


def _runs(file_ids: NDArray[np.uint32]) -> Iterator[tuple[int, int, int]]:
    """Yield (file id, start, end) of adjacent rows in one file; nearly always one run."""
    if not len(file_ids):
        return
    first = int(file_ids[0])
    if bool((file_ids == first).all()):
        yield first, 0, len(file_ids)
        return
    cuts = [0, *(np.flatnonzero(np.diff(file_ids)) + 1).tolist(), len(file_ids)]
    for start, end in pairwise(cuts):
        yield int(file_ids[start]), start, end
