"""The state of every topic and router as clients see it, and whether it is the same as before."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.contract.world.sim_world import SimWorld

_QUIET_MS = 700
"""Longer than short leases, and than the timers of routers and syncs every 50 ms."""
_LOOKS_MAX = 12
_FROM_SEQS = (0, 2, 5, 11)
_OF_A_LIFE = ("performance", "last_write_ts", "last_read_ts", "effective_priority", "queue")
"""Fields of a topic's state that may change with a restart, or by reading."""
_TEXT_MAX = 700


class Different(AssertionError):
    """Clients see another state than before, or than was acknowledged."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The state by name of the topic or router. pages: diffs by topic and from_seq."""

    topics: dict[str, Any]
    pages: dict[tuple[str, int], Any]
    routers: dict[str, Any]

    def records(self) -> Iterator[tuple[str, list[Any]]]:
        """Yield topics, and all their readable records."""
        for (topic, from_seq), page in self.pages.items():
            if from_seq == 0:
                yield topic, page["records"]

    def after_a_power_cut(self) -> Seen:
        """Return the state after a power cut if all was synced: heads, gaps and counts of copies
        follow reservations.
        """
        return Seen(
            {topic: {key: state[key] for key in ("config", "count", "bytes")} for topic, state in self.topics.items()},
            {(topic, 0): records for topic, records in self.records()},
            {name: {**router, "forwarded_total": None} for name, router in self.routers.items()},
        )

    def check_same(self, after: Seen, when: str) -> None:
        """Raise Different, with both states, if they differ."""
        told: list[str] = []
        pairs: tuple[tuple[Mapping[Any, Any], Mapping[Any, Any]], ...] = (
            (self.topics, after.topics),
            (self.pages, after.pages),
            (self.routers, after.routers),
        )
        for mine, others in pairs:
            for key in sorted(mine.keys() | others.keys()):
                if mine.get(key) != others.get(key):
                    told.append(f"  {key}\n    before {_text(mine.get(key))}\n    after  {_text(others.get(key))}")
        if told:
            raise Different("\n".join([when, *told[:6]]))


def look(world: SimWorld, from_seqs: tuple[int, ...] = _FROM_SEQS) -> Seen:
    client = world.connect()

    def get(path: str) -> Any:
        return client.request("GET", path).json

    seen = Seen({}, {}, {})
    for entry in get("/v0/routers")["routers"]:
        name = entry["router"]
        seen.routers[name] = _without(get(f"/v0/routers/{name}"), "performance")
    for entry in get("/v0/topics")["topics"]:
        topic = entry["topic"]
        state = get(f"/v0/topics/{topic}?touch=false")
        seen.topics[topic] = _without(state, *_OF_A_LIFE)
        if state["config"].get("leases_durable"):
            seen.topics[topic]["in_flight"] = state["queue"]["in_flight"]
        for from_seq in from_seqs:
            body = {"from_seq": from_seq, "include_tags": True, "limit": 1000}
            page = client.request("POST", f"/v0/topics/{topic}/diff", body).json
            seen.pages[topic, from_seq] = _without(page, "performance")
    client.reset()
    return seen


def look_when_still(world: SimWorld) -> Seen:
    """Return the state once nothing changes any more: requests in flight, routers, leases that end."""
    world.ring.slow_ns.clear()
    world.advance_ms(_QUIET_MS)
    before = look(world, ())
    for _ in range(_LOOKS_MAX):
        world.advance_ms(_QUIET_MS)
        seen = look(world)
        if (seen.topics, seen.routers) == (before.topics, before.routers):
            return seen
        before = seen
    raise Different("there is no end of changes, though nobody asks for any")


def _without(answer: Any, *names: str) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name not in names}


def _text(value: Any) -> str:
    return json.dumps(value)[:_TEXT_MAX]
