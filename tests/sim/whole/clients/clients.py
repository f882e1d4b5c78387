"""What clients with connections of their own have in common: they begin, pause, lose their connection and come back."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from tests.sim.whole.clients.http_client import Wire
from tests.sim.whole.machine import Audit, Machine

_LONG_LOG_TRIES = 1000
"""Of an audit's creation, more than there are round trips in a checkpoint."""
RETRY_NS = 3_000_000
"""Longer than anything sent before can still be on its way."""
_SYNCS_NS = 12_000_000
"""Longer than the syncs take that stand between a write and its own, when none of them is late."""


class Clients:
    """An actor (machine.py) made of several clients."""

    may_stall = True
    """They may take answers late; not where they go by when those came."""

    def __init__(self, machine: Machine, rng: random.Random) -> None:
        self.machine = machine
        self.rng = rng
        self.serial = 0
        self.paused = True
        self.clients: Sequence[Client] = []

    def go(self) -> None:
        self.paused = False
        for client in self.clients:
            client.connect()

    def pause(self) -> None:
        self.paused = True

    @property
    def idle(self) -> bool:
        return all(client.wire is None or not client.wire.outstanding for client in self.clients)

    def crashed(self) -> None:
        self.paused = True
        for client in self.clients:
            client.crashed()

    @property
    def lasting_ns(self) -> int:
        """Of class `disk`, what was acknowledged by then outlasts a power cut now; 0: something may have failed."""
        machine = self.machine
        if not machine.lacks_nothing or machine.config.sync_every_ms is None:
            return 0
        factor = 1 if machine.ring.sync_factor == 1 else 3 * machine.ring.sync_factor
        return machine.ring.clock.monotonic_ns() - machine.config.sync_every_ms * 1_000_000 - _SYNCS_NS * factor

    def paths(self) -> list[str]:
        raise NotImplementedError

    def audits(self) -> list[Audit]:
        raise NotImplementedError

    def read_back(self, path: str, times: dict[int, int] | None = None) -> Any:
        """For an audit: (data by seq, tombstones, head) of a whole topic; None: there is none. times: gets each $ts."""
        found: dict[int, str] = {}
        told: list[dict[str, Any]] = []
        cursor, head, caught_up = 0, 0, False
        while not caught_up:
            status, page = yield "POST", f"{path}/diff", {"from_seq": cursor, "limit": 1000}
            if status == 404:
                return None
            if status != 200:
                raise self.machine.wrong(f"{path}: the audit was answered {status} {page}")
            found.update((row["$seq"], row["data"]) for row in page["records"])
            if times is not None:
                times.update((row["$seq"], row["$ts"]) for row in page["records"])
            if page["tombstone"] is not None:
                told.append(page["tombstone"])
            cursor, head, caught_up = page["next_from_seq"], page["head_seq"], page["caught_up"]
        self.machine.counts["records read back"] += len(found)
        return found, told, head

    def put(self, path: str, config: dict[str, Any]) -> Audit:
        """For an audit: makes what is to be there."""
        status, answer = yield "PUT", path, config
        for _ in range(_LONG_LOG_TRIES):
            if status != 429 or self.machine.config.max_log_bytes == 0:
                break
            status, answer = yield "PUT", path, config  # R-LOG-2: until a checkpoint has emptied the log
        if status not in {200, 201}:
            raise self.machine.wrong(f"{path}: created with {status} {answer}")


class Client:
    """A connection that is made again when it is lost."""

    def __init__(self, shared: Clients, number: int) -> None:
        self.shared = shared
        self.machine = shared.machine
        self.rng = shared.rng
        self.number = number
        self.wire: Wire | None = None

    def connect(self) -> None:
        if self.shared.paused:
            return
        self.wire = self.machine.connect(self._on_lost, may_stall=self.shared.may_stall)
        if self.wire is None:
            self._later(RETRY_NS, self.connect)
        else:
            self.begin()

    def _on_lost(self) -> None:
        self.wire = None
        self.machine.counts["connections lost"] += 1
        self.lost()

    def crashed(self) -> None:
        if self.wire is not None:
            self.wire.forget()
            self.wire = None

    def _later(self, delay_ns: int, action: Callable[[], None]) -> None:
        generation = self.machine.generation

        def act() -> None:
            if generation == self.machine.generation:
                action()

        self.machine.ring.events.after(delay_ns, act)

    def _step(self) -> None:
        if not self.shared.paused and self.wire is not None:
            self.step(self.wire)

    # --- of each kind ------------------------------------------------------------------------------------------------
    def begin(self) -> None:
        """There is a connection."""
        self._later(1000, self._step)

    def lost(self) -> None:
        """There is none any more."""
        self._later(RETRY_NS, self.connect)

    def step(self, wire: Wire) -> None:
        """Asks for something, and sees to what follows."""
        raise NotImplementedError

    def count(self, name: str, status: int, answer: Any) -> None:
        """One was answered (0: the connection ended first). Raises Wrong when it failed without a reason."""
        if status == 0:
            return
        machine = self.machine
        machine.operations += 1
        machine.counts["operations"] += 1
        machine.counts[name] += 1
        if status in {429, 503}:
            machine.counts[f"answered {status}"] += 1
            if status == 429 and machine.log_was_long:
                machine.counts["turned away by a long log"] += 1
            else:
                machine.counts["turned away though nothing was lacking"] += machine.lacks_nothing
        elif status == 500:
            machine.counts["answered 500"] += 1
            error = answer["error"]
            reason = error.get("detail", {}).get("reason")
            told = "Too many open" in error["message"] or reason == "not_created"
            lacks_descriptors = machine.descriptors_are_few and told
            is_interrupted = machine.is_interrupted and reason in {"no_log_file", "not_created"}
            if machine.disk_is_sound and not lacks_descriptors and not is_interrupted:
                raise machine.wrong(f"{name}: one was answered {answer} on a sound disk")
