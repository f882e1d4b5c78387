"""Each change of state that the table allows happens, and no other one is possible."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.http.byte_stream import Echo, FakeCores, Peer, make_service
from tests.ws.passes import Passes
from topics.common.transitions import Transitions
from topics.http.http1.http1_connection import HttpConnection
from topics.http.http1.http1_states import INTAKES, PHASES, Intake, Phase
from topics.http.plan.request_turns import RequestTurns

PAGE = Path(__file__).resolve().parents[3] / "docs" / "internals" / "requests.md"
GET = b"GET /v0/topics/a HTTP/1.1\r\nHost: localhost\r\n\r\n"
FAR = GET.replace(b"topics/a", b"topics/far")
PARK, STREAM = GET.replace(b"v0/topics/a", b"park"), GET.replace(b"v0/topics/a", b"stream")
POST = (
    b"POST /v0/topics/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\n1234"
)
HEAD, HEAD_QUEUED, BODY, BODY_QUEUED, ANSWER, STREAMS, LEAVING, CLOSED = Phase
READS, PAUSED, ENDED = Intake


class Recorded(HttpConnection):
    """A connection that notes each state it is in."""

    def __init__(self, *given: Any) -> None:
        self.phases: list[Phase] = []
        self.intakes: list[Intake] = []
        super().__init__(*given)

    @property  # type: ignore[override]
    def phase(self) -> Phase:
        return self.phases[-1]

    @phase.setter
    def phase(self, phase: Phase) -> None:
        self.phases.append(phase)

    @property  # type: ignore[override]
    def _intake(self) -> Intake:
        return self.intakes[-1]

    @_intake.setter
    def _intake(self, intake: Intake) -> None:
        self.intakes.append(intake)


class Story(Peer):
    """A recorded connection of a server that begins one request in a pass."""

    def __init__(self) -> None:
        self.echo = Echo()
        self.passes = Passes()
        self.cores = FakeCores()
        service = make_service(self.echo.routes(), cores=self.cores)
        service.turns = RequestTurns(self.passes, service.now_ns, 10)  # type: ignore[arg-type]
        super().__init__(service)
        self.http: Recorded = Recorded(service, self.wire)

    def spend(self) -> None:
        """Use up the time of this pass."""
        self.service.turns.charge()

    def end_pass(self) -> None:
        self.passes.end(self.service.turns)


def answered(story: Story) -> None:
    story.http.receive(GET)


def answered_after_its_body(story: Story) -> None:
    story.http.receive(POST[:-2])
    story.http.receive(POST[-2:])


def taken_by_the_lane(story: Story) -> None:
    story.http.taken()
    story.http.answer(b"HTTP/1.1 200 OK\r\n\r\n")


def queued(story: Story) -> None:
    story.http.receive(GET + GET)
    story.end_pass()


def queued_and_ended(story: Story) -> None:
    story.http.receive(GET + GET)
    story.http.end_of_stream()
    story.end_pass()


def queued_and_lost(story: Story) -> None:
    story.spend()
    story.http.receive(GET)
    story.http.lost()


def end_of_a_body_queued(story: Story) -> None:
    story.http.receive(POST[:-2])
    story.spend()
    story.http.receive(POST[-2:])
    story.end_pass()


def end_of_a_body_queued_and_lost(story: Story) -> None:
    story.http.receive(POST[:-2])
    story.spend()
    story.http.receive(POST[-2:])
    story.http.lost()


def lost_amid_a_body(story: Story) -> None:
    story.http.receive(POST[:-2])
    story.http.lost()


def lost_before_the_answer(story: Story) -> None:
    story.http.receive(PARK)
    story.http.lost()


def streamed(story: Story) -> None:
    story.http.receive(STREAM)
    story.echo.streams[0].end()


def lost_amid_a_stream(story: Story) -> None:
    story.http.receive(STREAM)
    story.http.lost()


def given_to_its_core(story: Story) -> None:
    story.http.receive(FAR)
    story.http.lost()


def not_taken_by_its_core(story: Story) -> None:
    story.http.receive(FAR)
    story.cores.given[0].stayed(11)


def refused(story: Story) -> None:
    story.http.receive(b"no request\r\n\r\n")


def ended(story: Story) -> None:
    story.http.end_of_stream()


Tell = Callable[[Story], None]
PHASES_OF: list[tuple[Tell, list[Phase]]] = [
    (answered, [HEAD, ANSWER, HEAD]),
    (answered_after_its_body, [HEAD, BODY, ANSWER, HEAD]),
    (taken_by_the_lane, [HEAD, ANSWER, HEAD]),
    (queued, [HEAD, ANSWER, HEAD, HEAD_QUEUED, HEAD, ANSWER, HEAD]),
    (queued_and_ended, [HEAD, ANSWER, HEAD, HEAD_QUEUED, HEAD, ANSWER, HEAD, CLOSED]),
    (queued_and_lost, [HEAD, HEAD_QUEUED, CLOSED]),
    (end_of_a_body_queued, [HEAD, BODY, BODY_QUEUED, BODY, ANSWER, HEAD]),
    (end_of_a_body_queued_and_lost, [HEAD, BODY, BODY_QUEUED, CLOSED]),
    (lost_amid_a_body, [HEAD, BODY, CLOSED]),
    (lost_before_the_answer, [HEAD, ANSWER, CLOSED]),
    (streamed, [HEAD, ANSWER, STREAMS, HEAD]),
    (lost_amid_a_stream, [HEAD, ANSWER, STREAMS, CLOSED]),
    (given_to_its_core, [HEAD, LEAVING, CLOSED]),
    (not_taken_by_its_core, [HEAD, LEAVING, HEAD, ANSWER, HEAD]),
    (refused, [HEAD, CLOSED]),
    (ended, [HEAD, CLOSED]),
]
INTAKES_OF: list[tuple[Tell, list[Intake]]] = [
    (answered, [READS]),
    (queued, [READS, PAUSED, READS]),
    (queued_and_ended, [READS, PAUSED, ENDED]),
    (ended, [READS, ENDED]),
]


def changes(states: list[Any]) -> set[tuple[Any, Any]]:
    return set(itertools.pairwise(states))


def allowed(table: Transitions[Any]) -> set[tuple[Any, Any]]:
    return {(old, new) for old, after in table.after.items() for new in after}


@pytest.mark.parametrize(("tell", "phases"), PHASES_OF, ids=lambda given: getattr(given, "__name__", ""))
def test_a_connection_takes_these_phases(tell: Tell, phases: list[Phase]) -> None:
    story = Story()
    tell(story)
    assert story.http.phases == phases


@pytest.mark.parametrize(("tell", "intakes"), INTAKES_OF, ids=lambda given: getattr(given, "__name__", ""))
def test_its_input_takes_these_states(tell: Tell, intakes: list[Intake]) -> None:
    story = Story()
    tell(story)
    assert story.http.intakes == intakes


def test_every_allowed_change_happens_in_one_of_these_stories() -> None:
    assert set().union(*(changes(phases) for _, phases in PHASES_OF)) == allowed(PHASES)
    assert set().union(*(changes(intakes) for _, intakes in INTAKES_OF)) == allowed(INTAKES)


@pytest.mark.parametrize("table", [PHASES, INTAKES], ids=["phases", "intakes"])
def test_no_other_change_is_possible(table: Transitions[Any]) -> None:
    for old, new in set(itertools.product(table.after, repeat=2)) - allowed(table):
        with pytest.raises(AssertionError, match=f"{new.name} does not follow {old.name}"):
            table.check(old, new)
        assert old not in table.before(new)
    for old, new in allowed(table):
        assert table.check(old, new) is new
        assert old in table.before(new)


def test_a_connection_refuses_what_its_phase_does_not_allow() -> None:
    """Each of these would have continued in a wrong phase."""
    story = Story()
    http = story.http
    with pytest.raises(AssertionError):
        http.respond(200, b"", b"", b"")
    with pytest.raises(AssertionError):
        http.respond_in_parts([b"1"], b"")
    with pytest.raises(AssertionError):
        http.open_stream(200, b"", b"", lambda: None, lambda: None)
    with pytest.raises(AssertionError):
        http.on_stream_ended(kept=True)
    http.receive(PARK)
    with pytest.raises(AssertionError, match="ANSWER does not follow ANSWER"):
        http.taken()
    http.lost()
    with pytest.raises(AssertionError, match="ANSWER does not follow CLOSED"):
        http.taken()
    assert story.wire.sent == b""


def documented(title: str) -> set[tuple[str, str]]:
    """The (state, next state) of the table under a title of docs/internals/requests.md."""
    section = PAGE.read_text().partition(f"### {title}\n")[2].partition("\n#")[0]
    rows = re.findall(r"^\| `([a-z ]+)` \| ([^|]*) \|", section, re.M)
    return {(old, new) for old, after in rows for new in re.findall(r"`([a-z ]+)`", after)}


@pytest.mark.parametrize(("title", "table"), [("Requests of a connection", PHASES), ("Input of a connection", INTAKES)])
def test_the_page_about_requests_has_the_same_table(title: str, table: Transitions[Any]) -> None:
    assert documented(title) == {(old.value, new.value) for old, new in allowed(table)}
