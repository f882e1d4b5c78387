"""Parameters, bodies and answers of each route, by method and pattern.

A route without an entry here fails a test. The keys omit the names of path parameters, which the
pattern has (`/v0/topics/:/diff`).
"""

from __future__ import annotations

from typing import NamedTuple

from topics.common.topic_names import NAME_MAX
from topics.http.openapi.components import INCARNATION, LIMIT, NODE, TOPIC_NAME
from topics.http.openapi.shapes import (
    Schema,
    Setting,
    answer,
    boolean,
    listing,
    nullable,
    one_of,
    performance,
    question,
    ref,
    text,
    titled,
    u32,
    u64,
)

JSON, SSE, PLAIN, HTML = "application/json", "text/event-stream", "text/plain", "text/html"
OCTETS = "application/octet-stream"


class ApiOperation(NamedTuple):
    """The description of one route.

    success: status to schema of the JSON body; None for a body that is not JSON. errors: statuses
    of this route, beside those of every request. query: name to schema. body: the request's; None
    without one.
    """

    summary: str
    section: str
    """The section of the wire contract."""
    success: dict[int, Schema | None]
    errors: tuple[int, ...] = ()
    query: dict[str, Schema] = {}  # noqa: RUF012 - never changed
    headers: dict[str, Schema] = {}  # noqa: RUF012 - never changed
    body: Schema | None = None
    media: tuple[str, ...] = (JSON,)
    """Content types of a success; `success` describes the first one."""


_TOUCH = "counts as a look at the topic"
_WITH_ATTEMPTS = "show how earlier leases of each job ended"
_SHOWN = {"incarnation": boolean(False, "show it in the answer")}
_PAGE = {
    "page_size": u64("clamped to 1..1000", default=100),
    "cursor": text("`next_cursor` of the page before", pattern="^[A-Za-z0-9+/_-]*={0,2}$"),
    "prefix": text("names that begin with it"),
}
_LEASE = u64("clamped to 100..86400000")
_FILTER = {
    "node": ref("Nodes"),
    "only_node": ref("OnlyNodes"),
    "match": {"anyOf": [ref("Predicate"), {"type": "null"}], "description": "Records whose tags match."},
}
"""Which records a reader asks for."""

_TOPIC_ROW = titled(
    "TopicRow",
    answer(
        topic=text(),
        head_seq=u64(),
        earliest_seq=u64(),
        count=u64(),
        bytes=u64(),
        durable=boolean(),
        effective_priority={"type": "integer", "minimum": -1000, "maximum": 1000},
        incarnation_Q=INCARNATION,
    ),
)
_ATTEMPTS = listing(
    titled(
        "Attempt",
        answer(
            delivery=u64(minimum=1),
            node=text(),
            ended=one_of("nacked", "expired", "released"),
            at=u64(),
            reason_Q=text(),
        ),
    )
)
_STATE = answer(
    topic=text(),
    type=one_of("log", "queue"),
    head_seq=u64(),
    earliest_seq=u64(),
    next_seq=u64(),
    count=u64(),
    bytes=u64(),
    config=ref("ConfigInForce"),
    effective_priority={"type": "integer", "minimum": -1000, "maximum": 1000},
    last_write_ts=nullable(u64()),
    last_read_ts=nullable(u64()),
    queue_Q=titled(
        "QueueState",
        answer(
            ready=u64(),
            in_flight=u64(),
            dead_lettered=u64(),
            delayed_Q=u64(),
            failed_Q=listing(titled("FailedJob", answer(S_seq=u64(), deliveries=u64(minimum=1), attempts=_ATTEMPTS))),
        ),
    ),
    incarnation_Q=INCARNATION,
    performance=performance(),
)
_PUT = answer(topic=text(), created=boolean(), config=ref("ConfigInForce"), performance=performance())
_PATCHED = answer(topic=text(), before=ref("ConfigInForce"), after=ref("ConfigInForce"), performance=performance())
_WRITTEN = titled(
    "Written",
    answer(
        topic=text(),
        first_seq=u64(),
        last_seq=u64(),
        seqs_Q=listing(u64()),
        head_seq=u64(),
        count=u64(),
        created=boolean(),
        deduped=boolean(),
        performance=performance(optional=("wal_append_ms", "fsync_ms", "throttle_wait_ms")),
    ),
)
_STAGED = titled(
    "Staged",
    answer(
        topic=text(),
        staged=boolean(),
        piece=u32(),
        count=u64(),
        created=boolean(),
        deduped=boolean(),
        performance=performance(optional=("wal_append_ms", "fsync_ms", "throttle_wait_ms")),
    ),
)
_WRITTEN_OR_STAGED = {"anyOf": [_WRITTEN, _STAGED]}
_JOB = titled(
    "Job",
    answer(
        S_seq=u64(),
        lease_id=text(pattern="^lease_[0-9a-f]{1,16}$"),
        deadline=u64(),
        S_ts=u64(),
        S_tag_Q=text(),
        S_delay_ms_Q=u64(),
        S_ttl_ms_Q=u64(),
        deliveries=u64(minimum=1),
        data={},
        meta_Q={},
        attempts_Q=_ATTEMPTS,
    ),
)
_READER_SET = {
    "delivery": one_of("at-least-once", "at-most-once", default="at-least-once"),
    "holds": boolean(False, "no cap and no expiry takes what it has not committed"),
    "trims": boolean(False, "what all such readers have committed is deleted"),
}
_READER_SHOWN = _READER_SET | {
    "position": u64("handed out up to here"),
    "committed": u64(),
    "lag_records": u64("live records that are not committed"),
    "lag_ms": u64("age of the oldest of them"),
    "pages": u64("pages that are out"),
}
_READER_OF = nullable(text("of the topic that is meant; empty: not known"))
_READER_MADE = answer(
    topic=text(),
    reader=text(),
    created=boolean(),
    **_READER_SHOWN,
    incarnation_Q=INCARNATION,
    performance=performance(),
)
_READER_MOVED = answer(topic=text(), reader=text(), committed=u64(), performance=performance())
_ROUTER = {
    "source": TOPIC_NAME,
    "dest": TOPIC_NAME,
    "preserve_node": boolean(True),
    "preserve_tag": boolean(True),
    "allow_cycle": boolean(False),
    "guarantee": one_of("at_least_once", "exactly_once", default="at_least_once"),
}
_ROUTER_SHOWN = _ROUTER | {"filter": nullable(ref("PredicateInForce"))}
_ROUTER_MADE = answer(router=text(), created=boolean(), **_ROUTER_SHOWN, performance=performance())
_HEALTH = ApiOperation(
    "The process answers",
    "12.1",
    {200: answer(status=one_of("ok"), version=text(), uptime_ms=u64())},
)
_READY = ApiOperation(
    "Whether traffic should come here",
    "12.2",
    {200: answer(status=one_of("ready"), wal_replay_complete=boolean(), topics=u64())},
)
_SLOTS = {"type": "integer", "minimum": 0}
_WAL = (
    "fsyncs", "frames", "batches", "bytes_written", "rotations", "queue_depth", "queue_depth_peak",
    "submit_full_total", "fsync_count", "fsync_micros_total",
)  # fmt: skip
_GAUGES = (
    "topics", "topics_ephemeral", "topics_memory", "topics_disk", "topics_fsync", "routers", "records_live",
    "bytes_live", "queue_topics", "queue_leases_in_flight", "sse_connections", "watch_sessions", "uptime_ms",
)  # fmt: skip
_METRICS = {
    "type": "object",
    "properties": dict.fromkeys(_GAUGES, _SLOTS)
    | {"ready": boolean(), "replay_progress": {"type": "number", "minimum": 0, "maximum": 1}}
    | {
        "wal": {
            "type": "object",
            "properties": {name: {"type": "number", "minimum": 0} for name in _WAL} | {"read_only": boolean()},
            "required": [*_WAL, "read_only"],
        }
    },
    "required": [*_GAUGES, "ready", "replay_progress", "wal"],
}


_BACKUP = answer(
    backup=answer(
        number=u64("counts them since the server's start; 0: there was none"),
        state=one_of("none", "running", "done", "failed"),
        files_Q=u64("that are there by now"),
        copied_bytes_Q=u64("bytes that were copied for it"),
        path_Q=text("its directory"),
        taken_ms_Q=u64("its instant, Unix ms"),
        bytes_Q=u64("bytes of all its files"),
        linked_files_Q=u64("files that are those of the backup before"),
        error_Q=text("why it failed"),
    ),
    performance=performance(),
)

_ARCHIVE = answer(
    archive=answer(
        timeline=text('the name of its directory; "" until there is one'),
        now_ms=u64("Unix ms by the clock of the server"),
        upto_ms=u64("Unix ms: all that was acknowledged until then is archived"),
        shards={
            "type": "object",
            "description": "The end of the part of each shard that is archived.",
            "additionalProperties": titled(
                "ArchivedEnd",
                answer(
                    file=u64("number of the last file; those before it are whole"),
                    bytes=u64("bytes of it that are archived"),
                    batch={"type": "integer", "minimum": -1, "description": "number of the last batch; -1: a hole"},
                ),
            ),
        },
        holes=listing(answer(from_ms=u64(), to_ms=nullable(u64("null while there is no base after it")))),
        bases=listing(text("name of a base, oldest first")),
        of_cores_Q=titled(
            "ArchiveOfCores",
            answer(
                joint=text("the name of the directory that all cores have together"),
                set_back=listing(listing(u64("Unix ms: the first and the last of the times that came twice"))),
            ),
        ),
    ),
    performance=performance(),
)


def _given(key: str) -> Schema:
    """Return the schema of an object in which a key is present, and not null."""
    return {"required": [key], "properties": {key: {"not": {"type": "null"}}}}


_PAGE_SENT: dict[int, Schema | None] = {200: None, 304: None}
OPERATIONS: dict[str, ApiOperation] = {
    "PUT /v0/topics/:": ApiOperation(
        "Create a topic, or replace its configuration", "7.1", {200: _PUT, 201: _PUT}, (409,), body=ref("Config")
    ),
    "PATCH /v0/topics/:": ApiOperation(
        "Change some fields of a topic's configuration", "7.17", {200: _PATCHED}, (404, 409), body=ref("ConfigPatch")
    ),
    "GET /v0/topics/:": ApiOperation(
        "State of a topic",
        "7.2",
        {200: _STATE},
        (404,),
        {"touch": boolean(True, _TOUCH), "include_attempts": boolean(False, _WITH_ATTEMPTS)} | _SHOWN,
    ),
    "GET /v0/topics": ApiOperation(
        "Topics by name",
        "7.3",
        {200: answer(topics=listing(_TOPIC_ROW), next_cursor_Q=text(), performance=performance())},
        query=_PAGE | {"touch": boolean(False, _TOUCH)} | _SHOWN,
    ),
    "DELETE /v0/topics/:": ApiOperation(
        "Delete a topic with all it holds",
        "7.4",
        {200: answer(topic=text(), deleted=boolean(), routers_removed=listing(text()), performance=performance())},
        (409,),
        {"if_empty": boolean(False, "refuse when it holds records")},
    ),
    "POST /v0/topics/:": ApiOperation(
        "Write records",
        "7.5",
        {200: _WRITTEN_OR_STAGED, 201: _WRITTEN_OR_STAGED},
        (404, 409, 422),
        {"return_seqs": boolean(True)},
        {
            "Idempotency-Key": text(
                "used when the body has no `idempotency_key`", maxLength=Setting("max_idempotency_key_bytes")
            )
        },
        question(
            ("records",),
            records=listing(ref("NewRecord"), minItems=1, maxItems=Setting("max_batch_records")),
            node=nullable(NODE | {"description": "for records without their own"}),
            idempotency_key=nullable(
                text(
                    "a write with a key seen lately appends nothing and answers as the first",
                    maxLength=Setting("max_idempotency_key_bytes"),
                )
            ),
            create=nullable(boolean()),
            config={"anyOf": [ref("Config"), {"type": "null"}]},
            disable_backpressure=boolean(False),
            incarnation=nullable(INCARNATION | {"description": "refuse the write when the topic has another one"}),
            producer={"anyOf": [ref("Part"), {"type": "null"}]},
        )
        | {"not": {"allOf": [_given("producer"), _given("idempotency_key")]}},
    ),
    "POST /v0/topics/:/diff": ApiOperation(
        "Read records above a cursor, or wait for some",
        "7.6",
        {
            200: answer(
                topic=text(),
                records=listing(ref("Record"), maxItems=1000),
                next_from_seq=u64("the next cursor"),
                head_seq=u64(),
                earliest_seq=u64(),
                caught_up=boolean(),
                tombstone=nullable(ref("Tombstone")),
                lag=u64(),
                incarnation_Q=text("of the topic, if the request has an `incarnation`"),
                performance=performance("records_scanned", optional=("cold_segments_read", "throttle_wait_ms")),
            )
        },
        (404,),
        body=question(
            (),
            from_seq=u64("the last seq seen", default=0),
            incarnation=nullable(text("the one that the cursor is of; empty: not known")),
            **{"from": ref("Begin")},
            limit=LIMIT,
            **_FILTER,
            include_tags=boolean(False),
            include_meta=boolean(True),
            wait_ms=u32("how long to wait for something; at most 30000", default=0),
            max_batch_bytes=u64("0: 1 MiB; at most 8 MiB", default=0),
        )
        | {"not": {"required": ["from", "from_seq"]}},
    ),
    "POST /v0/topics/:/delete": ApiOperation(
        "Delete records below a seq, with matching tags, or both",
        "7.7",
        {
            200: answer(
                topic=text(),
                deleted=u64(),
                earliest_seq=u64(),
                head_seq=u64(),
                count=u64(),
                bytes=u64(),
                performance=performance(),
            )
        },
        (404,),
        body=question((), before_seq=nullable(u64()), match={"anyOf": [ref("Predicate"), {"type": "null"}]})
        | {"anyOf": [_given("before_seq"), _given("match")]},
    ),
    "POST /v0/wait": ApiOperation(
        "Heads of topics, as soon as one of them has news",
        "7.8",
        {
            200: answer(
                topics={
                    "type": "object",
                    "additionalProperties": nullable(
                        titled("TopicHead", answer(head_seq=u64(), incarnation=INCARNATION))
                    ),
                },
                left_out_Q=nullable(text("only with prefixes: the first topic for which there was no place")),
                performance=performance(),
            )
        },
        body=question(
            topics={
                "type": "object",
                "additionalProperties": ref("Known"),
                "propertyNames": {"maxLength": NAME_MAX},
                "description": "at least one without prefixes",
                "maxProperties": Setting("max_wait_topics"),
            },
            prefixes=listing(
                text(maxLength=NAME_MAX),
                description="beginnings of names: topics that are there and not in topics are news, too",
                maxItems=Setting("max_prefixes"),
            ),
            wait_ms=u32("how long to wait for news; at most 30000", default=0),
        ),
    ),
    "POST /v0/checkpoint": ApiOperation(
        "Show all that was acknowledged to those who read the files",
        "7.9",
        {
            200: answer(
                snapshot=u64("number of the newest snapshot"),
                done=boolean(about="it shows all that was acknowledged before the request"),
                checkpoint_Q=u64("only when it is not done: for the next request"),
                performance=performance(),
            )
        },
        body=question(
            (),
            wait_ms=u32("how long to wait for the end; at most 30000", default=30_000),
            checkpoint=u64("of an earlier answer that was not done: wait for the same checkpoint", default=0),
        ),
    ),
    "POST /v0/backups": ApiOperation(
        "Begin a backup",
        "7.18",
        {200: _BACKUP},
        (409,),
        body=question(
            (), to=nullable(text("where it is made: the directory for backups, or an absolute path below it"))
        ),
    ),
    "GET /v0/backups": ApiOperation("Get how far the newest backup is", "7.19", {200: _BACKUP}),
    "GET /v0/archive": ApiOperation(
        "Get how far the archive is",
        "7.20",
        {200: _ARCHIVE},
        query={
            "mirror": text("name of the mirror that asks, for `topics_archive_mirror_lag_ms`; at most 200 characters"),
            "upto_ms": u64("Unix ms: all that was acknowledged until then is on its disk", default=0),
            "core": u32("the number of one of several cores, which a server of them needs"),
        },
    ),
    "GET /v0/archive/file": ApiOperation(
        "Get a piece of a file of the archive",
        "7.21",
        {200: None},
        (404,),
        query={
            "timeline": text("as `GET /v0/archive` has it"),
            "path": text("of a file, below the timeline"),
            "offset": u64("of the first byte", default=0),
            "bytes": u64("most that are wanted; clamped to TOPICS_ARCHIVE_PIECE_BYTES"),
            "core": u32("as of `GET /v0/archive`"),
        },
        media=(OCTETS,),
    ),
    "POST /v0/topics/:/claim": ApiOperation(
        "Lease jobs of a queue",
        "8.2",
        {200: answer(topic=text(), claimed=listing(_JOB), count=u64(), ready=u64(), performance=performance())},
        (404, 409),
        body=question(
            ("node",),
            node=NODE | {"minLength": 1},
            max=u32(default=0),
            lease_ms=nullable(_LEASE),
            wait_ms=u32("how long to wait for the first job; at most 30000", default=0),
            include_attempts=boolean(False, _WITH_ATTEMPTS),
        ),
    ),
    "POST /v0/topics/:/ack": ApiOperation(
        "Complete leased jobs",
        "8.3",
        {
            200: answer(
                topic=text(),
                acked=u64(),
                skipped=listing(u64()),
                ready=u64(),
                in_flight=u64(),
                performance=performance(optional=("fsync_ms",)),
            )
        },
        (404, 409),
        body=ref("Leases"),
    ),
    "POST /v0/topics/:/nack": ApiOperation(
        "Give leased jobs back",
        "8.4",
        {
            200: answer(
                topic=text(),
                nacked=u64(),
                skipped=listing(u64()),
                ready=u64(),
                in_flight=u64(),
                performance=performance(),
            )
        },
        (404, 409),
        body={
            "allOf": [
                ref("Leases"),
                question(
                    (),
                    delay_ms=u64("clamped to 86400000", default=0),
                    reason=nullable(text("why, kept with the attempts", maxLength=Setting("max_reason_bytes"))),
                ),
            ]
        },
    ),
    "POST /v0/topics/:/extend": ApiOperation(
        "Hold leased jobs for longer, or shorter",
        "8.5",
        {
            200: answer(
                topic=text(),
                extended=u64(),
                skipped=listing(u64()),
                deadlines={"type": "object", "additionalProperties": u64()},
                performance=performance(),
            )
        },
        (404, 409),
        body={"allOf": [ref("Leases"), question(("lease_ms",), lease_ms=_LEASE)]},
    ),
    "GET /v0/topics/:/dead": ApiOperation(
        "Dead letters of a queue",
        "8.7",
        {
            200: answer(
                topic=text(),
                dead_letter=nullable(text()),
                dead=listing(ref("Record"), maxItems=1000),
                next_from_seq=u64(),
                head_seq=u64(),
                caught_up=boolean(),
                performance=performance(),
            )
        },
        (404, 409),
        {
            "from_seq": u64("the cursor, in the dead-letter topic: those above it", default=0),
            "limit": u64("0 is 256; at most 1000", default=0),
        },
    ),
    "POST /v0/topics/:/redrive": ApiOperation(
        "Make jobs of dead letters again",
        "8.8",
        {
            200: answer(
                topic=text(),
                dead_letter=nullable(text()),
                redriven=u64(),
                skipped=listing(u64()),
                next_from_seq_Q=u64(),
                head_seq_Q=u64(),
                caught_up_Q=boolean(),
                performance=performance(),
            )
        },
        (404, 409, 422),
        body=question(
            (),
            "either `seqs`, or `all: true` with `from_seq` and `max`",
            seqs=listing(u64(), maxItems=Setting("max_claim")),
            all=boolean(False, "all above `from_seq`, up to `max`"),
            from_seq=u64("the cursor, in the dead-letter topic", default=0),
            max=u32("0 is 1000; at most 1000", default=0),
        ),
    ),
    "GET /v0/topics/:/work": ApiOperation(
        "Jobs pushed as they come (server-sent events)",
        "8.6",
        {200: None},
        (404, 406, 409),
        {
            "node": NODE | {"minLength": 1},
            "max": u64("leases at a time; clamped to 1..1000", default=1),
            "lease_ms": _LEASE,
            "include_attempts": boolean(False, _WITH_ATTEMPTS),
            "token": text("the key, for clients that cannot send headers"),
        },
        media=(SSE,),
    ),
    "PUT /v0/topics/:/readers/:": ApiOperation(
        "Create a named reader, or change its settings",
        "7.10",
        {200: _READER_MADE, 201: _READER_MADE},
        (404,),
        body=question(
            (),
            **_READER_SET,
            from_seq=u64("where a new reader begins", default=0),
            **{"from": ref("Begin")},
            incarnation=_READER_OF,
        )
        | {"not": {"required": ["from", "from_seq"]}},
    ),
    "GET /v0/topics/:/readers/:": ApiOperation(
        "A named reader and how far it is",
        "7.11",
        {200: answer(topic=text(), reader=text(), **_READER_SHOWN, performance=performance())},
        (404,),
        {"incarnation": text("of the topic that is meant")},
    ),
    "GET /v0/topics/:/readers": ApiOperation(
        "The named readers of a topic",
        "7.12",
        {
            200: answer(
                topic=text(),
                readers=listing(titled("ReaderRow", answer(reader=text(), **_READER_SHOWN))),
                performance=performance(),
            )
        },
        (404,),
    ),
    "DELETE /v0/topics/:/readers/:": ApiOperation(
        "Delete a named reader",
        "7.13",
        {200: answer(topic=text(), reader=text(), deleted=boolean(), performance=performance())},
        (404,),
    ),
    "POST /v0/topics/:/readers/:/read": ApiOperation(
        "The next page of a named reader",
        "7.14",
        {
            200: answer(
                topic=text(),
                reader=text(),
                token_Q=text("for the commit", pattern="^page_[0-9a-f]{1,16}$"),
                deadline_Q=u64("the end of the lease"),
                records=listing(ref("Record"), maxItems=1000),
                next_from_seq=u64(),
                head_seq=u64(),
                earliest_seq=u64(),
                caught_up=boolean(),
                tombstone=nullable(ref("Tombstone")),
                lag=u64(),
                performance=performance("records_scanned", optional=("cold_segments_read", "throttle_wait_ms")),
            )
        },
        (404,),
        body=question(
            (),
            limit=LIMIT,
            max_batch_bytes=u64("0: 1 MiB; at most 8 MiB", default=0),
            wait_ms=u32("how long to wait for something; at most 30000", default=0),
            lease_ms=_LEASE | {"default": 30_000},
            peek=boolean(False, "show the page, and move nothing"),
            stop_at_gap=boolean(False, "show a page with a tombstone, and move nothing"),
            done=nullable(text("the token of a page that is done")),
            commit_every=u64("commit once so many records are done", default=1),
            incarnation=_READER_OF,
        ),
    ),
    "POST /v0/topics/:/readers/:/commit": ApiOperation(
        "Commit a page of a named reader",
        "7.15",
        {200: _READER_MOVED},
        (404, 409),
        body=question(
            ("token",),
            token=nullable(text("of the page; null: commit what reads have said is done")),
            seq=nullable(u64("up to this record of the page")),
            release=boolean(False, "the rest of the page is handed out again at once; without `seq` all of it"),
            incarnation=_READER_OF,
        ),
    ),
    "POST /v0/topics/:/readers/:/seek": ApiOperation(
        "Move a named reader",
        "7.16",
        {200: _READER_MOVED},
        (404,),
        body=question(("seq",), seq=u64("at most the head"), incarnation=_READER_OF),
    ),
    "PUT /v0/routers/:": ApiOperation(
        "Create or change a router",
        "9.2",
        {200: _ROUTER_MADE, 201: _ROUTER_MADE},
        (404, 409),
        body=question(
            ("source", "dest"),
            **_ROUTER,
            create_dest=boolean(True),
            filter={"anyOf": [ref("Predicate"), {"type": "null"}]},
        ),
    ),
    "GET /v0/routers/:": ApiOperation(
        "A router and how far it is",
        "9.3",
        {200: answer(router=text(), **_ROUTER_SHOWN, forwarded_total=u64(), performance=performance())},
        (404,),
    ),
    "GET /v0/routers": ApiOperation(
        "Routers by name",
        "9.4",
        {
            200: answer(
                routers=listing(
                    titled(
                        "RouterRow",
                        answer(
                            router=text(),
                            source=text(),
                            dest=text(),
                            guarantee=_ROUTER["guarantee"],
                            forwarded_total=u64(),
                        ),
                    )
                ),
                next_cursor_Q=text(),
                performance=performance(),
            )
        },
        query=_PAGE | {"source": text(), "dest": text()},
    ),
    "DELETE /v0/routers/:": ApiOperation(
        "Stop a router",
        "9.5",
        {200: answer(router=text(), deleted=boolean(), performance=performance())},
    ),
    "POST /v0/watch": ApiOperation(
        "Open a session over topics, to be streamed",
        "10.2",
        {
            200: answer(
                wid=text(pattern="^wid_[A-Za-z0-9_-]{22}$"),
                stream_url=text(),
                session_ttl_ms=u64(),
                topics={"type": "object", "additionalProperties": ref("StreamStart")},
                performance=performance(),
            )
        },
        (404,),
        {"lenient": boolean(False, "leave out topics that are absent")},
        body=question(
            topics={
                "type": "object",
                "additionalProperties": ref("ReadFrom"),
                "description": "at least one without prefixes",
                "maxProperties": Setting("max_watch_topics"),
            },
            prefixes={
                "type": "object",
                "additionalProperties": ref("ReadFrom"),
                "description": "by beginning of names: topics that are there, and those made later",
                "maxProperties": Setting("max_prefixes"),
            },
            **_FILTER,
            limit=u32(default=256),
            max_batch_bytes=u64(default=262_144),
            heartbeat_ms=u64("clamped to 1000..60000", default=15_000),
            include_meta=boolean(True),
            include_tags=boolean(False),
            include_data=boolean(True),
            consistency=one_of("eventual", "strong", default="eventual"),
        ),
    ),
    "GET /v0/watch/:": ApiOperation(
        "The stream of a session (server-sent events)",
        "10.3",
        {200: None},
        (401, 404, 406),
        {"token": text("the key, for clients that cannot send headers")},
        {"Last-Event-ID": text("the `id` of the last frame received: rewinds, never advances")},
        media=(SSE,),
    ),
    "GET /v0/ws": ApiOperation("Subscribe and publish over a WebSocket", "11", {101: None}),
    "GET /v0/health": _HEALTH,
    "GET /healthz": _HEALTH,
    "GET /v0/ready": _READY,
    "GET /readyz": _READY,
    "GET /v0/metrics": ApiOperation(
        "Numbers, for Prometheus or, with `Accept: application/json`, as JSON",
        "12.3",
        {200: _METRICS},
        media=(JSON, PLAIN),
    ),
    "GET /openapi.json": ApiOperation("This description", "", {200: {"type": "object"}}),
    "GET /docs": ApiOperation("This description as a page", "12.4", _PAGE_SENT, media=(HTML,)),
    "GET /docs/contract/:": ApiOperation("A section of the wire contract", "12.4", _PAGE_SENT, (404,), media=(HTML,)),
    "GET /docs/guides/:": ApiOperation("A guide", "12.4", _PAGE_SENT, (404,), media=(HTML,)),
    "GET /": ApiOperation("A page that leads to the others", "12.4", _PAGE_SENT, media=(HTML,)),
    "GET /ui": ApiOperation("A page that shows what the server holds", "12.4", _PAGE_SENT, media=(HTML,)),
}
