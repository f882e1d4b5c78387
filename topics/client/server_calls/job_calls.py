"""Calls on queues: jobs and dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from topics.client import parsing
from topics.client.attempts import Repeat, ServerCall
from topics.client.exchange import ServerRequest
from topics.client.parsing import DeadLetterPage, Redriven
from topics.client.server_calls.request_parts import MAX_LIMIT, MAX_WAIT_MS, encode, query, topic_path
from topics.common.values import arguments
from topics.common.values.answers import AckResult, ExtendResult, RepeatedAckResult
from topics.common.values.delivered import Job, Jobs, Record
from topics.common.values.held_jobs import held_jobs


def claim(
    queue: str, node: str, limit: int, *, lease_ms: int | None, wait_ms: int, include_attempts: bool
) -> ServerCall[list[Job]]:
    node = arguments.utf8_text("node", node)
    limit = arguments.count("limit", limit)
    lease_ms = arguments.optional_count("lease_ms", lease_ms)
    wait_ms = arguments.count("wait_ms", wait_ms)
    arguments.flag("include_attempts", include_attempts)
    body: dict[str, Any] = {"node": node, "max": min(limit, MAX_LIMIT)}
    if include_attempts:
        body["include_attempts"] = True
    if lease_ms is not None:
        body["lease_ms"] = lease_ms
    if wait_ms:
        body["wait_ms"] = wait_ms = min(wait_ms, MAX_WAIT_MS)
    request = ServerRequest("POST", f"{topic_path(queue, 'queue')}/claim", encode(body))
    return ServerCall(request, parsing.jobs_of, wait_s=wait_ms / 1000)


def ack(queue: str, node: str, jobs: Jobs) -> ServerCall[AckResult]:
    body, repeat = _held(queue, node, jobs)
    request = ServerRequest("POST", f"{topic_path(queue, 'queue')}/ack", encode(body))
    return _ending(request, repeat, "acked")


def nack(queue: str, node: str, jobs: Jobs, delay_ms: int, reason: str | None) -> ServerCall[AckResult]:
    delay_ms = arguments.count("delay_ms", delay_ms)
    body, repeat = _held(queue, node, jobs)
    body["delay_ms"] = delay_ms
    if reason:
        body["reason"] = arguments.utf8_text("reason", reason)
    request = ServerRequest("POST", f"{topic_path(queue, 'queue')}/nack", encode(body))
    return _ending(request, repeat, "nacked")


def _ending(request: ServerRequest, repeat: Repeat, done: str) -> ServerCall[AckResult]:
    """Return the call of an ack or a nack. done: the member that says how many jobs ended."""
    return ServerCall(
        request,
        lambda answer: parsing.ack_result(done, answer),
        repeat,
        changes=True,
        as_repeated=lambda result: RepeatedAckResult(*result),
    )


def extend(queue: str, node: str, jobs: Jobs, lease_ms: int) -> ServerCall[ExtendResult]:
    lease_ms = arguments.count("lease_ms", lease_ms)
    body, repeat = _held(queue, node, jobs)
    body["lease_ms"] = lease_ms
    request = ServerRequest("POST", f"{topic_path(queue, 'queue')}/extend", encode(body))
    return ServerCall(request, parsing.extend_result, repeat, changes=True)


def _held(queue: str, node: str, jobs: Jobs) -> tuple[dict[str, Any], Repeat]:
    """Return the body of ack, nack and extend, and whether it may be repeated.

    A lease id means one delivery of a job; a bare seq might mean a later one by then.
    """
    held = held_jobs(queue, arguments.utf8_text("node", node), jobs)
    body: dict[str, Any] = {"node": held.node, "seqs": held.seqs}
    if any(lease is not None for lease in held.lease_ids):
        body["lease_ids"] = ["" if lease is None else f"lease_{lease:x}" for lease in held.lease_ids]
    is_fenced = all(lease is not None for lease in held.lease_ids)
    return body, Repeat.ALWAYS if is_fenced else Repeat.NEVER


class ClientDeadLetters:
    """The calls of which lists of dead letters and redrives are made, see `DeadLetterCalls`."""

    max_limit = MAX_LIMIT
    max_claim = MAX_LIMIT

    def listing_dead(self, queue: str, from_seq: int, limit: int) -> ServerCall[DeadLetterPage[Record]]:
        path = f"{topic_path(queue, 'queue')}/dead" + query(from_seq=from_seq, limit=limit)
        return ServerCall(ServerRequest("GET", path), parsing.dead_letters)

    def redriving(self, queue: str, seqs: Sequence[int] | None, from_seq: int = 0) -> ServerCall[Redriven]:
        """Return the call that redrives; it is not repeated.

        If the server was killed between the jobs and the deletion, both are there (R-Q-38), and the
        same seqs again would make second jobs.
        """
        body = {"all": True, "from_seq": from_seq} if seqs is None else {"seqs": list(seqs)}
        request = ServerRequest("POST", f"{topic_path(queue, 'queue')}/redrive", encode(body))
        return ServerCall(request, parsing.redriven, Repeat.NEVER, changes=True)
