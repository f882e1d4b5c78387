"""Records that a command appends: from its arguments, or from the lines of stdin."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, NamedTuple

import msgspec

import topics
from topics.clock import SystemClock
from topics.errors import OutcomeUnknown, UsageError

INPUTS = ("json", "text", "bytes", "record")
"""A value of JSON; a string; bytes; or an object as `topics get -o json` prints it."""
_CHUNK_BYTES = 1 << 20
_BATCH_RECORDS = 1000
_MEMBERS = frozenset(
    (
        "$seq",
        "$ts",
        "$tag",
        "$node",
        "$delay_ms",
        "$ttl_ms",
        "delay_ms",
        "ttl_ms",
        "tag",
        "node",
        "data",
        "data_base64",
        "meta",
        "topic",
        "lease_id",
        "deadline",
        "deliveries",
    )
)


class InputForm(NamedTuple):
    """How a text becomes a record."""

    form: str
    tag: str | None
    node: str | None
    meta: Any
    delay_ms: int
    ttl_ms: int

    @classmethod
    def of(  # noqa: PLR0917 - the fields
        cls, form: str, tag: str | None, node: str | None, meta: str | None, delay_ms: int = 0, ttl_ms: int = 0
    ) -> InputForm:
        """Raises: UsageError for an unknown form, or a meta that is no JSON."""
        if form not in INPUTS:
            raise UsageError(f"--as is {form!r}: use one of {', '.join(INPUTS)}")
        return cls(form, tag, node, None if meta is None else _json_of(os.fsencode(meta), "--meta"), delay_ms, ttl_ms)

    def record(self, text: bytes, what: str) -> Any:
        """Return the `topics.NewRecord` that a text is. Raises: UsageError, which names `what`."""
        if self.form == "bytes":
            return topics.NewRecord(text, *self[1:])
        if self.form == "text":
            try:
                return topics.NewRecord(text.decode(), *self[1:])
            except UnicodeDecodeError:
                raise UsageError(f"{what} is no UTF-8: add --as bytes") from None
        value = _json_of(text, what)
        if self.form == "json":
            return topics.NewRecord(value, *self[1:])
        new, _seq = record_of(value, what)
        return topics.NewRecord(
            new.data,
            new.tag if self.tag is None else self.tag,
            new.node if self.node is None else self.node,
            new.meta if self.meta is None else self.meta,
            self.delay_ms or new.delay_ms,
            self.ttl_ms or new.ttl_ms,
        )


def record_of(value: Any, what: str) -> tuple[Any, int | None]:
    """Return the `topics.NewRecord` of an object as `get` prints it, and its seq, if it has one.

    Raises: UsageError, which names `what`.
    """
    if not isinstance(value, dict) or ("data" in value) == ("data_base64" in value):
        raise UsageError(f"{what} is no record: use an object with `data` or `data_base64`, as `topics get` prints it")
    if unknown := sorted(set(value) - _MEMBERS):
        raise UsageError(
            f"{what} has {unknown[0]!r}, which no record has: "
            "use data, data_base64, tag, node, meta, delay_ms and ttl_ms"
        )
    data = value.get("data")
    if "data_base64" in value:
        try:
            data = base64.b64decode(value["data_base64"], validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise UsageError(f"{what} has data_base64 that is no base64: use the alphabet with + and /") from None
    tag, node = value.get("$tag", value.get("tag")), value.get("$node", value.get("node"))
    seq = value.get("$seq")
    for name, text in (("tag", tag), ("node", node)):
        if text is not None and not isinstance(text, str):
            raise UsageError(f"{what} has a {name} that is no string: put it in quotes")
    if seq is not None and (type(seq) is not int or seq < 1):
        raise UsageError(f"{what} has a $seq that is no number from 1 on: leave it out")
    # A record that has expired since it was read keeps its place, and expires at once.
    times = _left_of(value, "delay_ms", what, 0), _left_of(value, "ttl_ms", what, 1)
    return topics.NewRecord(data, tag, node, value.get("meta"), *times), seq


def _left_of(value: dict[str, Any], name: str, what: str, least: int) -> int:
    """Return the delay or ttl of a record: of one that was read, what is left of it now."""
    given = value.get(f"${name}", value.get(name))
    time = 0 if given is None else given
    if type(time) is not int or time < 0:
        raise UsageError(f"{what} has a {name} that is no number of milliseconds: leave it out")
    if value.get(f"${name}") and type(value.get("$ts")) is int:
        return max(least, int(value["$ts"]) + time - SystemClock().now_ms())
    return time


class StoredLines(NamedTuple):
    """Lines that were appended, and their records. last_line: 0 for none."""

    last_line: int = 0
    first_seq: int = 0
    last_seq: int = 0
    records: int = 0

    def and_then(self, last_line: int, appended: topics.AppendResult) -> StoredLines:
        """Return these lines and those up to `last_line`, which were appended after them."""
        records = self.records + (0 if appended.deduped else appended.count)
        return StoredLines(last_line, self.first_seq or appended.first_seq, appended.last_seq, records)

    def text(self, error: Exception) -> str:
        """Return what of the lines is stored after an error, as a clause."""
        lines = "line 1 is" if self.last_line == 1 else f"lines 1 to {self.last_line} are"
        among = f"{self.records} records among " if self.records <= self.last_seq - self.first_seq else ""
        is_one = self.first_seq == self.last_seq
        seqs = f"seq {self.first_seq}" if is_one else f"{among}seqs {self.first_seq} to {self.last_seq}"
        return f"{lines} stored ({seqs}){'' if isinstance(error, OutcomeUnknown) else ', the rest is not'}"


class InputBatch(NamedTuple):
    """Records to append together. last_line: of stdin, the line of the last one; 0: no lines."""

    records: list[Any]
    last_line: int = 0


def batches_of(form: InputForm, given: Sequence[str], stdin: IO[bytes], *, whole: bool) -> Iterator[InputBatch]:
    """Yield the arguments, all of stdin, or its lines as they come: also those before a wrong one.

    Raises: UsageError, which names the argument or the line.
    """
    if given:
        yield InputBatch(
            [form.record(os.fsencode(text), f"record {at} ({_cut(text)})") for at, text in enumerate(given, 1)]
        )
    elif whole:
        yield InputBatch([form.record(_read_of(stdin, stdin.read)(), "stdin")])
    else:
        for lines in lines_as_they_come(stdin):
            for begin in range(0, len(lines), _BATCH_RECORDS):
                yield from _line_batches(form, lines[begin : begin + _BATCH_RECORDS])


def _line_batches(form: InputForm, lines: list[tuple[int, bytes]]) -> Iterator[InputBatch]:
    records: list[Any] = []
    try:
        for at, line in lines:
            records.append(form.record(line, f"line {at}"))
    except UsageError:
        if records:
            yield InputBatch(records, lines[len(records) - 1][0])
        raise
    yield InputBatch(records, lines[-1][0])


def lines_as_they_come(stdin: IO[bytes]) -> Iterator[list[tuple[int, bytes]]]:
    """Yield the whole lines of each read with their numbers: a slow writer's are appended at once.

    Empty lines are left out, and count.
    """
    rest: list[bytes] = []
    before = 0
    read = _read_of(stdin, getattr(stdin, "read1", stdin.read))
    while chunk := read(_CHUNK_BYTES):
        *lines, last = chunk.split(b"\n")
        if lines:
            lines[0] = b"".join([*rest, lines[0]])
            rest = []
            if found := [(at, line.removesuffix(b"\r")) for at, line in enumerate(lines, before + 1) if line.strip()]:
                yield found
            before += len(lines)
        rest.append(last)
    if (end := b"".join(rest)).strip():
        yield [(before + 1, end)]


def _read_of(file: IO[bytes], read: Callable[..., bytes]) -> Callable[..., bytes]:
    """Return a read of a file whose errors name the file."""

    def named(*size: int) -> bytes:
        try:
            return read(*size)
        except OSError as error:
            name = getattr(file, "name", None)
            is_named = isinstance(name, str) and not name.startswith("<")
            raise OSError(error.errno, error.strerror, name if is_named else "stdin") from None

    return named


def _json_of(text: bytes, what: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except RecursionError:
        raise UsageError(f"{what} is nested too deeply: use a flatter value, or add --as text") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise UsageError(f"{what} is no JSON: quote a string as '\"text\"', or add --as text") from None


def _cut(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:39]}…")
