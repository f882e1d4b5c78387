"""Constructors of JSON Schema, so that a description reads like the tables of the contract."""

from __future__ import annotations

from typing import Any

from topics.config import Config

Schema = dict[str, Any]
U64_MAX, U32_MAX = 2**64 - 1, 2**32 - 1


_PERFORMANCES = (
    ("records_scanned", "ReadPerformance"),
    ("wal_append_ms", "WritePerformance"),
    ("fsync_ms", "AckPerformance"),
)
"""Names of the objects of section 3.3, by a member that only they have; the first that is found."""


class Setting(str):
    """The name of a setting, as a placeholder of its value: see `with_settings`."""

    __slots__ = ()


def with_settings(schema: Any, config: Config) -> Any:
    """Return a copy of a description, with each `Setting` replaced by its value."""
    if isinstance(schema, Setting):
        return getattr(config, schema)
    if isinstance(schema, dict):
        return {key: with_settings(value, config) for key, value in schema.items()}
    if isinstance(schema, list):
        return [with_settings(value, config) for value in schema]
    return schema


def u64(about: str = "", **more: Any) -> Schema:
    return _number("uint64", U64_MAX, about, more)


def u32(about: str = "", **more: Any) -> Schema:
    return _number("uint32", U32_MAX, about, more)


def _number(form: str, most: int, about: str, more: Schema) -> Schema:
    return {"type": "integer", "format": form, "minimum": 0, "maximum": most} | _about(about) | more


def text(about: str = "", **more: Any) -> Schema:
    return {"type": "string"} | _about(about) | more


def boolean(default: bool | None = None, about: str = "") -> Schema:
    return {"type": "boolean"} | ({} if default is None else {"default": default}) | _about(about)


def one_of(*names: str, **more: Any) -> Schema:
    """Return the schema of one of some words."""
    return {"type": "string", "enum": list(names)} | more


def listing(items: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": items} | more


def titled(title: str, schema: Schema) -> Schema:
    """Return the schema of an object with a name of its own in the description."""
    return schema | {"title": title}


def nullable(schema: Schema) -> Schema:
    if "$ref" in schema or "enum" in schema or "title" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    return schema | {"type": [schema["type"], "null"]}


def ref(name: str) -> Schema:
    """Return a reference to a component of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


def answer(about: str = "", /, **keys: Schema) -> Schema:
    """Return the schema of an object in an answer, which has no further keys.

    A key that ends in `_Q` may be absent; a leading `S_` stands for `$`.
    """
    named = {_key(name): schema for name, schema in keys.items()}
    required = [_key(name) for name in keys if not name.endswith("_Q")]
    schema = {"type": "object", "properties": named, "required": required, "additionalProperties": False}
    return schema | _about(about)


def question(required: tuple[str, ...] = (), about: str = "", /, **keys: Schema) -> Schema:
    """Return the schema of an object in a request. Unknown keys are ignored, and so allowed."""
    schema: Schema = {"type": "object", "properties": keys}
    if required:
        schema["required"] = list(required)
    return schema | _about(about)


def performance(*more: str, optional: tuple[str, ...] = ()) -> Schema:
    """Return the schema of the times (ms) and counts of section 3.3."""
    count = ("records_scanned", "cold_segments_read")
    keys = {
        name: {"type": "integer" if name in count else "number", "minimum": 0}
        for name in ("server_total_ms", *more, *optional)
    }
    required = ["server_total_ms", *more]
    title = next((title for name, title in _PERFORMANCES if name in keys), "Performance")
    shape = {"type": "object", "properties": keys, "required": required, "additionalProperties": False}
    return titled(title, shape)


def _key(name: str) -> str:
    name = name.removesuffix("_Q")
    return f"${name[2:]}" if name.startswith("S_") else name


def _about(about: str) -> Schema:
    return {"description": about} if about else {}
