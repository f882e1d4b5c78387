"""Names for the objects of the description, from which generators make classes."""

from __future__ import annotations

from typing import Any

from topics.http.openapi.shapes import Schema, ref


class NamedModels:
    """The components of a description. Schemas with a title become components of that name."""

    def __init__(self, components: dict[str, Schema]) -> None:
        self.by_name: dict[str, Schema] = {}
        for name, schema in components.items():
            self.by_name[name] = self._without_titles(schema)

    def named(self, schema: Schema, name: str) -> Schema:
        """Return a reference to a schema, which has this name from now on unless it has one."""
        if "$ref" in schema or schema.keys() == {"type"}:
            return schema
        return self._kept(name, self._without_titles(schema))

    def _kept(self, name: str, schema: Schema) -> Schema:
        known = self.by_name.setdefault(name, schema)
        assert known == schema, f"two shapes of the name {name}"
        return ref(name)

    def _without_titles(self, schema: Any) -> Any:
        """Return a copy in which each schema with a title is a reference."""
        if isinstance(schema, list):
            return [self._without_titles(each) for each in schema]
        if not isinstance(schema, dict):
            return schema
        title = schema.get("title")
        inner = {key: self._without_titles(value) for key, value in schema.items() if key != "title"}
        return self._kept(title, inner) if isinstance(title, str) else inner
