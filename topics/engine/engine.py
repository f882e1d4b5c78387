"""The engine: all operations on topics. One thread and no waiting: answers come through callbacks.

Every `done` is called exactly once, perhaps before the method returns, with the result or a
TopicsError: RequestError (the wire contract's code) or StorageError (500). Staged changes are
committed at the end of the pass of the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

from topics.common.histograms import Histogram
from topics.common.values.answers import News
from topics.common.values.begin import Begin, Beginning
from topics.common.values.configs import RouterConfig
from topics.config import Config
from topics.engine.bodies.write_columns import BodyRows, GroupColumns, MakeFraming
from topics.engine.delivery.cohort import Cohorts
from topics.engine.delivery.feed import Feed
from topics.engine.delivery.subscription import Sink
from topics.engine.producers.compared_parts import ComparedParts
from topics.engine.producers.stager import Stager
from topics.engine.producers.sweeper import Sweeper
from topics.engine.queue.ack_nack_extend import ack, extend, nack
from topics.engine.queue.claim import Claims
from topics.engine.queue.claim_wait import ClaimWait
from topics.engine.queue.dead_letter import DeadLetters
from topics.engine.queue.dead_messages import DeadOrder
from topics.engine.queue.dead_orders import DeadOrders
from topics.engine.queue.dead_records import DeadPage, dead_letter_name
from topics.engine.queue.dead_topic import DeadTopics
from topics.engine.queue.far_moves import FarMoves
from topics.engine.queue.push import PushSink, PushStream, open_push
from topics.engine.queue.queue_results import AckResult, ClaimRequest, ClaimResult, ExtendResult, HeldJobs
from topics.engine.queue.redrive import RedriveRequest, Redrives, RedriveTurn
from topics.engine.read.begin_cursor import begin_cursor
from topics.engine.read.column_read import choose_columns
from topics.engine.read.consumption import mark_read
from topics.engine.read.diff import Diff
from topics.engine.read.end_of_waits import STEPS_A_PASS, end_waits
from topics.engine.read.listing import list_topics
from topics.engine.read.one_record import Location, locate_one, read_one
from topics.engine.read.plain_reads import PlainReader, PlainReads
from topics.engine.read.shared_reads import SharedReads
from topics.engine.read.wait import Wait
from topics.engine.readers.reader_calls import ReaderCalls
from topics.engine.recovery.checkpoint_requests import CheckpointWait
from topics.engine.routers.carried_step import StepCarrier
from topics.engine.routers.far_messages import Order
from topics.engine.routers.forwarding import Forwarding
from topics.engine.routers.router_manager import RouterManager
from topics.engine.routers.router_results import RouterDeleted, RouterPage, RouterPut, RouterState
from topics.engine.scheduling.scheduler import LoadStats, Scheduler
from topics.engine.shared.core import Core
from topics.engine.shared.limits import Limits
from topics.engine.shared.outside import NOTHING_OUTSIDE, Outside
from topics.engine.shared.read_turns import BYTES_TO_MAKE
from topics.engine.shared.stored_state import StoredState
from topics.engine.state import refusals
from topics.engine.state.append_request import AppendRequest
from topics.engine.state.topic import Life, Topic
from topics.engine.values.name_rules import Allowed, Prefixes, starts_of
from topics.engine.values.ports import LoopPort, StorePort
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
    EngineStats,
    FlushResult,
    KnownTopic,
    PatchResult,
    PutResult,
    Tombstone,
    TopicPage,
    TopicState,
)
from topics.engine.values.step_queue import StepQueue
from topics.engine.values.topic_config import ConfigPatch, TopicConfig
from topics.engine.verify import StateVerifier
from topics.engine.write.appender import Appender
from topics.engine.write.delete import delete_records
from topics.engine.write.flush import AfterLine, sync_lone, sync_records, with_synced_seq
from topics.engine.write.format_wait import FormatWait
from topics.engine.write.lifecycle import Lifecycle
from topics.engine.write.lone_append import LoneAppender
from topics.engine.write.plain_appends import PlainAppender, PlainDone
from topics.engine.write.retention import when_retained
from topics.engine.write.write_streak import QuickStreak, WriteStreak
from topics.errors import RequestError, TopicsError, WouldBlockError
from topics.store.commits.quick_writes import QuickCaller
from topics.store.read.lender import Lender

_QUEUES_A_STEP = 1000


class Engine:
    """The operations on topics, from the end of recovery on.

    stored: what recovery has found, of topics that the same cores own. `flush` and `look_again`
    belong to the loop's hooks at the end of a pass (stored_engine.py).
    """

    def __init__(
        self, loop: LoopPort, config: Config, stored: StoredState, store: StorePort, outside: Outside = NOTHING_OUTSIDE
    ) -> None:
        cores = outside.cores
        self._core = core = Core(loop, config, stored, store, outside)
        self._scheduler = Scheduler(core)
        self._forwarding = forwarding = Forwarding(core, self._scheduler, cores)
        self._carrier = StepCarrier(core, self._scheduler, forwarding.step_owner)
        self._plain_reader = PlainReader(core)
        self._reads = SharedReads(core, self._plain_reader.read_one)
        self._cohorts = Cohorts(loop, self._reads, forwarding.catch_up)
        compared = ComparedParts()
        sweeper = Sweeper(core, compared)
        self._lifecycle = Lifecycle(core, forwarding, sweeper.forget)
        self._format_wait = format_wait = FormatWait(core.format, core.held_appends)
        stager = Stager(core, self._lifecycle, compared, sweeper)
        self._lone_appender = LoneAppender(core, format_wait, self._carrier.step_of)
        self._appender = Appender(core, self._lifecycle, stager, format_wait, self._lone_appender)
        self._plain_appender = PlainAppender(core, format_wait)
        self._before_acks = partial(forwarding.before_consumption, bounded=True)
        before_moves = partial(forwarding.before_consumption, bounded=False)
        dead_topics = DeadTopics(core, forwarding.catch_up, self._before_acks)
        self._dead_orders = DeadOrders(dead_topics, self._appender.append_copies, core.format, cores)
        self._far_moves = FarMoves(core, self._dead_orders)
        dead_letters = DeadLetters(core, self._appender.append_copies, before_moves, self._far_moves.begin)
        self._claims = Claims(core, forwarding.catch_up, dead_letters)
        self._redrives = Redrives(core, self._dead_orders, self._appender.append_moved)
        self.readers = ReaderCalls(core, forwarding.catch_up)
        """The operations on named readers."""
        self.backups = store.backups
        """The backups of the data directory."""
        self.archive = store.archive
        """The archive of the log."""
        self._routers = RouterManager(core, self._lifecycle, forwarding, cores)
        self._verifier = StateVerifier(core.registry, core.usage, core.files) if config.verify else None
        self._has_asked = False
        """Whether the end of this pass has asked for another one."""
        self._ends = StepQueue(loop, STEPS_A_PASS)
        """Waits that end because the engine does."""
        stored.usage.reclaim.take_turns()
        for router in core.routers.by_name.values():
            forwarding.note(router)
        sweeper.start()
        if stored.moving and (cores is not None or not stored.registry.directory_number):
            loop.call_later(0, partial(self._far_moves.resume, dead_letters, stored.moving))

    # --- topics ------------------------------------------------------------------------------------------------------
    def put_topic(self, name: str, config: TopicConfig, done: Done[PutResult]) -> None:
        """Create the topic or replace its whole configuration (7.1)."""
        self._lifecycle.put(name, config, done)

    def patch_topic(self, name: str, patch: ConfigPatch, done: Done[PatchResult]) -> None:
        """Change the fields of a topic's configuration that a patch names (7.17)."""
        self._lifecycle.patch(name, patch, done)

    def state(self, name: str, *, touch: bool, with_attempts: bool = False, done: Done[TopicState]) -> None:
        """Return the state of a topic (7.2).

        touch: count as consumption, before the state is taken. with_attempts: a queue's has the
        jobs that failed last (R-Q-34).
        """
        core = self._core
        topic = core.registry.visible(name)
        if topic is None:
            done(refusals.topic_not_found(name))
            return
        now_ms = core.clock.now_ms()
        if touch:
            mark_read(topic, now_ms)

        def on_retained(error: TopicsError | None) -> None:
            if error is None and topic.life is Life.GONE:
                error = refusals.topic_not_found(name)
            if error is not None:
                done(error)
            else:
                done(with_synced_seq(core.log, topic, topic.state(now_ms, with_attempts=with_attempts)))

        self._forwarding.catch_up(topic, lambda: when_retained(core, topic, now_ms, on_retained))

    def list_topics(  # noqa: PLR0917 - the fields of a query, and who asks
        self,
        prefix: str,
        after: str,
        page_size: int,
        touch: bool,
        within: Prefixes,
        done: Done[TopicPage],
    ) -> None:
        """List topics after `after` that begin with `prefix` and one of `within`, by name (7.3)."""
        list_topics(self._core, prefix, after, page_size, touch, within, done)

    def delete_topic(self, name: str, *, if_empty: bool, done: Done[DeleteTopicResult]) -> None:
        """Remove the topic and all its records; an absent topic is no error (7.4)."""
        self._lifecycle.delete(name, if_empty=if_empty, done=done)

    # --- records -----------------------------------------------------------------------------------------------------
    def append(self, request: AppendRequest, done: Done[AppendResult]) -> None:
        """Append at the commit point of the topic's class (7.5).

        `rows` and their buffer may be reused after this call.
        """
        self._appender.append(request, done)

    def append_lone(
        self, request: AppendRequest, on_committed: Callable[[AppendResult], None] | None = None
    ) -> AppendResult | None:
        """Append in this call, for a caller that has no other work until the answer.

        on_committed(result): called as soon as the commit allows the answer, which it sends. It
        calls nothing of the engine: the records have their seqs and become visible after it, within
        this call. Readers and routers may wait for the records then; they follow in `settle_lone`
        or `flush`, unless `is_settled`.
        Returns: None, and nothing is done, if the write needs more than its commit: an identity,
        retention, commits in flight; without `on_committed` also waiting readers and routers.
        Raises: StorageError, the log accepts nothing.
        """
        return self._appender.append_lone(request, on_committed)

    def plain_topic(self, name: str) -> Topic | None:
        """Return the topic if `takes_plain`, for `append_rows_lone` within the same call."""
        return self._appender.plain_topic(name)

    def append_rows_lone(
        self, topic: Topic, rows: BodyRows, on_committed: Callable[[AppendResult], None]
    ) -> AppendResult | None:
        """`append_lone` of a request that has only rows."""
        return self._lone_appender.append(topic, rows, None, on_committed)

    def write_streak(self, framing: MakeFraming) -> WriteStreak:
        """Return a streak for lone writes that `framing` scans: see write_streak.py."""
        return WriteStreak(self._core, framing)

    def quick_streak(self, caller: QuickCaller, quiet_until_ns: Callable[[], int], times: Histogram) -> QuickStreak:
        """Return the streak of a library's lone appends: see write_streak.py."""
        return QuickStreak(self._core, self._format_wait, caller, quiet_until_ns, times)

    def settle_lone(self) -> bool:
        """Deliver what `append_lone` has published, if only readers that stay wait for it.

        Return whether the end of the pass may be left out.
        """
        if self._core.awake and self._scheduler.deliver_lone(self._cohorts.deliver_now):
            self._reads.clear()
        return self.is_settled

    @property
    def is_settled(self) -> bool:
        """Whether the end of the pass may be left out.

        No reader and no router has to be notified, and reads have most of their budget left.
        """
        core = self._core
        return not (core.awake or core.forwardable) and core.turns.is_ample

    def refusal(self, name: str, size: int, promised: int) -> WouldBlockError | None:
        """Return what an append of `size` bytes would wait for; None: it is written at once.

        promised: bytes of appends that come before it. Any thread may ask; only the driving one
        gets an answer that still holds.
        """
        core = self._core
        topic = core.registry.by_name.get(name)
        if topic is not None and topic.stage_class == "ephemeral":
            return None
        match core.log.blocks(None if topic is None else topic.id, size, promised):
            case "":
                return None
            case "backlog":
                return refusals.backlogged()
            case "log":
                return refusals.log_too_long(core.log.append_retry_ms() or 1000)
            case "file":
                return refusals.no_file_ready()
            case _:
                return refusals.unsynced_enough()

    def begin_sync(self) -> None:
        """Begin a sync of what is written and not synced, unless one runs."""
        self._core.log.begin_sync()

    def takes_plain(self, name: str) -> bool:
        """Return whether writes to this topic need only seqs and, by `ttl_ms`, an expiry first.

        One `append` may then take several of them.
        """
        return self._appender.takes_plain(name)

    def not_plain(self, names: Sequence[str]) -> list[int]:
        """Return the indexes of the names for which `takes_plain` is false."""
        return self._plain_appender.not_plain(names)

    def append_plain(
        self,
        names: Sequence[str],
        groups: GroupColumns,
        buffer: bytes | bytearray | memoryview,
        spans: bytes,
        done: PlainDone,
    ) -> list[int]:
        """Append to many topics, as `append` would one by one.

        groups: each topic's rows, in `spans`.
        Returns: the indexes of the groups that are not taken, because they need more than columns.
        `done` is called once for each part that was committed together, even if the commit failed:
        after this returns, or before it for topics of class `ephemeral`.
        """
        return self._plain_appender.append(names, groups, buffer, spans, done)

    def will_take_plain(self, name: str) -> bool:
        """Return whether `takes_plain` holds, or will after the topic's creation or deletion."""
        return self._appender.will_take_plain(name)

    def begin(self, name: str, begin: Begin, done: Done[Beginning]) -> None:
        """Return the cursor that a beginning is now, for a subscription (10.2, 11.3).

        Dormant topics take turns, since a client may name 256 and each has to be made.
        """
        core = self._core
        if core.registry.is_dormant(name):
            core.turns.take(partial(self._begin, name, begin, done))
        else:
            self._begin(name, begin, done)

    def _begin(self, name: str, begin: Begin, done: Done[Beginning]) -> None:
        core = self._core
        if core.registry.is_dormant(name):
            core.turns.spend(BYTES_TO_MAKE)
        topic = core.registry.visible(name)
        if topic is None:
            done(refusals.topic_not_found(name))
            return

        def look() -> None:
            when_retained(core, topic, core.clock.now_ms(), on_retained)

        def on_retained(error: TopicsError | None) -> None:
            if error is None and topic.life is Life.GONE:
                error = refusals.topic_not_found(name)
            if error is not None:
                done(error)
            else:
                done(Beginning(begin_cursor(core.turns, topic, begin), topic.head, topic.earliest))

        self._forwarding.catch_up(topic, look if begin.kind != "last" else lambda: core.turns.take(look))

    def choose(self, name: str, query: DiffQuery, lender: Lender, done: Done[DiffResult]) -> Cancel:
        """Choose records as `diff`, for a thread that then reads them without the loop.

        The result is a `ChosenResult`, unless a filter by nodes has to read the records.
        """
        topic = self._core.registry.visible(name)
        if topic is None or query.nodes:
            return self.diff(name, query, done)
        diff = Diff(self._core, self._reads, self._forwarding.catch_up, topic, query, done, lender)
        diff.begin()
        return diff.cancel

    def choose_columns(self, name: str, query: DiffQuery, lender: Lender, done: Done[DiffResult]) -> None:
        """Choose records after a cursor for `columns_of`, up to the bounds, but at least one.

        The bounds are not clamped, and there is no filter by nodes.
        """
        topic = self._core.registry.visible(name)
        if topic is None:
            done(refusals.topic_not_found(name))
            return
        choose_columns(lender, self._core, self._forwarding.catch_up, topic, query, done)

    def incarnation(self, name: str) -> str:
        """Return the incarnation of a topic; "" for an absent one."""
        topic = self._core.registry.visible(name)
        return "" if topic is None else topic.incarnation

    def diff(self, name: str, query: DiffQuery, done: Done[DiffResult]) -> Cancel:
        """Read records after a cursor (7.6). With `wait_ms`, a read without any waits for some."""
        topic = self._core.registry.visible(name)
        if topic is None:
            done(refusals.topic_not_found(name))
            return _nothing_to_cancel
        diff = Diff(self._core, self._reads, self._forwarding.catch_up, topic, query, done)
        diff.begin()
        return diff.cancel

    def get(self, name: str, seq: int, done: Done[DiffResult]) -> None:
        """Read one record by its seq; the result may also be empty, or the tombstone of a loss."""
        topic = self._core.registry.visible(name)
        if topic is None:
            done(refusals.topic_not_found(name))
            return
        read_one(self._core, self._forwarding.catch_up, topic, seq, done)

    def locate(self, name: str, seq: int, done: Done[Location | Tombstone | None]) -> None:
        """Return the place of a record's bytes, None if it is not live, or its loss.

        `done` gets a UsageError for a record in memory, which has no place.
        """
        topic = self._core.registry.visible(name)
        if topic is None:
            done(refusals.topic_not_found(name))
            return
        locate_one(self._core, self._forwarding.catch_up, topic, seq, done)

    def wait(
        self,
        known: dict[str, KnownTopic],
        wait_ms: int,
        done: Done[News],
        prefixes: Prefixes = (),
        within: Prefixes = (),
    ) -> Cancel:
        """Return the topics' heads once one differs from `known`, or after `wait_ms` (7.8).

        A topic with one of `prefixes` and one of `within` is news, too, if there is room for it.
        """
        starts = starts_of(prefixes, within) if prefixes else ()
        wait = Wait(self._core, self._forwarding.catch_up, known, starts, wait_ms, done)
        wait.begin()
        return wait.cancel

    def key_in_flight(self, name: str, key: bytes) -> bool:
        """Return whether a write with this idempotency key is in flight.

        Another write with the key would wait for it.
        """
        return self._appender.key_in_flight(name, key)

    def reads_plain(self, name: str) -> bool:
        """Return whether reads of this topic may be plain: see `read_plain`."""
        return self._plain_reader.reads_plain(name)

    def read_plain(self, names: Sequence[str | None], reads: Any, count: int, long_bytes: int) -> PlainReads:
        """Render many reads whose frames are in memory, in one call: see `PlainReader.project`."""
        return self._plain_reader.project(names, reads, count, long_bytes)

    def open_feed(self, sink: Sink) -> Feed:
        """Open a feed for a reader that stays (10.4, 11.5).

        Records of its subscriptions are delivered to `sink` from `Feed.resume` on.
        """
        return Feed(self._core, self._cohorts, sink)

    def topics_with(self, prefixes: Prefixes, within: Prefixes, most: int) -> list[str]:
        """Return the lowest names with one of `prefixes` and one of `within`, at most so many."""
        found = self._core.registry.beginning_with(starts_of(prefixes, within))
        return [topic.name for topic in islice(found, most)]

    def delete_records(
        self, name: str, before_seq: int | None, match: Predicate | None, done: Done[DeleteResult]
    ) -> None:
        """Delete records below a seq, with matching tags, or both (7.7)."""
        delete_records(self._core, self._forwarding.catch_up, name, before_seq, match, done)

    # --- queues ------------------------------------------------------------------------------------------------------
    def claim(self, request: ClaimRequest, done: Done[ClaimResult]) -> Cancel:
        """Lease jobs to a node (8.2); with a coalescing window, the answer waits for its end.

        The returned function abandons the claim: its jobs stay claimable.
        """
        return self._claims.claim(request, done)

    def claim_when_ready(self, request: ClaimRequest, wait_ms: int, done: Done[ClaimResult]) -> Cancel:
        """Lease jobs like `claim`; if there are none, wait for the first ones up to `wait_ms`."""
        topic = self._core.registry.visible(request.queue)
        wait_ms = self._core.bounds.wait_ms(wait_ms)
        if topic is None or topic.queue is None or not wait_ms:
            return self._claims.claim(request, done)
        wait = ClaimWait(self._claims, topic, request, wait_ms, done)
        wait.begin()
        return wait.cancel

    def ack(self, request: HeldJobs, done: Done[AckResult]) -> None:
        """Complete jobs (8.3), at the class's commit point."""
        ack(self._core, self._before_acks, request, done)

    def nack(self, request: HeldJobs, delay_ms: int, reason: str, done: Done[AckResult]) -> None:
        """Hand jobs back, claimable after `delay_ms` (8.4). reason: "" for none."""
        nack(self._core, request, delay_ms, reason, done)

    def extend(self, request: HeldJobs, lease_ms: int, done: Done[ExtendResult]) -> None:
        """Set the deadline of jobs to now + `lease_ms`, clamped (8.5)."""
        extend(self._core, request, lease_ms, done)

    def dead_letter_name(self, queue: str) -> str | None:
        """Return the name of the queue's dead-letter topic, which may not exist; None for none.

        Raises: RequestError topic_not_found or not_a_queue.
        """
        return dead_letter_name(self._core, queue)

    def dead(self, queue: str, query: DiffQuery, done: Done[DeadPage]) -> None:
        """List the dead letters of a queue after a cursor (8.7).

        Of the query, the cursor, the limits and `bytes_apart` count.
        """
        self._dead_orders.list(queue, query, done)

    def redrive(self, request: RedriveRequest, done: Done[RedriveTurn]) -> None:
        """Make jobs of dead letters again, and delete these (8.8)."""
        self._redrives.redrive(request, done)

    def open_push(self, request: ClaimRequest, sink: PushSink) -> PushStream:
        """Create a stream of leased jobs (8.6), which the caller opens.

        Raises: RequestError about node, topic or type, in this order.
        """
        return open_push(self._claims, self._core.partings, request, sink)

    # --- routers -----------------------------------------------------------------------------------------------------
    def put_router(self, name: str, config: RouterConfig, allowed: Allowed, done: Done[RouterPut]) -> None:
        """Create the router or replace its settings (9.2, checks 3 to 11)."""
        self._routers.put(name, config, allowed, done)

    def router(self, name: str, allowed: Allowed, done: Done[RouterState]) -> None:
        """Return the router's state after it has reached its source's head (9.3).

        It is forbidden if one of its names is not allowed.
        """
        self._routers.state(name, allowed, done)

    def list_routers(  # noqa: PLR0917 - filters
        self, prefix: str, source: str, dest: str, after: str, page_size: int, allowed: Allowed
    ) -> RouterPage:
        """List routers after `after`, by name, all of whose names are allowed (9.4).

        source, dest: "" for any.
        """
        return self._routers.list(prefix, source, dest, after, page_size, allowed)

    def delete_router(self, name: str, allowed: Allowed, done: Done[RouterDeleted]) -> None:
        """Delete the router; an absent router is no error (9.5)."""
        self._routers.delete(name, allowed, done)

    def execute_order(self, order: Order | DeadOrder, done: Callable[[Any], None]) -> None:
        """Execute what another core asks for, for a router between the two, or for dead letters."""
        if isinstance(order, DeadOrder):
            self._dead_orders.execute(order, done)
        else:
            self._routers.execute(order, done)

    # --- the loop ----------------------------------------------------------------------------------------------------
    def flush(self) -> None:
        """End the pass: waiters of changed topics look again, batches take no more rows."""
        core = self._core
        if core.closing:
            self._ends.next_pass()
        if core.routed:
            self._carrier.carry()
        self._forwarding.flush()
        self._scheduler.drain()
        core.expiring.next_pass()
        core.turns.next_pass()
        if core.searches.has_begun:
            core.searches.next_pass()
        if core.notices.has_begun:
            core.notices.next_pass()
        if core.partings.has_begun:
            core.partings.next_pass()
        if core.usage.reclaim.has_begun:
            core.usage.reclaim.next_pass()
        if core.turns:
            self._reads.trim()
        else:
            self._reads.clear()
        if core.filled:
            for topic in core.filled:
                topic.stop_filling()
            core.filled = []
        self._has_asked = bool(core.awake or core.forwardable)
        if self._has_asked:
            # A read has caused these changes: their waiters get a pass of their own.
            core.loop.another_pass()
        if self._verifier is not None:
            self._verifier.check_pass()

    def look_again(self) -> None:
        """Have the pass end once more if its commits have woken readers or routers: see `flush`."""
        core = self._core
        if (core.awake or core.forwardable) and not self._has_asked:
            core.loop.again()

    # --- files -------------------------------------------------------------------------------------------------------
    def with_synced_seq(self, state: TopicState) -> TopicState:
        """Return a state of a list with its `synced_seq`, which lists leave out."""
        return with_synced_seq(self._core.log, self._core.registry.listed(state.name), state)

    def sync_records(
        self, name: str | None, seq: int | None, wait_ms: int | None, after_line: AfterLine, done: Done[FlushResult]
    ) -> None:
        """Return once records are on stable storage, or after `wait_ms`; the sync continues.

        name: None for all topics. seq: None for all records of the topic, those of appends that
        have begun included. after_line: calls its argument once the appends that wait for room are
        begun. Flushes at the same time share a sync. No commit waits for it, except for a small
        one that the log makes in place (in the library, see `ShardedLog.allow_in_place`).
        """
        sync_records(self._core, name, seq, wait_ms, after_line, done)

    def sync_lone(self, name: str | None, seq: int | None) -> FlushResult | None:
        """Do what `sync_records` does in this call, for a caller with no other work meanwhile.

        No append of the caller waits for room.
        Returns: None if it needs more than one small sync: appends that are not committed, syncs in
        progress.
        Raises: TopicsError, the topic cannot be synced.
        """
        return sync_lone(self._core, name, seq)

    def checkpoint(self, wait_ms: int | None, done: Done[CheckpointResult], *, number: int = 0) -> Cancel:
        """Return the newest snapshot's number after a checkpoint, or after `wait_ms` (7.9).

        The checkpoint is one that begins after this call. wait_ms: None for no limit. number: from
        an earlier answer that was not done, to wait for the same checkpoint. The returned function
        gives up the answer, not the checkpoint.
        """
        wait = CheckpointWait(self._core, number, wait_ms, done)
        wait.begin()
        return wait.cancel

    @property
    def limits(self) -> Limits:
        """The limits over all topics, with what is in use of them."""
        return self._core.limits

    # --- load --------------------------------------------------------------------------------------------------------
    def spend_reading(self, size: int) -> None:
        """Count bytes towards those that the reads of this pass may render."""
        self._core.turns.spend(size)

    @property
    def refuses_writes(self) -> bool:
        """Whether deliveries lag so far that writes are refused (429), unless they opt out."""
        return self._scheduler.governor.refuse.taken

    @property
    def has_expired_enough(self) -> bool:
        """Whether the records that may expire in a pass have: other writes are for the next one."""
        return self._core.expiring.over

    def refuse_write(self) -> RequestError:
        """Build the refusal of a write while `refuses_writes`, and count it."""
        self._scheduler.refused += 1
        return refusals.overloaded()

    @property
    def throttle_window_ns(self) -> int:
        """Delay of commits because of load or of a long log, ns; 0 without a delay."""
        return max(self._scheduler.throttle_window_ns, self._core.log.append_wait_ns)

    def load(self) -> LoadStats:
        """Return the load, for metrics."""
        return self._scheduler.stats()

    def verify(self) -> None:
        """With TOPICS_VERIFY, compare all counters with a count of all rows.

        Raises: AssertionError, one differs.
        """
        if self._verifier is not None:
            self._verifier.check_all()

    # --- the end -----------------------------------------------------------------------------------------------------
    def begin_shutdown(self) -> None:
        """End all waiting: future long polls answer at once, and parked ones by turns.

        Requests for a checkpoint are answered with 503: the last checkpoint is made after all
        clients are answered.
        """
        self._core.closing = True
        self._ends.run(end_waits(self._core))
        self._forwarding.begin_shutdown()
        self.backups.leave_cores()

    def freeze(self) -> None:
        """Wait for nothing that only a write brings, and leave the routers where they are."""
        self._core.closing = True
        self._forwarding.stop()
        self._far_moves.stop()

    def end_routers(self, done: Callable[[], None]) -> None:
        """Let routers forward what they can before the store is closed; then end staging.

        Waits that `begin_shutdown` has not ended yet end first, and what clients have left.
        """

        def end() -> None:
            self._far_moves.stop()
            done()

        end_forwarding = partial(self._forwarding.end, end)
        self._ends.run(iter(()), lambda: self._core.partings.run(iter(()), end_forwarding))

    # --- numbers -----------------------------------------------------------------------------------------------------
    def stats(self) -> EngineStats:
        """Return the counters, which are maintained, so that nothing is walked."""
        core = self._core
        registry, usage, producers = core.registry, core.usage, core.producers
        records, size = usage.records, usage.bytes
        if registry.staging is not None:
            records -= registry.staging.index.live
            size -= registry.staging.index.bytes
        return EngineStats(
            registry.visible_count,
            dict(registry.visible_by_class),
            len(registry.queues),
            len(core.routers),
            records,
            size,
            producers.producers,
            producers.parts,
            core.staged.bytes,
            core.log_refusals,
            usage.appended_records,
            usage.appended_bytes,
            core.job_counts.claimed,
            core.job_counts.acked,
            core.job_counts.nacked,
            core.job_counts.dead_lettered,
            self._forwarding.arrived.copies,
        )

    def topic_count(self) -> int:
        """Return the number of topics that readers see."""
        return self._core.registry.visible_count

    def leases_in_flight(self) -> Iterator[int]:
        """Yield the number of running leases in parts of a thousand queues, to be summed."""
        now_ms = self._core.clock.now_ms()
        queues = list(self._core.registry.queues)
        for start in range(0, len(queues), _QUEUES_A_STEP):
            step = (topic.queue for topic in queues[start : start + _QUEUES_A_STEP] if topic.visible)
            yield sum(leases.counters(now_ms).in_flight for leases in step if leases is not None and leases.leased)

    def moving_jobs(self, name: str) -> int:
        """Return how many jobs of a queue are on their way to a topic of another core."""
        topic = self._core.registry.by_name.get(name)
        return 0 if topic is None or topic.queue is None else topic.queue.moving

    def topic_states(self, after: str, within: Prefixes, limit: int) -> list[TopicState]:
        """Return the states of the next topics by name, as they are now, without `synced_seq`."""
        now_ms = self._core.clock.now_ms()
        return [topic.state(now_ms) for topic in islice(self._core.registry.after(after, "", within), limit)]


def _nothing_to_cancel() -> None:
    pass
