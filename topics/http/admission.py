"""What keeps a request out, in the order of the wire contract's 2.3, 2.4 and 4.3; the same for every protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topics.errors import RequestError
from topics.http.body import gunzip

if TYPE_CHECKING:
    from topics.http.plan import Plan
    from topics.http.service import Service


def refusal_of(service: Service, plan: Plan) -> RequestError | None:
    """Host and Origin, the key, its cap, its rights, the server's state, then path and method; None lets it in."""
    if plan.foreign is not None or plan.unauthorized is not None:
        return plan.foreign or plan.unauthorized
    counted = plan.counted
    if counted is not None and counted.in_flight >= counted.in_flight_max:
        return RequestError("throttled", "too many requests of this key are in flight (TOPICS_MAX_INFLIGHT_PER_KEY)")
    if plan.forbidden is not None:
        return plan.forbidden
    gate = service.gate
    return (gate(plan) if gate is not None else None) or plan.missing


def usable_body(service: Service, plan: Plan, body: bytes) -> bytes:
    """A whole body of a JSON route as the handler gets it, decompressed. Raises RequestError."""
    if plan.gzip:
        body = gunzip(body, service.planner.max_body_bytes)
    refusal = plan.body_refusal(not body)
    if refusal is not None:
        raise refusal
    return body
