"""The routes of a server of several cores: those that span its cores have other handlers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from topics.http.access.routes import Route, RouteTable
from topics.http.handlers import (
    archive_endpoints,
    backup_endpoints,
    checkpoint_endpoint,
    probe_endpoints,
    router_endpoints,
    topic_endpoints,
    wait_endpoint,
    watch_endpoints,
)
from topics.http.plan.call import Call, Handler
from topics.http.relay.relayed_head import spanning_route
from topics.http.spanning import (
    spanning_checkpoint,
    spanning_lists,
    spanning_metrics,
    spanning_probes,
    spanning_routers,
    spanning_wait,
    spanning_watch,
)
from topics.http.spanning.portions import AskedCores

_SPANNING: dict[Handler, Callable[[AskedCores, Call], None]] = {
    topic_endpoints.list_topics: spanning_lists.list_topics,
    router_endpoints.list_routers: spanning_lists.list_routers,
    router_endpoints.put_router: spanning_routers.put_router,
    router_endpoints.get_router: spanning_routers.get_router,
    router_endpoints.delete_router: spanning_routers.delete_router,
    wait_endpoint.wait: spanning_wait.wait,
    watch_endpoints.create_session: spanning_watch.create_session,
    probe_endpoints.ready: spanning_probes.ready,
}
_ON_ONE: dict[Handler, Callable[[AskedCores, Call], None]] = {
    watch_endpoints.open_stream: spanning_watch.open_stream,
    checkpoint_endpoint.checkpoint: spanning_checkpoint.checkpoint,
    backup_endpoints.make_backup: spanning_checkpoint.make_backup,
    backup_endpoints.get_backup: spanning_checkpoint.get_backup,
    archive_endpoints.get_archive: spanning_checkpoint.get_archive,
    archive_endpoints.get_file: spanning_checkpoint.get_archived_file,
}
"""Requests without portions, whose handlers have to know of the other cores."""


def spanning_table(routes: RouteTable, cores: AskedCores, pages: spanning_metrics.JoinedPages) -> RouteTable:
    """Return the table with the handlers of a server of these cores."""
    joined: dict[Handler, Handler] = {handler: partial(answer, cores) for handler, answer in _SPANNING.items()}
    joined[probe_endpoints.metrics] = partial(spanning_metrics.metrics, cores, pages)
    return RouteTable([_spanning(route, joined, cores) for route in routes.routes])


def _spanning(route: Route[Handler], joined: Mapping[Handler, Handler], cores: AskedCores) -> Route[Handler]:
    if route.handler in joined:
        return spanning_route(route, joined[route.handler])
    if route.handler in _ON_ONE:
        return replace(route, handler=partial(_ON_ONE[route.handler], cores))
    return route
