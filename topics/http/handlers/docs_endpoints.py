"""The server's description of itself. Read scope, like metrics: it tells nothing of anyone's data."""

from __future__ import annotations

from topics.http.openapi.page import HEADERS
from topics.http.plan.call import Call

_HTML = b"text/html; charset=utf-8"


def openapi(call: Call) -> None:
    """OpenAPI 3.1."""
    call.reply(call.service.description.json)


def docs(call: Call) -> None:
    """The same for people."""
    call.respond(200, call.service.description.page, _HTML, HEADERS)
