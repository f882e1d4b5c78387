"""Whether a pause before a group is kept up: judged by the records a second of commits with and without it."""

from __future__ import annotations

import pytest

from topics.store.group_pause import _STRETCH, _TRY_EVERY, GroupPause

PAUSE_NS = 300_000


def paused_share(*, records: int, paused_records: int, paused_ns: int, pause: GroupPause | None = None) -> float:
    """Of the last stretches' commits; one takes 200 us without a pause and `paused_ns` with one."""
    pause = pause or GroupPause(PAUSE_NS)
    now_ns = paused = 0
    for at in range(12 * _TRY_EVERY * (_STRETCH + 1)):
        pauses = pause.pause_ns > 0
        now_ns += paused_ns if pauses else 200_000
        pause.note(paused_records if pauses else records, now_ns)
        paused += pauses and at >= 9 * _TRY_EVERY * (_STRETCH + 1)
    return paused / (3 * _TRY_EVERY * (_STRETCH + 1))


def test_a_pause_that_brings_more_records_a_second_is_kept_up() -> None:
    assert paused_share(records=30, paused_records=64, paused_ns=380_000) > 0.9


@pytest.mark.parametrize(
    ("records", "paused_records", "paused_ns"),
    [(6, 15, 500_000), (30, 50, 380_000), (30, 61, 400_000)],
    ids=["they come at a rate of their own", "less", "hardly more"],
)
def test_a_pause_that_does_not_is_hardly_ever_made(records: int, paused_records: int, paused_ns: int) -> None:
    assert paused_share(records=records, paused_records=paused_records, paused_ns=paused_ns) < 0.1


def test_few_clients_and_a_setting_of_none_never_wait() -> None:
    assert paused_share(records=3, paused_records=9, paused_ns=200_000) == 0
    assert paused_share(records=30, paused_records=64, paused_ns=200_000, pause=GroupPause(0)) == 0


def test_what_changes_is_noticed() -> None:
    pause = GroupPause(PAUSE_NS)
    assert paused_share(records=30, paused_records=64, paused_ns=380_000, pause=pause) > 0.9
    assert paused_share(records=30, paused_records=40, paused_ns=400_000, pause=pause) < 0.1
    assert paused_share(records=30, paused_records=64, paused_ns=380_000, pause=pause) > 0.9
