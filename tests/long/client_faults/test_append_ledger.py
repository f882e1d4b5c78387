"""Lost, doubled and other records, as the ledgers find them."""

from typing import Any

import pytest

from tests.long.client_faults.append_ledger import AppendLedger, JobLedger, append_faults


def ledger() -> AppendLedger:
    """Two numbers were answered, one may be there, and one is not."""
    made = AppendLedger("w", "t")
    made.note(made.next(2), 1)
    made.unknown.update(made.next())
    made.refused.update(made.next())
    return made


def rows(*numbers: int) -> list[tuple[int, Any]]:
    return [(seq, ["w", number]) for seq, number in enumerate(numbers, 1)]


@pytest.mark.parametrize("found", [rows(0, 1), rows(0, 1, 2)])
def test_a_number_of_an_unknown_append_may_be_there_or_not(found: list[tuple[int, Any]]) -> None:
    assert not append_faults([ledger()], found)


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        (rows(0), "lost [1]"),
        (rows(0, 1, 1), "doubled [(1, [2, 3])]"),
        (rows(0, 1, 2, 2), "doubled [(2, [3, 4])]"),
        (rows(1, 0), "not at the seq of their answers"),
        (rows(0, 1, 3), "the client said that they are not"),
        (rows(0, 1, 4), "never answered [4]"),
        ([*rows(0, 1), (3, ["v", 0])], "nobody wrote"),
    ],
)
def test_what_is_lost_doubled_moved_or_not_answered_is_a_fault(found: list[tuple[int, Any]], fault: str) -> None:
    assert fault in "\n".join(append_faults([ledger()], found))


def test_a_job_may_be_handed_out_again_and_is_completed_once() -> None:
    jobs, appended = JobLedger(), AppendLedger("w", "jobs")
    appended.note(appended.next(2), 1)
    for number in (0, 1, 1):
        jobs.hand(number)
    jobs.ack(1)
    assert not jobs.faults(appended, 0)
    jobs.ack(1)
    appended.note(appended.next(), 3)
    assert jobs.faults(appended, 1) == [
        "jobs that nobody was handed: [2]",
        "jobs that were completed twice: [1]",
        "1 jobs are left in the queue",
    ]
