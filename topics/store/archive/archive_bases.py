"""The bases of an archive: when one is made, and which there are."""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial

from topics.common.values.backup_result import BackupResult
from topics.config import Config
from topics.errors import CorruptError, FormatError, RequestError, StorageError, TopicsError
from topics.loop.loop import Loop
from topics.store.archive.archive_note import BASES, ArchiveNote
from topics.store.backup.backup_manifest import backup_names, read_manifest
from topics.store.backup.backups import Backups

log = logging.getLogger(__name__)

_RETRY_MS = 10_000


class ArchiveBases:
    """The bases of the timeline that a log is copied to. A base is a backup."""

    def __init__(self, loop: Loop, config: Config, backups: Backups) -> None:
        self._loop = loop
        self._config = config
        self._backups = backups
        self.names: tuple[str, ...] = ()
        """The names of the bases, oldest first."""
        self._lists = False
        """Whether `names` are to be listed: one was made, and older ones may have been removed."""
        self.made: BackupResult | None = None
        """A base that was made and is not noted yet."""
        self.last_ms = 0
        """Unix ms of the newest base; 0: there is none."""
        self.failures = 0
        self._is_making = False
        self._stopped = False
        self._beginnings = 0
        """How often the archive began anew: a base from before is of no use."""
        self._none_before_ms = 0
        """Unix ms before which no base is tried, because the last one failed."""
        self._none_after_hole_before_ns = 0
        """Time of the loop before which no base is made after a hole."""

    def stop(self) -> None:
        """Begin no more of them."""
        self._stopped = True

    def begin_anew(self) -> None:
        """Forget a base that was made: it is of no use for the log from here on."""
        self.made, self._beginnings = None, self._beginnings + 1

    async def open(self, timeline: str) -> None:
        """Find the bases of a timeline. Raises: OSError."""
        self.begin_anew()
        self.last_ms, self._lists = 0, True
        await self.list_names(timeline)
        for name in reversed(self.names):
            with suppress(CorruptError, FormatError, FileNotFoundError):  # an older one counts then
                self.last_ms = (await read_manifest(self._loop.files, f"{timeline}/{BASES}/{name}")).taken_ms
                break

    async def list_names(self, timeline: str) -> None:
        """List the bases if one was made or some may have been removed. Raises: OSError."""
        if self._lists:
            files = self._loop.files
            self.names = tuple(await files.to_thread(backup_names, files, f"{timeline}/{BASES}"))
            self._lists = False

    def noted(self, base: BackupResult) -> None:
        """A note that counts on the base that was made is durable."""
        self.made, self.last_ms, self._lists = None, base.taken_ms, True

    def is_needed(self, note: ArchiveNote) -> bool:
        """Return whether no restore leads to now."""
        return not self.last_ms or note.open_hole is not None

    def begin_if_due(self, timeline: str, note: ArchiveNote) -> None:
        every_ms, now_ms = self._config.archive_base_every_ms, self._loop.clock.now_ms()
        # The clock may have been set back since the last one.
        is_due = every_ms > 0 and not 0 <= now_ms - self.last_ms < every_ms
        if self._is_making or self.made is not None or self._stopped or not (self.is_needed(note) or is_due):
            return
        if now_ms < self._none_before_ms:
            return
        has_hole, now_ns = note.open_hole is not None, self._loop.clock.monotonic_ns()
        if has_hole and now_ns < self._none_after_hole_before_ns:
            return  # holes may follow each other closely, and each base copies what has changed
        try:
            self._backups.begin_base(f"{timeline}/{BASES}", partial(self._on_made, self._beginnings))
            self._is_making = True
            if has_hole:
                self._none_after_hole_before_ns = now_ns + _RETRY_MS * 1_000_000
        except RequestError:
            pass  # a client's backup is being written; the next step asks again

    def _on_made(self, beginning: int, outcome: BackupResult | TopicsError) -> None:
        self._is_making = False
        if isinstance(outcome, TopicsError) and self._stopped:
            log.info("a base of the archive was left incomplete: %s", outcome)
        elif isinstance(outcome, TopicsError):
            self.failures += 1
            self._none_before_ms = self._loop.clock.now_ms() + _RETRY_MS
            log.error(
                "a base of the archive could not be made, another is tried in %d s: %s", _RETRY_MS // 1000, outcome
            )
        elif beginning == self._beginnings:
            self.made = outcome

    async def make_last(self, timeline: str) -> bool:
        """Make a base of the last checkpoint, as the log is being closed; return whether it is."""
        try:
            self.made = await self._backups.write_last(f"{timeline}/{BASES}")
        except (OSError, StorageError) as error:
            log.error("a base of the archive could not be made, the next start makes one: %s", error)
            return False
        return self.made is not None
