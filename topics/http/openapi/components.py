"""Schemas shared by several endpoints: records, configurations, tombstones, errors.

Source: wire contract, 3 and 5 to 7.
"""

from __future__ import annotations

from topics.config import DURABILITIES
from topics.engine.state.producer_part import EPOCH_MAX, PART_MAX, PIECE_MAX
from topics.http.openapi.shapes import (
    Schema,
    Setting,
    answer,
    boolean,
    listing,
    nullable,
    one_of,
    question,
    ref,
    text,
    u32,
    u64,
)
from topics.http.wire.error_answers import STATUS

REASONS = ("cap", "ttl", "mixed", "source_trim", "recreated", "crash")
_I32 = {"type": "integer", "format": "int32", "minimum": -(2**31), "maximum": 2**31 - 1}

_CONFIG = {
    "type": one_of("log", "queue", default="log", description="fixed once the topic exists"),
    "ttl_ms": u64("records older than this expire; 0: never", default=0),
    "cap_records": u64("most live records; 0: no cap", default=0),
    "cap_bytes": u64("most bytes of live records; 0: no cap", default=0),
    "discard": one_of("old", "reject", default="old", description="at a cap: evict the oldest, or refuse the write"),
    "durable": boolean(False, "true is `fsync`, false is `disk`; `durability` takes precedence"),
    "auto_priority": boolean(True),
    "auto_create": boolean(True, "read only in the `config` of a write that creates"),
    "idempotency_window_ms": u64(default=120_000),
    "dedupe_node": boolean(True, "false: readers' `node` is ignored"),
    "lease_ms": u64("default lease of a queue; clamped to 100..86400000", default=30_000),
    "claim_jitter_ms": u64("coalescing window of a queue; clamped to 0..5000", default=0),
    "max_deliveries": u64("0: no limit", default=0),
    "leases_durable": boolean(False),
}
TOPIC_NAME = text(pattern="^[A-Za-z0-9][A-Za-z0-9._:-]{0,254}$")
ROUTER_NAME = text(pattern="^[A-Za-z0-9][A-Za-z0-9._:>-]{0,254}$")
NODE = text(maxLength=Setting("max_node_bytes"))
"""The schema of a node's name.

`maxLength` counts characters and the server's limit bytes, so the server refuses all that the
schema refuses, and some more.
"""
INCARNATION = text("another one whenever seqs may name other records", pattern="^[0-9a-f]{16}$")
_DEAD_LETTER = TOPIC_NAME | {"description": "topic that takes jobs delivered too often"}

SCHEMAS: dict[str, Schema] = {
    "Config": question(
        (),
        "Always complete: what is left out takes its default, never the topic's current value.",
        **_CONFIG,
        durability=nullable(one_of(*DURABILITIES)),
        priority=nullable(_I32),
        dead_letter=nullable(_DEAD_LETTER),
    ),
    "ConfigPatch": question(
        (),
        "What is left out keeps its value; null means the default.",
        **{name: {key: of[key] for key in of if key != "default"} for name, of in _CONFIG.items()},
        durability=nullable(one_of(*DURABILITIES)),
        priority=nullable(_I32),
        dead_letter=nullable(_DEAD_LETTER),
    ),
    "ConfigInForce": answer(
        "All 17 settings, resolved.",
        **_CONFIG,
        durability=one_of(*DURABILITIES),
        priority=nullable(_I32),
        dead_letter=nullable(_DEAD_LETTER),
    ),
    "NewRecord": question(
        (),
        "Exactly one of data and data_base64 is required.",
        data={"description": "any JSON value, null too"},
        data_base64=text("a record of bytes: RFC 4648, with padding", contentEncoding="base64"),
        tag=nullable(text("what deletes and filters match", maxLength=Setting("max_tag_bytes"))),
        node=nullable(NODE | {"description": "who wrote it"}),
        meta={"description": "any JSON value, within a limit of bytes", "maxProperties": Setting("max_meta_keys")},
        delay_ms=nullable(u64("of a job: not claimable before", maximum=Setting("max_delay_ms"))),
        ttl_ms=nullable(u64("the record expires so long after $ts", maximum=Setting("max_ttl_ms"))),
    ),
    "Part": question(
        ("id", "epoch", "part"),
        "The part of a producer's records that this write is: known again later, and appended once. Not beside a key.",
        id=text("the producer", minLength=1, maxLength=Setting("max_producer_id_bytes")),
        epoch=u64("grows from run to run, or from batch to batch", maximum=EPOCH_MAX),
        part=u32("of the epoch", maximum=PART_MAX),
        piece=u32("of the part, where it comes in several requests", maximum=PIECE_MAX),
        last=boolean(True),
        attempt=text("names one try at sending the pieces", maxLength=Setting("max_producer_id_bytes")),
    ),
    "Record": answer(
        S_seq=u64(),
        S_ts=u64("milliseconds since 1970"),
        S_node_Q=text(),
        S_tag_Q=text("only when tags were asked for"),
        S_delay_ms_Q=u64("of a job: claimable so long after $ts"),
        S_ttl_ms_Q=u64("expires so long after $ts"),
        data_Q={},
        data_base64_Q=text("instead of data, of a record of bytes", contentEncoding="base64"),
        meta_Q={},
    ),
    "Tombstone": answer(
        "A range of records the reader will not see and no client deleted on purpose.",
        gap_from=u64(),
        gap_to=u64(),
        reason=one_of(*REASONS),
        missed_estimate=u64(),
        earliest_seq=u64(),
        head_seq=u64(),
    ),
    "Predicate": {
        "description": '`["tag","Eq",v]`, `["tag","Glob","prefix*"]`, or a string: ending in `*` a Glob, else an Eq.',
        "anyOf": [
            text(),
            {
                "type": "array",
                "prefixItems": [{"const": "tag"}, {"const": "Eq"}, text(maxLength=Setting("max_tag_bytes"))],
                "minItems": 3,
                "maxItems": 3,
            },
            {
                "type": "array",
                "prefixItems": [{"const": "tag"}, {"const": "Glob"}, text(pattern=r"\*$")],
                "minItems": 3,
                "maxItems": 3,
            },
        ],
    },
    "PredicateInForce": {
        "type": "array",
        "prefixItems": [{"const": "tag"}, {"enum": ["Eq", "Glob"]}, text()],
        "minItems": 3,
        "maxItems": 3,
    },
    "Nodes": {
        "description": "Records written by these nodes are left out.",
        "anyOf": [text(), listing(text(), maxItems=1000), {"type": "null"}],
    },
    "OnlyNodes": {
        "description": "Only records written by these nodes. Not beside `node`.",
        "anyOf": [text(), listing(text(), maxItems=1000), {"type": "null"}],
    },
    "Begin": {
        "description": "Where to begin, instead of from_seq: with the first live record, at the head, with the last "
        "live records, or with the first record of a `$ts` or a later one.",
        "anyOf": [
            one_of("first", "now"),
            question(("last",), last=u64(maximum=Setting("max_last"))) | {"maxProperties": 1},
            question(("time",), time=u64()) | {"maxProperties": 1},
        ],
    },
    "ReadFrom": question(
        (),
        "Where to begin.",
        from_seq=u64(default=0),
        tail=boolean(False, "from the head on"),
        **{"from": ref("Begin")},
    )
    | {"not": {"required": ["from"], "anyOf": [{"required": ["from_seq"]}, {"required": ["tail"]}]}},
    "Known": {
        "description": "What the client knows of a topic: its head, or null where there is none.",
        "anyOf": [
            u64(),
            {"type": "null"},
            question(("seq",), seq=u64(), incarnation=nullable(INCARNATION)),
        ],
    },
    "StreamStart": answer(from_seq=u64(), head_seq=u64(), earliest_seq=u64()),
    "Leases": question(
        ("node", "seqs"),
        node=NODE | {"minLength": 1},
        seqs=listing(u64(), maxItems=Setting("max_claim")),
        lease_ids=listing(text(), maxItems=Setting("max_claim"), description='none, or one a seq; "" does not fence'),
    ),
    "Error": answer(
        error=answer(
            code=one_of(*STATUS), message=text(minLength=1), detail_Q={"type": "object", "additionalProperties": True}
        )
    ),
}

LIMIT = u32("most records; 0 is the default", default=0)
