"""A whole store on the simulated ring, with the fake catalog: written, checkpointed, killed, cut off, opened again."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from tests.sim import SimRing
from tests.store.fake_catalog import FakeCatalog, Row, Topic
from topics.config import Config, tiny_config
from topics.errors import StorageError
from topics.loop import Loop
from topics.store.commits.write_batch import Commit
from topics.store.disk.data_directory import lock_to_read
from topics.store.format.log_format import Frame, FrameType, Idempotency, pack_idempotency
from topics.store.format.rows import RowRecord, pack_rows
from topics.store.read.file_range import FileRange
from topics.store.store import Store

DIRECTORY = "data"


def small_config(**changes: Any) -> Config:
    config = replace(
        tiny_config(DIRECTORY), disk_low_water_bytes=0, disk_reserve_bytes=0, wal_file_bytes=65536, wal_spare_files=1
    )
    return replace(config, **changes)


class StoreWorld:
    """One life of a store. `next_life` gives the next one on the same disk."""

    def __init__(self, ring: SimRing | None = None, *, config: Config | None = None, seed: int = 0) -> None:
        self.ring = ring or SimRing(seed)
        self.loop = Loop(self.ring, self.ring.clock)
        self.config = config or small_config()
        self.catalog = FakeCatalog()
        self.progress: list[float] = []
        self.order = 0
        self.acked: dict[int, set[int]] = {}
        """Topic id -> seqs whose commit came back, synced."""
        self.store: Store

    def open(self) -> StoreWorld:
        self.store = self.run(Store.open(self.loop, self.config, self.catalog, on_progress=self.progress.append))
        self.order = max((t.order for t in self.catalog.topics.values()), default=0)
        self.order = max([self.order, *(t.config_order for t in self.catalog.topics.values())])
        return self

    def open_frozen(self) -> StoreWorld:
        self.store = self.run(
            Store.open(self.loop, self.config, self.catalog, directory=lock_to_read(self.ring, self.config))
        )
        return self

    def run(self, coro: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_task(coro)

    # --- what an engine does -----------------------------------------------------------------------------------------
    def commit(self, topic_id: int, *, synced: bool = True) -> Commit:
        got: list[Commit] = []
        self.store.log.when_committed(topic_id, synced, got.append)
        self.loop.run_until(lambda: bool(got))
        if got[0].error is not None:
            raise got[0].error
        return got[0]

    def control(self, topic_id: int, kind: FrameType, seq: int, body: dict[str, Any]) -> None:
        payload = json.dumps(body).encode()
        self.store.log.stage_control(topic_id, kind, seq, 0, payload)
        self.commit(topic_id)
        self.catalog.apply_control(kind, topic_id, seq, 0, payload)

    def create(self, topic_id: int, name: str = "") -> None:
        self.order += 1
        self.control(topic_id, FrameType.TOPIC_CREATE, self.order, {"name": name or f"t{topic_id}"})

    def configure(self, topic_id: int, config: str) -> None:
        self.order += 1
        self.control(topic_id, FrameType.TOPIC_CONFIG, self.order, {"config": config})

    def drop(self, topic_id: int) -> None:
        self.order += 1
        self.control(topic_id, FrameType.TOPIC_DELETE, self.order, {})

    def delete(self, topic_id: int, seqs: list[int]) -> None:
        upto = self.catalog.topics[topic_id].head
        self.control(topic_id, FrameType.DELETE_RECORDS, 0, {"seqs": seqs, "upto": upto})

    def evict(self, topic_id: int, floor: int) -> None:
        self.control(topic_id, FrameType.FLOORS, 0, {"floor": floor})

    def append(
        self,
        topic_id: int,
        count: int = 1,
        *,
        size: int = 40,
        tag: bytes | None = None,
        fsync: bool = True,
        key: bytes | None = None,
        first_seq: int | None = None,
    ) -> list[int]:
        """One request's records, committed and published."""
        topic = self.catalog.topics[topic_id]
        first = first_seq or topic.head + 1
        records = [RowRecord(text_of(topic_id, first + i, size), tag=tag) for i in range(count)]
        ts = self.ring.clock.now_ms()
        extension = pack_idempotency(Idempotency(count, ts, key)) if key is not None else b""
        framed = self.store.log.stage_records(topic_id, first, ts, pack_rows(records), fsync=fsync, extension=extension)
        lengths = framed.lengths.tolist()
        topic.head = first + count - 1
        commit = self.commit(topic_id, synced=fsync)
        at = commit.base + framed.start
        for i, (record, length) in enumerate(zip(records, lengths, strict=True)):
            flags = (1 if tag is not None else 0) | (16 if fsync else 0) | (8 if key is not None and i == 0 else 0)
            topic.rows[first + i] = Row(commit.file_id, at, length, len(record.data), ts, flags, tag)
            self.catalog._count(commit.file_id, 1)
            at += length
        if fsync:
            self.acked.setdefault(topic_id, set()).update(range(first, first + count))
        return list(range(first, first + count))

    def read(self, topic_id: int, seq: int) -> Frame:
        """The frame of a row of the index, verified."""
        row = self.catalog.topics[topic_id].rows[seq]
        got: list[Any] = []
        self.store.reader.fetch(
            [FileRange(row.file_id, row.offset, row.length)],
            lambda found: got.append(found if isinstance(found, StorageError) else bytes(found[0])),
        )
        self.loop.run_until(lambda: bool(got))
        assert isinstance(got[0], bytes), got[0]
        frame = Frame.unpack(got[0], f"topic {topic_id} seq {seq}")
        assert (frame.topic_id, frame.seq) == (topic_id, seq)
        return frame

    def check_every_record(self) -> None:
        """Each live row leads to its own bytes, and every file counts its rows right."""
        counts: dict[int, int] = {}
        for topic_id, topic in self.catalog.topics.items():
            for seq, row in topic.rows.items():
                frame = self.read(topic_id, seq)
                assert frame.data == text_of(topic_id, seq, row.size)
                assert frame.tag == row.tag
                counts[row.file_id] = counts.get(row.file_id, 0) + 1
        for file in self.store.files:
            assert file.live_rows == counts.get(file.file_id, 0), file

    def checkpoint(self) -> None:
        self.run(self.store.checkpointer.run())
        self.passes(20)

    def passes(self, count: int) -> None:
        for _ in range(count):
            self.loop.run_pass(0)

    # --- ends --------------------------------------------------------------------------------------------------------
    def close(self) -> None:
        self.run(self.store.close())

    def end(self, *, power_cut: bool) -> SimRing:
        """Killed, or the power is cut; the ring of the next life."""
        ring = self.ring.next_life(power_cut=power_cut)
        for task in list(self.loop._tasks):
            with contextlib.suppress(AssertionError, RuntimeError):  # its `finally` finds the ring closed
                task._coro.close()
        return ring

    def next_life(self, *, power_cut: bool = False, config: Config | None = None) -> StoreWorld:
        return StoreWorld(self.end(power_cut=power_cut), config=config or self.config).open()

    def topic(self, topic_id: int) -> Topic:
        return self.catalog.topics[topic_id]

    def files(self, directory: str) -> list[str]:
        """Names below the data directory."""
        try:
            return list(self.ring.disk.list_directory(f"{DIRECTORY}/{directory}"))
        except FileNotFoundError:
            return []


def text_of(topic_id: int, seq: int, size: int) -> bytes:
    """The data of a record: JSON that states where it belongs, `size` bytes long if that is enough."""
    head = b'"%d/%d/' % (topic_id, seq)
    return head + b"x" * max(0, size - len(head) - 1) + b'"'
