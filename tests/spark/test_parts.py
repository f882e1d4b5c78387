"""The sink's parts: one append each however often it is tried, and each bad row named."""

from __future__ import annotations

import json
import random
import re
import sys
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from tests.spark.fake_server import FakeServer, Refused  # noqa: E402
from topics.spark.client import SparkClient  # noqa: E402
from topics.spark.errors import OptionError, RowError, ServerError  # noqa: E402
from topics.spark.options import parse_sink  # noqa: E402
from topics.spark.schema import check_sink_columns  # noqa: E402
from topics.spark.writing import parts  # noqa: E402
from topics.spark.writing.bodies import records_of  # noqa: E402
from topics.spark.writing.parts import PartName, PartWriter, SentTotals  # noqa: E402

Rows = list[dict[str, Any]]
STRING, TYPES = pa.string(), {"bytes": pa.binary()}


def write(
    fake: FakeServer, rows: Rows, *, attempt: str = "1", epoch: int = 0, stream: bool = False, **given: Any
) -> SentTotals:
    """Write as one task does, in batches of 4 rows."""
    given = {"url": "http://h", "topic": "out", **given}
    options = parse_sink({name: str(value) for name, value in given.items() if value is not None})
    client = SparkClient(options.connection, connect=fake.connect, sleep=lambda _: None)
    writer = PartWriter(client, options, PartName("q", epoch, 3, attempt), is_stream=stream)
    names = list(dict.fromkeys(name for row in rows for name in row)) or ["data"]
    for at in range(0, len(rows), 4):
        arrays = [pa.array([row.get(name) for row in rows[at : at + 4]], TYPES.get(name, STRING)) for name in names]
        writer.add(names, pa.RecordBatch.from_arrays(arrays, names=names))
    return writer.finish()


def data(*values: Any) -> Rows:
    return [{"data": json.dumps(value)} for value in values]


def bodies(fake: FakeServer) -> list[Any]:
    return [body for method, _, body in fake.requests if method == "POST"]


# --- one append ------------------------------------------------------------------------------------------------------


def test_a_part_is_one_request_that_names_its_producer() -> None:
    fake = FakeServer()
    assert write(fake, data(*range(10)), epoch=7) == SentTotals(rows=10, parts=1, deduped=0)
    assert [body["producer"] for body in bodies(fake)] == [{"id": "q", "epoch": 7, "part": 3}]
    assert fake.values("out") == list(range(10))


def test_a_part_that_is_tried_again_appends_nothing_whatever_the_order_of_its_rows() -> None:
    fake = FakeServer()
    write(fake, data(*range(10)))
    again = data(*range(10))
    random.Random(1).shuffle(again)
    assert write(fake, again, attempt="2") == SentTotals(rows=10, parts=1, deduped=1)
    assert fake.topics["out"].head == 10


def test_a_part_that_is_tried_again_with_other_rows_is_refused() -> None:
    fake = FakeServer()
    write(fake, data(1, 2))
    with pytest.raises(ServerError, match="409 producer_diverged.*differ from those written before"):
        write(fake, data(1, 3))
    assert fake.values("out") == [1, 2]


def test_a_partition_without_rows_writes_nothing() -> None:
    fake = FakeServer()
    assert write(fake, []) == SentTotals()
    assert fake.requests == []


def test_each_topic_of_a_partition_has_a_part_of_its_own() -> None:
    fake = FakeServer()
    rows = [{"data": str(i), "topic": f"t{i % 3}"} for i in range(12)]
    assert write(fake, rows, topic=None) == SentTotals(rows=12, parts=3, deduped=0)
    assert [fake.values(f"t{i}") for i in range(3)] == [[i, i + 3, i + 6, i + 9] for i in range(3)]
    write(fake, rows, topic="all", epoch=1)
    assert len(fake.values("all")) == 12, "the option goes before the column"


def test_large_parts_go_in_pieces_that_are_seen_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PIECE_RECORDS", 5)
    fake = FakeServer()
    seen: list[int] = []
    fake.before = lambda *_: seen.append(fake.topics["out"].head if "out" in fake.topics else 0)
    assert write(fake, data(*range(23))) == SentTotals(rows=23, parts=1, deduped=0)
    pieces = [body["producer"] for body in bodies(fake)]
    assert [piece["piece"] for piece in pieces] == list(range(len(pieces)))
    assert [piece["last"] for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert len({piece["attempt"] for piece in pieces}) == 1
    assert set(seen) == {0}
    assert fake.values("out") == list(range(23))


def test_pieces_of_a_try_that_died_are_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PIECE_RECORDS", 4)
    fake = FakeServer()
    fake.failures = []
    asked = 0

    def die(*_: Any) -> None:
        nonlocal asked
        asked += 1
        if asked == 3:
            raise KeyboardInterrupt

    fake.before = die
    with pytest.raises(KeyboardInterrupt):
        write(fake, data(*range(20)), attempt="dead")
    write(fake, data(*range(20)), attempt="next")
    assert fake.values("out") == list(range(20))


def test_pieces_stay_below_the_size_of_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PIECE_BYTES", 1000)
    monkeypatch.setattr(parts, "CHUNK_BYTES", 300)
    fake = FakeServer()
    write(fake, data(*("x" * 100 for _ in range(40)), "y" * 5000))
    sizes = [len(json.dumps(body["records"])) for body in bodies(fake)]
    assert len(sizes) > 4
    assert sorted(sizes)[-2] <= 1200
    assert fake.topics["out"].head == 41


def test_many_topics_of_a_partition_keep_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "KEPT_BYTES", 2000)
    fake = FakeServer()
    rows = [{"data": json.dumps("x" * 100), "topic": f"t{i % 5}"} for i in range(200)]
    write(fake, rows, topic=None)
    assert [len(fake.values(f"t{i}")) for i in range(5)] == [40] * 5
    assert any(not body["producer"].get("last", True) for body in bodies(fake))


# --- rows ------------------------------------------------------------------------------------------------------------

HARD = ['"', "\\", "a\nb", "\x01", "é", "", "/", "\x7f", "日本", "'", " "]


def test_tag_node_and_meta_arrive_as_they_were() -> None:
    fake = FakeServer()
    rows = [{"data": json.dumps(i), "tag": tag, "node": HARD[-i], "meta": '{"k": 1}'} for i, tag in enumerate(HARD)]
    rows += [{"data": "null", "tag": None, "node": None, "meta": None}]
    write(fake, rows)
    got = [(record.data, record.tag, record.node, record.meta) for record in fake.topics["out"].records]
    assert got == [(row["data"], row["tag"], row["node"], row["meta"]) for row in rows]


def test_a_row_of_bytes_arrives_as_bytes() -> None:
    fake = FakeServer()
    rows: Rows = [{"data": "null", "bytes": None, "tag": "a"}, {"bytes": b"\x00\xff", "tag": "b"}, {"bytes": b""}]
    write(fake, [*rows, *data(1, 2)])
    assert fake.values("out") == [None, b"\x00\xff", b"", 1, 2]
    assert [record.tag for record in fake.topics["out"].records] == ["a", "b", None, None, None]
    write(fake, [{"bytes": b"x"}, {"bytes": b"\n"}], epoch=1)
    assert fake.values("out")[5:] == [b"x", b"\n"], "the column data may be left out"


def test_a_row_with_none_or_both_of_data_and_bytes_is_named() -> None:
    with pytest.raises(RowError, match=r"row 1 of partition 3 .*: data and bytes are both null; give it exactly one"):
        write(FakeServer(), [{"bytes": b"x"}, {"data": None}])
    with pytest.raises(RowError, match=r"row 2 of partition 3 .*: data and bytes are both given; give it exactly one"):
        write(FakeServer(), [{"bytes": b"x"}, {"data": "1"}, {"data": "1", "bytes": b""}])


def test_data_is_sent_as_it_is_spelled() -> None:
    column = pa.array(['{"a":  1.50}', " [1e3]\n"], pa.string())
    assert records_of({"data": column}, str).to_pylist() == ['{"data":{"a":  1.50}}', '{"data": [1e3]\n}']


BROKEN = ['1},{"data":2', '1,"tag":"x"', "", " ", "{", '{"a":1}}', "nul", '"a', "1 2", "[1,]", "'a'", "NaN", "\ufeff1"]


@pytest.mark.parametrize("with_msgspec", [True, False])
@pytest.mark.parametrize("broken", BROKEN)
def test_a_row_that_is_no_json_is_named_and_nothing_of_its_piece_is_sent(
    broken: str, with_msgspec: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not with_msgspec:
        monkeypatch.setitem(sys.modules, "msgspec", None)
    fake = FakeServer()
    with pytest.raises(
        RowError, match=r"^row 5 of partition 3 \(topic 'out'\): data is not JSON \(.*to_json"
    ) as caught:
        write(fake, [*data(*range(5)), {"data": broken}, *data(6)])
    assert fake.requests == []
    assert "\n" not in str(caught.value)
    with pytest.raises(RowError, match="row 0 of partition 3 .*: meta is not JSON"):
        write(fake, [{"data": "1", "meta": broken}])


@pytest.mark.parametrize("with_msgspec", [True, False])
@pytest.mark.parametrize("column", ["data", "meta"])
def test_a_row_with_thousands_of_brackets_is_named(
    column: str, with_msgspec: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not with_msgspec:
        monkeypatch.setitem(sys.modules, "msgspec", None)
    with pytest.raises(RowError, match=f"row 1 of partition 3 .*: {column} is nested too deeply") as caught:
        write(FakeServer(), [*data(1), {"data": "1", column: "[" * 30_000 + "]" * 30_000}])
    assert len(str(caught.value)) < 250


def test_a_row_without_data_or_topic_is_named() -> None:
    fake = FakeServer()
    with pytest.raises(RowError, match=r"row 6 of partition 3 \(topic 'out'\): data is null; give it JSON"):
        write(fake, [*data(*range(6)), {"data": None}])
    with pytest.raises(RowError, match="row 1 of partition 3: topic is null; give it a name, or set the option topic"):
        write(fake, [{"data": "1", "topic": "a"}, {"data": "1", "topic": None}], topic=None)
    with pytest.raises(RowError, match="row 1 of partition 3: topic is empty; give it a name, or set the option topic"):
        write(fake, [{"data": "1", "topic": "a"}, {"data": "1", "topic": ""}], topic=None)


def test_a_record_that_the_server_refuses_is_named_by_its_row() -> None:
    fake = FakeServer()
    rows = [{"data": str(i), "topic": "ab"[i % 2]} for i in range(8)]
    said = "records[1].tag must have at most 256 bytes"
    fake.failures = [Refused(400, "invalid_request", said=said)]
    with pytest.raises(
        RowError, match=re.escape(f"row 2 of partition 3 (topic 'a') was refused, invalid_request: {said}")
    ):
        write(fake, rows, topic=None)
    fake.failures = [Refused(400, "record_too_large", said="records[3] has 2097152 bytes, and 1048576 are the most")]
    with pytest.raises(RowError, match="row 3 of partition 3.*record_too_large"):
        write(fake, data(*range(6)))


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (400, "part_too_large", "write with more partitions"),
        (409, "producer_stale", "newer epochs were written since"),
        (409, "producer_incomplete", "run the write again"),
        (422, "topic_full", "make room in the topic"),
    ],
)
def test_a_refused_part_says_what_to_do(status: int, code: str, words: str) -> None:
    fake = FakeServer()
    fake.failures = [Refused(status, code)]
    with pytest.raises(ServerError, match=f"topic 'out' refused producer 'q', epoch 0, part 3 .*{code}.*: {words}"):
        write(fake, data(1))


def test_a_topic_is_made_unless_create_says_no() -> None:
    fake = FakeServer()
    with pytest.raises(ServerError, match="404 topic_not_found.*create the topic first, or leave create=false out"):
        write(fake, data(1), create="false")
    write(fake, data(1))
    assert "create" not in bodies(fake)[-1]


def test_a_write_is_sent_again_after_an_answer_that_never_came() -> None:
    fake = FakeServer()
    original = fake.route

    def late(*args: Any) -> Any:
        fake.route = original  # type: ignore[method-assign]
        original(*args)
        raise ConnectionResetError(104, "Connection reset by peer")

    fake.route = late  # type: ignore[method-assign]
    assert write(fake, data(1, 2)).deduped == 1
    assert fake.values("out") == [1, 2]


# --- classes and columns ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["memory", "ephemeral"])
def test_a_stream_into_a_class_that_a_crash_empties_is_refused(durability: str) -> None:
    fake = FakeServer()
    fake.make("out", durability)
    with pytest.raises(
        OptionError, match=f"is of class {durability}, .*: make it disk or fsync, or set allowWeak=true"
    ):
        write(fake, data(1), stream=True)
    assert fake.topics["out"].head == 0
    assert write(fake, data(1), stream=True, allowWeak="true").rows == 1
    assert write(fake, data(1), epoch=1).rows == 1, "a batch write promises less"
    fake.failures = [Refused(403, "forbidden")]
    with pytest.raises(ServerError, match="may not read the state of topic 'out'.*or set allowWeak=true"):
        write(fake, data(1), stream=True)


def test_a_part_number_beyond_the_servers_is_refused() -> None:
    options = parse_sink({"url": "http://h", "topic": "out"})
    client = SparkClient(options.connection, connect=FakeServer().connect)
    with pytest.raises(OptionError, match="partition 65536 is above 65535: write with fewer partitions"):
        PartWriter(client, options, PartName("q", 0, 65_536, ""), is_stream=False)


TEXT = "string"


@pytest.mark.parametrize(
    ("fields", "topic", "words"),
    [
        ([("tag", TEXT)], "a", "column data is missing (there are tag)"),
        ([("data", TEXT)], None, "there is neither an option nor a column topic"),
        (
            [("data", "struct<a:int>")],
            "a",
            "column data is struct<a:int>, and the sink takes a string: use to_json",
        ),
        ([("data", TEXT), ("tag", "int")], "a", "column tag is int, and the sink takes a string: use cast"),
        (
            [("data", TEXT), ("tags", TEXT)],
            "a",
            "column tags is not one of the sink's (data, bytes, tag, node, meta, topic)",
        ),
        ([("bytes", TEXT)], "a", "column bytes is string, and the sink takes binary: use cast(... as binary)"),
        ([("data", TEXT), ("data", TEXT)], "a", "column data appears twice"),
    ],
)
def test_columns_are_checked_before_a_job_starts(fields: list[tuple[str, str]], topic: str | None, words: str) -> None:
    with pytest.raises(OptionError, match=re.escape(words)):
        check_sink_columns(fields, topic)


def test_the_columns_of_a_read_can_be_written_back() -> None:
    check_sink_columns(
        [("topic", TEXT), ("seq", "bigint"), ("ts", "timestamp"), ("data", TEXT), ("bytes", "binary")], None
    )
