"""The engine as the handlers see it: a Protocol of `topics.engine.engine.Engine` and of fakes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from topics.common.values.answers import News
from topics.common.values.begin import Begin, Beginning
from topics.common.values.configs import RouterConfig
from topics.engine.bodies.write_columns import BodyRows, GroupColumns, MakeFraming
from topics.engine.delivery.feed import Feed
from topics.engine.delivery.subscription import Sink
from topics.engine.queue.dead_messages import DeadOrder
from topics.engine.queue.dead_records import DeadPage
from topics.engine.queue.push import PushSink, PushStream
from topics.engine.queue.queue_results import AckResult, ClaimRequest, ClaimResult, ExtendResult, HeldJobs
from topics.engine.queue.redrive import RedriveRequest, RedriveTurn
from topics.engine.read.plain_reads import PlainReads
from topics.engine.readers.reader_calls import ReaderCalls
from topics.engine.routers.far_messages import Order
from topics.engine.routers.router_results import RouterDeleted, RouterPage, RouterPut, RouterState
from topics.engine.state.append_request import AppendRequest
from topics.engine.state.topic import Topic
from topics.engine.values.name_rules import Allowed, Prefixes
from topics.engine.values.ports import ArchivePort, BackupsPort
from topics.engine.values.predicate import Predicate
from topics.engine.values.results import (
    AppendResult,
    Cancel,
    CheckpointResult,
    DeleteResult,
    DeleteTopicResult,
    DiffQuery,
    DiffResult,
    Done,
    KnownTopic,
    PatchResult,
    PutResult,
    TopicPage,
    TopicState,
)
from topics.engine.values.topic_config import ConfigPatch, TopicConfig
from topics.engine.write.plain_appends import PlainDone
from topics.engine.write.write_streak import WriteStreak
from topics.errors import RequestError


class EngineApi(Protocol):
    """Operations that answer through `done`, once, possibly before the call returns.

    Source: `topics.engine.values.results`.
    """

    readers: ReaderCalls

    def put_topic(self, name: str, config: TopicConfig, done: Done[PutResult]) -> None: ...

    def patch_topic(self, name: str, patch: ConfigPatch, done: Done[PatchResult]) -> None: ...

    def state(self, name: str, *, touch: bool, with_attempts: bool = False, done: Done[TopicState]) -> None: ...

    def begin(self, name: str, begin: Begin, done: Done[Beginning]) -> None: ...

    def list_topics(  # noqa: PLR0917 - as in Engine
        self,
        prefix: str,
        after: str,
        page_size: int,
        touch: bool,
        within: Prefixes,
        done: Done[TopicPage],
    ) -> None: ...

    def delete_topic(self, name: str, *, if_empty: bool, done: Done[DeleteTopicResult]) -> None: ...

    def append(self, request: AppendRequest, done: Done[AppendResult]) -> None: ...

    def takes_plain(self, name: str) -> bool:
        """Return whether several writes to this topic may be passed to `append` as one.

        A plain write needs nothing but its seqs.
        """

    def not_plain(self, names: Sequence[str]) -> list[int]:
        """Return the positions of the names for which `takes_plain` is False."""

    def append_plain(
        self,
        names: Sequence[str],
        groups: GroupColumns,
        buffer: bytes | bytearray | memoryview,
        spans: bytes,
        done: PlainDone,
    ) -> list[int]:
        """Append plain writes to many topics at once: see `Engine.append_plain`."""

    def incarnation(self, name: str) -> str: ...

    def diff(self, name: str, query: DiffQuery, done: Done[DiffResult]) -> Cancel: ...

    def wait(
        self,
        known: dict[str, KnownTopic],
        wait_ms: int,
        done: Done[News],
        prefixes: Prefixes = (),
        within: Prefixes = (),
    ) -> Cancel: ...

    def topics_with(self, prefixes: Prefixes, within: Prefixes, most: int) -> list[str]: ...

    @property
    def backups(self) -> BackupsPort: ...

    @property
    def archive(self) -> ArchivePort: ...

    def checkpoint(self, wait_ms: int | None, done: Done[CheckpointResult], *, number: int = 0) -> Cancel: ...

    def append_lone(
        self, request: AppendRequest, on_committed: Callable[[AppendResult], None] | None = None
    ) -> AppendResult | None:
        """Append within this call. None: nothing was done. See `Engine.append_lone`."""

    def plain_topic(self, name: str) -> Topic | None:
        """Return the topic if `takes_plain`, for `append_rows_lone` within the same call."""

    def append_rows_lone(
        self, topic: Topic, rows: BodyRows, on_committed: Callable[[AppendResult], None]
    ) -> AppendResult | None:
        """`append_lone` of a request that has only rows."""

    def write_streak(self, framing: MakeFraming) -> WriteStreak:
        """Return a streak for lone writes: see `Engine.write_streak`."""

    def settle_lone(self) -> bool:
        """Deliver what `append_lone` has published: see `Engine.settle_lone`."""

    @property
    def is_settled(self) -> bool:
        """Return whether the end of the pass may be left out. See `Engine.is_settled`."""

    def will_take_plain(self, name: str) -> bool:
        """Return `takes_plain`, as it will be once the topic's creation or deletion has ended."""

    def key_in_flight(self, name: str, key: bytes) -> bool:
        """Return whether a write with this idempotency key is undecided, so that repeats wait."""

    def reads_plain(self, name: str) -> bool:
        """Return whether reads of this topic may be plain: see `read_plain`."""

    def read_plain(self, names: Sequence[str | None], reads: Any, count: int, long_bytes: int) -> PlainReads:
        """Answer many reads of a pass at once from memory: see `Engine.read_plain`."""

    @property
    def has_expired_enough(self) -> bool: ...

    @property
    def refuses_writes(self) -> bool: ...

    def spend_reading(self, size: int) -> None:
        """Count bytes towards those that the reads of this pass may render."""

    def refuse_write(self) -> RequestError: ...

    @property
    def throttle_window_ns(self) -> int: ...

    def open_feed(self, sink: Sink) -> Feed: ...

    def delete_records(
        self, name: str, before_seq: int | None, match: Predicate | None, done: Done[DeleteResult]
    ) -> None: ...

    def claim_when_ready(self, request: ClaimRequest, wait_ms: int, done: Done[ClaimResult]) -> Cancel: ...

    def ack(self, request: HeldJobs, done: Done[AckResult]) -> None: ...

    def nack(self, request: HeldJobs, delay_ms: int, reason: str, done: Done[AckResult]) -> None: ...

    def dead_letter_name(self, queue: str) -> str | None: ...

    def dead(self, queue: str, query: DiffQuery, done: Done[DeadPage]) -> None: ...

    def redrive(self, request: RedriveRequest, done: Done[RedriveTurn]) -> None: ...

    def open_push(self, request: ClaimRequest, sink: PushSink) -> PushStream: ...

    def extend(self, request: HeldJobs, lease_ms: int, done: Done[ExtendResult]) -> None: ...

    def put_router(self, name: str, config: RouterConfig, allowed: Allowed, done: Done[RouterPut]) -> None: ...

    def router(self, name: str, allowed: Allowed, done: Done[RouterState]) -> None: ...

    def list_routers(  # noqa: PLR0917 - as in Engine
        self, prefix: str, source: str, dest: str, after: str, page_size: int, allowed: Allowed
    ) -> RouterPage: ...

    def delete_router(self, name: str, allowed: Allowed, done: Done[RouterDeleted]) -> None: ...

    def execute_order(self, order: Order | DeadOrder, done: Callable[[Any], None]) -> None: ...
