"""The keys that a request may have, and the refusal of others.

Only requests with `Prefer: handling=strict` are checked: others have unknown keys ignored. Source:
wire contract, section 2.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from topics.common.values.near_names import LONGEST_COMPARED, suggestion
from topics.engine.json.strict_json import JsonKind, Place, TooManyError, object_places
from topics.errors import RequestError


@dataclass(frozen=True, slots=True)
class KnownKeys:
    """The keys of an object in a request.

    names: the keys, each with those of the objects that its value may be. each: the keys are data,
    such as names of topics, and this holds for all values. An object without both may have any key.
    """

    names: Mapping[str, KnownKeys] = field(default_factory=dict)
    each: KnownKeys | None = None

    @classmethod
    def of(cls, *names: str, **inner: KnownKeys) -> KnownKeys:
        """Build the keys of an object from names of plain values, and of objects."""
        return cls(dict.fromkeys(names, ANY) | inner)

    def merged(self, other: KnownKeys) -> KnownKeys:
        """Return the keys of an object that may have those of either."""
        names = dict(self.names)
        for name, inner in other.names.items():
            names[name] = names[name].merged(inner) if name in names else inner
        return KnownKeys(names, self.each or other.each)

    def check(self, text: bytes, most: int, where: str = "") -> None:
        """Check the keys of a JSON object, and of the objects in it.

        most: the most members of an object that are looked at. where: precedes a key in messages.
        Raises: RequestError invalid_request, one is unknown, or `text` is no such object.
        """
        try:
            places, _twice = object_places(text, where.rstrip(".") or "the body", most)
        except TooManyError:
            if self.each is not None:
                return  # their reader has a limit of its own, and words for it
            raise
        self.check_places(text, places, most, where)

    def check_places(self, text: bytes, places: Mapping[str, Place], most: int, where: str = "") -> None:
        """Check the keys of an object whose members `object_places` has returned."""
        for name, (start, end, kind) in places.items():
            inner = self.each or self.names.get(name)
            if inner is None:
                raise unknown_key(name, self.names, where)
            if kind == JsonKind.OBJECT and (inner.names or inner.each is not None):
                inner.check(text[start:end], most, f"{where}{name}.")


ANY = KnownKeys()
"""A value that is no object, or an object with any keys."""


def unknown_key(name: str, known: Iterable[str], where: str = "", what: str = "key") -> RequestError:
    """Build the refusal of a key, which suggests the known one that looks most like it.

    where: precedes the key. what: "key" or "parameter".
    """
    known = sorted(known)
    advice = suggestion(name, known, f"use {', '.join(known)}" if known else "there is none here")
    shown = repr(name if len(name) <= LONGEST_COMPARED else name[:LONGEST_COMPARED] + "...")[1:-1]
    message = f"{where}{shown} is an unknown {what}: {advice} (Prefer: handling=strict)"
    return RequestError("invalid_request", message)
