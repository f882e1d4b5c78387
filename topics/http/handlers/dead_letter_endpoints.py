"""Endpoints of dead letters: list them, and make jobs of them again.

Source: wire contract, sections 8.7 and 8.8.
"""

from __future__ import annotations

import msgspec

from topics.engine.queue.dead_records import DeadPage
from topics.engine.queue.redrive import RedriveRequest, RedriveTurn
from topics.engine.values.read_answer import place
from topics.engine.values.results import DiffQuery
from topics.errors import RequestError
from topics.http.plan.call import Call
from topics.http.wire.query import unsigned


def list_dead(call: Call) -> None:
    """List the dead letters of a queue (8.7)."""
    query = call.plan.query
    asked = DiffQuery(unsigned(query, "from_seq", 0), unsigned(query, "limit", 0))
    _check_name(call)

    @call.or_fail
    def done(result: DeadPage) -> None:
        page = result.page
        call.reply(
            b'{"topic":%b,"dead_letter":%b,"dead":[%b],%b,"performance":{"server_total_ms":%b}}'
            % (
                call.plan.name_json,
                msgspec.json.encode(result.dead_letter),
                page.records,
                place(page.next_from_seq, page.head_seq),
                call.total_ms(),
            )
        )

    call.service.engine.dead(call.name, asked, done)


def redrive(call: Call) -> None:
    """Make jobs of dead letters again, and delete these (8.8)."""
    fields = call.fields()
    most = call.service.config.max_claim
    is_all = fields.boolean("all", False)
    from_seq, limit = fields.u64("from_seq", 0), fields.u32("max", 0)
    seqs: list[int] | None = None
    count = 0
    if not is_all:
        seqs, count = fields.u64s("seqs", most)
    elif "seqs" in fields:
        raise RequestError("invalid_request", "seqs and all both say what to redrive: send one of them")
    if count > most:
        message = f"seqs has {count} entries: at most {most} are allowed in one request"
        raise RequestError("batch_too_large", message, {"seqs": count, "max": most})
    _check_name(call)

    @call.or_fail
    def done(turn: RedriveTurn) -> None:
        where = b"," + place(turn.next_from_seq, turn.head_seq) if is_all else b""
        call.reply(
            b'{"topic":%b,"dead_letter":%b,"redriven":%d,"skipped":%b%b,"performance":{"server_total_ms":%b}}'
            % (
                call.plan.name_json,
                msgspec.json.encode(turn.dead_letter),
                turn.redriven,
                msgspec.json.encode(turn.skipped),
                where,
                call.total_ms(),
            )
        )

    call.service.engine.redrive(RedriveRequest(call.name, seqs, from_seq, limit), done)


def _check_name(call: Call) -> None:
    """Check that the dead-letter topic is one of the key's names. Raises RequestError."""
    name = call.service.engine.dead_letter_name(call.name)
    if name is not None:
        call.principal.check_names(name)
