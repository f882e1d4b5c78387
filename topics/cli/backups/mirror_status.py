"""The status of a mirror: a file beside it that the running mirror replaces after each step."""

from __future__ import annotations

from typing import Any

import msgspec
import typer

from topics.cli.exit_codes import REFUSED
from topics.cli.output.printer import bytes_text, count_text
from topics.cli.output.record_text import time_text
from topics.errors import CorruptError, UsageError
from topics.loop.loop import Loop
from topics.store.disk.whole_files import write_new_file

STATUS_NAME = "status.json"


class MirrorStatus(msgspec.Struct):
    """The contents of the status file."""

    url: str
    timeline: str
    upto_ms: int
    """Unix ms by the server's clock: all that was acknowledged until then is here."""
    server_ms: int
    """Unix ms by the server's clock, when it answered last."""
    answered_ms: int
    """Unix ms by this machine's clock, at that moment."""
    waits_for: str
    error: str
    left_bytes: int
    copied_bytes: int
    holes: int

    def lag_ms(self, now_ms: int) -> int:
        """Return by how much a promotion now would be short."""
        return max(0, self.server_ms + (now_ms - self.answered_ms) - self.upto_ms)


async def write_status(loop: Loop, mirror: str, status: MirrorStatus) -> None:
    """Replace the status file. Raises: OSError."""
    path = f"{mirror}/{STATUS_NAME}"
    await write_new_file(loop.files, f"{path}.tmp", msgspec.json.encode(status), sync=False)
    await loop.files.rename(f"{path}.tmp", path)


def print_status(mirror: str, now_ms: int, *, json: bool, max_lag_ms: int) -> None:
    """Print how late a mirror is. Raises: typer.Exit, it is too late, or has nothing."""
    path = f"{mirror}/{STATUS_NAME}"
    try:
        with open(path, "rb") as file:
            status = msgspec.json.decode(file.read(), type=MirrorStatus)
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"there is no mirror in {mirror}: begin one with `topics mirror URL --to {mirror}`") from None
    except msgspec.DecodeError as error:
        raise CorruptError(f"{path} is damaged: {error}; a mirror that runs writes it again", {"path": path}) from None
    lag_ms = status.lag_ms(now_ms)
    if json:
        shown: dict[str, Any] = msgspec.to_builtins(status) | {"lag_ms": lag_ms}
        print(msgspec.json.encode(shown).decode())
    elif not status.upto_ms:
        print(f"{mirror}: nothing of {status.url} is here yet")
    else:
        holes = f", {count_text(status.holes, 'hole')}" if status.holes else ""
        copied = bytes_text(status.copied_bytes)
        print(f"{mirror}: {status.url} as of {time_text(status.upto_ms)}, {lag_ms} ms late; {copied} copied{holes}")
    for note in filter(None, (status.waits_for and f"waits for {status.waits_for}", status.error)):
        if not json:
            print(note)
    if not status.upto_ms or (max_lag_ms and lag_ms > max_lag_ms):
        raise typer.Exit(REFUSED)
