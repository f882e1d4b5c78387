"""`tp_frame_next` against `tp_frame_batch` with numbers that a topic of the engine moves on.

So seqs and times of records that C gives out are those of the engine's rules.
"""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from topics.engine.state.topic_numbers import TopicNumbers, stamps_of
from topics.store.commits.next_batch import PLACED_ROWS, NextBatch, NextPlace
from topics.store.format._codec import ffi, lib
from topics.store.format.log_format import BATCH_ALIGN, FLAG_FSYNC, align_up
from topics.store.format.rows import PLACED, RowRecord, Rows, pack_rows

CAPACITY = 3 * 4096
FIRST_SEQ, TOPIC, EPOCH = 7, 5, 0xFEED

texts = st.binary(max_size=9)
records = st.lists(
    st.builds(
        RowRecord,
        data=st.binary(min_size=1, max_size=600),
        tag=st.none() | texts,
        node=st.none() | texts,
        meta=st.none() | texts,
        size=st.just(0),
        is_bytes=st.booleans(),
        delay_ms=st.just(0),
        ttl_ms=st.just(0),
    ),
    max_size=5,
)


class Bounds(NamedTuple):
    most: int = CAPACITY
    room: int = CAPACITY
    last_seq: int = 1 << 60


class Model:
    """A model of the next batch."""

    def __init__(self, at: int, bounds: Bounds, *, fsync: bool, syncs: bool) -> None:
        self.memory = ffi.new("char[]", CAPACITY)
        self.at, self.bounds, self.room = at, bounds, bounds.room
        self.flags, self.syncs = FLAG_FSYNC if fsync else 0, syncs
        self.batch_no, self.synced, self.chain = 9, 4, 77
        self.topic = TopicNumbers()
        self.topic.found_visible(FIRST_SEQ - 1, 1000)
        self.topic.begin_writes(0)

    def frame(self, rows: Rows, now_ms: int) -> tuple[int, bytes, tuple[int, ...]]:
        """Return the bytes of the batch (0: none), its PLACED, and what `NextBatch.framed` returns."""
        placed, checksum = ffi.new("char[]", PLACED.size * PLACED_ROWS), ffi.new("uint64_t[1]")
        seq, ts = self.topic.next_seq, self.topic.stamp(now_ms)
        assert stamps_of([self.topic], now_ms) == [ts]
        if not rows.count or seq + rows.count - 1 > self.bounds.last_seq:
            return 0, b"", ()
        before = bytes(ffi.buffer(self.memory))
        used = lib.tp_frame_batch(
            *(self.memory, self.at, CAPACITY, rows.buffer, len(rows.buffer), rows.spans, rows.count),
            *(TOPIC, seq, ts, self.flags, b"", 0, 0, b"", 0, 0),
            *(EPOCH, self.batch_no, self.synced, self.chain, now_ms, placed, checksum),
        )
        if used <= 0 or used > min(self.bounds.most, self.room):
            ffi.buffer(self.memory)[:] = before
            return 0, b"", ()
        framed = (self.at, seq, rows.count, rows.size, ts, checksum[0])
        end = align_up(self.at + used, BATCH_ALIGN)
        self.room, self.at = max(0, self.room - (end - self.at)), end
        self.topic.publish_new(seq + rows.count - 1, ts)
        if self.syncs:
            self.synced = self.batch_no
        self.batch_no, self.chain = self.batch_no + 1, checksum[0]
        return used, ffi.unpack(placed, PLACED.size * rows.count), framed


@given(
    st.lists(st.tuples(records, st.integers(990, 1010)), max_size=12),
    st.sampled_from([0, 64, 4096, 4104]),
    st.builds(
        Bounds,
        most=st.sampled_from([200, 700, CAPACITY]),
        room=st.integers(0, 3000) | st.just(CAPACITY),
        last_seq=st.integers(FIRST_SEQ - 1, FIRST_SEQ + 9) | st.just(1 << 60),
    ),
    st.booleans(),
    st.booleans(),
)
def test_each_next_batch_is_the_one_that_a_model_frames(
    writes: list[tuple[list[RowRecord], int]], at: int, bounds: Bounds, fsync: bool, syncs: bool
) -> None:
    model = Model(at, bounds, fsync=fsync, syncs=syncs)
    memory = ffi.new("char[]", CAPACITY)
    following = NextBatch()
    place = NextPlace(int(ffi.cast("uintptr_t", memory)), at, CAPACITY, *bounds[:2], EPOCH, 9, 4, 77)
    following.begin(place, TOPIC, FIRST_SEQ, bounds.last_seq, 1000, fsync=fsync, syncs=syncs)
    for written, now_ms in writes:
        rows = pack_rows(written)
        used, placed, framed = model.frame(rows, now_ms)
        placed_room = ffi.cast("char *", following.placed)
        found = lib.tp_frame_next(
            *(following.pointer, rows.buffer, len(rows.buffer), rows.spans, rows.count, rows.size, now_ms, placed_room)
        )
        assert found == used
        if used:
            assert following.framed() == framed
            assert following.placed_rows(rows.count) == placed
            end = framed[0] + used
            assert ffi.buffer(memory)[0:end] == ffi.buffer(model.memory)[0:end]
            block_end = align_up(end, 4096)
            assert ffi.buffer(memory)[end:block_end] == bytes(block_end - end)


@given(st.binary(max_size=60), st.binary(min_size=40, max_size=40), st.integers(0, 3))
def test_any_spans_give_a_batch_or_nothing(buffer: bytes, spans: bytes, count: int) -> None:
    memory = ffi.new("char[]", CAPACITY)
    following = NextBatch()
    place = NextPlace(int(ffi.cast("uintptr_t", memory)), 0, CAPACITY, CAPACITY, CAPACITY, EPOCH, 9, 4, 77)
    following.begin(place, TOPIC, 1, 1 << 60, 0, fsync=False, syncs=False)
    placed = ffi.cast("char *", following.placed)
    used = lib.tp_frame_next(following.pointer, buffer, len(buffer), spans * count, count, 0, 1, placed)
    assert 0 <= used <= CAPACITY
