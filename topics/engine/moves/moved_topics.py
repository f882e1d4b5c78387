"""The topics in the snapshots of all cores, divided anew: each gets those of its slots.

All that a topic has comes along: its config and numbers, floors and gaps, leases and attempts,
keys, producers and readers, and the routers of which it is an end. The staging area of producers
stays where it is, and so does a topic with pieces in it. A router between cores stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from topics.engine.shared.topic_snapshot import PlainTopics, Rest, TopicImage, TopicsSnapshot
from topics.engine.state.control_frames import parse_config
from topics.engine.state.router_frames import FarEnd, RouterImage
from topics.engine.state.topic import STAGING
from topics.errors import CorruptError, UsageError
from topics.store.cores.slot_map import SlotMap
from topics.store.disk.directory_format import DIRECTORY_SHIFT

_REMEDY = "or start with 1 core"


class Division(NamedTuple):
    """Topics divided among cores."""

    catalogs: list[list[bytes | memoryview]]
    """By core after the move, the catalog's part of its next snapshot, in pieces."""
    leaving: list[dict[int, int]]
    """By core before the move, the ids of topics that leave it, and their new core."""
    has_far_dead_letters: bool
    """Whether a queue and its dead-letter topic are on two cores after the move."""


def divide(catalogs: Sequence[bytes | memoryview], before: SlotMap, after: SlotMap, next_number: int) -> Division:
    """Divide the topics of some cores anew.

    catalogs: by core before the move, the catalog's part of its snapshot. next_number: as in
    `StoredMap`.
    Raises: UsageError, an engine cannot have what its topics need on another core; CorruptError, a
    topic is on a core that does not own its slot.
    """
    images = [msgspec.json.decode(catalog, type=TopicsSnapshot) for catalog in catalogs]
    parts = [_CoreTopics() for _ in range(after.cores)]
    leaving: list[dict[int, int]] = []
    has_far_dead_letters = False
    for core, image in enumerate(images):
        found = _Owners(core, before, after)
        for topic in image.topics:
            _take_topic(found, topic, parts)
        for block in image.plain:
            _take_plain(found, block, parts)
        _take_rows(found, image, parts)
        _take_routers(found, image, parts)
        leaving.append({topic_id: owner for topic_id, owner in found.by_id.items() if owner != core})
        has_far_dead_letters |= found.has_far_dead_letters
    last_order = max(image.last_order for image in images)
    for core, part in enumerate(parts):
        last_order = part.number_routers(core, last_order)
    last_lease = max(image.last_lease for image in images)
    last_ids = [images[core].last_id if core < len(images) else 0 for core in range(after.cores)]
    if after.cores == 1:  # ids continue after all that any core has given out
        last_ids = [max((next_number - 1) << DIRECTORY_SHIFT, *(image.last_id for image in images))]
    return Division(
        [part.packed(last_id, last_order, last_lease) for part, last_id in zip(parts, last_ids, strict=True)],
        leaving,
        has_far_dead_letters,
    )


class _Owners:
    """The new cores of the topics of one core."""

    def __init__(self, core: int, before: SlotMap, after: SlotMap) -> None:
        self.core = core
        self._before = before
        self._after = after
        self.by_id: dict[int, int] = {}
        self.names: dict[int, str] = {}
        self.has_far_dead_letters = False

    def take(self, topic_id: int, name: str) -> int:
        """Return the new core of a topic. Raises: CorruptError."""
        owner = self._before.core_of(name)
        if owner != self.core:
            raise CorruptError(f"topic {name} is on core {self.core}, and core {owner} owns its slot")
        self.names[topic_id] = name
        owner = self.by_id[topic_id] = self._after.core_of(name)
        return owner

    def check_half(self, router: RouterImage, far: FarEnd) -> None:
        """Check that both ends of a router between cores stay on them. Raises: UsageError."""
        here = self.names[router.dest if far.is_source else router.source]
        before = [self._before.core_of(name) for name in (here, far.name)]
        after = [self._after.core_of(name) for name in (here, far.name)]
        if before != after:
            raise UsageError(
                f"router {router.name} copies between {here} and {far.name}, on cores {before[0]} and {before[1]}, "
                f"which would be on cores {after[0]} and {after[1]}: delete the router, or start with the number of "
                "cores as before"
            )

    def note_dead_letter(self, name: str, config: msgspec.Raw) -> None:
        """Note whether a queue and its dead-letter topic are on two cores after the move."""
        other = parse_config(config).dead_letter
        if other is not None and self._after.core_of(name) != self._after.core_of(other):
            self.has_far_dead_letters = True


class _CoreTopics:
    """The topics of one core after the move."""

    def __init__(self) -> None:
        self.lists: dict[bytes, list[bytes]] = {name: [] for name in (b"topics", b"plain", b"keys", b"producers")}
        self.readers: list[bytes] = []
        self.routers: list[RouterImage] = []
        self.ties: list[tuple[int, int]] = []

    def add(self, name: bytes, item: object) -> None:
        (self.readers if name == b"readers" else self.lists[name]).append(b"," + msgspec.json.encode(item))

    def number_routers(self, core: int, last_order: int) -> int:
        """Give routers from several cores different ids, which are order numbers.

        Returns: the highest order number from now on.
        Raises: UsageError, two have one name.
        """
        taken: set[int] = set()
        names: set[str] = set()
        for at, router in enumerate(self.routers):
            # A link has the name of the other half.
            is_link = router.far is not None and router.far.is_source
            if router.name in names and not is_link:
                raise UsageError(
                    f"two routers are named {router.name}, and both would be on core {core}: delete one of them, with "
                    "the number of cores as before"
                )
            if router.id in taken:
                last_order += 1
                self.routers[at] = msgspec.structs.replace(router, id=last_order)
            taken.add(self.routers[at].id)
            if not is_link:
                names.add(router.name)
        return last_order

    def packed(self, last_id: int, last_order: int, last_lease: int) -> list[bytes | memoryview]:
        lists = {**self.lists, b"readers": self.readers} if self.readers else self.lists
        return Rest(last_id, last_order, last_lease, self.routers, self.ties).pack(lists)


def _take_topic(found: _Owners, topic: TopicImage, parts: list[_CoreTopics]) -> None:
    if topic.name == STAGING:  # of a core that is given up it is empty: see `_take_rows`
        if found.core < len(parts):
            parts[found.core].add(b"topics", topic)
        return
    found.note_dead_letter(topic.name, topic.config)
    parts[found.take(topic.id, topic.name)].add(b"topics", topic)


def _take_plain(found: _Owners, block: PlainTopics, parts: list[_CoreTopics]) -> None:
    rows: dict[int, list[int]] = {}
    for row, (topic_id, name) in enumerate(zip(block.ids, block.names, strict=True)):
        found.note_dead_letter(name, block.configs[block.config[row]])
        rows.setdefault(found.take(topic_id, name), []).append(row)
    for owner, some in rows.items():
        parts[owner].add(b"plain", _selected(block, some))


def _selected(block: PlainTopics, rows: Sequence[int]) -> PlainTopics:
    used = sorted({block.config[row] for row in rows})
    return PlainTopics(
        [block.names[row] for row in rows],
        [block.ids[row] for row in rows],
        [block.orders[row] for row in rows],
        [block.heads[row] for row in rows],
        [block.last_ts[row] for row in rows],
        [block.generations[row] for row in rows],
        [block.configs[number] for number in used],
        [used.index(block.config[row]) for row in rows],
        "".join([block.incarnations[16 * row : 16 * row + 16] for row in rows]),
    )


def _take_rows(found: _Owners, image: TopicsSnapshot, parts: list[_CoreTopics]) -> None:
    """Take keys, producers and readers."""
    for name, rows in _rows_of(image):
        owner = found.by_id.get(rows[0])
        if owner is not None:
            parts[owner].add(name, rows)
    for topic in image.topics:
        for staged in topic.staged:
            owner = found.by_id.get(staged.topic_id, found.core)
            if owner != found.core:
                raise UsageError(
                    f"topic {found.names[staged.topic_id]} would be on core {owner}, and a part of producer "
                    f"{staged.producer.decode(errors='replace')} waits for its last pieces on core {found.core}: start "
                    "with the number of cores as before until the part is whole, or older than TOPICS_STAGED_TTL_MS"
                )


def _rows_of(image: TopicsSnapshot) -> Iterator[tuple[bytes, tuple[int, Sequence[object]]]]:
    yield from ((b"keys", rows) for rows in image.keys)
    yield from ((b"producers", rows) for rows in image.producers)
    yield from ((b"readers", rows) for rows in image.readers)


def _take_routers(found: _Owners, image: TopicsSnapshot, parts: list[_CoreTopics]) -> None:
    owners, names = found.by_id, found.names
    for router in image.routers:
        if router.far is not None:
            found.check_half(router, router.far)
            parts[found.core].routers.append(router)
            continue
        source, dest = owners[router.source], owners[router.dest]
        if source != dest:
            raise UsageError(
                f"router {router.name} copies from {names[router.source]} to {names[router.dest]}, which would be on "
                f"cores {source} and {dest}, and a move divides no router yet: delete it, {_REMEDY}"
            )
        parts[source].routers.append(router)
    for source_id, dest_id in image.ties:
        owner = owners.get(source_id)
        if owner is not None and owner == owners.get(dest_id):
            parts[owner].ties.append((source_id, dest_id))
