"""The datagram of a connection: what is put in comes out, and nothing else is taken for one."""

from __future__ import annotations

import random

import pytest

from topics.loop.doors.hand_over_message import (
    MESSAGE_BYTES_MAX,
    UNREAD_BYTES_MAX,
    Carried,
    DamagedMessageError,
    decoded,
    encoded,
)

WHOLE = Carried(("127.0.0.1", 50_001), 1, b"GET /v0/topics/a HTTP/1.1\r\n\r\n")


@pytest.mark.parametrize(
    "carried",
    [
        WHOLE,
        Carried(("::ffff:127.0.0.1", 65_535), 255, b"\x00"),
        Carried(("", 0), 1, bytes(range(256)) * (UNREAD_BYTES_MAX // 256)),
    ],
)
def test_what_is_put_in_comes_out(carried: Carried) -> None:
    message = encoded(carried)
    assert decoded(message) == carried
    assert len(message) <= MESSAGE_BYTES_MAX


def test_an_address_of_any_length_fits() -> None:
    carried = decoded(encoded(WHOLE._replace(peer=("a" * 1000, 1))))
    assert carried.peer == ("a" * 255, 1)
    assert carried.unread == WHOLE.unread


def test_a_message_that_is_cut_or_longer_is_none() -> None:
    message = encoded(WHOLE)
    for size in range(len(message)):
        with pytest.raises(DamagedMessageError):
            decoded(message[:size])
    with pytest.raises(DamagedMessageError):
        decoded(message + b"\n")


def test_a_message_with_a_changed_byte_is_none_or_differs_in_a_number_or_the_text_alone() -> None:
    message = encoded(WHOLE)
    refused = 0
    for at in range(len(message)):
        damaged = bytearray(message)
        damaged[at] ^= 0x80
        try:
            carried = decoded(bytes(damaged))
        except DamagedMessageError:
            refused += 1
        else:
            assert len(carried.unread) == len(WHOLE.unread)
            assert sum(mine != other for mine, other in zip(carried, WHOLE, strict=True)) == 1
    assert refused >= 11, "magic, format and lengths"


@pytest.mark.parametrize("damaged", [WHOLE._replace(unread=b""), WHOLE._replace(hand_overs=0)])
def test_a_connection_without_a_request_or_a_journey_is_none(damaged: Carried) -> None:
    with pytest.raises(DamagedMessageError):
        decoded(encoded(damaged))


@pytest.mark.parametrize("seed", range(20))
def test_any_bytes_raise_nothing_but_that_they_are_none(seed: int) -> None:
    rng = random.Random(seed)
    for size in (0, 1, 13, 14, 15, 200):
        with pytest.raises(DamagedMessageError):
            decoded(rng.randbytes(size))
