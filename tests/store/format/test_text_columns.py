"""Texts of frames as columns, by C, against a plain Python model: any frames, any bytes, any room."""

from __future__ import annotations

import random
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.amount import examples
from topics.store.format.log_format import PAYLOAD_BYTES, PAYLOAD_JSON, Frame
from topics.store.read.text_columns import TEXTS, TextColumns

TOPIC = 7
short = st.binary(max_size=40)
frames = st.builds(
    Frame,
    type=st.just(1),
    topic_id=st.just(TOPIC),
    seq=st.integers(0, 2**64 - 1),
    ts_ms=st.integers(0, 2**64 - 1),
    data=st.binary(max_size=400),
    meta=st.none() | short,
    tag=st.none() | short,
    node=st.none() | short,
    ext=short,
    size=st.integers(0, 2**32 - 1),
    deleted=st.booleans(),
    payload_kind=st.sampled_from([PAYLOAD_JSON, PAYLOAD_BYTES]),
)


class Laid(NamedTuple):
    """Frames back to back after `before` bytes, and where each is."""

    data: bytes
    offsets: np.ndarray
    lengths: np.ndarray
    seqs: np.ndarray


def lay(rows: list[Frame], before: int = 0) -> Laid:
    packed = [frame.pack() for frame in rows]
    lengths = np.array([len(one) for one in packed], np.uint32)
    offsets = (np.cumsum(lengths, dtype=np.uint64) - lengths + before).astype(np.uint32)
    seqs = np.array([frame.seq for frame in rows], np.uint64)
    return Laid(b"".join(packed), offsets, lengths, seqs)


def texts_of(columns: TextColumns, name: str) -> list[bytes | None]:
    column = columns.column(name)
    bits = np.unpackbits(column.valid, bitorder="little") if column.valid is not None else None
    text, ends = column.text.tobytes(), column.ends.tolist()
    found: list[bytes | None] = []
    for row in range(len(ends) - 1):
        found.append(text[ends[row] : ends[row + 1]] if bits is None or bits[row] else None)
    assert found.count(None) == column.nulls
    return found


def text_of(frame: Frame, name: str) -> bytes | None:
    if name in ("data", "bytes"):
        return frame.data if (frame.payload_kind == PAYLOAD_BYTES) == (name == "bytes") else None
    text: bytes | None = getattr(frame, name)
    return text


def filled(laid: Laid, names: tuple[str, ...] = TEXTS, *, base: int = 0, room: int = 1, verify: bool = True):
    columns = TextColumns(TOPIC, names, rows=len(laid.seqs), rooms=dict.fromkeys(names, room), verify=verify)
    return columns, columns.add(laid.data, base, laid.offsets, laid.lengths, laid.seqs)


@given(st.lists(frames, max_size=6), st.sets(st.sampled_from(TEXTS)), st.integers(0, 5000), st.integers(1, 2000))
def test_a_column_has_the_texts_of_all_rows_in_order(rows, names, base, room) -> None:
    """Data of bytes ends them if there is no column for it."""
    columns, done = filled(lay(rows, base), tuple(names), base=base, room=room)
    if "data" in names and "bytes" not in names:
        are_bytes = [frame.payload_kind == PAYLOAD_BYTES for frame in rows]
        assert columns.lacks_bytes == any(are_bytes)
        rows = rows[: are_bytes.index(True)] if any(are_bytes) else rows
    else:
        assert not columns.lacks_bytes
    assert done == columns.rows == len(rows)
    for name in names:
        assert texts_of(columns, name) == [text_of(frame, name) for frame in rows]


@given(st.lists(frames, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_what_several_calls_add_is_what_one_adds(rows, rng: random.Random) -> None:
    laid = lay(rows)
    columns = TextColumns(TOPIC, TEXTS, rows=len(rows), rooms=dict.fromkeys(TEXTS, 16), verify=True)
    at = 0
    while at < len(rows):
        part = slice(at, at + rng.randint(1, 3))
        at += columns.add(laid.data, 0, laid.offsets[part], laid.lengths[part], laid.seqs[part])
    for name in TEXTS:
        assert texts_of(columns, name) == [text_of(frame, name) for frame in rows]


@given(st.lists(frames, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_a_flipped_byte_stops_at_its_row_unless_it_is_the_flag_of_the_deleted(rows, rng: random.Random) -> None:
    laid = lay(rows)
    data = bytearray(laid.data)
    at = rng.randrange(len(data))
    data[at] ^= rng.randint(1, 255)
    row = int(np.searchsorted(laid.offsets, at, "right")) - 1
    is_flag = at == int(laid.offsets[row]) + int(laid.lengths[row]) - 1
    columns, done = filled(laid._replace(data=bytes(data)))
    assert done == columns.rows == (len(rows) if is_flag else row)
    for name in TEXTS:
        assert texts_of(columns, name) == [text_of(frame, name) for frame in rows[:done]]


@examples(150)
@given(
    st.binary(max_size=300),
    st.lists(st.tuples(*[st.integers(0, 400)] * 2, st.integers(0, 3)), max_size=6),
    st.integers(0, 100),
    st.booleans(),
)
def test_any_bytes_and_any_rows_are_survived(data: bytes, rows, base: int, verify: bool) -> None:
    offsets, lengths, seqs = (np.array([row[at] for row in rows], np.uint64) for at in range(3))
    laid = Laid(data, offsets.astype(np.uint32), lengths.astype(np.uint32), seqs)
    columns, done = filled(laid, base=base, verify=verify)
    assert done == columns.rows <= len(rows)


@pytest.mark.parametrize(("field", "value"), [("topic_id", 8), ("seq", 10), ("type", 2)])
def test_a_frame_of_another_record_is_not_taken_for_it(field: str, value: int) -> None:
    frame = Frame(1, TOPIC, 9, 5, b"{}")
    laid = lay([frame])
    other = lay([frame._replace(**{field: value})])
    for verify in (True, False):
        assert filled(laid, verify=verify)[1] == 1
        assert filled(laid._replace(data=other.data), verify=verify)[1] == 0


def test_without_verification_a_checksum_is_not_compared() -> None:
    laid = lay([Frame(1, TOPIC, 9, 5, b"{}")])
    data = bytearray(laid.data)
    data[-9] ^= 1
    assert filled(laid._replace(data=bytes(data)))[1] == 0
    assert filled(laid._replace(data=bytes(data)), verify=False)[1] == 1


@given(st.lists(frames, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_without_verification_rotten_lengths_never_leave_the_bytes_given(rows, rng: random.Random) -> None:
    laid = lay(rows)
    data = bytearray(laid.data)
    for _ in range(3):
        data[rng.randrange(len(data))] = rng.randrange(256)
    columns, done = filled(laid._replace(data=bytes(data)), verify=False)
    for name in TEXTS:
        assert len(texts_of(columns, name)) == done
