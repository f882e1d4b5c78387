"""Bodies of orders and chunks between the ends of a far feed: what one end says is what the other one reads."""

from __future__ import annotations

import pytest

from topics.common.values.answers import Tombstone
from topics.common.values.configs import Predicate
from topics.engine.delivery.frames import Burst, CaughtUpFrame, DeletedFrame, RecordsFrame, TombstoneFrame
from topics.engine.values.node_set import node_set
from topics.engine.values.results import DiffQuery
from topics.errors import RequestError
from topics.http.relay.relay_message import DamagedRelayError
from topics.http.spanning.feed_messages import (
    TAKEN_IN_FROM,
    DropPrefixes,
    FillPlaces,
    Follow,
    GiveBack,
    Leave,
    Order,
    Read,
    SentBurst,
    SentFailure,
    SentName,
    TakeIn,
    burst_chunk,
    bytes_of_nodes,
    failure_chunk,
    left_out_chunk,
    order_bytes,
    read_chunk,
    read_order,
    taken_in_chunk,
)

QUERY = DiffQuery(
    limit=7,
    nodes=node_set([b"a", b"\xffb"]),
    include_tags=True,
    include_meta=False,
    include_data=False,
    max_batch_bytes=1 << 40,
    only_nodes=True,
    match=Predicate(True, b"\xc3\xa4"),
)
FRAMES = (
    TombstoneFrame("t", Tombstone(3, 9, "cap", 7, 10, 1 << 63), 9),
    RecordsFrame("t", 2, 11, 12, b'{"$seq":10,"data":1}'),
    CaughtUpFrame("t", 11, 12),
)


@pytest.mark.parametrize(
    "order",
    [
        Read.of(QUERY),
        Read.of(DiffQuery()),
        Follow(1, "t", 1 << 63),
        Leave(1 << 40, "t"),
        TakeIn(("a", ""), ("b",), 7, [(1, "a", 0)]),
        DropPrefixes(["a"]),
        GiveBack("a"),
        FillPlaces(),
    ],
)
def test_an_order_is_read_as_it_was_meant(order: Order) -> None:
    assert read_order(order_bytes(order)) == order


@pytest.mark.parametrize("query", [QUERY, DiffQuery()])
def test_a_query_comes_with_all_that_says_which_records_are_read(query: DiffQuery) -> None:
    order = read_order(order_bytes(Read.of(query)))
    assert isinstance(order, Read)
    assert order.query() == query


@pytest.mark.parametrize("frames", [FRAMES, FRAMES[1:2], (DeletedFrame("t", 5),)])
@pytest.mark.parametrize("is_fresh", [False, True])
def test_a_burst_is_read_as_it_was_delivered(frames: tuple[RecordsFrame, ...], is_fresh: bool) -> None:
    burst = Burst(frames, 0)
    sent = read_chunk(burst_chunk(5, burst, is_fresh=is_fresh))
    assert isinstance(sent, SentBurst)
    assert (sent.number, sent.is_fresh, sent.frames("t")) == (5, is_fresh, frames)


def test_readers_with_the_same_number_share_the_bytes_of_a_burst() -> None:
    burst = Burst(FRAMES, 0)
    chunk = burst_chunk(5, burst, is_fresh=False)
    assert burst_chunk(5, burst, is_fresh=False) is chunk
    assert len({burst_chunk(number, burst, is_fresh=fresh) for number in (5, 6) for fresh in (False, True)}) == 4


def test_the_end_of_a_subscription_has_its_error() -> None:
    sent = read_chunk(failure_chunk(3, RequestError("internal", "a checksum is wrong")))
    assert isinstance(sent, SentFailure)
    assert (sent.number, sent.error.code, sent.error.message) == (3, "internal", "a checksum is wrong")


def test_a_topic_that_was_taken_in_or_left_out_has_its_name() -> None:
    assert read_chunk(taken_in_chunk(TAKEN_IN_FROM + 1, "t")) == SentName(TAKEN_IN_FROM + 1, "t", 0)
    assert read_chunk(left_out_chunk("t", 256)) == SentName(0, "t", 256)


def test_damage_is_no_order_and_no_chunk() -> None:
    order, chunk = order_bytes(Read.of(QUERY)), burst_chunk(5, Burst(FRAMES, 0), is_fresh=True)
    for size in range(len(order)):
        with pytest.raises(DamagedRelayError):
            read_order(order[:size])
    for size in range(len(chunk)):
        with pytest.raises(DamagedRelayError):
            read_chunk(chunk[:size])
    with pytest.raises(DamagedRelayError):
        read_chunk(chunk[:8] + b"\x09" + chunk[9:])
    with pytest.raises(DamagedRelayError):
        read_chunk(chunk[:9] + b"\x90")


def test_equal_queries_that_share_their_nodes_hold_them_once() -> None:
    other = QUERY._replace(nodes=node_set([b"longer"]))
    assert bytes_of_nodes([QUERY, QUERY._replace(limit=1), other]) == len(QUERY.nodes) + len(other.nodes)
