"""The calls of a client as requests: arguments checked, as the library checks them.

Raises: UsageError or RequestError for bad arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from topics.client import parsing
from topics.client.attempts import Repeat, ServerCall
from topics.client.exchange import ServerRequest
from topics.client.parsing import DeadLetterPage, HandedOut, Redriven
from topics.common.settings import TopicSettings
from topics.common.topic_names import NAME_MAX, is_topic_name
from topics.common.values import arguments
from topics.common.values.answers import (
    AckResult,
    AppendResult,
    DeleteResult,
    DeleteTopicResult,
    ExtendResult,
    News,
    PatchResult,
    PutResult,
    ReaderState,
    RepeatedAckResult,
    RouterDeleted,
    RouterPut,
    RouterState,
    TopicHead,
    TopicState,
)
from topics.common.values.backup_result import BackupProgress
from topics.common.values.begin import Begin, From
from topics.common.values.configs import Predicate, RouterConfig, check_setting_names
from topics.common.values.delivered import GapError, Job, Jobs, Page, Record
from topics.common.values.held_jobs import held_jobs
from topics.common.values.reader_config import Opening
from topics.common.values.record_json import (
    bytes_of,
    fields_of,
    first_unencodable,
    not_json,
    refuse_non_finite,
    refuse_other_names,
)
from topics.common.values.seen import KnownTopic, Seen, TailPlaces, known_topics, places, prefix_places
from topics.common.values.which import WhichRecords
from topics.common.values.written import BYTES_TYPES, NewRecord, Producer, Values
from topics.errors import RequestError, UsageError

T = TypeVar("T")
MAX_LIMIT = 1000
"""Records of a page at most, and `limit` to ask for as many (5.2)."""
MAX_WAIT_MS = 30_000
"""Longest wait of one request (5.2)."""
_RELEASE_S = 2.0
_MAX_BATCH_BYTES = 8 << 20
_MAX_LAST = 10_000
_MAX_WAIT_TOPICS = 256
_MAX_PREFIXES = 64
_PRODUCER_MAX = 2**63 - 1
_PART_MAX = 65_535

_encode = msgspec.json.encode


def _segment(name: str, value: object) -> str:
    text = arguments.encoded(name, value)
    if not 1 <= len(text) <= NAME_MAX:
        message = f"{name} {arguments.shown(value)} is not usable: use 1 to {NAME_MAX} characters"
        raise RequestError("invalid_request", message)
    return quote(text, safe="")


def _topic_path(topic: object, name: str = "topic") -> str:
    return f"/v0/topics/{_segment(name, topic)}"


def _query(**values: object) -> str:
    given = {name: str(value).lower() if isinstance(value, bool) else value for name, value in values.items() if value}
    return "?" + urlencode(given) if given else ""


# --- topics ----------------------------------------------------------------------------------------------------------
def state(topic: str, *, touch: bool, include_attempts: bool = False) -> ServerCall[TopicState]:
    arguments.flag("touch", touch)
    arguments.flag("include_attempts", include_attempts)
    path = f"{_topic_path(topic)}?incarnation=true{'' if touch else '&touch=false'}"
    if include_attempts:
        path += "&include_attempts=true"
    return ServerCall(ServerRequest("GET", path), parsing.topic_state)


def topic_names(prefix: str, cursor: str) -> ServerCall[tuple[list[str], str | None]]:
    arguments.encoded("prefix", prefix)
    path = "/v0/topics" + _query(prefix=prefix, page_size=1000, cursor=cursor)
    return ServerCall(ServerRequest("GET", path), lambda body: parsing.names_of("topics", "topic", body))


def _settings_body(settings: TopicSettings) -> bytes:
    check_setting_names(settings)
    try:
        return msgspec.json.encode(settings, enc_hook=arguments.plain_setting)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UsageError(str(error)) from None


def put_topic(topic: str, settings: TopicSettings) -> ServerCall[PutResult]:
    request = ServerRequest("PUT", _topic_path(topic), _settings_body(settings))
    return ServerCall(request, parsing.put_result, changes=True, is_misuse=is_topic_name(topic))


def patch_topic(topic: str, changes: TopicSettings) -> ServerCall[PatchResult]:
    request = ServerRequest("PATCH", _topic_path(topic), _settings_body(changes))
    return ServerCall(request, parsing.patch_result, changes=True, is_misuse=is_topic_name(topic))


def delete_topic(topic: str, *, if_empty: bool) -> ServerCall[DeleteTopicResult]:
    arguments.flag("if_empty", if_empty)
    request = ServerRequest("DELETE", _topic_path(topic) + _query(if_empty=if_empty))
    return ServerCall(request, parsing.delete_topic_result, Repeat.NEVER, changes=True)


def delete(topic: str, before_seq: int | None, match: str | Predicate | None) -> ServerCall[DeleteResult]:
    before_seq = arguments.optional_count("before_seq", before_seq)
    predicate = arguments.predicate(match)
    if before_seq is None and predicate is None:
        raise UsageError("delete needs before_seq, match, or both")
    body: dict[str, Any] = {}
    if before_seq is not None:
        body["before_seq"] = before_seq
    if predicate is not None:
        body["match"] = msgspec.Raw(predicate.as_json())
    request = ServerRequest("POST", f"{_topic_path(topic)}/delete", _encode(body))
    # Without a bound, the same again takes records that were written since.
    repeat = Repeat.NEVER if before_seq is None else Repeat.ALWAYS
    return ServerCall(request, parsing.delete_result, repeat, changes=True)


def wait(topics: Mapping[str, Seen], wait_ms: int) -> ServerCall[dict[str, TopicHead | None]]:
    wait_ms = arguments.count("wait_ms", wait_ms)
    return _wait(known_topics(topics, _MAX_WAIT_TOPICS), wait_ms, (), lambda body: parsing.news_of(body).heads)


def _wait(
    topics: Mapping[str, KnownTopic], wait_ms: int, prefixes: Iterable[str], parse: Callable[[bytes], T]
) -> ServerCall[T]:
    known = {
        name: None if seen.seq is None else {"seq": seen.seq, "incarnation": seen.incarnation}
        for name, seen in topics.items()
    }
    wait_ms = min(wait_ms, MAX_WAIT_MS)
    body: dict[str, Any] = {"topics": known, "wait_ms": wait_ms}
    if prefixes:
        body["prefixes"] = list(prefixes)
    return ServerCall(ServerRequest("POST", "/v0/wait", _encode(body)), parse, wait_s=wait_ms / 1000)


# --- writing ---------------------------------------------------------------------------------------------------------
def append(
    topic: str,
    records: Values,
    *,
    key: str | None,
    node: str | None,
    create: bool | None,
    incarnation: str | None,
    producer: Producer | None,
    timeout: float | None,
    new_key: Callable[[], str],
) -> ServerCall[AppendResult]:
    """Return the call that appends records. new_key: a key that no other write has."""
    body: dict[str, Any] = {"records": _records(arguments.values(records))}
    if node is not None:
        body["node"] = arguments.utf8_text("node", node)
    if create is not None:
        arguments.flag("create", create)
        body["create"] = create
    return _appending(topic, body, key, incarnation, producer, timeout, new_key)


def append_texts(
    topic: str,
    texts: Sequence[bytes],
    *,
    key: str | None,
    incarnation: str | None,
    producer: Producer | None,
    timeout: float | None,
    new_key: Callable[[], str],
) -> ServerCall[AppendResult]:
    """Return the call that appends JSON texts. The server validates them, one by one."""
    arguments.texts(texts)
    if not all(isinstance(text, BYTES_TYPES) for text in texts):
        raise arguments.not_bytes(texts)
    for at, text in enumerate(texts):
        _check_text(text, f"texts[{at}]")
    body: dict[str, Any] = {"records": [{"data": msgspec.Raw(bytes(text))} for text in texts]}
    return _appending(topic, body, key, incarnation, producer, timeout, new_key)


def append_encoded(
    topic: str, payloads: Sequence[tuple[bytes, bool]], new_key: Callable[[], str]
) -> ServerCall[AppendResult]:
    """Return the call that appends payloads: bytes, and whether they are JSON."""
    rows = [{"data": msgspec.Raw(data)} if is_json else {"data_base64": data} for data, is_json in payloads]
    return _appending(topic, {"records": rows}, None, None, None, None, new_key)


def _check_text(text: bytes, name: str) -> None:
    """Check that a text is one JSON value, which else could add members to its record."""
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except msgspec.DecodeError as error:
        raise RequestError("invalid_request", f"{name} is not one JSON value: {error}") from None


def _appending(  # noqa: PLR0917 - the options of an append
    topic: str,
    body: dict[str, Any],
    key: str | None,
    incarnation: str | None,
    producer: Producer | None,
    timeout: float | None,
    new_key: Callable[[], str],
) -> ServerCall[AppendResult]:
    arguments.optional_incarnation(incarnation)
    arguments.optional_milliseconds("timeout", timeout)
    if incarnation is not None:
        body["incarnation"] = incarnation
    if producer is not None:
        if key is not None:
            raise UsageError("key and producer are given: leave out key, a part is known by its producer")
        body["producer"] = _producer(producer)
    else:
        body["idempotency_key"] = new_key() if key is None else arguments.utf8_text("key", key)
    try:
        text = _encode(body)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise not_json("the records", error) from None
    path = _topic_path(topic)
    return ServerCall(
        ServerRequest("POST", f"{path}?return_seqs=false", text),
        parsing.append_result,
        Repeat.ALWAYS if producer is not None else Repeat.BY_KEY,
        changes=True,
        window=ServerCall(ServerRequest("GET", f"{path}?touch=false"), parsing.window_ms),
        patience=timeout,
    )


def _check_raws(records: Sequence[NewRecord]) -> None:
    """Check that each raw text is one JSON value; otherwise it could add fields to its record."""
    for at, record in enumerate(records):
        for name, value in (("data", record.data), ("meta", record.meta)):
            if isinstance(value, msgspec.Raw):
                _check_text(bytes(value), f"records[{at}].{name}")


def _records(values: Sequence[Any]) -> list[dict[str, Any]]:
    """Return records as the wire has them. Raises: RequestError, JSON cannot hold a value."""
    made = [value if isinstance(value, NewRecord) else NewRecord(value) for value in values]
    plain = [record._replace(data=None) if isinstance(record.data, BYTES_TYPES) else record for record in made]
    refuse_other_names(made)
    _check_raws(made)
    try:
        body = _encode([fields_of(record) for record in plain])
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise not_json(first_unencodable(plain), error) from None
    if b"null" in body:
        refuse_non_finite(plain)
    rows = []
    for at, (record, row) in enumerate(zip(made, map(fields_of, plain), strict=True)):
        if isinstance(record.data, BYTES_TYPES):
            del row["data"]
            row["data_base64"] = bytes_of(record.data, f"records[{at}]")
        rows.append(row)
    return rows


def _producer(given: object) -> dict[str, Any]:
    if not isinstance(given, Producer):
        raise UsageError(f"producer is {arguments.shown(given)}: use topics.Producer(id, epoch, part)")
    arguments.flag("producer.last", given.last)
    return {
        "id": arguments.utf8_text("producer.id", given.id),
        "epoch": arguments.count("producer.epoch", given.epoch, _PRODUCER_MAX),
        "part": arguments.count("producer.part", given.part, _PART_MAX),
        "piece": arguments.count("producer.piece", given.piece, _PART_MAX),
        "last": given.last,
        "attempt": arguments.utf8_text("producer.attempt", given.attempt),
    }


# --- reading ---------------------------------------------------------------------------------------------------------
def beginning(from_seq: int | None, from_: From | Begin | None, from_time: int | None) -> Begin | None:
    return arguments.beginning(from_seq, from_, from_time, _MAX_LAST)


def _shown_begin(begin: Begin) -> Any:
    return begin.kind if begin.kind in {"first", "now"} else {begin.kind: begin.number}


def page(
    topic: str,
    from_seq: int | None,
    *,
    limit: int,
    max_bytes: int,
    which: WhichRecords,
    wait_ms: int,
    begin: Begin | None,
    is_sized: bool = False,
    incarnation: str | None = None,
) -> ServerCall[Page]:
    """Return the call of one read. is_sized: the page shall have its size.

    incarnation: the one that the cursor is of, or "": the page shall have it.
    """
    first = arguments.cursor(from_seq)
    limit = arguments.count("limit", limit)
    max_bytes = arguments.count("max_bytes", max_bytes)
    wait_ms = arguments.count("wait_ms", wait_ms)
    wait_ms = min(wait_ms, MAX_WAIT_MS)
    body: dict[str, Any] = {"include_tags": True, "wait_ms": wait_ms}
    if begin is None:
        body["from_seq"] = first
    else:
        body["from"] = _shown_begin(begin)
    if incarnation is not None:
        body["incarnation"] = incarnation
    if limit or max_bytes:
        body["limit"] = min(limit or MAX_LIMIT, MAX_LIMIT)
    if max_bytes:
        body["max_batch_bytes"] = min(max_bytes, _MAX_BATCH_BYTES)
    if which.node:
        body["node"] = which.node
    if which.only_node:
        body["only_node"] = which.only_node
    if which.match is not None:
        body["match"] = msgspec.Raw(which.match.as_json())
    return ServerCall(
        ServerRequest("POST", f"{_topic_path(topic)}/diff", _encode(body)),
        lambda answer: parsing.page_of(topic, answer, is_sized=is_sized),
        wait_s=wait_ms / 1000,
    )


def get(topic: str, seq: int) -> ServerCall[Record | None]:
    """Return the call for one record. GapError is raised when its answer is taken apart."""
    seq = arguments.count("seq", seq, least=1)
    body = {"from_seq": seq - 1, "limit": 1, "include_tags": True, "max_batch_bytes": 1}

    def parse(answer: bytes) -> Record | None:
        found = parsing.page_of(topic, answer)
        if found.tombstone is not None:
            if found.tombstone.is_recreated:
                return None
            raise GapError(topic, found.tombstone)
        return found.records[0] if found.records and found.records[0].seq == seq else None

    return ServerCall(ServerRequest("POST", f"{_topic_path(topic)}/diff", _encode(body)), parse)


class ClientReads:
    """The calls of which reads are made, see `RecordCalls`."""

    is_frozen = False
    max_limit = MAX_LIMIT
    max_wait_ms = MAX_WAIT_MS

    beginning = staticmethod(beginning)

    def places(
        self, topics: Mapping[str, int | From | None], prefixes: Mapping[str, int | From | None]
    ) -> tuple[TailPlaces, TailPlaces]:
        by_prefix = prefix_places(prefixes, _MAX_LAST, _MAX_PREFIXES)
        return places(topics, _MAX_LAST, _MAX_WAIT_TOPICS, has_prefixes=bool(prefixes)), by_prefix

    def paging(
        self,
        topic: str,
        from_seq: int | None,
        *,
        limit: int,
        max_bytes: int,
        which: WhichRecords,
        wait_ms: int,
        from_: Begin | None,
        incarnation: str | None,
    ) -> ServerCall[Page]:
        return page(
            topic,
            from_seq,
            limit=limit,
            max_bytes=max_bytes,
            which=which,
            wait_ms=wait_ms,
            begin=from_,
            is_sized=bool(max_bytes),
            incarnation=incarnation,
        )

    def placing(self, topic: str, begin: Begin) -> ServerCall[int]:
        """Return the call for the cursor that a beginning is now."""

        def parse(answer: bytes) -> int:
            found = parsing.page_of(topic, answer)
            return found.records[0].seq - 1 if found.records else found.next_from_seq

        body = {"from": _shown_begin(begin), "limit": 1, "max_batch_bytes": 1}
        return ServerCall(ServerRequest("POST", f"{_topic_path(topic)}/diff", _encode(body)), parse)

    def waiting(self, topics: Mapping[str, Seen], *, wait_ms: int, prefixes: Iterable[str]) -> ServerCall[News]:
        known = known_topics(topics, _MAX_WAIT_TOPICS) if topics else {}
        return _wait(known, wait_ms, prefixes, parsing.news_of)


# --- queues ----------------------------------------------------------------------------------------------------------
def claim(
    queue: str, node: str, limit: int, *, lease_ms: int | None, wait_ms: int, include_attempts: bool
) -> ServerCall[list[Job]]:
    node = arguments.utf8_text("node", node)
    limit = arguments.count("limit", limit)
    lease_ms = arguments.optional_count("lease_ms", lease_ms)
    wait_ms = arguments.count("wait_ms", wait_ms)
    arguments.flag("include_attempts", include_attempts)
    body: dict[str, Any] = {"node": node, "max": min(limit, MAX_LIMIT)}
    if include_attempts:
        body["include_attempts"] = True
    if lease_ms is not None:
        body["lease_ms"] = lease_ms
    if wait_ms:
        body["wait_ms"] = wait_ms = min(wait_ms, MAX_WAIT_MS)
    request = ServerRequest("POST", f"{_topic_path(queue, 'queue')}/claim", _encode(body))
    return ServerCall(request, parsing.jobs_of, wait_s=wait_ms / 1000)


def ack(queue: str, node: str, jobs: Jobs) -> ServerCall[AckResult]:
    body, repeat = _held(queue, node, jobs)
    request = ServerRequest("POST", f"{_topic_path(queue, 'queue')}/ack", _encode(body))
    return _ending(request, repeat, "acked")


def nack(queue: str, node: str, jobs: Jobs, delay_ms: int, reason: str | None) -> ServerCall[AckResult]:
    delay_ms = arguments.count("delay_ms", delay_ms)
    body, repeat = _held(queue, node, jobs)
    body["delay_ms"] = delay_ms
    if reason:
        body["reason"] = arguments.utf8_text("reason", reason)
    request = ServerRequest("POST", f"{_topic_path(queue, 'queue')}/nack", _encode(body))
    return _ending(request, repeat, "nacked")


def _ending(request: ServerRequest, repeat: Repeat, done: str) -> ServerCall[AckResult]:
    """Return the call of an ack or a nack. done: the member that says how many jobs ended."""
    return ServerCall(
        request,
        lambda answer: parsing.ack_result(done, answer),
        repeat,
        changes=True,
        as_repeated=lambda result: RepeatedAckResult(*result),
    )


def extend(queue: str, node: str, jobs: Jobs, lease_ms: int) -> ServerCall[ExtendResult]:
    lease_ms = arguments.count("lease_ms", lease_ms)
    body, repeat = _held(queue, node, jobs)
    body["lease_ms"] = lease_ms
    request = ServerRequest("POST", f"{_topic_path(queue, 'queue')}/extend", _encode(body))
    return ServerCall(request, parsing.extend_result, repeat, changes=True)


def _held(queue: str, node: str, jobs: Jobs) -> tuple[dict[str, Any], Repeat]:
    """Return the body of ack, nack and extend, and whether it may be repeated.

    A lease id means one delivery of a job; a bare seq might mean a later one by then.
    """
    held = held_jobs(queue, arguments.utf8_text("node", node), jobs)
    body: dict[str, Any] = {"node": held.node, "seqs": held.seqs}
    if any(lease is not None for lease in held.lease_ids):
        body["lease_ids"] = ["" if lease is None else f"lease_{lease:x}" for lease in held.lease_ids]
    is_fenced = all(lease is not None for lease in held.lease_ids)
    return body, Repeat.ALWAYS if is_fenced else Repeat.NEVER


class ClientDeadLetters:
    """The calls of which lists of dead letters and redrives are made, see `DeadLetterCalls`."""

    max_limit = MAX_LIMIT
    max_claim = MAX_LIMIT

    def listing_dead(self, queue: str, from_seq: int, limit: int) -> ServerCall[DeadLetterPage[Record]]:
        path = f"{_topic_path(queue, 'queue')}/dead" + _query(from_seq=from_seq, limit=limit)
        return ServerCall(ServerRequest("GET", path), parsing.dead_letters)

    def redriving(self, queue: str, seqs: Sequence[int] | None, from_seq: int = 0) -> ServerCall[Redriven]:
        """Return the call that redrives; it is not repeated.

        If the server was killed between the jobs and the deletion, both are there (R-Q-38), and the
        same seqs again would make second jobs.
        """
        body = {"all": True, "from_seq": from_seq} if seqs is None else {"seqs": list(seqs)}
        request = ServerRequest("POST", f"{_topic_path(queue, 'queue')}/redrive", _encode(body))
        return ServerCall(request, parsing.redriven, Repeat.NEVER, changes=True)


# --- routers ---------------------------------------------------------------------------------------------------------
def _router_path(name: str) -> str:
    return f"/v0/routers/{_segment('name', name)}"


def put_router(name: str, config: RouterConfig) -> ServerCall[RouterPut]:
    body = config._asdict()
    body["source"] = arguments.utf8_text("source", config.source)
    body["dest"] = arguments.utf8_text("dest", config.dest)
    body["filter"] = None if config.filter is None else msgspec.Raw(config.filter.as_json())
    return ServerCall(ServerRequest("PUT", _router_path(name), _encode(body)), parsing.router_put, changes=True)


def router(name: str) -> ServerCall[RouterState]:
    return ServerCall(ServerRequest("GET", _router_path(name)), parsing.router_state)


def router_names(prefix: str, source: str, dest: str, cursor: str) -> ServerCall[tuple[list[str], str | None]]:
    for argument, value in (("prefix", prefix), ("source", source), ("dest", dest)):
        arguments.encoded(argument, value)
    path = "/v0/routers" + _query(prefix=prefix, source=source, dest=dest, page_size=1000, cursor=cursor)
    return ServerCall(ServerRequest("GET", path), lambda body: parsing.names_of("routers", "router", body))


def delete_router(name: str) -> ServerCall[RouterDeleted]:
    return ServerCall(ServerRequest("DELETE", _router_path(name)), parsing.router_deleted, Repeat.NEVER, changes=True)


# --- named readers ---------------------------------------------------------------------------------------------------
def _reader_path(topic: str, name: str) -> str:
    return f"{_topic_path(topic)}/readers/{_segment('name', name)}"


def put_reader(asked: Opening, known: ReaderState | None) -> ServerCall[tuple[ReaderState, str | None]]:
    """Return the call that makes a reader, or changes the settings that are given.

    Answer: its state, and the incarnation of its topic.
    """
    body: dict[str, Any] = {"incarnation": ""}
    config = None if known is None else known.config
    for name in ("delivery", "holds", "trims"):
        given = getattr(asked, name)
        value = given if given is not None or config is None else getattr(config, name)
        if value is not None:
            body[name] = value
    begin = asked.begin
    if begin.kind == "seq":
        body["from_seq"] = begin.number
    else:
        body["from"] = _shown_begin(begin)
    request = ServerRequest("PUT", _reader_path(asked.topic, asked.name), _encode(body))
    return ServerCall(request, parsing.reader_put, changes=True)


def reader_state(topic: str, name: str, *, incarnation: str | None = None) -> ServerCall[ReaderState]:
    query = "" if incarnation is None else f"?incarnation={quote(incarnation)}"
    return ServerCall(ServerRequest("GET", _reader_path(topic, name) + query), parsing.reader_state)


def readers(topic: str) -> ServerCall[list[ReaderState]]:
    return ServerCall(ServerRequest("GET", f"{_topic_path(topic)}/readers"), parsing.reader_states)


def delete_reader(topic: str, name: str) -> ServerCall[bool]:
    return ServerCall(
        ServerRequest("DELETE", _reader_path(topic, name)), parsing.was_deleted, Repeat.NEVER, changes=True
    )


def read_reader(
    topic: str,
    name: str,
    *,
    limit: int,
    max_bytes: int,
    wait_ms: int,
    lease_ms: int,
    peek: bool,
    done: str | None = None,
    commit_every: int = 1,
    incarnation: str | None = None,
) -> ServerCall[tuple[Page, HandedOut]]:
    """Return the call for the next page of a named reader.

    A page whose answer is lost comes again once its lease has ended. One with a gap is only shown.
    """
    limit = arguments.count("limit", limit)
    max_bytes = arguments.count("max_bytes", max_bytes)
    wait_ms = arguments.count("wait_ms", wait_ms)
    wait_ms = min(wait_ms, MAX_WAIT_MS)
    body: dict[str, Any] = {"wait_ms": wait_ms, "lease_ms": lease_ms, "peek": peek, "incarnation": incarnation}
    body |= {"stop_at_gap": True, "done": done, "commit_every": commit_every}
    if limit or max_bytes:
        body["limit"] = min(limit or MAX_LIMIT, MAX_LIMIT)
    if max_bytes:
        body["max_batch_bytes"] = min(max_bytes, _MAX_BATCH_BYTES)
    return ServerCall(
        ServerRequest("POST", f"{_reader_path(topic, name)}/read", _encode(body)),
        lambda answer: parsing.handed_page(topic, answer),
        wait_s=wait_ms / 1000,
    )


def commit(
    topic: str, name: str, token: str | None, seq: int | None, *, incarnation: str | None = None
) -> ServerCall[int]:
    body = {"token": token, "seq": seq, "incarnation": incarnation}
    request = ServerRequest("POST", f"{_reader_path(topic, name)}/commit", _encode(body))
    return ServerCall(request, parsing.committed_seq, changes=True)


def release(topic: str, name: str, token: str) -> ServerCall[int]:
    """Return the call that gives a page back. It takes no long time: a lease ends by itself."""
    request = ServerRequest("POST", f"{_reader_path(topic, name)}/commit", _encode({"token": token, "release": True}))
    return ServerCall(request, parsing.committed_seq, within=_RELEASE_S)


def seek(topic: str, name: str, seq: int, *, incarnation: str | None = None) -> ServerCall[int]:
    seq = arguments.count("seq", seq)
    body = {"seq": seq, "incarnation": incarnation}
    request = ServerRequest("POST", f"{_reader_path(topic, name)}/seek", _encode(body))
    return ServerCall(request, parsing.committed_seq, Repeat.NEVER, changes=True)


# --- files -----------------------------------------------------------------------------------------------------------
def checkpoint(number: int, wait_ms: int) -> ServerCall[tuple[int, bool, int]]:
    """Return the call for a checkpoint. Answer: its snapshot, whether it ended, the number to ask
    for next."""
    body = {"wait_ms": wait_ms, "checkpoint": number}
    request = ServerRequest("POST", "/v0/checkpoint", _encode(body))
    return ServerCall(request, parsing.checkpoint_result, wait_s=wait_ms / 1000)


def begin_backup(to: str | None) -> ServerCall[BackupProgress]:
    if to is not None:
        to = arguments.text("to", to)
    request = ServerRequest("POST", "/v0/backups", _encode({"to": to}))
    return ServerCall(request, parsing.backup_progress, Repeat.NEVER, changes=True)


def backup_progress() -> ServerCall[BackupProgress]:
    return ServerCall(ServerRequest("GET", "/v0/backups"), parsing.backup_progress)
