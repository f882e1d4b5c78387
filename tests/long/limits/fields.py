"""Every field that a client can send: those of the route table, as OpenAPI describes them, and of WebSocket commands.

A field is a path: `path`, `query.cursor`, `header.Last-Event-ID`, `body.records[].tag` (of each element of an array),
`body.topics.*.from_seq` (of each member of an object whose keys are data). Messages of a WebSocket are bodies, too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from topics.engine.values.json_fields import Fields
from topics.http.openapi.api_operations import OPERATIONS
from topics.http.openapi.components import SCHEMAS
from topics.http.openapi.shapes import Schema
from topics.ws import commands

WRITE = "POST /v0/topics/:"
_READERS = {name for name in vars(Fields) if not name.startswith("_")}
_OF_FUNCTIONS = {
    "_subscribe": ("subscribe", ""),
    "_starts": ("subscribe", "topics.*.", "prefixes.*."),
    "_unsubscribe": ("unsubscribe", ""),
}
"""Functions of ws/commands.py that read fields: the command, and the containers of its fields."""
_OF_ALL_COMMANDS = ("op", "request_id")


def fields() -> dict[str, set[str]]:
    """The fields of each operation; those of a WebSocket are called `WS subscribe` and so on."""
    found = {operation: _of_route(operation) for operation in OPERATIONS}
    return found | {f"WS {name}": its for name, its in _of_commands(found[WRITE]).items()}


def _of_route(operation: str) -> set[str]:
    about = OPERATIONS[operation]
    found = {f"query.{name}" for name in about.query} | {f"header.{name}" for name in about.headers}
    if ":" in operation:
        found.add("path")
    if about.body is not None:
        found |= {f"body.{path}" for path in _properties(about.body)}
    return found


def _properties(schema: Schema) -> Iterator[str]:
    """Paths of all properties in a schema."""
    if "$ref" in schema:
        schema = SCHEMAS[schema["$ref"].rpartition("/")[2]]
    for part in (*schema.get("anyOf", ()), *schema.get("allOf", ())):
        yield from _properties(part)
    for name, inner in schema.get("properties", {}).items():
        yield name
        yield from (f"{name}{path}" if path[0] in "[." else f"{name}.{path}" for path in _properties(inner))
    if schema.get("items"):
        yield from (f"[].{path}" for path in _properties(schema["items"]))
    if isinstance(each := schema.get("additionalProperties"), dict):
        yield from (f".*.{path}" for path in _properties(each))


def _of_commands(write: set[str]) -> dict[str, set[str]]:
    """The fields that ws/commands.py reads; `publish` takes the body of a write, too."""
    found: dict[str, set[str]] = {"publish": {field for field in write if field.startswith("body.")}}
    source = Path(commands.__file__).read_text()
    for function in ast.parse(source).body:
        if not isinstance(function, ast.FunctionDef) or not (names := set(_names_read(function))):
            continue
        if function.name == "_parse":
            found["publish"] |= {f"body.{name}" for name in names}
        else:
            command, *containers = _OF_FUNCTIONS[function.name]
            found.setdefault(command, set()).update(f"body.{inside}{name}" for inside in containers for name in names)
    ops = {
        each.__name__.lower() for each in (commands.Subscribe, commands.Unsubscribe, commands.Publish, commands.Ping)
    }
    said = {part.strip().lower() for part in str(commands.Command).split("|")}
    assert {name.rpartition(".")[2] for name in said} == ops | {"invalid", "long"}, (
        "name the fields of the new command here"
    )
    return {op: found.get(op, set()) | {f"body.{name}" for name in _OF_ALL_COMMANDS} for op in ops}


def _names_read(function: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(function):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if ast.unparse(node.func) == "ReadFilter.of":
            yield from ("node", "only_node", "match")
        elif node.func.attr in _READERS:
            if node.func.attr == "subscription_begin":
                yield from ("from_seq", "tail", "from", "from.last", "from.time")
            elif node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
                yield node.args[0].value
