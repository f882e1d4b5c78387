"""`url`, `path` and both give what a diff gives, with the real server and without a JVM."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from tests.spark.own_server import OwnServer, own_server  # noqa: E402
from topics.spark.client import SparkClient  # noqa: E402
from topics.spark.errors import BytesRowError  # noqa: E402
from topics.spark.options import BATCH, parse_sink, parse_source  # noqa: E402
from topics.spark.reading.batch import plan_batch  # noqa: E402
from topics.spark.reading.partition_reading import WorkReader  # noqa: E402
from topics.spark.writing.parts import PartName, PartWriter, SentTotals  # noqa: E402

COLUMNS = "seq,ts,tag,node,data,meta,loss,bytes"
SMALL = {"CHECKPOINT_WAL_BYTES": "20000", "SEGMENT_MAX_BYTES": "65536", "SEGMENT_MAX_EVENTS": "50", "SEGMENT_BULK": "1"}


def rows_by(server: OwnServer, **given: Any) -> tuple[list[Any], list[Any]]:
    """Records and losses of a batch read, as a task after the other yields them."""
    raw = {"subscribe": "a", "startingOffsets": '{"a": 1}', "onDataLoss": "rows", "columns": COLUMNS, **given}
    options = parse_source({name: str(value) for name, value in raw.items()}, BATCH)
    rows = [
        row for work in plan_batch(options) for batch in WorkReader(options).read(work) for row in batch.to_pylist()
    ]
    losses = [tuple(row["loss"].values()) for row in rows if row["loss"] is not None]
    return sorted(shown(row) for row in rows if row["loss"] is None), sorted(losses)


def shown(row: dict[str, Any]) -> Any:
    ms = round(row["ts"].timestamp() * 1000)
    meta = None if row["meta"] is None else json.loads(row["meta"])
    data = json.dumps(json.loads(row["data"])) if row["bytes"] is None else base64.b64encode(row["bytes"]).decode()
    return (row["seq"], ms, row["tag"], row["node"], data, json.dumps(meta))


def rows_by_diff(server: OwnServer) -> tuple[list[Any], list[Any]]:
    records, losses = [], []
    cursor, at_end = 0, False
    while not at_end:
        page = server.call("POST", "/v0/topics/a/diff", {"from_seq": cursor, "limit": 7, "include_tags": True})
        for one in page["records"]:
            texts = one.get("data_base64") or json.dumps(one["data"]), json.dumps(one.get("meta"))
            records.append((one["$seq"], one["$ts"], one.get("$tag"), one.get("$node"), *texts))
        if page["tombstone"]:
            losses.append((page["tombstone"]["gap_from"], page["tombstone"]["gap_to"], page["tombstone"]["reason"]))
        cursor, at_end = page["next_from_seq"], page["caught_up"]
    return records, losses


def change(server: OwnServer, rng: random.Random) -> None:
    """Something that may happen to a topic."""
    kind = rng.random()
    if kind < 0.6:
        records = []
        for _ in range(rng.randint(1, 80)):
            record = {"data": {"n": rng.randrange(10**6), "text": "x" * rng.randrange(200)}, "tag": rng.choice("abc")}
            if rng.random() < 0.2:
                del record["data"]
                record["data_base64"] = base64.b64encode(rng.randbytes(rng.randint(1, 200))).decode()
            if rng.random() < 0.3:
                record |= {"meta": {"k": rng.randrange(9)}, "node": "n"}
            records.append(record)
        server.call("POST", "/v0/topics/a", {"records": records})
    elif kind < 0.7:
        server.call("POST", "/v0/topics/a/delete", {"match": rng.choice("abc")})
    elif kind < 0.8:
        head = server.call("GET", "/v0/topics/a")["head_seq"]
        server.call("POST", "/v0/topics/a/delete", {"before_seq": rng.randint(1, head)})
    elif kind < 0.9:
        server.call("PUT", "/v0/topics/a", {"cap_records": rng.choice((0, 40, 200))})
    else:
        server.call("POST", "/v0/checkpoint", {})


@pytest.mark.parametrize("seed", range(2))
def test_a_read_by_url_by_path_and_by_both_gives_what_a_diff_gives(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    with own_server(tmp_path, **SMALL) as server:
        server.put("a", [1])
        for _ in range(30):
            change(server, rng)
            if rng.random() < 0.2:
                expected = rows_by_diff(server)
                assert rows_by(server, url=server.url, minPartitions=rng.randint(1, 4)) == expected
                assert rows_by(server, url=server.url, path=server.path) == expected
                assert rows_by(server, path=server.path, maxRecordsPerPartition=rng.choice((7, 1000)))[0] == expected[0]


def test_a_record_of_bytes_in_files_fails_a_read_of_data_with_the_remedy_of_spark(tmp_path: Path) -> None:
    with own_server(tmp_path) as server:
        server.put("a", [1])
        server.call("POST", "/v0/topics/a", {"records": [{"data_base64": "/w=="}]})
        server.call("POST", "/v0/checkpoint", {})
        with pytest.raises(BytesRowError, match="record 2 of topic a is bytes, .* the option columns, too"):
            rows_by(server, path=server.path, columns="seq,data,loss")


def test_records_after_the_checkpoint_are_read_from_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: files and diff join without gap or duplicate. Method: records are written between checkpoint and heads."""
    with own_server(tmp_path) as server:
        server.put("a", list(range(300)))
        checkpoint = SparkClient.checkpoint

        def and_more(client: SparkClient) -> int:
            snapshot = checkpoint(client)
            server.put("a", list(range(40)))
            return snapshot

        monkeypatch.setattr(SparkClient, "checkpoint", and_more)
        assert rows_by(server, url=server.url, path=server.path) == rows_by_diff(server)


def test_a_part_in_pieces_is_appended_once_whatever_the_order_of_its_rows(tmp_path: Path) -> None:
    with own_server(tmp_path) as server:
        sink = parse_sink({"url": server.url, "topic": "out"})
        rows = [str(at) for at in range(25_000)]

        def write(attempt: str, *, until: int | None = None) -> SentTotals | None:
            writer = PartWriter(SparkClient(sink.connection), sink, PartName("q", 0, 0, attempt), is_stream=True)
            for at in range(0, len(rows), 5000):
                writer.add(["data"], pa.RecordBatch.from_pydict({"data": rows[at : at + 5000]}))
                if until is not None and at >= until:
                    return None  # this attempt dies
            return writer.finish()

        write("first", until=15_000)
        assert write("second") == SentTotals(25_000, 1, 0)
        random.Random(1).shuffle(rows)
        assert write("third") == SentTotals(25_000, 1, 1)
        assert [record["data"] for record in server.records("out")] == list(range(25_000))
