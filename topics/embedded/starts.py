"""Calls as values: arguments checked on the caller's thread, for the driver to begin."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from topics.common.histograms import Histogram
from topics.common.settings import TopicSettings
from topics.common.tuples import make_tuple
from topics.common.values import arguments
from topics.common.values.answers import News
from topics.common.values.backup_result import BackupResult
from topics.common.values.begin import Begin, Beginning, From
from topics.common.values.configs import RouterConfig
from topics.common.values.delivered import GapError, Job, Jobs, Record
from topics.common.values.held_jobs import held_jobs
from topics.common.values.reader_config import Opening
from topics.common.values.seen_topics import Seen, TailPlaces, known_topics, places, prefix_places
from topics.common.values.which_records import WhichRecords
from topics.common.values.written import Producer, Values
from topics.config import Config
from topics.embedded.driving.calls import Start
from topics.embedded.driving.driver import Driver
from topics.embedded.jobs import parse_jobs
from topics.embedded.log_reader import ReaderHome, opened
from topics.embedded.producer import part_of
from topics.embedded.records import UnreadColumns, UnreadPage, parse_one
from topics.engine.bodies.value_rows import plain_rows, rows_from
from topics.engine.bodies.write_body import WriteScanner
from topics.engine.engine import Engine
from topics.engine.queue.ack_nack_extend import check_reason
from topics.engine.queue.dead_records import DeadPage
from topics.engine.queue.queue_results import AckResult, ClaimRequest, ExtendResult
from topics.engine.queue.redrive import RedriveRequest, RedriveTurn
from topics.engine.read.chosen_read import chosen
from topics.engine.read.one_record import Location
from topics.engine.readers.reader_results import ReaderPut, ReaderState
from topics.engine.routers.router_results import RouterDeleted, RouterPage, RouterPut, RouterState
from topics.engine.state.append_request import PLAIN, AppendRequest, Identity
from topics.engine.state.idempotency import Key
from topics.engine.values.incarnation import meant_cursor
from topics.engine.values.node_set import node_set
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
    FlushResult,
    PatchResult,
    PutResult,
    Tombstone,
    TopicPage,
    TopicState,
)
from topics.engine.values.topic_config import ConfigPatch, make_config
from topics.engine.values.trampoline import Trampoline
from topics.engine.write.flush import AfterLine
from topics.errors import TopicsError, UsageError
from topics.store.format.rows import Rows
from topics.store.read.lender import Lender

_NO_OPTIONS = (None,) * 5


class Starts:
    """The calls of the library. Any thread may make one.

    Raises: UsageError or RequestError for bad arguments.
    """

    is_frozen = False
    """Whether nothing is ever written."""

    def __init__(self, engine: Engine, config: Config, lender: Lender, now_ns: Callable[[], int]) -> None:
        """lender: lends what callers' threads read. now_ns: monotonic time."""
        self._engine = engine
        self._lender = lender
        self._config = config
        self._now_ns = now_ns
        self.append_times = Histogram()
        """Time of appends from their beginning on the loop to their answer."""
        self._scanners: deque[WriteScanner] = deque()
        """Scanners that are not in use. Any thread takes one, and a signal's handler another."""
        self.max_limit = config.max_limit
        self.max_claim = config.max_claim
        self.max_wait_ms = config.max_wait_ms
        self._max_record_bytes = config.max_record_bytes
        self._max_batch_records = config.max_batch_records

    def appending(self, request: AppendRequest) -> Start[AppendResult]:
        def start(done: Done[AppendResult]) -> None:
            began_ns = self._now_ns()

            def on_result(result: AppendResult | TopicsError) -> None:
                if not isinstance(result, TopicsError):
                    self.append_times.add(self._now_ns() - began_ns)
                done(result)

            self._engine.append(request, on_result)

        return start

    def append_lone(self, request: AppendRequest) -> AppendResult | None:
        """Append in this call, see `Engine.append_lone`, and note its time."""
        began_ns = self._now_ns()
        result = self._engine.append_lone(request)
        if result is not None:
            self.append_times.add(self._now_ns() - began_ns)
        return result

    def request_of_gathered(self, topic: str, payloads: list[bytes], *, are_json: bool) -> AppendRequest:
        """Return the request that appends JSON texts, or records of bytes."""
        if are_json:
            return self.request_of_texts(topic, payloads, key=None)
        return AppendRequest(topic, self._rows_of(payloads, None, None))

    def asking_state(self, topic: str, *, touch: bool, include_attempts: bool = False) -> Start[TopicState]:
        topic = arguments.text("topic", topic)
        arguments.flag("touch", touch)
        arguments.flag("include_attempts", include_attempts)
        return lambda done: self._engine.state(topic, touch=touch, with_attempts=include_attempts, done=done)

    def putting_topic(self, topic: str, config: TopicSettings) -> Start[PutResult]:
        topic = arguments.text("topic", topic)
        made = make_config(**config)
        return lambda done: self._engine.put_topic(topic, made, done)

    def patching_topic(self, topic: str, changes: TopicSettings) -> Start[PatchResult]:
        topic = arguments.text("topic", topic)
        patch = ConfigPatch.make(**changes)
        return lambda done: self._engine.patch_topic(topic, patch, done)

    def deleting_topic(self, topic: str, *, if_empty: bool) -> Start[DeleteTopicResult]:
        topic = arguments.text("topic", topic)
        arguments.flag("if_empty", if_empty)
        return lambda done: self._engine.delete_topic(topic, if_empty=if_empty, done=done)

    def request(
        self,
        topic: str,
        records: Values,
        *,
        key: str | None,
        node: str | None,
        create: bool | None,
        incarnation: str | None,
        producer: Producer | None,
    ) -> AppendRequest:
        options = (key, node, create, incarnation, producer)
        if options == _NO_OPTIONS and type(records) is list and type(topic) is str:
            rows = plain_rows(records, self._max_batch_records, self._max_record_bytes)
            if rows is None:
                rows = self._rows_of(arguments.values(records), None, None)
            return make_tuple(AppendRequest, (topic, rows, *PLAIN))
        topic = arguments.text("topic", topic)
        arguments.optional_flag("create", create)
        arguments.optional_incarnation(incarnation)
        key_text, identity = self._identity(key, producer)
        node_text = arguments.optional_encoded("node", node)
        rows = self._rows_of(arguments.values(records), node_text, key_text)
        return make_tuple(
            AppendRequest, (topic, rows, node_text, identity, create, None, True, None, incarnation, None)
        )

    def request_of_texts(
        self,
        topic: str,
        texts: Sequence[bytes],
        *,
        key: str | None,
        incarnation: str | None = None,
        producer: Producer | None = None,
    ) -> AppendRequest:
        topic = arguments.text("topic", topic)
        arguments.optional_incarnation(incarnation)
        key_text, identity = self._identity(key, producer)
        arguments.texts(texts)
        scanner = self._take_scanner()
        try:
            if violation := scanner.over_limit(len(texts), None, key_text):
                raise violation
            rows = scanner.scan_texts(texts)
        except TypeError:
            raise arguments.not_bytes(texts) from None
        finally:
            self._scanners.append(scanner)
        return AppendRequest(topic, rows, identity=identity, incarnation=incarnation)

    def _rows_of(self, values: Sequence[Any], node: bytes | None, key: bytes | None) -> Rows:
        """Return the values as rows. Raises: RequestError, something exceeds a limit."""
        scanner = self._take_scanner()
        try:
            if violation := scanner.over_limit(len(values), node, key):
                raise violation
            return rows_from(values, scanner)
        finally:
            self._scanners.append(scanner)

    def _identity(self, key: str | None, producer: Producer | None) -> tuple[bytes | None, Identity | None]:
        """Return the key as UTF-8, and the identity by which the write is recognised.

        Raises: UsageError if both are given.
        """
        if key is None:
            return None, part_of(producer, self._config)
        key_text = arguments.encoded("key", key)
        if producer is not None:
            raise UsageError("key and producer are given: leave out key, a part is known by its producer")
        return key_text, Key(key_text)

    def _take_scanner(self) -> WriteScanner:
        """Return a scanner that nothing else uses, without waiting for one."""
        try:
            return self._scanners.pop()
        except IndexError:
            return WriteScanner(self._config)

    def deleting(self, topic: str, *, before_seq: int | None, match: str | Predicate | None) -> Start[DeleteResult]:
        topic = arguments.text("topic", topic)
        before_seq = arguments.optional_count("before_seq", before_seq)
        predicate = arguments.predicate(match)
        if before_seq is None and predicate is None:
            raise UsageError("delete needs before_seq, match, or both")
        return lambda done: self._engine.delete_records(topic, before_seq, predicate, done)

    def claiming(
        self, queue: str, node: str, limit: int, *, lease_ms: int | None, wait_ms: int, include_attempts: bool
    ) -> Callable[[Done[list[Job]]], Cancel]:
        """Return the call of a claim, which returns what cancels it."""
        queue = arguments.text("queue", queue)
        arguments.encoded("node", node)
        limit = arguments.count("limit", limit)
        lease_ms = arguments.optional_count("lease_ms", lease_ms)
        wait_ms = arguments.count("wait_ms", wait_ms)
        arguments.flag("include_attempts", include_attempts)
        request = ClaimRequest(queue, node, limit, lease_ms, bytes_apart=True, with_attempts=include_attempts)
        return lambda done: self._engine.claim_when_ready(request, wait_ms, lambda result: done(parse_jobs(result)))

    def putting_router(self, name: str, config: RouterConfig) -> Start[RouterPut]:
        name = arguments.text("name", name)
        return lambda done: self._engine.put_router(name, config, _anything, done)

    def asking_router(self, name: str) -> Start[RouterState]:
        name = arguments.text("name", name)
        return lambda done: self._engine.router(name, _anything, done)

    def listing_routers(self, prefix: str, source: str, dest: str, after: str) -> Start[RouterPage]:
        prefix = arguments.text("prefix", prefix)
        source, dest = arguments.text("source", source), arguments.text("dest", dest)
        most = self._config.max_limit
        return lambda done: done(self._engine.list_routers(prefix, source, dest, after, most, _anything))

    def deleting_router(self, name: str) -> Start[RouterDeleted]:
        name = arguments.text("name", name)
        return lambda done: self._engine.delete_router(name, _anything, done)

    def acking(self, queue: str, node: str, jobs: Jobs) -> Start[AckResult]:
        request = held_jobs(queue, node, jobs)
        return lambda done: self._engine.ack(request, done)

    def nacking(self, queue: str, node: str, jobs: Jobs, *, delay_ms: int, reason: str | None) -> Start[AckResult]:
        delay_ms = arguments.count("delay_ms", delay_ms)
        reason = reason or ""
        arguments.encoded("reason", reason)
        check_reason(self._config, reason)
        request = held_jobs(queue, node, jobs)
        return lambda done: self._engine.nack(request, delay_ms, reason, done)

    def listing_dead(self, queue: str, from_seq: int, limit: int) -> Start[UnreadPage]:
        query = DiffQuery(from_seq, limit, bytes_apart=True)

        def start(done: Done[UnreadPage]) -> None:
            def on_listed(result: DeadPage | TopicsError) -> None:
                done(result if isinstance(result, TopicsError) else UnreadPage(queue, result.page))

            self._engine.dead(queue, query, on_listed)

        return start

    def redriving(self, queue: str, seqs: Sequence[int] | None, from_seq: int = 0) -> Start[RedriveTurn]:
        request = RedriveRequest(queue, seqs, from_seq)
        return lambda done: self._engine.redrive(request, done)

    def extending(self, queue: str, node: str, jobs: Jobs, *, lease_ms: int) -> Start[ExtendResult]:
        lease_ms = arguments.count("lease_ms", lease_ms)
        request = held_jobs(queue, node, jobs)
        return lambda done: self._engine.extend(request, lease_ms, done)

    def paging(
        self,
        topic: str,
        from_seq: int | None,
        *,
        limit: int,
        max_bytes: int,
        which: WhichRecords,
        wait_ms: int,
        from_: From | Begin | None,
        from_time: int | None = None,
        incarnation: str | None = None,
    ) -> Start[UnreadPage]:
        """Return the call of one read.

        incarnation: the one that the cursor is of, or "": the page shall have it.
        """
        topic = arguments.text("topic", topic)
        first = arguments.cursor(from_seq)
        begin = self.beginning(from_seq, from_, from_time)
        limit = arguments.count("limit", limit)
        max_bytes = arguments.count("max_bytes", max_bytes)
        wait_ms = arguments.count("wait_ms", wait_ms)
        node = which.node or which.only_node
        if max_bytes and not limit:
            limit = self._config.max_limit
        query = DiffQuery(
            first,
            limit,
            node_set((node.encode(),) if node else ()),
            include_tags=True,
            wait_ms=wait_ms,
            max_batch_bytes=max_bytes,
            begin=begin,
            bytes_apart=True,
            only_nodes=bool(which.only_node),
            match=which.match,
        )

        def start(done: Done[UnreadPage]) -> None:
            present = "" if incarnation is None else self._engine.incarnation(topic)
            meant = query._replace(from_seq=meant_cursor(first, incarnation or "", present))

            def on_chosen(result: DiffResult | TopicsError) -> None:
                done(result if isinstance(result, TopicsError) else UnreadPage(topic, result, present))

            self._engine.choose(topic, meant, self._lender, on_chosen)

        return start

    def beginning(self, from_seq: int | None, from_: From | Begin | None, from_time: int | None) -> Begin | None:
        return arguments.beginning(from_seq, from_, from_time, self._config.max_last)

    def places(
        self, topics: Mapping[str, int | From | None], prefixes: Mapping[str, int | From | None]
    ) -> tuple[TailPlaces, TailPlaces]:
        config = self._config
        by_prefix = prefix_places(prefixes, config.max_last, config.max_prefixes)
        return places(topics, config.max_last, config.max_wait_topics, has_prefixes=bool(prefixes)), by_prefix

    def placing(self, topic: str, begin: Begin) -> Start[int]:
        """Return the cursor that a beginning is now."""

        def start(done: Done[int]) -> None:
            def on_found(found: Beginning | TopicsError) -> None:
                done(found.from_seq if isinstance(found, Beginning) else found)

            self._engine.begin(topic, begin, on_found)

        return start

    def getting(self, topic: str, seq: int) -> Start[Record | None]:
        topic = arguments.text("topic", topic)
        seq = arguments.count("seq", seq, least=1)
        return lambda done: self._engine.get(topic, seq, lambda result: done(parse_one(topic, result)))

    def locating(self, topic: str, seq: int) -> Start[Location | None]:
        topic = arguments.text("topic", topic)
        seq = arguments.count("seq", seq, least=1)

        def start(done: Done[Location | None]) -> None:
            def on_found(found: Location | Tombstone | TopicsError | None) -> None:
                done(GapError(topic, found) if isinstance(found, Tombstone) else found)

            self._engine.locate(topic, seq, on_found)

        return start

    def waiting(self, topics: Mapping[str, Seen], *, wait_ms: int, prefixes: Iterable[str] = ()) -> Start[News]:
        known = known_topics(topics, self._config.max_wait_topics) if topics or not prefixes else {}
        wait_ms = arguments.count("wait_ms", wait_ms)
        return lambda done: self._engine.wait(known, wait_ms, done, tuple(prefixes))

    def checkpointing(self, timeout: float | None) -> Start[CheckpointResult]:
        wait_ms = arguments.optional_milliseconds("timeout", timeout)
        return lambda done: self._engine.checkpoint(wait_ms, done)

    def backing_up(self, to: object) -> Start[BackupResult]:
        root = root_of_backups(self._config, to)
        return lambda done: self._engine.backups.begin(root, done)

    def flushing(
        self, topic: str | None, seq: int | None, timeout: float | None, after_line: AfterLine
    ) -> Start[FlushResult]:
        self.check_flush(topic, seq)
        wait_ms = arguments.optional_milliseconds("timeout", timeout)
        return lambda done: self._engine.sync_records(topic, seq, wait_ms, after_line, done)

    @staticmethod
    def check_flush(topic: str | None, seq: int | None) -> None:
        if topic is not None:
            arguments.text("topic", topic)
        elif seq is not None:
            raise UsageError(f"seq is {arguments.shown(seq)} without a topic: say whose record it is")
        if seq is not None:
            arguments.count("seq", seq)

    def flush_lone(self, asked: tuple[str | None, int | None]) -> FlushResult | None:
        """Flush a topic up to a seq in this call, see `Engine.sync_lone`."""
        return self._engine.sync_lone(*asked)

    def reading_columns(
        self, topic: str, from_seq: int | None, limit: int, max_bytes: int, from_: From | None
    ) -> Start[UnreadColumns]:
        topic = arguments.text("topic", topic)
        first = arguments.cursor(from_seq)
        limit = arguments.count("limit", limit, least=1)
        max_bytes = arguments.count("max_bytes", max_bytes)
        query = DiffQuery(
            first, limit, max_batch_bytes=max_bytes, begin=self.beginning(from_seq, from_, None), bytes_apart=True
        )

        def start(done: Done[UnreadColumns]) -> None:
            def on_chosen(result: DiffResult | TopicsError) -> None:
                done(result if isinstance(result, TopicsError) else UnreadColumns(chosen(result)))

            self._engine.choose_columns(topic, query, self._lender, on_chosen)

        return start

    def listing(self, prefix: str) -> Start[list[TopicState]]:
        prefix = arguments.text("prefix", prefix)

        def start(done: Done[list[TopicState]]) -> None:
            found: list[TopicState] = []

            after: str | None = ""

            def ask() -> bool:
                if after is None:
                    return False
                self._engine.list_topics(prefix, after, self._config.max_limit, False, (), on_page)
                return True

            def on_page(page: TopicPage | TopicsError) -> None:
                nonlocal after
                if isinstance(page, TopicsError):
                    after = None
                    done(page)
                    return
                found.extend(map(self._engine.with_synced_seq, page.rows))
                after = page.next_after
                if after is None:
                    done(found)
                else:
                    pages.answered()

            pages = Trampoline(ask)
            pages.go_on()

        return start

    # --- named readers -----------------------------------------------------------------------------------------------
    def opening_reader(self, asked: Opening) -> Start[ReaderPut]:
        return opened(self._engine.readers, asked)

    def reader_home(self, driver: Driver) -> ReaderHome:
        """Return what the objects of named readers use."""
        return ReaderHome(self._engine.readers, driver, self._config.max_limit, self._lender)

    def listing_readers(self, topic: str) -> Start[list[ReaderState]]:
        topic = arguments.text("topic", topic)
        return lambda done: self._engine.readers.of_topic(topic, done)

    def deleting_reader(self, topic: str, name: str) -> Start[bool]:
        topic = arguments.text("topic", topic)
        name = arguments.text("name", name)
        return lambda done: self._engine.readers.delete(topic, name, done)


def root_of_backups(config: Config, to: object) -> str:
    """Return where a backup is made. to: None for the setting. Raises: UsageError."""
    if to is None and not config.backup_dir:
        raise UsageError("no directory for backups is named: give `to`, or set backup_dir")
    return arguments.new_path(config.backup_dir if to is None else to, "to")


def _anything(_name: str) -> bool:
    """Allow every name: a caller in this process has no key."""
    return True
