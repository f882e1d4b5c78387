"""The endpoints of backups. Source: wire contract, sections 7.18 and 7.19."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from topics.common.values.backup_result import BackupProgress
from topics.errors import RequestError
from topics.http.plan.call import Call


def place_of_backup(call: Call) -> str:
    """Check a request for a backup; return where it is to be made. Raises: RequestError."""
    fields = call.fields()
    _check_key(call)
    return _root(call.service.config.backup_dir, fields.nullable_string("to"))


def make_backup(call: Call) -> None:
    """Begin a backup, and answer at once (7.18)."""
    root, backups = place_of_backup(call), call.service.engine.backups
    backups.begin(root, lambda _outcome: None, within=call.service.config.backup_dir)
    _answer(call, backups.progress)


def get_backup(call: Call) -> None:
    """Answer how far the newest backup is (7.19)."""
    _check_key(call)
    _answer(call, call.service.engine.backups.progress)


def _check_key(call: Call) -> None:
    """Check R-AUTH-11. Raises: RequestError forbidden."""
    if call.principal.restricted:
        raise RequestError("forbidden", "a backup holds all topics: use a key without prefixes")


def _root(allowed: str, wished: str | None) -> str:
    """Return the directory that a backup is made in (R-BAK-2, R-BAK-5). Raises: RequestError."""
    if not allowed:
        message = "this server has no directory for backups: start it with TOPICS_BACKUP_DIR"
        raise RequestError("invalid_request", message)
    if wished is None:
        return allowed
    allowed, root = os.path.abspath(allowed), os.path.normpath(wished)
    has_control = any(character < " " or character == "\x7f" for character in wished)
    if has_control or not os.path.isabs(wished) or not f"{root}/".startswith(f"{allowed}/"):
        message = f"to is {wished[:200]!r}: use {allowed}, which is TOPICS_BACKUP_DIR, or an absolute path below it"
        if has_control:
            message += ", without control characters"
        raise RequestError("invalid_request", message)
    return root


def _answer(call: Call, progress: BackupProgress) -> None:
    backup: dict[str, Any] = {"number": progress.number, "state": progress.state}
    if progress.number:
        backup |= {"files": progress.files, "copied_bytes": progress.copied_bytes}
    if progress.result is not None:
        backup |= progress.result._asdict()
    if progress.error:
        backup["error"] = progress.error
    call.reply(b'{"backup":%b,"performance":{"server_total_ms":%b}}' % (msgspec.json.encode(backup), call.total_ms()))
