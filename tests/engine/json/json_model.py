"""Strict JSON by Python's own json module: the slow, obvious model that records.c is compared with.

Also the makers of test texts: random JSON in random spellings, and small damages to it.
"""

from __future__ import annotations

import base64
import json
import math
import random
import re
from dataclasses import dataclass
from typing import Any

DEPTH_MAX = 127


class RefusedError(Exception):
    """The model says: not strict JSON, or not of the right shape."""


@dataclass(frozen=True)
class Number:
    text: str


class Members(list[tuple[str, Any]]):
    """The members of an object, in order, repeated keys and all."""


def parse(text: bytes) -> Any:
    """Strings, bools, None, lists, Members and Numbers. Raises RefusedError."""
    try:
        decoded = text.decode("utf-8")
        if nesting(decoded) > DEPTH_MAX:
            raise RefusedError("too deep")
        value = json.loads(
            decoded, object_pairs_hook=Members, parse_constant=_refuse, parse_int=_number, parse_float=_number
        )
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise RefusedError(str(error)) from None
    _refuse_surrogates(value)
    return value


def _refuse(text: str) -> Any:
    raise RefusedError(text)


def _number(text: str) -> Number:
    if math.isinf(float(text)):
        raise RefusedError(text)
    return Number(text)


def nesting(text: str) -> int:
    """The deepest nesting of brackets outside strings, valid JSON or not."""
    depth = deepest = 0
    inside = escaped = False
    for c in text:
        if inside:
            if escaped:
                escaped = False
            elif c == "\\":
                escaped = True
            elif c == '"':
                inside = False
        elif c == '"':
            inside = True
        elif c in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif c in "]}":
            depth -= 1
    return deepest


def _refuse_surrogates(value: Any) -> None:
    todo = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, str):
            if any("\ud800" <= c <= "\udfff" for c in item):
                raise RefusedError("lone surrogate")
        elif isinstance(item, Members):
            for name, member in item:
                todo += [name, member]
        elif isinstance(item, list):
            todo += item


def kept(value: Any) -> Any:
    """The value with the last of equal keys only; objects become dicts."""
    if isinstance(value, Members):
        return {name: kept(member) for name, member in value}
    if isinstance(value, list):
        return [kept(item) for item in value]
    return value


def compact(value: Any) -> bytes:
    """The shortest spelling of a parsed value; numbers as they were spelled."""
    if isinstance(value, Number):
        return value.text.encode()
    if isinstance(value, Members):
        return b"{" + b",".join(compact(name) + b":" + compact(member) for name, member in value) + b"}"
    if isinstance(value, dict):
        return compact(Members(value.items()))
    if isinstance(value, list):
        return b"[" + b",".join(compact(item) for item in value) + b"]"
    return json.dumps(value, ensure_ascii=False).encode()


# --- makers of texts --------------------------------------------------------------------------------------------------

NUMBERS = (
    *("0", "-0", "1", "-12", "3.25", "1e5", "1E+5", "0.001", "18446744073709551616", "1e308", "0e999", "1e-999"),
    *("1.7976931348623157e308", "123456789012345678901234567890", "0.0000001e310", "2.5e-7", "1e309", "9" * 310),
)
CHARACTERS = 'abckey \t/"\\\b\n\x00\x1f\x7fé€𐍈😀z'
NAMES = ("a", "b", "é", "data", "", "a longer key than sixteen bytes")


def spelled_string(value: str, rng: random.Random) -> str:
    parts = []
    for c in value:
        code = ord(c)
        must = c in '"\\' or code < 0x20
        if must or rng.random() < 0.15:
            short = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\n": "\\n", "\t": "\\t", "/": "\\/"}.get(c)
            if short and rng.random() < 0.5:
                parts.append(short)
            elif code > 0xFFFF:
                high, low = 0xD800 + ((code - 0x10000) >> 10), 0xDC00 + ((code - 0x10000) & 0x3FF)
                parts.append(f"\\u{high:04x}\\u{low:04X}")
            else:
                parts.append(f"\\u{code:04x}")
        else:
            parts.append(c)
    return '"' + "".join(parts) + '"'


def blank(rng: random.Random) -> str:
    return rng.choice(("", "", "", "", " ", "\n", "\t\r ")) if rng.random() < 0.5 else ""


def random_json(rng: random.Random, depth: int = 3) -> str:
    """A JSON text in a random spelling; mostly, not always, within the strict rules (numbers may overflow)."""
    kind = rng.randrange(8 if depth else 5)
    if kind <= 1:
        length = rng.choice((0, 1, 3, 8, 20, 40))
        return spelled_string("".join(rng.choices(CHARACTERS, k=length)), rng)
    if kind == 2:
        return rng.choice(NUMBERS[:-2]) if rng.random() < 0.98 else rng.choice(NUMBERS)
    if kind <= 4:
        return rng.choice(("null", "true", "false", str(rng.randrange(100))))
    items = []
    for _ in range(rng.choice((0, 1, 2, 3, 3, 40 if depth == 1 else 4))):
        item = random_json(rng, depth - 1)
        if kind <= 6:
            name = rng.choice(NAMES) + (str(rng.randrange(50)) if rng.random() < 0.7 else "")
            item = blank(rng) + spelled_string(name, rng) + blank(rng) + ":" + blank(rng) + item
        items.append(blank(rng) + item + blank(rng))
    return ("{%s}" if kind <= 6 else "[%s]") % ",".join(items)


PIECES = (
    *(
        b'"',
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"\\",
        b"\\u",
        b"d800",
        b"\\ud83d\\ude00",
        b"0",
        b"1e400",
        b"-",
        b".",
        b"e",
    ),
    *(
        b"null",
        b"true",
        b"NaN",
        b" ",
        b"\n",
        b"\x00",
        b"\xff",
        b"\xc3",
        b"\xa9",
        b"\xed\xa0\x80",
        b"\xef\xbb\xbf",
        b"/*",
    ),
    *(b'"data":', b'"tag":', b'"records":', b'"node":', b'"meta":null', b'"create":', b'"config":{},'),
)


def damaged(text: bytes, rng: random.Random) -> bytes:
    """The text with one to three bytes or pieces inserted, removed or replaced, or cut off."""
    data = bytearray(text)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(4):
            case 0:
                data[at:at] = rng.choice(PIECES)
            case 1:
                del data[at : at + rng.randint(1, 3)]
            case 2:
                data[at : at + 1] = rng.choice(PIECES)
            case _:
                del data[at:]
    return bytes(data)


ALIKE_NAMES = (
    "",
    "a",
    "aa",
    "ab",
    "abcdef",
    "abcdefg",
    "abcdefgh",
    "abcdefghi",
    "abcdefghj",
    "n" * 12,
    "n" * 13,
    "n" * 14,
    "\\u0061",
    "é",
)
"""Keys as they are spelled, with `"` and `":` up to 16 bytes and above: see EXPECTED_KEY_BYTES in json_strict.h."""


def alike(rng: random.Random, keys: list[str]) -> str:
    """An object with mostly these keys, in mostly this order."""
    keys = keys.copy()
    if rng.random() < 0.5:
        keys[rng.randrange(len(keys))] = rng.choice(ALIKE_NAMES)
    if rng.random() < 0.2:
        keys.insert(rng.randrange(len(keys)), rng.choice(keys))
    values = [rng.choice(("1", '"x"', "[]", '{"a":1}', '{"a":1,"aa":2}', '[{"a":1},{"a":2}]')) for _ in keys]
    members = ",".join(f'"{key}":{value}' for key, value in zip(keys, values, strict=True))
    return f"{{{members}}}"


def random_write(rng: random.Random) -> bytes:
    """The body of a write, mostly of the right shape."""
    records = []
    keys = rng.choices(ALIKE_NAMES, k=rng.choice((1, 2, 4, 20))) if rng.random() < 0.4 else []
    for _ in range(rng.choice((1, 1, 2, 3))):
        members = [f'"data":{blank(rng)}{alike(rng, keys) if keys else random_json(rng, 2)}']
        if rng.random() < 0.3:
            data = rng.randbytes(rng.choice((0, 1, 2, 3, 30)))
            text = spelled_string(base64.b64encode(data).decode(), rng)
            members[: rng.choice((1, 1, 1, 0))] = [f'"data_base64":{blank(rng)}{text}']
        if rng.random() < 0.4:
            members.append('"meta":' + random_json(rng, 2))
        for name in ("tag", "node"):
            if rng.random() < 0.4:
                members.append(
                    f'"{name}":' + rng.choice(("null", spelled_string("".join(rng.choices(CHARACTERS, k=5)), rng)))
                )
        if rng.random() < 0.2:
            members.append('"other":' + random_json(rng, 1))
        rng.shuffle(members)
        records.append("{" + f"{blank(rng)},{blank(rng)}".join(members) + blank(rng) + "}")
    fields = [f'"records":{blank(rng)}[{blank(rng)}' + ",".join(records) + "]"]
    for text in (
        '"node":"w"',
        '"node":null',
        '"create":true',
        '"disable_backpressure":false',
        '"incarnation":"0123456789abcdef"',
        '"incarnation":"0123456789ABCDEF"',
        '"x":[{"x":1,"x":2}]',
        '"config":{"x":1}',
        '"producer":null',
        '"producer":{"part":0,"id":"p\\u0070","epoch":7,"x":[]}',
        '"producer":{"part":65536,"id":"","epoch":1.5}',
    ):
        if rng.random() < 0.1:
            fields.append(text)
    rng.shuffle(fields)
    return (blank(rng) + "{" + ",".join(fields) + blank(rng) + "}" + blank(rng)).encode()


# --- the model of a write's body --------------------------------------------------------------------------------------

Row = tuple[Any, str | None, str | None, Any, int]
"""data (bytes, or kept JSON), tag, node, meta (kept), accounted size."""


def parse_write(body: bytes) -> tuple[list[Row], str | None]:
    """The rows and the batch's node. Raises RefusedError for what is refused before any limit is looked at."""
    top = parse(body)
    if not isinstance(top, Members):
        raise RefusedError("body")
    fields = _known(
        top,
        (
            *("records", "node", "idempotency_key", "create", "config", "disable_backpressure"),
            *("incarnation", "producer"),
        ),
    )
    if not isinstance(fields.get("records"), list) or isinstance(fields["records"], Members):
        raise RefusedError("records")
    texts = (("node", str), ("idempotency_key", str), ("incarnation", str))
    for name, types in (*texts, ("create", bool), ("config", Members), ("producer", Members)):
        if fields.get(name) is not None and not isinstance(fields[name], types):
            raise RefusedError(name)
    if fields.get("incarnation") is not None and not re.fullmatch("[0-9a-f]{16}", fields["incarnation"]):
        raise RefusedError("incarnation")
    if not isinstance(fields.get("disable_backpressure", False), bool):
        raise RefusedError("disable_backpressure")
    if fields.get("producer") is not None:
        _check_producer(fields["producer"])
    rows = []
    for record in fields["records"]:
        if not isinstance(record, Members):
            raise RefusedError("record")
        known = _known(record, ("data", "data_base64", "tag", "node", "meta"))
        if ("data" in known) == ("data_base64" in known):
            raise RefusedError("data")
        for name in ("tag", "node"):
            if known.get(name) is not None and not isinstance(known[name], str):
                raise RefusedError(name)
        meta = kept(known.get("meta"))
        data = kept(known["data"]) if "data" in known else unpacked(known["data_base64"])
        size = len(data if isinstance(data, bytes) else compact(data)) + (0 if meta is None else len(compact(meta)))
        rows.append((data, known.get("tag"), known.get("node"), meta, size))
    return rows, fields.get("node")


def unpacked(text: Any) -> bytes:
    """The bytes of a base64 text that is the only one for them."""
    if not isinstance(text, str):
        raise RefusedError("data_base64")
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        raise RefusedError("data_base64") from None
    if base64.b64encode(data).decode() != text:
        raise RefusedError("data_base64")
    return data


def _check_producer(members: Members) -> None:
    known = _known(members, ("id", "epoch", "part"))
    if not isinstance(known.get("id"), str) or not 0 < len(known["id"].encode()) <= 256:
        raise RefusedError("producer.id")
    for name, most in (("epoch", 2**63 - 1), ("part", 65_535)):
        number = known.get(name)
        if not isinstance(number, Number) or not number.text.isdigit() or int(number.text) > most:
            raise RefusedError(f"producer.{name}")


def _known(members: Members, names: tuple[str, ...]) -> dict[str, Any]:
    if len(members) > 1000:
        raise RefusedError("members")
    found: dict[str, Any] = {}
    for name, value in members:
        if name in names:
            if name in found:
                raise RefusedError(f"{name} twice")
            found[name] = value
    return found
