"""The description of the server itself, the contract and the guides. None has a client's data.

Pages are made on first use, in turns with other work, and kept.
"""

from __future__ import annotations

from collections.abc import Generator

from topics.engine.bodies.long_bodies import Work
from topics.errors import RequestError
from topics.http.handlers.page_endpoints import answer_page
from topics.http.openapi.contract_pages import section_page
from topics.http.pages.guide_pages import guide_page
from topics.http.pages.served_page import ServedPage
from topics.http.plan.call import Call

Making = Generator[None, None, ServedPage | None]
"""A page in the making; None: it does not exist."""


def openapi(call: Call) -> None:
    """Answer the description as OpenAPI 3.1."""
    call.reply(call.service.description.json)


def docs(call: Call) -> None:
    """Answer the description as a page for people."""
    _answer(call, "", call.service.description.page(), "the page")


def contract(call: Call) -> None:
    """Answer a section of the wire contract as a page."""
    page = section_page(call.name)
    if page is None:
        raise RequestError("not_found", f"the contract has no section {call.name!r}")
    answer_page(call, page)


def guide(call: Call) -> None:
    """Answer a guide as a page."""
    _answer(call, f"guides/{call.name}", guide_page(call.name), f"there is no guide {call.name!r}")


def _answer(call: Call, name: str, making: Making, missing: str) -> None:
    """Answer a page that is kept under a name, or that is to be made."""
    page = call.service.description.pages.get(name)
    if page is not None:
        answer_page(call, page)
    else:
        call.service.long_commands.run(_made(call, name, making, missing))


def _made(call: Call, name: str, making: Making, missing: str) -> Work:
    pages = call.service.description.pages
    try:
        if name not in pages:
            page = yield from making
            if page is None:
                raise RequestError("not_found", missing)
            pages[name] = page
        answer_page(call, pages[name])
    except Exception as error:
        call.fail(error)
