"""Copies as rows: what one call in C makes of frames, beside the frames as Python reads them."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.amount import seeds
from topics.engine.index.selected_rows import SelectedRows
from topics.engine.read.frame_read import OwnFrames
from topics.engine.routers.copies import copies_of
from topics.errors import CorruptError
from topics.store.format.log_format import PAYLOAD_BYTES, PAYLOAD_JSON, Frame, FrameType
from topics.store.format.rows import BYTES, META, NODE, ROW, TAG

SOURCE = 7


def a_router(**config: Any) -> Any:
    options = {"preserve_tag": True, "preserve_node": True, "guarantee": "at_least_once", **config}
    return SimpleNamespace(config=SimpleNamespace(**options), source=SimpleNamespace(id=SOURCE, name="source"))


def some_frames(rng: random.Random, first: int, count: int) -> list[Frame]:
    def text(chance: float) -> bytes | None:
        return rng.randbytes(rng.randrange(1, 30)) if rng.random() < chance else None

    return [
        Frame(
            FrameType.RECORD,
            SOURCE,
            seq,
            1000 + seq,
            rng.randbytes(rng.randrange(60)),
            text(0.5),
            text(0.5),
            text(0.5),
            text(0.3) or b"",
            rng.randrange(100),
            payload_kind=rng.choice((PAYLOAD_JSON, PAYLOAD_BYTES)),
        )
        for seq in range(first, first + count)
    ]


def as_part(rng: random.Random, frames: list[Frame], base: int) -> OwnFrames:
    """The frames with gaps between them, at file offset `base`."""
    data, offsets, lengths = bytearray(), [], []
    for frame in frames:
        data += rng.randbytes(rng.choice((0, 0, 5)))
        offsets.append(base + len(data))
        packed = frame.pack()
        lengths.append(len(packed))
        data += packed
    count = len(frames)
    numbers = np.zeros(count, np.uint32)
    rows = SelectedRows(
        np.array([frame.seq for frame in frames], np.uint64),
        numbers,
        np.array(offsets, np.uint32),
        np.array(lengths, np.uint32),
        numbers,
        np.zeros(count, np.uint8),
        np.zeros(count, np.uint64),
    )
    return OwnFrames(memoryview(data), base, rows)


@pytest.mark.parametrize("seed", seeds(6))
def test_copies_have_the_texts_of_their_originals_that_the_router_keeps(seed: int) -> None:
    rng = random.Random(f"copies {seed}")
    for _ in range(20):
        tags, nodes = rng.random() < 0.5, rng.random() < 0.5
        frames = some_frames(rng, 1, rng.randint(1, 9))
        cut = rng.randint(0, len(frames) - 1)
        parts = [as_part(rng, some, rng.randrange(5000)) for some in (frames[:cut], frames[cut:]) if some]
        copies = copies_of(a_router(preserve_tag=tags, preserve_node=nodes), parts)
        assert copies.seqs.tolist() == [frame.seq for frame in frames]
        assert copies.sizes == [frame.size for frame in frames]
        rows = copies.first(len(frames))
        assert rows.size == sum(frame.size for frame in frames)
        for frame, row in zip(frames, ROW.iter_unpack(rows.spans), strict=True):
            data, meta, tag, node = (bytes(rows.buffer[row[at] : row[at] + row[at + 1]]) for at in (0, 2, 4, 6))
            flags = row[9]
            assert data == frame.data
            assert (meta if flags & META else None) == frame.meta
            assert (tag if flags & TAG else None) == (frame.tag if tags else None)
            assert (node if flags & NODE else None) == (frame.node if nodes else None)
            assert bool(flags & BYTES) == (frame.payload_kind == PAYLOAD_BYTES)


def test_a_damaged_frame_and_one_of_another_record_are_errors_that_name_topic_and_seq() -> None:
    rng = random.Random(1)
    frames = some_frames(rng, 3, 4)
    part = as_part(rng, frames, 100)
    part.data[int(part.rows.offsets[2]) - 100 + 50] ^= 1
    with pytest.raises(CorruptError) as raised:
        copies_of(a_router(), [part])
    assert raised.value.detail == {"topic": "source", "seq": 5}
    moved = as_part(rng, [frames[0]._replace(seq=9)], 0)
    moved.rows.seqs[0] = 3
    with pytest.raises(CorruptError) as raised:
        copies_of(a_router(), [moved])
    assert raised.value.detail == {"topic": "source", "seq": 3}
