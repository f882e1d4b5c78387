"""Parts of the sink that come again hours, days and weeks later: known or refused, never appended again.

The connector's own client and writer, against the server in the simulator, whose clock is moved.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from email.message import Message

import pyarrow as pa
import pytest

from tests.amount import seeds
from tests.contract.world.answer import Answer
from tests.contract.world.sim_world import SimWorld
from topics.spark.client import SparkClient
from topics.spark.errors import ServerError
from topics.spark.options import parse_sink
from topics.spark.writing import parts
from topics.spark.writing.parts import PartName, PartWriter, SentTotals

HOUR_MS = 3_600_000
EPOCHS_KEPT = 4
SILENCE_DAYS = 7
Name = tuple[str, int, int]
"""Query, batch, partition."""


class Wire:
    """A stand-in for an HTTP connection."""

    def __init__(self, world: SimWorld) -> None:
        self._connection = world.connect()
        self._answer: Answer | None = None

    def request(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> None:
        self._answer = self._connection.request(method, path, body, headers)

    def getresponse(self) -> Response:
        assert self._answer is not None
        return Response(self._answer)

    def close(self) -> None:
        self._connection.finish_sending()


class Response:
    """A stand-in for an answer."""

    will_close = False

    def __init__(self, answer: Answer) -> None:
        self.status = answer.status
        self.headers = Message()
        self._body = answer.body

    def read(self) -> bytes:
        return self._body


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the parts go in pieces."""
    monkeypatch.setattr(parts, "PIECE_RECORDS", 3)


class Queries:
    """Two queries that write to a topic of class `fsync`, and what they wrote."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = SimWorld(
            seed,
            producer_epochs=EPOCHS_KEPT,
            producer_silence_ms=SILENCE_DAYS * 24 * HOUR_MS,
            checkpoint_wal_bytes=self.rng.choice((1, 1 << 30)),
        )
        self.world.start()
        self.world.request("PUT", "/v0/topics/out", {"durability": "fsync", "cap_records": self.rng.choice((0, 10))})
        self.sent: dict[Name, list[int]] = {}
        self.batch = Counter({"a": 0, "b": 0})
        self.written_ms = {"a": self.world.now_ms(), "b": self.world.now_ms()}
        self.may_be_forgotten = Counter({"a": 0, "b": 0})
        """The newest batch of each query that the server need not know any more."""
        self.tries = 0
        self.seen: Counter[str] = Counter()

    def head(self) -> int:
        return int(self.world.request("GET", "/v0/topics/out").json["head_seq"])

    def write(self, name: Name, values: list[int]) -> SentTotals:
        query, batch, partition = name
        self.tries += 1
        options = parse_sink({"url": "http://h", "topic": "out", "retries": "0"})
        client = SparkClient(options.connection, connect=lambda *_: Wire(self.world))  # type: ignore[arg-type,return-value]
        writer = PartWriter(client, options, PartName(query, batch, partition, str(self.tries)), is_stream=True)
        rows = [json.dumps(value) for value in self.rng.sample(values, len(values))]
        for at in range(0, len(rows), 2):
            writer.add(["data"], pa.record_batch({"data": pa.array(rows[at : at + 2])}))
        totals = writer.finish()
        client.close()
        return totals

    def next_batch(self) -> None:
        """A new batch is always taken, however long its query was silent."""
        query = self.rng.choice("ab")
        self.batch[query] += 1
        for partition in range(self.rng.randint(1, 3)):
            values = [self.rng.randrange(10**9) for _ in range(self.rng.randint(1, 9))]
            before, name = self.head(), (query, self.batch[query], partition)
            assert self.write(name, values).deduped == 0
            assert self.head() == before + len(values)
            self.sent[name] = values
        self.written_ms[query] = self.world.now_ms()
        self.forget(query, self.batch[query] - EPOCHS_KEPT)

    def move_clock(self, hours: int) -> None:
        self.world.step_clock_ms(hours * HOUR_MS)
        self.world.advance_ms(1100)  # a checkpoint may be made
        for query, written_ms in self.written_ms.items():
            if self.world.now_ms() - written_ms > SILENCE_DAYS * 24 * HOUR_MS:
                self.forget(query, self.batch[query])

    def forget(self, query: str, batch: int) -> None:
        self.may_be_forgotten[query] = max(self.may_be_forgotten[query], batch)

    def again(self, name: Name) -> None:
        before, (query, batch, _) = self.head(), name
        try:
            answer = "known" if self.write(name, self.sent[name]).deduped == 1 else "appended"
        except ServerError as error:
            answer = error.code
        assert self.head() == before
        allowed = {"known"} if batch > self.may_be_forgotten[query] else {"known", "producer_stale"}
        assert answer in allowed, name
        self.seen[answer] += 1

    def step(self) -> None:
        choice = self.rng.random()
        if choice < 0.35:
            self.next_batch()
        elif choice < 0.6 and self.sent:
            self.again(self.rng.choice([*self.sent]))
        elif choice < 0.75:
            self.move_clock(self.rng.choice((1, 24, 100, 24 * 8, 24 * 30)))
        elif choice < 0.85:
            self.world.delete("out", before_seq=self.rng.randint(1, self.head() + 1))
        else:
            self.rng.choice((self.world.crash, self.world.power_cut))()
            self.world.start()


@pytest.fixture(params=seeds(3))
def queries(request: pytest.FixtureRequest) -> Iterator[Queries]:
    made = Queries(request.param)
    yield made
    made.world.close()


def test_a_batch_that_is_repeated_at_any_time_is_known_or_refused(queries: Queries) -> None:
    for _ in range(40):
        queries.step()
    for name in queries.sent:
        queries.again(name)
    assert queries.seen["known"]
    assert queries.seen["producer_stale"]
    queries.move_clock(24 * 30)
    for name in queries.sent:
        queries.again(name)
    queries.next_batch()
