"""The route table: method, pattern, scope, handler, and what the body must be."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from topics.http.access.scope import Scope

if TYPE_CHECKING:
    from topics.http.plan.call import Call

Handler = Callable[["Call"], None]


class Body(enum.Enum):
    """What a route does with a request body. Source: wire contract, section 2.3."""

    IGNORED = "ignored"
    JSON = "json"
    JSON_OR_EMPTY = "json or empty"
    """An empty body means all defaults, whatever its Content-Type."""


class Access(enum.Enum):
    """Where a route's credential comes from, while keys are configured. Source: wire contract, section 4.3."""

    KEY = "a key in the header"
    STREAM = "a key in the header or, without one there, in the query"
    PROBE = "none, unless TOPICS_PROBE_AUTH is on"
    OWN = "the handler checks it itself, by `Call.principal`: the key in the header or query, or nobody"


@dataclass(frozen=True, slots=True)
class Route:
    """pattern: segments after the leading slash; one that starts with ":" is a parameter, never empty.

    scope: of whoever asks, beside what `access` says; a route that needs more than a valid key names it here.
    always: answered during recovery and shutdown too (probes, metrics).
    stream: the answer goes on, so HEAD is not taken; and such a head comes once, so its plan is not kept.
    """

    method: str
    pattern: str
    scope: Scope
    handler: Handler
    body: Body = Body.IGNORED
    always: bool = False
    stream: bool = False
    access: Access = Access.KEY
    large: bool = False
    """The body holds records, and may be as large as any: those of other routes have a limit of their own."""


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
    """Exact, case-sensitive matching on raw segments: no trailing slash, no empty segment (2.1)."""

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
            shapes.sort(key=lambda shape: [segment.startswith(":") for segment in shape[0]])  # fixed segments first

    def match(self, path: str) -> Match | None:
        """None for an unknown path."""
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
