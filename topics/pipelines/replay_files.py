"""The files of a replay: which there are, and their rows in chunks, as columns of records."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from topics.errors import UsageError
from topics.pipelines.chunks import CHUNK_BYTES, cut
from topics.pipelines.errors import PipelineError
from topics.pipelines.target.file_names import topic_of
from topics.pipelines.values import pointer

CHUNK_ROWS = 1000
"""Rows of a chunk at most.

It must not change, because a server remembers the chunks of a file.
"""
FORMS = ("records", "data")
ENDINGS = (".parquet", ".jsonl", ".ndjson")
COLUMNS = ("data", "bytes", "tag", "node", "meta", "topic")
_IN_LINES = ("tag", "node", "meta", "topic")
_BASE64 = "data_base64"
"""The member of JSON Lines that holds bytes, as on the wire."""
_BLOCK_BYTES = 1 << 20


class Input(NamedTuple):
    """A file to send. name: its path below the named directory, the same on every run."""

    path: str
    name: str
    topic: str


class RowForm(NamedTuple):
    """How the rows of a file become records.

    form: one of FORMS; tag: where a row that is the data as a whole has its tag.
    """

    form: str
    tag: pointer.Pointer | None


def find_inputs(paths: Sequence[str], topic: str = "") -> Iterator[Input]:
    """Yield the files of these paths, by name.

    topic: of all rows; "": a row or a directory names it.
    Raises: UsageError, an input does not exist, or there is no file.
    """
    found: list[Input] = []
    for given in paths:
        if os.path.isfile(given):
            found.append(_input(os.path.dirname(os.path.abspath(given)), os.path.abspath(given), topic))
        elif os.path.isdir(given):
            root = os.path.abspath(given)
            for directory, below, names in os.walk(root):
                # Directories of the logs of commits have such names.
                below[:] = [name for name in below if not name.startswith((".", "_"))]
                found += [
                    _input(root, os.path.join(directory, name), topic)
                    for name in names if name.endswith(ENDINGS) and not name.startswith((".", "_"))
                ]  # fmt: skip
        else:
            raise UsageError(f"{given} does not exist: name files, or directories of files")
    if not found:
        raise UsageError(f"no file that ends in {', '.join(ENDINGS)} in {', '.join(paths) or 'nothing'}")
    yield from sorted(set(found), key=lambda one: (one.name, one.path))


def _input(root: str, path: str, topic: str) -> Input:
    if not path.endswith(ENDINGS):
        raise UsageError(f"{path} does not end in {' or '.join(ENDINGS)}: name it by its format")
    name = os.path.relpath(path, root)
    by_directory = [found for step in path.split(os.sep)[:-1] if (found := topic_of(step))]
    return Input(path, name, topic or (by_directory[-1] if by_directory else ""))


def producer_of(one: Input) -> str:
    """Return the producer id of a file, which depends on its contents and its name.

    Raises: PipelineError, the file cannot be read.
    """
    digest = xxhash.xxh3_128(one.name.encode(errors="surrogateescape") + b"\0")
    try:
        with open(one.path, "rb") as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
    except OSError as error:
        raise PipelineError(f"{one.path} cannot be read: {error.strerror}") from None
    return f"replay:{digest.hexdigest()}"


def chunks(one: Input, row_form: RowForm) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, with some of COLUMNS: `bytes` is binary, the others are strings.

    A chunk also ends at the end of a row group of Parquet.
    Raises: PipelineError, the file cannot be read, or a row is no record.
    """
    try:
        if one.path.endswith(".parquet"):
            yield from _of_parquet(one, row_form)
        else:
            yield from _of_lines(one, row_form)
    except (OSError, pa.ArrowException, UnicodeError) as error:
        raise PipelineError(f"{one.path} cannot be read: {error}") from None


def _of_parquet(one: Input, row_form: RowForm) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(one.path) as file:
        schema = file.schema_arrow
        names = [name for name in COLUMNS if name in schema.names]
        if "bytes" in names and schema.field("bytes").type not in _BINARY:
            names.remove("bytes")  # a column of another program, as a size
        if row_form.form == "records" and "data" not in names and "bytes" not in names:
            raise PipelineError(f"{one.path} has no column `data`: add --as data to send whole rows")
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, columns=names if row_form.form == "records" else None)
            for start in range(0, table.num_rows, CHUNK_ROWS):
                part = table.slice(start, CHUNK_ROWS)
                if row_form.form == "data":
                    rows = _of_documents([(row, _text(row)) for row in part.to_pylist()], row_form)
                else:
                    rows = pa.table({name: part.column(name).cast(_type_of(name)) for name in names})
                yield from cut(rows, CHUNK_BYTES)


def _of_lines(one: Input, row_form: RowForm) -> Iterator[pa.RecordBatch]:
    waiting: list[tuple[Any, str]] = []
    filled = 0
    with open(one.path, encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            text = line.strip()
            if not text:
                continue
            try:
                value = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise PipelineError(f"{one.path}, line {number} is no JSON ({error}): {text[:60]!r}") from None
            if row_form.form == "records" and not (isinstance(value, dict) and ("data" in value) != (_BASE64 in value)):
                raise PipelineError(
                    f'{one.path}, line {number} is no record: write {{"data": .., "tag": ..}}, or add --as data '
                    "(bytes have data_base64 instead of data)"
                )
            if row_form.form == "records" and _BASE64 in value:
                value[_BASE64] = _decoded(value[_BASE64], f"{one.path}, line {number}")
            if waiting and (len(waiting) == CHUNK_ROWS or filled + len(text) > CHUNK_BYTES):
                yield from cut(_of_values(waiting, row_form), CHUNK_BYTES)
                waiting, filled = [], 0
            waiting.append((value, text))
            filled += len(text)
    if waiting:
        yield from cut(_of_values(waiting, row_form), CHUNK_BYTES)


def _of_values(rows: Sequence[tuple[Any, str]], row_form: RowForm) -> pa.Table:
    """Return the rows of JSON Lines, given as (value, its text), as a table."""
    if row_form.form == "data":
        return _of_documents(rows, row_form)
    members = [_members(text) for _, text in rows]
    columns: dict[str, list[Any]] = {"data": [found.get("data") for found in members]}
    if any(_BASE64 in value for value, _ in rows):
        columns["bytes"] = [value.get(_BASE64) for value, _ in rows]
    for name in _IN_LINES:
        values = [value.get(name) for value, _ in rows]
        if all(value is None for value in values):
            continue
        if name == "meta":
            columns[name] = [
                None if value is None else found[name] for value, found in zip(values, members, strict=True)
            ]
        else:
            columns[name] = [None if value is None else _as_string(value) for value in values]
    return pa.table({name: pa.array(values, _type_of(name)) for name, values in columns.items()})


_BINARY = (pa.binary(), pa.large_binary(), pa.binary_view())


def _type_of(name: str) -> pa.DataType:
    return pa.binary() if name == "bytes" else pa.string()


def _decoded(text: Any, where: str) -> bytes:
    try:
        if isinstance(text, str):
            return base64.b64decode(text, validate=True)
    except ValueError:
        pass
    raise PipelineError(f"{where}: data_base64 is no base64: write it with + and /, and with padding")


def _members(text: str) -> dict[str, str]:
    """Return each member of a valid object as its text: 1.10 stays 1.10."""
    found: dict[str, str] = {}
    at = _after_blanks(text, 1)
    while text[at] != "}":
        name, at = _decoder.raw_decode(text, at)
        start = _after_blanks(text, _after_blanks(text, at) + 1)
        _, end = _decoder.raw_decode(text, start)
        found[name] = text[start:end]
        at = _after_blanks(text, end)
        if text[at] == ",":
            at = _after_blanks(text, at + 1)
    return found


def _after_blanks(text: str, at: int) -> int:
    while text[at] in " \t\r\n":
        at += 1
    return at


_decoder = json.JSONDecoder()


def _of_documents(rows: Sequence[tuple[Any, str]], row_form: RowForm) -> pa.Table:
    """Return rows that are the data as a whole, given as (value, its text), as a table."""
    columns = {"data": pa.array([text for _, text in rows], pa.string())}
    if row_form.tag is not None:
        places = [pointer.find(value, row_form.tag) for value, _ in rows]
        tags = [None if place is pointer.MISSING or place is None else _as_string(place) for place in places]
        columns["tag"] = pa.array(tags, pa.string())
    return pa.table(columns)


def _as_string(value: Any) -> str:
    return value if isinstance(value, str) else _text(value)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_as_text)


def _as_text(value: Any) -> str:
    """Return the text of a time or a decimal, which JSON lacks."""
    if isinstance(value, bytes):
        raise pa.ArrowInvalid("a value is binary, which JSON cannot have: write the file without that column")
    return str(value)
