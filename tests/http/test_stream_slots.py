"""Open streams against their caps."""

import pytest

from topics.errors import RequestError
from topics.http.streams.stream_slots import StreamSlots


def test_streams_count_from_their_opening_to_their_end() -> None:
    """R-SSE-5, R-LIM-1: a refused one holds nothing, one that ends makes room, once."""
    slots = StreamSlots(2, 0)
    first, second = slots.take(None), slots.take(None)
    with pytest.raises(RequestError) as caught:
        slots.take(None)
    assert (caught.value.code, caught.value.detail) == ("throttled", None)
    assert slots.open == 2
    first.release()
    first.release()
    assert slots.open == 1
    third = slots.take(None)
    second.release()
    third.release()
    assert slots.open == 0


def test_streams_of_a_key_have_a_cap_of_their_own() -> None:
    """R-SSE-5: which another key does not feel, and which without keys there is none of."""
    slots = StreamSlots(0, 1)
    held = slots.take(7)
    slots.take(8)
    slots.take(None)
    slots.take(None)
    with pytest.raises(RequestError, match="PER_KEY"):
        slots.take(7)
    held.release()
    slots.take(7).release()
    assert slots.open == 3
