"""The topics in a snapshot: all state that neither rows in files nor the later log holds."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence

import msgspec

from topics.common.bounded_steps import MemberList, members_in_steps
from topics.engine.state.control_frames import AttemptRow, JobsMove, LeaseRow
from topics.engine.state.hops import Run
from topics.engine.state.known_producers import ProducerRow
from topics.engine.state.named_reader import ReaderRow
from topics.engine.state.router_frames import RouterImage, images_of
from topics.engine.state.staged_parts import StagedRow
from topics.engine.state.topic import STAGING, Topic
from topics.engine.state.topic_numbers import NO_RESERVATION
from topics.engine.values.floor_marks import FloorMarks
from topics.engine.values.topic_config import TopicConfig
from topics.store.format.floors import Gap

_GAPS_A_STEP = 4096
_ENCODER = msgspec.json.Encoder()
_TOPICS = MemberList(b'"topics":[', b'{"name":', b'],"plain":[')
_PLAIN = MemberList(b'"plain":[', b'{"names":[', b'],"keys":[')


class KeyRow(msgspec.Struct, array_like=True, gc=False):
    key: bytes
    first_seq: int
    count: int
    started_ms: int


class TopicImage(msgspec.Struct, omit_defaults=True, gc=False):
    """One topic in the snapshot, or in a description in headers and footers of its segments.

    A description has no keys and only some of the producers.
    """

    name: str
    id: int
    order: int
    config: msgspec.Raw
    head: int = 0
    last_ts: int = 0
    floors: FloorMarks = msgspec.field(default_factory=FloorMarks)
    gaps: list[tuple[int, int, str]] = msgspec.field(default_factory=list)
    reserved: int = 0
    generation: int = 0
    keys: list[KeyRow] = msgspec.field(default_factory=list)
    """Keys in a snapshot by a version that did not list them by themselves."""
    leases: list[LeaseRow] = msgspec.field(default_factory=list)
    """The leases of a queue with durable leases, of jobs that still exist."""
    hops: list[Run] = msgspec.field(default_factory=list)
    """The hops of copies that may be forwarded further."""
    feeders: list[RouterImage] = msgspec.field(default_factory=list)
    """Routers into this topic, in a description; the snapshot lists all routers by themselves."""
    incarnation: str = ""
    """Set only in the snapshot, because a directory rebuilt from descriptions draws new ones. "":
    from a version without incarnations.
    """
    producers: list[ProducerRow] = msgspec.field(default_factory=list)
    """Producers, in a description; the snapshot lists those of all topics by themselves."""
    staged: list[StagedRow] = msgspec.field(default_factory=list)
    """Parts that wait for their last pieces, in the image of the staging area."""
    readers: list[ReaderRow] = msgspec.field(default_factory=list)
    """Named readers, in a description; the snapshot lists those of all topics by themselves."""
    attempts: list[AttemptRow] = msgspec.field(default_factory=list)
    """The attempts of the jobs of `leases`."""
    move: JobsMove | None = None
    """The last move of a queue to a dead-letter topic of another core. Not in a description."""

    def gap_list(self) -> list[Gap]:
        return [Gap(*gap) for gap in self.gaps]


class PlainDescription(msgspec.Struct, omit_defaults=True, gc=False):
    """The `TopicImage` of a description that has nothing else (see `is_described_plainly`)."""

    name: str
    id: int
    order: int
    config: msgspec.Raw
    head: int
    last_ts: int
    reserved: int
    generation: int


class PlainTopics(msgspec.Struct, gc=False):
    """Topics without further state in a snapshot (see `is_plain`), as columns.

    The columns have the shape (n,), n >= 1.
    """

    names: list[str]
    ids: list[int]
    orders: list[int]
    heads: list[int]
    last_ts: list[int]
    generations: list[int]
    configs: list[msgspec.Raw]
    """The distinct configs."""
    config: list[int]
    """Indexes into `configs`."""
    incarnations: str
    """The incarnations, 16 digits each, joined."""

    @classmethod
    def of(cls, topics: Sequence[Topic]) -> PlainTopics:
        """Build the columns of the topics' committed state."""
        numbers, table = config_table([topic.config for topic in topics])
        return cls(
            [topic.name for topic in topics],
            [topic.id for topic in topics],
            [topic.order for topic in topics],
            [topic.head for topic in topics],
            [topic.last_ts for topic in topics],
            [topic.generation for topic in topics],
            table,
            numbers,
            "".join([topic.incarnation for topic in topics]),
        )


def config_table(configs: Sequence[TopicConfig]) -> tuple[list[int], list[msgspec.Raw]]:
    """Return the index of each config among the distinct ones, and these as JSON."""
    # Most topics share one object, and a hash takes long.
    by_id = {id(config): config for config in configs}
    table = {config: number for number, config in enumerate(dict.fromkeys(by_id.values()))}
    numbers = {key: table[config] for key, config in by_id.items()}
    return [numbers[id(config)] for config in configs], [msgspec.Raw(config.as_json()) for config in table]


def is_plain(topic: Topic) -> bool:
    """Return whether it is a log on stable storage that has nothing but numbers.

    It has no expiry, losses, hops, and no reservation.
    """
    config = topic.config
    return (
        (topic.reserved == NO_RESERVATION or topic.reserved <= topic.head)
        and config.durability in ("disk", "fsync")
        and not config.ttl_ms
        and topic.queue is None
        and not topic.memory_through
        and _has_only_numbers(topic)
    )


def is_described_plainly(topic: Topic) -> bool:
    """Return whether its description has only what `PlainDescription` has."""
    return topic.producers is None and topic.readers is None and not topic.feeders and _has_only_numbers(topic)


def _has_only_numbers(topic: Topic) -> bool:
    floors = topic.floors
    return topic.hops is None and not floors.dead_through and not floors.gaps and topic.name != STAGING


def short_descriptions(topics: Sequence[Topic]) -> list[bytes]:
    """Return the descriptions of topics without long gaps, most of them in a fifth of the time."""
    plain = [is_described_plainly(topic) for topic in topics]
    found = iter(plain_descriptions([topic for topic, is_plain in zip(topics, plain, strict=True) if is_plain]))
    return [
        next(found) if is_plain else _ENCODER.encode(image_of(topic, None))
        for topic, is_plain in zip(topics, plain, strict=True)
    ]


def plain_descriptions(topics: Sequence[Topic]) -> list[bytes]:
    """Return the descriptions of topics that are described plainly, in a fifth of the time."""
    numbers, configs = config_table([topic.config for topic in topics])
    lines = _ENCODER.encode_lines(
        [
            PlainDescription(
                topic.name,
                topic.id,
                topic.order,
                configs[number],
                topic.head,
                topic.last_ts,
                0 if topic.reserved == NO_RESERVATION else topic.reserved,
                topic.generation,
            )
            for topic, number in zip(topics, numbers, strict=True)
        ]
    )
    return lines.split(b"\n")[:-1]


KeyRows = tuple[int, list[KeyRow]]
"""Topic id, and some of its idempotency keys."""
ProducerRows = tuple[int, list[ProducerRow]]
"""Topic id, and some of its producers."""
ReaderRows = tuple[int, list[ReaderRow]]
"""Topic id, and some of its named readers."""


class TopicsSnapshot(msgspec.Struct):
    last_id: int
    last_order: int
    topics: list[TopicImage]
    """The topics that are not in `plain`."""
    plain: list[PlainTopics] = []
    last_lease: int = 0
    """The highest lease id that may have been used."""
    routers: list[RouterImage] = []
    ties: list[tuple[int, int]] = []
    """Source and destination (topic ids) of deleted routers whose forwards the log may still
    hold.
    """
    keys: list[KeyRows] = []
    producers: list[ProducerRows] = []
    """Rows of producers; a later row of a producer is newer."""
    readers: list[ReaderRows] = []


class EncodedSnapshot(msgspec.Struct):
    """A `TopicsSnapshot` whose long lists are not decoded yet: item by item, that takes steps."""

    last_id: int
    last_order: int
    topics: list[msgspec.Raw]
    plain: list[msgspec.Raw] = []
    last_lease: int = 0
    routers: list[RouterImage] = []
    ties: list[tuple[int, int]] = []
    keys: list[msgspec.Raw] = []
    producers: list[msgspec.Raw] = []
    readers: list[msgspec.Raw] = []


EncodedItems = list[msgspec.Raw] | list[memoryview]


def encoded_in_steps(
    snapshot: bytes | memoryview,
) -> Generator[None, None, tuple[EncodedSnapshot, EncodedItems, EncodedItems]]:
    """Decode a snapshot, without the members of its long lists, in bounded steps.

    Return it, its `topics` and its `plain` (views of the snapshot, since a Raw of them copies their
    bytes).
    """
    rest, (topics, plain) = yield from members_in_steps(snapshot, _TOPICS, _PLAIN)
    image = msgspec.json.decode(rest, type=EncodedSnapshot)
    return image, topics or image.topics, plain or image.plain


class PreparedSnapshot:
    """The topics of a snapshot, encoded step by step: JSON, a comma before each item."""

    def __init__(self) -> None:
        self.topics: list[bytes] = []
        """Pieces with any number of images each."""
        self.plain: list[bytes] = []
        """Encoded `PlainTopics`."""
        self.keys: list[bytes] = []
        """Encoded `KeyRows`."""
        self.producers: list[bytes] = []
        """Encoded `ProducerRows`."""
        self.readers: list[bytes] = []
        """Encoded `ReaderRows`."""


class Rest(msgspec.Struct):
    """The members of `TopicsSnapshot` other than the long lists."""

    last_id: int
    last_order: int
    last_lease: int
    routers: list[RouterImage]
    ties: list[tuple[int, int]]

    def pack(self, lists: Mapping[bytes, Sequence[bytes]]) -> list[bytes | memoryview]:
        """Encode a `TopicsSnapshot` as JSON in pieces.

        lists: the other members by name. Each holds the encoded items, a comma before each, in
        pieces of any number of items.
        """
        pieces: list[bytes | memoryview] = []
        for name, items in lists.items():
            pieces.append(b'%b"%b":[' % (b"," if pieces else b"{", name))
            encoded = [piece for piece in items if piece]
            if encoded:
                pieces += [memoryview(encoded[0])[1:], *encoded[1:]]
            pieces.append(b"]")
        return [*pieces, b"," + msgspec.json.encode(self)[1:]]


def key_rows_of(topic: Topic, now_ms: int) -> Iterator[list[KeyRow]]:
    """Yield the idempotency keys that survive a restart, a thousand at a time at most."""
    if topic.keys is not None:
        for some in topic.keys.within(now_ms, topic.config.idempotency_window_ms, topic.head):
            yield [KeyRow(key, entry.first_seq, entry.records, entry.started_ms) for key, entry in some]


def is_long(topic: Topic) -> bool:
    """Return whether the image of a topic in a snapshot takes steps: see `LongImage`."""
    return has_long_gaps(topic) or (topic.queue is not None and topic.queue.is_long)


def has_long_gaps(topic: Topic) -> bool:
    return len(topic.floors.gaps) > _GAPS_A_STEP


class LongImage:
    """The image of a topic with very many gaps or leases, encoded in bounded steps.

    Leases are encoded first, then attempts, then all gaps but the newest; the last step encodes
    everything else, of one instant. What was encoded may change before that, and the snapshot stays
    correct:

    - A lease that begins, is extended or ends meanwhile is in the log after the cut. No frame
      states that a lease expired. If it expires before its step, its attempt exists at the later
      step of attempts; if it expires after, a start finds that.
    - Attempts come in the order of failures. A job that fails once more comes again with all its
      attempts, or the log has the later one.
    - A gap that has become part of a floor is also in the floors, and a start settles it again. A
      hole that opens meanwhile is in the log after the cut. Only the newest gap can grow, and the
      last step has it.
    """

    def __init__(self, topic: Topic, now_ms: int | None) -> None:
        """now_ms: as in `image_of`."""
        self._topic = topic
        self._now_ms = now_ms
        self._gaps = _Members()
        self._leases = _Members()
        self._attempts = _Members()
        self._through = 0
        """The seq up to which gaps are encoded."""

    def steps(self) -> Iterator[None]:
        """Encode leases and attempts, and gaps until few are left."""
        topic = self._topic
        if self._now_ms is not None and topic.queue is not None and topic.keeps_leases:
            for leases in topic.queue.image_in_steps():
                self._leases.add(leases)
                yield
            for attempts in topic.queue.attempts_in_steps():
                self._attempts.add(attempts)
                yield
        while len(some := self._next()) > _GAPS_A_STEP:
            self._gaps.add(some[:-1])
            self._through = some[-2].last
            yield

    def _next(self) -> list[Gap]:
        return self._topic.floors.gaps.ending_above(self._through, _GAPS_A_STEP + 1)

    def end(self) -> list[bytes]:
        """Encode the rest, of this instant, and return all pieces."""
        self._gaps.add(self._next())
        pieces = [msgspec.json.encode(image_of(self._topic, self._now_ms, is_rest=True))[:-1]]
        for name, members in ((b"gaps", self._gaps), (b"leases", self._leases), (b"attempts", self._attempts)):
            if members.pieces:
                pieces += [b',"%b":[' % name, *members.pieces, b"]"]
        return [*pieces, b"}"]


class _Members:
    """Members of a JSON array, encoded some at a time."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        """A comma before the first member of each piece but the first."""

    def add(self, some: Sequence[object]) -> None:
        if some:
            self.pieces.append((b"," if self.pieces else b"") + msgspec.json.encode(some)[1:-1])


def image_of(topic: Topic, now_ms: int | None, *, is_rest: bool = False) -> TopicImage:
    """Return the committed state of a topic, without idempotency keys.

    now_ms: None for the description in its files. is_rest: without gaps, leases and attempts.
    """
    producers: list[ProducerRow] = []
    if now_ms is None and topic.producers is not None:
        producers = topic.producers.described()
    leases: list[LeaseRow] = []
    attempts: list[AttemptRow] = []
    if now_ms is not None and topic.queue is not None and topic.keeps_leases and not is_rest:
        leases, attempts = topic.queue.image(), topic.queue.attempts()
    return TopicImage(
        topic.name,
        topic.id,
        topic.order,
        msgspec.Raw(topic.config.as_json()),
        topic.head,
        topic.last_ts,
        FloorMarks.of(topic.floors),
        [(gap.first, gap.last, gap.reason) for gap in topic.floors.gaps] if not is_rest else [],
        0 if topic.reserved == NO_RESERVATION else topic.reserved,
        topic.generation,
        [],
        leases,
        list(topic.hops.runs) if topic.hops is not None else [],
        images_of(list(topic.feeders)) if now_ms is None else [],
        topic.incarnation if now_ms is not None else "",
        producers,
        [],
        topic.readers.described() if now_ms is None and topic.readers is not None else [],
        attempts,
        topic.queue.move if now_ms is not None and topic.queue is not None else None,
    )
