"""The phases of a connection: each change that the table allows happens, and no other one is possible."""

from __future__ import annotations

import errno
import itertools
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.loop.fake_ring import fake_loop
from tests.loop.handlers import Recorder
from topics.loop import Connection
from topics.loop.connection import CLOSED, CLOSING, CONNECTION_PHASES, FLUSHING, OPEN, ConnectionPhase
from topics.loop.ring import F_MORE

PAGE = Path(__file__).resolve().parents[2] / "docs/internals/loop.md"


class Story:
    """A connection of a scripted ring that answers its shutdowns and cancels at once."""

    def __init__(self) -> None:
        self.loop, self.ring = fake_loop()
        self.ring.answers["cancel"] = lambda target: 0
        handler = Recorder()
        self.loop.listen("127.0.0.1", 0, handler)
        self.ring.complete(self.ring.one("accept"), 10, F_MORE)
        self.loop.run_pass(0)
        self.conn = handler.conn
        self.recv = self.ring.one("recv")

    def run(self) -> None:
        for _ in range(3):
            self.loop.run_pass(0)

    def end_receive(self, res: int = -errno.ECANCELED) -> None:
        self.ring.complete(self.recv, res)
        self.run()


def closed_after_both_ends(story: Story) -> None:
    story.conn.close()
    story.end_receive(0)


def closed_while_it_sends(story: Story) -> None:
    story.conn.write(b"bye")
    story.conn.close()
    story.run()
    story.ring.complete(story.ring.one("send"), -errno.EPIPE)
    story.end_receive()


def aborted(story: Story) -> None:
    story.conn.abort()
    story.end_receive()


def failed(story: Story) -> None:
    story.end_receive(-errno.ECONNRESET)


def closed_and_aborted_many_times(story: Story) -> None:
    for end in (story.conn.close, story.conn.close, story.conn.abort, story.conn.abort, story.conn.close):
        end()
    story.end_receive()
    story.conn.close()
    story.conn.abort()


def given_to_another_loop(story: Story) -> None:
    story.loop.give_away(story.conn, "/other", lambda: b"request", lambda error: None)
    story.end_receive()


STORIES: list[tuple[Callable[[Story], None], list[ConnectionPhase]]] = [
    (closed_after_both_ends, [OPEN, FLUSHING, CLOSING, CLOSED]),
    (closed_while_it_sends, [OPEN, FLUSHING, CLOSING, CLOSED]),
    (aborted, [OPEN, CLOSING, CLOSED]),
    (failed, [OPEN, CLOSING, CLOSED]),
    (closed_and_aborted_many_times, [OPEN, FLUSHING, CLOSING, CLOSED]),
    (given_to_another_loop, [OPEN, CLOSING, CLOSED]),
]


@pytest.mark.parametrize(("tell", "phases"), STORIES, ids=lambda given: getattr(given, "__name__", ""))
def test_a_connection_takes_these_phases(
    monkeypatch: pytest.MonkeyPatch, tell: Callable[[Story], None], phases: list[ConnectionPhase]
) -> None:
    seen = [OPEN]
    enter = Connection._enter

    def note(conn: Connection, phase: ConnectionPhase) -> None:
        enter(conn, phase)
        seen.append(conn.phase)

    monkeypatch.setattr(Connection, "_enter", note)
    tell(Story())
    assert seen == phases


ALLOWED = {(old, new) for old, after in CONNECTION_PHASES.after.items() for new in after}


def test_every_allowed_change_happens_in_one_of_these_stories_and_no_other_one_is_possible() -> None:
    assert set().union(*(itertools.pairwise(phases) for _, phases in STORIES)) == ALLOWED
    conn = Story().conn
    for old, new in set(itertools.product(ConnectionPhase, repeat=2)) - ALLOWED:
        conn.phase = old
        with pytest.raises(AssertionError, match=f"{new.name} does not follow {old.name}"):
            conn._enter(new)


def test_the_page_about_the_loop_has_the_same_table() -> None:
    rows = re.findall(r"^\| `([a-z]+)` \| ([^|]*) \|", PAGE.read_text(), re.M)
    documented = {(old, new) for old, after in rows for new in re.findall(r"`([a-z]+)`", after)}
    assert documented == {(old.name.lower(), new.name.lower()) for old, new in ALLOWED}
