"""What keeps a request out, in the order of the wire contract's 2.3, 2.4 and 4.3; the same for every protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topics.errors import RequestError
from topics.http.access.routes import Body
from topics.http.plan.body import Unpacking, begun, unpack
from topics.http.plan.in_flight import NOTHING_COMES

if TYPE_CHECKING:
    from topics.http.plan.plan import Plan
    from topics.http.plan.service import Service

UNREAD_BODY_BYTES_MAX = 65_536
"""More of a body that nobody reads is not passed over: the connection or the stream ends."""


def refusal_of(service: Service, plan: Plan) -> RequestError | None:
    """Host and Origin, the key, its cap, its rights, the server's state, then path and method; None lets it in."""
    if plan.foreign is not None or plan.unauthorized is not None:
        return plan.foreign or plan.unauthorized
    counted = plan.counted
    if counted is not None and NOTHING_COMES.is_full(counted):
        return RequestError("throttled", "too many requests of this key are in flight (TOPICS_MAX_INFLIGHT_PER_KEY)")
    if plan.forbidden is not None:
        return plan.forbidden
    gate = service.gate
    return (gate(plan) if gate is not None else None) or plan.missing


def judged_again(service: Service, plan: Plan) -> tuple[Plan, RequestError | None]:
    """Return the plan and the refusal of a request that was let in, whose key has changed since (R-AUTH-10)."""
    plan = service.planner.again(plan)
    return plan, plan.unauthorized or plan.forbidden


def refusal_before_body(service: Service, plan: Plan) -> RequestError | None:
    """The same, and what the head says of a body the route would read: its size, and with Expect its encoding."""
    refusal = refusal_of(service, plan)
    if refusal is not None or ignores_body(plan):
        return refusal
    refusal = plan.too_large
    if refusal is None and plan.expects_continue and not plan.gzip:
        refusal = plan.body_refusal(False)
    return refusal


def ignores_body(plan: Plan) -> bool:
    """There is no route, or it takes no body: one that comes is passed over."""
    return plan.route is None or plan.route.body is Body.IGNORED


def usable_body(
    plan: Plan, body: bytes | bytearray | memoryview, step_bytes: int
) -> bytes | bytearray | memoryview | Unpacking:
    """Return a whole body of a JSON route as the handler gets it, decompressed; of one that takes more than a step,
    what unpacks the rest. Raises RequestError."""
    if plan.gzip:
        steps = unpack(body, plan.max_body_bytes, step_bytes)
        unpacked = begun(steps)
        if unpacked is None:
            return Unpacking(steps, len(body))
        body = unpacked
    check_type(plan, is_empty=not body)
    return body


def check_type(plan: Plan, *, is_empty: bool) -> None:
    """Raises RequestError: the head says that the body, decompressed, is no JSON."""
    refusal = plan.body_refusal(is_empty)
    if refusal is not None:
        try:
            raise refusal
        finally:
            del refusal  # its traceback knows this frame
