"""The effective priority of a topic: reported, and the order of deliveries when time is short.

Priority changes neither the order of a topic's records nor any answer (docs/guides/scheduling.md).
Source: R-PRI.
"""

from __future__ import annotations

from topics.engine.values.topic_config import TopicConfig

_BOUND = 1000
_FRESH = 500
_HALVES_MS = 30_000
_FORGOTTEN_MS = 300_000


def effective_priority(config: TopicConfig, consumed_ms: int, now_ms: int) -> int:
    """Return the effective priority at `now_ms`.

    consumed_ms: when the topic was last consumed, 0 = never.
    """
    if config.priority is not None:
        return max(-_BOUND, min(config.priority, _BOUND))
    idle_ms = now_ms - consumed_ms
    if not config.auto_priority or not consumed_ms or idle_ms >= _FORGOTTEN_MS:
        return 0
    return round(_FRESH * 2 ** (-max(0, idle_ms) / _HALVES_MS))
