"""Facts that only Spark itself can show: where errors appear, what shows in plans, replays of a checkpoint, filters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.fake_server import FakeServer
from tests.spark.own_server import own_server

pytestmark = pytest.mark.spark
SECRET = "s3cret-key"


@pytest.fixture
def fake() -> FakeServer:
    return FakeServer()


@pytest.fixture
def url(fake: FakeServer) -> Iterator[str]:
    with fake.served() as address:
        yield address


def read(spark: Any, url: str, **given: Any) -> Any:
    options = {"url": url, **({} if "subscribePattern" in given else {"subscribe": "a"}), **given}
    return spark.read.format("topics").options(**options).load()


class Copy:
    """A stream from topic `a` to topic `out`, one run of AvailableNow at a time."""

    def __init__(self, spark: Any, url: str, folder: Path, **given: Any) -> None:
        self.spark, self.url, self.checkpoint, self.given = spark, url, folder / "checkpoint", given

    def run(self, **given: Any) -> Any:
        source = {"url": self.url, "subscribe": "a", "startingOffsets": "earliest", **self.given, **given}
        stream = self.spark.readStream.format("topics").options(**source).load()
        query = (
            stream.select("data", "tag")
            .writeStream.format("topics")
            .options(url=self.url, topic="out", checkpointLocation=str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query

    def forget_the_last_commit(self) -> None:
        """Do what a driver does that dies between the sink's append and Spark's commit."""
        for folder in ("commits", "offsets"):
            for path in (self.checkpoint / folder).glob(".*.crc"):
                path.unlink()
        commits = sorted((self.checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        commits[-1].unlink()


# --- reading ---------------------------------------------------------------------------------------------------------


def test_all_columns_arrive_with_sparks_types(spark: Any, fake: FakeServer, url: str) -> None:
    fake.clock_ms = 1_738_402_212_417
    fake.put("a", {"x": 1}, tag="eu", node="n", meta='{"k": 1}')
    fake.put("a", "é")
    frame = read(spark, url, includeMeta="true")
    assert frame.dtypes == [
        ("topic", "string"),
        ("seq", "bigint"),
        ("ts", "timestamp"),
        ("tag", "string"),
        ("node", "string"),
        ("data", "string"),
        ("meta", "string"),
    ]
    found = [
        tuple(row) for row in frame.selectExpr("seq", "cast(ts as string)", "tag", "node", "data", "meta").collect()
    ]
    assert found == [
        (1, "2025-02-01 09:30:12.417", "eu", "n", '{"x": 1}', '{"k": 1}'),
        (2, "2025-02-01 09:30:12.417", None, None, '"é"', None),
    ]
    assert frame.selectExpr("variant_get(parse_json(data), '$.x', 'int') x").first().x == 1


def test_times_are_right_in_a_session_with_another_time_zone(spark: Any, fake: FakeServer, url: str) -> None:
    fake.clock_ms = 1_738_402_212_417
    fake.put("a", 1)
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        assert read(spark, url).selectExpr("cast(ts as string) t").first().t == "2025-02-01 18:30:12.417"
        frame = read(spark, url).select("data", "ts")
        frame.write.format("topics").mode("append").options(url=url, topic="out").save()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert fake.values("out") == [1]


def test_a_read_of_nothing_is_empty(spark: Any, fake: FakeServer, url: str) -> None:
    fake.make("a")
    assert read(spark, url).count() == 0
    assert read(spark, url, subscribePattern="none.*").collect() == []


def test_losses_are_rows_when_asked_for(spark: Any, fake: FakeServer, url: str) -> None:
    fake.put("a", *range(5))
    fake.lose("a", 2)
    frame = read(spark, url, onDataLoss="rows", startingOffsets='{"a": 1}')
    told = [tuple(row) for row in frame.where("loss IS NOT NULL").select("topic", "loss.*", "seq").collect()]
    assert told == [("a", 1, 2, "cap", None)]
    assert frame.where("loss IS NULL").count() == 3


def test_a_session_that_registered_nothing_finds_the_format(spark: Any, fake: FakeServer, url: str) -> None:
    fake.put("a", 1, 2)
    assert read(spark.newSession(), url).count() == 2


def test_a_view_in_sql(spark: Any, fake: FakeServer, url: str) -> None:
    fake.put("a", 1, 2)
    spark.sql(f"CREATE OR REPLACE TEMP VIEW a USING topics OPTIONS (url '{url}', subscribe 'a', columns 'seq')")
    assert spark.sql("SELECT max(seq) m FROM a").first().m == 2


def test_records_of_bytes_are_written_and_read_back(spark: Any, tmp_path: Path) -> None:
    with own_server(tmp_path) as server:
        given = [("1", None), (None, bytearray(b"\x00\xff")), ("null", None), (None, bytearray())]
        frame = spark.createDataFrame(given, "data string, bytes binary").coalesce(1)
        frame.write.format("topics").mode("append").options(url=server.url, topic="a").save()
        server.call("POST", "/v0/checkpoint", {})
        for place in ({"url": server.url}, {"path": server.path}):
            read_back = spark.read.format("topics").options(subscribe="a", columns="data,bytes,seq", **place).load()
            assert [tuple(row)[:2] for row in sorted(read_back.collect(), key=lambda row: row.seq)] == given


def test_files_and_both_give_what_http_gives(spark: Any, tmp_path: Path) -> None:
    with own_server(tmp_path) as server:
        server.put("a", [{"i": i} for i in range(3000)], tag="x")
        server.call("POST", "/v0/topics/a/delete", {"before_seq": 11})
        by_url = read(spark, server.url, minPartitions=3)
        expected = sorted(map(tuple, by_url.collect()))
        assert len(expected) == 2990
        both = spark.read.format("topics").options(url=server.url, path=server.path, subscribe="a").load()
        assert sorted(map(tuple, both.collect())) == expected
        for target in (1 << 16, 1 << 30):
            files = spark.read.format("topics").options(path=server.path, subscribe="a", targetBytes=target).load()
            assert sorted(map(tuple, files.collect())) == expected


def test_pushed_filters_narrow_what_is_asked_for_and_change_no_row(spark: Any, fake: FakeServer, url: str) -> None:
    from topics.spark import register  # noqa: PLC0415

    for at in range(1, 101):
        fake.clock_ms = at * 1000
        fake.put("a", at, tag="even" if at % 2 == 0 else "odd")
    fake.put("b", *range(50))
    wheres = [
        "seq >= 90",
        "seq > 10 AND seq <= 20",
        "seq = 7",
        "tag = 'even'",
        "tag IN ('odd', 'none') AND seq < 9",
        "topic = 'b'",
        "ts >= timestamp'1970-01-01 00:01:20' AND topic = 'a'",
        "ts < timestamp'1970-01-01 00:00:05.5'",
        "seq < 5 OR seq > 95",
        "tag IS NULL",
        "NOT seq > 4",
    ]
    plain = {where: read(spark, url, subscribe="a,b").where(where).collect() for where in wheres}
    register(spark, pushdown=True)
    try:
        for where in wheres:
            fake.requests.clear()
            assert sorted(read(spark, url, subscribe="a,b").where(where).collect()) == sorted(plain[where]), where
            if where == "seq >= 90":
                diffs = [body["from_seq"] for _, path, body in fake.requests if path.endswith("a/diff")]
                assert min(diffs) == 89
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
        register(spark)


# --- errors ----------------------------------------------------------------------------------------------------------


def test_a_wrong_option_is_told_by_load_before_any_job(spark: Any, url: str) -> None:
    with pytest.raises(Exception, match="unknown option pagesiz: did you mean pageSize"):
        read(spark, url, pageSiz=5)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets=latest leaves a batch nothing to read"),
        ({"subscribe": "nosuch"}, "topic 'nosuch' does not exist at"),
        ({"startingOffsets": '{"a": 1}'}, r"TOPICS_DATA_LOSS topic=a seq 1\.\.2 reason=cap"),
        ({"token": SECRET}, "401 unauthorized"),
        ({"url": "http://127.0.0.1:1", "retries": 0}, "no answer from http://127.0.0.1:1 after 1 tries"),
    ],
)
def test_what_planning_finds_out_is_told_without_the_key(
    spark: Any, fake: FakeServer, url: str, given: dict[str, Any], words: str
) -> None:
    fake.put("a", *range(5))
    fake.lose("a", 2)
    fake.token = "another" if "token" in given else None
    with pytest.raises(Exception, match=words) as caught:
        read(spark, **{"url": url, **given}).count()
    assert SECRET not in str(caught.value)


def test_a_schema_of_ones_own_is_refused_with_the_option_to_use(spark: Any, fake: FakeServer, url: str) -> None:
    fake.put("a", 1)
    frame = spark.read.format("topics").options(url=url, subscribe="a").schema("seq bigint, key string").load()
    with pytest.raises(Exception, match="choose columns by the option columns"):
        frame.count()


def test_a_bad_row_of_the_sink_is_named(spark: Any, url: str, fake: FakeServer) -> None:
    frame = spark.createDataFrame([(f"{i}" if i != 7 else "{",) for i in range(10)], "data string").coalesce(1)
    with pytest.raises(Exception, match=r"row 7 of partition 0 \(topic 'out'\): data is not JSON"):
        frame.write.format("topics").mode("append").options(url=url, topic="out").save()
    assert "out" not in fake.topics


@pytest.mark.parametrize(
    ("column_mode", "words"),
    [
        (("data", "overwrite"), r"the sink appends and replaces nothing: use mode\('append'\)"),
        (("value", "append"), "column data is missing"),
    ],
)
def test_a_write_that_cannot_be_is_refused_before_a_job(
    spark: Any, fake: FakeServer, url: str, column_mode: tuple[str, str], words: str
) -> None:
    column, mode = column_mode
    frame = spark.createDataFrame([("1",)], f"{column} string")
    with pytest.raises(Exception, match=words):
        frame.write.format("topics").mode(mode).options(url=url, topic="out").save()
    assert fake.requests == []


def test_a_stream_that_is_not_appended_is_refused(spark: Any, fake: FakeServer, url: str, tmp_path: Path) -> None:
    fake.put("a", 1)
    stream = spark.readStream.format("topics").options(url=url, subscribe="a", startingOffsets="earliest").load()
    counted = stream.groupBy("tag").count().selectExpr("to_json(struct(*)) data")
    for mode, words in (("complete", "the sink appends and replaces nothing"), ("update", "does not support Update")):
        query = (
            counted.writeStream.format("topics")
            .outputMode(mode)
            .options(url=url, topic="out", checkpointLocation=str(tmp_path / mode))
            .trigger(availableNow=True)
            .start()
        )
        with pytest.raises(Exception, match=words):
            query.awaitTermination()
    assert "out" not in fake.topics


# --- streams and the sink --------------------------------------------------------------------------------------------


def test_a_batch_that_is_repeated_appends_nothing_and_the_query_goes_on(
    spark: Any, fake: FakeServer, url: str, tmp_path: Path
) -> None:
    copy = Copy(spark, url, tmp_path, minPartitions=3)
    fake.put("a", *range(100))
    copy.run()
    copy.forget_the_last_commit()
    fake.put("a", *range(100, 150))
    copy.run()
    assert sorted(fake.values("out")) == list(range(150))


def test_a_limit_makes_batches_and_available_now_ends(spark: Any, fake: FakeServer, url: str, tmp_path: Path) -> None:
    fake.put("a", *range(100))
    query = Copy(spark, url, tmp_path, maxOffsetsPerTrigger=40).run()
    assert [progress["numInputRows"] for progress in query.recentProgress] == [40, 40, 20]
    lag = json.loads(query.recentProgress[0]["sources"][0]["latestOffset"])
    assert lag["topics"]["a"]["next"] == 101
    assert sorted(fake.values("out")) == list(range(100))


def test_a_loss_stops_a_stream_and_the_same_checkpoint_goes_on_with_skip(
    spark: Any, fake: FakeServer, url: str, tmp_path: Path
) -> None:
    copy = Copy(spark, url, tmp_path)
    fake.put("a", *range(10))
    copy.run()
    fake.put("a", *range(10, 30))
    fake.lose("a", 15)
    with pytest.raises(Exception, match=r"TOPICS_DATA_LOSS topic=a seq 11\.\.15 reason=cap"):
        copy.run()
    copy.run(onDataLoss="skip")
    assert fake.values("out") == [*range(10), *range(15, 30)]


def test_batch_writes_with_a_producer_and_foreachbatch_are_exactly_once(
    spark: Any, fake: FakeServer, url: str, tmp_path: Path
) -> None:
    frame = spark.range(10).selectExpr("cast(id as string) data").coalesce(2)

    def save(**given: Any) -> None:
        frame.write.format("topics").mode("append").options(url=url, topic="out", **given).save()

    for _ in range(2):
        save(producerId="nightly", epoch=1)
    assert sorted(fake.values("out")) == list(range(10))
    save(producerId="nightly", epoch=2)
    save()
    assert len(fake.values("out")) == 30

    fake.put("a", *range(20))

    def each(part: Any, number: int) -> None:
        for _ in range(2):
            part.select("data").write.format("topics").mode("append").options(
                url=url, topic="each", producerId="copy", epoch=number
            ).save()

    stream = spark.readStream.format("topics").options(url=url, subscribe="a", startingOffsets="earliest").load()
    writer = stream.writeStream.foreachBatch(each).option("checkpointLocation", str(tmp_path / "c"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert fake.values("each") == list(range(20))


def test_rows_go_to_the_topics_of_their_column(spark: Any, fake: FakeServer, url: str) -> None:
    frame = spark.range(9).selectExpr("cast(id as string) data", "concat('t', id % 3) topic", "'x' tag").coalesce(1)
    frame.write.format("topics").mode("append").options(url=url).save()
    assert [fake.values(f"t{i}") for i in range(3)] == [[i, i + 3, i + 6] for i in range(3)]


# --- the key ---------------------------------------------------------------------------------------------------------


def test_the_key_is_in_no_plan_no_checkpoint_no_event_and_no_output(
    spark: Any, fake: FakeServer, url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fake.put("a", *range(10))
    fake.token = SECRET
    frame = read(spark, url, token=SECRET)
    assert frame.count() == 10
    frame.explain("extended")
    frame.select("data").write.format("topics").mode("append").options(url=url, topic="out", token=SECRET).save()
    query = (
        spark.readStream.format("topics")
        .options(url=url, subscribe="a", token=SECRET, startingOffsets="earliest")
        .load()
        .select("data")
        .writeStream.format("topics")
        .options(url=url, topic="out", token=SECRET, checkpointLocation=str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    query.explain(True)
    assert len(fake.values("out")) == 20
    kept = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert kept
    assert not any(SECRET.encode() in text for text in kept)
    assert SECRET not in "".join(capfd.readouterr())
    assert SECRET not in json.dumps([json.loads(progress.json) for progress in query.recentProgress])
    assert SECRET not in repr(frame) + frame._jdf.queryExecution().toString()
