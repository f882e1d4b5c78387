"""Answers of a server as the results of the library."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from topics.common.values.answers import (
    AckResult,
    AppendResult,
    Attempt,
    DeleteResult,
    DeleteTopicResult,
    ExtendResult,
    FailedJob,
    News,
    PatchResult,
    PutResult,
    QueueState,
    ReaderState,
    RouterDeleted,
    RouterPut,
    RouterState,
    Tombstone,
    TopicHead,
    TopicState,
)
from topics.common.values.backup_result import BackupProgress, BackupResult
from topics.common.values.configs import Predicate, RouterConfig, TopicConfig, interned
from topics.common.values.delivered import Job, Page, Record
from topics.common.values.reader_config import ReaderConfig

R = TypeVar("R")
_NS = 1_000_000
_CONFIG = {field.name for field in fields(TopicConfig) if field.init}
_BYTES = b'"data_base64":'


class _Performance(msgspec.Struct, frozen=True):
    wal_append_ms: float = 0.0
    fsync_ms: float = 0.0


_NO_PERFORMANCE = _Performance()


class _Appended(msgspec.Struct):
    count: int
    created: bool
    deduped: bool
    first_seq: int = 0
    last_seq: int = 0
    head_seq: int = 0
    performance: _Performance = _NO_PERFORMANCE


class SentTombstone(msgspec.Struct):
    """A tombstone as it is sent."""

    gap_from: int
    gap_to: int
    reason: str
    missed_estimate: int
    earliest_seq: int
    head_seq: int


class _AnyRecord(msgspec.Struct, kw_only=True):
    """A record or a job of JSON or of bytes."""

    seq: int = msgspec.field(name="$seq")
    ts: int = msgspec.field(name="$ts")
    data: Any = None
    data_base64: bytes | None = None
    meta: Any = None
    tag: str | None = msgspec.field(name="$tag", default=None)
    node: str | None = msgspec.field(name="$node", default=None)
    delay_ms: int = msgspec.field(name="$delay_ms", default=0)
    ttl_ms: int = msgspec.field(name="$ttl_ms", default=0)
    lease_id: str = ""
    deadline: int = 0
    deliveries: int = 0
    attempts: tuple[Attempt, ...] = ()

    @property
    def payload(self) -> Any:
        return self.data if self.data_base64 is None else self.data_base64

    def record(self) -> Record:
        return Record(
            seq=self.seq,
            ts=self.ts,
            data=self.payload,
            meta=self.meta,
            tag=self.tag,
            node=self.node,
            delay_ms=self.delay_ms,
            ttl_ms=self.ttl_ms,
        )

    def job(self) -> Job:
        return Job(
            seq=self.seq,
            ts=self.ts,
            lease_id=self.lease_id,
            deadline=self.deadline,
            deliveries=self.deliveries,
            data=self.payload,
            meta=self.meta,
            tag=self.tag,
            delay_ms=self.delay_ms,
            ttl_ms=self.ttl_ms,
            attempts=self.attempts,
        )


class _Diff(msgspec.Struct, Generic[R]):
    """The answer to a diff, or to a read of a named reader: then with the token of its page."""

    records: list[R]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    tombstone: SentTombstone | None
    token: str = ""
    deadline: int = 0
    incarnation: str = ""


class _Claimed(msgspec.Struct, Generic[R]):
    claimed: list[R]


class DeadLetterPage(msgspec.Struct, Generic[R]):
    """A page of dead letters."""

    records: list[R] = msgspec.field(name="dead")
    next_from_seq: int
    head_seq: int


class Redriven(msgspec.Struct):
    """The outcome of one request of a redrive. The seqs are of one of all."""

    redriven: int
    skipped: list[int]
    next_from_seq: int = 0
    head_seq: int = 0


_appended = msgspec.json.Decoder(_Appended)
_diff = msgspec.json.Decoder(_Diff[Record])
_any_diff = msgspec.json.Decoder(_Diff[_AnyRecord])
_claimed = msgspec.json.Decoder(_Claimed[Job])
_any_claimed = msgspec.json.Decoder(_Claimed[_AnyRecord])
_dead_letters = msgspec.json.Decoder(DeadLetterPage[Record])
_any_dead_letters = msgspec.json.Decoder(DeadLetterPage[_AnyRecord])
_redriven = msgspec.json.Decoder(Redriven)


class HandedOut(NamedTuple):
    """How the page of a named reader is given back."""

    token: str = ""
    deadline: int = 0


def append_result(body: bytes) -> AppendResult:
    raw = _appended.decode(body)
    return AppendResult(
        raw.first_seq,
        raw.last_seq,
        raw.head_seq,
        raw.count,
        raw.created,
        raw.deduped,
        round(raw.performance.wal_append_ms * _NS),
        round(raw.performance.fsync_ms * _NS),
    )


def page_of(topic: str, body: bytes, *, is_sized: bool = False) -> Page:
    """Return the page that the answer to a diff holds.

    is_sized: count `size_bytes` from the records, since a server does not send it; else it is 0.
    """
    return _page(topic, _diff_of(body), is_sized)


def handed_page(topic: str, body: bytes) -> tuple[Page, HandedOut]:
    """Return the page in the answer to a read of a named reader, and its token and deadline."""
    diff = _diff_of(body)
    return _page(topic, diff, False), HandedOut(diff.token, diff.deadline)


def _diff_of(body: bytes) -> _Diff[Record]:
    if _BYTES not in body:
        return _diff.decode(body)
    any_diff = _any_diff.decode(body)
    return _Diff(
        [record.record() for record in any_diff.records],
        any_diff.next_from_seq,
        any_diff.head_seq,
        any_diff.earliest_seq,
        any_diff.tombstone,
        any_diff.token,
        any_diff.deadline,
        any_diff.incarnation,
    )


def _page(topic: str, diff: _Diff[Record], is_sized: bool) -> Page:
    records = diff.records
    size = sum(map(_size_of, records)) if is_sized else 0
    return Page(
        topic,
        records,
        diff.next_from_seq,
        diff.head_seq,
        diff.earliest_seq,
        tombstone_of(diff.tombstone),
        size,
        diff.incarnation,
    )


def _size_of(record: Record) -> int:
    """Return the accounted bytes of a record: `data` and `meta` as they are stored (5.3)."""
    data = record.data
    size = len(data) if isinstance(data, bytes) else len(msgspec.json.encode(data))
    return size if record.meta is None else size + len(msgspec.json.encode(record.meta))


def tombstone_of(raw: SentTombstone | None) -> Tombstone | None:
    """Return a tombstone as the library gives it."""
    if raw is None:
        return None
    return Tombstone(raw.gap_from, raw.gap_to, raw.reason, raw.missed_estimate, raw.earliest_seq, raw.head_seq)


def jobs_of(body: bytes) -> list[Job]:
    if _BYTES in body:
        return [job.job() for job in _any_claimed.decode(body).claimed]
    return _claimed.decode(body).claimed


def dead_letters(body: bytes) -> DeadLetterPage[Record]:
    if _BYTES not in body:
        return _dead_letters.decode(body)
    page = _any_dead_letters.decode(body)
    return DeadLetterPage([record.record() for record in page.records], page.next_from_seq, page.head_seq)


def redriven(body: bytes) -> Redriven:
    return _redriven.decode(body)


def _object(body: bytes) -> dict[str, Any]:
    found: Any = msgspec.json.decode(body)
    if not isinstance(found, dict):
        raise TypeError("it is no object")
    return found


def ack_result(name: str, body: bytes) -> AckResult:
    """name: the member that says how many jobs ended."""
    raw = _object(body)
    sync_ms = raw.get("performance", {}).get("fsync_ms", 0.0)
    return AckResult(raw[name], raw["skipped"], raw["ready"], raw["in_flight"], round(sync_ms * _NS))


def extend_result(body: bytes) -> ExtendResult:
    raw = _object(body)
    return ExtendResult({int(seq): deadline for seq, deadline in raw["deadlines"].items()}, raw["skipped"])


def topic_config(raw: dict[str, Any]) -> TopicConfig:
    return interned(TopicConfig(**{name: value for name, value in raw.items() if name in _CONFIG}))


def put_result(body: bytes) -> PutResult:
    raw = _object(body)
    return PutResult(raw["created"], topic_config(raw["config"]))


def patch_result(body: bytes) -> PatchResult:
    raw = _object(body)
    return PatchResult(topic_config(raw["before"]), topic_config(raw["after"]))


def topic_state(body: bytes) -> TopicState:
    """Return the state that an answer holds. Its `synced_seq` is 0: a server does not report it."""
    raw = _object(body)
    return TopicState(
        raw["topic"],
        topic_config(raw["config"]),
        raw["head_seq"],
        raw["earliest_seq"],
        raw["count"],
        raw["bytes"],
        raw["effective_priority"],
        raw["last_write_ts"],
        raw["last_read_ts"],
        _queue_state(raw.get("queue")),
        raw.get("incarnation", ""),
    )


def _queue_state(raw: dict[str, Any] | None) -> QueueState | None:
    if raw is None:
        return None
    failed = [
        FailedJob(job["$seq"], job["deliveries"], msgspec.convert(job["attempts"], tuple[Attempt, ...]))
        for job in raw.get("failed", ())
    ]
    return QueueState(raw["ready"], raw["in_flight"], raw["dead_lettered"], tuple(failed), raw.get("delayed"))


def window_ms(body: bytes) -> int:
    return int(_object(body)["config"]["idempotency_window_ms"])


def delete_topic_result(body: bytes) -> DeleteTopicResult:
    raw = _object(body)
    return DeleteTopicResult(raw["deleted"], raw["routers_removed"])


def delete_result(body: bytes) -> DeleteResult:
    raw = _object(body)
    return DeleteResult(raw["deleted"], raw["earliest_seq"], raw["head_seq"], raw["count"], raw["bytes"])


def news_of(body: bytes) -> News:
    raw = _object(body)
    topics = raw["topics"].items()
    heads = {name: head and TopicHead(head["head_seq"], head["incarnation"]) for name, head in topics}
    return News(heads, raw.get("left_out"))


def names_of(listed: str, name: str, body: bytes) -> tuple[list[str], str | None]:
    """Return the names on a page of a list, and the cursor of the next page."""
    raw = _object(body)
    return [row[name] for row in raw[listed]], raw.get("next_cursor")


def router_config(raw: dict[str, Any]) -> RouterConfig:
    """Return the router that an answer holds. The server does not report `auto_create`: True."""
    match = raw["filter"]
    return RouterConfig(
        raw["source"],
        raw["dest"],
        raw["preserve_node"],
        raw["preserve_tag"],
        True,
        None if match is None else _predicate(match),
        raw["allow_cycle"],
        raw["guarantee"],
    )


def _predicate(raw: list[str]) -> Predicate:
    _field, operator, text = raw
    return Predicate.of(text) if operator == "Glob" else Predicate(False, text.encode())


def router_put(body: bytes) -> RouterPut:
    raw = _object(body)
    return RouterPut(raw["created"], router_config(raw))


def router_state(body: bytes) -> RouterState:
    raw = _object(body)
    return RouterState(raw["router"], router_config(raw), raw["forwarded_total"])


def router_deleted(body: bytes) -> RouterDeleted:
    return RouterDeleted(_object(body)["deleted"])


def _reader_state(raw: dict[str, Any]) -> ReaderState:
    return ReaderState(
        raw["reader"],
        ReaderConfig(raw["delivery"], raw["holds"], raw["trims"]),
        raw["position"],
        raw["committed"],
        raw["lag_records"],
        raw["lag_ms"],
        raw["pages"],
    )


def reader_state(body: bytes) -> ReaderState:
    return _reader_state(_object(body))


def reader_put(body: bytes) -> tuple[ReaderState, str | None]:
    """Return a reader that was made or changed, and the incarnation of its topic."""
    raw = _object(body)
    return _reader_state(raw), raw.get("incarnation")


def reader_states(body: bytes) -> list[ReaderState]:
    return [_reader_state(raw) for raw in _object(body)["readers"]]


def was_deleted(body: bytes) -> bool:
    return bool(_object(body)["deleted"])


def committed_seq(body: bytes) -> int:
    return int(_object(body)["committed"])


def backup_progress(body: bytes) -> BackupProgress:
    raw = _object(body)["backup"]
    state = {name: raw[name] for name in BackupProgress._fields if name in raw}
    if raw["state"] == "done":
        state["result"] = BackupResult(**{name: raw[name] for name in BackupResult._fields})
    return BackupProgress(**state)


def checkpoint_result(body: bytes) -> tuple[int, bool, int]:
    raw = _object(body)
    return raw["snapshot"], raw["done"], raw.get("checkpoint", 0)
