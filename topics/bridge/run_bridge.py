"""A bridge put together from its options: what `topics bridge` runs."""

from __future__ import annotations

import logging
import math
import random
import re
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Protocol
from urllib.parse import urlsplit

from topics.bridge.bridge_errors import SourceDownError, TargetDownError
from topics.bridge.bridge_messages import BridgePosition
from topics.bridge.bridge_numbers import BridgeNumbers
from topics.bridge.bridge_target import BridgeTarget, TargetSession
from topics.bridge.carry_in import CarryIn, Opened
from topics.bridge.carry_out import CarryOut, Retries, TakenBatches
from topics.bridge.incoming import BridgeMark
from topics.bridge.jetstream.jetstream_link import JetStreamLink, check_stream
from topics.bridge.jetstream.jetstream_source import JetStreamSource
from topics.bridge.jetstream.jetstream_target import JetStreamTarget, StreamChoice
from topics.bridge.jetstream.nats_place import NatsPlace
from topics.bridge.kafka.kafka_place import KafkaPlace
from topics.bridge.kafka.kafka_source import KafkaSource
from topics.bridge.kafka.kafka_target import KafkaTarget
from topics.bridge.prefetch import Prefetch
from topics.bridge.server_link import ServerLink
from topics.bridge.side_url import NATS, check_side
from topics.bridge.topic_sink import TopicSink
from topics.bridge.topic_source import NamedTopics, TopicPatterns, TopicSource
from topics.client.sync_client import Client
from topics.clock import Clock
from topics.common.any_log import AnyLog
from topics.errors import UsageError

_ID_CHARS = 200
_ID = re.compile(rf"[A-Za-z0-9._-]{{1,{_ID_CHARS}}}")
"""With what is before it, a name of a topic of Kafka, which has 249 characters at most."""
_log = logging.getLogger("topics.bridge")
_OF_ONE_SIDE = (
    ("--partitions", "partitions", ("kafka",), "--to"),
    ("--replicas", "replicas", (), "--to"),
    ("--stream", "stream", NATS, ""),
    ("--prefix", "prefix", NATS, ""),
    ("--values", "values", (), "--from"),
    ("--adopt", "adopts", (), "--from"),
)
"""Options, their fields, and the schemes and the direction that they are for; empty: all."""
_BATCHES = 4
"""Batches that are read before they are taken, as a share of the memory."""


@dataclass(frozen=True, slots=True)
class BridgeOptions:
    """The options of `topics bridge`."""

    topics: str
    to: str = ""
    source: str = ""
    id: str = "topics"
    stream: str = "topics"
    prefix: str = "topics."
    partitions: int = 1
    replicas: int = 0
    """Copies of what the bridge makes there; 0: as the other side does by itself."""
    is_once: bool = False
    skips_oversize: bool = False
    batch_records: int = 10_000
    memory_bytes: int = 64 << 20
    settings: Mapping[str, str] = field(default_factory=dict)
    values: str = "auto"
    """How values of messages become data: see `incoming.VALUES`."""
    adopts: bool = False
    patience_s: float = 30.0
    """With `is_once`: how long a side that does not answer is asked again; of a look, how long an
    answer is waited for.
    """
    is_look: bool = False
    """Whether nothing is carried."""

    def __post_init__(self) -> None:
        """Raises: UsageError, the positions cannot have that id, the other side has no such URL, or
        an option has no effect.
        """
        if not _ID.fullmatch(self.id):
            raise UsageError(f"--id is {self.id[:200]!r}: use 1 to {_ID_CHARS} letters, digits and . _ -")
        if bool(self.to) == bool(self.source):
            raise UsageError("name one other side: --to URL carries records there, --from URL carries them here")
        here, url = ("--to", self.to) if self.to else ("--from", self.source)
        scheme = check_side(here, url)
        defaults = {each.name: each.default for each in fields(self)}
        for option, name, schemes, direction in _OF_ONE_SIDE:
            has_effect = direction in {"", here} and (not schemes or scheme in schemes)
            if not has_effect and getattr(self, name) != defaults[name]:
                raise UsageError(f"{option} has no effect with {here} {url}: leave it out")


class SeenTarget(BridgeTarget, Protocol):
    """A target that can be looked at without a change of it."""

    def seen(self) -> TargetSession | None:
        """Return a session that only reads positions; None: there is nothing yet."""
        ...


def target_of(options: BridgeOptions) -> SeenTarget:
    """Return the side that `--to` names. Raises: UsageError."""
    scheme = urlsplit(options.to).scheme
    if scheme == "kafka":
        kafka = KafkaPlace.parse(options.to, options.settings, _patience_s(options))
        return KafkaTarget(
            kafka,
            options.id,
            partitions=options.partitions,
            replicas=options.replicas,
            skips_oversize=options.skips_oversize,
        )
    place = NatsPlace.parse(options.to, options.settings, _patience_s(options))
    check_stream(options.stream, options.prefix)
    stream = StreamChoice(options.stream, options.prefix, options.replicas)
    return JetStreamTarget(place, stream, skips_oversize=options.skips_oversize)


def carry(log: AnyLog, options: BridgeOptions, numbers: BridgeNumbers, clock: Clock, stop: threading.Event) -> bool:
    """Carry in the direction that the options name, until `stop` is set, or up to the heads.

    Return whether it got there.
    Raises: with `is_once` TopicsError, a side did not answer for too long.
    """
    return (carry_in if options.source else carry_out)(log, options, numbers, clock, stop)


def carry_in(log: AnyLog, options: BridgeOptions, numbers: BridgeNumbers, clock: Clock, stop: threading.Event) -> bool:
    """Carry into the server."""
    sink = TopicSink(
        _client(log),
        options.id,
        secrets.token_hex(8),
        values=options.values,
        adopts=options.adopts,
        skips_oversize=options.skips_oversize,
    )
    retries = _retries(options, numbers, clock, stop)
    return CarryIn(
        _opened(options, clock, numbers), sink, numbers=numbers, clock=clock, retries=retries, stop=stop
    ).run()


def _retries(options: BridgeOptions, numbers: BridgeNumbers, clock: Clock, stop: threading.Event) -> Retries:
    return Retries(stop, numbers, random.random, clock, _patience_s(options))


def _patience_s(options: BridgeOptions) -> float:
    return options.patience_s if options.is_once or options.is_look else math.inf


def _opened(options: BridgeOptions, clock: Clock, numbers: BridgeNumbers) -> Opened:
    """Return what opens the side that `--from` names. Raises: UsageError."""
    scheme = urlsplit(options.source).scheme
    place = f"stream {options.stream}" if scheme in NATS else "Kafka"

    def skips(topic: str) -> None:
        numbers.left_out.inc()
        _log.warning("%r of %s is left out: it is no name of a topic here", topic, place)

    patterns = NamedTopics(TopicPatterns.parse(options.topics), place, skips if options.skips_oversize else None)
    if scheme == "kafka":
        kafka = KafkaPlace.parse(options.source, options.settings, _patience_s(options))
        return lambda mark: KafkaSource(
            kafka, patterns, mark, is_once=options.is_once, batch_messages=options.batch_records, clock=clock
        )
    nats = NatsPlace.parse(options.source, options.settings, _patience_s(options))
    check_stream(options.stream, options.prefix)

    def opened(mark: Callable[[str], BridgeMark | None]) -> JetStreamSource:
        try:
            link = JetStreamLink(nats)
        except TargetDownError as error:
            raise SourceDownError(str(error)) from error
        stream, prefix = options.stream, options.prefix
        return JetStreamSource(link, stream, prefix, patterns, mark=mark, is_once=options.is_once)

    return opened


def carry_out(log: AnyLog, options: BridgeOptions, numbers: BridgeNumbers, clock: Clock, stop: threading.Event) -> bool:
    """Carry from the server until `stop` is set, or up to the heads."""
    target, patterns = target_of(options), TopicPatterns.parse(options.topics)
    share = max(1, options.memory_bytes // _BATCHES)
    server = ServerLink(_client(log), clock, share)

    def source(locate: Callable[[str], BridgePosition | None]) -> TakenBatches:
        return Prefetch(TopicSource(server, patterns, locate, is_once=options.is_once), 2 * share)

    return CarryOut(
        target,
        source,
        numbers=numbers,
        clock=clock,
        retries=_retries(options, numbers, clock, stop),
        stop=stop,
        batch_bytes=share,
        batch_messages=options.batch_records,
    ).run()


def _client(log: AnyLog) -> Client:
    assert isinstance(log, Client), "a bridge has a server"
    return log


@dataclass(frozen=True, slots=True)
class PlannedCarry:
    """One topic of a dry run. seq: carried up to here; None: nothing yet."""

    topic: str
    seq: int | None
    head_seq: int
    is_recreated: bool


def planned_in(log: AnyLog, options: BridgeOptions, clock: Clock) -> Mapping[str, int]:
    """Return how many messages would be carried here, by topic, and change nothing."""
    sink = TopicSink(_client(log), options.id, "", values=options.values, adopts=True, skips_oversize=True)
    session = _opened(options, clock, BridgeNumbers())(sink.mark)
    try:
        return session.count()
    finally:
        session.close()


def planned_out(log: AnyLog, options: BridgeOptions, clock: Clock) -> list[PlannedCarry]:
    """Return where each topic would continue, and change nothing on either side."""
    patterns = TopicPatterns.parse(options.topics)
    session = target_of(options).seen()
    try:
        server = ServerLink(_client(log), clock, 1)
        heads, _ = server.heads(dict.fromkeys(patterns.names), patterns.prefixes, 0)
        rows = []
        for topic, head in sorted(heads.items()):
            if head is None:
                continue
            position = None if session is None else session.position(topic)
            seq = position.seq if position else None
            recreated = position is not None and position.incarnation != head.incarnation
            rows.append(PlannedCarry(topic, seq, head.head_seq, recreated))
        return rows
    finally:
        if session is not None:
            session.close()
