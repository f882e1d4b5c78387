"""The probes of a server that is measured in parts."""

from __future__ import annotations

from topics.errors import RequestError


class NoProbes:
    """A server that no probe asks for its health."""

    def uptime_ms(self) -> int:
        return 0

    def not_ready(self) -> RequestError | None:
        return None

    def topic_count(self) -> int:
        return 0

    def metrics_text(self) -> bytes:
        return b""

    def metrics_json(self) -> bytes:
        return b""
