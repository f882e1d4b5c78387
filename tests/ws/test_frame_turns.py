"""Frames of a pass within a budget: floods wait, in turn, and nothing is lost or reordered. R-WS-7."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from tests.ws.frame_client import frame, text
from tests.ws.passes import Passes, no_turns
from tests.ws.test_session import Peer, publish
from topics.ws.frame_turns import FrameTurns
from topics.ws.framing import Framing
from topics.ws.session import HELD_BYTES

PING, PONG, TEXT, CONTINUATION = 9, 10, 1, 0


def numbered(count: int, size: int = 4) -> bytes:
    return b"".join(frame(PING, b"%0*d" % (size, number)) for number in range(count))


def pongs(peer: Peer) -> list[int]:
    return [int(payload) for opcode, payload in peer.wire.frames if opcode == PONG]


def test_a_flood_of_pings_is_answered_in_order_so_many_a_pass() -> None:
    peer = Peer(budget=100)
    peer.session.receive(numbered(350))
    assert pongs(peer) == list(range(100))
    for done in (200, 300, 350):
        peer.passes.end(peer.turns)
        assert pongs(peer) == list(range(done))
    assert peer.passes.asked == 3, "the loop comes back while somebody waits, and no more often"
    peer.passes.end(peer.turns)
    peer.session.receive(numbered(1))
    assert pongs(peer)[350:] == [0]


def test_hooks_that_run_again_in_a_pass_give_no_further_turn() -> None:
    """A pass of the loop had eight budgets, and took 40 ms."""
    peer = Peer(budget=100)
    peer.session.receive(numbered(350))
    peer.turns.next_pass()
    assert len(pongs(peer)) == 100
    peer.passes.end(peer.turns, hooks=8)
    assert len(pongs(peer)) == 200
    peer.passes.end(peer.turns, hooks=8)
    assert len(pongs(peer)) == 300


def test_publishes_that_expire_very_many_records_are_one_a_pass() -> None:
    """R-RTTL-1: a hundred publishes to as many topics were a pass of a second."""
    peer = Peer()
    peer.engine.has_expired_enough = True
    peer.session.receive(b"".join(publish(number) for number in range(5)))
    for count in (1, 2, 3):
        assert len(peer.engine.waiting) == count
        peer.passes.end(peer.turns)
    peer.engine.has_expired_enough = False
    peer.passes.end(peer.turns)
    assert len(peer.engine.waiting) == 5


def test_what_comes_while_a_connection_waits_only_waits_with_it() -> None:
    peer = Peer(budget=100)
    peer.session.receive(numbered(150))
    peer.session.receive(numbered(10)[:-3])
    peer.session.receive(numbered(10)[-3:] + text({"op": "ping"}))
    assert len(pongs(peer)) == 100
    peer.passes.end(peer.turns)
    assert pongs(peer)[150:] == list(range(10))
    assert [message["op"] for message in peer.wire.messages] == ["pong"]


def test_fragments_that_make_no_message_are_counted_too() -> None:
    peer = Peer(budget=100)
    fragments = frame(TEXT, b"", fin=False) + frame(CONTINUATION, b"", fin=False) * 498
    peer.session.receive(fragments + frame(CONTINUATION, b'{"op":"ping"}'))
    for _ in range(4):
        assert peer.wire.frames == []
        peer.passes.end(peer.turns)
    assert [message["op"] for message in peer.wire.messages] == ["pong"]


def some_frames(rng: random.Random) -> bytes:
    """Texts of all lengths, whole and in fragments with pings between them."""
    found = []
    for _ in range(rng.randrange(1, 12)):
        payload = b"x" * rng.choice((0, 1, 125, 126, 300, 9000, 70_000))
        if rng.random() < 0.5:
            found.append(frame(rng.choice((TEXT, PING)), payload[:125]))
        elif rng.random() < 0.5:
            found.append(frame(TEXT, payload))
        else:
            cut = rng.randrange(len(payload) + 1)
            found += [frame(TEXT, payload[:cut], fin=False), frame(PING, b"p"), frame(CONTINUATION, payload[cut:])]
    return b"".join(found)


@given(st.integers(0, 2**32))
def test_turns_change_nothing_of_what_is_received(seed: int) -> None:
    """However the bytes are cut and however little a pass may look at."""
    rng = random.Random(seed)
    data = some_frames(rng)
    whole = Framing(0, 0, no_turns())
    whole.feed(data)
    expected = list(iter(whole.take, None))
    turns = FrameTurns(Passes(), rng.randrange(1, 5))
    framing, found, at = Framing(0, 0, turns), [], 0
    while at < len(data) or turns.over:
        if at < len(data) and rng.random() < 0.7:
            size = rng.choice((1, 5, 200, 16_384))
            framing.feed(data[at : at + size])
            at += size
        if rng.random() < 0.5:
            turns.next_pass()
        turns.begin()
        found += list(iter(framing.take, None))
    turns.next_pass()
    found += list(iter(framing.take, None))
    assert found == expected
    assert (framing.held_bytes, framing.unread) == (0, False)


def test_long_frames_count_by_their_bytes_and_subscribes_by_their_topics() -> None:
    long = Peer(budget=100)
    long.session.receive(frame(PING, b"1") + frame(TEXT, b" " * (99 << 13)) + numbered(1))
    assert pongs(long) == [1]
    many = Peer(budget=100)
    topics = {f"absent{number}": {} for number in range(99)}
    many.session.receive(text({"op": "subscribe", "topics": topics, "lenient": True}) + numbered(1))
    assert [message["op"] for message in many.wire.messages] == ["subscribed"]
    assert pongs(many) == []
    many.passes.end(many.turns)
    assert pongs(many) == [0]


def test_publishes_that_wait_for_their_commit_cost_nothing_and_refused_ones_do() -> None:
    peer = Peer(budget=4)
    peer.session.receive(b"".join(publish(number) for number in range(8)))
    assert len(peer.engine.waiting) == 8
    refused = Peer(budget=4)
    refused.session.receive(b"".join(publish(number, "secret") for number in range(8)))
    assert len(refused.wire.messages) == 4


def test_a_connection_that_waits_is_not_read_from_beyond_what_is_kept() -> None:
    peer = Peer(budget=10)
    peer.session.receive(numbered(1000, size=100))
    assert (peer.wire.paused, peer.session.held_bytes > HELD_BYTES) == (True, True)
    while peer.wire.paused:
        peer.passes.end(peer.turns)
    assert peer.session.held_bytes <= HELD_BYTES
    for _ in range(100):
        peer.passes.end(peer.turns)
    assert (pongs(peer), peer.session.held_bytes) == (list(range(1000)), 0)


def test_a_connection_that_was_lost_while_it_waited_is_passed_over() -> None:
    peer = Peer(budget=10)
    peer.session.receive(numbered(30))
    peer.session.lost()
    peer.passes.end(peer.turns)
    assert len(pongs(peer)) == 10


def test_those_that_wait_share_a_pass() -> None:
    passes = Passes()
    turns = FrameTurns(passes, 100)
    order: list[str] = []

    def flood(name: str, left: int) -> None:
        turns.begin()
        while left and not turns.over:
            turns.spend_frame(0)
            order.append(name)
            left -= 1
        if left:
            turns.wait(lambda: flood(name, left))

    flood("a", 1000)
    flood("b", 5)
    assert (order.count("a"), order.count("b")) == (100, 0)
    passes.end(turns)
    assert order[100:].count("b") == 5
    assert order[100:].count("a") >= 95
    passes.end(turns)
    assert order[200:] == ["a"] * len(order[200:])


def test_a_budget_of_nothing_is_no_limit() -> None:
    peer = Peer(budget=0)
    peer.session.receive(numbered(3000))
    assert len(pongs(peer)) == 3000
