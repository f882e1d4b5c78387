"""All routes of the server."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from topics.http.access.routes import Access, Body, Route, RouteTable
from topics.http.access.scope import Scope
from topics.http.handlers import (
    archive_endpoints,
    backup_endpoints,
    checkpoint_endpoint,
    dead_letter_endpoints,
    docs_endpoints,
    page_endpoints,
    probe_endpoints,
    queue_endpoints,
    reader_endpoints,
    record_endpoints,
    router_endpoints,
    topic_endpoints,
    wait_endpoint,
    watch_endpoints,
    websocket_endpoint,
    work_endpoint,
)
from topics.http.plan.call import Handler

ROUTES: tuple[Route[Handler], ...] = (
    Route("PUT", "/v0/topics/:topic", Scope.ADMIN, topic_endpoints.put_topic, Body.JSON_OR_EMPTY),
    Route("PATCH", "/v0/topics/:topic", Scope.ADMIN, topic_endpoints.patch_topic, Body.JSON),
    Route("GET", "/v0/topics/:topic", Scope.READ, topic_endpoints.get_topic),
    Route("GET", "/v0/topics", Scope.READ, topic_endpoints.list_topics),
    Route("DELETE", "/v0/topics/:topic", Scope.DELETE, topic_endpoints.delete_topic),
    Route("POST", "/v0/topics/:topic", Scope.WRITE, record_endpoints.write, Body.JSON, large=True),
    Route("POST", "/v0/topics/:topic/diff", Scope.READ, record_endpoints.diff, Body.JSON_OR_EMPTY),
    Route("POST", "/v0/topics/:topic/delete", Scope.DELETE, record_endpoints.delete_records, Body.JSON),
    Route("POST", "/v0/wait", Scope.READ, wait_endpoint.wait, Body.JSON),
    Route("POST", "/v0/checkpoint", Scope.ADMIN, checkpoint_endpoint.checkpoint, Body.JSON_OR_EMPTY),
    Route("POST", "/v0/backups", Scope.ADMIN, backup_endpoints.make_backup, Body.JSON_OR_EMPTY),
    Route("GET", "/v0/backups", Scope.ADMIN, backup_endpoints.get_backup),
    Route("GET", "/v0/archive", Scope.ADMIN, archive_endpoints.get_archive),
    Route("GET", "/v0/archive/file", Scope.ADMIN, archive_endpoints.get_file),
    Route("GET", "/v0/ws", Scope.NONE, websocket_endpoint.open_websocket, stream=True),
    Route("POST", "/v0/topics/:topic/claim", Scope.READ | Scope.WRITE, queue_endpoints.claim, Body.JSON_OR_EMPTY),
    Route(
        "GET",
        "/v0/topics/:topic/work",
        Scope.READ | Scope.WRITE,
        work_endpoint.open_stream,
        stream=True,
        access=Access.STREAM,
    ),
    Route("POST", "/v0/topics/:topic/ack", Scope.WRITE, queue_endpoints.ack, Body.JSON),
    Route("POST", "/v0/topics/:topic/nack", Scope.WRITE, queue_endpoints.nack, Body.JSON),
    Route("POST", "/v0/topics/:topic/extend", Scope.WRITE, queue_endpoints.extend, Body.JSON),
    Route("GET", "/v0/topics/:topic/dead", Scope.READ, dead_letter_endpoints.list_dead),
    Route(
        "POST",
        "/v0/topics/:topic/redrive",
        Scope.WRITE | Scope.DELETE,
        dead_letter_endpoints.redrive,
        Body.JSON,
    ),
    Route("PUT", "/v0/topics/:topic/readers/:reader", Scope.ADMIN, reader_endpoints.put_reader, Body.JSON_OR_EMPTY),
    Route("GET", "/v0/topics/:topic/readers/:reader", Scope.READ, reader_endpoints.get_reader),
    Route("GET", "/v0/topics/:topic/readers", Scope.READ, reader_endpoints.list_readers),
    Route("DELETE", "/v0/topics/:topic/readers/:reader", Scope.ADMIN, reader_endpoints.delete_reader),
    Route("POST", "/v0/topics/:topic/readers/:reader/read", Scope.READ, reader_endpoints.read, Body.JSON_OR_EMPTY),
    Route("POST", "/v0/topics/:topic/readers/:reader/commit", Scope.READ, reader_endpoints.commit, Body.JSON),
    Route("POST", "/v0/topics/:topic/readers/:reader/seek", Scope.READ, reader_endpoints.seek, Body.JSON),
    Route("PUT", "/v0/routers/:router", Scope.ADMIN, router_endpoints.put_router, Body.JSON),
    Route("GET", "/v0/routers/:router", Scope.READ, router_endpoints.get_router),
    Route("GET", "/v0/routers", Scope.READ, router_endpoints.list_routers),
    Route("DELETE", "/v0/routers/:router", Scope.DELETE, router_endpoints.delete_router),
    Route("POST", "/v0/watch", Scope.READ, watch_endpoints.create_session, Body.JSON),
    Route("GET", "/v0/watch/:wid", Scope.NONE, watch_endpoints.open_stream, stream=True, access=Access.OWN),
    Route("GET", "/v0/health", Scope.NONE, probe_endpoints.health, always=True, access=Access.PROBE),
    Route("GET", "/healthz", Scope.NONE, probe_endpoints.health, always=True, access=Access.PROBE),
    Route("GET", "/v0/ready", Scope.NONE, probe_endpoints.ready, always=True, access=Access.PROBE),
    Route("GET", "/readyz", Scope.NONE, probe_endpoints.ready, always=True, access=Access.PROBE),
    Route("GET", "/v0/metrics", Scope.READ, probe_endpoints.metrics, always=True),
    Route("GET", "/openapi.json", Scope.READ, docs_endpoints.openapi),
    Route("GET", "/docs", Scope.READ, docs_endpoints.docs, access=Access.OPEN),
    Route("GET", "/docs/contract/:section", Scope.READ, docs_endpoints.contract, access=Access.OPEN),
    Route("GET", "/docs/guides/:page", Scope.READ, docs_endpoints.guide, access=Access.OPEN),
    Route("GET", "/", Scope.NONE, page_endpoints.home, always=True, access=Access.OPEN),
    Route("GET", "/ui", Scope.NONE, page_endpoints.ui, always=True, access=Access.OPEN),
)


@cache
def route_table(*, ui: bool = True) -> RouteTable:
    """Return the table of all routes, which no server changes.

    ui: with the pages `/` and `/ui`; without them, those of `/docs` need a key.
    """
    if ui:
        return RouteTable(ROUTES)
    kept = [route for route in ROUTES if route.access is not Access.OPEN or route.scope is not Scope.NONE]
    return RouteTable([replace(route, access=Access.KEY) if route.access is Access.OPEN else route for route in kept])
