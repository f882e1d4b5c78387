"""The smallest engine that keeps the Catalog's promises: topics as dicts of seq -> place. For tests of the store."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topics.store.format.catalog import NO_TAG, SEQ_MAX, Deletions, FewRows, PackRows, RowColumns, SeqRange
from topics.store.format.file_table import FileKind, FileTable
from topics.store.format.log_format import FrameType, ProducerPart, StagedPiece
from topics.store.format.row_columns import split


class Row(NamedTuple):
    file_id: int
    offset: int
    length: int
    size: int
    ts: int
    flags: int
    tag: bytes | None


@dataclass
class Topic:
    topic_id: int
    name: str
    order: int
    config: str = ""
    config_order: int = 0
    head: int = 0
    floor: int = 0
    reserved: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list)
    rows: dict[int, Row] = field(default_factory=dict)


class FakeCatalog:
    def __init__(self) -> None:
        self.topics: dict[int, Topic] = {}
        self.keys: dict[tuple[int, bytes], tuple[int, int]] = {}
        self.parts: dict[tuple[int, bytes, int, int], tuple[int, int]] = {}
        self.deleted: list[tuple[int, int, Row]] = []
        self.files = FileTable()
        self.calls: list[str] = []
        self.power_lost: bool | None = None
        self.few_together = True
        """Topics with few rows are given together."""

    @property
    def checkpoints(self) -> FakeCatalog:
        return self

    def _count(self, file_id: int, by: int) -> None:
        self.files[file_id].live_rows += by

    # --- recovery --------------------------------------------------------------------------------------------------
    def restore(self, snapshot: bytes | None, *, log_cut: bool = False) -> Generator[None, None, None]:
        self.calls.append("restore")
        for entry in json.loads(bytes(snapshot))["topics"] if snapshot else ():
            topic = Topic(**{**entry, "gaps": [tuple(gap) for gap in entry["gaps"]]})
            self.topics[topic.topic_id] = topic
            yield

    def adopt(self, topic_id: int, description: bytes, described_ms: int) -> None:
        entry = json.loads(description)
        topic = self.topics.setdefault(topic_id, Topic(topic_id, entry["name"], 0))
        topic.config = entry["config"]
        topic.head = max(topic.head, entry["head"])
        topic.floor = max(topic.floor, entry["floor"])

    def log_begins(self, copied_upto: Mapping[int, int]) -> None:
        for topic_id, upto in copied_upto.items():
            if topic_id in self.topics:
                self.topics[topic_id].head = max(self.topics[topic_id].head, upto)

    def see_rows(self, topic_id: int, rows: RowColumns) -> None:
        pass

    def add_pack(self, pack: PackRows) -> None:
        for topic_id, rows in zip(pack.topic_ids.tolist(), split(pack.rows, [0, *pack.ends.tolist()]), strict=True):
            self.add_rows(topic_id, rows)

    def is_untouched(self, topic_id: int) -> bool:
        return False

    def add_rows(self, topic_id: int, rows: RowColumns) -> None:
        topic = self.topics.get(topic_id)
        if topic is None:
            return
        file_id, seqs, offsets, lengths, sizes, ts, flags, tags, table, _dues = rows
        assert (np.diff(seqs.astype(np.int64)) > 0).all()
        assert int(seqs[0]) > max(topic.rows, default=0), "rows come in order"
        columns = (column.tolist() for column in (seqs, offsets, lengths, sizes, ts, flags, tags))
        for seq, offset, length, size, stamp, flag, tag in zip(*columns, strict=True):
            if seq > topic.floor:
                text = None if tag == NO_TAG else table[tag]
                topic.rows[seq] = Row(file_id, offset, length, size, stamp, flag, text)
                self._count(file_id, 1)
        topic.head = max(topic.head, int(seqs[-1]))

    def apply_control(self, kind: int, topic_id: int, seq: int, ts_ms: int, payload: bytes) -> None:
        body = json.loads(payload)
        topic = self.topics.get(topic_id)
        if kind == FrameType.TOPIC_CREATE:
            if topic is None and not any(t.name == body["name"] and t.order > seq for t in self.topics.values()):
                self.topics[topic_id] = Topic(topic_id, body["name"], seq)
        elif topic is None:
            return
        elif kind == FrameType.TOPIC_CONFIG:
            if seq > topic.config_order:
                topic.config, topic.config_order = body["config"], seq
        elif kind == FrameType.TOPIC_DELETE:
            self.drop_topic(topic_id)
        elif kind == FrameType.DELETE_RECORDS:
            self.kill(topic_id, [s for s in body["seqs"] if s <= body["upto"]])
        elif kind == FrameType.FLOORS:
            self.raise_floor(topic_id, body["floor"])
        elif kind == FrameType.HEAD_RESERVATION:
            topic.reserved = max(topic.reserved, body["upto"])

    def add_idempotency(self, topic_id: int, key: bytes, first_seq: int, count: int, started_ms: int) -> None:
        self.keys[topic_id, key] = (first_seq, count)

    def add_piece(self, topic_id: int, first_seq: int, piece: StagedPiece) -> None:
        pass

    def add_part(self, topic_id: int, first_seq: int, part: ProducerPart) -> None:
        self.parts[topic_id, part.producer, part.epoch, part.part] = (first_seq, part.records)

    def recovered(self, *, power_lost: bool) -> Generator[None, None, bool]:
        self.power_lost = power_lost
        has_gaps = False
        for topic in self.topics.values():
            if power_lost and topic.reserved > topic.head:
                topic.gaps.append((topic.head + 1, topic.reserved))
                topic.head = topic.reserved
                has_gaps = True
            yield
        return has_gaps

    # --- what the engine itself does ---------------------------------------------------------------------------------
    def kill(self, topic_id: int, seqs: list[int]) -> None:
        topic = self.topics[topic_id]
        for seq in seqs:
            row = topic.rows.pop(seq, None)
            if row is not None:
                self._count(row.file_id, -1)
                self.deleted.append((topic_id, seq, row))

    def raise_floor(self, topic_id: int, floor: int) -> None:
        topic = self.topics[topic_id]
        topic.floor = max(topic.floor, floor)
        for seq in [seq for seq in topic.rows if seq <= floor]:
            self._count(topic.rows.pop(seq).file_id, -1)

    def drop_topic(self, topic_id: int) -> None:
        for row in self.topics.pop(topic_id).rows.values():
            self._count(row.file_id, -1)

    # --- checkpoint --------------------------------------------------------------------------------------------------
    def topics_in_log(self) -> Iterator[int]:
        return iter(sorted(self.topics))

    def rows_in_files(
        self,
        topic_id: int,
        file_ids: NDArray[np.uint32],
        *,
        first_seq: int = 0,
        last_seq: int = SEQ_MAX,
        rows_max: int = SEQ_MAX,
    ) -> list[RowColumns]:
        topic = self.topics.get(topic_id)
        wanted = set(file_ids.tolist())
        parts: dict[int, list[tuple[int, Row]]] = {}
        count = 0
        for seq, row in sorted(topic.rows.items()) if topic else ():
            if row.file_id in wanted and first_seq <= seq <= last_seq and count < rows_max:
                parts.setdefault(row.file_id, []).append((seq, row))
                count += 1
        return [columns_of(file_id, rows) for file_id, rows in parts.items()]

    def few_rows(self, topic_ids: Sequence[int], file_ids: NDArray[np.uint32], bytes_max: int) -> FewRows:
        found = [
            (topic_id, rows)
            for topic_id in topic_ids
            if self.few_together and (rows := self._few_of(topic_id, set(file_ids.tolist()), bytes_max))
        ]
        rows = [row for _, few in found for row in few.values()]
        return FewRows(
            np.array([topic_id for topic_id, _ in found], np.uint64),
            np.array([len(few) for _, few in found], np.int64),
            [b"".join(self.describe(topic_id)) for topic_id, _ in found],
            np.array([seq for _, few in found for seq in few], np.uint64),
            np.array([row.file_id for row in rows], np.uint32),
            np.array([row.offset for row in rows], np.uint32),
            np.array([row.length for row in rows], np.uint32),
        )

    def _few_of(self, topic_id: int, file_ids: set[int], bytes_max: int) -> dict[int, Row]:
        """The topic's rows in the log, if they are its last ones without holes, few, and in these files."""
        rows = dict(sorted(self.topics[topic_id].rows.items())) if topic_id in self.topics else {}
        few = {seq: row for seq, row in rows.items() if self.files[row.file_id].kind is FileKind.WAL}
        is_whole = bool(few) and list(few) == list(range(min(few), max(rows) + 1))
        is_small = sum(row.length for row in few.values()) < bytes_max
        return few if is_whole and is_small and {row.file_id for row in few.values()} <= file_ids else {}

    def moved_few(self, few: FewRows, file_id: int, offsets: NDArray[np.uint32]) -> list[int]:
        changed: list[int] = []
        ends = np.cumsum(few.counts).tolist()
        for at, (topic_id, count, end) in enumerate(
            zip(few.topic_ids.tolist(), few.counts.tolist(), ends, strict=True)
        ):
            seqs = few.seqs[end - count : end]
            if topic_id in self.topics and all(seq in self.topics[topic_id].rows for seq in seqs.tolist()):
                rows = slice(end - count, end)
                assert not len(self.moved(topic_id, seqs, file_id, offsets[rows], few.lengths[rows]))
            else:
                changed.append(at)
        return changed

    def last_in_files(self, topic_id: int, file_ids: NDArray[np.uint32]) -> int:
        return self.bytes_in_files(topic_id, file_ids).last_seq

    def bytes_in_files(
        self,
        topic_id: int,
        file_ids: NDArray[np.uint32],
        *,
        first_seq: int = 0,
        last_seq: int = SEQ_MAX,
        rows_max: int = SEQ_MAX,
    ) -> SeqRange:
        parts = self.rows_in_files(topic_id, file_ids, first_seq=first_seq, last_seq=last_seq, rows_max=rows_max)
        if not parts:
            return SeqRange(0, 0, 0, 0)
        total = sum(int(part.lengths.sum()) for part in parts)
        first = min(int(part.seqs[0]) for part in parts)
        rows = sum(len(part.seqs) for part in parts)
        return SeqRange(first, max(int(part.seqs[-1]) for part in parts), rows, total)

    def last_shared(self, topic_id: int) -> int:
        return 0

    def moved(
        self,
        topic_id: int,
        seqs: NDArray[np.uint64],
        file_id: int,
        offsets: NDArray[np.uint32],
        lengths: NDArray[np.uint32] | None = None,
    ) -> NDArray[np.uint64]:
        topic = self.topics.get(topic_id)
        died = []
        for seq, offset in zip(seqs.tolist(), offsets.tolist(), strict=True):
            row = topic.rows.get(seq) if topic else None
            if row is None:
                died.append(seq)
            elif lengths is None and self.files[row.file_id].kind is not FileKind.WAL:
                continue  # a checkpoint had copied it, and a kill kept it from recycling the log
            else:
                assert topic is not None
                self._count(row.file_id, -1)
                self._count(file_id, 1)
                topic.rows[seq] = row._replace(file_id=file_id, offset=offset)
        return np.array(died, np.uint64)

    def exists(self, topic_id: int) -> bool:
        return topic_id in self.topics

    def lowest_live_seq(self, topic_id: int) -> int:
        topic = self.topics[topic_id]
        return min(topic.rows, default=topic.head + 1)

    def describe(self, topic_id: int) -> Iterator[bytes]:
        topic = self.topics[topic_id]
        fields = {"name": topic.name, "id": topic_id, "config": topic.config, "head": topic.head, "floor": topic.floor}
        yield json.dumps(fields).encode()

    def prepare_snapshot(self, topics_a_step: int) -> Iterator[None]:
        yield

    def snapshot(self) -> list[bytes]:
        names = ("topic_id", "name", "order", "config", "config_order", "head", "floor", "reserved", "gaps")
        topics = [{name: getattr(topic, name) for name in names} for topic in self.topics.values()]
        return [json.dumps({"topics": topics, "last_id": max(self.topics, default=0)}).encode()]

    def prepare_deletions(self) -> Iterator[None]:
        yield

    def take_deletions(self) -> list[Deletions]:
        deleted, self.deleted = self.deleted, []
        out = []
        for topic_id, seq, row in deleted:
            file = self.files.get(row.file_id)  # none: the segment was written anew without the record
            if file is not None and file.kind in (FileKind.SEGMENT, FileKind.PACK):
                u4 = np.uint32
                out.append(
                    Deletions(
                        topic_id,
                        row.file_id,
                        np.array([seq], np.uint64),
                        np.array([row.offset], u4),
                        np.array([row.length], u4),
                    )
                )
        return out

    def state(self) -> dict[int, object]:
        """Return what must be equal after a restart: everything except the places of records."""
        return {
            topic.topic_id: (
                topic.name,
                topic.config,
                topic.head,
                topic.floor,
                topic.gaps,
                {seq: (row.size, row.ts, row.tag) for seq, row in sorted(topic.rows.items())},
            )
            for topic in self.topics.values()
        }


def columns_of(file_id: int, rows: list[tuple[int, Row]]) -> RowColumns:
    table = sorted({row.tag for _, row in rows if row.tag is not None})
    return RowColumns(
        file_id,
        np.array([seq for seq, _ in rows], np.uint64),
        np.array([row.offset for _, row in rows], np.uint32),
        np.array([row.length for _, row in rows], np.uint32),
        np.array([row.size for _, row in rows], np.uint32),
        np.array([row.ts for _, row in rows], np.uint64),
        np.array([row.flags for _, row in rows], np.uint8),
        np.array([NO_TAG if row.tag is None else table.index(row.tag) for _, row in rows], np.uint32),
        table,
    )
