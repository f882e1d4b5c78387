"""The routes that the cores of a server ask each other for. No client can."""

from __future__ import annotations

from topics.http.access.routes import Body, RouteTable
from topics.http.handlers import record_endpoints
from topics.http.relay.relayed_head import inner_route
from topics.http.spanning import served_feed

INNER_ROUTES = RouteTable(
    [
        inner_route("GET", "feed", served_feed.open_feed, stream=True),
        inner_route("POST", "begin", served_feed.begin, Body.JSON),
        inner_route("POST", "topics/:topic", record_endpoints.write, Body.JSON),
    ]
)
