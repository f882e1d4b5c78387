"""The description of the server itself. Read scope, like metrics: it contains no client's data."""

from __future__ import annotations

from topics.errors import RequestError
from topics.http.handlers.page_endpoints import answer_page
from topics.http.openapi.contract_pages import section_page
from topics.http.plan.call import Call


def openapi(call: Call) -> None:
    """Answer the description as OpenAPI 3.1."""
    call.reply(call.service.description.json)


def docs(call: Call) -> None:
    """Answer the description as a page for people."""
    answer_page(call, call.service.description.page)


def contract(call: Call) -> None:
    """Answer a section of the wire contract as a page."""
    page = section_page(call.name)
    if page is None:
        raise RequestError("not_found", f"the contract has no section {call.name!r}")
    answer_page(call, page)
