"""The endpoint that pushes jobs. Source: wire contract, section 8.6."""

from __future__ import annotations

from topics.engine.queue.queue_results import ClaimRequest
from topics.http.handlers import event_streams
from topics.http.plan.call import Call
from topics.http.streams import sse
from topics.http.streams.work_stream import WorkStream
from topics.http.wire.query import boolean, unsigned

_NO_NUMBER = -1


def open_stream(call: Call) -> None:
    """Stream leased jobs, at most `max` at a time, until client or server ends it."""
    event_streams.check_accept(call.plan)
    service, query = call.service, call.plan.query
    lease_ms = unsigned(query, "lease_ms", _NO_NUMBER)
    request = ClaimRequest(
        call.name,
        query.get("node", ""),
        unsigned(query, "max", 1),
        None if lease_ms == _NO_NUMBER else lease_ms,
        with_attempts=boolean(query, "include_attempts", False),
    )
    work = WorkStream(call.plan.name_json, service.streams.heartbeats, service.now_ns)
    push = service.engine.open_push(request, work)
    slot = call.take_slot(call.principal)
    slot.on_key_gone, slot.on_shutdown = work.on_key_gone, work.on_shutdown
    stream = call.open_stream(sse.CONTENT_TYPE, sse.HEADERS, work.on_drained, work.on_disconnect)
    work.open(push, stream, slot.release)
