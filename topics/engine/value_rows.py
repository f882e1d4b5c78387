"""Rows from Python values or JSON texts: what the embedded API appends.

The same limits and the same strictness as on the wire, so that whatever is stored can be read over HTTP too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from topics.config import Config
from topics.store.rows import Rows


class NewRecord(NamedTuple):
    """One record to append. data, meta: anything msgspec encodes as JSON; meta, tag, node None: absent."""

    data: Any
    tag: str | None = None
    node: str | None = None
    meta: Any = None


def rows_from_values(records: Iterable[NewRecord], config: Config) -> Rows:
    """Encodes each record. Raises: RequestError, over a limit, or a value JSON cannot hold (NaN, infinity ...)."""
    raise NotImplementedError


def rows_from_json(texts: Iterable[bytes], config: Config) -> Rows:
    """One record without tag, node and meta per JSON text. Raises: RequestError naming the record and the fix."""
    raise NotImplementedError
