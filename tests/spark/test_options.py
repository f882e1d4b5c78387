"""Options: what is refused, and in which words."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from topics.spark.errors import OptionError
from topics.spark.options import (
    BATCH,
    EARLIEST,
    LATEST,
    STREAM,
    TABLE,
    Places,
    parse_columns,
    parse_sink,
    parse_source,
)
from topics.spark.schema import check_given

URL = {"url": "http://h:4000", "subscribe": "a"}
SECRET = "s3cret-key"


def test_the_defaults_are_those_of_the_table_and_differ_between_batch_and_stream() -> None:
    batch, stream = parse_source(URL, BATCH), parse_source(URL, STREAM)
    assert (batch.starting, stream.starting) == (Places(EARLIEST), Places(LATEST))
    assert (batch.ending, batch.on_loss, batch.min_partitions, batch.max_records) == (Places(LATEST), "fail", 1, None)
    assert (batch.target_bytes, batch.page_size, stream.wait_ms, batch.verify) == (64 << 20, 1000, 5000, True)
    assert batch.columns == ("topic", "seq", "ts", "tag", "node", "data")
    assert batch.connection is not None
    assert (batch.connection.retries, batch.connection.retry_interval_ms, batch.connection.timeout_ms) == (
        10,
        200,
        40_000,
    )


def test_names_are_compared_without_case_as_spark_hands_them_over_in_lower_case() -> None:
    assert parse_source({**URL, "maxoffsetspertrigger": "7"}, STREAM).max_offsets == 7


def test_sparks_own_options_pass() -> None:
    parse_source({**URL, "checkpointLocation": "/tmp/c", "queryName": "q"}, STREAM)
    parse_sink({"url": "http://h", "checkpointlocation": "/tmp/c", "queryname": "q"})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"startingOffset": "latest"}, "unknown option startingOffset: did you mean startingOffsets?"),
        ({"kafka.bootstrap.servers": "h:1"}, "unknown option kafka.bootstrap.servers: use url here"),
        ({"zzz": "1"}, "unknown option zzz: docs/guides/spark.md lists the options"),
        ({"topic": "a"}, "option topic is for the sink, not for batch reads: leave it out"),
        (
            {"maxOffsetsPerTrigger": "5"},
            "option maxOffsetsPerTrigger is for streams, not for batch reads: leave it out",
        ),
        ({"url": "h:4000"}, "option url must be like http://127.0.0.1:4000"),
        ({"url": "http://h:99999"}, "option url is not an address"),
        ({"url": "http://a..b:4000"}, "option url is not an address"),
        ({"url": f"http://{'h' * 64}.de"}, "option url is not an address"),
        ({"url": "http://h:4000/a b"}, "option url must be like http://127.0.0.1:4000, not 'http://h:4000/a b'"),
        ({"url": "http://h/?token=x"}, "option url must end before '?'"),
        ({"coldPath": "/c"}, "option coldPath is given without path"),
        ({"subscribe": "a,,b"}, "option subscribe must be names separated by commas"),
        ({"subscribe": "a,a"}, "option subscribe names 'a' twice"),
        ({"subscribePattern": "b.*"}, "exactly one of subscribe and subscribePattern is needed, and both are given"),
        ({"startingOffsets": "now"}, "option startingOffsets is neither a word nor JSON"),
        ({"startingOffsets": "[" * 30_000}, "option startingOffsets is neither a word nor JSON (maximum recursion"),
        ({"startingOffsets": '{"a": 0}'}, "option startingOffsets gives 0 for topic 'a': write a seq from 1 on"),
        ({"startingOffsets": '{"a": true}'}, "option startingOffsets gives true for topic 'a'"),
        ({"startingOffsets": '{"a": 1, "a": 2}'}, "option startingOffsets names a topic twice"),
        ({"startingOffsets": "[1]"}, "option startingOffsets must be earliest, latest or an object"),
        ({"startingOffsets": '{"b": 1, "a": 1}'}, "option startingOffsets names topic 'b', which subscribe does not"),
        ({"startingOffsets": "{}"}, "option startingOffsets does not name topic 'a': give it a seq, or -2"),
        ({"startingOffsets": "latest"}, "startingOffsets=latest leaves a batch nothing to read"),
        ({"startingOffsets": '{"a": -1}'}, "startingOffsets=latest leaves a batch nothing to read"),
        ({"endingOffsets": "earliest"}, "endingOffsets=earliest leaves a batch nothing to read"),
        ({"startingTimestamp": "yesterday"}, "option startingTimestamp must be a whole number from 0 to"),
        ({"failOnDataLoss": "yes"}, "option failOnDataLoss must be true or false, not 'yes'"),
        ({"failOnDataLoss": "true", "onDataLoss": "skip"}, "failOnDataLoss=true contradicts onDataLoss=skip"),
        ({"onDataLoss": "ignore"}, "option onDataLoss must be one of fail, skip, rows"),
        ({"columns": "seq,key"}, "option columns names 'key': the columns are topic, seq"),
        ({"columns": "seq", "includeMeta": "true"}, "includeMeta=true contradicts columns=seq"),
        ({"columns": "seq,loss"}, "the column loss and onDataLoss=rows go together"),
        ({"columns": "seq", "onDataLoss": "rows"}, "the column loss and onDataLoss=rows go together"),
        ({"pageSize": "1001"}, "option pageSize must be a whole number from 1 to 1000"),
        ({"minPartitions": "0"}, "option minPartitions must be a whole number from 1"),
        ({"tagIn": "[" * 30_000}, "option tagIn is not a JSON array (maximum recursion"),
        ({"tagIn": '["a", 1]'}, "option tagIn must be tags separated by commas, or a JSON array of strings"),
        ({"token": "a", "tokenFile": "/t"}, "options token and tokenFile are both given"),
    ],
)
def test_a_read_is_refused_with_one_sentence(given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=re.escape(words)) as caught:
        parse_source({**URL, **given}, BATCH)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"subscribe": "a"}, "neither url nor path is given: set url to a server, path to a data directory, or both"),
        ({"path": "/d"}, "exactly one of subscribe and subscribePattern is needed, and neither is given"),
        ({"path": "/d", "subscribePattern": "a("}, "option subscribePattern is not a regular expression"),
        (
            {"path": "/d", "subscribePattern": f"a{{{2**70}}}"},
            "option subscribePattern is not a regular expression (the",
        ),
        ({"path": "/d", "subscribePattern": "(" * 9000 + ")" * 9000}, "option subscribePattern is not a regular expr"),
        ({"path": "/d", "subscribe": "a", "token": "x"}, "a key is given without url"),
        (
            {"path": "/d", "subscribePattern": "a.*", "startingOffsets": '{"b": 5}'},
            "option startingOffsets names topic 'b', which subscribePattern does not: correct one",
        ),
        ({"path": " ", "subscribe": "a"}, "option path is empty"),
        ({**URL, "endingOffsets": "latest"}, "option endingOffsets is for batch reads, not for streams"),
        ({**URL, "waitMs": "30000", "timeoutMs": "30000"}, "timeoutMs=30000 must be at least waitMs + 1000"),
    ],
)
def test_a_stream_is_refused_with_one_sentence(given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=re.escape(words)):
        parse_source(given, STREAM)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "the sink writes through a server: set url"),
        ({"url": "http://h", "producerId": "p"}, "options producerId and epoch go together"),
        ({"url": "http://h", "epoch": "1"}, "options producerId and epoch go together"),
        ({"url": "http://h", "subscribe": "a"}, "option subscribe is for batch reads and streams, not for the sink"),
        ({"url": "http://h", "producerId": "p" * 257, "epoch": "1"}, "option producerId must have 1 to 256 bytes"),
        ({"url": "http://h", "path": "/out"}, "option path is for batch reads and streams, not for the sink"),
    ],
)
def test_a_sink_is_refused_with_one_sentence(given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=re.escape(words)):
        parse_sink(given)


def test_kafkas_words_for_offsets_and_loss_are_kept() -> None:
    options = parse_source({**URL, "startingOffsets": '{"a": -2}', "failOnDataLoss": "false"}, BATCH)
    assert options.starting.by_topic == {"a": EARLIEST}
    assert options.on_loss == "skip"
    assert parse_source({**URL, "startingOffsets": '{"a": -1}'}, STREAM).starting.by_topic == {"a": LATEST}


def test_columns_follow_meta_and_loss() -> None:
    assert parse_columns({**URL, "includeMeta": "true", "onDataLoss": "rows"})[-2:] == ("meta", "loss")
    assert parse_columns({**URL, "columns": "seq, meta"}) == ("seq", "meta")


def test_the_column_bytes_is_there_only_if_it_is_named() -> None:
    assert "bytes" not in parse_columns({**URL, "includeMeta": "true", "onDataLoss": "rows"})
    columns = parse_columns({**URL, "columns": "bytes,data"})
    check_given([("bytes", "binary"), ("data", "string")], columns)


def test_a_schema_that_is_given_has_the_columns_and_types_of_the_read() -> None:
    columns = parse_columns({**URL, "columns": "seq,data,loss", "onDataLoss": "rows"})
    loss = ("loss", "struct<from_seq:bigint,to_seq:bigint,reason:string>")
    check_given([("seq", "bigint"), ("data", "string"), loss], columns)
    with pytest.raises(OptionError, match="schema given has the columns SEQ, and this read has seq, data, loss: leave"):
        check_given([("SEQ", "bigint")], columns)
    with pytest.raises(OptionError, match=r"given has data as struct<n:int>, and this read has it as string: leave"):
        check_given([("seq", "bigint"), ("data", "struct<n:int>"), loss], columns)


def test_tags_are_between_commas_or_a_json_array() -> None:
    assert parse_source({**URL, "tagIn": "eu, us"}, BATCH).tags == ("eu", "us")
    assert parse_source({**URL, "tagIn": '["a,b", "[c"]'}, BATCH).tags == ("a,b", "[c")


def test_a_key_shows_in_no_text_made_of_the_options() -> None:
    options = parse_source({**URL, "token": SECRET}, BATCH)
    sink = parse_sink({"url": "http://h", "token": SECRET})
    assert options.connection is not None
    assert options.connection.token == SECRET
    assert SECRET not in f"{options!r} {sink!r} {options} {sink}"
    for bad in (f"{SECRET}\n{SECRET}", f"{SECRET}é", f"{SECRET} x"):
        with pytest.raises(OptionError, match="option token must hold one key") as caught:
            parse_source({**URL, "token": bad}, BATCH)
        assert SECRET not in str(caught.value)
    for url in (f"http://u:{SECRET}@h", f"http://h?token={SECRET}"):
        with pytest.raises(OptionError, match="give .* key by the option token") as caught:
            parse_source({**URL, "url": url}, BATCH)
        assert SECRET not in str(caught.value)


def test_options_travel_to_executors() -> None:
    options = parse_source({"path": "/d", "subscribePattern": "a.*", "startingOffsets": "earliest"}, STREAM)
    assert pickle.loads(pickle.dumps(options)) == options


def test_the_page_has_every_option_with_its_default() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "guides" / "spark.md"
    rows = dict(re.findall(r"^\| `(\w+)` \|\s*([^|]*?)\s*\|", page.read_text(), re.M))
    assert {option.name for option in TABLE} <= set(rows)
    for option in TABLE:
        if type(option.default) in (bool, int):
            shown = str(option.default).lower().replace(str(64 << 20), "64 MiB")
            assert rows[option.name].replace(",", "") == shown, option.name
