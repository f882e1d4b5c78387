"""Endpoints of queues: claim, complete, return and extend jobs.

Source: wire contract, sections 8.1 to 8.5.
"""

from __future__ import annotations

import re
from functools import partial

from topics.engine.queue.ack_nack_extend import check_reason
from topics.engine.queue.queue_results import AckResult, ClaimRequest, ClaimResult, ExtendResult, HeldJobs
from topics.engine.values.durations import milliseconds
from topics.engine.values.json_fields import Fields
from topics.errors import RequestError
from topics.http.plan.call import Call

_LEASE_ID = re.compile(r"lease_0*([0-9A-Fa-f]{1,16})", re.ASCII)


def claim(call: Call) -> None:
    """Lease jobs to a node (8.2). The answer may wait, for the end of a window or for jobs."""
    if not call.body:
        raise RequestError("invalid_request", 'the body is empty: send at least {"node": "<who claims>"}')
    fields = call.fields()
    request = ClaimRequest(
        call.name,
        fields.string("node"),
        fields.u32("max", 0),
        fields.nullable_u64("lease_ms"),
        with_attempts=fields.boolean("include_attempts", False),
    )
    wait_ms = fields.u32("wait_ms", 0)

    @call.or_fail
    def done(result: ClaimResult) -> None:
        call.reply(
            b'{"topic":%b,"claimed":[%b],"count":%d,"ready":%d,"performance":{"server_total_ms":%b}}'
            % (call.plan.name_json, result.records, result.count, result.ready, call.total_ms())
        )

    cancel = call.service.engine.claim_when_ready(request, wait_ms, done)
    if not call.answered:
        call.on_disconnect = cancel


def ack(call: Call) -> None:
    """Complete jobs: their records are deleted (8.3)."""
    request = _held_jobs(call, call.fields())
    call.service.engine.ack(request, call.or_fail(partial(_answer, call, b"acked")))


def nack(call: Call) -> None:
    """Return jobs to the queue, now or after a delay (8.4)."""
    fields = call.fields()
    delay_ms = fields.u64("delay_ms", 0)
    reason = fields.nullable_string("reason") or ""
    check_reason(call.service.config, reason)
    request = _held_jobs(call, fields)
    call.service.engine.nack(request, delay_ms, reason, call.or_fail(partial(_answer, call, b"nacked")))


def extend(call: Call) -> None:
    """Set a new deadline for jobs (8.5)."""
    fields = call.fields()
    fields.require("lease_ms")
    lease_ms = fields.u64("lease_ms", 0)

    @call.or_fail
    def done(result: ExtendResult) -> None:
        deadlines = b",".join([b'"%d":%d' % item for item in result.deadlines.items()])
        call.reply(
            b'{"topic":%b,"extended":%d,"skipped":%b,"deadlines":{%b},"performance":{"server_total_ms":%b}}'
            % (call.plan.name_json, len(result.deadlines), _json_seqs(result.skipped), deadlines, call.total_ms())
        )

    call.service.engine.extend(_held_jobs(call, fields), lease_ms, done)


def _held_jobs(call: Call, fields: Fields) -> HeldJobs:
    """Return the shared fields of ack, nack and extend, after checks 1 to 5 of 8.1 in their order.

    Raises: RequestError, a field breaks one of them.
    """
    most = call.service.config.max_claim
    node = fields.string("node")
    seqs, count = fields.u64s("seqs", most)
    texts, fences = fields.string_array("lease_ids", most)
    lease_ids = [_lease_id(text, index) for index, text in enumerate(texts)] if fences <= most else []
    if not node:
        raise RequestError("invalid_request", "node is empty: send the node that claimed the jobs")
    if count > most:
        message = f"seqs has {count} entries: at most {most} are allowed in one request"
        raise RequestError("batch_too_large", message, {"seqs": count, "max": most})
    if fences and fences != count:
        found = f"more than {most}" if fences > most else fences
        message = f'lease_ids has {found} entries for {count} seqs: send one for each ("" for no fence)'
        raise RequestError("invalid_request", message)
    return HeldJobs(call.name, node, seqs, lease_ids)


def _lease_id(text: str, index: int) -> int | None:
    """Return the number of a lease id; None for an empty text.

    Hex digits of any case and leading zeros are accepted (R-Q-8).

    Raises: RequestError invalid_request.
    """
    if not text:
        return None
    found = _LEASE_ID.fullmatch(text)
    if found is None:
        message = f'lease_ids[{index}] is no lease id: send it as claim gave it ("lease_" and hex digits), or ""'
        raise RequestError("invalid_request", message)
    return int(found[1], 16)


def _answer(call: Call, verb: bytes, result: AckResult) -> None:
    """Answer an ack or a nack."""
    count, skipped, ready, in_flight, sync_ns = result
    sync = b',"fsync_ms":' + milliseconds(sync_ns) if sync_ns > 0 else b""
    call.reply(
        b'{"topic":%b,"%b":%d,"skipped":%b,"ready":%d,"in_flight":%d,"performance":{"server_total_ms":%b%b}}'
        % (call.plan.name_json, verb, count, _json_seqs(skipped), ready, in_flight, call.total_ms(), sync)
    )


def _json_seqs(seqs: list[int]) -> bytes:
    return b"[%b]" % ",".join(map(str, seqs)).encode() if seqs else b"[]"
