"""The ledger of one core's shares: base shares, room that others gave it, and that it gave them.

    message of another core -> what is known of it -> `Limit.most`

`given[i][j]` is all that core i ever gave to core j. Only i adds to it, and messages carry the
whole number, so one that is lost or comes twice changes nothing. Base shares add up to the limit,
so all cores together never may use more. Nothing here waits or sends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import msgspec

from topics.engine.shared.limits import Limit


class ShareReport(msgspec.Struct, omit_defaults=True):
    """The report of a core to another one: a question, or the answer to one."""

    core: int
    life: int
    """That of the core: a later one has a higher number."""
    of: int = 0
    """The life of the receiver that it has heard of; 0: none."""
    knows: bool = False
    """Whether it knows what it and the receiver gave each other."""
    given: dict[str, int] = {}
    """Room that it ever gave to the receiver."""
    got: dict[str, int] = {}
    """Room that the receiver ever gave to it, as far as it knows."""
    has_counted: bool = False
    """Whether it has recovered and knows what it may use, so that `over` counts."""
    over: dict[str, int] = {}
    """By how much more than it may it uses limits, because a start has found so much."""
    wanted: dict[str, int] = {}
    """Room that it asks for, by limit."""


class _Other:
    """Another core, as this one knows it."""

    def __init__(self) -> None:
        self.newest_life = 0
        self.is_known = False
        """Whether it is known what the two gave each other."""
        self.has_counted = False
        """Whether it has reported what its start found, and got what it lacked of that."""
        self.given: dict[str, int] = {}
        """Room that this core ever gave to it."""
        self.got: dict[str, int] = {}
        """Room that it ever gave to this core."""


class LimitsOfKeys(Protocol):
    """The part of `topics.http.streams.key_limits.KeyLimits` that a ledger shares."""

    def divide(self, divide: Callable[[Limit], None]) -> None: ...

    def named(self, name: str) -> Limit | None: ...


class ShareLedger:
    """The shares of one core. life: a number that is higher in each life of the core."""

    def __init__(self, own: int, cores: int, life: int) -> None:
        self._own = own
        self._cores = cores
        self._life = life
        self._others = {core: _Other() for core in range(cores) if core != own}
        self._limits: dict[str, Limit] = {}
        self._of_keys: list[LimitsOfKeys] = []
        self._stored: set[str] = set()
        """Limits of what a start finds again. Another core may begin with more than its share."""
        self._has_counted = False

    def add(self, limits: Iterable[Limit]) -> None:
        """Share limits of what is not stored."""
        for limit in limits:
            if limit.whole:
                self._limits[limit.name] = limit
                self._settle(limit)

    def add_of_keys(self, limits: LimitsOfKeys) -> None:
        """Share the limits of keys, of which others may ask for one before this core uses it."""
        self._of_keys.append(limits)
        limits.divide(lambda limit: self.add((limit,)))

    def add_stored(self, limits: Iterable[Limit]) -> None:
        """Share the limits of what a start has found."""
        limits = list(limits)
        self._has_counted = True
        self._stored.update(limit.name for limit in limits if limit.whole)
        self.add(limits)

    # --- what is sent ------------------------------------------------------------------------------------------------
    def report(self, core: int, wanted: Mapping[str, int] | None = None) -> ShareReport:
        """Return the report to another core. wanted: see `wanted`."""
        other = self._others[core]
        has_counted = self._has_counted and self.knows_all
        report = ShareReport(self._own, self._life, other.newest_life, other.is_known, has_counted=has_counted)
        if other.is_known:
            report.given, report.got = dict(other.given), dict(other.got)
        report.over, report.wanted = self._over(), dict(wanted or {})
        return report

    def wanted(self, added: Mapping[str, int]) -> dict[str, int]:
        """Return what is missing for requests that add this, by limit.

        {}: it is not known what this core may use.
        """
        if not self.knows_all:
            return {}
        missing = {name: more - self._left(self._limits[name]) for name, more in added.items() if name in self._limits}
        return {name: more for name, more in missing.items() if more > 0}

    def admits(self, names: Iterable[str]) -> bool:
        """Return whether what this core may use of these limits is known and counts."""
        return all(self._limits[name].waits_for is None for name in names if name in self._limits)

    def _over(self) -> dict[str, int]:
        if not self.knows_all:
            return {}
        left = {name: self._left(self._limits[name]) for name in self._stored}
        return {name: -count for name, count in left.items() if count < 0}

    # --- what comes --------------------------------------------------------------------------------------------------
    def take_question(self, report: ShareReport) -> ShareReport:
        """Take the question of another core, give it what can be given, and return the answer."""
        other = self._others[report.core]
        self.take_answer(report)
        if report.life == other.newest_life and self.knows_all:
            for name, wanted in report.wanted.items():
                self._give(other, name, wanted, report, shares=True)
        return self.report(report.core)

    def take_answer(self, report: ShareReport) -> None:
        """Take what another core reports, also late. That of an earlier life says nothing now."""
        other = self._others[report.core]
        if report.life < other.newest_life:
            return
        self._merge(other, report)
        if report.has_counted and not other.has_counted:
            if report.over and not (self.knows_all and self._has_counted):
                return  # it cannot be given what it lacks yet
            for name, over in report.over.items():
                self._give(other, name, over, report)
            other.has_counted = True
            self._settle_all()

    def _merge(self, other: _Other, report: ShareReport) -> None:
        """Learn from a report what its core gave."""
        other.newest_life = report.life
        if other.is_known:
            if report.knows and report.of == self._life:
                self._take_given(other, report.given)
            return  # there may be a limit of each key, of which few have changed
        if report.of == self._life and report.knows:
            other.given, other.got = dict(report.got), dict(report.given)
            other.is_known = True
        elif not report.of:
            other.is_known = True  # neither knows of an earlier life of the other one
        else:
            return
        self._settle_all()

    def _take_given(self, other: _Other, given: Mapping[str, int]) -> None:
        for name, room in given.items():
            if room > other.got.get(name, 0):
                other.got[name] = room
                limit = self._limits.get(name)
                if limit is not None:
                    self._settle(limit)

    def _give(self, other: _Other, name: str, wanted: int, report: ShareReport, *, shares: bool = False) -> None:
        """Give another core what it wants, as far as it is left here.

        shares: at least half of what is left. What it was given and has not heard of counts.
        """
        limit = self._limits.get(name) or next(filter(None, (each.named(name) for each in self._of_keys)), None)
        if limit is None:
            return
        before = other.given.get(name, 0)
        wanted -= before - report.got.get(name, 0)
        left = self._left(limit)
        given = max(min(wanted, left), left // 2 if shares else 0) if wanted > 0 else 0
        if given > 0:
            other.given[name] = before + given
            self._settle(limit)

    # --- what may be used --------------------------------------------------------------------------------------------
    @property
    def knows_all(self) -> bool:
        """Whether it is known what this core may use."""
        return all(other.is_known for other in self._others.values())

    def _allowed(self, limit: Limit) -> int:
        """Return what this core may use, once it knows all others."""
        base = limit.whole // self._cores + (self._own < limit.whole % self._cores)
        return base + sum(
            other.got.get(limit.name, 0) - other.given.get(limit.name, 0) for other in self._others.values()
        )

    def _left(self, limit: Limit) -> int:
        return self._allowed(limit) - limit.used()

    def _settle_all(self) -> None:
        for limit in self._limits.values():
            self._settle(limit)

    def _settle(self, limit: Limit) -> None:
        is_stored = limit.name in self._stored
        limit.waits_for = next(
            (
                core
                for core, other in self._others.items()
                if not other.is_known or (is_stored and not other.has_counted)
            ),
            None,
        )
        limit.most = self._allowed(limit) if limit.waits_for is None else 0
