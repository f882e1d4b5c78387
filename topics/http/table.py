"""Every route of the server."""

from __future__ import annotations

from topics.http.handlers import (
    checkpoint,
    docs,
    probes,
    queues,
    records,
    routers,
    topics,
    wait,
    watch,
    websocket,
    work,
)
from topics.http.routes import Access, Body, Route, RouteTable
from topics.http.scope import Scope

ROUTES = (
    Route("PUT", "/v0/topics/:topic", Scope.ADMIN, topics.put_topic, Body.JSON_OR_EMPTY),
    Route("GET", "/v0/topics/:topic", Scope.READ, topics.get_topic),
    Route("GET", "/v0/topics", Scope.READ, topics.list_topics),
    Route("DELETE", "/v0/topics/:topic", Scope.DELETE, topics.delete_topic),
    Route("POST", "/v0/topics/:topic", Scope.WRITE, records.write, Body.JSON, large=True),
    Route("POST", "/v0/topics/:topic/diff", Scope.READ, records.diff, Body.JSON_OR_EMPTY),
    Route("POST", "/v0/topics/:topic/delete", Scope.DELETE, records.delete_records, Body.JSON),
    Route("POST", "/v0/wait", Scope.READ, wait.wait, Body.JSON),
    Route("POST", "/v0/checkpoint", Scope.ADMIN, checkpoint.checkpoint, Body.JSON_OR_EMPTY),
    Route("GET", "/v0/ws", Scope.NONE, websocket.open_websocket, stream=True),
    Route("POST", "/v0/topics/:topic/claim", Scope.READ | Scope.WRITE, queues.claim, Body.JSON_OR_EMPTY),
    Route(
        "GET", "/v0/topics/:topic/work", Scope.READ | Scope.WRITE, work.open_stream, stream=True, access=Access.STREAM
    ),
    Route("POST", "/v0/topics/:topic/ack", Scope.WRITE, queues.ack, Body.JSON),
    Route("POST", "/v0/topics/:topic/nack", Scope.WRITE, queues.nack, Body.JSON),
    Route("POST", "/v0/topics/:topic/extend", Scope.WRITE, queues.extend, Body.JSON),
    Route("PUT", "/v0/routers/:router", Scope.ADMIN, routers.put_router, Body.JSON),
    Route("GET", "/v0/routers/:router", Scope.READ, routers.get_router),
    Route("GET", "/v0/routers", Scope.READ, routers.list_routers),
    Route("DELETE", "/v0/routers/:router", Scope.DELETE, routers.delete_router),
    Route("POST", "/v0/watch", Scope.READ, watch.create_session, Body.JSON),
    Route("GET", "/v0/watch/:wid", Scope.NONE, watch.open_stream, stream=True, access=Access.OWN),
    Route("GET", "/v0/health", Scope.NONE, probes.health, always=True, access=Access.PROBE),
    Route("GET", "/healthz", Scope.NONE, probes.health, always=True, access=Access.PROBE),
    Route("GET", "/v0/ready", Scope.NONE, probes.ready, always=True, access=Access.PROBE),
    Route("GET", "/readyz", Scope.NONE, probes.ready, always=True, access=Access.PROBE),
    Route("GET", "/v0/metrics", Scope.READ, probes.metrics, always=True),
    Route("GET", "/openapi.json", Scope.READ, docs.openapi),
    Route("GET", "/docs", Scope.READ, docs.docs),
)


def route_table() -> RouteTable:
    return RouteTable(ROUTES)
