"""The description of the server itself. Read scope, like metrics: it contains no client's data."""

from __future__ import annotations

from topics.http.openapi.page import HEADERS
from topics.http.plan.call import Call

_HTML = b"text/html; charset=utf-8"


def openapi(call: Call) -> None:
    """Answer the description as OpenAPI 3.1."""
    call.reply(call.service.description.json)


def docs(call: Call) -> None:
    """Answer the description as a page for people."""
    call.respond(200, call.service.description.page, _HTML, HEADERS)
