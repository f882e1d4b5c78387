"""All topics, by name and by id, and the counters that outlive them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from topics.common.id_blocks import IdDict
from topics.config import DURABILITIES
from topics.engine.index.usage import Usage
from topics.engine.shared.dormant import Dormant, DormantBlocks, DormantTopic
from topics.engine.shared.names_in_blocks import ByName, SortedNames, sorted_in_steps
from topics.engine.state.topic import STAGING, Life, Topic, stand_in
from topics.engine.values.name_rules import Prefixes, starts_of
from topics.engine.values.topic_config import TopicConfig
from topics.store.disk.directory_format import DIRECTORY_SHIFT

_MADE_A_STEP = 64


def only_core(_name: str) -> int:
    """Return the core of a topic where there is only one."""
    return 0


class Registry:
    """The registry of topics.

    `by_name` includes topics being created and deleted: a name is taken until its topic is gone.
    Dormant topics are in neither `by_name` nor `by_id` until `named` or `with_id` returns them. The
    staging area of producers has records and an id like a topic, but no name that a client can
    find.
    """

    def __init__(
        self, usage: Usage, directory_number: int = 0, core_of: Callable[[str], int] = only_core, own_core: int = 0
    ) -> None:
        """directory_number: that of the core directory; 0: it is the directory of one core.

        core_of(name): returns the core that owns a topic. own_core: the number of this one.
        """
        self.by_name = ByName[Topic]()
        self.by_id = IdDict[Topic]()
        self._usage = usage
        self.dormant = Dormant.none(usage)
        self.staging: Topic | None = None
        self._names = SortedNames()
        """The names in `by_name` and of dormant topics."""
        self.visible_by_class = dict.fromkeys(DURABILITIES, 0)
        """The number of visible topics by class, maintained because probes read it often."""
        self.queues: dict[Topic, None] = {}
        """The visible queues."""
        self.with_readers: dict[Topic, None] = {}
        """The topics with named readers."""
        self.directory_number = directory_number
        self.last_id = directory_number << DIRECTORY_SHIFT
        """The newest topic id that was given out here; ids are never reused."""
        self.ids_end = (directory_number + 1) << DIRECTORY_SHIFT if directory_number else 1 << 64
        """Ids given out here are below it. Those of topics from other core directories are below
        all of them, or not below this.
        """
        self.last_order = 0
        """The newest order number of create, config and delete frames, over all topics."""
        self._core_of = core_of
        self._own_core = own_core

    def __len__(self) -> int:
        return len(self.by_name) + len(self.dormant)

    def core_of(self, name: str) -> int:
        """Return the core that owns a topic."""
        return self._core_of(name)

    def are_apart(self, name: str, other: str) -> bool:
        """Return whether two topics are on two cores."""
        return self._core_of(name) != self._core_of(other)

    def stand_in(self, name: str, topic_id: int) -> Topic:
        """Return what stands in for a topic of another core."""
        return stand_in(name, topic_id, self._usage)

    def owns(self, name: str) -> bool:
        """Return whether this core owns a topic."""
        return self._core_of(name) == self._own_core

    @property
    def visible_count(self) -> int:
        """The number of topics that readers see."""
        return sum(self.visible_by_class.values())

    def take_id(self) -> int:
        self.last_id += 1
        return self.last_id

    def note_id(self, topic_id: int) -> None:
        """Note that an id was given out, here or in another core directory."""
        if self.last_id < topic_id < self.ids_end:
            self.last_id = topic_id

    def take_order(self) -> int:
        self.last_order += 1
        return self.last_order

    def named(self, name: str) -> Topic | None:
        """Return the topic with the name, creating it if it is dormant."""
        topic = self.by_name.get(name)
        if topic is None and (row := self.dormant.by_name.get(name)) is not None:
            topic = self._make(row)
        return topic

    def with_id(self, topic_id: int) -> Topic | None:
        """Return the topic with the id, creating it if it is dormant."""
        topic = self.by_id.get(topic_id)
        if topic is None and (row := self.dormant.by_id.get(topic_id)) is not None:
            topic = self._make(row)
        return topic

    def _make(self, row: int) -> Topic:
        topic = self.dormant.make(row)
        self.by_name[topic.name] = self.by_id[topic.id] = topic
        return topic

    def is_dormant(self, name: str) -> bool:
        return name in self.dormant.by_name

    def has_id(self, topic_id: int) -> bool:
        return topic_id in self.by_id or topic_id in self.dormant.by_id

    def holder(self, name: str) -> Topic | None:
        """Return the topic with the name; the staging area has a name here, too."""
        return self.staging if name == STAGING else self.named(name)

    def add_dormant(self, blocks: DormantBlocks) -> Iterator[None]:
        """Add the topics of a snapshot, before any other, in bounded steps."""
        assert not self.by_id, "no name is taken"
        columns = yield from blocks.columns()
        self.dormant = dormant = Dormant(self._usage, blocks, columns)
        yield
        self._names = yield from sorted_in_steps(dormant.names)
        for durability, count in blocks.by_class.items():
            self.visible_by_class[durability] += count
        self.note_id(dormant.last_id_below(self.ids_end))
        self.last_order = max(self.last_order, dormant.last_order)

    def make_all(self) -> Iterator[None]:
        """Create all dormant topics, in bounded steps."""
        for number, row in enumerate(self.dormant.by_id.values(), 1):
            self._make(row)
            if number % _MADE_A_STEP == 0:
                yield
        yield

    def add(self, topic: Topic) -> None:
        assert self.holder(topic.name) is None, "a name is one topic's"
        if topic.name == STAGING:
            self.staging = topic
        else:
            self.by_name[topic.name] = topic
            self._names.add(topic.name)
        self.by_id[topic.id] = topic
        self.note_id(topic.id)
        self.last_order = max(self.last_order, topic.order)
        if topic.visible:
            self._count(topic, 1)

    def show(self, topic: Topic) -> None:
        """Make a topic visible, whose creation is durable."""
        topic.is_made = True
        self._count(topic, 1)

    def configure(self, topic: Topic, applied: TopicConfig, staged: TopicConfig) -> None:
        """Set the config of a topic, and correct the counters if it is visible."""
        if topic.visible:
            self._count(topic, -1)
        topic.set_config(applied, staged)
        if topic.visible:
            self._count(topic, 1)

    def remove(self, topic: Topic) -> None:
        if topic.visible:
            self._count(topic, -1)
        topic.enter(Life.GONE)
        if topic.producers is not None:
            topic.producers.clear()
        if topic.queue is not None:
            topic.index.usage.reclaim.run(topic.queue.released())
        if topic.keys is not None:
            topic.index.usage.reclaim.run(topic.keys.released())
        del self.by_id[topic.id]
        self.with_readers.pop(topic, None)
        if topic is self.staging:
            self.staging = None
            return
        del self.by_name[topic.name]
        self._names.remove(topic.name)

    def all_but_staging(self) -> Iterator[Topic]:
        """Yield the topics of `by_name`. What changes meanwhile may be among them or not."""
        return (topic for topic in self.by_id.values() if topic is not self.staging)

    def visible(self, name: str) -> Topic | None:
        """Return the topic that readers see under this name."""
        topic = self.named(name)
        return topic if topic is not None and topic.visible else None

    def listed(self, name: str) -> Topic | DormantTopic | None:
        """Return the topic that readers see under this name, without creating a dormant one."""
        topic = self.by_name.get(name)
        if topic is not None:
            return topic if topic.visible else None
        row = self.dormant.by_name.get(name)
        return None if row is None else DormantTopic(self.dormant, row)

    def after(self, name: str, prefix: str = "", within: Prefixes = ()) -> Iterator[Topic | DormantTopic]:
        """Yield visible topics after `name`, ascending: with `prefix` and one of `within`.

        The cost depends only on the matching names.
        """
        return self.beginning_with(starts_of((prefix,), within), name)

    def beginning_with(self, starts: Sequence[str], after: str = "") -> Iterator[Topic | DormantTopic]:
        """Yield visible topics after a name that begin with one of `starts`, ascending.

        starts: as `starts_of` returns them.
        """
        for start in starts:
            for name in self._names.from_name(max(start, f"{after}\0")):
                if not name.startswith(start):
                    break
                topic = self.listed(name)
                if topic is not None:
                    yield topic

    def _count(self, topic: Topic, change: int) -> None:
        if topic is self.staging:
            return
        self.visible_by_class[topic.config.durability] += change
        if topic.queue is not None:
            if change > 0:
                self.queues[topic] = None
            else:
                del self.queues[topic]
