"""The parameters and keys that a route knows, from its description."""

from __future__ import annotations

from functools import cache

from topics.engine.json.known_keys import KnownKeys
from topics.http.access.routes import Route
from topics.http.openapi.api_operations import OPERATIONS
from topics.http.openapi.components import SCHEMAS
from topics.http.openapi.document import operation_key
from topics.http.openapi.shapes import Schema


@cache
def query_names(route: Route) -> frozenset[str]:
    """Return the names of a route's query parameters."""
    return frozenset(OPERATIONS[operation_key(route)].query)


@cache
def body_keys(route: Route) -> KnownKeys:
    """Return the keys of the bodies of a route that has one."""
    body = OPERATIONS[operation_key(route)].body
    assert body is not None, "a route that reads no body"
    return _keys(body)


def _keys(schema: Schema) -> KnownKeys:
    """Return the keys of the objects that a schema describes."""
    if "$ref" in schema:
        return _keys(SCHEMAS[schema["$ref"].rpartition("/")[2]])
    named = {name: _keys(inner) for name, inner in schema.get("properties", {}).items()}
    others = schema.get("additionalProperties")
    found = KnownKeys(named, _keys(others) if isinstance(others, dict) else None)
    for choice in (*schema.get("anyOf", ()), *schema.get("allOf", ())):
        found = found.merged(_keys(choice))
    return found
