"""The document in its two forms, each rendered on first use."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import msgspec

from topics.config import Config
from topics.http.access.routes import Route
from topics.http.openapi.document import document
from topics.http.openapi.page import page
from topics.http.pages.served_page import ServedPage


class Description:
    """The server's description of itself, constant while it runs."""

    def __init__(self, routes: Sequence[Route], config: Config) -> None:
        self._routes = routes
        self._config = config

    @cached_property
    def json(self) -> bytes:
        return msgspec.json.encode(document(self._routes, self._config))

    @cached_property
    def page(self) -> ServedPage:
        return page(document(self._routes, self._config))
