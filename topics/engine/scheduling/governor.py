"""The pressure on the engine, and the load that is shed for it.

Source: docs/guides/scheduling.md.

Three signals, each as a share of a full value: topics that wait for their delivery, how long they
wait, and how late a timer of this loop fires. The worst of them, smoothed, is the pressure. Each
step of the ladder is taken at one pressure and given back at a lower one, so that it does not flap.
Pure: values in, values out.
"""

from __future__ import annotations

from typing import NamedTuple

from topics.config import Config

SAMPLE_NS = 100_000_000
_SMOOTH = 0.5
_LATENCY_WEIGHT = 1 / 16


class Sample(NamedTuple):
    """One sample of the load.

    backlog: topics waiting; oldest_ns: how long the first of them has; lag_ns: lateness of the
    sampling timer.
    """

    backlog: int
    oldest_ns: int
    lag_ns: int


class Rung:
    """One rung: taken after `samples` samples in a row at `on` or more, given back below `off`."""

    __slots__ = ("_count", "off", "on", "samples", "taken", "times")

    def __init__(self, on: float, off: float, samples: int = 1) -> None:
        self.on = on
        self.off = off
        self.samples = samples
        self.taken = False
        self.times = 0
        """Number of times that it was taken."""
        self._count = 0

    def settle(self, pressure: float, *, held_back: bool = False) -> None:
        """Take the rung or give it back. held_back: it may not be taken at any pressure."""
        if self.taken:
            self.taken = pressure >= self.off and not held_back
            return
        self._count = self._count + 1 if pressure >= self.on and not held_back else 0
        if self._count >= self.samples:
            self.taken = True
            self.times += 1
            self._count = 0


class Governor:
    def __init__(self, config: Config) -> None:
        self._config = config
        self.pressure = 0.0
        self.latency_ns = 0.0
        """Smoothed time between a topic's change and its delivery."""
        self._delivered = False
        self.coalesce = Rung(0.2, 0.1)
        """Delay of a topic delivered a moment ago, so that its next records come in one frame."""
        self.widen = Rung(0.4, 0.3)
        """Delay of commits, to gather more writes."""
        self.defer = Rung(0.8, 0.6, samples=2)
        """Delay of routers, and of pushes of topics of negative priority."""
        self.refuse = Rung(0.95, 0.6, samples=max(1, config.pressure_refuse_after_ms * 1_000_000 // SAMPLE_NS))
        """Refusal (429) of writes that do not opt out."""

    @property
    def steps(self) -> dict[str, Rung]:
        return {"coalesce": self.coalesce, "widen": self.widen, "defer": self.defer, "refuse": self.refuse}

    def on_delivered(self, waited_ns: int) -> None:
        """Note that a topic's delivery began `waited_ns` after its change."""
        # A topic that was paused for seconds does not make the others slow.
        waited_ns = min(waited_ns, 2 * self._config.pressure_full_latency_ms * 1_000_000)
        self.latency_ns += (waited_ns - self.latency_ns) * _LATENCY_WEIGHT
        self._delivered = True

    def sample(self, now: Sample) -> None:
        """Add a sample, every `SAMPLE_NS` while topics wait."""
        config = self._config
        if not self._delivered:
            self.latency_ns /= 2
        self._delivered = False
        raw = max(
            now.backlog / config.pressure_full_backlog,
            max(self.latency_ns, now.oldest_ns) / (config.pressure_full_latency_ms * 1_000_000),
            now.lag_ns / (config.pressure_full_lag_ms * 1_000_000),
        )
        self.pressure += (min(1.0, raw) - self.pressure) * _SMOOTH
        if self.pressure < 0.01:
            self.pressure = 0.0
        self.coalesce.settle(self.pressure)
        self.widen.settle(self.pressure)
        self.defer.settle(self.pressure)
        self.refuse.settle(self.pressure, held_back=not (config.backpressure and now.backlog))

    @property
    def coalesce_ns(self) -> int:
        """Delay of a topic's next delivery after one."""
        return int(self._config.coalesce_max_ms * 1_000_000 * self.pressure) if self.coalesce.taken else 0

    @property
    def commit_window_ns(self) -> int:
        """Delay of a commit, 0.5 ms to the most."""
        base_ns = self._config.commit_window_us * 1000
        if not self.widen.taken:
            return base_ns
        most_ns = self._config.commit_window_max_us * 1000
        return max(base_ns, int(min(500_000, most_ns) + (most_ns - min(500_000, most_ns)) * self.pressure))
