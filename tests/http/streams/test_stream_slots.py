"""Open streams against their caps."""

import pytest

from tests.engine.fake_store import FakeLoop
from topics.errors import RequestError
from topics.http.access.principal import ALL_SCOPES, Principal
from topics.http.streams.key_limits import KeyLimits
from topics.http.streams.stream_slots import KEYS_GONE_A_PASS, StreamSlots


def key(number: int) -> Principal:
    return Principal(number, ALL_SCOPES, mark=bytes([number]))


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
    held = slots.take(key(7))
    slots.take(key(8))
    slots.take(None)
    slots.take(None)
    with pytest.raises(RequestError, match="PER_KEY"):
        slots.take(key(7))
    held.release()
    slots.take(key(7)).release()
    assert slots.open == 3


def test_a_refusal_names_the_setting_and_not_the_key() -> None:
    """R-CORE-7, also while other cores have not said what they use."""
    limits = KeyLimits("max_watch_sessions_per_key", 2)
    limit = limits.of(key(7))
    assert limit is not None
    assert limit is limits.of(key(7)) is limits.named(limit.name)
    assert limits.named("max_watch_sessions_per_key") is limits.named("max_topics 07") is None
    assert limit.refusal().detail == {"limit": "max_watch_sessions_per_key", "max": 2}
    limit.waits_for = 1
    assert "07" not in limit.refusal().message


def test_streams_of_a_key_that_is_gone_end_some_a_pass() -> None:
    """R-LIFE-10."""
    slots, loop, ended = StreamSlots(0, 0), FakeLoop(), list[int]()
    for number in range(2 * KEYS_GONE_A_PASS + 1):
        slot = slots.take(key(7))
        slot.on_key_gone = lambda number=number, slot=slot: (ended.append(number), slot.release())  # type: ignore[misc]
    stays = slots.take(key(8))
    assert slots.end_others({8}, loop) == 2 * KEYS_GONE_A_PASS + 1
    counts = [len(ended)]
    while loop.waiting:
        loop.advance_ms(0)
        counts.append(len(ended))
    assert counts == [KEYS_GONE_A_PASS, 2 * KEYS_GONE_A_PASS, 2 * KEYS_GONE_A_PASS + 1]
    assert (slots.open, stays.key_id) == (1, 8)
