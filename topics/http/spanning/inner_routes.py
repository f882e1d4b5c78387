"""The routes that the cores of a server ask each other for. No client can."""

from __future__ import annotations

from topics.http.access.routes import Body, RouteTable
from topics.http.handlers import (
    archive_endpoints,
    backup_endpoints,
    checkpoint_endpoint,
    record_endpoints,
    router_endpoints,
)
from topics.http.plan.call import Handler
from topics.http.relay.relayed_head import inner_route
from topics.http.spanning import inner_orders, served_feed
from topics.http.spanning.portions import AskedCores
from topics.http.spanning.spanning_checkpoint import JoinedCheckpoints
from topics.http.spanning.spanning_routers import RouterPuts


def inner_routes(cores: AskedCores, shares: Handler) -> RouteTable:
    """Return the routes of one core. cores: all, as it sees them. shares: for `CoreShares`."""
    return RouteTable(
        [
            inner_route("GET", "feed", served_feed.open_feed, stream=True),
            inner_route("POST", "begin", served_feed.begin, Body.JSON),
            inner_route("POST", "names", served_feed.find_topics, Body.JSON),
            inner_route("POST", "topics/:topic", record_endpoints.write, Body.JSON),
            inner_route("PUT", "router/:router", router_endpoints.put_router, Body.JSON),
            inner_route("PUT", "routers/:router", RouterPuts(cores).put, Body.JSON),
            inner_route("POST", inner_orders.OF_ROUTERS, inner_orders.execute_far, Body.JSON),
            inner_route("POST", inner_orders.OF_BACKUPS, inner_orders.execute_copy, Body.JSON),
            inner_route("POST", "backups", backup_endpoints.make_backup, Body.JSON_OR_EMPTY),
            inner_route("GET", "backups", backup_endpoints.get_backup),
            inner_route("GET", "archive", archive_endpoints.get_archive),
            inner_route("GET", "archive/file", archive_endpoints.get_file),
            inner_route("POST", "checkpoint", checkpoint_endpoint.checkpoint, Body.JSON),
            inner_route("POST", "checkpoints", JoinedCheckpoints(cores).join, Body.JSON),
            inner_route("POST", "shares", shares, Body.JSON, always=True),
        ]
    )
