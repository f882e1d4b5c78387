"""Calls on the files of a server: checkpoints and backups."""

from __future__ import annotations

from topics.client import parsing
from topics.client.attempts import Repeat, ServerCall
from topics.client.exchange import ServerRequest
from topics.client.server_calls.request_parts import encode
from topics.common.values import arguments
from topics.common.values.backup_result import BackupProgress


def checkpoint(number: int, wait_ms: int) -> ServerCall[tuple[int, bool, int]]:
    """Return the call for a checkpoint. Answer: its snapshot, whether it ended, the number to ask
    for next."""
    body = {"wait_ms": wait_ms, "checkpoint": number}
    request = ServerRequest("POST", "/v0/checkpoint", encode(body))
    return ServerCall(request, parsing.checkpoint_result, wait_s=wait_ms / 1000)


def begin_backup(to: str | None) -> ServerCall[BackupProgress]:
    if to is not None:
        to = arguments.text("to", to)
    request = ServerRequest("POST", "/v0/backups", encode({"to": to}))
    return ServerCall(request, parsing.backup_progress, Repeat.NEVER, changes=True)


def backup_progress() -> ServerCall[BackupProgress]:
    return ServerCall(ServerRequest("GET", "/v0/backups"), parsing.backup_progress)
