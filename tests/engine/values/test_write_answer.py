"""The members of a write's answer, byte by byte: clients and the lane's C code depend on their order."""

from topics.engine.values import write_answer
from topics.engine.values.write_answer import listed, repeat_times, write_times

TIMES = b'"server_total_ms":1.500,"wal_append_ms":0.250,"fsync_ms":0.0'


def test_a_write_answers_topic_seqs_head_count_what_it_did_and_its_times() -> None:
    members = write_answer.WRITTEN % (b'"t"', 5, 6, listed(5, 6), 9, 2, b"true", b"false", TIMES)
    assert members == (
        b'"topic":"t","first_seq":5,"last_seq":6,"seqs":[5,6],"head_seq":9,"count":2,"created":true,"deduped":false,'
        b'"performance":{' + TIMES + b"}"
    )


def test_the_commonest_answer_is_the_same_with_less_to_fill_in() -> None:
    members = write_answer.WRITTEN % (b'"t"', 5, 5, listed(5, 5), 9, 1, b"false", b"false", TIMES)
    assert members == write_answer.ONE_WRITTEN % (b'"t"', 5, 5, 5, 9, TIMES)


def test_the_lane_has_the_same_texts_between_the_same_values() -> None:
    texts = write_answer.LANE_TEXTS.split(b"\0")[:-1]
    values = [b"t", b"5", b"5", b"5", b"", b"9", b"1"]
    answer = b"".join(part for pair in zip(texts, values, strict=True) for part in pair)
    answer += write_answer.LANE_END % TIMES
    assert answer == b"{" + write_answer.ONE_WRITTEN % (b'"t"', 5, 5, 5, 5 + 4, TIMES) + b"}"


def test_a_staged_piece_answers_its_number_and_no_seqs() -> None:
    members = write_answer.STAGED % (b'"t"', 3, 7, b"false", b"false", TIMES)
    assert members == (
        b'"topic":"t","staged":true,"piece":3,"count":7,"created":false,"deduped":false,"performance":{' + TIMES + b"}"
    )


def test_times_are_those_of_the_commit_and_of_the_wait_that_pressure_made() -> None:
    assert write_times(1_500_000, 250_000, 0, 0) == TIMES
    assert write_times(9_000_000, 1_000_000, 2_000_000, 4_000_000) == (
        b'"server_total_ms":9.000,"throttle_wait_ms":4.000,"wal_append_ms":1.000,"fsync_ms":2.000'
    )
    assert write_times(4_000_000, 1_000_000, 2_000_000, 4_000_000) == (
        b'"server_total_ms":4.000,"throttle_wait_ms":1.000,"wal_append_ms":1.000,"fsync_ms":2.000'
    )


def test_a_duplicate_was_neither_appended_nor_synced() -> None:
    assert repeat_times(1_500_000) == b'"server_total_ms":1.500'
