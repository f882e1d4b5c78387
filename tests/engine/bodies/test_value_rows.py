"""Rows from Python values, as the embedded API appends them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from tests.store.format.frames_by_hand import record_at
from topics.common.values.written import NewRecord
from topics.config import Config
from topics.engine.bodies.value_rows import rows_from_values
from topics.engine.bodies.write_body import WriteScanner
from topics.errors import RequestError
from topics.store.format.rows import RowRecord

SCANNER = WriteScanner(Config())


@dataclass
class Order:
    sku: int


def test_values_are_encoded_with_their_labels() -> None:
    rows = rows_from_values(
        [NewRecord({"a": [1, None]}, tag="é", node="", meta={"k": 1.5}), NewRecord(None), NewRecord(Order(3))], SCANNER
    )
    assert [record_at(rows, index) for index in range(rows.count)] == [
        RowRecord(b'{"a":[1,null]}', "é".encode(), b"", b'{"k":1.5}', 23),
        RowRecord(b"null", None, None, None, 4),
        RowRecord(b'{"sku":3}', None, None, None, 9),
    ]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [1, {"a": -float("inf")}], Order(float("nan"))])  # type: ignore[arg-type]
def test_numbers_json_has_not_are_refused_by_name(value: Any) -> None:
    with pytest.raises(RequestError, match=r"records\[1\]\.data holds NaN or infinity"):
        rows_from_values([NewRecord(None), NewRecord(value)], SCANNER)


@pytest.mark.parametrize("value", [object(), {1, 2}.__iter__(), "\ud800", {(1, 2): 3}])
def test_what_cannot_be_json_is_refused_by_name(value: Any) -> None:
    with pytest.raises(RequestError, match=r"records\[1\]"):
        rows_from_values([NewRecord(1), NewRecord({"x": value})], SCANNER)


def test_raw_json_passes_and_is_checked() -> None:
    assert record_at(rows_from_values([NewRecord(msgspec.Raw(b'{"a": 1}'))], SCANNER), 0).data == b'{"a":1}'
    for text in (b"{", b"1e400", b'1},{"data":2', b'1,"tag":"x"', b'1,"other":2', b"NaN"):
        with pytest.raises(RequestError):
            rows_from_values([NewRecord(msgspec.Raw(text))], SCANNER)


def test_limits_and_types_are_those_of_the_wire() -> None:
    with pytest.raises(RequestError, match=r"records\[0\]\.tag is longer than 256"):
        rows_from_values([NewRecord(1, tag="x" * 257)], SCANNER)
    with pytest.raises(RequestError, match=r"records\[0\]\.tag must be a string"):
        rows_from_values([NewRecord(1, tag=5)], SCANNER)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="records is empty"):
        rows_from_values([], SCANNER)
