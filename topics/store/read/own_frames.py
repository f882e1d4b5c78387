"""Frames of a topic's own, for copies that routers make by position.

Each copy shares the frame of its original until it gets one.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from topics.store.format import codec
from topics.store.format.log_format import FLAG_COPY

_HAVE_OWN = bytes([flags for flags in range(256) if not flags & FLAG_COPY])
"""Flags of rows whose frame is the topic's own.

Deleting them from the column is one call, which is fast for few rows, too.
"""


class FrameRows(Protocol):
    """Columns of shape (n,) over rows whose frames are in one range of bytes."""

    @property
    def seqs(self) -> NDArray[np.uint64]: ...

    @property
    def offsets(self) -> NDArray[np.uint32]:
        """Offsets of the frames in the file."""

    @property
    def lengths(self) -> NDArray[np.uint32]: ...

    @property
    def ts(self) -> NDArray[np.uint64]: ...

    @property
    def flags(self) -> NDArray[np.uint8]: ...


def share_frames(flags: NDArray[np.uint8]) -> bool:
    """Return whether some of these rows have no frame of their own."""
    return bool(flags.tobytes().translate(None, _HAVE_OWN))


def own_frames(topic_id: int, data: Buffer, base: int, rows: FrameRows) -> codec.Reframed:
    """Return frames of the topic's own for rows of which some share theirs.

    A frame is at data[offset - base]. Raises CorruptError naming topic id and seq of a copy whose
    frame is not sound.
    """
    return codec.reframe(data, base, rows.offsets, rows.lengths, rows.seqs, rows.ts, rows.flags, topic_id)
