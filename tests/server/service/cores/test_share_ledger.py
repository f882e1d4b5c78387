"""Shares of limits between cores whose messages are lost, late, and come in any order, and which end at any time.

Goal: all cores together never use more of a limit than it is, and none that asks all others is refused while there is
room. Method: ledgers without sockets. A message that is under way may be delivered, lost, or come twice. A core that
ends forgets everything but what is stored, and what was on its way to it is gone; what it has sent may still arrive.
"""

from __future__ import annotations

import random
from functools import partial

import pytest

from tests.amount import seeds
from topics.engine.shared.limits import Limit
from topics.http.access.principal import ALL_SCOPES, Principal
from topics.http.streams.key_limits import KeyLimits
from topics.server.cores.share_ledger import ShareLedger, ShareReport

STORED, PASSING, OF_KEY = "max_topics", "max_waits", "max_of_a_key"
KEY = Principal(0, ALL_SCOPES, mark=b"\x0a")


class Core:
    """One core in its lives. used: by limit."""

    def __init__(self, number: int, cores: int, whole: dict[str, int], stored: int) -> None:
        self.number = number
        self._cores = cores
        self._whole = whole
        self.used = {STORED: stored, PASSING: 0, OF_KEY: 0}
        self.life = 0
        self.begin(1)

    def begin(self, life: int) -> None:
        self.life = life
        self.used[PASSING] = self.used[OF_KEY] = 0
        self.has_recovered = False
        used, whole = self.used.__getitem__, self._whole
        self._limits = {name: Limit(name, whole[name], partial(used, name)) for name in (STORED, PASSING)}
        self._of_keys = KeyLimits(OF_KEY, whole[OF_KEY])
        self.ledger = ShareLedger(self.number, self._cores, life)
        self.ledger.add([self._limits[PASSING]])
        self.ledger.add_of_keys(self._of_keys)

    def recover(self) -> None:
        if not self.has_recovered:
            self.has_recovered = True
            self.ledger.add_stored([self._limits[STORED]])

    def limit(self, name: str) -> Limit:
        """Return a limit. That of the key is made when it is first used here, or by another core."""
        if name != OF_KEY:
            return self._limits[name]
        of_key = self._of_keys.of(KEY)
        assert of_key is not None
        of_key.count = self.used[OF_KEY]
        return of_key

    def adds(self, name: str, more: int) -> bool:
        """Add something, as a request does, if there is room."""
        if (name == STORED and not self.has_recovered) or self.limit(name).left < more:
            return False
        self.uses(name, more)
        return True

    def uses(self, name: str, more: int) -> None:
        self.used[name] += more
        self.limit(name)

    def wanted(self, name: str, more: int) -> dict[str, int]:
        return self.ledger.wanted({self.limit(name).name: more})


class Message:
    """A question, or the answer to one. life: of the core that gets it."""

    def __init__(self, to: Core, report: ShareReport, *, is_question: bool) -> None:
        self.to = to
        self.life = to.life
        self.report = report
        self.is_question = is_question


class World:
    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        count = rng.randint(2, 4)
        self.whole = {name: rng.randint(1, 40) for name in (STORED, PASSING, OF_KEY)}
        found = rng.randint(0, self.whole[STORED])
        parts = [rng.randint(0, count - 1) for _ in range(found)]
        self.cores = [Core(number, count, self.whole, parts.count(number)) for number in range(count)]
        self.under_way: list[Message] = []
        self.lives = 1

    def ask(self, core: Core, wanted: dict[str, int]) -> None:
        for other in self.cores:
            if other is not core:
                self.under_way.append(Message(other, core.ledger.report(other.number, wanted), is_question=True))

    def deliver(self, message: Message) -> None:
        if message.to.life != message.life:
            return  # it was in a socket of a process that is gone
        ledger = message.to.ledger
        if not message.is_question:
            ledger.take_answer(message.report)
            return
        asker = self.cores[message.report.core]
        self.under_way.append(Message(asker, ledger.take_question(message.report), is_question=False))

    def step(self) -> None:
        rng, core = self.rng, self.rng.choice(self.cores)
        what = rng.random()
        if what < 0.45 and self.under_way:
            message = self.under_way.pop(rng.randrange(len(self.under_way)))
            fate = rng.random()
            if fate < 0.85:
                self.deliver(message)
            if fate > 0.75 and not message.is_question:
                self.under_way.append(message)  # late, or once more
        elif what < 0.75:
            name, more = rng.choice([STORED, PASSING, OF_KEY]), rng.randint(1, 4)
            if not core.adds(name, more):
                self.ask(core, core.wanted(name, more))
        elif what < 0.85:
            name = rng.choice([STORED, PASSING, OF_KEY])
            core.uses(name, -rng.randint(0, core.used[name]))
        elif what < 0.95:
            core.recover()
            self.ask(core, {})
        else:
            self.lives += 1
            core.begin(self.lives)
            self.ask(core, {})

    def settle(self) -> None:
        """Deliver everything from now on, until nothing is under way."""
        for _ in range(3):
            for core in self.cores:
                core.recover()
                self.ask(core, {})
                while self.under_way:
                    self.deliver(self.under_way.pop(self.rng.randrange(len(self.under_way))))

    def check(self) -> None:
        for name, whole in self.whole.items():
            assert sum(core.used[name] for core in self.cores) <= whole, name


@pytest.mark.parametrize("seed", seeds(400))
def test_all_cores_never_use_more_than_a_limit(seed: int) -> None:
    world = World(seed)
    for _ in range(300):
        world.step()
        world.check()


@pytest.mark.parametrize("seed", seeds(200))
def test_a_core_that_has_asked_all_others_gets_everything_that_is_left(seed: int) -> None:
    world = World(seed)
    for _ in range(100):
        world.step()
    world.settle()
    for name, whole in world.whole.items():
        core = world.rng.choice(world.cores)
        left = whole - sum(each.used[name] for each in world.cores)
        world.ask(core, core.wanted(name, left))
        while world.under_way:
            world.deliver(world.under_way.pop())
        assert core.limit(name).waits_for is None
        assert core.adds(name, left)
        world.check()


def test_base_shares_add_up_to_the_limit() -> None:
    """Where it is not divisible, the first cores have one more."""
    world = World(0)
    world.whole = {STORED: 11, PASSING: 2, OF_KEY: 5}
    world.cores = [Core(number, 3, world.whole, 0) for number in range(3)]
    world.settle()
    shares = [[core.limit(name).most for core in world.cores] for name in (STORED, PASSING, OF_KEY)]
    assert shares == [[4, 4, 3], [1, 1, 0], [2, 2, 1]]


def test_a_core_gives_half_of_what_it_has_left_or_what_is_asked_for() -> None:
    world = World(0)
    world.whole = {STORED: 40, PASSING: 40, OF_KEY: 40}
    world.cores = [Core(number, 2, world.whole, 0) for number in range(2)]
    world.settle()
    for wanted, most in ((1, 30), (7, 37), (9, 40)):
        world.ask(world.cores[0], {PASSING: wanted})
        world.deliver(world.under_way.pop())
        world.deliver(world.under_way.pop())
        assert world.cores[0].limit(PASSING).most == most
