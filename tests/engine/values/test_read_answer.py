"""The answer to a read, as the general path and the lane make it."""

import json

from topics.engine.values import read_answer
from topics.engine.values.results import DiffResult, Tombstone

LOST = Tombstone(3, 4, "cap", 2, 5, 9)


def answer(result: DiffResult) -> bytes:
    return read_answer.beginning(b'"t"') + result.records + read_answer.ending(result, b"0.500")


def test_a_read_answers_records_cursor_loss_lag_and_its_times() -> None:
    shown = json.loads(answer(DiffResult(b'{"$seq":5}', 1, 5, 9, 5, LOST, 3, 2)))
    assert shown == {
        **{"topic": "t", "records": [{"$seq": 5}], "next_from_seq": 5, "head_seq": 9, "earliest_seq": 5},
        **{"caught_up": False, "tombstone": LOST._asdict(), "lag": 4},
        "performance": {"server_total_ms": 0.5, "records_scanned": 3, "cold_segments_read": 2},
    }


def test_the_lane_s_texts_make_the_same_answer() -> None:
    texts = read_answer.LANE_TEXTS.split(b"\0")[:-1]
    for head in (7, 9):
        name, records, cursor, head_seq, earliest, more, caught_up, lag, end = texts
        made = name + b"t" + records + b"{}" + cursor + b"7" + head_seq + b"%d" % head + earliest + b"1"
        made += (caught_up if head == 7 else more) + lag + b"%d" % (head - 7)
        made += read_answer.LANE_TIMES % b"0.500" + b"1" + end
        assert made == answer(DiffResult(b"{}", 1, 7, head, 1, None, 1, 0))
