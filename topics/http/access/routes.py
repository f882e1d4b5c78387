"""The route table: method, pattern, scope, handler, and what the body must be."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from typing_extensions import TypeVar

from topics.http.access.scope import Scope

H = TypeVar("H", bound=Callable[[Any], None], default=Callable[[Any], None])
"""Type of the handlers: this room knows only that they are called with a request."""


class Body(enum.Enum):
    """The use of a request body by a route. Source: wire contract, section 2.3."""

    IGNORED = "ignored"
    JSON = "json"
    JSON_OR_EMPTY = "json or empty"
    """An empty body means all defaults, whatever its Content-Type."""


class Access(enum.Enum):
    """The source of a route's credential if keys are configured.

    Source: wire contract, section 4.3.
    """

    KEY = "a key in the header"
    STREAM = "a key in the header or, without one there, in the query"
    PROBE = "none, unless TOPICS_PROBE_AUTH is on"
    OPEN = "none: a page without data"
    OWN = "the handler checks it itself, by `Call.principal`: the key in the header or query, or no key"


@dataclass(frozen=True, slots=True, eq=False)
class Route(Generic[H]):
    """One method of one path pattern. Each is equal to itself only.

    - pattern: segments after the leading slash; one that starts with ":" is a parameter, never
      empty.
    - scope: the scope that the key needs, beside `access`.
    - always: answered during recovery and shutdown, too (probes, metrics,
      pages).
    - stream: the answer is a stream, so HEAD is refused; its plan is not cached, because such a
      head is sent once.
    """

    method: str
    pattern: str
    scope: Scope
    handler: H
    body: Body = Body.IGNORED
    always: bool = False
    stream: bool = False
    access: Access = Access.KEY
    large: bool = False
    """The body holds records, up to the largest size; bodies of other routes have a lower limit."""


@dataclass(frozen=True, slots=True)
class Match:
    """The routes of one path by method, and its parameters' raw segments in order."""

    methods: dict[str, Route]
    parameters: tuple[str, ...]

    @property
    def allow(self) -> str:
        names = set(self.methods)
        if "GET" in names and not self.methods["GET"].stream:
            names.add("HEAD")
        return ", ".join(sorted(names))


class RouteTable:
    """A table of routes, matched exactly and case-sensitively on raw segments.

    A trailing slash or an empty segment matches no route (2.1).
    """

    def __init__(self, routes: Sequence[Route]) -> None:
        self.routes = tuple(routes)
        self._shapes: dict[int, list[tuple[list[str], dict[str, Route]]]] = {}
        methods: dict[str, dict[str, Route]] = {}
        for route in routes:
            assert route.method not in methods.get(route.pattern, {}), f"two routes for {route.method} {route.pattern}"
            if route.pattern not in methods:
                methods[route.pattern] = {}
                segments = route.pattern.split("/")
                self._shapes.setdefault(len(segments), []).append((segments, methods[route.pattern]))
            methods[route.pattern][route.method] = route
        for shapes in self._shapes.values():
            # Fixed segments are tried before parameters.
            shapes.sort(key=lambda shape: [segment.startswith(":") for segment in shape[0]])

    def match(self, path: str) -> Match | None:
        """Return the routes of a path; None for an unknown path."""
        segments = path.split("/")
        for pattern, methods in self._shapes.get(len(segments), ()):
            parameters: list[str] = []
            for want, have in zip(pattern, segments, strict=True):
                if want.startswith(":"):
                    if not have:
                        break
                    parameters.append(have)
                elif want != have:
                    break
            else:
                return Match(methods, tuple(parameters))
        return None
