"""The document as one page of HTML, without scripts, fonts or requests to other servers."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from html import escape
from typing import Any

import msgspec

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}
h2{border-bottom:1px solid #ddd;margin-top:2.5rem}
summary{cursor:pointer;padding:.4rem 0}
code,pre{font:13px/1.45 ui-monospace,monospace}
pre{background:#f6f6f4;padding:.7rem;overflow:auto;max-height:28rem}
b{display:inline-block;min-width:4.5rem;font:bold 13px ui-monospace,monospace}
table{border-collapse:collapse}td{padding:.1rem 1rem .1rem 0;vertical-align:top}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}pre{background:#242424}h2{border-color:#444}}
"""
_HASH = b64encode(sha256(_STYLE.encode()).digest()).decode()
HEADERS = (
    f"Content-Security-Policy: default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
).encode()
"""Headers that let the page load and run only the style above."""


def page(document: dict[str, Any]) -> bytes:
    """Return the page: HTML, UTF-8."""
    groups: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            groups.setdefault(operation["tags"][0], []).append(_operation(method.upper(), path, operation))
    info = document["info"]
    parts = [f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{escape(info['description'])}</p>"]
    parts.append("<p>The same as <a href='/openapi.json'>OpenAPI 3.1</a>.</p>")
    parts += [f"<h2>{escape(tag)}</h2>{''.join(shown)}" for tag, shown in groups.items()]
    shapes = document["components"]["schemas"].items()
    parts.append("<h2>shapes</h2>")
    parts += [
        f"<details id='{escape(name)}'><summary>{escape(name)}</summary>{_code(of)}</details>" for name, of in shapes
    ]
    head = f"<!doctype html><html lang='en'><meta charset='utf-8'><title>topics</title><style>{_STYLE}</style>"
    return (head + "".join(parts)).encode()


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    lines = [f"<details><summary><b>{method}</b> <code>{escape(path)}</code> {escape(operation['summary'])}</summary>"]
    lines.append(f"<p>{escape(operation['description'])}</p><table>")
    for parameter in operation.get("parameters", ()):
        about = parameter["schema"].get("description", "")
        where = parameter["in"]
        lines.append(f"<tr><td><code>{escape(parameter['name'])}</code><td>{where}<td>{escape(about)}</tr>")
    lines.append("</table>")
    if "requestBody" in operation:
        lines.append("<p>Body</p>" + _code(operation["requestBody"]["content"]["application/json"]["schema"]))
    for status, response in operation["responses"].items():
        lines.append(f"<p>{status} {escape(response['description'])}</p>")
        content = response.get("content", {})
        if int(status) < 300 and "application/json" in content:
            lines.append(_code(content["application/json"]["schema"]))
    return "".join(lines) + "</details>"


def _code(schema: dict[str, Any]) -> str:
    return f"<pre>{escape(msgspec.json.format(msgspec.json.encode(schema), indent=2).decode())}</pre>"
