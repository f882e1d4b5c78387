"""The copies of all cores in one backup, by orders to each of them. Source: R-CORE-14.

All are of one instant, by the clock that the processes of a machine share. A batch of a log states
when it was written, which is before all that it causes, on whatever core. So the log of
each core up to the last batch of that time has no copy of a router without its record, and nothing
that was written in the knowledge of what it lacks.
"""

from __future__ import annotations

from collections.abc import Callable

from topics.errors import StorageError, TopicsError
from topics.loop.loop import Loop
from topics.loop.tasks import Future
from topics.store.backup.backup_files import NewTree
from topics.store.backup.core_orders import (
    CopyOrder,
    CoreCopied,
    CoresToCopy,
    GiveUpOrder,
    InstantOrder,
    Order,
    ReadyOrder,
    Reply,
    decode_reply,
    encode,
)
from topics.store.backup.write_backup import CopiedFiles


class CoresCopies:
    """The copies of all cores. The numbers are of those that have ended by now."""

    def __init__(self, loop: Loop, cores: CoresToCopy) -> None:
        self._loop = loop
        self._cores = cores
        self._ended: list[CoreCopied] = []
        self._step: Future[None] = Future()
        """The answers that are waited for, or the first error."""
        self._failure: TopicsError | None = None
        self.began_ms = loop.clock.now_ms()

    @property
    def file_count(self) -> int:
        return sum(len(each.files) for each in self._ended)

    @property
    def copied_bytes(self) -> int:
        return sum(each.copied_bytes for each in self._ended)

    @property
    def linked_files(self) -> int:
        return sum(each.linked_files for each in self._ended)

    def stop(self) -> None:
        """Give the copies up: this core stops."""
        self._fail(StorageError("the backup was not completed: the log is being closed"))

    async def copy(self, tree: NewTree, before: str) -> CopiedFiles:
        """Copy all cores: see `BackupCopies`."""
        cores, clock = self._cores, self._loop.clock
        token = self._loop.random_bytes(8).hex()
        try:
            for core in range(cores.count):
                self._ask(core, CopyOrder(token, tree.root, before), self._took)
            await self._answered(ReadyOrder(token))
            ms = clock.now_ms()
            await self._answered(InstantOrder(token, ms, clock.monotonic_ns()))
            self._step = Future()
            self._look()
            await self._step
        except BaseException:
            await self.give_up()  # what is written into the tree would be in the way of its removal
            raise
        files = [file for each in self._ended for file in each.files]
        return CopiedFiles(files, ms, max(each.format_number for each in self._ended))

    async def give_up(self) -> list[TopicsError]:
        """Have all cores give up what they copy; return the errors of those that are not there."""
        errors, ended = list[TopicsError](), Future[None]()
        self._ask_all(GiveUpOrder(), errors.append, ended)
        await ended
        return errors

    async def _answered(self, order: Order) -> None:
        """Ask all cores, and return once they have answered. Raises: TopicsError, the first."""
        if self._failure is not None:
            raise self._failure
        self._step = Future()
        self._ask_all(order, self._fail, self._step)
        await self._step

    def _ask_all(self, order: Order, failed: Callable[[TopicsError], None], ended: Future[None]) -> None:
        """Ask all cores. `ended` is set once all have answered, `failed` called with each error."""
        left = self._cores.count

        def took(reply: Reply | TopicsError) -> None:
            nonlocal left
            left -= 1
            if isinstance(reply, TopicsError):
                failed(reply)
            if not left:
                ended.set_result(None)

        for core in range(self._cores.count):
            self._ask(core, order, took)

    def _ask(self, core: int, order: Order, took: Callable[[Reply | TopicsError], None]) -> None:
        def replied(reply: bytes | TopicsError) -> None:
            took(reply if isinstance(reply, TopicsError) else decode_reply(reply))

        self._cores.ask_to_copy(core, encode(order), replied)

    def _took(self, reply: Reply | TopicsError) -> None:
        """Take the answer of a core that has copied, or has failed to."""
        if isinstance(reply, CoreCopied):
            self._ended.append(reply)
            self._look()
        else:
            assert isinstance(reply, TopicsError), "the reply to its order"
            self._fail(reply)

    def _look(self) -> None:
        if self._failure is not None:
            self._step.set_error(self._failure)
        elif len(self._ended) == self._cores.count:
            self._step.set_result(None)

    def _fail(self, error: TopicsError) -> None:
        self._failure = self._failure or error
        self._step.set_error(self._failure)
