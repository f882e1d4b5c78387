"""The pages `/` and `/ui`, which need no key and have no data. Source: wire contract, 12.4."""

from __future__ import annotations

from functools import cache

from topics.http.pages.served_page import HTML, ServedPage, read_page
from topics.http.plan.call import Call

_VARY = b"Vary: Accept-Encoding\r\n"
_ZIPPED = b"Content-Encoding: gzip\r\n"


@cache
def _page(name: str, asks_for_keys: bool) -> ServedPage:
    return read_page(name, "yes" if asks_for_keys else "no")


for _name in ("home.html", "ui/ui.html"):
    for _asks in (False, True):
        _page(_name, _asks)  # now, because a running server reads no file outside of its ring


def home(call: Call) -> None:
    """Answer the page that leads to the others."""
    answer_page(call, _page("home.html", call.service.asks_for_keys))


def ui(call: Call) -> None:
    """Answer the page that shows what the server holds, once it has asked for it."""
    answer_page(call, _page("ui/ui.html", call.service.asks_for_keys))


def answer_page(call: Call, page: ServedPage) -> None:
    """Answer a page, or that the client has it."""
    headers = page.headers + _VARY
    zipped = call.plan.accepts_gzip
    body = page.compressed if zipped else page.body
    known = page.is_known(call.plan.request.headers.get(b"if-none-match", b""))
    call.respond(304 if known else 200, body, HTML, headers + _ZIPPED if zipped else headers)
