"""Calls of the tests of queues on an engine with the fake store."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.engine.harness import Answer, Harness
from topics.engine.queue.queue_results import ClaimRequest, HeldJobs


def queue(**config: Any) -> Harness:
    h = Harness()
    h.put("q", type="queue", **config)
    return h


def start_claim(h: Harness, most: int = 1, node: str = "w", lease_ms: int | None = None) -> Answer:
    answer = Answer()
    h.cancel = h.engine.claim(ClaimRequest("q", node, most, lease_ms), answer)
    return answer


def jobs_of(answer: Answer) -> list[dict[str, Any]]:
    return msgspec.json.decode(b"[" + answer.get().records + b"]")


def claim(h: Harness, most: int = 1, node: str = "w") -> list[int]:
    answer = start_claim(h, most, node)
    h.settle()
    return [job["$seq"] for job in jobs_of(answer)]


def start_ack(h: Harness, *seqs: int) -> Answer:
    answer = Answer()
    h.engine.ack(HeldJobs("q", "w", seqs), answer)
    return answer


def one_pass(h: Harness) -> None:
    h.engine.flush()
    h.store.log.commit(None)
    h.loop.advance_ms(0)


def counters(h: Harness) -> tuple[int, int, int]:
    state = h.state("q")
    assert state.queue is not None
    return state.count, state.queue.ready, state.queue.in_flight
