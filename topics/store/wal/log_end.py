"""The end of a shard's log: its file, the chain of checksums, the step from file to file."""

from __future__ import annotations

from topics.clock import Clock
from topics.store.commits.synced_batches import SyncedBatches
from topics.store.format.log_format import WAL_FIRST_BATCH_OFFSET
from topics.store.wal.wal_files import WalDirectory, WalFile


class LogEnd:
    """The end of one shard's log. `Commitment` places batches here and moves the end past them."""

    def __init__(self, clock: Clock, directory: WalDirectory, batches: SyncedBatches) -> None:
        self._clock = clock
        self._directory = directory
        self._batches = batches
        self.file: WalFile | None = None
        self.header = b""
        """The file header, until it is written with the first batch."""
        self.chain = 0
        """Checksum of the last batch written, or of the file's header."""
        self.leaves_file = False
        """Whether the next batch opens another file, though this one has room."""
        self.waited_syncs = 0
        """Number of syncs of this file that callers waited for, those of commits included."""

    def request_rotation(self) -> None:
        """Have the next batch open another file.

        The log then has left all files with bytes so far.
        """
        file = self.file
        self.leaves_file = file is not None and file.position > WAL_FIRST_BATCH_OFFSET
        if file is not None and self.leaves_file:
            file.stored.leaving = True

    def cancel_rotation(self) -> None:
        """Continue in this file while it has room."""
        self.leaves_file = False
        if self.file is not None:
            self.file.stored.leaving = False

    def begin(self, file: WalFile) -> None:
        """Continue in a prepared file; the one before was left."""
        assert self.file is None, "the file before was not left"
        self.waited_syncs = 0
        self.file = file
        header = self._directory.begin(file, self._batches.written + 1, self._clock.now_ms())
        self.header = header.pack()
        self.chain = header.checksum

    def leave(self, file: WalFile) -> None:
        """Leave the file. Its unsynced bytes are synced before anything later counts as synced."""
        stored = file.stored
        stored.active = False
        stored.size = file.position
        self._batches.on_file_left(stored.file_id, stored.fd)
        self.file = None
        self.leaves_file = False
