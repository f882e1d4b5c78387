"""A client that watches topics by a prefix, and one that creates, writes and deletes them.

R-PREFIX: whatever topics come and go, and in every crash, the watcher gets each record of a topic
once, in order, from the first one on. Nothing is missing a moment after its writer has the answer.
It watches over server-sent events or a WebSocket, as it chooses each time.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.sim.whole.clients import payloads
from tests.sim.whole.clients.clients import RETRY_NS, Client, Clients
from tests.sim.whole.clients.http_client import Wire
from tests.sim.whole.machine import Audit, Machine
from tests.sim.whole.seed_plan import PORT
from tests.sim.whole.web_sockets import WebSocketWire

_LATE_NS = 200_000_000
"""A record is delivered in the pass that makes it readable; connections and reads take longer."""
_TOPICS = 5
_STATUS = {"throttled": 429, "storage_error": 500}
"""The status of a refusal's code over HTTP; of the others 503."""


class Event(NamedTuple):
    name: str
    data: Any
    cursors: dict[str, int]


class EventWire:
    """A stream of server-sent events. on_end: called once, also if the stream was refused."""

    def __init__(
        self, machine: Machine, path: str, last_id: str, on_event: Callable[[Event], None], on_end: Callable[[], None]
    ) -> None:
        endpoint = machine.ring.network.connect("127.0.0.1", PORT)
        if isinstance(endpoint, int):
            raise OSError(endpoint, "connect")
        self._endpoint = endpoint
        self._on_event = on_event
        self._on_end = on_end
        self._received = bytearray()
        self._text = bytearray()
        self._is_open = False
        self.over = False
        endpoint.on_readable = self._readable
        resumes = f"Last-Event-ID: {last_id}\r\n" if last_id else ""
        endpoint.send(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:4000\r\n{resumes}\r\n".encode())

    def reset(self) -> None:
        """Reset the connection, without another callback."""
        self.over = True
        self._endpoint.reset()

    def _readable(self) -> None:
        if self.over:
            return
        received = self._received
        received += self._endpoint.take(1 << 30)
        if not self._is_open:
            end = received.find(b"\r\n\r\n")
            if end >= 0:
                self._is_open = received.startswith(b"HTTP/1.1 200 ")
                del received[: end + 4]
                if not self._is_open:
                    self._finish()
                    return
        if self._is_open:
            self._take_chunks()
        if not self.over and (self._endpoint.error or (self._endpoint.end_of_stream and not self._endpoint.incoming)):
            self._finish()

    def _take_chunks(self) -> None:
        received = self._received
        while not self.over and (line := received.find(b"\r\n")) >= 0:
            size = int(received[:line], 16)
            if len(received) < line + size + 4:
                return
            self._text += received[line + 2 : line + 2 + size]
            del received[: line + size + 4]
            if not size:
                self._finish()
                return
            while not self.over and (end := self._text.find(b"\n\n")) >= 0:
                block = self._text[:end].decode()
                del self._text[: end + 2]
                fields = dict(each.split(": ", 1) for each in block.split("\n"))
                if "event" in fields:
                    self._on_event(Event(fields["event"], payloads.read(json.loads(fields["data"])), _cursors(fields)))

    def _finish(self) -> None:
        self.over = True
        self._endpoint.close()
        self._on_end()


class SocketWire(WebSocketWire):
    """A WebSocket that subscribes to topics and prefixes.

    on_made: called with the status and the answer of the subscribe, as over HTTP. on_end: called
    once afterwards.
    """

    def __init__(
        self,
        machine: Machine,
        command: dict[str, Any],
        on_made: Callable[[int, Any], None],
        on_event: Callable[[Event], None],
        on_end: Callable[[], None],
    ) -> None:
        super().__init__(machine.ring.network)
        self._command = command
        self._on_made = on_made
        self._on_event = on_event
        self._on_end = on_end
        self._cursors: dict[str, int] = {}

    def _begin(self) -> None:
        self.send({"op": "subscribe", **self._command})

    def _end(self) -> None:
        self._on_end()

    def _take(self, message: Any) -> None:
        kind, cursors = message["op"], self._cursors
        if kind == "subscribed":
            cursors.update((name, state["from_seq"]) for name, state in message["topics"].items())
            self._on_made(200, message)
        elif kind == "error":
            if message["code"] != "server_shutting_down":
                self._on_made(_STATUS.get(message["code"], 503), {"error": message})
                self._finish()
        else:
            name = message["topic"]
            if kind == "record":
                cursors[name] = message["to_seq"]
            elif kind == "tombstone":
                cursors[name] = message["earliest_seq"] - 1
            elif kind == "topic_deleted":
                cursors.pop(name, None)
            self._on_event(Event(kind.replace("_", "-"), message, dict(cursors)))


def _cursors(fields: dict[str, str]) -> dict[str, int]:
    text = fields["id"]
    return dict(json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))))


class _Topic:
    """A topic as its only writer knows it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.life = 0
        """The number of times that it was created."""
        self.head: int | None = None
        """The highest seq; None: it does not exist."""
        self.changed_ns = 0
        """When its writer had the last answer."""


class Watching(Clients):
    knows_no_starts = True
    may_stall = False

    def __init__(self, machine: Machine, rng: random.Random) -> None:
        super().__init__(machine, rng)
        self.prefix = ""
        self.topics: list[_Topic] = []
        self.watcher = _Watcher(self, 1)
        self.clients = [_Writer(self, 0), self.watcher]
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget all topics: their records may not be those that were acknowledged."""
        self.serial += 1
        self.prefix = f"w{self.serial}-"
        self.topics = []
        self.watcher.forget()

    def topic(self) -> _Topic:
        while len(self.topics) < _TOPICS:
            self.serial += 1
            self.topics.append(_Topic(f"{self.prefix}{self.serial}"))
        return self.rng.choice(self.topics)

    def paths(self) -> list[str]:
        """Return no paths: a watcher is what reads these topics."""
        return []

    def audits(self) -> list[Audit]:
        """Read nothing back; but what a disk has lost is no topic of theirs."""
        machine = self.machine
        if machine.lied or machine.may_forget or not machine.disk_is_sound:
            self.begin_anew()
        return []

    def crashed(self) -> None:
        self.watcher.check()
        super().crashed()


class _Writer(Client):
    """The only writer of the topics, one request at a time."""

    shared: Watching
    asked: _Topic | None = None

    def step(self, wire: Wire) -> None:
        self.shared.watcher.check()
        topic = self.asked = self.shared.topic()
        path, choice = f"/v0/topics/{topic.name}", self.rng.random()
        life, head = topic.life + (topic.head is None), topic.head or 0
        if topic.head is not None and choice < 0.25:
            wire.ask(
                "DELETE", path, None, lambda status, answer: self._answered(topic, status, answer, topic.life, None)
            )
        elif topic.head is None and choice < 0.3:
            config = {"durability": "fsync"}
            wire.ask("PUT", path, config, lambda status, answer: self._answered(topic, status, answer, life, 0))
        else:
            count = self.rng.randint(1, 3)
            records = [{"data": f"{topic.name}/{life}/{head + number}"} for number in range(1, count + 1)]
            body: dict[str, Any] = {"records": records}
            if topic.head is None:
                body["config"] = {"durability": "fsync"}
            wire.ask(
                "POST", path, body, lambda status, answer: self._answered(topic, status, answer, life, head + count)
            )

    def _answered(self, topic: _Topic, status: int, answer: Any, life: int, head: int | None) -> None:
        self.asked = None
        self.count("changes of watched topics", status, answer)
        if status in {200, 201}:
            topic.life, topic.head = life, head
            topic.changed_ns = self.machine.waited_ns()
        elif status not in {429, 503}:
            self._leave(topic)
        self._later(self.rng.randrange(1000, 3_000_000), self._step)

    def crashed(self) -> None:
        super().crashed()
        if self.asked is not None:
            self._leave(self.asked)
            self.asked = None

    def _leave(self, topic: _Topic) -> None:
        """Change a topic no more whose last change may or may not have happened."""
        if topic in self.shared.topics:
            self.shared.topics.remove(topic)


class _Watcher(Client):
    """The watcher, which continues by the cursors of its last frame."""

    shared: Watching
    stream: EventWire | SocketWire | None = None

    def __init__(self, shared: Watching, number: int) -> None:
        super().__init__(shared, number)
        self.forget()

    def forget(self) -> None:
        self.at: dict[str, tuple[int, int]] = {}
        """By topic: the life and the seq of the last record that came. Life 0: one that began while
        there was no stream, and had no record on this one.
        """
        self.cursors: dict[str, int] = {}
        """The cursors of the last id."""
        self.resumed: set[str] = set()
        """The topics that continue from an earlier stream, and had no frame on this one."""
        self.others: set[tuple[str, int]] = set()
        """Lives that began while there was no stream: they are read from an old cursor (R-REC-3)."""
        self.opened_ns = 0
        """Since when there is a stream; 0: there is none."""

    def crashed(self) -> None:
        super().crashed()
        self._drop_stream()

    def lost(self) -> None:
        self._drop_stream()
        super().lost()

    def _drop_stream(self) -> None:
        self.opened_ns = 0
        stream, self.stream = self.stream, None
        if stream is not None:
            stream.reset()

    def step(self, wire: Wire) -> None:
        topics = {name: {"from_seq": seq} for name, seq in self.cursors.items()}
        body = {"prefixes": {self.shared.prefix: {}}, "topics": topics, "limit": self.rng.choice((1, 2, 256))}
        if self.rng.random() < 0.5:
            wire.ask("POST", "/v0/watch?lenient=true", body, self._made)
            return
        try:
            self.stream = SocketWire(
                self.machine, {**body, "lenient": True}, self._made_by_socket, self._event, self._ended
            )
        except OSError:
            self._later(RETRY_NS, self._step)

    def _made(self, status: int, answer: Any) -> None:
        self.count("watches by prefix", status, answer)
        if status != 200:
            self._later(RETRY_NS, self._step)
            return
        self._resume(answer)
        try:
            self.stream = EventWire(self.machine, answer["stream_url"], "", self._event, self._ended)
        except OSError:
            self._later(RETRY_NS, self._step)
            return
        self._opened()

    def _made_by_socket(self, status: int, answer: Any) -> None:
        self.count("watches by prefix over WebSocket", status, answer)
        if status == 200:
            self._resume(answer)
            self._opened()

    def _resume(self, answer: Any) -> None:
        self.at = {name: at for name, at in self.at.items() if name in answer["topics"]}
        self.cursors = {name: seq for name, seq in self.cursors.items() if name in answer["topics"]}
        self.resumed = set(self.at)

    def _opened(self) -> None:
        self.opened_ns = self.machine.waited_ns()
        self._later(self.rng.randrange(1_000_000, 300_000_000), self._leave)

    def _leave(self) -> None:
        """Leave the stream, now and then, and open another one."""
        if self.stream is not None and not self.shared.paused:
            self.check()
            self._drop_stream()
            self._step()

    def _ended(self) -> None:
        self.stream, self.opened_ns = None, 0
        self._later(RETRY_NS, self._step)

    def _event(self, event: Event) -> None:
        if event.name in {"error"}:
            return
        self.cursors = event.cursors
        name = event.data["topic"]
        resumes = name in self.resumed
        if event.name != "caught-up" or not self._may_be_another(name):
            self.resumed.discard(name)
        if event.name == "topic-deleted":
            self.at.pop(name, None)
        elif event.name == "record":
            self._records(name, event.data, resumes=resumes)
        elif event.name == "tombstone":
            if not resumes:
                raise self.machine.wrong(f"a watcher is told of a loss: {event}")
            self.resumed.add(name)  # it was created again (R-REC-2), as the records show
            self.at[name] = (0, 0)
        elif event.name == "left-out":
            raise self.machine.wrong(f"a watcher of few topics does not get all: {event}")

    def _may_be_another(self, name: str) -> bool:
        """Return whether the topic may have been created again and have the cursor as its head."""
        known = next((topic for topic in self.shared.topics if topic.name == name), None)
        return known is None or known.head is None or known.life != self.at.get(name, (0, 0))[0]

    def _records(self, name: str, data: Any, *, resumes: bool) -> None:
        begin, seqs = data["from_seq"], [row["$seq"] for row in data["records"]]
        lives = {int(row["data"].split("/")[1]) for row in data["records"]}
        texts = [f"{name}/{max(lives)}/{seq}" for seq in seqs]
        life, seen = self.at.get(name, (max(lives), 0))
        if (resumes or not life) and life != max(lives):
            self.others.add((name, max(lives)))
            seen = begin
        elif life != max(lives):
            raise self.machine.wrong(f"a watcher gets {data} of a topic in life {life}, and no end before")
        is_whole = seqs == list(range(begin + 1, data["to_seq"] + 1)) or (name, max(lives)) in self.others
        if [row["data"] for row in data["records"]] != texts or begin != seen or not is_whole:
            raise self.machine.wrong(f"a watcher that has seen {name} up to {seen} gets {data}")
        self.at[name] = (max(lives), data["to_seq"])
        self.machine.counts["records watched by prefix"] += len(seqs)

    def check(self) -> None:
        """Check that nothing is late, of all that writers know for certain."""
        machine = self.machine
        if not self.opened_ns or not machine.lacks_nothing or machine.is_interrupted:
            return
        late_ns = machine.waited_ns() - _LATE_NS * machine.ring.sync_factor
        for topic in self.shared.topics:
            if max(topic.changed_ns, self.opened_ns) > late_ns or (topic.name, topic.life) in self.others:
                continue
            life, seen = self.at.get(topic.name, (topic.life, 0))
            was_before = topic.name in self.resumed and topic.changed_ns <= self.opened_ns
            if was_before and life < topic.life and seen == topic.head:
                continue  # the cursor of an earlier life is the head of this one (R-REC-3)
            if (topic.head is None and topic.name in self.at) or (
                topic.head and (life, seen) != (topic.life, topic.head)
            ):
                raise machine.wrong(f"{topic.name} is at {topic.head} in life {topic.life}; its watcher saw {self.at}")
