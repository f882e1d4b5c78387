"""The common part of clients with connections of their own: they begin, pause, lose their
connection and return.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from tests.sim.whole.clients.http_client import Wire
from tests.sim.whole.machine import Audit, Machine

_LONG_LOG_TRIES = 1000
"""Attempts of an audit to create a topic: more than there are round trips in a checkpoint."""
RETRY_NS = 3_000_000
"""Longer than any earlier request can still be in flight."""
_SYNCS_NS = 12_000_000
"""Longer than the syncs take that come between a write and its own sync, if none of them is late.
"""


class Clients:
    """An actor (machine.py) made of several clients."""

    knows_no_starts = False
    may_stall = True
    """Whether they may take answers late: not if they judge by the time of an answer."""

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
        return not any(client.outstanding for client in self.clients)

    def crashed(self) -> None:
        self.paused = True
        for client in self.clients:
            client.crashed()

    @property
    def lasting_ns(self) -> int:
        """Return the time up to which acknowledgements of class `disk` outlast a power cut; 0: a
        disk may have failed.
        """
        machine = self.machine
        if not machine.lacks_nothing or machine.config.sync_every_ms is None:
            return 0
        has_time = machine.ring.sync_factor == 1 and not machine.has_cores  # one of several may get no CPU
        factor = 1 if has_time else 3 * machine.ring.sync_factor
        return machine.ring.clock.monotonic_ns() - machine.config.sync_every_ms * 1_000_000 - _SYNCS_NS * factor

    def paths(self) -> list[str]:
        raise NotImplementedError

    def audits(self) -> list[Audit]:
        return self.audits_at(lambda _path: True)

    def audits_at(self, is_there: Callable[[str], bool]) -> list[Audit]:
        """Return the audits of some topics; those that know no starts have none."""
        raise NotImplementedError

    def asked_beside(self, is_there: Callable[[str], bool]) -> list[str]:
        return []

    def read_back(self, path: str, times: dict[int, int] | None = None) -> Any:
        """Read a whole topic for an audit: (data by seq, tombstones, head); None: it does not
        exist. times: gets each $ts.
        """
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
        """Create a topic for an audit."""
        status, answer = yield "PUT", path, config
        for _ in range(_LONG_LOG_TRIES):
            is_long = status == 429 and self.machine.config.max_log_bytes != 0
            if not is_long and not self.machine.is_elsewhere(status, answer):
                break
            status, answer = yield "PUT", path, config  # R-LOG-2: until a checkpoint has emptied the log
        if status not in {200, 201}:
            raise self.machine.wrong(f"{path}: created with {status} {answer}")


class Client:
    """A connection that is opened again when it is lost."""

    def __init__(self, shared: Clients, number: int) -> None:
        self.shared = shared
        self.machine = shared.machine
        self.rng = shared.rng
        self.number = number
        self.wire: Wire | None = None

    @property
    def outstanding(self) -> int:
        """Return the number of requests in flight."""
        return 0 if self.wire is None else self.wire.outstanding

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
        wire = self.wire
        if self.shared.paused or wire is None:
            return
        if rest_ns := self.machine.calm.rest_ns(self):
            # A new connection begins with a step of its own.
            self._later(rest_ns, lambda: self._step() if self.wire is wire else None)
        else:
            self.step(wire)

    # --- of each kind ------------------------------------------------------------------------------------------------
    def begin(self) -> None:
        """Begin on a new connection."""
        self._later(1000, self._step)

    def lost(self) -> None:
        """Handle the loss of the connection."""
        self._later(RETRY_NS, self.connect)

    def step(self, wire: Wire) -> None:
        """Send a request, and handle its answer."""
        raise NotImplementedError

    def count(self, name: str, status: int, answer: Any) -> None:
        """Count an answer (0: the connection ended first).

        Raises: Wrong, it failed without a reason.
        """
        if status == 0:
            return
        machine = self.machine
        if machine.is_elsewhere(status, answer):
            machine.counts["refused for another core"] += 1
            return
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
