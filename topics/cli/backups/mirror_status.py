"""The status of a mirror: a file beside it that the running mirror writes anew after each step."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from topics.cli.output.printer import bytes_text, count_text
from topics.common.values.time_texts import time_text
from topics.config import read_regular_file
from topics.errors import CorruptError, StorageError, TopicsError, UsageError
from topics.loop.loop import Loop
from topics.store.backup.free_places import FOLLOWED_NAME
from topics.store.disk.disk_space import is_full
from topics.store.disk.whole_files import FileCalls, write_new_file

STATUS_NAME = "status.json"
_BLOCK_BYTES = 4096
"""Blanks fill the file up to whole blocks, so that it can be written again on a full disk."""
_BYTES_MAX = 1 << 20
"""Bytes that are read of it at most."""


class MirrorStatus(msgspec.Struct):
    """The contents of the status file."""

    url: str
    timeline: str
    upto_ms: int
    """Unix ms by the server's clock: all that was acknowledged until then is here."""
    server_ms: int
    """Unix ms by the server's clock, at its last answer of which all is here; 0: there is none.

    Times after `upto_ms` that came twice count twice.
    """
    answered_ms: int
    """Unix ms by this machine's clock, at that moment."""
    waits_for: str
    error: str
    left_bytes: int
    copied_bytes: int
    """Bytes that all processes of the mirror have copied."""
    holes: int

    def lag_ms(self, now_ms: int) -> int:
        """Return by how much a promotion now would be short."""
        if not self.answered_ms:
            return max(0, now_ms - self.upto_ms)
        # Times of one clock are compared, so the clocks need not agree. That of the server may have
        # been set back before its answer.
        return max(0, self.server_ms - self.upto_ms) + max(0, now_ms - self.answered_ms)


async def write_status(loop: Loop, mirror: str, status: MirrorStatus) -> None:
    """Replace the status file; on a full disk its contents only. Raises: OSError."""
    path = f"{mirror}/{STATUS_NAME}"
    text = msgspec.json.encode(status)
    text = text.ljust(-(-len(text) // _BLOCK_BYTES) * _BLOCK_BYTES)
    try:
        await write_new_file(loop.files, f"{path}.tmp", text, sync=False)
        await loop.files.rename(f"{path}.tmp", path)
    except OSError as error:
        if not is_full(error):
            raise
        await _overwrite(loop.files, path, text)


async def _overwrite(files: FileCalls, path: str, text: bytes) -> None:
    """Write a file that is as long already: most file systems need no room for that."""
    with contextlib.suppress(OSError):
        await files.unlink(f"{path}.tmp")
    fd = await files.open(path, os.O_WRONLY)
    try:
        await files.write_all(fd, text, 0)
    finally:
        await files.close(fd)


def read_status(mirror: str) -> MirrorStatus:
    """Return the status of a mirror. Raises: UsageError, there is no mirror; StorageError."""
    path = f"{mirror}/{STATUS_NAME}"
    try:
        return msgspec.json.decode(read_regular_file(path, _BYTES_MAX)[0], type=MirrorStatus)
    except (FileNotFoundError, NotADirectoryError):
        if os.path.lexists(f"{mirror}/{FOLLOWED_NAME}"):
            raise StorageError(
                f"{path} was not written yet: make room on its disk, and let `topics mirror` run"
            ) from None
        raise UsageError(
            f"--to is {mirror!r}, and there is no mirror in it: name the directory of `topics mirror URL --to`"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _damaged(path, str(error)) from None
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise _damaged(path, str(error.strerror)) from None


def _damaged(path: str, why: str) -> CorruptError:
    return CorruptError(f"{path} is damaged: {why}: `topics mirror` writes it again when it runs", {"path": path})


def last_status(mirror: str) -> MirrorStatus | None:
    """Return the status that a mirror has; None for none that can be read."""
    with contextlib.suppress(TopicsError, OSError):
        return read_status(mirror)
    return None


def status_text(mirror: str, status: MirrorStatus, lag_ms: int) -> str:
    """Return a status as lines for a person."""
    if status.upto_ms:
        holes = f", {count_text(status.holes, 'hole')}" if status.holes else ""
        copied = bytes_text(status.copied_bytes)
        first = f"{status.url} as of {time_text(status.upto_ms)}, {lag_ms} ms late; {copied} copied{holes}"
    else:
        first = f"nothing of {status.url} is here yet"
    notes = (f"waits for {status.waits_for}" if status.waits_for else "", status.error)
    return "\n".join(filter(None, (f"{mirror}: {first}", *notes)))


def status_json(status: MirrorStatus, lag_ms: int) -> str:
    """Return a status as a JSON object."""
    shown: dict[str, Any] = msgspec.to_builtins(status) | {"lag_ms": lag_ms}
    return msgspec.json.encode(shown).decode()


def status_metrics(status: MirrorStatus, lag_ms: int) -> str:
    """Return a status in the text format of Prometheus."""
    registry = CollectorRegistry()
    for name, help_text, value in (
        ("topics_mirror_lag_ms", "Age of the newest time that a promotion would have", lag_ms),
        ("topics_mirror_failing", "1: the last step failed", int(bool(status.error))),
        (
            "topics_mirror_waiting",
            "1: it cannot follow before it has a newer base, or a time of all cores",
            int(bool(status.waits_for)),
        ),
        ("topics_mirror_left_bytes", "Bytes of a base that are to be copied", status.left_bytes),
        ("topics_mirror_holes", "Times to which no restore of the mirror leads", status.holes),
    ):
        Gauge(name, help_text, registry=registry).set(value)
    return generate_latest(registry).decode().rstrip("\n")
