"""Endpoints of routers: create, get, list, delete. Source: wire contract, section 9."""

from __future__ import annotations

import msgspec

from topics.common.values.configs import AT_LEAST_ONCE, GUARANTEES, RouterConfig
from topics.engine.routers.router_results import RouterDeleted, RouterPut, RouterState
from topics.engine.values.predicate import parse_predicate
from topics.http.handlers.list_pages import asked_page, reply_page
from topics.http.plan.call import Call
from topics.http.wire.json_text import json_bool


def router_config(call: Call) -> RouterConfig:
    """Return the settings in the body: checks 1 and 2 of 9.2. Raises: RequestError."""
    fields = call.fields()
    match = fields.nullable_span("filter")
    config = RouterConfig(
        fields.string("source"),
        fields.string("dest"),
        fields.boolean("preserve_node", True),
        fields.boolean("preserve_tag", True),
        fields.boolean("create_dest", True),
        None if match is None else parse_predicate(match, call.service.config.max_tag_bytes, "filter"),
        fields.boolean("allow_cycle", False),
        fields.choice("guarantee", GUARANTEES, AT_LEAST_ONCE),
    )
    call.principal.check_names(config.source, config.dest)
    return config


def put_router(call: Call) -> None:
    """Create a router or replace its settings (9.2)."""
    config = router_config(call)

    @call.or_fail
    def done(result: RouterPut) -> None:
        body = b'{"router":%b,"created":%b,%b,"performance":{"server_total_ms":%b}}' % (
            call.plan.name_json,
            json_bool(result.created),
            _config_json(result.config),
            call.total_ms(),
        )
        call.reply(body, 201 if result.created else 200)

    call.service.engine.put_router(call.name, config, call.principal.allows, done)


def _config_json(config: RouterConfig) -> bytes:
    """Return the members of 9.1 that are echoed."""
    return (
        b'"source":%b,"dest":%b,"preserve_node":%b,"preserve_tag":%b,"filter":%b,"allow_cycle":%b,"guarantee":"%b"'
    ) % (
        msgspec.json.encode(config.source),
        msgspec.json.encode(config.dest),
        json_bool(config.preserve_node),
        json_bool(config.preserve_tag),
        b"null" if config.filter is None else config.filter.as_json(),
        json_bool(config.allow_cycle),
        config.guarantee.encode(),
    )


def get_router(call: Call) -> None:
    """Answer a router, with the number of records that it has forwarded (9.3)."""

    @call.or_fail
    def done(state: RouterState) -> None:
        body = b'{"router":%b,%b,"forwarded_total":%d,"performance":{"server_total_ms":%b}}' % (
            call.plan.name_json,
            _config_json(state.config),
            state.forwarded,
            call.total_ms(),
        )
        call.reply(body)

    call.service.engine.router(call.name, call.principal.allows, done)


def list_routers(call: Call) -> None:
    """Answer one page of routers, by name (9.4, 3.4)."""
    query = call.plan.query
    after, page_size = asked_page(query)
    page = call.service.engine.list_routers(
        query.get("prefix", ""), query.get("source", ""), query.get("dest", ""), after, page_size, call.principal.allows
    )
    reply_page(call, b"routers", [_row_json(row) for row in page.rows], page.next_after)


def _row_json(row: RouterState) -> bytes:
    return b'{"router":%b,"source":%b,"dest":%b,"guarantee":"%b","forwarded_total":%d}' % (
        msgspec.json.encode(row.name),
        msgspec.json.encode(row.config.source),
        msgspec.json.encode(row.config.dest),
        row.config.guarantee.encode(),
        row.forwarded,
    )


def delete_router(call: Call) -> None:
    """Delete a router. Its copies stay, and an absent router is not an error (9.5)."""

    @call.or_fail
    def done(result: RouterDeleted) -> None:
        body = b'{"router":%b,"deleted":%b,"performance":{"server_total_ms":%b}}' % (
            call.plan.name_json,
            json_bool(result.deleted),
            call.total_ms(),
        )
        call.reply(body)

    call.service.engine.delete_router(call.name, call.principal.allows, done)
