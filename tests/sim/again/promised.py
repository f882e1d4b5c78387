"""Seqs that were acknowledged in a class in which none is ever given to another record."""

from __future__ import annotations

from collections import defaultdict

from tests.contract.world.answer import Answer
from tests.sim.again.asks import Ask
from tests.sim.again.seen_state import Different, Seen

_PROMISING = ("disk", "fsync")


class Promised:
    """The acknowledged seqs by topic.

    Requests for a topic take effect in the order in which they are sent; after one without an
    answer its state is unknown until a later PUT is answered.
    """

    def __init__(self) -> None:
        self._data: defaultdict[str, dict[int, str]] = defaultdict(dict)
        self._promising: set[str] = set()
        """Topics known to exist, in such a class."""

    def sent(self, ask: Ask) -> None:
        """Note a request without an answer."""
        if ask.topic is not None and ask.is_of_whole_topic:
            self._promising.discard(ask.topic)
            if ask.method == "DELETE":
                self._data.pop(ask.topic, None)

    def answered(self, ask: Ask, answer: Answer) -> None:
        topic = ask.topic
        if topic is None or not (ask.is_of_whole_topic or ask.is_write):
            return
        if answer.status == 201:
            self._data.pop(topic, None)  # a new one
        if ask.is_of_whole_topic:
            self.sent(ask)
            if ask.method == "PUT" and answer.status in (200, 201):
                self._know(topic, answer.json["config"]["durability"])
        elif topic in self._promising and answer.status == 200 and not answer.json["deduped"]:
            for seq, record in enumerate(ask.body["records"], answer.json["first_seq"]):
                self._compare(topic, seq, record["data"])
                self._data[topic][seq] = record["data"]

    def start(self, seen: Seen) -> None:
        """Note that a life has begun, with no request in flight."""
        self._promising.clear()
        for topic, state in seen.topics.items():
            self._know(topic, state["config"]["durability"])

    def forget(self) -> None:
        """Drop the seqs acknowledged so far: they may be lost unnoticed
        (docs/internals/simulation.md, "Its limits").
        """
        self._data.clear()

    def check(self, seen: Seen) -> int:
        """Return how many of them are shown. Raises: Different."""
        shown = 0
        for topic, records in seen.records():
            for record in records:
                shown += self._compare(topic, record["$seq"], record["data"])
        return shown

    def _compare(self, topic: str, seq: int, data: str) -> bool:
        """Return whether the seq is one of them."""
        promised = self._data[topic].get(seq)
        if promised not in (None, data):
            raise Different(f"{topic} {seq} was acknowledged for {promised}, and is now {data}")
        return promised is not None

    def _know(self, topic: str, durability: str) -> None:
        if durability in _PROMISING:
            self._promising.add(topic)
