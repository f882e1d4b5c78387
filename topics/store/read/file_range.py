"""The range of a file that one read covers."""

from __future__ import annotations

from typing import NamedTuple


class FileRange(NamedTuple):
    """A contiguous range of one file, usually several neighbouring frames."""

    file_id: int
    offset: int
    length: int
