"""The last line that a command writes on stderr; all of that is passed on as it comes."""

from __future__ import annotations

import contextlib
import os
import sys
import threading

_CHUNK_BYTES = 4096
_KEPT_BYTES = 1024
_CHARACTERS = 200
_REST_S = 0.2
"""How long the end is waited for, which programs that the command has left running put off."""


class LastLine:
    """Passes on what is written to `writer`, and keeps the last line that is not blank."""

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe()
        self._kept = b""
        self._thread = threading.Thread(target=self._pass_on, name="job-stderr", daemon=True)

    def start(self) -> None:
        """Begin, once the command has `writer`, which is closed here."""
        os.close(self.writer)
        self._thread.start()

    def close(self) -> None:
        """Close both ends: there is no command."""
        os.close(self._reader)
        os.close(self.writer)

    def text(self) -> str:
        """Return the line of a command that has ended, cut; "" without one."""
        self._thread.join(_REST_S)
        for line in reversed(self._kept.splitlines()):
            if text := line.decode("utf-8", "replace").strip():
                return text if len(text) <= _CHARACTERS else f"{text[: _CHARACTERS - 1]}…"
        return ""

    def _pass_on(self) -> None:
        with os.fdopen(self._reader, "rb", buffering=0) as pipe:
            while chunk := pipe.read(_CHUNK_BYTES):
                self._kept = _end_of(self._kept + chunk)
                with contextlib.suppress(OSError):  # its reader has left
                    sys.stderr.buffer.write(chunk)
                    sys.stderr.flush()


def _end_of(text: bytes) -> bytes:
    """Return the last line that is not blank, with what follows it, or its beginning."""
    blank = len(text) - len(text.rstrip())
    begin = text.rfind(b"\n", 0, len(text) - blank) + 1
    return text[begin : begin + _KEPT_BYTES]
