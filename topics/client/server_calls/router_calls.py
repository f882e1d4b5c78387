"""Calls on routers."""

from __future__ import annotations

import msgspec

from topics.client import parsing
from topics.client.attempts import Repeat, ServerCall
from topics.client.exchange import ServerRequest
from topics.client.server_calls.request_parts import encode, query, segment
from topics.common.values import arguments
from topics.common.values.answers import RouterDeleted, RouterPut, RouterState
from topics.common.values.configs import RouterConfig


def _router_path(name: str) -> str:
    return f"/v0/routers/{segment('name', name)}"


def put_router(name: str, config: RouterConfig) -> ServerCall[RouterPut]:
    body = config._asdict()
    body["source"] = arguments.utf8_text("source", config.source)
    body["dest"] = arguments.utf8_text("dest", config.dest)
    body["filter"] = None if config.filter is None else msgspec.Raw(config.filter.as_json())
    return ServerCall(ServerRequest("PUT", _router_path(name), encode(body)), parsing.router_put, changes=True)


def router(name: str) -> ServerCall[RouterState]:
    return ServerCall(ServerRequest("GET", _router_path(name)), parsing.router_state)


def router_names(prefix: str, source: str, dest: str, cursor: str) -> ServerCall[tuple[list[str], str | None]]:
    for argument, value in (("prefix", prefix), ("source", source), ("dest", dest)):
        arguments.encoded(argument, value)
    path = "/v0/routers" + query(prefix=prefix, source=source, dest=dest, page_size=1000, cursor=cursor)
    return ServerCall(ServerRequest("GET", path), lambda body: parsing.names_of("routers", "router", body))


def delete_router(name: str) -> ServerCall[RouterDeleted]:
    return ServerCall(ServerRequest("DELETE", _router_path(name)), parsing.router_deleted, Repeat.NEVER, changes=True)
