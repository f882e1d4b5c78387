"""The costliest values of a field, as JSON: many entries, long strings, nested, equal, at a limit and beyond it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from topics.config import Config


class Scale(NamedTuple):
    """The sizes of values and of the stored data."""

    config: Config
    """With the limits in force."""
    body_bytes: int
    """Bytes of the largest value: those of a body, less the rest of it."""
    records: int
    """Records of a large topic."""
    topics: int


class Value(NamedTuple):
    """text: JSON of the field; in the place of one of many, of the one with this number."""

    name: str
    text: Callable[[Scale, int], bytes]


def const(name: str, text: bytes) -> Value:
    return Value(name, lambda _scale, _number: text)


def many(name: str, item: Callable[[int], bytes] | bytes, count: str = "", shape: bytes = b"[]") -> Value:
    """Return as many items as a body holds, or as the setting `count` allows. item: bytes for equal ones."""

    def text(scale: Scale, _number: int) -> bytes:
        size = len(item if isinstance(item, bytes) else item(0)) + 1
        most = scale.body_bytes // size
        if count:
            most = min(most, getattr(scale.config, count))
        items = b",".join([item] * most) if isinstance(item, bytes) else b",".join(map(item, range(most)))
        return shape[:1] + items + shape[1:]

    return Value(name, text)


def filled(name: str, piece: bytes, before: bytes = b"", after: bytes = b"", most: int = 1 << 62) -> Value:
    """A piece so often as a body, or `most` bytes, hold."""
    return Value(name, lambda scale, _n: before + piece * (min(scale.body_bytes, most) // len(piece)) + after)


def at_limit(setting: str) -> Value:
    """A string of so many bytes as the setting allows, another for each number."""

    def text(scale: Scale, number: int) -> bytes:
        return b'"%b"' % (b"%x" % number).ljust(getattr(scale.config, setting), b"x")

    return Value(f"text of {setting}", text)


def nested(_scale: Scale, _number: int) -> bytes:
    return b"[" * 120 + b"]" * 120


LONG = filled("long text", b"x", b'"', b'"')
ESCAPED = filled("long text of escapes", b"\\u0061", b'"', b'"')
WHITE = filled("blanks, then 0", b" ", b"", b"0")
NESTED = Value("nested 120 deep", nested)
MEMBERS = many("object of distinct members", lambda i: b'"%07x":0' % i, shape=b"{}")
EQUAL_MEMBERS = many("object of equal members", b'"":0', shape=b"{}")
FIELDS = many("object of 1000 long members", lambda i: b'"%d":"%b"' % (i, b"x" * 200), shape=b"{}")
LONG_NUMBER = filled("long number", b"1")
TEXT = (LONG, ESCAPED)
NUMBER = (
    const("0", b"0"),
    const("1", b"1"),
    const("2^64-1", b"%d" % (2**64 - 1)),
    const("2^32-1", b"%d" % (2**32 - 1)),
    LONG_NUMBER,
)
FLAG = (const("true", b"true"), const("false", b"false"), LONG)
ANY = (
    *TEXT,
    WHITE,
    NESTED,
    MEMBERS,
    EQUAL_MEMBERS,
    many("array", b"0"),
    many("array of objects", b'{"":0}'),
    LONG_NUMBER,
)


def word(*words: str) -> tuple[Value, ...]:
    return (*(const(each, b'"%b"' % each.encode()) for each in words), *TEXT)


PREDICATE = (
    const("all tags", b'"*"'),
    const("tags of a prefix", b'["tag","Glob","a*"]'),
    const("no tag", b'["tag","Eq","absent"]'),
    const("one tag", b'["tag","Eq","a0000001"]'),
    *TEXT,
    many("array of texts", b'"tag"'),
)
NODES = (
    many("as many as allowed", lambda i: b'"%0128d"' % i, "max_nodes"),
    many("as many equal as allowed", b'"n"', "max_nodes"),
    many("distinct", lambda i: b'"%07x"' % i),
    many("equal", b'""'),
    many("no texts", b"0"),
    *TEXT,
)
SEQS = (
    many("as many as allowed", lambda i: b"%d" % (i + 1), "max_claim"),
    many("as many equal as allowed", b"1", "max_claim"),
    many("many", b"0"),
    many("fractions", b"0.5"),
    LONG_NUMBER,
)
LEASE_IDS = (many("empty", b'""'), many("ids", b'"lease_1"'), many("no texts", b"0"), *TEXT)
OBJECT = (MEMBERS, EQUAL_MEMBERS, FIELDS)


def names(setting: str, each: bytes) -> tuple[Value, ...]:
    """An object from names of topics, which are there, to something."""
    return (
        many("as many as allowed", lambda i: b'"t%06d":%b' % (i, each), setting, b"{}"),
        many("absent names", lambda i: b'"%0200d":%b' % (i, each), setting, b"{}"),
        many("equal names", b'"t000001":%b' % each, setting, b"{}"),
        many("distinct", lambda i: b'"t%06d":%b' % (i, each), shape=b"{}"),
        many("equal", b'"":%b' % each, shape=b"{}"),
        filled("a long name", b"x", b'{"', b'":%b}' % each),
        filled("a name of escapes", b"\\u0061", b'{"', b'":%b}' % each),
    )
