"""Opening a log of this process: to read and write, or only to read (`read_only=True`)."""

from __future__ import annotations

import os
from dataclasses import fields, replace
from typing import Any

from typing_extensions import Unpack

from topics.common.settings import LogSettings
from topics.common.values import arguments
from topics.common.values.near_names import bracketed
from topics.config import Config
from topics.embedded.fsck_call import rebuild_if_damaged
from topics.embedded.log import Log
from topics.embedded.read_only_log import ReadOnlyLog
from topics.errors import UsageError
from topics.store.backup.free_places import check_places

_RECORD_BYTES = 16 << 20
"""Default of the setting `max_record_bytes` here, where no record has to fit into a request."""


def open_log(
    path: str | os.PathLike[str], *, rebuild: bool = False, read_only: bool = False, **settings: Unpack[LogSettings]
) -> Log:
    """Open the log in directory `path`, creating it if it is missing, and recover its contents.

    rebuild: check the directory first, and restore what is sound if it is damaged, as `fsck` does.
    read_only: nothing in the directory changes, and calls that would write raise UsageError.
    Several may have it open like this, and none to write.
    settings: any field of `Config` (docs/settings.md), e.g. io="portable", commit="link",
    sync_every_ms=100. No setting is read from the environment, so several logs may be open in one
    process, each with its own settings. A record may have 16 MiB (max_record_bytes), which is the
    only default that differs from the server's.
    Raises: LockedError, it is open already; StorageError, it cannot be used or trusted; UsageError,
    a bad setting.
    """
    known = {field.name for field in fields(Config)} - {"data_dir"}
    for name in settings:
        if name not in known:
            raise UsageError(f"{name} is no setting{bracketed(name, known)}: see docs/settings.md for those there are")
    given: dict[str, Any] = {"max_record_bytes": _RECORD_BYTES, **settings}
    config = replace(Config(), data_dir=arguments.path(path), **given)
    if config.cold_dir:
        config = replace(config, cold_dir=os.path.abspath(config.cold_dir))
    arguments.flag("rebuild", rebuild)
    arguments.flag("read_only", read_only)
    if rebuild and read_only:
        raise UsageError("rebuild and read_only are given: a rebuild writes, so leave out one of them")
    if not read_only:
        check_places(config)
    if rebuild:
        rebuild_if_damaged(config)
    return ReadOnlyLog(config) if read_only else Log(config)
