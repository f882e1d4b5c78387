"""The histories of topics: which calls must be there after a cut, by when their outcome was served."""

from __future__ import annotations

from tests.long.powercut.life import Event, History
from tests.long.soak.model import Operation, Topic


def test_calls_before_a_restart_are_durable_and_a_call_at_its_position_is_not() -> None:
    """A call of class `disk` moves nothing on the disk, so its end may have the position of the restart."""
    history = History(Topic("t"), strict=False)
    call = Operation("write", ([], None))
    history.events = [Event(call, 1, 5), Event(call, 5, 7, happened=False)]
    history.restarts = [(9, 2)]
    history.events.append(Event(call, 9, 9))
    assert (history.durable_calls(8), history.durable_calls(9), len(history.at(9)[0])) == (0, 1, 2)
