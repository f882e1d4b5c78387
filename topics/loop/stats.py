"""What the loop counts about itself. Cheap: one list index and two additions a stage and pass."""

from __future__ import annotations

BUCKET_COUNT = 40
"""Powers of two from 1 ns to 9 minutes; the last bucket takes what is longer."""


class Histogram:
    """Durations in power-of-two buckets: bucket i counts those below 2**i ns (and at least half of that)."""

    __slots__ = ("buckets", "count", "total_ns")

    def __init__(self) -> None:
        self.buckets = [0] * BUCKET_COUNT
        self.count = 0
        self.total_ns = 0

    def add(self, ns: int) -> None:
        index = ns.bit_length()
        self.buckets[index if index < BUCKET_COUNT else -1] += 1
        self.count += 1
        self.total_ns += ns

    def quantile_ns(self, fraction: float) -> int:
        """Upper bound of the bucket in which this fraction of the durations lies; 0 without any."""
        wanted = fraction * self.count
        seen = 0
        for index, count in enumerate(self.buckets):
            seen += count
            if count and seen >= wanted:
                return 1 << index
        return 0


class LoopStats:
    """Counters and stage histograms of one loop; the owner reads them at any time."""

    __slots__ = (
        "accept_errors",
        "accepts",
        "bogus_accepts",
        "callback_errors",
        "completions",
        "emfile",
        "enobufs",
        "messages_received",
        "pass_end",
        "passes",
        "receive",
        "refused",
        "sends",
        "tasks",
        "throttled",
        "wait",
    )

    def __init__(self) -> None:
        self.passes = 0
        self.completions = 0
        self.messages_received = 0
        self.sends = 0
        self.enobufs = 0
        """Receives that ended because no provided buffer was free."""
        self.throttled = 0
        """Times a connection's reading sat out a pass because it took more than its share of the buffers."""
        self.accepts = 0
        self.refused = 0
        """Connections closed at once: over the listener's cap, or out of descriptors."""
        self.bogus_accepts = 0
        self.accept_errors = 0
        self.emfile = 0
        self.callback_errors = 0
        self.wait = Histogram()
        """Submit and wait: idle time and the kernel's work together."""
        self.receive = Histogram()
        """Reap, dispatch and the handlers' `receive`."""
        self.tasks = Histogram()
        """Timers and ready tasks."""
        self.pass_end = Histogram()
        """The hooks at the end of a pass, the sends' one call included."""

    def numbers(self) -> dict[str, int]:
        """The counters by name, for metrics."""
        return {name: value for name in self.__slots__ if isinstance(value := getattr(self, name), int)}

    def stages(self) -> dict[str, Histogram]:
        return {"wait": self.wait, "receive": self.receive, "tasks": self.tasks, "pass_end": self.pass_end}
