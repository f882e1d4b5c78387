"""Whether synced groups are held back a moment for what comes soon: found out by trying, as `PrimitiveTuner` does.

Whoever was answered by a commit often writes again at once. A commit that waits for them takes more along at the price
of one, where clients wait for their answers; where they do not, it only comes later. So stretches of commits with and
without a pause take turns, and the pause is kept up while it brings clearly more records a second.
"""

from __future__ import annotations

_STRETCH = 32
"""Commits that are measured as one."""
_TRY_EVERY = 16
"""One stretch in so many goes the other way than the preferred one."""
_CLEARLY = 1.05
"""The pause is preferred when it brings so many times the records of going at once."""
_WEIGHT = 4
"""The mean moves by a quarter of the distance to what was measured last."""
_IDLE_NS = 2_000_000
"""Longer than a loop at work takes between two commits: a stretch with such a gap begins anew, without pauses."""
_FEW = 4
"""Records a commit, in a stretch, below which nothing is tried: few clients gain nothing by each other."""


class CommitDelayTuner:
    """`delay_ns` before a commit, `note` after each. The groups of one shard; delay_ns 0: never."""

    def __init__(self, delay_ns: int) -> None:
        self._most_ns = delay_ns
        self.delay_ns = 0
        """How long after a commit's end the next one is held back, in this stretch."""
        self._prefers_pauses = False
        self._rates = [0.0, 0.0]
        """Records a second without and with pauses; 0: not measured yet."""
        self._stretches = 0
        self._commits = 0
        self._records = 0
        self._began_ns = self._ended_ns = 0

    def note(self, records: int, began_ns: int, now_ns: int) -> None:
        """A group of so many was committed from then till now."""
        if not self._most_ns:
            return
        if began_ns - self._ended_ns > self._most_ns + _IDLE_NS:  # nobody wrote: that says nothing of either way
            self._commits = self._records = 0
            self.delay_ns = 0
        self._ended_ns = now_ns
        self._commits += 1
        if self._commits == 1:  # what came before it says nothing about how long it took
            self._began_ns = now_ns
            return
        self._records += records
        if self._commits <= _STRETCH:
            return
        many = self._records >= _FEW * _STRETCH
        if many:
            self._measured(self._records * 1e9 / max(1, now_ns - self._began_ns))
        pauses = many and self._prefers_pauses != (self._stretches % _TRY_EVERY == 1)
        self.delay_ns = self._most_ns if pauses else 0
        self._commits = self._records = 0

    def _measured(self, rate: float) -> None:
        rates, at = self._rates, int(self.delay_ns > 0)
        rates[at] += (rate - rates[at]) / (_WEIGHT if rates[at] else 1)
        self._stretches += 1
        self._prefers_pauses = bool(rates[0]) and rates[1] > _CLEARLY * rates[0]
