"""Frames put together before their seqs are known are those that would have been made then."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.store.log_world import LogWorld, Write, recover
from topics.errors import CorruptError, RequestError, StorageError
from topics.store.commits import write_batch
from topics.store.commits.write_batch import Commit
from topics.store.format import codec
from topics.store.format.log_format import BATCH_HEADER_BYTES, Frame
from topics.store.format.rows import ROW, RowRecord, Rows, pack_rows
from topics.store.in_memory.prebuilt_frames import PrebuiltFrames, gather, parts_of, room_for
from topics.store.wal.staging import Staging
from topics.store.wal.write_latch import WriteLatch

names = st.none() | st.binary(max_size=6)
texts = {"data": st.binary(min_size=1, max_size=20), "meta": names, "tag": names, "node": names}
kinds = {"size": st.just(0), "is_bytes": st.booleans()}
undelayed = st.builds(RowRecord, **texts, **kinds, delay_ms=st.just(0), ttl_ms=st.just(0))  # type: ignore[arg-type]
records = st.builds(
    RowRecord,
    **texts,
    **kinds,
    delay_ms=st.just(0) | st.integers(0, 1 << 48),
    ttl_ms=st.just(0) | st.integers(0, 1 << 48),
)  # type: ignore[arg-type]


def framed(rows: Rows, node: bytes | None = None, **where: Any) -> tuple[bytes, Any]:
    values = {"topic_id": 5, "first_seq": 10, "ts_ms": 7, "extension": b"other"} | where
    return codec.frame_rows(rows, node=node, **values)


def body(frames: PrebuiltFrames) -> bytes:
    return bytes(memoryview(frames.memory)[BATCH_HEADER_BYTES : frames.used])


@given(
    st.lists(st.lists(undelayed, min_size=1, max_size=4), max_size=3),
    st.lists(records, min_size=1, max_size=4),
    names,
    st.binary(max_size=9),
    st.booleans(),
    st.integers(1, 300),
)
def test_frames_of_another_topic_and_rows_become_the_frames_of_one_append(  # noqa: PLR0917 - what is drawn
    taken: list[list[RowRecord]], added: list[RowRecord], node: bytes | None, ext: bytes, fsync: bool, size: int
) -> None:
    """Frames built before, in pieces that bear extensions, and rows that come last."""
    last = pack_rows(added)
    parts = [framed(pack_rows(part), b"w") for part in taken]
    frames = PrebuiltFrames(
        sum(len(data) for data, _ in parts) + len(ext) + room_for(last, node), 0 if parts else len(ext)
    )
    extension = ext
    for data, placed in parts:
        columns = placed.columns()
        seqs = np.arange(10, 10 + len(columns), dtype=np.uint64)
        frames.take(memoryview(b"xx" + data), 3, columns["start"] + np.uint32(5), columns["length"], seqs, 5, extension)
        extension = b""
    for some in parts_of(last, size):
        frames.add_rows(some, node)
    if not parts:
        frames.extend(ext)
    together = [record if record.node is not None else record._replace(node=b"w") for part in taken for record in part]
    together += [record if record.node is not None else record._replace(node=node) for record in added]
    expected, places = framed(pack_rows(together), topic_id=9, first_seq=40, ts_ms=8, fsync=fsync, extension=ext)
    for _ in range(2):  # numbered twice, it is what it would have been the second time
        found = frames.number(9, 40, 8, fsync=fsync)
    assert body(frames) == expected
    assert found.placed == places.placed


def test_a_frame_that_is_another_one_or_not_sound_is_refused() -> None:
    data, placed = framed(pack_rows([RowRecord(b"1"), RowRecord(b"2")]))
    columns = placed.columns()
    seqs = np.array([10, 11], np.uint64)
    for at, topic_id, moved in ((70, 5, 0), (0, 6, 0), (0, 5, 1)):
        damaged = bytearray(data)
        damaged[at] ^= at > 0
        with pytest.raises(CorruptError, match="does not match"):
            PrebuiltFrames(1000).take(
                memoryview(damaged), 0, columns["start"], columns["length"], seqs + np.uint64(moved), topic_id
            )


def test_they_are_a_batch_of_their_own_between_what_was_staged_before_and_behind() -> None:
    """And are found by a replay like any others."""
    world = LogWorld()
    log = world.log
    ended: list[tuple[str, Commit]] = []
    frames = PrebuiltFrames(10_000, 3)
    frames.add_rows(pack_rows([RowRecord(b'"gathered"')] * 3), None)
    frames.extend(b"\x63\x00\x00")
    log.stage_control(1, 5, 1, 1, b'"before"')
    log.when_committed(1, False, lambda commit: ended.append(("before", commit)))
    log.begin_batch(1)
    log.stage_control(1, 6, 3, 1, b'"with them"')
    log.when_committed(1, False, lambda commit: ended.append(("with them", commit)))
    placed = log.stage_prebuilt(
        1, frames, 4, 9, fsync=False, synced=True, done=lambda commit: ended.append(("gathered", commit))
    )
    log.stage_control(1, 5, 7, 1, b'"behind"')
    log.when_committed(1, False, lambda commit: ended.append(("behind", commit)))
    world.loop.run_until(lambda: len(ended) == 4)
    assert [name for name, _ in ended] == ["before", "with them", "gathered", "behind"]
    commit = ended[2][1]
    assert ended[1][1] == commit
    assert commit.sync_ns
    data = world.read(Write(1, [4, 5, 6], False, placed.start, placed.lengths.tolist(), commit))
    starts = placed.columns()["start"].tolist()
    found = [
        Frame.unpack(data[start : start + length], "a frame")
        for start, length in zip(starts, placed.lengths.tolist(), strict=True)
    ]
    assert [(frame.topic_id, frame.seq, frame.ts_ms, frame.data) for frame in found] == [
        (1, seq, 9, b'"gathered"') for seq in (4, 5, 6)
    ]
    assert [frame.ext for frame in found] == [b"\x63\x00\x00", b"", b""]
    assert recover(world.crash("kill")).seqs[1] == [1, 4, 5, 6, 3, 7]


def test_the_pages_of_a_long_record_are_touched_a_step_at_a_time_before_it_is_copied() -> None:
    """The first touches of its pages, here and in the hot tail, were in the step of its copy: 25 ms for 8 MB."""
    rows = pack_rows([RowRecord(b"1"), RowRecord(b'"%b"' % (b"x" * 50_000)), RowRecord(b"2")])
    made: list[PrebuiltFrames] = []

    def work() -> Iterator[None]:
        made.append((yield from gather(rows, None, 0, 10_000)))

    assert sum(1 for _ in work()) == 2 + 2 * 6
    (frames,) = made
    at_once = PrebuiltFrames(room_for(rows, None))
    at_once.add_rows(rows, None)
    for each in (frames, at_once):
        each.number(1, 1, 1, fsync=False)
    assert body(frames) == body(at_once)


def test_they_fail_with_their_batch() -> None:
    world = LogWorld()
    ended: list[Commit] = []
    frames = PrebuiltFrames(1000)
    frames.add_rows(pack_rows([RowRecord(b"1")]), None)
    world.ring.faults.fail("write", errno.EIO)
    world.log.stage_prebuilt(1, frames, 1, 1, fsync=False, synced=False, done=ended.append)
    world.loop.run_until(lambda: bool(ended))
    assert isinstance(ended[0].error, StorageError)
    with pytest.raises(StorageError, match="read-only"):
        world.log.stage_prebuilt(1, frames, 1, 1, fsync=False, synced=False, done=ended.append)


def test_a_large_batch_is_sealed_and_copied_over_several_passes_and_is_what_it_would_be_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A write that is staged meanwhile comes after it; a file that is left amid that moves the copy."""
    monkeypatch.setattr(write_batch, "_PREPARED_BYTES", 1000)
    for rotates in (False, True):
        world = LogWorld()
        log = world.log
        ended: list[tuple[str, Commit]] = []
        records = [RowRecord(b'"%d %b"' % (number, b"x" * 900)) for number in range(10)]
        rows = pack_rows(records)
        frames = PrebuiltFrames(room_for(rows, None))
        frames.add_rows(rows, None)
        log.stage_control(1, 5, 1, 1, b'"before"')
        log.when_committed(1, False, lambda its: ended.append(("before", its)))  # noqa: B023
        log.begin_batch(1)
        placed = log.stage_prebuilt(
            1,
            frames,
            4,
            9,
            fsync=False,
            synced=False,
            done=lambda its: ended.append(("gathered", its)),  # noqa: B023
        )
        world.loop.run_until(lambda: bool(ended))  # noqa: B023
        for _ in range(3):
            world.loop.run_pass(0)
        assert [name for name, _ in ended] == ["before"], "it takes more passes than these"
        log.stage_control(1, 5, 14, 1, b'"behind"')
        log.when_committed(1, False, lambda its: ended.append(("behind", its)))  # noqa: B023
        if rotates:
            log.request_rotation()
        world.loop.run_until(lambda: len(ended) == 3)  # noqa: B023
        assert [name for name, _ in ended] == ["before", "gathered", "behind"]
        its = ended[1][1]
        assert (its.file_id != ended[0][1].file_id) == rotates
        write = Write(1, list(range(4, 14)), False, placed.start, placed.lengths.tolist(), its)
        data = world.read(write)
        assert [
            Frame.unpack(data[start - placed.start : start - placed.start + length], "a frame").data
            for start, length in zip(placed.columns()["start"].tolist(), placed.lengths.tolist(), strict=True)
        ] == [record.data for record in records]


@pytest.mark.parametrize("passes", [1, 2, 3, 5])
def test_a_large_batch_that_is_prepared_in_part_is_prepared_whole_when_use_becomes_exclusive(
    monkeypatch: pytest.MonkeyPatch, passes: int
) -> None:
    monkeypatch.setattr(write_batch, "_PREPARED_BYTES", 1000)
    world = LogWorld()
    world.write()
    world.settle()
    rows = pack_rows([RowRecord(b'"%b"' % (b"x" * 900))] * 10)
    frames = PrebuiltFrames(room_for(rows, None))
    frames.add_rows(rows, None)
    ended: list[Commit] = []
    world.log.begin_batch(1)
    world.log.stage_prebuilt(1, frames, 2, 9, fsync=False, synced=True, done=ended.append)
    world.passes(passes)
    world.log.commit_in_place()
    world.loop.run_until(lambda: bool(ended))
    assert ended[0].error is None
    assert recover(world.crash("power")).seqs[1] == list(range(1, 12))


def overlapping(count: int) -> Rows:
    """Records of 16 MiB that are all the same bytes."""
    size = 16 << 20
    return Rows(bytes(size), ROW.pack(0, size, 0, 0, 0, 0, 0, 0, size, 0) * count, count, size * count)


def test_records_that_exceed_a_batch_are_refused_before_memory_is_taken_for_them() -> None:
    staging = Staging(WriteLatch())
    staging.stage_records(1, 1, 0, pack_rows([RowRecord(b"1")]), fsync=False)
    before = staging.size
    for step in (
        lambda: staging.stage_records(1, 2, 0, overlapping(256), fsync=False),
        lambda: codec.frame_rows(overlapping(256), topic_id=1, first_seq=1, ts_ms=0),
        lambda: PrebuiltFrames(room_for(overlapping(256), None)),
    ):
        with pytest.raises(RequestError, match="write less than 4 GiB at a time") as refused:
            step()
        assert refused.value.code == "batch_too_large"
    assert staging.size == before
    assert staging.filling.frames == 1
