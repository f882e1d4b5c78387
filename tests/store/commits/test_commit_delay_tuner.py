"""Whether a pause before a group is kept up: judged by the records a second of commits with and without it."""

from __future__ import annotations

import pytest

from topics.store.commits.commit_delay_tuner import _STRETCH, _TRY_EVERY, CommitDelayTuner

PAUSE_NS = 300_000


def paused_share(
    *,
    records: int,
    paused_records: int,
    paused_ns: int,
    pause: CommitDelayTuner | None = None,
    idle_every: int = 0,
    idle_ns: int = 0,
) -> float:
    """The choices after the last stretches' commits; one takes 200 us without a pause and `paused_ns` with one.

    idle_every: before each so many commits no client writes for `idle_ns`.
    """
    pause = pause or CommitDelayTuner(PAUSE_NS)
    now_ns = paused = 0
    for at in range(12 * _TRY_EVERY * (_STRETCH + 1)):
        pauses = pause.delay_ns > 0
        began_ns = now_ns
        if idle_every and at % idle_every == 0:
            began_ns += idle_ns
        now_ns = began_ns + (paused_ns if pauses else 200_000)
        pause.note(paused_records if pauses else records, began_ns, now_ns)
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


@pytest.mark.parametrize(("idle_every", "idle_ms"), [(700, 2000), (300, 1000), (1000, 10_000), (100, 50), (40, 500)])
def test_time_without_a_write_speaks_for_neither(idle_every: int, idle_ms: int) -> None:
    share = paused_share(
        records=8, paused_records=15, paused_ns=390_000, idle_every=idle_every, idle_ns=idle_ms * 1_000_000
    )
    assert share < 0.1


def test_few_clients_and_a_setting_of_none_never_wait() -> None:
    assert paused_share(records=3, paused_records=9, paused_ns=200_000) == 0
    assert paused_share(records=30, paused_records=64, paused_ns=200_000, pause=CommitDelayTuner(0)) == 0


def test_what_changes_is_noticed() -> None:
    pause = CommitDelayTuner(PAUSE_NS)
    assert paused_share(records=30, paused_records=64, paused_ns=380_000, pause=pause) > 0.9
    assert paused_share(records=30, paused_records=40, paused_ns=400_000, pause=pause) < 0.1
    assert paused_share(records=30, paused_records=64, paused_ns=380_000, pause=pause) > 0.9
