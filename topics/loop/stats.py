"""Counters and times of the loop. One list index and two additions are spent per stage and pass."""

from __future__ import annotations

from topics.common.histograms import Histogram


class LoopStats:
    """Counters and stage histograms of one loop. The owner may read them at any time.

    Of passes of a receive that was taken by itself, one of 16 is timed, and counts for all.
    """

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
        """Times that a connection's reading paused for a pass, for too many buffers."""
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
        """The hooks at the end of a pass, with the one call that queues the sends."""

    def numbers(self) -> dict[str, int]:
        """Return the counters by name, for metrics."""
        return {name: value for name in self.__slots__ if isinstance(value := getattr(self, name), int)}

    def stages(self) -> dict[str, Histogram]:
        return {"wait": self.wait, "receive": self.receive, "tasks": self.tasks, "pass_end": self.pass_end}
