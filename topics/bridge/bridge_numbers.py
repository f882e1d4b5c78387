"""The metrics of a bridge, and the port that shows them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from topics.common.values.arguments import is_decimal
from topics.errors import UsageError

_PORT_DIGITS = 5
_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30)


class BridgeNumbers:
    """Counters and gauges of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.records = self._counter("records", "Records that were carried.", "topic")
        self.bytes = self._counter("bytes", "Bytes of their keys, values and headers.", "topic")
        self.marks = self._counter("marks", "Marks in the place of lost or large records.", "topic")
        self.failures = self._counter("failures", "Errors after which the bridge began again.", "side")
        self.lag = Gauge("topics_bridge_lag_records", "Records up to the head.", ["topic"], registry=self.registry)
        self.left_out = Gauge(
            "topics_bridge_left_out_topics", "Names that no topic here can have.", registry=self.registry
        )
        self.up = Gauge("topics_bridge_up", "Whether both sides answer (1) or not (0).", registry=self.registry)
        self.newest = Gauge(
            "topics_bridge_last_stored_timestamp_seconds", "When a batch was last stored.", registry=self.registry
        )
        self.seconds = Histogram(
            "topics_bridge_store_seconds", "Time to store a batch.", buckets=_SECONDS, registry=self.registry
        )

    def _counter(self, name: str, help_text: str, label: str) -> Counter:
        return Counter(f"topics_bridge_{name}", help_text, [label], registry=self.registry)

    def serve(self, address: str) -> None:
        """Show the metrics at HOST:PORT, in a thread. Raises: UsageError, OSError."""
        host, _, port = address.rpartition(":")
        if not (is_decimal(port, _PORT_DIGITS) and int(port) < 1 << 16):
            raise UsageError(f"--metrics is {address[:200]!r}: use HOST:PORT, such as 127.0.0.1:9310")
        try:
            start_http_server(int(port), host or "127.0.0.1", self.registry)
        except (OSError, UnicodeError) as error:  # the latter: no host can have the name
            why = getattr(error, "strerror", None) or "no host has such a name"
            raise UsageError(
                f"--metrics is {address[:200]!r}, which cannot be listened on ({why}): use another"
            ) from None
