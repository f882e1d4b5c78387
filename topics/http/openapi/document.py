"""The whole document: paths from the route table, and their details from `api_operations`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from topics import __version__
from topics.config import Config
from topics.http.access.routes import Access, Body, Route
from topics.http.access.scope import Scope
from topics.http.openapi.api_examples import EXAMPLES, ApiExample, curl
from topics.http.openapi.api_operations import OCTETS, OPERATIONS, ApiOperation
from topics.http.openapi.components import ROUTER_NAME, SCHEMAS, TOPIC_NAME
from topics.http.openapi.named_models import NamedModels
from topics.http.openapi.shapes import Schema, answer, one_of, ref, text, with_settings
from topics.http.wire.error_answers import STATUS

_MEANING = {
    400: "The request is malformed",
    401: "No valid key",
    403: "The key may not do this",
    404: "There is no such thing",
    406: "A stream is `text/event-stream`",
    409: "It contradicts what exists",
    413: "The body is too large",
    415: "Content type or encoding",
    422: "The topic is full and does not evict",
    429: "A limit is reached; `Retry-After` says when to come back",
    431: "The head is too large",
    500: "Storage failed, or a bug",
    503: "Recovering, read-only or shutting down",
}
_DONE = {101: "The connection is a WebSocket", 304: "The client has it"}
"""Successes without a body."""
_TAGS = {
    "topics": "Topics and their records, and named readers",
    "queues": "Jobs of queues, and dead letters",
    "routers": "What one topic forwards to another",
    "streams": "Records as they come",
    "wait": "News of several topics",
    "checkpoint": "The files of the data directory",
    "server": "Health, numbers, backups and pages of the server",
}
_ABOUT = (
    "Named, append-only topics of JSON records with a seq: read by cursor, watched, deleted by seq or tag, forwarded, "
    "leased out as jobs. What is lost without being deleted is reported as a tombstone."
)
_PREFER = {
    "name": "Prefer",
    "in": "header",
    "schema": text("`handling=strict`: unknown keys and query parameters are refused, and the likely one is named"),
}
"""The header of section 2.5, which every request may have."""


def operation_key(route: Route) -> str:
    """Return the route's key in OPERATIONS: parameters without their names."""
    return f"{route.method} {re.sub(r':[^/]+', ':', route.pattern)}"


def document(routes: Sequence[Route], config: Config) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document, with the current limits.

    Raises: KeyError, a route has no entry in OPERATIONS.
    """
    paths: dict[str, dict[str, Any]] = {}
    models = NamedModels(SCHEMAS | _errors())
    for route in routes:
        path = re.sub(r":([^/]+)", r"{\1}", route.pattern)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, OPERATIONS[operation_key(route)], models)
    scheme = {"type": "http", "scheme": "bearer", "description": "Needed once keys are configured."}
    made: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "topics", "version": __version__, "description": _ABOUT, "license": {"name": "MIT"}},
        "servers": [{"url": "/", "description": "this server"}],
        "tags": [{"name": name, "description": about} for name, about in _TAGS.items()],
        "paths": paths,
        "components": {"schemas": models.by_name, "securitySchemes": {"key": scheme}},
    }
    filled: dict[str, Any] = with_settings(made, config)
    return filled


def _operation(route: Route, about: ApiOperation, models: NamedModels) -> dict[str, Any]:
    example = EXAMPLES[operation_key(route)]
    shown: dict[str, Any] = {
        "summary": about.summary,
        "operationId": example.id,
        "tags": [_tag(route.pattern)],
        "description": f"{_rights(route)} Section {about.section} of the wire contract.",
        "responses": _responses(route, about, example, models),
        "security": [{}] if route.access in (Access.PROBE, Access.OPEN) else [{}, {"key": []}],
    }
    path, _, query = example.path.partition("?")
    parameters = [
        {"name": part[1:], "in": "path", "required": True, "schema": _name(route, part[1:]), "example": value}
        for part, value in zip(route.pattern.split("/"), path.split("/"), strict=True)
        if part.startswith(":")
    ]
    in_query = dict(pair.split("=") for pair in query.split("&") if pair)
    needed = ("node",)
    for name, schema in about.query.items():
        shown_parameter = {"name": name, "in": "query", "required": name in needed, "schema": _lenient(schema)}
        parameters.append(shown_parameter | ({"example": in_query[name]} if name in in_query else {}))
    parameters += [{"name": name, "in": "header", "schema": schema} for name, schema in about.headers.items()]
    shown["parameters"] = [*parameters, _PREFER]
    if about.body is not None:
        body = models.named(about.body, f"{_class_name(example.id)}Body")
        content = {"application/json": {"schema": body} | ({} if example.body is None else {"example": example.body})}
        required = route.body is Body.JSON or "required" in about.body
        shown["requestBody"] = {"required": required, "content": content}
    shown |= {"x-section": about.section, "x-path": example.path}
    shown["x-codeSamples"] = [{"lang": "Shell", "label": "curl", "source": curl(route.method, example)}]
    return shown


def _lenient(schema: Schema) -> Schema:
    """Return the schema of a query parameter, which accepts any text.

    A number or boolean that does not parse is not an error, but counts as the default (2.2).
    """
    if schema["type"] == "string":
        return schema
    about = "; ".join([*([schema["description"]] if "description" in schema else ()), "anything else is the default"])
    return {"anyOf": [{key: schema[key] for key in schema if key != "description"}, text()], "description": about}


def _name(route: Route, parameter: str) -> Schema:
    """Return the schema of a name in the path.

    Where the request may create the resource, the name must be a valid one. Elsewhere an invalid
    name is merely that of an absent resource.
    """
    if route.method == "PUT" or ((route.method, parameter) == ("POST", "topic") and route.pattern.endswith("/:topic")):
        return TOPIC_NAME if parameter == "topic" else ROUTER_NAME
    return text()


def _responses(route: Route, about: ApiOperation, example: ApiExample, models: NamedModels) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, schema in about.success.items():
        content: dict[str, Any] = {}
        for position, media in enumerate(about.media):
            if schema is not None and not position:
                content[media] = {"schema": models.named(schema, f"{_class_name(example.id)}Answer")}
                if example.answer is not None:
                    content[media]["example"] = example.answer
            else:
                content[media] = {"schema": text(format="binary") if media == OCTETS else text()} | (
                    {"example": example.text} if example.text else {}
                )
        responses[str(status)] = {"description": _DONE.get(status, "Done")}
        if status not in _DONE:
            responses[str(status)]["content"] = content
    usual = {400, 401, 403, 429, 431, 500, 503}
    if route.access is Access.OPEN:
        usual -= {401, 429}
    if route.body is not Body.IGNORED:
        usual |= {413, 415}
    for status in sorted(usual | set(about.errors)):
        responses[str(status)] = _error(status)
    return responses


def _error(status: int) -> dict[str, Any]:
    return {"description": _MEANING[status], "content": {"application/json": {"schema": ref(f"Error{status}")}}}


def _errors() -> dict[str, Schema]:
    """Return the schema of the body of each status above 399, by name."""
    found: dict[str, Schema] = {}
    for status, meaning in _MEANING.items():
        codes = sorted(code for code, of in STATUS.items() if of == status)
        detail: Schema = {"type": "object", "additionalProperties": True}
        error = answer(code=one_of(*codes), message=text(minLength=1), detail_Q=detail) | {
            "title": f"Error{status}Error"
        }
        found[f"Error{status}"] = answer(meaning, error=error)
    return found


def _class_name(identifier: str) -> str:
    return "".join(word.capitalize() for word in identifier.split("_"))


def _rights(route: Route) -> str:
    if route.access is Access.OPEN:
        return "Needs no key."
    if route.access is Access.PROBE:
        return "Needs no key, unless TOPICS_PROBE_AUTH is on."
    if route.access is Access.OWN:
        return "Needs the key that created the session, in the header or as `token`."
    scopes = " and ".join(str(one.name).lower() for one in Scope if one in route.scope)
    where = ", in the header or as `token`" if route.access is Access.STREAM else ""
    return f"Needs {f'the scope {scopes}' if scopes else 'any key'}{where}."


def _tag(pattern: str) -> str:
    parts = pattern.strip("/").split("/")
    if parts[0] != "v0" or parts[1] in ("health", "ready", "metrics", "backups", "archive"):
        return "server"
    if len(parts) > 3 and parts[3] in ("claim", "ack", "nack", "extend", "work", "dead", "redrive"):
        return "queues"
    return "streams" if parts[1] in ("watch", "ws") else parts[1]
