"""Deleted records whose bytes are still in the files."""

from __future__ import annotations

from contextlib import closing

import numpy as np
from numpy.typing import NDArray

from topics.files.file_calls import SYSTEM, FileReads
from topics.files.piece import Location, Piece
from topics.files.piece_files import PieceSource, VanishedError


def deleted_seqs(location: Location, piece: Piece, *, calls: FileReads | None = None) -> NDArray[np.int64] | None:
    """Return the seqs of a piece's deleted records, ascending int64; None if its file is gone.

    Records that were deleted before a checkpoint copied them are in no file, so they are not
    returned.
    Raises: CorruptError, FormatError, StorageError, and the errors of `read_pieces` that concern a
    directory.
    """
    with closing(PieceSource(location, calls or SYSTEM, deleted=True)) as source:
        try:
            return source.rows(piece).rows.seqs.astype(np.int64)
        except VanishedError:
            return None
