"""Schemas as DDL: read, written, compared, refused with the place and the fix."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.errors import UsageError
from topics.pipelines.values import ddl

NAMES = st.one_of(st.sampled_from(["a", "_b", "C1", "order id", "tick`s", "bigint", "struct", "a,b", "ü", "<"]))


def types(depth: int = 2) -> st.SearchStrategy[ddl.Type]:
    scalars = st.sampled_from(ddl.SCALARS).map(ddl.Scalar)
    if not depth:
        return scalars
    return st.one_of(scalars, types(depth - 1).map(ddl.Array), structs(depth - 1))


def structs(depth: int = 2) -> st.SearchStrategy[ddl.Struct]:
    fields = st.lists(st.builds(ddl.Field, NAMES, types(depth)), min_size=1, max_size=4, unique_by=lambda f: f.name)
    return fields.map(lambda found: ddl.Struct(tuple(found)))


@given(structs())
def test_what_is_written_is_read_again_as_the_same_schema(schema: ddl.Struct) -> None:
    assert ddl.parse(ddl.text_of(schema)) == schema
    assert ddl.difference(schema, schema) == ""


def test_a_schema_has_the_arrow_types_that_spark_takes() -> None:
    schema = ddl.parse("id LONG, b: string, c struct<x: int, `y z` array<double>>, t timestamp, d date")
    assert ddl.arrow_type(schema) == pa.struct(
        [
            pa.field("id", pa.int64()),
            pa.field("b", pa.string()),
            pa.field("c", pa.struct([pa.field("x", pa.int32()), pa.field("y z", pa.list_(pa.float64()))])),
            pa.field("t", pa.timestamp("us", tz="UTC")),
            pa.field("d", pa.date32()),
        ]
    )


REFUSED = {
    "": "is empty",
    "  ": "is empty",
    "a": "the type of field a",
    "a int b int": "'b' stands where ','",
    "a int,": "the name of a field",
    "a int, A string": "is there twice",
    "a decimal(10,2)": "'decimal' of field a is no type",
    "a strin": "did you mean string?",
    "a struct<>": "'>' stands where the name of a field",
    "a array<int": "'>' should come",
    "a int)": "stands where ','",
    "a int not null": "all may be null",
    "a int ; b int": "cannot be read",
    "a " + "array<" * 40 + "int" + ">" * 40: "32 levels deep",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_schema_is_refused_with_the_place(text: str) -> None:
    with pytest.raises(UsageError, match="--schema") as caught:
        ddl.parse(text)
    assert REFUSED[text] in str(caught.value)


def test_two_schemas_are_compared_field_by_field() -> None:
    kept = ddl.parse("a int, b struct<x: int, y: array<int>>")
    for other, told in {
        "a bigint, b struct<x: int, y: array<int>>": "value.a is int in the target and bigint now",
        "a int": "value.b (struct<x: int, y: array<int>>) is only in the target",
        "a int, b struct<x: int, y: array<string>>": "value.b.y[] is int in the target and string now",
        "a int, b struct<x: int, y: array<int>>, c int": "value.c (int) is new",
        "b struct<x: int, y: array<int>>, a int": "the fields of value stand in another order",
    }.items():
        assert ddl.difference(kept, ddl.parse(other)) == told
