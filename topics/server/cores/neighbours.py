"""The other cores of the server: which one owns a topic, and how a connection gets there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from topics.http.lane.plain_writes import LaneTables
from topics.http.plan.call import Call
from topics.http.plan.plan import Plan
from topics.http.plan.service import FarTopic, Service
from topics.http.spanning.inner_routes import inner_routes
from topics.loop.doors.listener import Listener
from topics.loop.doors.mailbox import Mailbox
from topics.loop.loop import Loop
from topics.server.cores.relays import Relays
from topics.server.cores.shares import CoreShares
from topics.store.cores.slot_map import SlotMap


class Neighbours:
    """The cores of a server, as one of them sees the others.

    mailboxes: the paths of all cores' mailboxes, its own among them.
    """

    def __init__(self, loop: Loop, slots: SlotMap, core: int, mailboxes: Sequence[str]) -> None:
        assert len(mailboxes) == slots.cores
        self._loop = loop
        self._slots = slots
        self._core = core
        self._mailboxes = mailboxes
        self.shares = CoreShares(self, loop.call_later, loop.clock.monotonic_ns() + 1)
        """The shares of limits of this core."""
        self.inner = inner_routes(self, self.shares.answer)
        """The routes that cores ask each other for."""
        self.relays: Relays | None = None
        """The requests that are relayed from and to this core; None until `join`."""
        self._mailbox: Mailbox | None = None

    def join(self, service: Service, listener: Listener, tables: LaneTables | None) -> Mailbox:
        """Take connections and requests of the other cores from now on. Return the mailbox.

        tables: of the lane; None: there is none.

        Raises: OSError, there can be none at its path.
        """
        relays = self.relays = Relays(
            self._loop, service, self._core, self._mailboxes, self.elsewhere, inner=self.inner, tables=tables
        )
        mailbox = self._mailbox = self._loop.open_mailbox(self._mailboxes[self._core], listener, relays.answering)
        self.shares.join(service)
        return mailbox

    def hand_overs(self) -> dict[str, int]:
        """Return how many connections were given to another core, kept, taken, and lost."""
        departures, mailbox = self._loop.departures, self._mailbox
        taken, lost = (0, 0) if mailbox is None else (mailbox.taken, mailbox.lost)
        return {"given": departures.given, "kept": departures.kept, "taken": taken, "lost": lost}

    def relayed_requests(self) -> dict[str, int]:
        """Return how many requests were sent to others, and how many of those got no answer."""
        asked = () if self.relays is None else self.relays.asked
        return {"asked": sum(each.relayed for each in asked), "in_doubt": sum(each.in_doubt for each in asked)}

    def elsewhere(self, topic: str) -> int | None:
        """Return the core that owns a topic, if it is another one than this."""
        owner = self._slots.core_of(topic)
        return None if owner == self._core else owner

    @property
    def own(self) -> int:
        return self._core

    @property
    def count(self) -> int:
        return self._slots.cores

    def owns(self, name: str) -> bool:
        """Return whether this core has the slot of a name."""
        return self._slots.core_of(name) == self._core

    def core_of(self, topic: str) -> int:
        """Return the core that owns a topic."""
        return self._slots.core_of(topic)

    def ask(self, core: int, portion: Call) -> None:
        """Have another core answer its portion of a request."""
        assert self.relays is not None, "a request before the server was built"
        self.relays.asked[core].ask(portion)

    def give(self, transport: Any, core: int, unread: Callable[[], bytes], stayed: Callable[[int], None]) -> bool:
        """Begin to give a connection of the loop to another core; see `Loop.give_away`."""
        return self._loop.give_away(transport, self._mailboxes[core], unread, stayed)

    def relayed(self, plan: Plan) -> Plan:
        """Return the plan with which the core that owns the topic answers a request."""
        return plan if self.relays is None else self.relays.relayed(plan)

    def far_topic(self, plan: Plan) -> FarTopic | None:
        """Return the topic of a relayed write, for plain ones; None: the request is another one."""
        return None if self.relays is None else self.relays.far_topic(plan)
