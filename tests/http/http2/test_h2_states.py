"""Each change of state that the tables allow happens, and no other one is possible."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from tests.http.byte_stream import Echo, make_service
from tests.http.http1.test_http1_states import allowed, changes, documented
from tests.http.http2.h2_peer import H2Peer, frame
from tests.ws.passes import Passes
from topics.common.transitions import Transitions
from topics.http import protocol_choice
from topics.http.http2.h2_connection import Http2Connection
from topics.http.http2.h2_states import ENDS, READINGS, EndState, Reading
from topics.http.plan.request_turns import RequestTurns

OPEN, LEAVING, ENDED, AT_END, GONE, CLOSED = EndState
READS, PAUSED, QUEUED = Reading
PING = frame(6, 0, 0, bytes(8))
GOAWAY = frame(7, 0, 0, bytes(8))


class Recorded(Http2Connection):
    """A connection that notes each state it is in."""

    def __init__(self, *given: Any) -> None:
        self.lives: list[EndState] = []
        self.readings: list[Reading] = []
        super().__init__(*given)

    @property  # type: ignore[override]
    def _end_state(self) -> EndState:
        return self.lives[-1]

    @_end_state.setter
    def _end_state(self, life: EndState) -> None:
        self.lives.append(life)

    @property  # type: ignore[override]
    def _reading(self) -> Reading:
        return self.readings[-1]

    @_reading.setter
    def _reading(self, reading: Reading) -> None:
        self.readings.append(reading)


class Story(H2Peer):
    """A recorded connection with a request in progress; a pass handles one thing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(protocol_choice, "Http2Connection", Recorded)
        self.echo = Echo()
        self.passes = Passes()
        service = make_service(self.echo.routes())
        super().__init__(service)
        self.begin("GET", "/park")
        service.turns = RequestTurns(self.passes, service.now_ns, 10)  # type: ignore[arg-type]

    def leave(self) -> None:
        self.server.going_away()

    def goaway(self) -> None:
        self.server.receive(GOAWAY)
        self.end_pass()

    def queue(self) -> None:
        self.service.turns.charge()
        self.server.receive(PING)

    def end_pass(self) -> None:
        self.passes.end(self.service.turns)

    def end(self) -> None:
        self.server.end_of_stream()

    def clog(self) -> None:
        self.wire.over_high_water = True
        self.server.drained()

    def unclog(self) -> None:
        self.wire.over_high_water = False
        self.server.drained()

    def lose(self) -> None:
        self.server.lost()


s = Story
Steps = list[Callable[[Story], None]]
LIVES_OF: list[tuple[Steps, list[EndState]]] = [
    ([s.lose], [OPEN, CLOSED]),
    ([s.leave, s.leave, s.lose], [OPEN, LEAVING, CLOSED]),
    ([s.goaway, s.leave, s.goaway, s.lose], [OPEN, ENDED, CLOSED]),
    ([s.goaway, s.end, s.lose], [OPEN, ENDED, GONE, CLOSED]),
    ([s.goaway, s.queue, s.end, s.end_pass], [OPEN, ENDED, AT_END, GONE]),
    ([s.queue, s.end, s.end_pass], [OPEN, AT_END, GONE]),
    ([s.queue, s.end, s.lose, s.end_pass], [OPEN, AT_END, CLOSED]),
    ([s.end, s.leave], [OPEN, GONE]),
    ([s.leave, s.goaway], [OPEN, LEAVING, ENDED]),
    ([s.leave, s.queue, s.end], [OPEN, LEAVING, AT_END]),
    ([s.leave, s.end], [OPEN, LEAVING, GONE]),
]
READINGS_OF: list[tuple[Steps, list[Reading]]] = [
    ([s.clog, s.clog, s.unclog], [READS, PAUSED, READS]),
    ([s.queue, s.end_pass], [READS, QUEUED, PAUSED, READS]),
    ([s.clog, s.queue, s.unclog], [READS, PAUSED, QUEUED]),
]


def told(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    story = Story(monkeypatch)
    connection = story.server
    for step in steps:
        step(story)
    assert isinstance(connection, Recorded)
    return connection


@pytest.mark.parametrize(("steps", "lives"), LIVES_OF)
def test_a_connection_comes_to_its_end_by_these_states(
    steps: Steps, lives: list[EndState], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert told(steps, monkeypatch).lives == lives


@pytest.mark.parametrize(("steps", "readings"), READINGS_OF)
def test_its_input_takes_these_states(steps: Steps, readings: list[Reading], monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(steps, monkeypatch).readings == readings


def test_every_allowed_change_happens_in_one_of_these_stories() -> None:
    assert set().union(*(changes(lives) for _, lives in LIVES_OF)) == allowed(ENDS)
    assert set().union(*(changes(readings) for _, readings in READINGS_OF)) == allowed(READINGS)


@pytest.mark.parametrize("table", [ENDS, READINGS], ids=["lives", "readings"])
def test_no_other_change_is_possible(table: Transitions[Any]) -> None:
    for old, new in set(itertools.product(table.after, repeat=2)) - allowed(table):
        with pytest.raises(AssertionError, match=f"{new.name} does not follow {old.name}"):
            table.check(old, new)


@pytest.mark.parametrize(("title", "table"), [("End of an HTTP/2 connection", ENDS), ("Input over HTTP/2", READINGS)])
def test_the_page_about_requests_has_the_same_table(title: str, table: Transitions[Any]) -> None:
    assert documented(title) == {(old.value, new.value) for old, new in allowed(table)}


def test_a_connection_that_has_ended_does_not_end_again(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = told([s.lose, s.end, s.leave, s.lose], monkeypatch)
    assert connection.lives == [OPEN, CLOSED]
    with pytest.raises(AssertionError, match="GONE does not follow CLOSED"):
        connection._enter(GONE)


def test_the_first_goaway_names_the_last_request_if_the_peer_makes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(monkeypatch)
    story.flush()
    story.goaway()
    story.leave()
    story.flush()
    assert story.client.goaways == [(0, 1)]


def test_the_first_goaway_names_no_request_while_the_peer_may_make_more(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(monkeypatch)
    story.leave()
    story.leave()
    story.flush()
    assert story.client.goaways == [(0, (1 << 31) - 1), (0, 1)]


def test_the_first_goaway_names_no_request_while_requests_from_before_the_peers_end_wait_for_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client takes a request above the named one for one that was not executed, and makes it again."""
    story = Story(monkeypatch)
    story.service.turns.charge()
    waiting = story.begin("GET", "/v0/topics/a")
    story.end()
    story.leave()
    story.flush()
    assert story.client.goaways == [(0, (1 << 31) - 1)]
    story.end_pass()  # its frame has the first turn, its handler the second
    story.end_pass()
    story.flush()
    assert story.client.seen[waiting].status == 200
