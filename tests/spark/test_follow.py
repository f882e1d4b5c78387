"""The stream's offsets: no gap and no duplicate over restarts, losses reported, an idle query that asks little."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from tests.pipelines.pipeline_world import opened, order  # noqa: E402
from tests.spark.fake_server import FakeServer  # noqa: E402
from topics.files import NoDirectoryError, open_directory  # noqa: E402
from topics.spark.client import SparkClient  # noqa: E402
from topics.spark.errors import DataLossError, OptionError  # noqa: E402
from topics.spark.options import STREAM, SourceOptions, parse_source  # noqa: E402
from topics.spark.reading.follow import Follower  # noqa: E402
from topics.spark.reading.partition_reading import WorkReader  # noqa: E402


class Query:
    """Spark's order of calls: offsets are written before a batch is read, commits after it."""

    def __init__(self, fake: FakeServer, **given: Any) -> None:
        given = given if "subscribePattern" in given else {"subscribe": "a", **given}
        raw = {"url": "http://h", **{name: str(value) for name, value in given.items()}}
        self.options: SourceOptions = parse_source(raw, STREAM)
        self.fake = fake
        self.offsets: list[str] = []
        self.committed = 0
        self.rows: list[dict[str, Any]] = []
        self.start_process()

    def client(self) -> SparkClient:
        assert self.options.connection is not None
        return SparkClient(self.options.connection, connect=self.fake.connect, sleep=self.sleep)

    def sleep(self, seconds: float) -> None:
        self.fake.clock_ms += round(seconds * 1000)

    def start_process(self, **given: Any) -> None:
        """A restart of the driver."""
        self.follower = Follower(
            self.options, client=self.client(), sleep=self.sleep, now=lambda: self.fake.clock_ms / 1000
        )
        self.started = False

    def available_now(self, limit: int | None = None) -> None:
        self.start_process()
        self.follower.prepare_available_now()
        while self.batch(limit):
            pass

    def plan(self, limit: int | None = None) -> bool:
        """Write the next batch's offset; False when there is no new one."""
        start = json.loads(self.offsets[-1]) if self.offsets else self.follower.initial_offset()
        end = self.follower.latest_offset(start, limit)
        if self.offsets and end == start:
            return False
        self.offsets.append(json.dumps(end))
        return True

    def partitions(self, number: int) -> list[Any]:
        start = json.loads(self.offsets[number - 1]) if number else self.follower.initial_offset()
        return self.follower.partitions(start, json.loads(self.offsets[number]))

    def run(self) -> None:
        """Read the last planned batch and commit it."""
        for work in self.partitions(len(self.offsets) - 1):
            for batch in WorkReader(self.options, self.client()).read(work):
                self.rows += batch.to_pylist()
        self.committed = len(self.offsets)

    def batch(self, limit: int | None = None) -> bool:
        if self.committed == len(self.offsets) and not self.plan(limit):
            return False
        self.run()
        return True

    def seqs(self, topic: str = "a") -> list[int]:
        return [row["seq"] for row in self.rows if row["topic"] == topic and row["seq"]]

    def losses(self) -> list[tuple[int, int, str]]:
        return [tuple(row["loss"].values()) for row in self.rows if row.get("loss")]


def requests(fake: FakeServer) -> list[str]:
    return [path for _, path, _ in fake.requests]


# --- beginning -------------------------------------------------------------------------------------------------------


def test_a_stream_begins_at_the_head_by_default_and_at_the_first_kept_seq_with_earliest() -> None:
    fake = FakeServer()
    fake.put("a", *range(10))
    fake.lose("a", 3)
    life = fake.topics["a"].of
    assert Query(fake).follower.initial_offset() == {"v": 1, "topics": {"a": {"next": 11, "of": life}}}
    first = Query(fake, startingOffsets="earliest").follower.initial_offset()
    assert first == {"v": 1, "topics": {"a": {"next": 4, "of": life}}}
    assert Query(fake, startingOffsets='{"a": 7}').follower.initial_offset()["topics"]["a"]["next"] == 7
    assert Query(fake, startingTimestamp=0).follower.initial_offset()["topics"]["a"]["next"] == 4


def test_a_new_stream_of_an_unknown_topic_or_a_seq_beyond_the_head_is_refused() -> None:
    fake = FakeServer()
    with pytest.raises(OptionError, match="topic 'a' does not exist at http://h"):
        Query(fake).follower.initial_offset()
    fake.put("a", 1)
    with pytest.raises(OptionError, match="startingOffsets gives 9 for topic 'a', whose head is 1"):
        Query(fake, startingOffsets='{"a": 9}').follower.initial_offset()


def test_without_news_the_start_comes_back_unchanged() -> None:
    fake = FakeServer()
    fake.put("a", 1)
    follower = Query(fake).follower
    start = follower.initial_offset()
    assert follower.latest_offset(start, None) is start
    later = {"v": 1, "topics": {"a": {"next": 2, "of": fake.topics["a"].of, "lost": [[1, 1, "cap"]]}}}
    assert follower.latest_offset(later, None) is later


# --- restarts --------------------------------------------------------------------------------------------------------


def test_every_record_comes_once_over_batches_and_restarts() -> None:
    fake = FakeServer()
    fake.put("a", *range(10))
    query = Query(fake, startingOffsets="earliest")
    query.available_now(limit=3)
    fake.put("a", *range(10))
    query.start_process()
    query.batch()
    query.available_now()
    fake.put("a", 1)
    query.available_now()
    assert query.seqs() == list(range(1, 22))


@pytest.mark.parametrize("begin", ["latest", "earliest", '{"a": 11}'])
def test_a_first_batch_that_died_is_the_same_batch_after_the_restart(begin: str) -> None:
    fake = FakeServer()
    fake.put("a", *range(10))
    query = Query(fake, startingOffsets=begin)
    query.follower.initial_offset()
    fake.put("a", *range(5))  # between the initial offset and the first plan
    query.plan()
    before = query.partitions(0)
    query.start_process()
    fake.put("a", *range(5))
    assert query.partitions(0) == before, "Spark keeps no initial offset: it asks for it again"
    query.run()
    query.batch()
    assert query.seqs() == list(range(1 if begin == "earliest" else 11, 21))


def test_a_first_batch_that_died_says_nothing_of_topics_without_news_that_are_made_again_meanwhile() -> None:
    fake = FakeServer()
    fake.put("a", 1)
    fake.put("b", *range(10))
    query = Query(fake, subscribe="a,b", onDataLoss="rows")
    query.follower.initial_offset()
    fake.put("a", 2)
    query.plan()
    del fake.topics["b"]
    fake.put("b", "new")
    query.start_process()
    query.run()
    assert (query.seqs("a"), query.seqs("b"), query.losses()) == ([2], [], [])
    query.batch()
    assert (query.seqs("b"), query.losses()) == ([1], [(11, 11, "recreated")])


@pytest.mark.parametrize("begin", ["earliest", '{"a": 4}'])
def test_a_first_batch_that_died_reports_what_it_planned_of_a_topic_that_was_made_again_meanwhile(begin: str) -> None:
    fake = FakeServer()
    fake.put("a", *range(10))
    query = Query(fake, startingOffsets=begin, onDataLoss="rows")
    query.plan()
    del fake.topics["a"]
    fake.put("a", *range(6))
    query.start_process()
    query.run()
    assert (query.seqs(), query.losses()) == ([], [(1 if begin == "earliest" else 4, 10, "recreated")])


def test_an_empty_first_batch_of_a_stream_at_the_head_keeps_its_place() -> None:
    fake = FakeServer()
    fake.put("a", *range(10))
    query = Query(fake)
    query.plan()
    query.start_process()
    fake.put("a", *range(5))
    query.run()
    query.batch()
    assert query.seqs() == list(range(11, 16))


def test_partitions_ask_no_server() -> None:
    fake = FakeServer()
    fake.put("a", *range(10))
    query = Query(fake, startingOffsets='{"a": 1}', minPartitions=3)
    query.plan()
    start = query.follower.initial_offset()
    query.start_process()
    asked = len(fake.requests)
    assert len(query.follower.partitions(start, json.loads(query.offsets[0]))) == 3
    assert len(fake.requests) == asked


def test_a_checkpoint_of_another_source_is_refused() -> None:
    fake = FakeServer()
    fake.put("a", 1)
    with pytest.raises(OptionError, match="another checkpointLocation"):
        Query(fake).follower.latest_offset({"a": 5}, None)


# --- limits ----------------------------------------------------------------------------------------------------------


def test_a_limit_is_shared_fairly_until_available_now_ends_by_itself() -> None:
    fake = FakeServer()
    fake.put("a", *range(1000))
    fake.put("b", *range(1000))
    query = Query(fake, subscribe="a,b", startingOffsets="earliest")
    sizes: list[int] = []
    query.follower.prepare_available_now()
    while query.batch(600):
        sizes.append(len(query.rows) - sum(sizes))
        assert len(query.seqs("a")) == len(query.seqs("b"))
    assert sizes == [600, 600, 600, 200]
    assert query.seqs("a") == query.seqs("b") == list(range(1, 1001))


def test_available_now_reads_what_was_there_when_it_began_and_nothing_later() -> None:
    fake = FakeServer()
    fake.put("a", *range(5))
    query = Query(fake, subscribePattern=".*", startingOffsets="earliest")
    query.follower.prepare_available_now()
    query.batch(2)
    fake.put("a", *range(5))
    fake.put("later", 1)
    while query.batch(2):
        pass
    assert query.seqs() == [1, 2, 3, 4, 5]
    assert query.seqs("later") == []
    query.available_now()
    assert query.seqs() == list(range(1, 11))
    assert query.seqs("later") == [1]


def test_a_wide_hole_takes_no_part_of_the_limit() -> None:
    fake = FakeServer()
    fake.put("a", *range(100_000))
    fake.delete("a", *range(99_991))
    query = Query(fake, startingOffsets='{"a": 1}')
    query.available_now(limit=10)
    assert len(query.offsets) == 1
    assert query.seqs() == list(range(99_991, 100_001))


# --- topics that come and go -----------------------------------------------------------------------------------------


def test_a_topic_that_appears_later_is_read_from_its_first_record() -> None:
    fake = FakeServer()
    fake.put("x1", 1)
    query = Query(fake, subscribePattern="x.*")
    query.batch()
    fake.put("x2", *range(5))
    for _ in range(4):
        query.batch()
    assert query.seqs("x1") == []
    assert query.seqs("x2") == [1, 2, 3, 4, 5]


def test_what_a_topic_lost_before_it_was_noticed_is_reported() -> None:
    fake = FakeServer()
    query = Query(fake, subscribePattern="x.*", onDataLoss="rows")
    query.batch()
    fake.put("x", *range(5))
    fake.lose("x", 2)
    for _ in range(4):
        query.batch()
    assert query.seqs("x") == [3, 4, 5]
    assert query.losses() == [(1, 2, "cap")]


def test_a_deleted_topic_stops_nothing_and_asks_for_nothing_again_and_again() -> None:
    fake = FakeServer()
    fake.put("a", 1)
    fake.put("b", 1)
    query = Query(fake, subscribe="a,b", startingOffsets="earliest")
    query.batch()
    del fake.topics["a"]
    for _ in range(3):
        query.batch()
    before, asked = fake.clock_ms, len(fake.requests)
    query.batch()
    assert fake.clock_ms - before == 5000, "the wait parks"
    assert len(fake.requests) - asked == 1
    fake.put("b", 2)
    query.batch()
    assert query.seqs("b") == [1, 2]


@pytest.mark.parametrize("mode", ["fail", "skip", "rows"])
def test_a_topic_made_again_is_reported_as_recreated_and_read_from_its_first_record(mode: str) -> None:
    fake = FakeServer()
    fake.put("a", *range(10))
    query = Query(fake, startingOffsets="earliest", onDataLoss=mode)
    query.batch()
    del fake.topics["a"]
    fake.put("a", *["new"] * 10)  # as many records: only the head would show nothing
    if mode == "fail":
        with pytest.raises(DataLossError, match=r"TOPICS_DATA_LOSS topic=a seq 11\.\.11 reason=recreated"):
            query.batch()
        return
    query.batch()
    assert query.seqs() == [*range(1, 11), *range(1, 11)]
    assert query.losses() == ([(11, 11, "recreated")] if mode == "rows" else [])
    lost = json.loads(query.offsets[-1])["topics"]["a"]["lost"]
    assert lost == [[11, 11, "recreated"]]


def test_a_stream_by_files_waits_for_a_snapshot_that_has_what_was_read_by_url(tmp_path: Path) -> None:
    """With AvailableNow, too, when the newest snapshot is older than the place of the query."""
    with opened(tmp_path) as log:
        log.append("a", [order(n) for n in range(5)])
    begin = {"v": 1, "topics": {"a": {"next": 9, "of": open_directory(str(tmp_path)).topics["a"].incarnation}}}
    files = Follower(parse_source({"path": str(tmp_path), "subscribe": "a", "waitMs": "0"}, STREAM))
    assert files.latest_offset(begin, None) is begin
    files.prepare_available_now()
    assert files.latest_offset(begin, None) is begin


def test_a_stream_by_url_and_path_refuses_a_wrong_path_before_it_begins(tmp_path: Path) -> None:
    """Only large batches read files, so tasks would find out, and late."""
    fake = FakeServer()
    fake.put("a", 1)
    with pytest.raises(NoDirectoryError, match=str(tmp_path)):
        Query(fake, path=tmp_path / "none", startingOffsets="earliest").batch()


def test_a_directory_put_back_to_an_older_state_is_reported() -> None:
    fake = FakeServer()
    fake.put("a", *range(10))
    query = Query(fake, startingOffsets="earliest", onDataLoss="skip")
    query.batch()
    fake.topics["a"].head = 5
    with pytest.raises(OptionError, match="ends at seq 5, and this query has read up to 10"):
        query.batch()


# --- losses ----------------------------------------------------------------------------------------------------------


def test_a_loss_fails_the_query_and_the_same_checkpoint_goes_on_with_another_choice() -> None:
    fake = FakeServer()
    fake.put("a", *range(10))
    query = Query(fake, startingOffsets="earliest")
    query.batch()
    fake.put("a", *range(20))
    fake.lose("a", 15)
    with pytest.raises(DataLossError, match=r"topic=a seq 11\.\.15 reason=cap"):
        query.batch()
    again = Query(fake, onDataLoss="rows")
    again.offsets, again.committed = query.offsets, query.committed
    again.batch()
    assert (again.seqs(), again.losses()) == (list(range(16, 31)), [(11, 15, "cap")])


def test_a_loss_known_at_planning_is_told_the_same_when_its_batch_is_read_again() -> None:
    fake = FakeServer()
    fake.put("a", *range(10))
    fake.lose("a", 4)
    query = Query(fake, startingOffsets='{"a": 1}', onDataLoss="rows")
    query.plan(limit=3)
    assert json.loads(query.offsets[-1])["topics"]["a"]["lost"] == [[1, 4, "cap"]]
    query.run()
    once, query.rows = query.rows, []
    query.start_process()
    query.run()
    assert query.rows == once
    assert (query.seqs(), query.losses()) == ([5, 6, 7], [(1, 4, "cap")])
    query.batch()
    assert query.losses() == [(1, 4, "cap")], "the next batch does not tell it again"
    assert "lost" not in json.loads(query.offsets[-1])["topics"]["a"]


def test_a_planned_loss_fails_when_the_query_is_started_again_with_fail() -> None:
    fake = FakeServer()
    fake.put("a", *range(10))
    fake.lose("a", 4)
    query = Query(fake, startingOffsets='{"a": 1}', onDataLoss="skip")
    query.plan()
    strict = Query(fake, startingOffsets='{"a": 1}')
    strict.offsets = query.offsets
    with pytest.raises(DataLossError, match=r"seq 1\.\.4"):
        strict.run()


# --- asking little ---------------------------------------------------------------------------------------------------


def per_5s(fake: FakeServer, query: Query, rounds: int) -> float:
    begin, asked = fake.clock_ms, len(fake.requests)
    for _ in range(rounds):
        query.batch()
        query.follower.reported_offset()
    return (len(fake.requests) - asked) / ((fake.clock_ms - begin) / 5000)


def test_an_idle_query_makes_one_request_in_five_seconds_at_most() -> None:
    fake = FakeServer()
    for name in ("a", "b", "c"):
        fake.put(name, 1)
    query = Query(fake, subscribe="a,b,c", startingOffsets="earliest")
    query.batch()
    assert per_5s(fake, query, 20) <= 1
    assert set(requests(fake)[-20:]) == {"/v0/wait"}


def test_an_idle_query_by_a_pattern_does_so_too_and_still_finds_topics() -> None:
    fake = FakeServer()
    fake.put("a", 1)
    query = Query(fake, subscribePattern="[a-z]")
    query.batch()
    assert per_5s(fake, query, 20) <= 1
    empty = Query(FakeServer(), subscribePattern="[a-z]")
    empty.batch()
    assert per_5s(empty.fake, empty, 20) <= 1


def test_more_topics_than_a_wait_takes_are_all_looked_at() -> None:
    fake = FakeServer()
    names = [f"t{i:03}" for i in range(600)]
    for name in names:
        fake.put(name, 1)
    query = Query(fake, subscribe=",".join(names), startingOffsets="earliest")
    query.batch()
    for name in names[::100]:
        fake.put(name, 2)
    query.batch()
    assert sum(len(query.seqs(name)) for name in names) == 606
    asked = [body for _, path, body in fake.requests if path == "/v0/wait"]
    assert max(len(body["topics"]) for body in asked) <= 256
    assert [body["wait_ms"] for body in asked[-3:]] == [0, 0, 0], "with news nobody is waited for"
    query.batch()
    asked = [body for _, path, body in fake.requests if path == "/v0/wait"][-3:]
    assert [body["wait_ms"] for body in asked] == [0, 0, 5000]
    assert set(names[::100]) <= set(asked[-1]["topics"]), "the wait is for those that had news last"


def test_the_lag_is_reported_from_what_was_seen_without_a_request() -> None:
    fake = FakeServer()
    fake.put("a", *range(10))
    query = Query(fake, startingOffsets="earliest")
    assert query.follower.reported_offset() is None
    query.batch(limit=3)
    asked = len(fake.requests)
    reported = query.follower.reported_offset()
    assert reported is not None
    assert reported["topics"]["a"]["next"] == 11
    assert json.loads(query.offsets[-1])["topics"]["a"]["next"] == 4
    assert len(fake.requests) == asked


def test_the_wait_is_not_used_with_available_now() -> None:
    fake = FakeServer()
    fake.put("a", 1)
    query = Query(fake, startingOffsets="earliest")
    query.available_now()
    assert "/v0/wait" not in requests(fake)
