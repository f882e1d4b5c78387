"""Few writers, and a reader who waits at the other end of a router: copies come with the writes, once and in order."""

from __future__ import annotations

import random

import msgspec
import pytest

from tests.amount import seeds
from tests.contract.world.sim_world import SimWorld
from tests.sim.whole.scenarios.routed import route
from topics.engine.routers.carried_step import CarriedStep, StepCarrier

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
CLASSES = [("memory", "disk"), ("disk", "memory"), ("disk", "disk"), ("fsync", "disk"), ("fsync", "fsync")]


def body(value: int) -> dict[str, list[dict[str, int]]]:
    return {"records": [{"data": value}]}


class Story:
    """A server, writers with the seqs they were given, and one reader with the records it has seen."""

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
        """Connect the writers, and the reader from where it was."""
        self.writers = [self.world.connect() for _ in range(3)]
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

    def write(self, writers: int) -> None:
        values = range(self.value + 1, self.value + writers + 1)
        self.value += writers
        asked = [self.writers[at].start("POST", "/v0/topics/s", body(value)) for at, value in enumerate(values)]
        for value, connection in zip(values, asked, strict=True):
            answer = connection.answer()
            assert answer.status in {200, 201}
            self.written[answer.json["first_seq"]] = value

    def end(self) -> bool:
        """End this life, perhaps amid a write; return whether by a power cut."""
        self.value += 1
        if self.rng.random() < 0.6:
            self.writers[0].start("POST", "/v0/topics/s", body(self.value))
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
        assert len(values) == len(set(values)), "a copy comes twice"
        if not cuts_power or self.dest == "fsync":
            assert self.seen.items() <= copies.items(), "what a reader saw"
        if not cuts_power or self.source == "fsync":
            assert self.written.items() <= originals.items(), "what a writer was told"
        self.written = {seq: data for seq, data in self.written.items() if seq in originals}
        self.seen = {seq: data for seq, data in self.seen.items() if seq in copies}


@pytest.mark.parametrize("seed", seeds(15))
def test_copies_come_with_their_writes_once_and_in_order_whatever_ends_the_server(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-RTR-4, R-RTR-16, R-RTR-17."""
    carried: list[object] = []
    publish, enter = CarriedStep.publish, StepCarrier._carry
    monkeypatch.setattr(CarriedStep, "publish", lambda *step: (carried.append(step), publish(*step)))  # type: ignore[func-returns-value]
    monkeypatch.setattr(StepCarrier, "_carry", lambda *step: (carried.append(step), enter(*step)))  # type: ignore[func-returns-value]
    story = Story(seed)
    for _life in range(4):
        for _ in range(story.rng.randint(15, 40)):
            story.write(story.rng.randint(2, 3) if seed % 3 == 2 else 1)
            story.read()
            if story.rng.random() < 0.2:
                story.world.advance_ms(story.rng.choice((1, 30, 1100)))
        story.check(cuts_power=story.end())
        story.connect()
    assert len(carried) > 5, "too few for this test to mean anything"
