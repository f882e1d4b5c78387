"""Clients with exclusive topics.

No other client changes them, so every answer is known before it comes.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from tests.sim.whole.clients.clients import Client, Clients
from tests.sim.whole.clients.http_client import Wire
from tests.sim.whole.clients.operation import (
    Configure,
    DeleteRecords,
    Drop,
    Flush,
    GetOne,
    Inconsistent,
    Look,
    Meant,
    Operation,
    Read,
    ReadFrom,
    ReadSince,
    Write,
)
from tests.sim.whole.clients.owned_audit import audit, short
from tests.sim.whole.clients.owned_topic import OwnedTopic
from tests.sim.whole.clients.payloads import payload_of, stored
from tests.sim.whole.clients.state import Part, Record
from tests.sim.whole.machine import Audit, Machine
from tests.sim.whole.web_sockets import PublishWire

_TAGS = (None, None, "a", "a:1", "a:2", "b", "")
_NODES = (None, "n1", "n2", "")
_METAS = (None, "m", "", "m" * 200)
_MATCHES = ("a", "a:*", "b", "*", "")
_FILTERS: tuple[dict[str, str], ...] = (
    {}, {}, {}, {"match": "a"}, {"match": "a*"}, {"only_node": "n1"}, {"match": "b", "node": "n1"},
)  # fmt: skip
_LIMITS = (1, 3, 1000, 1000)
_SIZES = (0, 0, 0, 1, 40, 300)
_ROWS_MAX = 6
"""Most records of one write."""
_IN_A_STREAK = 0.25
"""Share of the steps of some clients that begin writes to one topic, while all others rest."""
_STREAK_LENGTHS = (3, 20, 40, 40)
_OVER_WEBSOCKETS = 0.6
"""Share of these that are publishes over a WebSocket."""
_JSON_IN_A_STREAK = 0.9
"""Share of the records that would be bytes, which end a streak, and are JSON instead."""
_STATES_MAX = 4
"""With more possible states than this a client reads before it changes anything."""
_ANSWERED_MS = 30_000
"""The longest that a client waits for an answer."""
_LINGER_NS = 30_000_000
"""The longest that a request on a lost connection can still be in flight, if no sync is late."""
_LATE_NS = 200_000_000
"""Longer than any answer takes if nothing is lacking, and shorter than the timer that makes a pass
every second.
"""
_TURN_BYTES = 1000
"""A body that is taken in turns of fewer bytes takes long."""
_TURNS_NS = 500_000_000
"""Longer than the largest body takes in turns, beside other work."""
_NO_FILE_NS = 1_500_000_000
"""Longer than a write waits for a file of the log that cannot be opened."""


class OwningClient(Client):
    shared: Owner
    row_max = 1
    """Writes that the client sends at the same instant."""

    def __init__(self, shared: Owner, number: int, depth: int) -> None:
        super().__init__(shared, number)
        self._depth = depth
        self._in_flight: deque[tuple[OwnedTopic, Operation]] = deque()
        self._busy = False
        """Whether a next step is planned."""
        self._think_ns = self.rng.choice((10_000, 100_000, 400_000))
        self._has_streaks = depth == 1 and self.machine.plan.has_streaks and not self.machine.has_calls
        self._streak: tuple[OwnedTopic, int] | None = None
        """The topic of a streak, and how many writes it still gets."""
        self._publishes = False
        """Whether these go over a WebSocket."""
        self._socket: PublishWire | None = None
        self._large = self.machine.plan.heavy or self.machine.plan.large or self.rng.random() < 0.15

    @property
    def outstanding(self) -> int:
        return super().outstanding + (0 if self._socket is None else self._socket.outstanding)

    def crashed(self) -> None:
        super().crashed()
        if self._socket is not None:
            self._socket.forget()
            self._socket = None
        self._end_streak()
        for topic, operation in self._in_flight:
            if operation.changes:
                topic.limbo.append(operation)
        for topic in self.shared.topics:
            topic.refuses = self._may_refuse
            topic.lasts(self.shared.lasting_ns)
            topic.date_keys(self.machine.ring.clock.now_ms())
        self._in_flight.clear()
        self._busy = False

    def under_way(self, topic: OwnedTopic) -> list[Operation]:
        return [operation for found, operation in self._in_flight if found is topic]

    def lost(self) -> None:
        """Note that requests in flight may or may not have happened, or may still be in flight
        after commits of others.
        """
        self.machine.say(f"client {self.number}: connection lost")
        if self._socket is not None:
            self._socket.reset()
        self._end_streak()
        factor = self.machine.ring.sync_factor
        linger_ns = _LINGER_NS * (1 if factor == 1 else 3 * factor)
        if self.machine.config.pass_body_bytes < _TURN_BYTES:
            linger_ns += _TURNS_NS
        if self._may_lack_files and any(topic.limbo for topic in self.shared.topics):
            linger_ns += _NO_FILE_NS
        self._later(linger_ns, self._settle)

    @property
    def _may_lack_files(self) -> bool:
        return self.machine.descriptors_are_few or self.machine.is_interrupted

    @property
    def _may_refuse(self) -> bool:
        """Return whether, of two writes without answers, the second may have happened without the
        first.
        """
        machine = self.machine
        lacks_space = machine.space_was_scarce or machine.writes_lack_space
        return lacks_space or machine.log_is_short or self._may_lack_files

    def _settle(self) -> None:
        for topic in self.shared.topics:
            topic.refuses = self._may_refuse
            topic.has_failed |= bool(topic.limbo) and self.machine.disk_failed  # as if the client had seen the 500
            topic.settle_limbo(self.machine.ring.clock.now_ms())
        self.connect()

    # --- asking ------------------------------------------------------------------------------------------------------
    def begin(self) -> None:
        if not self._busy:
            self._busy = True
            self._later(self.rng.randrange(1000, self._think_ns if self._streak is None else 5000), self._planned)

    def _planned(self) -> None:
        if rest_ns := self.machine.calm.rest_ns(self):
            self._later(rest_ns, self._planned)
            return
        self._busy = False
        self._step()

    def step(self, wire: Wire) -> None:
        if self.rng.random() < 0.004:
            self.machine.say(f"client {self.number}: resets its connection")
            wire.reset()
            return
        if self._writes_alone(wire):
            return
        topic = self.rng.choice(self.shared.topics)
        operation = self._choose(topic)
        self._ask(wire, topic, operation)
        for other, more in self.behind(topic, operation):
            self._ask(wire, other, more)
        if len(self._in_flight) < self._depth:
            self.begin()

    def _writes_alone(self, wire: Wire) -> bool:
        """Send the next write of a streak, or now and then the first one; return whether it did."""
        rng, calm = self.rng, self.machine.calm
        if self._streak is None:
            if not self._has_streaks or rng.random() >= _IN_A_STREAK:
                return False
            found = [topic for topic in self.shared.topics if topic.tip is not None]
            if not found or not calm.begin(self):
                return False
            self._streak = rng.choice(found), rng.choice(_STREAK_LENGTHS)
            self._publishes = rng.random() < _OVER_WEBSOCKETS
        topic, left = self._streak
        self._streak = topic, left - 1
        if left == 1:
            self._end_streak()
        if topic.tip is None or len(topic.states) > _STATES_MAX:
            self._end_streak()
            return False
        text = self._text(rng.choice((0, 0, 30, 300)))
        while payload_of(text) is not None and rng.random() < _JSON_IN_A_STREAK:
            text = self._text(0)
        way = self._open_socket() if self._publishes else None
        self._ask(way or wire, topic, Write([Record(text, None)], None, None))
        return True

    def _open_socket(self) -> PublishWire | None:
        if self._socket is None:
            with suppress(OSError):
                network, last_words = self.machine.ring.network, self.machine.last_words
                self._socket = PublishWire(network, self._on_socket_lost, last_words)
        return self._socket

    def _on_socket_lost(self) -> None:
        """Begin anew with both connections: a publish may still be in flight."""
        self._socket = None
        if self.wire is not None:
            self.wire.reset()

    def _end_streak(self) -> None:
        self._streak = None
        self.machine.calm.end(self)

    def behind(self, topic: OwnedTopic, operation: Operation) -> Iterator[tuple[OwnedTopic, Operation]]:
        """Return requests to send at the same instant, right after an operation."""
        yield from ()

    def _ask(self, wire: Wire | PublishWire, topic: OwnedTopic, operation: Operation) -> None:
        self._in_flight.append((topic, operation))
        asked_ms, asked_ns = self.machine.ring.clock.now_ms(), self.machine.waited_ns()
        if self.machine.tracing:
            self.machine.say(f"client {self.number} -> {topic.name}: {operation}")
        wire.ask(
            *operation.request(topic.path),
            lambda status, answer: self._answered(topic, operation, (asked_ms, asked_ns), status, answer),
        )

    def _choose(self, topic: OwnedTopic) -> Operation:
        rng, state = self.rng, topic.tip
        choice = rng.random()
        if len(topic.states) > _STATES_MAX:
            return rng.choice((Look(), Read(0, 1000)))
        if state is None:
            if choice < 0.4:
                return Configure(self._config())
            return self.write(topic) if choice < 0.85 else rng.choice((Look(), Drop(), Read(0, 10)))
        if choice < 0.58:
            return self.write(topic)
        if choice < 0.68:
            before = rng.randint(0, state.head + 2) if rng.random() < 0.5 else None
            return DeleteRecords(before, rng.choice(_MATCHES) if before is None or rng.random() < 0.3 else None)
        if choice < 0.73:
            return Configure(self._config())
        if choice < 0.76:
            return Drop()
        if choice < 0.82:
            return Look()
        if choice > 0.995 and self.machine.has_calls:
            return GetOne(rng.randint(1, state.head + 2))
        if choice > 0.985:
            begin = rng.choice(("first", "now", {"last": 1}, {"last": 3}, {"last": rng.randint(0, state.head + 1)}))
            return ReadFrom(begin, rng.choice(_LIMITS))
        if choice > 0.97:
            return ReadSince(topic.a_time(rng.random()) + rng.choice((0, 0, 1)), rng.choice(_LIMITS))
        cursor = rng.choice((0, rng.randint(0, state.head + 1), state.lost, state.head))
        which = _FILTERS[int(choice * 10_000) % len(_FILTERS)]
        meant = self._meant(topic) if rng.random() < 0.2 and not self.machine.has_calls else None
        return Read(cursor, rng.choice(_LIMITS), rng.choice(_SIZES), which, meant)

    def _config(self) -> dict[str, Any]:
        rng = self.rng
        config: dict[str, Any] = {"cap_records": 0, "cap_bytes": 0, "discard": "old"}
        heavy = self.machine.plan.heavy
        config["durability"] = "disk" if heavy else rng.choice(("disk", "disk", "fsync", "fsync", "memory"))
        cap = rng.random()
        if cap < 0.2:
            config["cap_records"] = rng.choice((1, 5, 20))
        elif cap < 0.3:
            config["cap_bytes"] = rng.choice((60, 500))
        if cap < 0.3 and rng.random() < 0.2:
            config["discard"] = "reject"
        return config

    def write(self, topic: OwnedTopic) -> Write:
        rng, state = self.rng, topic.tip
        count = 1 if rng.random() < 0.6 else rng.randint(2, _ROWS_MAX)
        width = rng.choice((0, 0, 0, 30, 300)) if not self._large else rng.choice((0, 300, 3000, 9000))
        if self._large and rng.random() < 0.03:
            width = 30_000  # some of these are larger than a file of the log
        records = [Record(self._text(width), rng.choice(_TAGS)) for _ in range(count)]
        if rng.random() < 0.2:
            records = [record._replace(node=rng.choice(_NODES), meta=rng.choice(_METAS)) for record in records]
        key, is_old, part = None, False, None
        named = rng.random()
        if named < 0.3:
            key, is_old = self._key(topic)
        elif named < 0.5 and (part := self._part(topic)) is not None:
            records = self._records_of(topic, part, records)
        config = self._config() if state is None and rng.random() < 0.7 else None
        meant = self._meant(topic) if key is None and rng.random() < 0.15 else None
        return Write(records, key, config, key_is_old=is_old, meant=meant, part=part)

    def _meant(self, topic: OwnedTopic) -> Meant | None:
        """Return the incarnation of the topic, or an earlier one."""
        topic.life = self.machine.life_of(topic.name)
        present = topic.present()
        if present is not None and topic.tip is not None and self.rng.random() < 0.7:
            return Meant(present, topic.tip.instance)
        here = {state.instance for state in topic.states if state is not None}
        may_be = {incarnation for number, (_life, incarnation) in topic.incarnations.items() if number in here}
        others = sorted(topic.shown - may_be)
        self.machine.counts["requests that mean topics that are gone"] += bool(others)
        return Meant(self.rng.choice(others), 0) if others else None

    def _part(self, topic: OwnedTopic) -> Part | None:
        """Return a part: one that was sent before, with any outcome, or a new one of an epoch near
        the newest.
        """
        rng = self.rng
        if topic.sent and rng.random() < 0.5:
            part = rng.choice([*topic.sent][-8:])
        else:
            producer = rng.choice("pq")
            newest = max((part.epoch for part in topic.sent if part.producer == producer), default=3)
            part = Part(producer, max(0, newest + rng.choice((-3, -1, 0, 0, 0, 1, 1, 2))), rng.randrange(3))
        parts = [op.part for op in self.under_way(topic) if isinstance(op, Write) and op.part is not None]
        return part if all(_may_follow(part, other) for other in parts) else None

    def _records_of(self, topic: OwnedTopic, part: Part, fresh: list[Record]) -> list[Record]:
        """Return the records that the part came with before, in any order; sometimes other ones."""
        sent = topic.sent.setdefault(part, fresh)
        if sent is fresh or self.rng.random() < 0.1:
            return fresh
        self.machine.counts["parts sent again"] += 1
        topic.sent_again.update(record.data for record in sent)
        return self.rng.sample(sent, len(sent))

    def _key(self, topic: OwnedTopic) -> tuple[str, bool]:
        """Return a key: one that was used before and is certainly known, or (True) certainly
        expired; or a new one for this topic.
        """
        machine, state = self.machine, topic.tip
        now_ms = machine.ring.clock.now_ms()
        known = list(state.keys) if state is not None else []
        if known and self.rng.random() < 0.4:
            name = self.rng.choice(known)
            key = topic.keys[name]
            if key.surely_known(now_ms + _ANSWERED_MS):
                return name, False
            if key.surely_new(now_ms):
                machine.counts["old keys used again"] += 1
                topic.use_key(name, now_ms)
                return name, True
        if (gone := topic.keys_gone(self.under_way(topic))) and self.rng.random() < 0.15:
            machine.counts["keys used again whose write is not there"] += 1
            del topic.keys[name := self.rng.choice(gone)]
        else:
            name = f"k{self.number}-{self.shared.serial}"
        topic.use_key(name, now_ms)
        return name, False

    def _text(self, width: int) -> str:
        self.shared.serial += 1
        return f"~{self.number}.{self.shared.serial}~" + "x" * width

    # --- answers -----------------------------------------------------------------------------------------------------
    def _answered(
        self, topic: OwnedTopic, operation: Operation, asked: tuple[int, int], status: int, answer: Any
    ) -> None:
        """asked: the time of the request, by the wall clock in ms and by `Machine.waited_ns`."""
        machine = self.machine
        asked_ms, asked_ns = asked
        assert self._in_flight.popleft() == (topic, operation), "answers come in order"
        if machine.tracing:
            machine.say(f"client {self.number} <- {topic.name}: {status} {short(answer)}   [{str(operation)[:50]}]")
        if status:
            self.begin()
            self._check_late(topic, operation, machine.waited_ns() - asked_ns)
        self.count("requests of owners", status, answer)
        is_read = not (operation.changes or isinstance(operation, Flush))
        if status == 500 and is_read and _is_for_changes(answer["error"]):
            raise machine.wrong(f"{topic.name}: {operation}: {status} {short(answer)}, but reads go on")
        if status == 500 and isinstance(operation, Write):
            topic.failed.append((operation, machine.waited_ns()))
        if status == 500 and _never_begun(answer["error"]):
            topic.burn([operation])
        elif status == 422 and topic.was_full(operation, asked_ns):
            self.machine.counts["refusals for writes that failed"] += 1
        elif status in {0, 500}:
            if operation.changes:
                topic.limbo.append(operation)
                topic.has_failed |= status == 500
        elif status not in {429, 503}:
            try:
                topic.life = machine.life_of(topic.name)
                promised = topic.answered(operation, status, answer, machine.ring.clock.monotonic_ns())
            except Inconsistent as reason:
                raise machine.wrong(f"{topic.name}: {operation}: {status} {short(answer)}: {reason}") from reason
            if isinstance(operation, Write) and operation.key is not None and answer.get("deduped") is False:
                topic.key_appended(operation.key, asked_ms, machine.ring.clock.now_ms())
            # An answer may be late, and later requests may have taken effect by then.
            if operation.changes and len(topic.states) == 1 and not topic.limbo and not self.under_way(topic):
                for tell in machine.on_changed:
                    tell(topic.name, None if topic.tip is None else topic.tip.head)
            if promised and topic.keeps(self.under_way(topic)):
                machine.monitor.acked([stored(text) for text in promised])

    def _check_late(self, topic: OwnedTopic, operation: Operation, took_ns: int) -> None:
        """Note the answer's delay.

        A loop that sleeps although work is staged is woken by the next timer, so only the delay
        shows it.
        """
        machine = self.machine
        if machine.config.pass_body_bytes < _TURN_BYTES:
            return  # a body of base64 takes hundreds of passes
        if machine.space_was_scarce and machine.log_was_long:
            return  # an append of the library waits for a checkpoint, and one without space is retried after a second
        if took_ns > _LATE_NS and machine.lacks_nothing and machine.ring.sync_factor == 1:
            raise machine.wrong(
                f"{topic.name}: {operation}: answered after {took_ns / 1e6:.0f} ms, and nothing is lacking"
            )


class Owner(Clients):
    """The topics of one client, and the client itself, with up to `depth` requests in flight."""

    knows_no_starts = True
    kind = OwningClient

    def __init__(self, machine: Machine, number: int, rng: random.Random, *, topics: int, depth: int) -> None:
        super().__init__(machine, rng)
        self.topics = [
            OwnedTopic(f"o{number}-{index}", rows_max=_ROWS_MAX * max(depth, self.kind.row_max))
            for index in range(topics)
        ]
        self.clients = [self.kind(self, number, depth)]
        machine.monitor.living.append(self.live_texts)

    def paths(self) -> list[str]:
        return [topic.path for topic in self.topics]

    def audits(self) -> list[Audit]:
        return [audit(self.machine, self.rng, topic) for topic in self.topics]

    def live_texts(self) -> set[bytes]:
        """Return texts of records that certainly exist, and that no request in flight may remove.

        Records that were sent again are left out: a durable frame of an earlier attempt does not
        prove that the record which readers see is durable.
        """
        machine, (client,) = self.machine, self.clients
        assert isinstance(client, OwningClient)
        may_lose = machine.power_failed or machine.io_failed
        found = [topic.certain(client.under_way(topic), may_lose=may_lose) - topic.sent_again for topic in self.topics]
        return {text[: text.index("~", 1) + 1].encode() for texts in found for text in texts}


def _may_follow(part: Part, other: Part) -> bool:
    """Return whether a part may be sent while another one is under way.

    The same part would take effect after what follows it, should the first fail. Whether an epoch is
    too old would depend on a newer one that may still fail (R-PROD-3).
    """
    return part != other and not (part.producer == other.producer and part.epoch < other.epoch)


def _is_for_changes(refusal: dict[str, Any]) -> bool:
    """Check R-DUR-16: the log takes no writes, and everything in it is still readable."""
    return refusal.get("detail", {}).get("reason") in {"disk_full", "read_only"}


def _never_begun(refusal: dict[str, Any]) -> bool:
    """Check that nothing was left, not even a part: a batch had no space or file, or the format of
    the directory was not raised for it.
    """
    is_format = "format of the data directory could not be raised" in refusal["message"]
    return is_format or refusal.get("detail", {}).get("reason") in {"disk_full", "no_log_file"}
