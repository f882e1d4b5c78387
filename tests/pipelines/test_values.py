"""Texts as typed columns, schemas found in samples, pointers, rules, checksums of rows."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from tests.amount import examples
from topics.errors import UsageError
from topics.pipelines.values import ddl, pointer, rules
from topics.pipelines.values.checksum import RowSum
from topics.pipelines.values.infer import infer
from topics.pipelines.values.typed import ONE_BY_ONE, fit, typed

SCHEMA = ddl.parse(
    "a bigint, small tinyint, f float, d double, s string, b boolean, t timestamp, day date, o struct<x: int>,"
    "l array<int>"
)


def column_of(texts: list[str], schema: ddl.Struct = SCHEMA) -> Any:
    return typed(pa.array(texts, pa.string()), schema)


def one_by_one(texts: list[str], schema: ddl.Struct = SCHEMA) -> pa.Array:
    return pa.array([fit(text, schema) for text in texts], ddl.arrow_type(schema))


MOMENTS = ["2026-11-23T01:02:03Z", "2026-11-23", "2026-11-23 01:02:03.123456+02:00", "2026-11-23T24:00:00Z",
           "0000-01-01", "9999-12-31T23:59:59-01", "2026-02-30", "20261123", "2026-11-23T0102Z", "soon"]  # fmt: skip
ATOMS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-300, 300),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([1e39, 1e300, 0.1]),
    st.text(max_size=3),
    st.sampled_from(MOMENTS),
)
VALUES = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(st.sampled_from([f.name for f in SCHEMA.fields] + ["x", "z"]), inner),
    ),
    max_leaves=4,
)
RIGHT = st.fixed_dictionaries(
    {},
    optional={
        "a": st.integers(-(2**63), 2**63 - 1),
        "small": st.integers(-128, 127),
        "f": st.floats(width=32, allow_nan=False, allow_infinity=False),
        "d": st.floats(allow_nan=False, allow_infinity=False),
        "s": st.text(max_size=4),
        "t": st.sampled_from(MOMENTS[:3]),
        "day": st.dates().map(str),
        "o": st.fixed_dictionaries({}, optional={"x": st.integers(0, 9), "z": ATOMS}),
        "l": st.lists(st.integers(0, 9), max_size=2),
    },
)


@examples(75)
@given(st.lists(st.one_of(RIGHT, RIGHT, VALUES), max_size=6))
def test_a_batch_read_in_one_go_equals_rows_read_one_by_one(documents: list[Any]) -> None:
    texts = [json.dumps(document) for document in documents]
    values, misfits = column_of(texts)
    expected = one_by_one(texts)
    assert values.equals(expected), (texts, values, expected)
    assert misfits == expected.null_count


def test_a_few_rows_that_do_not_fit_are_null_among_thousands_that_do() -> None:
    texts = [json.dumps({"a": n}) for n in range(3 * ONE_BY_ONE)]
    texts[5], texts[ONE_BY_ONE + 1], texts[-1] = '{"a":"5"}', "null", "[1]"
    values, misfits = column_of(texts)
    assert misfits == 3
    assert [n for n, row in enumerate(values.to_pylist()) if row is None] == [5, ONE_BY_ONE + 1, len(texts) - 1]
    assert values[7].as_py()["a"] == 7


def test_a_null_at_the_top_of_which_arrows_reader_dies_is_a_row_that_does_not_fit() -> None:
    assert column_of(["null", "null"]) == (pa.array([None, None], ddl.arrow_type(SCHEMA)), 2)


def test_a_whole_number_beyond_all_doubles_does_not_fit_a_float() -> None:
    huge = "1" + "0" * 400
    assert fit(f'{{"f":{huge}}}', SCHEMA) is None
    assert fit(f'{{"d":{huge}}}', SCHEMA) is None


def test_times_are_utc_unless_they_say_otherwise() -> None:
    found = column_of(['{"t":"2026-11-23T01:02:03"}', '{"t":"2026-11-23T01:02:03+01:00"}']).values.to_pylist()
    assert [row["t"].astimezone(datetime.UTC).hour for row in found] == [1, 0]


def test_a_schema_is_found_where_values_agree_and_the_rest_is_told() -> None:
    found = infer(
        [
            '{"id":1,"x":1,"name":"a","both":1,"none":null,"o":{"k":true,"e":{}},"l":[1,2.5],"m":[1,"a"],"Id":2}',
            '{"id":2,"x":0.5,"both":"1"}',
            "7",
        ]
    )
    assert ddl.text_of(found.schema) == "id bigint, x double, name string, o struct<k: boolean>, l array<double>"
    told = " / ".join(found.left_out)
    assert "both holds bigint and string" in told
    assert "none was null" in told
    assert "o.e was an empty object" in told
    assert "m[] holds" in told
    assert "Id is a name" in told
    assert "1 of the sample are no objects" in told


def test_a_sample_without_objects_is_refused() -> None:
    with pytest.raises(UsageError, match="found no field of one type"):
        infer(["1", "{}", '{"a":null}'])


def test_a_number_beyond_64_bits_makes_the_field_a_double() -> None:
    assert ddl.text_of(infer(['{"a":18446744073709551615}', '{"a":1}']).schema) == "a double"


def test_pointers_find_places_as_rfc_6901_says() -> None:
    document = {"a": {"b/c": [10, 20]}, "": 5, "m~n": None, "0": "zero"}
    for text, value in {"": document, "/a/b~1c/1": 20, "/": 5, "/m~0n": None, "/0": "zero"}.items():
        assert pointer.find(document, pointer.parse(text, "--x")) == value
    for text in ("/b", "/a/b~1c/2", "/a/b~1c/01", "/a/b~1c/-", "/0/0", f"/a/b~1c/{'9' * 5000}"):
        assert pointer.find(document, pointer.parse(text, "--x")) is pointer.MISSING
    for text in ("a", "/~2", "/a~"):
        with pytest.raises(UsageError, match="--x"):
            pointer.parse(text, "--x")


RULES = """
[[rule]]
topics = "orders"
pointer = "/amount"
required = true
type = ["number", "null"]
range = [0, 100]

[[rule]]
pointer = "/id"
type = "string"
range = [2, ""]
unique = true
"""


def written(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_rules_say_which_part_of_them_a_value_breaks(tmp_path: Path) -> None:
    amount, name = rules.read_rules(written(tmp_path / "r.toml", RULES.replace(', "null"', "")))
    assert rules.rules_for((amount, name), "other") == [name]
    broken = {0: "", 100: "", 100.5: "range", -1: "range", "5": "type", None: "required", True: "type"}
    assert {value: amount.broken_by(value) for value in broken} == broken
    assert amount.broken_by(pointer.MISSING) == "required"
    assert [name.broken_by(value) for value in ("ab", "a", pointer.MISSING, None, 5)] == ["", "range", "", "", "type"]
    assert str(amount) == "rule 1 (/amount: required, type number, range 0 to 100)"


def test_equal_json_is_one_value_for_a_unique_rule(tmp_path: Path) -> None:
    _, name = rules.read_rules(written(tmp_path / "r.toml", RULES.replace(', "null"', "")))
    assert name.identity({"a": 1, "b": 2}) == name.identity({"b": 2, "a": 1})
    assert name.identity(1) == name.identity(1.0) != name.identity("1")
    assert name.identity(None) is None is name.identity(pointer.MISSING)


BAD_RULES = {
    "[": "no sound TOML",
    "x = 1": "has no rules",
    "[[rule]]\ntype = 'number'": "rule 1 has no pointer",
    "[[rule]]\npointer = 'a'\nunique = true": "no JSON pointer",
    "[[rule]]\npointer = '/a'": "asks for nothing",
    "[[rule]]\npointer = '/a'\nuniqe = true": "did you mean unique?",
    "[[rule]]\npointer = '/a'\ntype = 'float'": "use one of boolean",
    "[[rule]]\npointer = '/a'\nrange = [2, 1]": "the lower bound comes first",
    "[[rule]]\npointer = '/a'\nrange = [2]": "write [low, high]",
    "[[rule]]\npointer = '/a'\nrange = ['a', 1]": "bounds are numbers",
    "[[rule]]\npointer = '/a'\nrequired = 1": "use true or false",
    "[[rule]]\npointer = '/a'\nunique = true\ntopics = '('": "no regular expression",
    "rule = [1]": "rule 1 is no table",
    "a = " + "[" * 5000: "no sound TOML",
    "[[rule]]\npointer = '/a'\ntype = [['number']]": "use one of boolean",
    "[[rule]]\npointer = '/a'\nrange = [nan, 1]": "bounds are numbers",
    "[[rule]]\npointer = '/a'\nunique = true\ntopics = 1": "write a regular expression",
    "[[rule]]\npointer = '/a'\nunique = true\ntopics = 'a{99999999999}'": "no regular expression",
    f"[[rule]]\npointer = '/a'\nunique = true\ntopics = '{'(' * 5000}{')' * 5000}'": "no regular expression",
}


@pytest.mark.parametrize("text", BAD_RULES, ids=range(len(BAD_RULES)))
def test_a_bad_rules_file_is_refused_with_rule_and_fix(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match="--rules") as caught:
        rules.read_rules(written(tmp_path / "r.toml", text))
    assert BAD_RULES[text] in str(caught.value)


def test_rules_may_be_json_and_a_missing_file_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "r.json", '{"rules":[{"pointer":"/a","range":[null,5]}]}')
    assert [rule.high for rule in rules.read_rules(path)] == [5]
    with pytest.raises(UsageError, match="cannot be read"):
        rules.read_rules(str(tmp_path / "none.toml"))
    for text in ("a: b", "[" * 100_000):
        with pytest.raises(UsageError, match="no sound JSON"):
            rules.read_rules(written(tmp_path / "r.yaml", text))


def test_a_bound_of_a_range_may_be_beyond_all_doubles(tmp_path: Path) -> None:
    huge = 10**400
    (rule,) = rules.read_rules(written(tmp_path / "r.toml", f"[[rule]]\npointer = '/a'\nrange = [{huge}, '']"))
    assert [rule.broken_by(value) for value in (huge, huge - 1, 1.5)] == ["", "range", "range"]
    assert f"range {huge} to any" in str(rule)


def rows(tags: list[str | None]) -> pa.RecordBatch:
    count = len(tags)
    return pa.record_batch(
        {
            "seq": pa.array(range(1, count + 1), pa.int64()),
            "ts": pa.array(range(count), pa.timestamp("us", tz="UTC")),
            "tag": pa.array(tags, pa.string()),
            "node": pa.array([None] * count, pa.string()),
            "data": pa.array([f'{{"n":{n}}}' for n in range(count)]),
            "meta": pa.array(["{}"] * count),
        }
    )


TAGS = st.lists(st.one_of(st.none(), st.text(max_size=3)), min_size=1, max_size=20)


def plainly(batch: pa.RecordBatch) -> str:
    """The documented definition, a value at a time."""
    streams = []
    for name in ("seq", "ts"):
        numbers = batch.column(name).cast(pa.int64()).to_pylist()
        streams.append(b"".join(number.to_bytes(8, "little", signed=True) for number in numbers))
    for name in ("tag", "node", "data", "meta"):
        texts = [None if text is None else text.encode() for text in batch.column(name).to_pylist()]
        lengths = [-1 if text is None else len(text) for text in texts]
        streams.append(b"".join(length.to_bytes(8, "little", signed=True) for length in lengths))
        streams.append(b"".join(text or b"" for text in texts))
    return xxhash.xxh3_64_hexdigest(b"".join(xxhash.xxh3_64_digest(stream) for stream in streams))


@given(TAGS, st.integers(1, 7))
def test_the_checksum_of_rows_does_not_depend_on_how_they_are_cut(tags: list[str | None], cut: int) -> None:
    batch = rows(tags)
    total = RowSum()
    for start in range(0, len(tags), cut):
        total.add(batch.slice(start, cut))
    assert (total.hexdigest(), total.rows) == (plainly(batch), len(tags))


@given(TAGS, st.integers(0, 19))
def test_the_checksum_of_rows_tells_null_from_empty_and_one_row_from_another(tags: list[str | None], at: int) -> None:
    changed = list(tags)
    at %= len(tags)
    changed[at] = "" if changed[at] is None else None
    sums = [RowSum(), RowSum()]
    for total, values in zip(sums, (tags, changed), strict=True):
        total.add(rows(values))
    assert sums[0].hexdigest() != sums[1].hexdigest()


def test_a_null_above_bytes_counts_as_a_null_without() -> None:
    texts = pa.array(["a", "b", "c"])
    hidden = pa.StringArray.from_buffers(3, texts.buffers()[1], texts.buffers()[2], pa.py_buffer(b"\5"))
    first, second = RowSum(), RowSum()
    batch = rows(["a", None, "c"])
    first.add(batch)
    second.add(batch.set_column(2, "tag", hidden))
    assert first.hexdigest() == second.hexdigest()
    assert np.asarray(hidden.is_valid()).tolist() == [True, False, True]
