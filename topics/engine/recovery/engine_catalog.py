"""The engine's part in recovery: implements `topics.store.format.catalog.Catalog`.

The Protocol documents the rules. The log does not state what a cap evicted, because that follows
from the records and the caps. Recovery therefore evicts again where a control frame states the caps
of that time, and at the end with the current caps (control_frames.py).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from topics.common.default_incarnation import incarnation_of_id
from topics.common.values.reader_config import ReaderConfig
from topics.engine.queue.job_removal import remove_jobs
from topics.engine.recovery.engine_checkpoints import EngineCheckpoints
from topics.engine.routers.copy_replay import ControlFrame, runs_by_file
from topics.engine.routers.forward import add_hops, seq_runs
from topics.engine.routers.router_recovery import ROUTER_TYPES, RouterRecovery
from topics.engine.shared.dormant import DormantBlocks, add_rows, run_of
from topics.engine.shared.stored_state import StoredState
from topics.engine.shared.topic_snapshot import (
    EncodedSnapshot,
    KeyRows,
    PlainTopics,
    ProducerRows,
    ReaderRows,
    TopicImage,
    encoded_in_steps,
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
from topics.engine.state.leases import Leases
from topics.engine.state.named_reader import TopicReaders
from topics.engine.state.topic import Life, Topic
from topics.engine.values import incarnation
from topics.engine.values.ports import LoopPort
from topics.engine.values.topic_config import TopicConfig
from topics.engine.write.delete import delete_now
from topics.engine.write.retention import lose_records
from topics.store.format.catalog import SEQ_MAX, PackRows, RowColumns
from topics.store.format.file_table import FileTable
from topics.store.format.floors import CRASH, TTL, Gap, Gaps, add_gap
from topics.store.format.log_format import ORDERED_TYPES, FrameType, ProducerPart, StagedPiece

_ANY_AGE_MS = 1 << 64
IMAGES_A_STEP = 64
"""Topics of a snapshot that are not dormant, and topics whose recovery ends, in a step."""
_OF_READERS = frozenset({FrameType.READER_PUT, FrameType.READER_POSITION, FrameType.READER_DELETE})
_AT_ONCE = ORDERED_TYPES | {FrameType.FORWARD, FrameType.KEEP, FrameType.HEAD_RESERVATION, FrameType.LEASE_IDS}
"""Control frames that are applied independently of the rows."""


class EngineCatalog:
    """The catalog, created with the engine and used by the store in opening and checkpoints."""

    def __init__(
        self,
        loop: LoopPort,
        stored: StoredState,
        *,
        skipped_seqs: int = 0,
        known_seq: Callable[[int, str], int] = lambda _topic_id, _name: 0,
    ) -> None:
        """skipped_seqs: how many seqs of each topic clients may know that the directory does not.

        It is a restored backup then, and they are reported as lost. known_seq(topic id,
        name): returns a seq that was given out; those that are skipped come after it.
        """
        self._clock = loop.clock
        self._random_bytes = loop.random_bytes
        self._stored = stored
        self._skipped_seqs = skipped_seqs
        self._known_seq = known_seq
        self._topic = stored.registry.with_id
        # --- while recovering
        self._gaps: dict[int, list[Gap]] = {}
        """Interior gaps wait until all rows are known, because settling them needs the live rows
        below.
        """
        self._expired: dict[int, set[int]] = {}
        """Likewise seqs of records that expired by a ttl of their own."""
        self._holes: dict[int, list[Gap]] = {}
        """Likewise the holes of topics that left class `ephemeral`, or began to."""
        self._left_at: dict[int, int] = {}
        """By topic id, the seq up to which no record lived when it left class `ephemeral`; what
        expired below is in the floors.
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
        self._routers = RouterRecovery(stored.registry, stored.routers, self._gaps)
        self._log_rows = self._routers.log_rows
        self.checkpoints = EngineCheckpoints(loop, stored)

    @property
    def files(self) -> FileTable:
        return self._stored.files

    # --- recovery ----------------------------------------------------------------------------------------------------
    def restore(self, snapshot: bytes | memoryview | None, *, log_cut: bool = False) -> Generator[None, None, None]:
        self._is_exact, self._is_cut = snapshot is not None and not log_cut, log_cut
        if snapshot is None:
            return
        image, topics, plain = yield from encoded_in_steps(snapshot)
        registry = self._stored.registry
        blocks = DormantBlocks()
        for encoded in plain:
            yield
            blocks.add(msgspec.json.decode(encoded, type=PlainTopics))
        yield from registry.add_dormant(blocks)
        if log_cut or self._skipped_seqs:  # Not everything that was given out is known.
            yield from registry.make_all()
        topics.reverse()
        while topics:  # freed as they are taken, because to free half a million at once takes long
            self._take_image(msgspec.json.decode(topics.pop(), type=TopicImage))
            if len(topics) % IMAGES_A_STEP == 0:
                yield
        yield from self._restore_rows(image)
        for router in image.routers:
            self._routers.take_image(router)
        for pair in image.ties:
            self._routers.note_router(pair)
        registry.note_id(image.last_id)
        registry.last_order = max(registry.last_order, image.last_order)
        self._stored.lease_ids.restore(image.last_lease)

    def _restore_rows(self, image: EncodedSnapshot) -> Iterator[None]:
        """Restore keys, producers and readers."""
        for encoded in image.keys:
            topic_id, keys = msgspec.json.decode(encoded, type=KeyRows)
            for key in keys:
                self.add_idempotency(topic_id, key.key, key.first_seq, key.count, key.started_ms)
            yield
        for encoded in image.producers:
            topic_id, rows = msgspec.json.decode(encoded, type=ProducerRows)
            topic = self._topic(topic_id)
            if topic is not None:
                for row in rows:
                    producers_of(topic, self._stored.producers).restore(row)
            yield
        for encoded in image.readers:
            topic_id, readers = msgspec.json.decode(encoded, type=ReaderRows)
            topic = self._topic(topic_id)
            if topic is not None:
                for reader in readers:
                    _readers_of(topic).restore(reader)
            yield

    def adopt(self, topic_id: int, description: bytes, described_ms: int) -> None:
        image = msgspec.json.decode(description, type=TopicImage)
        topic = self._take_image(image)
        self._routers.adopt(image.feeders)
        if topic is not None and image.order >= topic.order:
            topic.order = image.order
            config = parse_config(image.config)
            if config.durability == "ephemeral":
                # Its records in files are of another class, whose name no description has.
                config = replace(config, durability="disk")
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
        topic.found_visible(image.head, image.last_ts)
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
            for attempt in image.attempts:
                topic.queue.restore_attempts(attempt)
            topic.queue.move = image.move
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
        self._expired.pop(topic.id, None)
        self._holes.pop(topic.id, None)
        self._left_at.pop(topic.id, None)
        self._reserved.pop(topic.id, None)

    def add_rows(self, topic_id: int, rows: RowColumns) -> None:
        topic = self._topic(topic_id)
        if topic is None or not len(rows.seqs):
            return
        topic.found_visible(int(rows.seqs[-1]), int(rows.ts[-1]))
        if rows.times is not None:
            self._restore_times(topic, rows.seqs, rows.times)
        if self._log_rows.holds(topic_id) and self._stored.usage.is_log(rows.file_id):
            return  # `_add_held` adds them, in one order with the copies between them.
        if add_rows(topic, rows):
            self._stored.in_log.add(topic_id)

    def _restore_times(self, topic: Topic, seqs: NDArray[np.uint64], times: NDArray[np.uint64]) -> None:
        dues, ends = times[:, 0], times[:, 1]
        if topic.queue is not None:
            runs = dues > np.uint64(self._clock.now_ms())
            if runs.any():
                topic.queue.restore_held(seqs[runs], dues[runs])
        if ends.any():
            noted = topic.made_expiries().ends
            noted.add(seqs[ends > 0].tolist(), ends[ends > 0].tolist())

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
                    topic.found_visible(upto)

    def see_rows(self, topic_id: int, rows: RowColumns) -> None:
        self._log_rows.take_rows(topic_id, rows)

    def _head_of(self, topic_id: int) -> int | None:
        topic = self._topic(topic_id)
        return None if topic is None else topic.head

    def _add_held(self, lost_file: int) -> Iterator[None]:
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
            yield
        controls, self._log_rows.controls = self._log_rows.controls, []
        self._log_rows.clear()
        for number, control in enumerate(controls, 1):
            self._apply(control)
            if number % IMAGES_A_STEP == 0:
                yield

    def apply_control(self, kind: int, topic_id: int, seq: int, ts_ms: int, payload: bytes) -> None:
        if kind not in _AT_ONCE and self._log_rows.holds(topic_id):
            before = self._last_before(topic_id)
            self._log_rows.controls.append(ControlFrame(kind, topic_id, seq, ts_ms, payload, before))
            return
        self._apply(ControlFrame(kind, topic_id, seq, ts_ms, payload, SEQ_MAX))

    def _last_before(self, topic_id: int) -> int:
        """Return the last seq that a frame read now may concern, of a topic whose rows are held.

        A failed write may have taken a later one, and a frame names it then. It was given out again
        if a checkpoint and a kill came between, so in an archive, which has both, the record
        follows the frame. There the frames of a topic come in their order, since all its log has
        the same number of shards.
        """
        topic = self._topic(topic_id)
        if not self._skipped_seqs or topic is None:
            return SEQ_MAX
        return max(self._log_rows.last_seq(topic_id), topic.index.last_seq)

    def _apply(self, control: ControlFrame) -> None:
        """Apply a control frame."""
        kind, topic_id, seq, ts_ms, payload, last = control
        registry = self._stored.registry
        if kind == FrameType.LEASE_IDS:
            self._stored.lease_ids.restore(seq)
            return
        if kind == FrameType.TOPIC_CREATE:
            registry.note_id(topic_id)
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
                topic.queue.forget_all()
            for lease in change.leases:
                topic.queue.restore(lease)
            for attempt in change.attempts:
                topic.queue.restore_attempts(attempt, is_image=not change.ended)
            for ended in from_runs(change.ended):
                topic.queue.restore_end(ended)
            if change.move is not None:
                topic.queue.move = change.move if change.move.seqs else None
        elif kind in (FrameType.DELETE_RECORDS, FrameType.FLOORS, FrameType.CONSUME):
            # Seqs up to here were given out, perhaps only to writes that failed. If one were given
            # out again, the next replay of this frame would remove its record.
            topic.found_taken(seq)
            self._apply_removal(kind, topic, msgspec.json.decode(payload, type=RemovalPayload), last)

    def _apply_removal(self, kind: int, topic: Topic, removal: RemovalPayload, last: int) -> None:
        """Apply a frame that removes records, to those up to `last`."""
        upto = min(removal.upto, last)
        topic.enforce_caps(upto, *removal.cap)
        if kind == FrameType.FLOORS:
            topic.lose_through(cap=min(removal.evicted, last), ttl=min(removal.ttl, last))
            if removal.seqs:
                seqs = [each for each in from_runs(removal.seqs) if each <= last]
                lose_records(self._stored.deletions, topic, seqs)
                self._expired.setdefault(topic.id, set()).update(seqs)
        elif kind == FrameType.CONSUME:
            remove_jobs(self._stored, topic, removal.seqs)
            if removal.holes:
                holes = zip(removal.holes[::2], removal.holes[1::2], strict=True)
                self._holes.setdefault(topic.id, []).extend(Gap(*hole, TTL) for hole in holes)
            self._routers.consumed(topic, removal.seqs)
        else:
            delete_now(self._stored.deletions, topic, upto, removal.before, removal.predicate())

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
        topic.found_visible(change.head)
        if change.floors is not None:
            change.floors.raise_floors(topic.floors)
            topic.index.kill_through(topic.floors.dead_through)
            self._left_at[topic.id] = max(self._left_at.get(topic.id, 0), topic.floors.dead_through)
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

    def moved(self, topic_id: int, seqs: NDArray[np.uint64], file_id: int, offsets: NDArray[np.uint32]) -> None:
        self._log_rows.moved(topic_id, seqs, file_id, offsets)
        self.checkpoints.moved(topic_id, seqs, file_id, offsets)

    def recovered(self, *, power_lost: bool) -> Generator[None, None, bool]:
        has_lost = self._routers.has_half
        self._routers.before_rows()
        lost_file = self._stored.usage.add_file()
        yield from self._add_held(lost_file.file_id)
        # Segments do not state which seqs and lease ids were given out, nor does a log that was
        # cut.
        registry = self._stored.registry
        rebuilt = not self._is_exact and bool(registry.by_id)
        for number, topic in enumerate(registry.by_id.values(), 1):
            if number % IMAGES_A_STEP == 0:
                yield
            has_lost |= self._recover_topic(topic, rebuilt=rebuilt, power_lost=power_lost)
        self._stored.staged.recovered(registry.with_id, registry.staging)
        # In a rebuilt directory, lease ids continue from the clock.
        self._stored.lease_ids.recovered(rebuilt_at_ms=self._clock.now_ms() if rebuilt else 0)
        self._gaps.clear()
        self._expired.clear()
        self._holes.clear()
        self._left_at.clear()
        self._reserved.clear()
        self._lost.clear()
        self._described_ms.clear()
        self._stored.usage.remove_file(lost_file)
        yield from self._routers.recovered()
        return has_lost

    def _recover_topic(self, topic: Topic, *, rebuilt: bool, power_lost: bool) -> bool:
        """Complete one topic once all rows are known; return whether records were lost."""
        has_lost = False
        index, floors = topic.index, topic.floors
        if rebuilt or self._skipped_seqs or incarnation.ends_with_process(topic.config):
            topic.incarnation = incarnation.draw(self._random_bytes)
        # Seqs that a router has forwarded or holds were given out. Their records may be lost by
        # a class that may lose them, or by a failed sync that a process killed at once could
        # not note; but other topics and clients know these seqs.
        known = self._routers.given_out(topic)
        if topic.config.durability == "ephemeral":
            topic.found_visible(known)
            index.kill_through(topic.head)
            # Rows from a time in another class stay gone (R-DUR-5).
            floors.raise_to(deleted=topic.head)
            topic.keys = None  # Keys live as long as their records (R-IDEM-8).
            if topic.producers is not None:
                topic.producers.clear()
            topic.keys_forgotten = topic.head
        floors.gaps = Gaps(self._gaps_of(topic))
        floors.open_holes(sorted(self._expired.get(topic.id, ())), index)
        reserved = self._reserved.get(topic.id, 0)
        given_out = max(known, reserved if power_lost or self._skipped_seqs else 0)
        if self._skipped_seqs:
            given_out = max(topic.head, given_out, self._known_seq(topic.id, topic.name))
            given_out = min(given_out + self._skipped_seqs, SEQ_MAX)
        if given_out > topic.head:
            floors.add_gap(Gap(topic.head + 1, given_out, CRASH))
            topic.found_visible(given_out)
            has_lost = True
        topic.begin_writes(reserved)
        if topic.readers is not None:
            topic.readers.limit(topic.head)
            topic.set_config(topic.config, topic.next_config)
            self._stored.registry.with_readers[topic] = None
        if topic.expiries is not None:
            topic.expiries.recovered()
            topic.set_expiries(topic.expiries if topic.expiries.ends else None)
        topic.retain_caps()
        if topic.id in self._lost:
            has_lost |= self._report_lost(topic, np.concatenate(self._lost.pop(topic.id)))
        floors.settle_gaps(topic.earliest)
        if topic.queue is not None:
            self._recover_queue(topic, topic.queue, rebuilt=rebuilt)
        return has_lost

    def _recover_queue(self, topic: Topic, leases: Leases, *, rebuilt: bool) -> None:
        if rebuilt or self._is_cut or topic.config.durability == "ephemeral":
            leases.move = None  # later ones may have been given up, or were in no log
        leases.recovered(keep=topic.keeps_leases)
        if leases.move is not None and leases.move.seqs:
            self._stored.moving.append(topic)

    def _gaps_of(self, topic: Topic) -> list[Gap]:
        """Return the interior gaps, with the holes of a time in class `ephemeral` that has ended.

        Several frames may have parts of a hole (gone_records.py).
        """
        gaps, left_at = self._gaps.get(topic.id, []), self._left_at.get(topic.id)
        if left_at is None or topic.id not in self._holes:
            return gaps
        joined: list[Gap] = []
        for gap in sorted([*gaps, *(hole for hole in self._holes[topic.id] if hole.last > left_at)]):
            add_gap(joined, gap)
        return joined

    def _report_lost(self, topic: Topic, seqs: NDArray[np.uint64]) -> bool:
        """Turn copies whose originals are lost into gaps, unless a cap or a delete removed them.

        Readers may have seen these copies, and the records that they evicted are gone.
        Returns: whether there were any.
        """
        seqs = seqs[topic.index.alive(seqs)]
        if not len(seqs):
            return False
        topic.index.kill_seqs(seqs)
        gaps, topic.floors.gaps = topic.floors.gaps, Gaps()
        for gap in sorted([*gaps, *(Gap(first, last, CRASH) for first, last in seq_runs(seqs))]):
            topic.floors.add_gap(gap)
        return True


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
