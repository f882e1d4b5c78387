"""The copy of one core in a backup of all, as orders of the core that joins them ask for it.

A core holds its checkpoint until the instant has come, since another one would free log that the
instant needs. So it gives the copy up if the core that has ordered it ends, and at its own stop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from topics.errors import RequestError, StorageError, TopicsError
from topics.loop.loop import Loop
from topics.loop.tasks import Future
from topics.store.backup.backup_files import NewTree
from topics.store.backup.capture_copy import CaptureCopy, Captured, files_before
from topics.store.backup.core_orders import (
    CopyOrder,
    CoreCopied,
    GiveUp,
    GiveUpOrder,
    InstantOrder,
    Ready,
    Replied,
    Reply,
    decode_order,
    encode,
)
from topics.store.backup.write_backup import failure_of
from topics.store.checkpoint.capture import Capture, SharedInstant
from topics.store.cores.core_directories import core_name, marker_or_none
from topics.store.layouts.directory_names import MARKER_NAME

_SET_BACK_MS = 100
"""A clock that lags so much after the one that is never set was set back. Smaller differences may
be from reading both, one after the other.
"""
_LOOK_NS = 1_000_000

_Done = Callable[[Reply | TopicsError], None]
Take = Callable[[SharedInstant], Awaitable[Capture]]
"""Takes a capture of this core. Raises: StorageError."""


class _Copy:
    """A copy that was ordered, as a `SharedInstant`."""

    def __init__(self, loop: Loop, token: str) -> None:
        self._loop = loop
        self.token = token
        self.is_given_up = False
        self.ready: Future[None] = Future()
        self.instant: Future[InstantOrder | None] = Future()
        """The instant; None if the copy was given up before."""

    def give_up(self) -> None:
        """End the copy, if it waits for its instant, or before its next piece."""
        self.is_given_up = True
        self.instant.set_result(None)

    async def agreed_ms(self) -> int | None:
        self.ready.set_result(None)
        instant = await self.instant
        if instant is None:
            return None
        while self._loop.clock.now_ms() <= instant.ms and self.is_kept():
            await self._loop.sleep(_LOOK_NS)
        return instant.ms

    def is_kept(self) -> bool:
        instant, clock = self.instant.result(), self._loop.clock
        assert instant is not None, "a capture of no instant"
        since_ms = (clock.monotonic_ns() - instant.monotonic_ns) // 1_000_000
        return clock.now_ms() > instant.ms + since_ms - _SET_BACK_MS

    def failure(self) -> StorageError | None:
        """Return why there is no capture; None: for another reason than its instant."""
        if self.is_given_up:
            return StorageError("the backup was given up, because another core or the whole server stops")
        if self.instant.done and not self.is_kept():
            return StorageError("the clock was set back while the instant of the backup was taken: make another one")
        return None


class CoreCopies:
    """Executes the orders for this core, of one backup at a time."""

    def __init__(self, loop: Loop, data_dir: str, core: int, take: Take) -> None:
        """data_dir: of the core."""
        self._loop = loop
        self._data_dir = data_dir
        self._core = core
        self._take = take
        self._copy: _Copy | None = None
        self._ended: Future[None] = Future()
        """Done if there is no copy."""
        self._ended.set_result(None)
        self._has_stopped = False

    def execute(self, data: bytes, replied: Replied) -> GiveUp:
        """Execute an order, encoded; `replied` is called once."""
        order, copy = decode_order(data), self._copy

        def done(reply: Reply | TopicsError) -> None:
            replied(reply if isinstance(reply, TopicsError) else encode(reply))

        if isinstance(order, CopyOrder):
            return self._begin(order, done)
        if isinstance(order, GiveUpOrder):
            if copy is not None:
                copy.give_up()
            self._ended.when_done(lambda: done(Ready()))
        elif copy is None or copy.token != order.token:
            done(RequestError("backup_running", f"core {self._core} makes another backup, or none: try again"))
        elif isinstance(order, InstantOrder):
            copy.instant.set_result(order)
            done(Ready())
        else:
            copy.ready.when_done(lambda: done(Ready()))
        return _nothing

    def stop(self) -> None:
        """Give up what is being copied, and copy nothing more: the core stops."""
        self._has_stopped = True
        if self._copy is not None:
            self._copy.give_up()

    async def end(self) -> None:
        """Return once nothing is being copied."""
        await self._ended

    def _begin(self, order: CopyOrder, done: _Done) -> GiveUp:
        if self._has_stopped or self._copy is not None:
            done(RequestError("backup_running", f"core {self._core} stops, or ends another backup: try again"))
            return _nothing
        copy = self._copy = _Copy(self._loop, order.token)
        self._ended = Future()
        self._loop.spawn(self._run(order, copy, done, self._ended), "copy of a core", is_optional=True)
        return copy.give_up

    async def _run(self, order: CopyOrder, copy: _Copy, done: _Done, ended: Future[None]) -> None:
        outcome: CoreCopied | TopicsError
        try:
            outcome = await self._copied(order, copy)
        except TopicsError as error:
            outcome = error
        except Exception as error:
            outcome = failure_of(order.tree, error)
        self._copy = None
        ended.set_result(None)
        done(outcome)
        copy.ready.set_result(None)

    async def _copied(self, order: CopyOrder, copy: _Copy) -> CoreCopied:
        """Copy this core, durably. Raises: TopicsError, OSError."""
        files = self._loop.files
        marker = await marker_or_none(files, self._data_dir)
        if marker is None:
            raise StorageError(f"{self._data_dir}/{MARKER_NAME} is missing or damaged")
        try:
            capture = await self._take(copy)
        except StorageError as error:
            raise copy.failure() or error from None
        try:
            tree, number = NewTree(files, order.tree), capture.format_number
            captured = Captured(capture, msgspec.structs.replace(marker, format=number), f"{core_name(self._core)}/")
            known = await files_before(self._loop, order.before)
            written = CaptureCopy(self._loop, captured, tree, known, lambda: copy.is_given_up)
            await written.copy_log()
            await written.copy_rest()
            await tree.sync()
        finally:
            capture.release()
        return CoreCopied(written.listed, number, written.copied_bytes, written.linked_files)


def _nothing() -> None:
    """Give up an order that was answered."""
