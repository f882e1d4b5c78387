"""Planning: shares of a limit, ranges between two offsets, partitions; and the JSON of offsets."""

from __future__ import annotations

import random

import pytest

from topics.spark.errors import OptionError
from topics.spark.reading.offsets import LostRange, Position, from_json, to_json
from topics.spark.reading.planning import (
    SMALL_RANGE,
    Range,
    TopicLoss,
    partitions_of,
    piece_partitions,
    share,
    stream_ranges,
    without,
)

LIFE = "9f2c5e0d11aa73b4"


def seqs(works: list) -> list[tuple[str, int]]:
    return [(part.topic, seq) for work in works for part in work.ranges for seq in range(part.first, part.end)]


def test_a_limit_is_shared_in_proportion() -> None:
    assert share(600, {"a": 1000, "b": 1000}) == {"a": 300, "b": 300}
    assert share(100, {"a": 900, "b": 100}) == {"a": 90, "b": 10}
    assert share(None, {"a": 5}) == share(5, {"a": 5}) == {"a": 5}


def test_no_topic_with_a_backlog_goes_without_and_no_other_gets_any() -> None:
    assert share(10, {"large": 1_000_000, "one": 1, "none": 0}) == {"large": 9, "one": 1, "none": 0}
    assert share(2, {"a": 9, "b": 9, "c": 9}) == {"a": 1, "b": 1, "c": 1}


def test_a_share_is_exact_and_never_above_the_backlog() -> None:
    rng = random.Random(18)
    for _ in range(2000):
        backlogs = {f"t{i}": rng.choice([0, 1, 2, 3, 7, rng.randrange(10**6)]) for i in range(rng.randrange(1, 9))}
        limit = rng.choice([rng.randrange(1, 20), rng.randrange(1, 2000)])
        shares = share(limit, backlogs)
        some = sum(1 for size in backlogs.values() if size)
        assert all(shares[name] <= size and (shares[name] > 0) == (size > 0) for name, size in backlogs.items())
        assert sum(shares.values()) == min(sum(backlogs.values()), max(limit, some))


def test_an_offset_is_the_documented_json_and_comes_back_equal() -> None:
    positions = {"b": Position(7, LIFE), "a": Position(18, LIFE, (LostRange(3, 5, "cap"),), 2)}
    offset = to_json(positions)
    assert offset == {
        "v": 1,
        "topics": {
            "a": {"next": 18, "of": LIFE, "lost": [[3, 5, "cap"]], "from": 2},
            "b": {"next": 7, "of": LIFE},
        },
    }
    assert from_json(offset) == positions


@pytest.mark.parametrize("offset", [{"v": 2, "topics": {}}, {"a": 5}, {"v": 1, "topics": {"a": {"next": "x"}}}])
def test_an_offset_of_something_else_is_refused(offset: dict) -> None:
    with pytest.raises(OptionError, match="another checkpointLocation"):
        from_json(offset)


def test_a_range_is_what_lies_between_two_offsets_without_known_losses() -> None:
    start = {"a": Position(5, LIFE), "b": Position(9, LIFE)}
    end = {"a": Position(20, LIFE, (LostRange(5, 7, "cap"), LostRange(12, 12, "crash"))), "b": Position(9, LIFE)}
    ranges, losses = stream_ranges(start, end)
    assert ranges == [Range("a", LIFE, 8, 12), Range("a", LIFE, 13, 20)]
    assert losses == [TopicLoss("a", 5, 7, "cap"), TopicLoss("a", 12, 12, "crash")]


def test_a_topic_that_appeared_is_read_from_its_first_seq() -> None:
    assert stream_ranges({}, {"a": Position(4, LIFE)})[0] == [Range("a", LIFE, 1, 4)]


def test_a_topic_made_again_is_read_from_its_first_seq_and_its_former_life_is_reported() -> None:
    end = {"a": Position(3, "other", (LostRange(50, 60, "recreated"), LostRange(1, 1, "ttl")))}
    ranges, losses = stream_ranges({"a": Position(50, LIFE)}, end)
    assert ranges == [Range("a", "other", 2, 3)]
    assert losses == [TopicLoss("a", 50, 60, "recreated"), TopicLoss("a", 1, 1, "ttl")]


def test_a_loss_that_an_earlier_batch_told_is_not_told_again() -> None:
    position = Position(20, LIFE, (LostRange(5, 7, "cap"),))
    assert stream_ranges({"a": position}, {"a": position}) == ([], [])


def test_the_first_batch_begins_where_its_offset_says() -> None:
    end = {"a": Position(20, LIFE, first=11)}
    assert stream_ranges({"a": Position(15, LIFE)}, end)[0] == [Range("a", LIFE, 11, 20)]


def test_what_is_left_beside_losses() -> None:
    assert without(1, 10, [LostRange(4, 5, "cap"), LostRange(1, 2, "ttl")]) == [(3, 4), (6, 10)]
    assert without(1, 4, [LostRange(1, 9, "cap")]) == []
    assert without(5, 6, []) == [(5, 6)]


def test_small_ranges_share_a_partition_and_large_ones_have_their_own() -> None:
    small = [Range(f"t{i}", LIFE, 1, 11) for i in range(20)]
    large = Range("u", LIFE, 1, SMALL_RANGE * 3)
    works = partitions_of([*small, large], [])
    assert [len(work.ranges) for work in works] == [20, 1]


@pytest.mark.parametrize("minimum", [1, 2, 7, 1000])
@pytest.mark.parametrize("maximum", [None, 1, 13, 1000])
def test_partitions_hold_each_seq_once_within_both_bounds(minimum: int, maximum: int | None) -> None:
    ranges = [Range("a", LIFE, 3, 103), Range("b", LIFE, 1, 2), Range("c", LIFE, 50, 60)]
    works = partitions_of(ranges, [], min_partitions=minimum, max_records=maximum)
    assert seqs(works) == [(part.topic, seq) for part in ranges for seq in range(part.first, part.end)]
    assert len(works) >= min(minimum, 111)
    assert maximum is None or all(sum(part.count for part in work.ranges) <= maximum for work in works)


def test_losses_without_records_still_make_a_partition() -> None:
    loss = TopicLoss("a", 1, 5, "cap")
    assert [work.losses for work in partitions_of([], [loss])] == [(loss,)]
    assert partitions_of([], []) == []


class Piece:
    """The part of topics.files.Piece that planning uses."""

    def __init__(self, from_seq: int, to_seq: int, size: int) -> None:
        self.from_seq, self.to_seq, self.bytes = from_seq, to_seq, size

    def clip(self, low: int, high: int) -> Piece:
        share = (high - low + 1) / (self.to_seq - self.from_seq + 1)
        return Piece(low, high, max(1, round(self.bytes * share)))


def of_pieces(works: list) -> list[list[tuple[int, int]]]:
    return [[(piece.from_seq, piece.to_seq) for piece in work.pieces] for work in works]


def test_small_segments_are_grouped_and_large_ones_are_split() -> None:
    pieces = [Piece(1, 10, 30), Piece(11, 20, 30), Piece(21, 30, 30), Piece(31, 130, 200)]
    works = piece_partitions(pieces, [], target_bytes=64)
    assert of_pieces(works) == [[(1, 10), (11, 20)], [(21, 30)], [(31, 55)], [(56, 80)], [(81, 105)], [(106, 130)]]


def test_pieces_follow_the_least_number_of_partitions_and_the_most_records() -> None:
    pieces = [Piece(1, 100, 1000)]
    assert len(piece_partitions(pieces, [], target_bytes=1 << 30, min_partitions=4)) == 4
    works = piece_partitions(pieces, [], target_bytes=1 << 30, max_records=30)
    assert of_pieces(works) == [[(1, 25)], [(26, 50)], [(51, 75)], [(76, 100)]]


def test_more_partitions_than_a_driver_can_keep_are_refused() -> None:
    words = "maxRecordsPerPartition=10 makes 100001 partitions, and 100000 are the most: raise it"
    with pytest.raises(OptionError, match=words):
        partitions_of([Range("a", LIFE, 1, 500_001), Range("b", LIFE, 1, 500_002)], [], max_records=10)
    with pytest.raises(OptionError, match=words):
        piece_partitions([Piece(1, 1_000_001, 30)], [], target_bytes=1 << 20, max_records=10)
