"""Engines that are the cores of one server, each on a ring of its own, with the orders between them in memory.

Orders arrive in the order in which they were asked, replies in any. A core is killed or loses its power after any of
its effects. Its askers get an error, and what it was asked may be executed later all the same, as by a core that was
taken for dead, also after what is asked then. The first order that each asks after that may get an error, too: its
socket was that of the life before.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec

from tests.engine.harness import Answer, records
from tests.engine.real_world import RealWorld
from tests.sim import SimRing, SimStoppedError
from topics.common.values.configs import RouterConfig
from topics.engine.queue.dead_messages import DeadOrder, DeadReply
from topics.engine.routers import far_messages
from topics.engine.values.results import DiffQuery
from topics.engine.values.topic_config import make_config
from topics.errors import RequestError, TopicsError

STEPS_MAX = 60_000
Order = far_messages.Order | DeadOrder
Reply = far_messages.Reply | DeadReply
Replied = Callable[[Any], None]
ENCODER = msgspec.msgpack.Encoder()
ORDERS = msgspec.msgpack.Decoder(Order)
REPLIES = msgspec.msgpack.Decoder(Reply)


def core_of(topic: str) -> int:
    """The core of a topic is the digit at the end of its name."""
    return int(topic[-1])


class Asked:
    """An order that was not executed, or not answered. The asker of one in doubt has its error already."""

    def __init__(self, asker: int, core: int, order: bytes, done: Replied) -> None:
        self.asker = asker
        self.core = core
        self.order = order
        self.done: Replied | None = done
        self.is_begun = False
        self.is_lost = False
        """Whether it is sent to a life of the core that has ended."""
        self.reply: Reply | TopicsError | None = None

    def end(self, reply: Reply | TopicsError) -> None:
        done, self.done = self.done, None
        if done is not None:
            done(reply)


class LinkedCores:
    """The cores of a server, without shares of limits or backups of all. `ask` is to be added."""

    core_of = staticmethod(core_of)

    def __init__(self, own: int, count: int = 2) -> None:
        self.own = own
        self.count = count

    def ask_for_room(self, limit: str, more: int) -> None:
        """Leave the refusal as it is."""

    def ask_to_copy(self, core: int, order: bytes, done: Replied) -> None:
        raise AssertionError("no test makes a backup of all")


class Wires(LinkedCores):
    """The other cores, as one core asks them."""

    def __init__(self, world: Cores, asker: int, cores: int) -> None:
        super().__init__(asker, cores)
        self.world = world
        self.asker = asker

    def ask(self, topic: str, order: Order, done: Replied) -> None:
        if core_of(topic) == self.asker:
            self.world.worlds[self.asker].engine.execute_order(order, done)
            return
        asked = Asked(self.asker, core_of(topic), ENCODER.encode(order), done)
        asked.is_lost = (self.asker, asked.core) in self.world.stale
        self.world.stale.discard((self.asker, asked.core))
        self.world.asked.append(asked)
        self.world.orders += 1


class Cores:
    """Cores with topics and routers."""

    def __init__(self, seed: int, cores: int = 2, **config: Any) -> None:
        self.rng = random.Random(seed)
        self.asked: list[Asked] = []
        self.orders = 0
        self.stale: set[tuple[int, int]] = set()
        """(asker, core) with a socket of the life before."""
        self.killed = self.cuts = 0
        self.worlds = [
            RealWorld(
                ring=SimRing(seed * 7 + core, shuffle=True),
                number=core + 1,
                joined=Wires(self, core, cores),
                **config,
            )
            for core in range(cores)
        ]

    # --- what happens ------------------------------------------------------------------------------------------------
    def step(self) -> None:
        """One thing happens: an order is executed, a reply arrives, or a core makes a pass."""
        choice = self.rng.randrange(3)
        if choice == 0:
            waiting = [each for each in reversed(self.asked) if not each.is_begun]
            firsts = {(each.asker, each.core, each.done is None): each for each in waiting}
            if firsts:
                timely = [first for (_, _, is_late), first in firsts.items() if not is_late]
                some = timely if timely and self.rng.random() < 0.9 else list(firsts.values())
                self._execute(self.rng.choice(some))
                return
        if choice == 1:
            replied = [each for each in self.asked if each.reply is not None]
            if replied:
                asked = self.rng.choice(replied)
                self.asked.remove(asked)
                assert asked.reply is not None
                asked.end(asked.reply)
                return
        core = self.rng.randrange(len(self.worlds))
        try:
            self.worlds[core].real_loop.run_pass(1_000_000)
        except SimStoppedError:
            self.restart(core, power_lost=self.cuts_power)

    cuts_power = False
    """Whether a core that is stopped by its ring loses its power."""

    def _execute(self, asked: Asked) -> None:
        if asked.is_lost:
            self.asked.remove(asked)
            asked.end(RequestError("not_ready", "the core has ended"))
            return
        asked.is_begun = True
        world = self.worlds[asked.core]

        def replied(reply: Reply | TopicsError) -> None:
            if self.worlds[asked.core] is world and asked in self.asked:
                asked.reply = reply if isinstance(reply, TopicsError) else REPLIES.decode(ENCODER.encode(reply))

        world.engine.execute_order(ORDERS.decode(asked.order), replied)

    def cut(self, core: int, other: int) -> None:
        """The socket between two cores ends: what was asked is in doubt, and may be executed later."""
        self.cuts += 1
        pair = {core, other}
        for asked in [each for each in self.asked if {each.asker, each.core} == pair]:
            if asked.is_begun or self.rng.random() < 0.5:
                self.asked.remove(asked)
            asked.end(RequestError("not_ready", "the core has ended"))

    def cut_amid_steps(self, core: int, other: int) -> None:
        """Let some time pass, mostly until something is asked, and cut."""
        for _ in range(self.rng.randint(0, 60)):
            self.step()
            if any(not each.is_begun for each in self.asked):
                break
        self.cut(core, other)

    def end_soon(self, core: int) -> None:
        """Let a core end after some of its next operations."""
        ring = self.worlds[core].ring
        ring.stop_at(ring.effects + self.rng.randint(1, 12))

    def restart(self, core: int, *, power_lost: bool = False) -> None:
        """Kill a core, and start it again."""
        self.killed += 1
        for asked in list(self.asked):
            if asked.asker == core:
                asked.done = None
                if asked.is_begun or asked.is_lost or self.rng.random() < 0.5:
                    self.asked.remove(asked)
            elif asked.core == core:
                if asked.is_begun or self.rng.random() < 0.5:
                    self.asked.remove(asked)
                asked.end(RequestError("not_ready", "the core has ended"))
        self.stale = {pair for pair in self.stale if core not in pair}
        self.stale |= {(other, core) for other in range(len(self.worlds)) if other != core and self.rng.random() < 0.5}
        self.worlds[core].restart(power_lost=power_lost)

    def checkpoint(self, core: int) -> None:
        try:
            self.worlds[core].checkpoint()
        except SimStoppedError:
            self.restart(core, power_lost=self.cuts_power)

    def cut_power(self) -> None:
        """All cores lose their power, and what they have asked."""
        self.asked.clear()
        for core in range(len(self.worlds)):
            self.restart(core, power_lost=True)

    def run(self, done: Callable[[], bool]) -> None:
        for _ in range(STEPS_MAX):
            if done():
                return
            self.step()
        raise AssertionError("it never came to an end")

    def some(self, most: int) -> None:
        for _ in range(self.rng.randint(0, most)):
            self.step()

    # --- requests ----------------------------------------------------------------------------------------------------
    def engine_of(self, topic: str) -> Any:
        return self.worlds[core_of(topic)].engine

    def wait(self, answer: Answer) -> Any:
        self.run(lambda: answer.given)
        return answer.get()

    def put(self, topic: str, **config: Any) -> None:
        answer = Answer()
        self.engine_of(topic).put_topic(topic, make_config(**config), answer)
        self.wait(answer)

    def start_route(self, name: str, source: str, dest: str, **more: Any) -> Answer:
        answer = Answer()
        self.engine_of(source).put_router(name, RouterConfig(source, dest, **more), lambda _name: True, answer)
        return answer

    def route(self, name: str, source: str, dest: str, **more: Any) -> Any:
        return self.wait(self.start_route(name, source, dest, **more))

    def start_append(self, topic: str, *values: Any, **more: Any) -> Answer:
        return self.worlds[core_of(topic)].start_append(records(*values, **more), topic)

    def append(self, topic: str, *values: Any, **more: Any) -> Any:
        return self.wait(self.start_append(topic, *values, **more))

    def start_read(self, topic: str, from_seq: int = 0, *, wait_ms: int = 0) -> Answer:
        answer = Answer()
        self.engine_of(topic).diff(topic, DiffQuery(from_seq, wait_ms=wait_ms), answer)
        return answer

    def read(self, topic: str) -> list[dict[str, Any]]:
        """All records of a topic, of which no tombstone reports a loss."""
        found: list[dict[str, Any]] = []
        while True:
            result = self.wait(self.start_read(topic, found[-1]["$seq"] if found else 0))
            assert result.tombstone is None
            some = msgspec.json.decode(b"[" + result.records + b"]")
            found += some
            if result.caught_up or not some:
                return found

    def data(self, topic: str) -> list[Any]:
        return [record["data"] for record in self.read(topic)]

    def router(self, name: str, core: int) -> Any:
        answer = Answer()
        self.worlds[core].engine.router(name, lambda _name: True, answer)
        return self.wait(answer)

    def delete_router(self, name: str, core: int) -> Any:
        answer = Answer()
        self.worlds[core].engine.delete_router(name, lambda _name: True, answer)
        return self.wait(answer)

    def delete(self, topic: str) -> Any:
        answer = Answer()
        self.engine_of(topic).delete_topic(topic, if_empty=False, done=answer)
        return self.wait(answer)

    def links(self, core: int) -> list[str]:
        """The names of the routers that have links on a core."""
        return sorted(link.name for link in self.worlds[core].stored.routers.links.values())
