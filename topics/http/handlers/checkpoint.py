"""Have a checkpoint made. Source: wire contract, section 7.9."""

from __future__ import annotations

from topics.engine.results import CheckpointResult
from topics.http.call import Call

_WAIT_MS = 30_000


def checkpoint(call: Call) -> None:
    """The newest snapshot's number, once a checkpoint that begins from now on has ended (7.9)."""
    wait_ms = min(call.fields().u32("wait_ms", _WAIT_MS), call.service.config.max_wait_ms)

    @call.or_fail
    def done(result: CheckpointResult) -> None:
        fields = result.snapshot, b"true" if result.done else b"false", call.total_ms()
        call.reply(b'{"snapshot":%d,"done":%b,"performance":{"server_total_ms":%b}}' % fields)

    cancel = call.service.engine.checkpoint(wait_ms, done)
    if not call.answered:
        call.on_disconnect = cancel
