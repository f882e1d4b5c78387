"""The document in its two forms, each rendered on use."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import cached_property

import msgspec

from topics.config import Config
from topics.http.access.routes import Route
from topics.http.openapi.document import document
from topics.http.openapi.page import page
from topics.http.pages.served_page import ServedPage


class Description:
    """The server's description of itself, constant while it runs."""

    def __init__(self, routes: Sequence[Route], config: Config, *, asks_for_keys: bool = False) -> None:
        self._routes = routes
        self._asks_for_keys = asks_for_keys
        self.pages: dict[str, ServedPage] = {}
        """Pages of `/docs` that were made, by their names."""
        self._config = config

    @cached_property
    def json(self) -> bytes:
        return msgspec.json.encode(document(self._routes, self._config))

    def page(self) -> Generator[None, None, ServedPage]:
        """Render the page, in steps."""
        found = document(self._routes, self._config)
        yield
        return (yield from page(found, asks_for_keys=self._asks_for_keys))
