"""The decision whether synced groups are delayed for more records, by trying both.

A client that a commit has answered often writes again at once. A commit that waits for such writes
takes more records at the price of one, if clients wait for their answers; otherwise it is only
later. Stretches of commits with and without a delay therefore alternate, and the delay is kept
while it yields clearly more records a second. `FastestWay` works in a similar way.
"""

from __future__ import annotations

_STRETCH = 32
"""Number of commits measured together."""
_TRY_EVERY = 16
"""Number of stretches of which one uses the way that is not preferred."""
_CLEARLY = 1.05
"""Factor in records a second from which on the delay is preferred."""
_WEIGHT = 4
"""The mean moves by a quarter of its distance to the last measurement."""
_IDLE_NS = 2_000_000
"""A gap longer than between two commits of a busy loop.

A stretch with such a gap begins anew, without delays.
"""
_FEW = 4
"""Records per commit below which nothing is tried: few clients gain nothing from a delay."""


class CommitDelayTuner:
    """The tuner of one shard's groups: `delay_ns` before a commit, `note` after each.

    delay_ns 0: never delay.
    """

    def __init__(self, delay_ns: int) -> None:
        self._most_ns = delay_ns
        self.delay_ns = 0
        """Delay of a commit after the end of the previous one, in this stretch."""
        self._prefers_delays = False
        self._rates = [0.0, 0.0]
        """Records a second without and with delays; 0: not measured yet."""
        self._stretches = 0
        self._commits = 0
        self._records = 0
        self._began_ns = self._ended_ns = 0

    def note(self, records: int, began_ns: int, now_ns: int) -> None:
        """Note that a group of `records` was committed in this time."""
        if not self._most_ns:
            return
        # no client wrote, so neither way is measured
        if began_ns - self._ended_ns > self._most_ns + _IDLE_NS:
            self._commits = self._records = 0
            self.delay_ns = 0
        self._ended_ns = now_ns
        self._commits += 1
        if self._commits == 1:  # the time before the first commit of a stretch does not count
            self._began_ns = now_ns
            return
        self._records += records
        if self._commits <= _STRETCH:
            return
        many = self._records >= _FEW * _STRETCH
        if many:
            self._measured(self._records * 1e9 / max(1, now_ns - self._began_ns))
        delays = many and self._prefers_delays != (self._stretches % _TRY_EVERY == 1)
        self.delay_ns = self._most_ns if delays else 0
        self._commits = self._records = 0

    def _measured(self, rate: float) -> None:
        rates, at = self._rates, int(self.delay_ns > 0)
        rates[at] += (rate - rates[at]) / (_WEIGHT if rates[at] else 1)
        self._stretches += 1
        self._prefers_delays = bool(rates[0]) and rates[1] > _CLEARLY * rates[0]
