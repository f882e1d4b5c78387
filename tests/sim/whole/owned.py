"""Topics of one client each: the client asks in order, so what they hold is known exactly, or to a few possibilities.

`states` are the states a topic may be in now (usually one; an answer that never came makes it several). `history` has
what they were after every change, back to the last audit; from `durable` on a power cut may fall back to any of them.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Any

from tests.sim.whole.machine import Audit, Machine
from tests.sim.whole.operation import (
    Configure,
    DeleteRecords,
    Drop,
    Inconsistent,
    Look,
    Maybe,
    Operation,
    Read,
    Write,
    follow,
)
from tests.sim.whole.state import Record, State
from tests.sim.whole.wire import Wire

_TAGS = (None, None, "a", "a:1", "a:2", "b", "")
_MATCHES = ("a", "a:*", "b", "*", "")
_LIMITS = (1, 3, 1000, 1000)
_STATES_MAX = 4
"""With more possibilities than this a client looks before it changes anything."""
_RETRY_NS = 3_000_000
_LINGER_NS = 30_000_000
"""Longer than anything sent on a connection that was lost can still be on its way, with syncs that are not late."""


class Owned:
    """One topic."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = f"/v0/topics/{name}"
        self.states: list[Maybe] = [None]
        self.history: list[list[Maybe]] = [self.states]
        self.durable = 0
        self.limbo: list[Operation] = []
        """Changes answered 5xx or not at all: they may have happened, and in this order, or not."""
        self.burned = 0
        self.instance = 0
        self.acked_head = (0, 0)
        """Highest acknowledged seq of an instance (in the classes that never reuse one)."""

    @property
    def tip(self) -> Maybe:
        return self.states[-1]

    def possible(self) -> list[Maybe]:
        """What it may be after its limbo, in the order of likelihood."""
        found = list(self.states)
        for burned in dict.fromkeys((0, self.burned)):
            reached, skipped = list(self.states), burned
            for operation in self.limbo:
                paths = [operation.apply(state, self.instance + 1, skipped) for state in reached]
                reached = _distinct([path[-1] for path in paths])
                found = _distinct([*found, *(step for path in paths for step in path)])
                if isinstance(operation, Write):
                    skipped = 0
        return found


class Owner:
    """One client, its topics and its connection."""

    def __init__(self, machine: Machine, number: int, rng: random.Random, *, topics: int, depth: int) -> None:
        self._machine = machine
        self._number = number
        self._rng = rng
        self._depth = depth
        self.topics = [Owned(f"o{number}-{index}") for index in range(topics)]
        self._wire: Wire | None = None
        self._in_flight: deque[tuple[Owned, Operation]] = deque()
        self._serial = 0
        self._paused = True
        self._busy = False
        """A next step is planned."""
        self._think_ns = rng.choice((10_000, 100_000, 400_000))
        self._large = machine.plan.heavy or rng.random() < 0.15

    # --- life --------------------------------------------------------------------------------------------------------
    def go(self) -> None:
        self._paused = False
        self._connect()

    def pause(self) -> None:
        self._paused = True

    @property
    def idle(self) -> bool:
        return not self._in_flight

    def crashed(self) -> None:
        self._paused = True
        if self._wire is not None:
            self._wire.forget()
            self._wire = None
        for owned, operation in self._in_flight:
            if operation.changes:
                owned.limbo.append(operation)
        self._in_flight.clear()

    def _connect(self) -> None:
        if self._paused:
            return
        self._wire = self._machine.connect(self._on_lost)
        if self._wire is None:
            self._later(_RETRY_NS, self._connect)
        else:
            self._plan()

    def _on_lost(self) -> None:
        """What was in flight may have happened or not."""
        self._wire = None
        self._machine.say(f"client {self._number}: connection lost")
        self._machine.counts["connections lost"] += 1
        # What was asked for may still be on its way to the disk, behind commits of others.
        factor = self._machine.ring.sync_factor
        self._later(_LINGER_NS * (1 if factor == 1 else 3 * factor), self._settle)

    def _settle(self) -> None:
        for owned in self.topics:
            if owned.limbo:
                owned.states = _distinct(owned.possible())
                owned.burned += _rows(owned.limbo)
                owned.limbo = []
                owned.history.append(owned.states)
        self._connect()

    def _later(self, delay_ns: int, action: Any) -> None:
        generation = self._machine.generation

        def act() -> None:
            if generation == self._machine.generation:
                action()

        self._machine.ring.events.after(delay_ns, act)

    # --- asking ------------------------------------------------------------------------------------------------------
    def _plan(self) -> None:
        if not self._busy:
            self._busy = True
            generation = self._machine.generation

            def act() -> None:
                self._busy = False
                if generation == self._machine.generation:
                    self._step()

            self._machine.ring.events.after(self._rng.randrange(1000, self._think_ns), act)

    def _step(self) -> None:
        wire = self._wire
        if self._paused or wire is None:
            return
        if self._rng.random() < 0.004:
            self._machine.say(f"client {self._number}: resets its connection")
            wire.reset()
            return
        owned = self._rng.choice(self.topics)
        operation = self._choose(owned)
        self._in_flight.append((owned, operation))
        if self._machine.tracing:
            self._machine.say(f"client {self._number} -> {owned.name}: {operation}")
        wire.ask(
            *operation.request(owned.path), lambda status, answer: self._answered(owned, operation, status, answer)
        )
        if len(self._in_flight) < self._depth:
            self._plan()

    def _choose(self, owned: Owned) -> Operation:
        rng, state = self._rng, owned.tip
        choice = rng.random()
        if len(owned.states) > _STATES_MAX:
            return rng.choice((Look(), Read(0, 1000)))
        if state is None:
            if choice < 0.4:
                return Configure(self._config())
            return self._write(owned) if choice < 0.85 else rng.choice((Look(), Drop(), Read(0, 10)))
        if choice < 0.58:
            return self._write(owned)
        if choice < 0.68:
            before = rng.randint(0, state.head + 2) if rng.random() < 0.5 else None
            return DeleteRecords(before, rng.choice(_MATCHES) if before is None or rng.random() < 0.3 else None)
        if choice < 0.73:
            return Configure(self._config())
        if choice < 0.76:
            return Drop()
        if choice < 0.82:
            return Look()
        return Read(rng.choice((0, rng.randint(0, state.head + 1), state.lost, state.head)), rng.choice(_LIMITS))

    def _config(self) -> dict[str, Any]:
        rng = self._rng
        config: dict[str, Any] = {"cap_records": 0, "cap_bytes": 0, "discard": "old"}
        heavy = self._machine.plan.heavy
        config["durability"] = "disk" if heavy else rng.choice(("disk", "disk", "fsync", "fsync", "memory"))
        cap = rng.random()
        if cap < 0.2:
            config["cap_records"] = rng.choice((1, 5, 20))
        elif cap < 0.3:
            config["cap_bytes"] = rng.choice((60, 500))
        if cap < 0.3 and rng.random() < 0.2:
            config["discard"] = "reject"
        return config

    def _write(self, owned: Owned) -> Write:
        rng, state = self._rng, owned.tip
        count = 1 if rng.random() < 0.6 else rng.randint(2, 6)
        width = rng.choice((0, 0, 0, 30, 300)) if not self._large else rng.choice((0, 300, 3000, 9000))
        records = [Record(self._text(width), rng.choice(_TAGS)) for _ in range(count)]
        key = None
        if rng.random() < 0.3:
            known = list(state.keys) if state is not None else []
            key = rng.choice(known) if known and rng.random() < 0.4 else f"k{self._number}-{self._serial}"
        config = self._config() if state is None and rng.random() < 0.7 else None
        return Write(records, key, config)

    def _text(self, width: int) -> str:
        self._serial += 1
        return f"~{self._number}.{self._serial}~" + "x" * width

    # --- answers -----------------------------------------------------------------------------------------------------
    def _answered(self, owned: Owned, operation: Operation, status: int, answer: Any) -> None:
        machine = self._machine
        found, expected = self._in_flight.popleft()
        assert found is owned, "answers come in order"
        assert expected is operation, "answers come in order"
        if machine.tracing:
            machine.say(f"client {self._number} <- {owned.name}: {status} {_short(answer)}   [{str(operation)[:50]}]")
        if status:
            machine.operations += 1
            machine.counts["operations"] += 1
            self._plan()
        if status in {0, 500}:
            refusal = answer["error"] if status else {}
            if status and _never_begun(refusal):
                owned.burned += _rows([operation])
            elif operation.changes:
                owned.limbo.append(operation)
            if status:
                machine.counts["answered 500"] += 1
                if machine.disk_is_sound and not (
                    machine.descriptors_are_few and "Too many open" in refusal["message"]
                ):
                    raise machine.wrong(f"{owned.name}: {operation} was answered {status} {answer} on a sound disk")
        elif status in (429, 503):
            machine.counts[f"answered {status}"] += 1
        else:
            self._settle_answer(owned, operation, status, answer)

    def _settle_answer(self, owned: Owned, operation: Operation, status: int, answer: Any) -> None:
        machine = self._machine
        steps: list[list[Maybe]] = []
        followed: list[Maybe] = []
        reasons = []
        burned = owned.burned + _rows(owned.limbo)
        for state in owned.states:
            try:
                path = follow(operation, state, owned.instance + 1, burned, status, answer)
                steps.append(path)
                followed.append(state)
            except Inconsistent as reason:
                reasons.append(str(reason))
        if not steps:
            raise machine.wrong(f"{owned.name}: {operation}: {status} {_short(answer)}: {' or '.join(reasons)}")
        if not operation.changes or all(path[-1:] == [state] for path, state in zip(steps, followed, strict=True)):
            # Nothing happened: a read, a duplicate, a delete of nothing. It says nothing of what failed before.
            owned.states = _distinct([path[-1] for path in steps])
            return
        if owned.limbo:  # what failed and was followed by a success is not there, but may have taken seqs
            owned.burned += _rows(owned.limbo)
            owned.limbo = []
        before = owned.states
        for path in steps:
            if len(path) > 1:
                owned.history.append([path[0]])
                owned.durable = len(owned.history) - 1  # the creation itself is synced
        owned.states = _distinct([path[-1] for path in steps])
        owned.history.append(owned.states)
        self._note(owned, operation, before, answer)

    def _note(self, owned: Owned, operation: Operation, before: list[Maybe], answer: Any) -> None:
        """What the acknowledgement promises from now on."""
        now = owned.tip
        classes = {state.config["durability"] for state in [*before, *owned.states] if state is not None}
        synced = isinstance(operation, Configure | Drop) or classes == {"fsync"}
        if now is not None and isinstance(operation, Configure):
            # One that changes nothing is durable already, and says nothing about the records before it.
            synced = all(state is None or state.config != now.config for state in before)
        if synced:
            owned.durable = len(owned.history) - 1
        if now is None or any(state is None for state in before):
            owned.burned = 0
        if now is not None:
            owned.instance = max(owned.instance, now.instance)
            if isinstance(operation, Write):
                if answer.get("deduped") is False:
                    owned.burned = 0
                if classes <= {"disk", "fsync"}:
                    owned.acked_head = max(owned.acked_head, (now.instance, now.head))
                if classes == {"fsync"} and answer.get("deduped") is False:
                    live = {now.records.get(seq) for seq in range(answer["first_seq"], answer["last_seq"] + 1)}
                    texts = [f'"{record.data}"'.encode() for record in operation.records if record in live]
                    if texts:
                        self._machine.monitor.acked(texts)

    def paths(self) -> list[str]:
        return [owned.path for owned in self.topics]

    # --- after a crash -----------------------------------------------------------------------------------------------
    def audits(self) -> list[Audit]:
        return [self._audit(owned) for owned in self.topics]

    def _audit(self, owned: Owned) -> Audit:
        candidates = self._candidates(owned)
        status, looked = yield Look().request(owned.path)
        if status == 200:
            yield from self._read_back(owned, candidates, looked)
        else:
            if status != 404:
                raise self._machine.wrong(f"{owned.name}: the audit was answered {status} {looked}")
            owned.states = [state for state in candidates if state is None][:1]
            if not owned.states:
                raise self._machine.wrong(f"{owned.name} is gone; it was one of {_describe(candidates)}")
        owned.history = [owned.states]
        owned.durable = owned.burned = 0
        owned.limbo = []
        if owned.tip is not None:
            owned.instance = max(owned.instance, owned.tip.instance)

    def _candidates(self, owned: Owned) -> list[Maybe]:
        """Every state that would be right, the most likely first."""
        found = owned.possible()
        if self._machine.power_failed or self._machine.io_failed:
            for states in reversed(owned.history[owned.durable :]):
                found += states
        return found

    def _read_back(self, owned: Owned, candidates: list[Maybe], looked: Any) -> Audit:
        machine = self._machine
        head = looked["head_seq"]
        classes = {state.config["durability"] for state in candidates if state is not None}
        cut = (machine.power_failed or machine.io_failed) and "disk" in classes
        alive = _distinct([state.after_power_cut(head) if cut else state for state in candidates if state is not None])
        answers: list[tuple[Operation, int, Any]] = [(Look(), 200, looked)]
        cursors = [0, self._rng.choice([head, head + 1, self._rng.randint(0, head), *_edges(alive)])]
        for cursor in dict.fromkeys(cursors):
            read = Read(cursor, 1000)
            status, page = yield read.request(owned.path)
            answers.append((read, status, page))
        reasons = []
        matching: list[Maybe] = []
        for state in alive:
            try:
                for operation, status, answer in answers:
                    follow(operation, state, 0, 0, status, answer)
                matching.append(state)
            except Inconsistent as reason:
                reasons.append(f"{reason} ({_describe([state])})")
        if not matching:
            found = [(row["$seq"], row["data"][:14]) for row in answers[1][2].get("records", [])]
            raise machine.wrong(
                f"{owned.name} is in no state it may be in: {_short(looked)} with {found}: {reasons[:4]}"
            )
        owned.states = matching
        state = matching[0]
        assert state is not None
        below = state.instance == owned.acked_head[0] and head < owned.acked_head[1]
        if below and "memory" not in classes and not machine.io_failed:
            raise machine.wrong(f"{owned.name}: head {head} is below the acknowledged seq {owned.acked_head[1]}")
        if below:
            owned.acked_head = (state.instance, head)  # what is given out again from here on is known
        machine.counts["records read back"] += len(state.records)

    def live_texts(self) -> set[bytes]:
        """Of records that are there in all states."""
        return {
            _marker(record.data)
            for owned in self.topics
            if len(owned.states) == 1 and owned.tip is not None and not owned.limbo
            for record in owned.tip.records.values()
        }


def _marker(data: str) -> bytes:
    return data[: data.index("~", 1) + 1].encode()


def _distinct(states: list[Any]) -> list[Any]:
    """Each once, by what can be told apart."""
    if len(states) == 1:
        return states
    seen: dict[Any, Any] = {}
    for state in states:
        if state is None:
            seen.setdefault(None, None)
        else:
            key = (
                state.instance,
                state.head,
                state.cap,
                state.crash,
                state.gaps,
                tuple(state.records.items()),
                tuple(state.keys),
                tuple(state.config.values()),
            )
            seen.setdefault(key, state)
    return list(seen.values())


def _edges(states: list[Any]) -> list[int]:
    """Cursors at which tombstones begin or end."""
    edges: list[int] = []
    for state in states[:2]:
        edges += [max(0, state.lost - 1), state.lost]
        for gap in state.gaps:
            edges += [gap.first - 2, gap.first - 1, gap.last - 1, gap.last]
    return [edge for edge in edges if edge >= 0][:10]


def _never_begun(refusal: dict[str, Any]) -> bool:
    """A batch that found no space, or no file to go to, is not there, not even in part."""
    return refusal.get("detail", {}).get("reason") == "disk_full" or "no log file could be opened" in refusal["message"]


def _rows(operations: list[Operation]) -> int:
    return sum(len(operation.records) for operation in operations if isinstance(operation, Write))


def _describe(states: list[Maybe]) -> list[str]:
    return ["absent" if state is None else _describe_one(state) for state in states[:6]]


def _describe_one(state: State) -> str:
    return (
        f"#{state.instance} head {state.head} earliest {state.earliest} count {len(state.records)} lost {state.lost}"
        f" gaps {[tuple(gap) for gap in state.gaps]} {state.config}"
    )


def _short(answer: Any) -> str:
    if isinstance(answer, dict):
        answer = {name: value for name, value in answer.items() if name not in ("performance", "topic", "config")}
        if isinstance(answer.get("records"), list):
            answer["records"] = [row["$seq"] for row in answer["records"]]
    return str(answer)[:300]
