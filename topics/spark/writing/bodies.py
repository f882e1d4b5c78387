"""Rows of the sink as JSON: an Arrow array of records, made in bulk.

Before that, the JSON of each row is checked, because `data` is copied into the request unchanged: a
text like `1},{"data":2` would become two records, and the server could not detect it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from topics.spark.errors import RowError
from topics.spark.schema import BYTES, DATA, META, NODE, TAG

_ESCAPED = r'[\x00-\x1f"\\]'
_SHOWN = 60


def records_of(columns: Mapping[str, pa.Array], where: Callable[[int], str]) -> pa.Array:
    """Return a JSON object for each row, as a string array.

    columns: arrays by name: `data` or `bytes` or both, and any of `tag`, `node`, `meta`; `bytes` is
        binary, the others are strings.
    where: index of a row -> the words that name it in a message.
    Raises: RowError for the first row with none or both of data and bytes, or whose data or meta is
    no JSON or nested too deeply.
    """
    data = columns[DATA] if DATA in columns else pa.nulls(len(columns[BYTES]), pa.string())
    octets = columns.get(BYTES)
    _check_one_of(data, octets, where)
    _check_json(DATA, data, where)
    if octets is None or octets.null_count == len(octets):
        parts: list[Any] = ['{"data":', data]
    else:
        texts = [None if value is None else base64.b64encode(value).decode() for value in octets.to_pylist()]
        of_bytes = pc.binary_join_element_wise('{"data_base64":"', pa.array(texts, pa.string()), '"', "")
        parts = [pc.coalesce(pc.binary_join_element_wise('{"data":', data, ""), of_bytes)]
    for name in (TAG, NODE):
        if name in columns and columns[name].null_count < len(data):
            parts.append(pc.binary_join_element_wise(f',"{name}":', _quoted(columns[name]), ""))
    if META in columns and columns[META].null_count < len(data):
        _check_json(META, columns[META], where)
        parts.append(pc.binary_join_element_wise(',"meta":', columns[META], ""))
    return pc.binary_join_element_wise(*parts, "}", "", null_handling="replace", null_replacement="")


def _check_one_of(data: pa.Array, octets: pa.Array | None, where: Callable[[int], str]) -> None:
    if octets is None:
        if not data.null_count:
            return
        wrong, found = pc.is_null(data), "data is null; give it JSON, for example by to_json(struct(...))"
    else:
        wrong, found = pc.equal(pc.is_null(data), pc.is_null(octets)), "give it exactly one of data and bytes"
    row = pc.index(wrong, True).as_py()
    if row < 0:
        return
    if octets is not None:
        found = f"data and bytes are both {'given' if data[row].is_valid else 'null'}; {found}"
    raise RowError(f"{where(row)}: {found}, or filter it out")


def _quoted(texts: pa.Array) -> pa.Array:
    """Return texts as JSON strings; null stays null."""
    if not pc.any(pc.match_substring_regex(texts, _ESCAPED)).as_py():
        return pc.binary_join_element_wise('"', texts, '"', "")
    coded = texts.dictionary_encode()
    spelled = pa.array([json.dumps(text, ensure_ascii=False) for text in coded.dictionary.to_pylist()], pa.string())
    return spelled.take(coded.indices)


def _check_json(name: str, texts: pa.Array, where: Callable[[int], str]) -> None:
    check = _checker()
    for row, text in enumerate(texts.to_pylist()):
        if text is None:
            continue
        try:
            check(text)
        except RecursionError:
            raise RowError(f"{where(row)}: {name} is nested too deeply: {text[:_SHOWN]!r}; nest it less") from None
        except ValueError as error:
            raise RowError(
                f"{where(row)}: {name} is not JSON ({error}): {text[:_SHOWN]!r}; make it with to_json(struct(...))"
            ) from None


def _checker() -> Callable[[str], object]:
    """Return a function that raises ValueError unless a text is exactly one JSON value."""
    try:
        import msgspec  # noqa: PLC0415 - executors may lack it
    except ImportError:
        return json.JSONDecoder(parse_constant=_refuse).decode
    return msgspec.json.Decoder(msgspec.Raw).decode


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not a JSON value")
