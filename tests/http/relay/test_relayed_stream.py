"""Streams to clients of another core, as their writers see them: like those to clients of this one."""

from __future__ import annotations

import pytest

from tests.http.relay.linked_cores import LinkedCores
from tests.http.relay.test_far_stream import HIGH, LOW, get, opened
from topics.http.plan import answer_turns
from topics.http.relay import relay_server
from topics.http.relay.relay_client import CANCEL
from topics.http.relay.relay_message import (
    COUNT,
    KEY_GONE,
    ORDER,
    REQUESTS,
    STOP,
    TAKEN,
    DamagedRelayError,
    RelayRow,
    encoded,
)
from topics.http.relay.relayed_stream import RelayedStream


@pytest.fixture
def cores() -> LinkedCores:
    """Core 1 has a stream, of request 1, and core 0 passes nothing on by itself."""
    cores = LinkedCores()
    opened(cores)
    return cores


def receive(cores: LinkedCores, *rows: RelayRow) -> None:
    cores.ends[0][2].receive(memoryview(b"".join(encoded(REQUESTS, 0, rows))))


def taken(number: int, count: int) -> RelayRow:
    return RelayRow(number, TAKEN, b"", COUNT.pack(count))


def test_its_marks_are_those_of_other_streams(cores: LinkedCores) -> None:
    (stream,) = cores.echo.streams
    stream.write(bytes(HIGH))
    assert not stream.over_high_water
    stream.write(b"x")
    assert stream.over_high_water
    receive(cores, taken(1, HIGH - LOW))
    assert (stream.over_high_water, cores.echo.told) == (True, [])
    receive(cores, taken(1, 1))
    assert (stream.over_high_water, cores.echo.told) == (False, ["drained"])
    receive(cores, taken(1, LOW))
    assert cores.echo.told == ["drained"]


def test_its_writer_gets_the_orders_of_its_reader_until_it_ends(cores: LinkedCores) -> None:
    (stream,) = cores.echo.streams
    assert isinstance(stream, RelayedStream)
    orders: list[bytes] = []
    stream.take_orders(orders.append)
    receive(cores, RelayRow(1, ORDER, b"", b"one"), RelayRow(1, ORDER, b"", b""))
    assert orders == [b"one", b""]
    receive(cores, RelayRow(1, CANCEL, b"", b""), RelayRow(1, ORDER, b"", b"late"))
    assert orders == [b"one", b""]


def test_an_order_for_a_stream_that_takes_none_is_damage(cores: LinkedCores) -> None:
    with pytest.raises(DamagedRelayError, match="takes none"):
        receive(cores, RelayRow(1, ORDER, b"", b"one"))


def test_all_streams_wait_while_the_core_of_their_clients_takes_too_little(
    cores: LinkedCores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_server, "MESSAGE_BYTES", 1000)
    opened(cores)
    one, two = cores.echo.streams
    there = cores.ends[0][1]
    one.write(bytes(500))
    assert not one.over_high_water
    two.write(b"x" * 500)
    assert two.over_high_water, "so much waits for the end of the pass"
    cores.flush()
    there.over_high_water = True
    cores.end_pass()
    assert cores.echo.told == []
    one.write(b"x")
    assert one.over_high_water
    there.over_high_water = False
    cores.ends[0][2].drained()
    assert cores.echo.told == ["drained", "drained"]
    assert not one.over_high_water
    assert not two.over_high_water


def test_streams_that_have_waited_for_the_end_of_a_pass_continue_in_the_next_one(
    cores: LinkedCores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_server, "MESSAGE_BYTES", 10)
    cores.echo.streams[0].write(bytes(10))
    cores.flush()
    assert cores.echo.told == []
    cores.end_pass()
    assert cores.echo.told == ["drained"]


def test_those_that_have_waited_continue_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = LinkedCores()
    most = answer_turns.ANSWERS_A_PASS
    for _ in range(most + 10):
        opened(cores)
        cores.end_pass()
    monkeypatch.setattr(relay_server, "MESSAGE_BYTES", 1)
    for stream in cores.echo.streams:
        stream.write(b"x")
    cores.flush()
    cores.end_pass()
    assert len(cores.echo.told) == most
    cores.end_pass()
    assert len(cores.echo.told) == most + 10


def test_it_is_ended_by_its_key_and_by_a_stop_of_the_core_of_its_client(cores: LinkedCores) -> None:
    receive(cores, RelayRow(1, KEY_GONE, b"", b""), RelayRow(1, STOP, b"", b""))
    assert cores.echo.told == ["key", "stop"]
    cores.echo.streams[0].end()
    receive(cores, RelayRow(1, KEY_GONE, b"", b""), RelayRow(1, STOP, b"", b""), taken(1, 1))
    assert cores.echo.told == ["key", "stop"], "it has ended, which the other core does not know yet"


def test_the_leaves_of_many_take_turns() -> None:
    cores = LinkedCores()
    most = answer_turns.ANSWERS_A_PASS
    for _ in range(most + 10):
        opened(cores)
        cores.end_pass()
    receive(cores, *(RelayRow(number, CANCEL, b"", b"") for number in range(1, most + 11)))
    assert len(cores.echo.told) == most
    for stream in cores.echo.streams:
        stream.write(b"nothing of it is sent")
    cores.flush()
    assert b"nothing of it" not in cores.ends[0][1].sent
    cores.end_pass()
    assert cores.echo.told == ["gone"] * (most + 10)


def test_one_that_its_writer_drops_ends_as_in_doubt(cores: LinkedCores) -> None:
    peer = opened(cores)
    cores.echo.streams[1].drop()
    cores.answer()
    assert peer.wire.closed
    assert not peer.wire.sent
    assert cores.asked.in_doubt == 1
    assert cores.echo.told == []


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(taken(1, 11), id="more was taken than was written"),
        pytest.param(RelayRow(1, TAKEN, b"", b"1"), id="no count"),
        pytest.param(RelayRow(1, STOP, b"", COUNT.pack(1)), id="a count of something else"),
        pytest.param(taken(2, 1), id="of none"),
        pytest.param(taken(0, 1), id="of number 0"),
    ],
)
def test_a_row_that_cannot_be_ends_the_pair_and_nothing_of_its_message_is_begun(
    cores: LinkedCores, row: RelayRow
) -> None:
    cores.echo.streams[0].write(bytes(10))
    cores.http1().send(get())
    cores.flush()
    asked = cores.ends[0][0].take()
    with pytest.raises(DamagedRelayError):
        cores.ends[0][2].receive(memoryview(asked[:0] + b"".join(encoded(REQUESTS, 0, [row]))))
    assert len(cores.echo.streams) == 1
