"""Writes that wait until the data directory has the format that their records need.

A record of bytes would be misread by a build that knows only the first format. A build that knows
only the second would hand out a job with a delay too early, and keep a record with a ttl for ever.
The first such write of a directory therefore raises its format, and is staged once that is durable.
It does so after its own checks, because a refused write leaves the format as it is. Later writes to
the same topic wait for it, so that they keep their order; all others continue.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from topics.engine.shared.held_appends import HeldAppends
from topics.engine.state.append_request import AppendRequest, Waiting
from topics.engine.values.ports import FormatPort
from topics.engine.values.results import AppendResult, Done
from topics.errors import StorageError
from topics.store.format.rows import BYTES, TIMES, flags_in
from topics.store.layouts.directory_names import SECOND_DIRECTORY_FORMAT, THIRD_DIRECTORY_FORMAT

NEWER_FLAGS = BYTES | TIMES
"""Flags of rows that the first format has not: without them `lacks` is 0."""


class FormatWait:
    """The writes of one engine that wait for the format; none once `format.takes_all`."""

    def __init__(self, directory_format: FormatPort, held: HeldAppends) -> None:
        self.format = directory_format
        self._held = held
        self.waiting: dict[str, Waiting] = {}
        """Waiting writes by topic."""

    @property
    def has_bytes(self) -> bool:
        """Whether the directory has the format for records of bytes."""
        return self.format.number >= SECOND_DIRECTORY_FORMAT

    def concerns(self, spans: bytes) -> bool:
        """Return whether a write of these rows may have to wait, before the newest format."""
        return bool(self.waiting or self.lacks(spans))

    def lacks(self, spans: bytes) -> int:
        """Return the format that the directory needs for these rows; 0 if it has it."""
        number = self.format.number
        flags = flags_in(spans) if number < THIRD_DIRECTORY_FORMAT else 0
        if flags & TIMES:
            return THIRD_DIRECTORY_FORMAT
        return SECOND_DIRECTORY_FORMAT if flags & BYTES and number < SECOND_DIRECTORY_FORMAT else 0

    def join(self, request: AppendRequest, done: Done[AppendResult]) -> bool:
        """Queue a write after the waiting writes of its topic. Return False if there are none.

        So it is asked only while any write waits.
        """
        waiting = self.waiting.get(request.topic)
        if waiting is None:
            return False
        waiting.append(self._held_write(request, done))
        return True

    def hold(
        self,
        request: AppendRequest,
        done: Done[AppendResult],
        append: Callable[[AppendRequest, Done[AppendResult]], None],
        number: int = 0,
    ) -> bool:
        """Let a write that `lacks` a format wait, the first of its topic, and then `append` it.

        number: the format that its config needs; 0: it has none.

        Returns: True, it waits. If the format cannot be raised, writes that need it get the error
        with nothing staged.
        """
        needed = max(number, self.lacks(request.rows.spans))
        request, done = self._held_write(request, done)
        self.waiting[request.topic] = [(request, done)]
        self.format.when_raised(needed, partial(self._on_raised, request.topic, append))
        return True

    def _held_write(self, request: AppendRequest, done: Done[AppendResult]) -> tuple[AppendRequest, Done[AppendResult]]:
        rows = request.rows
        if type(rows.buffer) is not bytes:  # it may be used for other bytes from the next pass on
            request = request._replace(rows=rows._replace(buffer=bytes(rows.buffer)))
        done = self._held.hold(done)
        return request, done

    def _on_raised(
        self, topic: str, append: Callable[[AppendRequest, Done[AppendResult]], None], error: StorageError | None
    ) -> None:
        for number, (request, done) in enumerate(self.waiting.pop(topic)):
            if error is not None and request.violation is None and (not number or self.lacks(request.rows.spans)):
                done(error)  # the first one needs it in any case
            else:
                append(request, done)
