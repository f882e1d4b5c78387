"""All topics, by name and by id, and the counters that outlive them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

from topics.engine.results import EngineStats
from topics.engine.topic import Life, Topic
from topics.engine.topic_config import DURABILITIES
from topics.engine.usage import Usage


class Registry:
    """`by_name` holds topics being created and deleted, too: a name is taken until its topic is gone."""

    def __init__(self) -> None:
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[int, Topic] = {}
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

    def add(self, topic: Topic) -> None:
        assert topic.name not in self.by_name, "a name is one topic's"
        self.by_name[topic.name] = topic
        self.by_id[topic.id] = topic
        insort(self._names, topic.name)
        self.last_id = max(self.last_id, topic.id)
        self.last_order = max(self.last_order, topic.order)

    def remove(self, topic: Topic) -> None:
        topic.life = Life.GONE
        if topic.producers is not None:
            topic.producers.clear()
        del self.by_name[topic.name]
        del self.by_id[topic.id]
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
        return EngineStats(sum(by_class.values()), by_class, queues, routers, usage.records, usage.bytes, leases)
