"""Calls that read records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from topics.client import parsing
from topics.client.attempts import ServerCall
from topics.client.exchange import ServerRequest
from topics.client.server_calls.request_parts import (
    MAX_BATCH_BYTES,
    MAX_LAST,
    MAX_LIMIT,
    MAX_PREFIXES,
    MAX_WAIT_MS,
    MAX_WAIT_TOPICS,
    encode,
    shown_begin,
    topic_path,
)
from topics.client.server_calls.topic_calls import waiting_for
from topics.common.values import arguments
from topics.common.values.answers import News
from topics.common.values.begin import Begin, From
from topics.common.values.delivered import GapError, Page, Record
from topics.common.values.seen_topics import Seen, TailPlaces, known_topics, places, prefix_places
from topics.common.values.which_records import WhichRecords


def beginning(from_seq: int | None, from_: From | Begin | None, from_time: int | None) -> Begin | None:
    return arguments.beginning(from_seq, from_, from_time, MAX_LAST)


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
        body["from"] = shown_begin(begin)
    if incarnation is not None:
        body["incarnation"] = incarnation
    if limit or max_bytes:
        body["limit"] = min(limit or MAX_LIMIT, MAX_LIMIT)
    if max_bytes:
        body["max_batch_bytes"] = min(max_bytes, MAX_BATCH_BYTES)
    if which.node:
        body["node"] = which.node
    if which.only_node:
        body["only_node"] = which.only_node
    if which.match is not None:
        body["match"] = msgspec.Raw(which.match.as_json())
    return ServerCall(
        ServerRequest("POST", f"{topic_path(topic)}/diff", encode(body)),
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

    return ServerCall(ServerRequest("POST", f"{topic_path(topic)}/diff", encode(body)), parse)


class ClientReads:
    """The calls of which reads are made, see `RecordCalls`."""

    is_frozen = False
    max_limit = MAX_LIMIT
    max_wait_ms = MAX_WAIT_MS

    beginning = staticmethod(beginning)

    def places(
        self, topics: Mapping[str, int | From | None], prefixes: Mapping[str, int | From | None]
    ) -> tuple[TailPlaces, TailPlaces]:
        by_prefix = prefix_places(prefixes, MAX_LAST, MAX_PREFIXES)
        return places(topics, MAX_LAST, MAX_WAIT_TOPICS, has_prefixes=bool(prefixes)), by_prefix

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

        body = {"from": shown_begin(begin), "limit": 1, "max_batch_bytes": 1}
        return ServerCall(ServerRequest("POST", f"{topic_path(topic)}/diff", encode(body)), parse)

    def waiting(self, topics: Mapping[str, Seen], *, wait_ms: int, prefixes: Iterable[str]) -> ServerCall[News]:
        known = known_topics(topics, MAX_WAIT_TOPICS) if topics else {}
        return waiting_for(known, wait_ms, prefixes, parsing.news_of)
