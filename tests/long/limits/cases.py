"""The values that are sent for each field of each operation. A field without an entry here fails
`tests/long/limits/test_limits.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.long.limits.fields import WRITE
from tests.long.limits.values import (
    ANY,
    EQUAL_MEMBERS,
    FIELDS,
    FLAG,
    LEASE_IDS,
    LONG,
    MEMBERS,
    NESTED,
    NODES,
    NUMBER,
    OBJECT,
    PREDICATE,
    SEQS,
    TEXT,
    Scale,
    Value,
    at_limit,
    const,
    filled,
    many,
    names,
    word,
)

Fields = dict[str, bytes]

IN_NEW_TOPIC = "in a new topic"
"""The end of the names of values that are written to a topic which the write creates."""
HEAD = const("the head", b"0")
"""The seq of the last record of the topic `doomed`, which the sender fills in."""
_HEAD_ROOM_BYTES = 1000
"""Bytes of a head for the rest of it."""


def _in_head(name: str, piece: bytes) -> Value:
    """A piece so often as a head holds."""

    def text(scale: Scale, _number: int) -> bytes:
        return piece * ((scale.config.max_head_bytes - _HEAD_ROOM_BYTES) // len(piece))

    return Value(name, text)


PLAIN = (
    _in_head("long", b"x"),
    _in_head("escapes", b"%61"),
    _in_head("malformed escapes", b"%6"),
    _in_head("no UTF-8", b"%ff"),
    const("0", b"0"),
    const("1", b"1"),
    const("true", b"true"),
    const("2^64-1", b"%d" % (2**64 - 1)),
)
"""Values in a path, a query or a header."""
PAIRS = (_in_head("many pairs", b"a=b&"), _in_head("many escapes", b"%61&"))

_CONFIG = {
    "type": word("queue", "log"),
    "durability": word("fsync", "ephemeral"),
    "discard": word("reject"),
    "dead_letter": (const("a topic", b'"dead"'), *TEXT),
    "priority": (*NUMBER, const("-1000", b"-1000")),
    **dict.fromkeys(
        (
            "ttl_ms",
            "cap_records",
            "cap_bytes",
            "idempotency_window_ms",
            "lease_ms",
            "claim_jitter_ms",
            "max_deliveries",
        ),
        NUMBER,
    ),
    **dict.fromkeys(("durable", "auto_priority", "auto_create", "dedupe_node", "leases_durable"), FLAG),
}
_RECORD = {
    "data": (
        filled("long text", b"x", b'"', b'"', most=1_048_000),
        filled(f"long text {IN_NEW_TOPIC}", b"x", b'"', b'"', most=1_048_000),
        filled("long text of escapes", b"\\u0001", b'"', b'"', most=1_000_000),
        filled("blanks, then 0", b" ", b"", b"0", most=1_000_000),
        filled("array", b"0,", b"[", b"0]", most=1_000_000),
        Value("distinct members", lambda scale, _n: _distinct_members(scale)),
        filled("equal members", b'"":0,', b"{", b'"":0}', most=1_000_000),
        filled("long number", b"1", b"1", most=300),
        NESTED,
        const("small", b"0"),
    ),
    "data_base64": (
        filled("long text", b"AAAA", b'"', b'"', most=1_048_000),
        filled("escapes", b"\\u0041" * 4, b'"', b'"', most=1_000_000),
        filled("no base64", b"*", b'"', b'"', most=1_000_000),
        const("empty", b'""'),
    ),
    "tag": (at_limit("max_tag_bytes"), const("equal", b'"a"'), filled("escapes", b"\\u0061", b'"', b'"', most=1536)),
    "node": (at_limit("max_node_bytes"), const("equal", b'"a"')),
    "delay_ms": (const("30 days", b"2592000000"), *NUMBER),
    "ttl_ms": (const("ten years", b"315360000000"), *NUMBER),
    "meta": (
        filled("long text", b"x", b'"', b'"', most=16_000),
        filled("escapes", b"\\u0001", b'"', b'"', most=16_000),
        filled("equal members", b'"":0,', b"{", b'"":0}', most=12_000),
        Value("64 members", lambda _s, _n: b"{%b}" % b",".join(b'"%d":{"a":{"b":[]}}' % i for i in range(64))),
        NESTED,
        const("small", b"0"),
    ),
    "unknown": (FIELDS, MEMBERS, filled("blanks", b" ", b"", b"0", most=100_000)),
}
_PRODUCER = {
    "id": (at_limit("max_producer_id_bytes"), *TEXT),
    "attempt": (at_limit("max_producer_id_bytes"), *TEXT),
    **dict.fromkeys(("epoch", "part", "piece"), NUMBER),
    "last": FLAG,
}
_INCARNATION = (const("another", b'"0123456789abcdef"'), *TEXT)
_WRITE = {
    "records": (
        many("as many as allowed", b'{"data":0}', "max_batch_records"),
        many("many", b'{"data":0}'),
        many("many empty", b"{}"),
        many("many numbers", b"0"),
        many("blanks in between", b'{"data":0}' + b" " * 5000, "max_batch_records"),
        *ANY,
    ),
    **{f"records[].{name}": values for name, values in _RECORD.items()},
    "node": (at_limit("max_node_bytes"), *TEXT),
    "idempotency_key": (at_limit("max_idempotency_key_bytes"), *TEXT),
    "create": FLAG,
    "config": OBJECT,
    **{f"config.{name}": values for name, values in _CONFIG.items()},
    "disable_backpressure": FLAG,
    "incarnation": _INCARNATION,
    "producer": OBJECT,
    **{f"producer.{name}": values for name, values in _PRODUCER.items()},
}
_LEASES = {"node": (at_limit("max_node_bytes"), *TEXT), "seqs": SEQS, "lease_ids": LEASE_IDS}
_READER = {
    "node": NODES,
    "only_node": NODES,
    "match": PREDICATE,
    "limit": NUMBER,
    "max_batch_bytes": NUMBER,
    **dict.fromkeys(("include_tags", "include_meta", "include_data"), FLAG),
}
_UNKNOWN = (
    FIELDS,
    MEMBERS,
    EQUAL_MEMBERS,
    LONG,
    NESTED,
    many("array", b"0"),
)
"""Values of a field that no operation knows."""


def _distinct_members(scale: Scale) -> bytes:
    """The members of an object that is as large as a record may be."""
    count = min(scale.config.max_record_bytes, scale.body_bytes) // 9 - 2
    return b"{%b}" % b",".join([b'"%05x":0' % i for i in range(count)])


def _body(fields: dict[str, tuple[Value, ...]]) -> dict[str, tuple[Value, ...]]:
    return {f"body.{name}": values for name, values in (fields | {"unknown": _UNKNOWN}).items()}


def _query(*fields: str) -> dict[str, tuple[Value, ...]]:
    return {f"query.{name}": PLAIN for name in fields} | {"query.unknown": PAIRS}


_PATH = {"path": PLAIN}
_PUBLISH = _body(_WRITE | {"topic": TEXT, "return_seqs": FLAG})


def _begin(inside: str) -> dict[str, tuple[Value, ...]]:
    return {
        f"{inside}from": (const("the head", b'"now"'), *OBJECT),
        f"{inside}from.last": (const("as many as allowed", b"10000"), *NUMBER),
        f"{inside}from.time": NUMBER,
    }


def _starts(field: str, *values: Value) -> dict[str, tuple[Value, ...]]:
    """The values of an object of topics or of prefixes, each with a beginning."""
    return {
        field: values,
        f"{field}.*.from_seq": NUMBER,
        f"{field}.*.tail": FLAG,
        **_begin(f"{field}.*."),
        f"{field}.*.unknown": (FIELDS,),
    }


_PREFIXES = (
    const("of all names", b'{"":{}}'),
    many("the longest", lambda i: b'"%0255d":{}' % i, "max_prefixes", b"{}"),
    *names("max_prefixes", b"{}"),
)
_LISTED_PREFIXES = (
    many("as many as allowed", lambda i: b'"%0255d"' % i, "max_prefixes"),
    many("distinct", lambda i: b'"%07x"' % i),
    many("equal", b'""'),
    many("no texts", b"0"),
    *TEXT,
)
_COMMAND = _body({"op": TEXT, "request_id": ANY})

CASES: dict[str, dict[str, tuple[Value, ...]]] = {
    "PUT /v0/topics/:": _PATH | _body(_CONFIG),
    "PATCH /v0/topics/:": _PATH | _body(_CONFIG),
    "GET /v0/topics/:": _PATH | _query("incarnation", "touch", "include_attempts"),
    "GET /v0/topics": _query("cursor", "incarnation", "page_size", "prefix", "touch"),
    "DELETE /v0/topics/:": {"path": (const("a large topic", b"doomed"), *PLAIN)} | _query("if_empty"),
    WRITE: _PATH | _query("return_seqs") | {"header.Idempotency-Key": PLAIN} | _body(_WRITE),
    "POST /v0/topics/:/diff": _PATH
    | _body(
        {name: values for name, values in _READER.items() if name != "include_data"}
        | {
            **_begin(""),
            "from_seq": NUMBER,
            "incarnation": _INCARNATION,
            "wait_ms": (const("1", b"1"), LONG),
        }
    ),
    "POST /v0/topics/:/delete": _PATH | _body({"before_seq": NUMBER, "match": PREDICATE}),
    "POST /v0/wait": _body(
        {
            "topics": names("max_wait_topics", b"0"),
            "topics.*.seq": NUMBER,
            "topics.*.incarnation": _INCARNATION,
            "topics.*.unknown": (FIELDS,),
            "prefixes": (const("of all names", b'[""]'), *_LISTED_PREFIXES),
            "wait_ms": (const("1", b"1"), LONG),
        }
    ),
    "POST /v0/backups": _body({"to": TEXT}),
    "POST /v0/checkpoint": _body({"checkpoint": NUMBER, "wait_ms": NUMBER}),
    "POST /v0/topics/:/claim": _PATH
    | _body({"node": (at_limit("max_node_bytes"), *TEXT), "max": NUMBER, "lease_ms": NUMBER})
    | _body({"wait_ms": (const("1", b"1"), LONG), "include_attempts": FLAG}),
    "POST /v0/topics/:/ack": _PATH | _body(_LEASES),
    "POST /v0/topics/:/nack": _PATH
    | _body(_LEASES | {"delay_ms": NUMBER, "reason": (at_limit("max_reason_bytes"), *TEXT)}),
    "POST /v0/topics/:/extend": _PATH | _body(_LEASES | {"lease_ms": NUMBER}),
    "GET /v0/topics/:/dead": _PATH | _query("from_seq", "limit"),
    "POST /v0/topics/:/redrive": _PATH | _body({"seqs": SEQS, "all": FLAG, "from_seq": NUMBER, "max": NUMBER}),
    "GET /v0/topics/:/work": _PATH | _query("node", "max", "lease_ms", "include_attempts", "token"),
    "PUT /v0/topics/:/readers/:": _PATH
    | _body({"delivery": word("at-most-once", "at-least-once"), "holds": FLAG, "trims": FLAG})
    | _body({"from_seq": (HEAD, *NUMBER), "incarnation": _INCARNATION} | _begin("")),
    "GET /v0/topics/:/readers/:": _PATH | _query("incarnation"),
    "GET /v0/topics/:/readers": _PATH,
    "DELETE /v0/topics/:/readers/:": {"path": (const("the one because of which nothing is trimmed", b"slow"), *PLAIN)},
    "POST /v0/topics/:/readers/:/read": _PATH
    | _body({"limit": NUMBER, "max_batch_bytes": NUMBER, "wait_ms": (const("1", b"1"), LONG), "lease_ms": NUMBER})
    | _body({"peek": FLAG, "stop_at_gap": FLAG, "incarnation": _INCARNATION, "done": TEXT, "commit_every": NUMBER}),
    "POST /v0/topics/:/readers/:/commit": _PATH
    | _body({"token": TEXT, "seq": NUMBER, "release": FLAG, "incarnation": _INCARNATION}),
    "POST /v0/topics/:/readers/:/seek": _PATH | _body({"seq": (HEAD, *NUMBER), "incarnation": _INCARNATION}),
    "PUT /v0/routers/:": _PATH
    | _body(
        {
            "source": (const("a topic", b'"quiet"'), *TEXT),
            "dest": (const("a topic", b'"copies"'), *TEXT),
            "filter": PREDICATE,
            "guarantee": word("exactly_once", "at_least_once"),
            **dict.fromkeys(("preserve_node", "preserve_tag", "allow_cycle", "create_dest"), FLAG),
        }
    ),
    "GET /v0/routers/:": _PATH,
    "GET /v0/routers": _query("cursor", "page_size", "prefix", "source", "dest"),
    "DELETE /v0/routers/:": _PATH,
    "POST /v0/watch": _query("lenient")
    | _body(
        _READER
        | {
            **_starts("topics", *names("max_watch_topics", b"{}")),
            **_starts("prefixes", *_PREFIXES),
            "heartbeat_ms": NUMBER,
            "consistency": word("strong"),
        }
    ),
    "GET /v0/watch/:": _PATH | _query("token") | {"header.Last-Event-ID": PLAIN},
    "GET /v0/ws": {},
    "GET /docs/contract/:": _PATH | _query(),
    "GET /docs/guides/:": _PATH | _query(),
    **{
        operation: _query()
        for operation in (
            *("GET /v0/health", "GET /healthz", "GET /v0/ready", "GET /readyz", "GET /v0/metrics"),
            *("GET /openapi.json", "GET /docs", "GET /", "GET /ui", "GET /v0/backups"),
        )
    },
    "GET /v0/archive": _query("mirror", "upto_ms", "core"),
    "GET /v0/archive/file": _query("timeline", "path", "offset", "bytes", "core"),
    "WS ping": _COMMAND,
    "WS subscribe": _COMMAND
    | _body(
        _READER
        | {
            "topic": (const("large", b'"large"'), *TEXT),
            **_starts("topics", *names("max_watch_topics", b"{}")),
            **_starts("prefixes", *_PREFIXES),
            "from_seq": NUMBER,
            "tail": FLAG,
            **_begin(""),
            "lenient": FLAG,
        }
    ),
    "WS unsubscribe": _COMMAND
    | _body(
        {
            "topic": TEXT,
            "topics": (
                many("as many as allowed", lambda i: b'"%0255d"' % i, "max_watch_topics"),
                many("distinct", lambda i: b'"%07x"' % i),
                many("equal", b'""'),
                many("no texts", b"0"),
            ),
            "prefixes": _LISTED_PREFIXES,
        }
    ),
    "WS publish": _COMMAND | _PUBLISH,
}


class Case(NamedTuple):
    operation: str
    field: str
    value: Value
    gzip: bool = False

    @property
    def name(self) -> str:
        return self.value.name + (" (gzip)" if self.gzip else "")


def cases() -> Iterator[Case]:
    for operation, its in CASES.items():
        for field, values in its.items():
            for value in values:
                yield Case(operation, field, value)
                if field == "body.unknown" and not operation.startswith("WS "):
                    yield Case(operation, field, value, gzip=True)
        if not its:
            yield Case(operation, "-", const("as it is", b""))


_NESTED: dict[str, Fields] = {"producer": {"id": b'"p"', "epoch": b"1", "part": b"0"}}


def with_value(base: Fields, path: str, value: Value, scale: Scale) -> bytes:
    """The JSON of an object with fields, one of which, at `path`, has the value."""
    name, _, inner = path.partition(".")
    if not inner:
        return _object(base | {name: value.text(scale, 0)})
    if name.endswith("[]"):
        return _object(base | {name[:-2]: _elements(inner, value, scale)})
    if inner.startswith("*."):
        most = scale.config.max_prefixes if name == "prefixes" else scale.config.max_watch_topics
        each = inner[2:]
        items: list[bytes] = []
        size = 0
        while len(items) < most and size < scale.body_bytes:
            member = {"seq": b"0"} if each in ("incarnation", "unknown") else {}
            items.append(b'"t%06d":%b' % (len(items), _object(member | {each: value.text(scale, len(items))})))
            size += len(items[-1]) * 2
        return _object(base | {name: b"{%b}" % b",".join(items)})
    return _object(base | {name: _object(_NESTED.get(name, {}) | {inner: value.text(scale, 0)})})


def _elements(field: str, value: Value, scale: Scale) -> bytes:
    """Return as many records with the value as a write and its body may hold."""
    base = {} if field == "data_base64" else {"data": b"0"}
    one = _object(base | {field: value.text(scale, 0)})
    count = max(1, min(scale.config.max_batch_records, scale.body_bytes // (len(one) + 1)))
    if value.name.startswith("text of"):
        items = [_object(base | {field: value.text(scale, number)}) for number in range(count)]
        return b"[%b]" % b",".join(items)
    return b"[%b]" % b",".join([one] * count)


def _object(fields: Fields) -> bytes:
    return b"{%b}" % b",".join([b'"%b":%b' % (name.encode(), text) for name, text in fields.items()])
