"""Refusals of requests, shared by all protocols.

Their order is that of the wire contract's 2.3, 2.4 and 4.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from topics.errors import RequestError
from topics.http.access.routes import Body
from topics.http.plan.body import Unpacking, begun, unpack
from topics.http.plan.in_flight import NOTHING_COMES
from topics.http.plan.plan import Plan, Planner

UNREAD_BODY_BYTES_MAX = 65_536
"""Most bytes of an unused body that are skipped; for more, the connection or stream ends."""

Gate = Callable[[Plan], RequestError | None]
"""Function that returns the refusal of a request by the server's state, or None."""


class GatedService(Protocol):
    """The parts of the service that decide whether it serves a request."""

    gate: Gate | None
    planner: Planner


def refusal_of(service: GatedService, plan: Plan) -> RequestError | None:
    """Return the error that refuses a request; None admits it.

    The order: Host and Origin, the key, its cap, its rights, the server's state, then path and
    method.
    """
    if plan.foreign is not None or plan.unauthorized is not None:
        return plan.foreign or plan.unauthorized
    counted = plan.counted
    if counted is not None and NOTHING_COMES.is_full(counted):
        return RequestError("throttled", "too many requests of this key are in flight (TOPICS_MAX_INFLIGHT_PER_KEY)")
    if plan.forbidden is not None:
        return plan.forbidden
    gate = service.gate
    return (gate(plan) if gate is not None else None) or plan.missing


def core_to_ask(service: GatedService, plan: Plan) -> int | None:
    """Return the other core that owns the topic, if nothing else refuses the request."""
    return plan.core if plan.core is not None and refusal_of(service, plan) is plan.missing else None


def judged_again(service: GatedService, plan: Plan) -> tuple[Plan, RequestError | None]:
    """Return the new plan and refusal of an admitted request whose key has changed (R-AUTH-10)."""
    plan = service.planner.again(plan)
    return plan, plan.unauthorized or plan.forbidden


def refusal_before_body(service: GatedService, plan: Plan) -> RequestError | None:
    """Return `refusal_of`, or the error of the body as the head describes it.

    Its size is checked, and with Expect its encoding, too.
    """
    refusal = refusal_of(service, plan)
    if refusal is not None or ignores_body(plan):
        return refusal
    refusal = plan.too_large
    if refusal is None and plan.expects_continue and not plan.gzip:
        refusal = plan.body_refusal(False)
    return refusal


def ignores_body(plan: Plan) -> bool:
    """Return whether a body is skipped: there is no route, or the route takes no body."""
    return plan.route is None or plan.route.body is Body.IGNORED


def usable_body(
    plan: Plan, body: bytes | bytearray | memoryview, step_bytes: int
) -> bytes | bytearray | memoryview | Unpacking:
    """Return a whole body of a JSON route, decompressed, as the handler gets it.

    A body that needs more than a step is returned as `Unpacking`.

    Raises: RequestError, the body is corrupt, too large or not JSON.
    """
    if plan.gzip:
        unpacked = begun(unpack(body, plan.max_body_bytes, step_bytes), len(body))
        if isinstance(unpacked, Unpacking):
            return unpacked
        body = unpacked
    check_type(plan, is_empty=not body)
    return body


def check_type(plan: Plan, *, is_empty: bool) -> None:
    """Check that the head declares the decompressed body as JSON.

    Raises: RequestError, it does not.
    """
    refusal = plan.body_refusal(is_empty)
    if refusal is not None:
        try:
            raise refusal
        finally:
            del refusal  # its traceback refers to this frame
