"""Messages between cores: what was encoded is decoded, and what is damaged is no message."""

from __future__ import annotations

import random
import struct
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.amount import examples
from topics.http.relay.relay_message import (
    _HEADER,
    ANSWERS,
    REQUESTS,
    ROWS_MAX,
    DamagedRelayError,
    RelayDecoder,
    RelayRow,
    _sum_of,
    encoded,
    encoded_columns,
)

ROWS = st.lists(
    st.builds(
        RelayRow,
        st.integers(0, (1 << 64) - 1),
        st.integers(0, (1 << 16) - 1),
        st.binary(max_size=60),
        st.binary(max_size=200) | st.just(bytes(range(256)) * 300),
    ),
    max_size=8,
)


def message(kind: int, begun: int, rows: list[RelayRow]) -> bytes:
    return b"".join(encoded(kind, begun, rows))


def message_of(rows: list[RelayRow]) -> bytes:
    return message(REQUESTS, 0, rows)


def in_pieces(data: bytes, chance: random.Random) -> list[bytes]:
    cuts = sorted(chance.randrange(len(data) + 1) for _ in range(chance.randint(0, 6)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def fed(kind: int, pieces: list[bytes]) -> list[tuple[int, list[RelayRow]]]:
    decoder = RelayDecoder(kind)
    found = [message for piece in pieces for message in decoder.feed(memoryview(piece))]
    return [(each.begun, [row._replace(body=bytes(row.body)) for row in each.rows()]) for each in found]


@examples(400)
@given(st.lists(st.tuples(st.integers(0, (1 << 64) - 1), ROWS), min_size=1, max_size=4), st.randoms())
def test_messages_come_out_as_they_went_in_however_they_are_cut(
    messages: list[tuple[int, list[RelayRow]]], chance: random.Random
) -> None:
    data = b"".join(message(ANSWERS, begun, rows) for begun, rows in messages)
    assert fed(ANSWERS, in_pieces(data, chance)) == messages


def test_a_large_body_is_not_copied() -> None:
    body = bytes(1 << 20)
    parts = encoded(
        REQUESTS, 0, [RelayRow(1, 1, b"head", b"small"), RelayRow(2, 1, b"", body), RelayRow(3, 1, b"", b"last")]
    )
    assert [part is body for part in parts] == [False, True, False]


@examples(400)
@given(ROWS, st.randoms())
def test_a_message_with_a_changed_byte_is_none_unless_it_is_one_of_a_body(
    rows: list[RelayRow], chance: random.Random
) -> None:
    data = bytearray(message(REQUESTS, 7, rows))
    at = chance.randrange(len(data) - sum(len(row.body) for row in rows))
    data[at] ^= 1 << chance.randrange(8)
    decoder = RelayDecoder(REQUESTS)
    try:
        assert list(decoder.feed(bytes(data))) == [], "it waits for what its header says"
    except DamagedRelayError:
        with pytest.raises(DamagedRelayError, match="follows"):
            list(decoder.feed(message(REQUESTS, 7, rows)))


@examples(200)
@given(st.lists(st.tuples(st.integers(0, (1 << 64) - 1), st.binary(max_size=200)), min_size=1, max_size=8))
def test_columns_of_answers_are_a_message(answers: list[tuple[int, bytes]]) -> None:
    numbers, texts = array("Q", [number for number, _ in answers]), [text for _, text in answers]
    sizes = array("I", map(len, texts))
    data = encoded_columns(5, 2, numbers.tobytes(), sizes.tobytes(), b"".join(texts))
    assert fed(ANSWERS, [data]) == [(5, [RelayRow(number, 2, b"", text) for number, text in answers])]


def test_rows_with_the_same_head_share_it() -> None:
    rows = [RelayRow(number, 1, b"a head" if number % 2 else b"another", b"") for number in range(1, 6)]
    (message,) = RelayDecoder(REQUESTS).feed(message_of(rows))
    assert (message.heads, message.whose) == ([b"a head", b"another"], (0, 1, 0, 1, 0))


def test_a_row_whose_head_is_not_there_is_none() -> None:
    data = bytearray(message_of([RelayRow(1, 1, b"head", b"")]))
    whose = _HEADER.size + 8 + 4 + 2
    data[whose] = 1
    data[_HEADER.size - 8 : _HEADER.size] = struct.pack(
        "=Q", _sum_of(bytes(data[: _HEADER.size - 8]), bytes(data[_HEADER.size :]))
    )
    with pytest.raises(DamagedRelayError, match="head 1 of 1"):
        list(RelayDecoder(REQUESTS).feed(bytes(data)))


@examples(400)
@given(ROWS, st.randoms())
def test_the_beginning_of_a_message_is_none(rows: list[RelayRow], chance: random.Random) -> None:
    data = message(REQUESTS, 0, rows)
    assert fed(REQUESTS, in_pieces(data[: chance.randrange(len(data))], chance)) == []


@examples(400)
@given(st.binary(min_size=40, max_size=400))
def test_garbage_is_no_message(data: bytes) -> None:
    with pytest.raises(DamagedRelayError):
        fed(REQUESTS, [data])


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(message(ANSWERS, 0, []), id="the other kind"),
        pytest.param(message(REQUESTS, 0, [RelayRow(1, 1, b"", b"")] * (ROWS_MAX + 1)), id="too many rows"),
        pytest.param(message(REQUESTS, 0, [])[:16] + b"\xff" * 24, id="too many bytes"),
    ],
)
def test_a_message_that_no_core_sends_is_refused_with_its_header(data: bytes) -> None:
    with pytest.raises(DamagedRelayError):
        fed(REQUESTS, [data])
