"""One writer, and one reader who waits at the other end of a router: copies come with the writes, once and in order."""

from __future__ import annotations

import random

import msgspec
import pytest

from tests.amount import seeds
from tests.contract.world.sim_world import SimWorld
from tests.sim.whole.scenarios.routed import route
from topics.engine.routers.carried_step import CarriedStep

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
CLASSES = [("memory", "disk"), ("disk", "memory"), ("disk", "disk"), ("fsync", "disk"), ("fsync", "fsync")]


class Story:
    """A server, one writer with the seqs it was given, and one reader with the records it has seen."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"routed {seed}")
        self.source, self.dest = CLASSES[seed % len(CLASSES)]
        self.world = SimWorld(2 * seed)  # with the lane
        self.world.start()
        for topic, durability in (("s", self.source), ("d", self.dest)):
            self.world.put(topic, durability=durability)
        route(self.world, "s", "d")
        self.written: dict[int, int] = {}
        self.seen: dict[int, int] = {}
        self.value = 0
        self.connect()

    def connect(self) -> None:
        """Connect the writer, and the reader from where it was."""
        self.writer = self.world.connect()
        topics = {"d": {"from_seq": max(self.seen, default=0)}}
        stream = self.world.request("POST", "/v0/watch", {"topics": topics}).json["stream_url"]
        self.reader = self.world.ask("GET", stream)

    def read(self) -> None:
        """Take what the reader got so far."""
        for line in self.reader.take_bytes().splitlines():
            page = msgspec.json.decode(line[6:]) if line.startswith(b'data: {"topic"') else {}
            for record in page.get("records", ()):
                assert record["$seq"] not in self.seen, "a record comes again"
                self.seen[record["$seq"]] = record["data"]

    def everything(self, topic: str) -> dict[int, int]:
        """The records of a topic by seq."""
        found: dict[int, int] = {}
        page = {"next_from_seq": 0, "caught_up": False}
        while not page["caught_up"]:
            page = self.world.diff(topic, page["next_from_seq"])
            found |= {record["$seq"]: record["data"] for record in page["records"]}
        return found

    def write(self) -> None:
        self.value += 1
        answer = self.writer.request("POST", "/v0/topics/s", {"records": [{"data": self.value}]})
        assert answer.status in {200, 201}
        self.written[answer.json["first_seq"]] = self.value

    def end(self) -> bool:
        """End this life, perhaps amid a write; return whether by a power cut."""
        self.value += 1
        if self.rng.random() < 0.6:
            self.writer.start("POST", "/v0/topics/s", {"records": [{"data": self.value}]})
            self.world.advance_us(self.rng.randint(0, 300))
        self.read()
        cuts_power = self.rng.random() < 0.5
        if cuts_power:
            self.world.power_cut()
        else:
            self.world.crash()
        self.world.start()
        return cuts_power

    def check(self, *, cuts_power: bool) -> None:
        originals, copies = self.everything("s"), self.everything("d")
        values = list(copies.values())
        if self.source != "memory":
            assert values == list(originals.values()), "each original has one copy, in its order"
        assert values == sorted(set(values))
        if not cuts_power or self.dest == "fsync":
            assert self.seen.items() <= copies.items(), "what a reader saw"
        if not cuts_power or self.source == "fsync":
            assert self.written.items() <= originals.items(), "what a writer was told"
        self.written = {seq: data for seq, data in self.written.items() if seq in originals}
        self.seen = {seq: data for seq, data in self.seen.items() if seq in copies}


@pytest.mark.parametrize("seed", seeds(15))
def test_copies_of_lone_writes_come_once_and_in_order_whatever_ends_the_server(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-RTR-4, R-RTR-16, R-RTR-17."""
    carried: list[CarriedStep] = []
    publish = CarriedStep.publish
    monkeypatch.setattr(
        CarriedStep, "publish", lambda self, *committed: (carried.append(self), publish(self, *committed))
    )
    story = Story(seed)
    for _life in range(4):
        for _ in range(story.rng.randint(15, 40)):
            story.write()
            story.read()
            if story.rng.random() < 0.2:
                story.world.advance_ms(story.rng.choice((1, 30, 1100)))
        story.check(cuts_power=story.end())
        story.connect()
    assert len(carried) > 5, "too few for this test to mean anything"
