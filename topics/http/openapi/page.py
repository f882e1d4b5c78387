"""The document as one page of HTML: fields, links to their shapes, examples, forms that send.

It runs one script of its own, and makes no request to other servers.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from html import escape
from typing import Any

import msgspec

from topics.http.openapi.api_examples import HOST
from topics.http.openapi.contract_pages import section_link
from topics.http.openapi.shapes import Schema
from topics.http.pages.served_page import ServedPage, read_page

_CODE = re.compile(r"`([^`]+)`")
_NOT_SENT = ("text/event-stream", "text/html")
"""Answers that a form does not show: streams, and pages that open in the browser."""


_KEY = (
    "<p class='key'><label>Key <input type='password' name='key' autocomplete='off' spellcheck='false'></label> "
    "<small>for the forms of this page, kept for this tab</small></p>"
)


def page(document: dict[str, Any], *, asks_for_keys: bool) -> Generator[None, None, ServedPage]:
    """Render the page, in steps.

    asks_for_keys: the server does, so the page has a field for one.
    """
    groups: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            groups.setdefault(operation["tags"][0], []).append(_operation(method.upper(), path, operation, document))
        yield
    info = document["info"]
    about = {tag["name"]: tag["description"] for tag in document["tags"]}
    parts = [
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{escape(info['description'])}</p>",
        "<p>The same as <a href='/openapi.json'>OpenAPI 3.1</a>, for generators of clients. "
        "<a href='/docs/contract/1'>The contract</a> states what holds, rule by rule. "
        "<a href='/docs/guides/index'>The guides</a> show what to do with it. "
        "<a href='/ui'>What is in this server</a>.</p>",
        _KEY if asks_for_keys else "",
    ]
    parts += [
        f"<h2>{escape(tag)}</h2><p class='hint'>{escape(about.get(tag, ''))}</p>{''.join(shown)}"
        for tag, shown in groups.items()
    ]
    parts.append("<h2>Shapes</h2>")
    for name, schema in document["components"]["schemas"].items():
        parts.append(
            f"<details id='{escape(name)}'><summary><code>{escape(name)}</code></summary>"
            f"<div class='inner'>{_described(schema)}{_shape(schema)}</div></details>"
        )
        yield
    return read_page("docs/docs.html", "", title="topics: the interface", main="".join(parts))


def _operation(method: str, path: str, operation: dict[str, Any], document: dict[str, Any]) -> str:
    identifier = escape(operation["operationId"])
    lines = [
        f"<details id='{identifier}'><summary><b>{method}</b><code>{escape(path)}</code>"
        f"<span>{escape(operation['summary'])}</span></summary><div class='inner'>",
        f"<p>{escape(operation['description'].partition(' Section ')[0])} "
        f"{section_link(operation['x-section'])}<code>{identifier}</code></p>",
    ]
    rows = []
    for parameter in operation["parameters"]:
        schema = parameter["schema"]
        about = f"<small>{parameter['in']}</small> {_described(schema)}"
        rows.append(_row(parameter["name"], _type(schema), parameter.get("required", False), about))
    lines.append(_table("Parameters", rows))
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if body is not None:
        shape = document["components"]["schemas"][body["schema"]["$ref"].rpartition("/")[2]]
        lines.append(f"<h3>Body: {_type(body['schema'])}</h3>{_shape(shape)}")
    (sample,) = operation["x-codeSamples"]
    lines.append(f"<h3>Example</h3><pre class='call' data-host='{HOST}'>{escape(sample['source'])}</pre>")
    for status, response in operation["responses"].items():
        for content in response.get("content", {}).values():
            if int(status) < 300 and "example" in content:
                example = content["example"]
                text = example if isinstance(example, str) else _json(example)
                lines.append(f"<p class='hint'>{status}: {_type(content['schema'])}</p><pre>{escape(text)}</pre>")
    errors = [
        f"<a href='#Error{status}'>{status}</a> {escape(response['description'])}"
        for status, response in operation["responses"].items()
        if int(status) >= 400
    ]
    lines.append(f"<p class='hint'>Refusals: {'; '.join(errors)}</p>")
    first = next(iter(operation["responses"].values())).get("content", {})
    if not any(media in first for media in _NOT_SENT) and first:
        lines.append(_form(method, operation["x-path"], body))
    return "".join(lines) + "</div></details>"


def _form(method: str, path: str, body: dict[str, Any] | None) -> str:
    area = ""
    if body is not None:
        text = escape(_json(body.get("example", {})))
        area = f"<textarea rows='{min(12, text.count(chr(10)) + 2)}' aria-label='Body'>{text}</textarea>"
    return (
        f"<h3>Send it to this server</h3><form data-method='{method}'><input aria-label='Path' value='{escape(path)}'>"
        f"{area}<button>{method}</button><output></output></form>"
    )


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _described(schema: Schema) -> str:
    said = [_CODE.sub(r"<code>\1</code>", escape(schema["description"]))] if "description" in schema else []
    if "default" in schema:
        said.append(f"default <code>{escape(msgspec.json.encode(schema['default']).decode())}</code>")
    limits = (("minLength", "at least"), ("maxLength", "at most"), ("maxItems", "at most"), ("pattern", "like"))
    said += [f"{word} <code>{escape(str(schema[key]))}</code>" for key, word in limits if key in schema]
    return "; ".join(said)


def _shape(schema: Schema) -> str:
    """Return the fields of an object, or the type of another value."""
    fields = list(_fields(schema))
    return _table("Fields", fields) if fields else f"<p>{_type(schema)}</p>"


def _fields(schema: Schema) -> Iterator[str]:
    for part in schema.get("allOf", ()):
        if "$ref" in part:
            yield _row("…", _type(part), False, "its fields, too")
        else:
            yield from _fields(part)
    needed = schema.get("required", ())
    for name, inner in schema.get("properties", {}).items():
        more = _table("", list(_fields(inner))) if "properties" in inner else ""
        yield _row(name, _type(inner), name in needed, _described(inner) + more)


def _type(schema: Schema) -> str:
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f"<a href='#{name}'>{name}</a>"
    if "enum" in schema:
        return " or ".join(f"<code>{escape(str(value))}</code>" for value in schema["enum"])
    if "const" in schema:
        return f"<code>{escape(str(schema['const']))}</code>"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(_type, schema["anyOf"])))
    if "prefixItems" in schema:
        return f"[{', '.join(map(_type, schema['prefixItems']))}]"
    kinds = schema.get("type", "any JSON")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if "array" in kinds:
        return f"array of {_type(schema['items'])}"
    each = schema.get("additionalProperties")
    if "object" in kinds and isinstance(each, dict):
        return f"object: name to {_type(each)}"
    return escape(" or ".join(str(schema.get("format", kind)) if kind == "integer" else kind for kind in kinds))


def _row(name: str, kind: str, needed: bool, about: str) -> str:
    mark = "" if needed else "<small>?</small>"
    return f"<tr><td><code>{escape(name)}</code>{mark}</td><td>{kind}</td><td>{about}</td></tr>"


def _table(title: str, rows: list[str]) -> str:
    heading = f"<h3>{title}</h3>" if title else ""
    return f"{heading}<div class='scroll'><table>{''.join(rows)}</table></div>" if rows else ""
