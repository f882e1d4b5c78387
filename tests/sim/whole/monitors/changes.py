"""Topics and routers are shown only once their state is on stable storage; the end of those that
are not shown any more is durable, too (R-DUR-1), and in class `fsync` expiry is (R-DUR-8). The
running engine is asked, because a client is answered when a change is applied.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tests.engine.shared.plain_images import topic_images
from tests.sim.whole.monitors.controls import Controls
from topics.engine.state.router import RouterLife
from topics.engine.state.topic import Life
from topics.store.format.log_format import FrameType

if TYPE_CHECKING:
    from tests.sim.whole.monitors.listed import Listed
    from tests.sim.whole.monitors.watched_process import Served

_NAME = re.compile(rb'\{"name":')
_CONFIG = re.compile(rb'\{"config":')
_EMPTY = re.compile(rb"\{\}")
_ID = re.compile(rb'\{"id":(\d+)')
_EXPIRY = re.compile(rb'\{"upto":\d+(?:,"cap":\[\d+,\d+\])?,"ttl":(\d+)')
"""The beginning of the payloads of these frames."""
Pair = tuple[int, int]
"""The id of a topic or router, and the number that orders its change (of an expiry, the last seq).
"""


class Changes:
    """The checks of one directory."""

    def __init__(self, machine: Served) -> None:
        self._machine = machine
        self._topics = (
            Controls(FrameType.TOPIC_CREATE, _NAME, _of_topic),
            Controls(FrameType.TOPIC_CONFIG, _CONFIG, _of_topic),
        )
        self._topic_ends = (Controls(FrameType.TOPIC_DELETE, _EMPTY, _of_topic),)
        self._routers = (Controls(FrameType.ROUTER_PUT, _ID, _of_router),)
        self._router_ends = (Controls(FrameType.ROUTER_DELETE, _ID, _of_router),)
        self._expiries = (Controls(FrameType.FLOORS, _EXPIRY, _of_expiry),)
        self._expired: dict[int, int] = {}
        """By topic id: the seq up to which all had expired when it was last checked in this life.
        """
        self._shown_topics: dict[int, int] = {}
        """By id: the order number of the last change that was checked in this life."""
        self._shown_routers: dict[int, tuple[int, Pair]] = {}
        """By id of a router: its order number, with the ids of source and destination, whose end ends the router.
        """

    def started(self) -> None:
        """Note that a server has recovered."""
        self._shown_topics.clear()
        self._shown_routers.clear()
        self._expired.clear()
        kinds = (self._topics, self._topic_ends, self._routers, self._router_ends, self._expiries)
        for controls in (controls for kind in kinds for controls in kind):
            controls.clear()

    def look(self, core: Any) -> None:
        topics = {
            topic.id: topic.order for topic in core.registry.by_id.values() if topic.life in (Life.LIVE, Life.DELETING)
        }
        routers = {
            router.id: (router.order, (router.source.id, router.dest.id))
            for router in core.routers.by_name.values()
            if router.life in (RouterLife.LIVE, RouterLife.DELETING)
        }
        expired = {
            topic.id: topic.floors.ttl
            for topic in core.registry.by_id.values()
            if topic.life is Life.LIVE and topic.stage_class == topic.config.durability == "fsync" and topic.floors.ttl
            if topic.config.ttl_ms  # what expires by itself is judged by its clients (expiring.py)
        }
        if (topics, routers, expired) == (self._shown_topics, self._shown_routers, self._expired):
            return
        listed = self._machine.monitor.snapshot(durable=True)
        assert listed is not None, "a server that serves has a snapshot"
        self._look_at_topics(core, topics, listed)
        self._look_at_routers(core, routers, listed)
        self._look_at_expiry(core, expired, listed)
        self._shown_topics, self._shown_routers, self._expired = topics, routers, expired

    def _look_at_topics(self, core: Any, topics: dict[int, int], listed: Listed) -> None:
        images = {image.id: image.order for image in topic_images(listed.topics)}
        for topic_id, order in topics.items() - self._shown_topics.items():
            if images.get(topic_id, -1) < order and (topic_id, order) not in self._durable(self._topics, listed):
                raise self._wrong(f"topic {core.registry.by_id[topic_id].name} is as change {order} made it", listed)
            self._count()
        for topic_id in self._shown_topics.keys() - topics.keys():
            if core.registry.has_id(topic_id):
                continue
            if topic_id in images and topic_id not in dict(self._durable(self._topic_ends, listed)):
                raise self._wrong(f"topic {topic_id} is gone", listed)
            self._count()

    def _look_at_routers(self, core: Any, routers: dict[int, tuple[int, Pair]], listed: Listed) -> None:
        images = {image.id: image.order for image in listed.topics.routers}
        for router_id, (order, _ends) in routers.items() - self._shown_routers.items():
            if images.get(router_id, -1) < order and (router_id, order) not in self._durable(self._routers, listed):
                raise self._wrong(f"router {router_id} is as change {order} made it", listed)
            self._count()
        there = {router.id for router in core.routers.by_name.values()}
        for router_id in self._shown_routers.keys() - routers.keys() - there:
            _order, ends = self._shown_routers[router_id]
            if all(core.registry.has_id(topic_id) for topic_id in ends) and router_id in images:
                if router_id not in dict(self._durable(self._router_ends, listed)):
                    raise self._wrong(f"router {router_id} is gone", listed)
                self._count()

    def _look_at_expiry(self, core: Any, expired: dict[int, int], listed: Listed) -> None:
        images = {image.id: image.floors.ttl for image in topic_images(listed.topics)}
        for topic_id, upto in expired.items() - self._expired.items():
            if images.get(topic_id, 0) < upto and (topic_id, upto) not in self._durable(self._expiries, listed):
                name = core.registry.by_id[topic_id].name
                raise self._wrong(f"topic {name} has expired up to seq {upto}", listed)
            self._count()

    def _durable(self, kinds: tuple[Controls[Pair], ...], listed: Listed) -> set[Pair]:
        """Return the changes that a replay after a power cut would find."""
        files = [file for file, _end in self._machine.monitor.files_of(listed, log_only=True)]
        return {pair for file in files for controls in kinds for pair in controls.of(file)}

    def _count(self) -> None:
        self._machine.counts["changes found to be durable"] += 1

    def _wrong(self, what: str, listed: Listed) -> Exception:
        return self._machine.wrong(f"{what}, and a power cut may undo it: snapshot {listed.number} does not know of it")


def _of_topic(topic_id: int, order: int, _match: re.Match[bytes]) -> list[Pair]:
    return [(topic_id, order)]


def _of_expiry(topic_id: int, _order: int, match: re.Match[bytes]) -> list[Pair]:
    return [(topic_id, int(match[1]))]


def _of_router(_topic_id: int, order: int, match: re.Match[bytes]) -> list[Pair]:
    return [(int(match[1]), order)]
