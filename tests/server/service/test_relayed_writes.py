"""Goal: plain writes that are relayed as columns are answered as others are, and do the same.

Method: two simulated servers relay each request to themselves. One has the lane, which makes columns of plain writes on
both sides of the relay. Both get the same bytes in the same pieces, as in `tests/server/test_lane.py`.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.amount import amount, examples, seeds
from tests.server.lane_streams import KEYS, STRICT, plain, without_chance
from tests.server.test_lane import Pair
from topics.errors import RequestError
from topics.http.relay.relay_server import RelayServer
from topics.http.relay.relayed_writes import RelayedWrites


class RelayedPair(Pair):
    """Two servers that relay to themselves; the first has the lane."""

    def __init__(self, seed: int = 0, **settings: object) -> None:
        super().__init__(seed, relayed=True, **settings)

    @property
    def asked(self) -> int:
        """Writes that the lane has had the other core answer."""
        server = self.worlds[0].server
        assert server is not None
        assert server.lane is not None
        return server.lane._far.taken

    @property
    def writes(self) -> RelayedWrites:
        """The writes of the core that answers."""
        loop = self.worlds[0].loop
        assert loop is not None
        (found,) = [conn.state for conn in loop._traffic.connections() if isinstance(conn.state, RelayServer)]
        assert found._writes is not None
        return found._writes

    @property
    def in_flight(self) -> list[int]:
        servers = [world.server for world in self.worlds]
        return [server.service.in_flight.requests for server in servers if server is not None]


def body_of(answer: bytes) -> dict[str, Any]:
    """The body of an answer of which the times were left out."""
    body = answer.partition(b"\r\n\r\n")[2]
    found: dict[str, Any] = json.loads(body.replace(b":,", b":0,").replace(b":}", b":0}"))
    return found


@pytest.fixture(scope="module")
def pair() -> RelayedPair:
    return RelayedPair()


@examples(75)
@given(st.integers(0, 1 << 48))
def test_columns_and_calls_answer_the_same_bytes_alike(pair: RelayedPair, seed: int) -> None:
    pair.run(random.Random(seed))


def test_columns_and_calls_keep_the_same_records(pair: RelayedPair) -> None:
    asked, taken = pair.asked, pair.writes.taken
    for seed in seeds(150):
        pair.run(random.Random(f"relayed {seed}"))
    assert pair.asked > asked + amount(20), "too little was asked for this test to mean anything"
    assert pair.writes.taken > taken + amount(30), "too little was taken for this test to mean anything"
    pair.compare_state()
    assert pair.compare_logs() > 30
    assert pair.in_flight == [0, 0]


def test_a_client_alone_is_answered_as_by_calls() -> None:
    pair = RelayedPair(single=True)
    asked, lone = pair.asked, pair.writes.lone
    for seed in seeds(200):
        pair.run(random.Random(f"relayed alone {seed}"))
    assert pair.asked > asked + amount(20), "too little was asked for this test to mean anything"
    assert pair.writes.lone > lone + amount(20), "too little was taken for this test to mean anything"
    assert pair.writes._streak is not None, "none of them was the second in a row"
    pair.compare_state()
    assert pair.compare_logs() > 30
    assert pair.in_flight == [0, 0]


def test_with_keys_a_client_alone_is_let_in_as_by_calls() -> None:
    pair = RelayedPair(single=True, api_keys=KEYS, max_inflight_per_key=1)
    for seed in seeds(100):
        pair.run(random.Random(f"relayed keys alone {seed}"))
    pair.compare_state()
    assert pair.in_flight == [0, 0]


def test_with_keys_columns_let_in_whom_calls_let_in() -> None:
    pair = RelayedPair(api_keys=KEYS)
    asked = pair.asked
    for seed in seeds(150):
        pair.run(random.Random(f"relayed keys {seed}"))
    assert pair.asked > asked + amount(15), "too little was asked for this test to mean anything"
    pair.compare_state()
    assert pair.in_flight == [0, 0]


def test_requests_in_flight_of_a_key_are_counted_where_the_connection_is() -> None:
    pair = RelayedPair(api_keys=KEYS, max_inflight_per_key=2)
    streams = [[plain(name, key="writer")] for name in ("t0-1", "t1-1", "t2-1")]
    for _ in range(2):
        assert [answers[9:12] for answers in pair.send(streams)] == [b"200", b"200", b"429"]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_in_a_simulated_world_of_any_order_both_recover_to_the_same(seed: int) -> None:
    pair = RelayedPair(seed, wal_shards=1 + seed % 3)
    for life in range(2):
        for turn in range(20):
            pair.run(random.Random(f"relayed {seed} {life} {turn}"))
        pair.send([[plain(name)] for name in ("t0-1", "t1-0", "t2-2")])
        pair.compare_state()
        for world in pair.worlds:
            world.advance_ms(3000)
        pair.restart()
        pair.compare_state()
        pair.warm_up()


def test_writes_of_many_connections_and_topics_get_their_own_answers(pair: RelayedPair) -> None:
    names = [pair.topics[at % 3][at // 3 % 2] for at in range(60)]
    records = [{"data": at} for at in range(60)]
    streams = [[plain(name, json.dumps({"records": records[: 1 + at % 7]}).encode())] for at, name in enumerate(names)]
    asked, taken = pair.asked, pair.writes.taken
    answers = pair.send(streams)
    assert (pair.asked - asked, pair.writes.taken - taken) == (60, 60)
    for at, (name, answer) in enumerate(zip(names, answers, strict=True)):
        body = body_of(answer)
        assert (body["topic"], body["count"]) == (name, 1 + at % 7)


def test_a_body_that_is_not_plain_keeps_its_place_among_those_of_its_topic(pair: RelayedPair) -> None:
    """Its creation, or a key in it, takes the general path, and so do the writes after it."""
    name, other = pair.topics[0][:2]
    odd = b'{"records":[{"data":1}],"create":false}'
    streams = [[plain(name)], [plain(other)], [plain(name, odd)], [plain(name)], [plain(other)]]
    taken = pair.writes.taken
    answers = [body_of(answer) for answer in pair.send(streams)]
    assert pair.writes.taken - taken == 3
    assert [answer["topic"] for answer in answers] == [name, other, name, name, other]


def test_pipelined_requests_and_a_second_receive_are_answered_in_order(pair: RelayedPair) -> None:
    first, second = pair.topics[0][:2]
    requests = [plain(first), plain(first), plain(second), plain(first), plain(second)]
    for parts in ([b"".join(requests)], requests, [requests[0], b"".join(requests[1:])]):
        (answers,) = pair.send([parts])
        names = [part[:4] for part in answers.split(b'{"topic":"')[1:]]
        assert names == [name.encode()[:4] for name in (first, first, second, first, second)]


def test_a_long_answer_is_compressed_where_the_connection_is(pair: RelayedPair) -> None:
    name = pair.topics[1][0]
    body = json.dumps({"records": [{"data": 1}] * 300}).encode()
    asked = pair.asked
    plainly, packed = pair.send([[plain(name, body)], [plain(name, body, field="Accept-Encoding: gzip")]])
    assert pair.asked - asked == 2
    assert b"Content-Encoding: gzip" in packed
    assert body_of(packed)["count"] == body_of(plainly)["count"] == 300


def test_a_strict_write_is_plain_unless_it_has_an_unknown_key(pair: RelayedPair) -> None:
    name = pair.topics[1][1]
    asked, taken = pair.asked, pair.writes.taken
    known, unknown = pair.send(
        [[plain(name, field=STRICT)], [plain(name, b'{"records":[{"data":1}],"key":1}', field=STRICT)]]
    )
    assert (pair.asked - asked, pair.writes.taken - taken) == (2, 1)
    assert known.startswith(b"HTTP/1.1 200")
    assert b"Preference-Applied: handling=strict" in known
    assert unknown.startswith(b"HTTP/1.1 400")


def test_a_full_disk_is_reported_to_each_request_as_on_the_general_path() -> None:
    pair = RelayedPair()
    for world in pair.worlds:
        world.fail_storage("write", 5)
    taken = pair.writes.taken
    streams = [[plain("t0-0")], [plain("t1-0", field=STRICT)], [plain("t2-0")]]
    answers = pair.send(streams)
    assert pair.writes.taken == taken + 3
    assert [answer[9:12] for answer in answers] == [b"500"] * 3
    assert [b"Preference-Applied" in answer for answer in answers] == [False, True, False]
    assert pair.in_flight == [0, 0]


def test_answers_during_a_stop_close_their_connections() -> None:
    pair = RelayedPair()
    heard, asked = [], pair.asked
    for world in pair.worlds:
        conns = [world.connect() for _ in range(3)]
        for conn, name in zip(conns, ("t0-1", "t1-0", "t2-2"), strict=True):
            conn.send(plain(name))
        while (server := world.server) is not None and server.service.in_flight.requests < len(conns):
            world.advance_us(1)
        world.begin_stop()
        world.settle()
        heard.append([(without_chance(conn.receive()), conn.ended) for conn in conns])
    assert pair.asked == asked + 3
    assert heard[0] == heard[1]


def test_while_a_core_serves_nothing_writes_take_the_general_path(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = RelayedPair()
    (server,) = [world.server for world in pair.worlds[:1]]
    assert server is not None

    def refuse(_plan: object) -> RequestError:
        return RequestError("not_ready", "recovering")

    writes, conn = pair.writes, pair.worlds[0].connect()
    taken = writes.taken
    conn.send(plain("t0-1"))
    monkeypatch.setattr(server.service, "gate", refuse)
    pair.worlds[0].settle()
    assert conn.answer("POST").status == 503
    assert writes.taken == taken


def test_a_topic_that_another_core_owns_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = RelayedPair()
    writes, conn = pair.writes, pair.worlds[0].connect()
    monkeypatch.setattr(writes, "_elsewhere", lambda _topic: 1)
    taken = writes.taken
    assert conn.send(plain("t0-1")).answer("POST").status == 200, "the general path takes it for its own"
    assert writes.taken == taken
