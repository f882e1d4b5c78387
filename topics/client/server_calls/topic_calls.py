"""Calls on topics, and the wait for news of some."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from topics.client import parsing
from topics.client.attempts import Repeat, ServerCall
from topics.client.exchange import ServerRequest
from topics.client.server_calls.request_parts import MAX_WAIT_MS, MAX_WAIT_TOPICS, encode, query, topic_path
from topics.common.settings import TopicSettings
from topics.common.topic_names import is_topic_name
from topics.common.values import arguments
from topics.common.values.answers import DeleteResult, DeleteTopicResult, PatchResult, PutResult, TopicHead, TopicState
from topics.common.values.configs import Predicate, check_setting_names
from topics.common.values.seen_topics import KnownTopic, Seen, known_topics
from topics.errors import UsageError

T = TypeVar("T")


def state(topic: str, *, touch: bool, include_attempts: bool = False) -> ServerCall[TopicState]:
    arguments.flag("touch", touch)
    arguments.flag("include_attempts", include_attempts)
    path = f"{topic_path(topic)}?incarnation=true{'' if touch else '&touch=false'}"
    if include_attempts:
        path += "&include_attempts=true"
    return ServerCall(ServerRequest("GET", path), parsing.topic_state)


def topic_names(prefix: str, cursor: str) -> ServerCall[tuple[list[str], str | None]]:
    arguments.encoded("prefix", prefix)
    path = "/v0/topics" + query(prefix=prefix, page_size=1000, cursor=cursor)
    return ServerCall(ServerRequest("GET", path), lambda body: parsing.names_of("topics", "topic", body))


def _settings_body(settings: TopicSettings) -> bytes:
    check_setting_names(settings)
    try:
        return msgspec.json.encode(settings, enc_hook=arguments.plain_setting)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UsageError(str(error)) from None


def put_topic(topic: str, settings: TopicSettings) -> ServerCall[PutResult]:
    request = ServerRequest("PUT", topic_path(topic), _settings_body(settings))
    return ServerCall(request, parsing.put_result, changes=True, is_misuse=is_topic_name(topic))


def patch_topic(topic: str, changes: TopicSettings) -> ServerCall[PatchResult]:
    request = ServerRequest("PATCH", topic_path(topic), _settings_body(changes))
    return ServerCall(request, parsing.patch_result, changes=True, is_misuse=is_topic_name(topic))


def delete_topic(topic: str, *, if_empty: bool) -> ServerCall[DeleteTopicResult]:
    arguments.flag("if_empty", if_empty)
    request = ServerRequest("DELETE", topic_path(topic) + query(if_empty=if_empty))
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
    request = ServerRequest("POST", f"{topic_path(topic)}/delete", encode(body))
    # Without a bound, the same again takes records that were written since.
    repeat = Repeat.NEVER if before_seq is None else Repeat.ALWAYS
    return ServerCall(request, parsing.delete_result, repeat, changes=True)


def wait(topics: Mapping[str, Seen], wait_ms: int) -> ServerCall[dict[str, TopicHead | None]]:
    wait_ms = arguments.count("wait_ms", wait_ms)
    return waiting_for(known_topics(topics, MAX_WAIT_TOPICS), wait_ms, (), lambda body: parsing.news_of(body).heads)


def waiting_for(
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
    return ServerCall(ServerRequest("POST", "/v0/wait", encode(body)), parse, wait_s=wait_ms / 1000)
