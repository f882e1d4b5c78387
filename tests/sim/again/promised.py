"""Seqs that were acknowledged in a class in which none is ever given to another record."""

from __future__ import annotations

from collections import defaultdict

from tests.contract.answer import Answer
from tests.sim.again.asks import Ask
from tests.sim.again.seen import Different, Seen

_PROMISING = ("disk", "fsync")


class Promised:
    """By topic. Only what is certain is kept: a topic whose class nobody knows promises nothing."""

    def __init__(self) -> None:
        self._data: defaultdict[str, dict[int, str]] = defaultdict(dict)
        self._certain: set[str] = set()
        """Topics that are there, in a class that promises, with nothing on its way that may change that."""
        self._unknown: set[str] = set()
        """Topics with a request on its way that may; until the next life."""

    def sent(self, ask: Ask) -> None:
        """Nobody waits for what comes of it."""
        if ask.is_of_whole_topic:
            assert ask.topic is not None
            self._certain.discard(ask.topic)
            self._unknown.add(ask.topic)
            if ask.method == "DELETE":
                self._data.pop(ask.topic, None)

    def answered(self, ask: Ask, answer: Answer) -> None:
        topic = ask.topic
        if topic is None or not (ask.is_of_whole_topic or ask.is_write):
            return
        if answer.status == 201 or ask.method == "DELETE":
            self._data.pop(topic, None)
        if ask.is_of_whole_topic:
            self._certain.discard(topic)
            if ask.method == "PUT" and answer.status in (200, 201):
                self._know(topic, answer.json["config"]["durability"])
        elif answer.status == 201:
            self._know(topic, "disk")  # the default, of a topic that the write has made
        if ask.is_write and answer.status in (200, 201) and topic in self._certain and not answer.json["deduped"]:
            records = enumerate(ask.body["records"], answer.json["first_seq"])
            self._data[topic] |= {seq: record["data"] for seq, record in records}

    def start(self, seen: Seen) -> None:
        """A life has begun, and nothing is on its way."""
        self._unknown.clear()
        self._certain.clear()
        for topic, state in seen.topics.items():
            self._know(topic, state["config"]["durability"])

    def check(self, seen: Seen) -> int:
        """How many of them are shown. Raises Different."""
        shown = 0
        for topic, records in seen.records():
            for record in records:
                data = self._data[topic].get(record["$seq"])
                shown += data is not None
                if data not in (None, record["data"]):
                    raise Different(f"{topic} {record['$seq']}: acknowledged for {data}, shown with {record['data']}")
        return shown

    def _know(self, topic: str, durability: str) -> None:
        if durability in _PROMISING and topic not in self._unknown:
            self._certain.add(topic)
