"""Bodies of megabytes: unpacked, scanned and encoded in steps, so that other clients are served."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING

from topics.config import Config
from topics.engine.bodies.write_body import CommandFields, WriteBody, WriteScanner
from topics.engine.values.ports import TimersPort
from topics.store.format.rows import Rows
from topics.store.in_memory.prebuilt_frames import PrebuiltFrames, gather

if TYPE_CHECKING:
    from topics.engine.state.append_request import Identity

_log = logging.getLogger(__name__)

Work = Generator[None, None, None]
Frames = PrebuiltFrames
"""The encoded records of a long write, as its caller passes them to the engine."""


class LongBodies:
    """Processes one body after another, one step in each pass of the loop.

    A pass therefore does a few milliseconds of this work at most, and only one body takes memory
    besides its own at any time. Steps are bounded in bytes instead of time, so that a run of the
    simulator takes the same turns as a server under load.
    """

    def __init__(self, config: Config, timers: TimersPort) -> None:
        self._config = config
        self._timers = timers
        self.step_bytes = config.pass_body_bytes or 1 << 62
        """Bytes of a body in one step; a shorter body is processed at once."""
        self._scanner: WriteScanner | None = None
        self._waiting: deque[Work] = deque()

    def __len__(self) -> int:
        """Return the number of bodies that are not done."""
        return len(self._waiting)

    def run(self, work: Work) -> None:
        """Queue the work; a pass does one step of the first. It catches its own errors."""
        self._waiting.append(work)
        if len(self._waiting) == 1:
            self._timers.call_later(0, self._step)

    def _step(self) -> None:
        try:
            next(self._waiting[0])
        except StopIteration:
            self._waiting.popleft()
        except Exception:
            _log.exception("a long body failed by a bug of ours")
            self._waiting.popleft()
        if self._waiting:
            self._timers.call_later(0, self._step)

    def scan(self, body: bytes | bytearray | memoryview, *, command: bool = False) -> Generator[None, None, WriteBody]:
        """Scan a body like `WriteScanner.scan`, as a part of a work.

        command: see `WriteScanner.scan_in_turns`.
        """
        if self._scanner is None:
            self._scanner = WriteScanner(self._config)
        return self._scanner.scan_in_turns(body, self.step_bytes, command=command)

    def check_keys(self, body: bytes | bytearray | memoryview) -> None:
        """Check the keys of the body that the work has just scanned: `WriteScanner.check_keys`."""
        assert self._scanner is not None, "it was scanned"
        self._scanner.check_keys(body)

    def explain_missing(self, body: bytes | bytearray | memoryview) -> None:
        """Word the failure of the scan of the work's body: `WriteScanner.explain_missing`."""
        assert self._scanner is not None, "it was scanned"
        self._scanner.explain_missing(body)

    def command_fields(self, body: bytes | bytearray | memoryview) -> CommandFields:
        """Return the fields of the command that the work has just scanned."""
        assert self._scanner is not None, "it was scanned"
        return self._scanner.command_fields(body)

    def frames(
        self, rows: Rows, node: bytes | None, identity: Identity | None
    ) -> Generator[None, None, PrebuiltFrames | None]:
        """Encode the rows as frames, as a part of a work.

        Returns: None for the last piece of a part, whose frames follow those of earlier pieces.
        """
        if identity is not None and identity.is_last_piece:
            return None
        extension_bytes = 0 if identity is None else identity.extension_bytes
        return (yield from gather(rows, node, extension_bytes, self.step_bytes))
