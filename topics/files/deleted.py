"""Records that were deleted and whose bytes are still there."""

from __future__ import annotations

from contextlib import closing

import numpy as np
from numpy.typing import NDArray

from topics.files.file_calls import SYSTEM, FileReads
from topics.files.piece import Location, Piece
from topics.files.piece_files import PieceSource, VanishedError


def deleted_seqs(location: Location, piece: Piece, *, calls: FileReads | None = None) -> NDArray[np.int64] | None:
    """Return the seqs of a piece's deleted records, ascending; None when its file is gone.

    A record that was deleted before a checkpoint could copy it, and one whose file has gone since, is in no file.
    Raises CorruptError, FormatError, StorageError and what `read_pieces` raises for a directory.
    """
    with closing(PieceSource(location, calls or SYSTEM, deleted=True)) as source:
        try:
            return source.rows(piece).rows.seqs.astype(np.int64)
        except VanishedError:
            return None
