"""Reading by url: batches that Spark takes as they are, and losses reported, skipped or failed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from tests.spark.fake_server import FakeServer  # noqa: E402
from topics.spark.client import SparkClient  # noqa: E402
from topics.spark.errors import BytesRowError, DataLossError, OptionError, ServerError  # noqa: E402
from topics.spark.options import BATCH, SourceOptions, parse_source  # noqa: E402
from topics.spark.reading import partition_reading  # noqa: E402
from topics.spark.reading.batch import Bounds, plan_batch  # noqa: E402
from topics.spark.reading.planning import Work  # noqa: E402
from topics.spark.schema import arrow_schema  # noqa: E402


def options_of(**given: Any) -> SourceOptions:
    if "subscribePattern" not in given:
        given = {"subscribe": "a", **given}
    return parse_source({"url": "http://h", **{name: str(value) for name, value in given.items()}}, BATCH)


def plan(fake: FakeServer, bounds: Bounds | None = None, **given: Any) -> list[Work]:
    options = options_of(**given)
    assert options.connection is not None
    return plan_batch(options, bounds, SparkClient(options.connection, connect=fake.connect))


def batches(fake: FakeServer, works: list[Work], **given: Any) -> Iterator[Any]:
    options = options_of(**given)
    assert options.connection is not None
    for work in works:
        reader = partition_reading.WorkReader(options, SparkClient(options.connection, connect=fake.connect))
        for batch in reader.read(work):
            assert batch.schema == arrow_schema(options.columns)
            yield batch


def rows(fake: FakeServer, **given: Any) -> list[dict[str, Any]]:
    works = plan(fake, **given)
    return [row for batch in batches(fake, works, **given) for row in batch.to_pylist()]


def seqs(fake: FakeServer, **given: Any) -> list[int]:
    return [row["seq"] for row in rows(fake, **given)]


def test_a_row_has_all_columns_and_the_json_as_it_was_written() -> None:
    fake = FakeServer()
    fake.put("a", {"x": [1, 2.5]}, tag="eu", node="n1", meta='{"by": "me"}')
    fake.put("a", "é")
    found = rows(fake, includeMeta="true")
    at = datetime.fromtimestamp(1000, UTC)
    assert found == [
        {
            "topic": "a",
            "seq": 1,
            "ts": at,
            "tag": "eu",
            "node": "n1",
            "data": '{"x": [1, 2.5]}',
            "meta": '{"by": "me"}',
        },
        {"topic": "a", "seq": 2, "ts": at, "tag": None, "node": None, "data": '"é"', "meta": None},
    ]


def test_columns_are_those_asked_for_in_their_order() -> None:
    fake = FakeServer()
    fake.put("a", 1, 2)
    assert rows(fake, columns="data,seq") == [{"data": "1", "seq": 1}, {"data": "2", "seq": 2}]
    assert list(rows(fake, columns="data,seq")[0]) == ["data", "seq"]
    asked = [body for _, path, body in fake.requests if path.endswith("/diff")][-1]
    assert (asked["include_tags"], asked["include_meta"]) == (False, False)


def test_records_of_bytes_are_in_a_column_that_is_asked_for() -> None:
    fake = FakeServer()
    fake.put("a", 1, b"\x00\xff", b"", None)
    assert rows(fake, columns="seq,bytes,data") == [
        {"seq": 1, "bytes": None, "data": "1"},
        {"seq": 2, "bytes": b"\x00\xff", "data": None},
        {"seq": 3, "bytes": b"", "data": None},
        {"seq": 4, "bytes": None, "data": "null"},
    ]
    assert rows(fake, columns="bytes")[1:3] == [{"bytes": b"\x00\xff"}, {"bytes": b""}]
    assert seqs(fake, columns="seq,tag") == [1, 2, 3, 4], "what does not read data does not fail"


def test_a_record_of_bytes_fails_a_read_of_data_with_the_remedy_unless_it_is_not_of_the_read() -> None:
    fake = FakeServer()
    fake.put("a", 1)
    fake.put("a", b"x", tag="raw")
    fake.put("a", 3, tag="json")
    words = "^record 2 of topic a is bytes, which .* cannot hold: name the column bytes in the option columns, too"
    for given in ({}, {"columns": "data"}, {"tagIn": "raw"}, {"startingOffsets": '{"a": 2}'}):
        with pytest.raises(BytesRowError, match=words):
            rows(fake, **given)
    assert seqs(fake, tagIn="json") == [3]
    assert seqs(fake, endingOffsets='{"a": 2}') == [1]


def test_pages_are_gathered_into_one_batch_and_every_seq_comes_once() -> None:
    fake = FakeServer()
    fake.put("a", *range(57))
    works = plan(fake, pageSize=10)
    assert [batch.num_rows for batch in batches(fake, works, pageSize=10)] == [57]
    for minimum in (1, 3, 57, 100):
        assert seqs(fake, pageSize=10, minPartitions=minimum) == list(range(1, 58))


def test_deletes_are_silent() -> None:
    fake = FakeServer()
    fake.put("a", *range(10))
    fake.delete("a", 1, 2, 5, 10)
    assert seqs(fake, pageSize=2) == [3, 4, 6, 7, 8, 9]
    fake.delete("a", *range(11))
    assert seqs(fake) == []


def test_offsets_name_the_first_seq_to_read_and_the_one_behind_the_last() -> None:
    fake = FakeServer()
    fake.put("a", *range(9))
    assert seqs(fake, startingOffsets='{"a": 3}', endingOffsets='{"a": 6}') == [3, 4, 5]
    assert seqs(fake, startingOffsets='{"a": 10}') == []
    assert seqs(fake, startingOffsets='{"a": -2}', endingOffsets='{"a": -1}') == list(range(1, 10))


def test_times_go_before_offsets() -> None:
    fake = FakeServer()
    for at in (1000, 2000, 2000, 3000):
        fake.clock_ms = at
        fake.put("a", at)
    assert seqs(fake, startingTimestamp=1001, endingTimestamp=3000, startingOffsets="earliest") == [2, 3]
    assert seqs(fake, startingTimestamp=3001) == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"subscribePattern": ".*", "endingOffsets": '{"nosuch": 2}'},
            "option endingOffsets names topic 'nosuch', which does not exist: create it, or correct the name",
        ),
        ({"subscribe": "a,nosuch"}, "topic 'nosuch' does not exist at http://h: create it first, or correct subscribe"),
        ({"startingOffsets": '{"a": 8}'}, "startingOffsets gives 8 for topic 'a', whose head is 5: give at most 6"),
        ({"endingOffsets": '{"a": 7}'}, "endingOffsets gives 7 for topic 'a', whose head is 5"),
        (
            {"startingOffsets": '{"a": 4}', "endingOffsets": '{"a": 2}'},
            "would start at seq 4 and end before seq 2: give an end that is not below the start",
        ),
    ],
)
def test_what_the_topics_contradict_is_refused_before_a_job_starts(given: dict[str, str], words: str) -> None:
    fake = FakeServer()
    fake.put("a", *range(5))
    with pytest.raises(OptionError, match=words):
        plan(fake, **given)


def test_a_pattern_means_whole_names_and_may_match_none() -> None:
    fake = FakeServer()
    for name in ("orders-eu", "orders-us", "my-orders-eu"):
        fake.put(name, name)
    found = rows(fake, subscribePattern="orders-.*")
    assert [row["topic"] for row in found] == ["orders-eu", "orders-us"]
    assert rows(fake, subscribePattern="none.*") == []


def test_tags_are_filtered_also_without_the_column() -> None:
    fake = FakeServer()
    for tag in ("eu", "us", None, "eu"):
        fake.put("a", 1, tag=tag)
    assert rows(fake, tagIn="eu", columns="seq") == [{"seq": 1}, {"seq": 4}]


# --- losses ----------------------------------------------------------------------------------------------------------


def lossy() -> FakeServer:
    fake = FakeServer()
    fake.put("a", *range(20))
    fake.lose("a", 4, "ttl")
    return fake


def test_earliest_is_the_first_seq_that_is_not_lost() -> None:
    assert seqs(lossy()) == list(range(5, 21))


def test_a_loss_known_before_the_job_fails_the_plan_by_default() -> None:
    with pytest.raises(DataLossError, match=r"TOPICS_DATA_LOSS topic=a seq 2\.\.4 reason=ttl: .*onDataLoss=skip"):
        plan(lossy(), startingOffsets='{"a": 2}')


def test_a_loss_is_skipped_or_told_in_a_row_of_its_own() -> None:
    assert seqs(lossy(), startingOffsets='{"a": 2}', onDataLoss="skip") == list(range(5, 21))
    found = rows(lossy(), startingOffsets='{"a": 2}', onDataLoss="rows")
    assert [row["seq"] for row in found] == [None, *range(5, 21)]
    assert (found[0]["topic"], found[0]["loss"]) == ("a", {"from_seq": 2, "to_seq": 4, "reason": "ttl"})
    assert (found[0]["data"], found[1]["loss"]) == (None, None)


@pytest.mark.parametrize("page_size", [1, 7, 1000])
def test_a_gap_inside_is_told_where_it_is_met(page_size: int) -> None:
    fake = FakeServer()
    fake.put("a", *range(20))
    fake.delete("a", *range(8, 12))
    fake.topics["a"].gaps = [(8, 11, "crash")]
    with pytest.raises(DataLossError, match=r"topic=a seq 8\.\.11 reason=crash"):
        rows(fake, pageSize=page_size)
    found = rows(fake, pageSize=page_size, onDataLoss="rows")
    assert [row["loss"] for row in found if row["seq"] is None] == [{"from_seq": 8, "to_seq": 11, "reason": "crash"}]
    assert seqs(fake, pageSize=page_size, onDataLoss="skip") == [*range(1, 8), *range(12, 21)]


def test_a_gap_over_the_edge_of_a_partition_is_told_by_both_its_parts() -> None:
    fake = FakeServer()
    fake.put("a", *range(20))
    fake.delete("a", *range(8, 14))
    fake.topics["a"].gaps = [(8, 13, "crash")]
    found = rows(fake, minPartitions=2, onDataLoss="rows")
    assert [row["seq"] for row in found if row["seq"]] == [*range(1, 8), *range(14, 21)]
    assert [(row["loss"]["from_seq"], row["loss"]["to_seq"]) for row in found if row["loss"]] == [(8, 10), (11, 13)]


def test_a_loss_between_plan_and_read_is_told_by_the_read() -> None:
    fake = FakeServer()
    fake.put("a", *range(20))
    for mode in ("fail", "rows", "skip"):
        works = plan(fake, onDataLoss=mode)
        fake.lose("a", fake.topics["a"].lost_to + 3)
        if mode == "fail":
            with pytest.raises(DataLossError, match=r"seq 1\.\.3 reason=cap"):
                list(batches(fake, works))
        else:
            found = [row for batch in batches(fake, works, onDataLoss=mode) for row in batch.to_pylist()]
            assert len([row for row in found if row.get("loss")]) == (mode == "rows")


# --- topics created again --------------------------------------------------------------------------------------------


def test_a_topic_made_again_between_plan_and_read_gives_no_row_of_the_new_life() -> None:
    fake = FakeServer()
    fake.put("a", *range(20))
    works = plan(fake, onDataLoss="rows")
    del fake.topics["a"]
    fake.put("a", *range(100, 150))
    found = [row for batch in batches(fake, works, onDataLoss="rows") for row in batch.to_pylist()]
    assert [row["loss"] for row in found] == [{"from_seq": 1, "to_seq": 20, "reason": "recreated"}]
    with pytest.raises(DataLossError, match=r"seq 1\.\.20 reason=recreated"):
        list(batches(fake, works))


@pytest.mark.parametrize("at", range(1, 12))
def test_a_topic_made_again_between_any_two_pages_mixes_no_rows(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_reading, "FLUSH_ROWS", 6)
    fake = FakeServer()
    fake.put("a", *range(20))
    works = plan(fake, onDataLoss="rows")
    asked = 0

    def meanwhile(method: str, path: str) -> None:
        nonlocal asked
        asked += 1
        if asked == at:
            del fake.topics["a"]
            fake.put("a", *(["new"] * 30))

    fake.before = meanwhile
    found = [row for batch in batches(fake, works, pageSize=3, onDataLoss="rows") for row in batch.to_pylist()]
    read = [row["seq"] for row in found if row["seq"]]
    assert [row["data"] for row in found if row["seq"]] == [str(seq - 1) for seq in read]
    assert read == list(range(1, len(read) + 1))
    lost = [row["loss"] for row in found if row["loss"]]
    assert lost == ([{"from_seq": len(read) + 1, "to_seq": 20, "reason": "recreated"}] if len(read) < 20 else [])


def test_a_topic_deleted_between_plan_and_read_is_reported() -> None:
    fake = FakeServer()
    fake.put("a", *range(5))
    works = plan(fake)
    del fake.topics["a"]
    with pytest.raises(DataLossError, match=r"seq 1\.\.5 reason=topic_deleted"):
        list(batches(fake, works))
    assert list(batches(fake, works, onDataLoss="skip")) == []


# --- bounds, files and keys ------------------------------------------------------------------------------------------


def test_bounds_of_filters_narrow_the_plan() -> None:
    fake = FakeServer()
    for at, name in ((1000, "a"), (2000, "a"), (3000, "a"), (3000, "b")):
        fake.clock_ms = at
        fake.put(name, at)

    def planned(**bounds: Any) -> list[tuple[str, int, int]]:
        works = plan(fake, Bounds(**bounds), subscribe="a,b")
        return [(part.topic, part.first, part.end) for work in works for part in work.ranges]

    assert planned() == [("a", 1, 4), ("b", 1, 2)]
    assert planned(topics=frozenset("b")) == [("b", 1, 2)]
    assert planned(first=2, end=3) == [("a", 2, 3)]
    assert planned(first_ms=1500, end_ms=2500) == [("a", 2, 3)]
    assert planned(first=9) == []


def test_a_lost_range_that_filters_leave_out_fails_nothing() -> None:
    works = plan(lossy(), Bounds(first=5), startingOffsets='{"a": 2}')
    assert [(part.first, part.end) for work in works for part in work.ranges] == [(5, 21)]


def test_a_checkpoint_that_the_key_may_not_ask_for_says_what_to_do(tmp_path: Any) -> None:
    from tests.spark.fake_server import Refused  # noqa: PLC0415

    fake = FakeServer()
    fake.put("a", 1)
    fake.failures = [Refused(403, "forbidden")]
    with pytest.raises(ServerError, match="needs a key with the scope admin: give such a key, or only one of url"):
        plan(fake, path=tmp_path)
