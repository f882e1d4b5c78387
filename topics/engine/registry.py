"""All topics, by name and by id, and the counters that outlive them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

from topics.engine.results import EngineStats
from topics.engine.topic import Life, Topic
from topics.engine.topic_config import DURABILITIES
from topics.engine.usage import Usage

STAGING = " staged"
"""The name of the staging area, in the log and in snapshots: no topic can have it."""


class Registry:
    """`by_name` holds topics being created and deleted, too: a name is taken until its topic is gone.

    The staging area of producers is a topic by its records and its id alone: it has no name that anybody finds.
    """

    def __init__(self) -> None:
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[int, Topic] = {}
        self.staging: Topic | None = None
        self._names: list[str] = []
        """Of `by_name`, sorted; names are ASCII, so this is the order of bytes."""
        self.last_id = 0
        """Ids are never used again."""
        self.last_order = 0
        """Of the frames that create, configure and delete topics, over all topics."""

    def __len__(self) -> int:
        return len(self.by_name)

    def take_id(self) -> int:
        self.last_id += 1
        return self.last_id

    def take_order(self) -> int:
        self.last_order += 1
        return self.last_order

    def holder(self, name: str) -> Topic | None:
        """The topic that has the name, that of the staging area among them."""
        return self.staging if name == STAGING else self.by_name.get(name)

    def add(self, topic: Topic) -> None:
        assert self.holder(topic.name) is None, "a name is one topic's"
        if topic.name == STAGING:
            self.staging = topic
        else:
            self.by_name[topic.name] = topic
            insort(self._names, topic.name)
        self.by_id[topic.id] = topic
        self.last_id = max(self.last_id, topic.id)
        self.last_order = max(self.last_order, topic.order)

    def remove(self, topic: Topic) -> None:
        topic.life = Life.GONE
        if topic.producers is not None:
            topic.producers.clear()
        del self.by_id[topic.id]
        if topic is self.staging:
            self.staging = None
            return
        del self.by_name[topic.name]
        del self._names[bisect_left(self._names, topic.name)]

    def visible(self, name: str) -> Topic | None:
        """The topic readers see under this name."""
        topic = self.by_name.get(name)
        return topic if topic is not None and topic.visible else None

    def after(self, name: str, prefix: str = "") -> Iterator[Topic]:
        """Visible topics behind `name` whose names begin with `prefix`, ascending."""
        names = self._names
        for at in range(max(bisect_right(names, name), bisect_left(names, prefix)), len(names)):
            if not names[at].startswith(prefix):
                return
            topic = self.by_name[names[at]]
            if topic.visible:
                yield topic

    def stats(self, usage: Usage, routers: int, now_ms: int) -> EngineStats:
        by_class = dict.fromkeys(DURABILITIES, 0)
        queues = leases = 0
        for topic in self.by_name.values():
            if topic.visible:
                by_class[topic.config.durability] += 1
                if topic.queue is not None:
                    queues += 1
                    leases += topic.queue.counters(now_ms).in_flight
        records, size = usage.records, usage.bytes
        if self.staging is not None:
            records -= self.staging.index.live
            size -= self.staging.index.bytes
        return EngineStats(sum(by_class.values()), by_class, queues, routers, records, size, leases)
