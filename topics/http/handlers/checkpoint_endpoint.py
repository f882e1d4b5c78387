"""The endpoint that requests a checkpoint. Source: wire contract, section 7.9."""

from __future__ import annotations

from topics.engine.values.results import CheckpointResult
from topics.http.plan.call import Call

_WAIT_MS = 30_000


def asked_checkpoint(call: Call) -> tuple[int, int]:
    """Return how long a request waits, and the checkpoint that it continues to wait for; 0: none.

    Raises: RequestError.
    """
    fields = call.fields()
    return min(fields.u32("wait_ms", _WAIT_MS), call.service.config.max_wait_ms), fields.u64("checkpoint", 0)


def checkpoint(call: Call) -> None:
    """Answer the newest snapshot's number, after a checkpoint that begins from now on (7.9)."""
    wait_ms, number = asked_checkpoint(call)

    @call.or_fail
    def answer(result: CheckpointResult) -> None:
        done = b"true" if result.done else b'false,"checkpoint":%d' % result.number
        call.reply(
            b'{"snapshot":%d,"done":%b,"performance":{"server_total_ms":%b}}' % (result.snapshot, done, call.total_ms())
        )

    cancel = call.service.engine.checkpoint(wait_ms, answer, number=number)
    if not call.answered:
        call.on_disconnect = cancel
