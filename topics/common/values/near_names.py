"""The known name that a misspelt one probably means."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

LONGEST_COMPARED = 64
"""Characters. Comparing takes longer the longer the names are, and a client may choose them."""
_LIKENESS = 0.6
"""From 0 to 1: how much of two names has to be equal."""


def nearest(name: str, known: Iterable[str], likeness: float = _LIKENESS) -> str:
    """Return the known name that is most like this one, "" if none is enough like it."""
    found = get_close_matches(name, sorted(known), 1, likeness) if len(name) <= LONGEST_COMPARED else []
    return found[0] if found else ""


def suggestion(name: str, known: Iterable[str], otherwise: str, likeness: float = _LIKENESS) -> str:
    """Return "did you mean NAME?", or `otherwise` if no known name is enough like this one."""
    near = nearest(name, known, likeness)
    return f"did you mean {near}?" if near else otherwise


def bracketed(name: str, known: Iterable[str], likeness: float = _LIKENESS) -> str:
    """Return " (did you mean NAME?)", or "" if no known name is enough like this one."""
    near = nearest(name, known, likeness)
    return f" (did you mean {near}?)" if near else ""
