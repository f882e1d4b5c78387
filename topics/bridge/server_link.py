"""The calls of a bridge to a server, by the client of `topics.connect`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from topics.bridge.bridge_errors import SourceDownError
from topics.bridge.bridge_messages import BridgePosition, TopicBatch
from topics.bridge.record_messages import batch_of
from topics.client import server_calls as calls
from topics.client.attempts import ServerCall
from topics.client.sync_client import Client
from topics.clock import Clock
from topics.common.values.answers import TopicHead
from topics.common.values.which_records import WhichRecords
from topics.errors import NoAnswerError, RequestError, StorageError

R = TypeVar("R")
PASSING = frozenset({"not_ready", "shutting_down", "throttled", "topic_full"})
"""Codes of refusals that end by themselves, or once a person has made room: the bridge waits."""
_reads = calls.ClientReads()


class ServerLink:
    """Reads of a server, as `TopicSource` asks for them. page_bytes: of one answer at most."""

    def __init__(self, client: Client, clock: Clock, page_bytes: int) -> None:
        self._client = client
        self._clock = clock
        self._page_bytes = page_bytes

    def heads(
        self, known: Mapping[str, BridgePosition | None], prefixes: Sequence[str], wait_ms: int
    ) -> tuple[Mapping[str, TopicHead | None], str | None]:
        seen = {name: position and (position.seq, position.incarnation) for name, position in known.items()}
        news = self._made(_reads.waiting(seen, wait_ms=wait_ms, prefixes=prefixes))
        return news.heads, news.left_out

    def read(self, topic: str, position: BridgePosition | None) -> TopicBatch:
        call = calls.page(
            topic,
            0 if position is None else position.seq,
            limit=calls.MAX_LIMIT,
            max_bytes=self._page_bytes,
            which=WhichRecords(),
            wait_ms=0,
            begin=None,
            incarnation="" if position is None else position.incarnation,
        )
        now_ms = self._clock.now_ms()
        return self._made(ServerCall(call.request, lambda answer: batch_of(topic, answer, now_ms)))

    def _made(self, call: ServerCall[R]) -> R:
        try:
            answer: R = self._client._make(call)
        except (NoAnswerError, StorageError) as error:
            raise SourceDownError(str(error)) from error
        except RequestError as error:
            if error.code in PASSING:
                raise SourceDownError(str(error)) from error
            raise
        return answer
