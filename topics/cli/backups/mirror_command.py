"""`topics mirror`: a directory that follows a server."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import time
from collections.abc import Iterable
from functools import partial
from typing import Annotated

import typer

from topics.cli.backups.given_paths import check_directory_path
from topics.cli.backups.mirror_lock import MirrorPlace, check_free, check_mounted, locked_mirror
from topics.cli.backups.mirror_status import (
    MirrorStatus,
    last_status,
    read_status,
    status_json,
    status_metrics,
    status_text,
    write_status,
)
from topics.cli.commands.cli_call import KeyFile
from topics.cli.exit_codes import REFUSED, options_named, sentence
from topics.cli.places.place import key_of
from topics.client.archive_client import ArchiveClient
from topics.clock import SystemClock
from topics.common.values.archive_state import ArchiveState
from topics.config import Config
from topics.errors import RequestError, StorageError, TopicsError, UsageError
from topics.loop.choose import open_loop
from topics.loop.loop import Loop
from topics.store.archive.known_mirrors import NAME_CHARS_MAX
from topics.store.backup.backup_files import is_timeline_name
from topics.store.disk.disk_space import is_full
from topics.store.mirror.mirror import MirrorEnd, check_not_promoted
from topics.store.mirror.mirror_source import MissingPartError
from topics.store.mirror.server_mirror import ServerMirror

_LONGEST_PAUSE_S = 10.0
_DAY_MS = 86_400_000
_RETAIN_MS_MAX = 1 << 40

Directory = Annotated[str, typer.Option("--to", help="The directory of the mirror.")]


class _HttpServer:
    """A server whose archive a mirror reads."""

    def __init__(self, client: ArchiveClient) -> None:
        self.client = client
        self.has_key = client.has_key
        self.server_ms = self.answered_ms = 0

    def source_of(self, core: int) -> _HttpSource:
        return _HttpSource(self, core)


class _HttpSource:
    """The archive of a core as a mirror reads it. Its calls block the loop."""

    def __init__(self, server: _HttpServer, core: int) -> None:
        self._server = server
        self._core = core

    async def state(self, upto_ms: int) -> ArchiveState:
        found = self._server.client.state(upto_ms, self._core)
        self._server.server_ms, self._server.answered_ms = found.now_ms, SystemClock().now_ms()
        return found

    async def piece(self, timeline: str, path: str, offset: int, most: int) -> bytes:
        try:
            return self._server.client.piece(timeline, path, offset, most, self._core)
        except RequestError as error:
            if error.code == "not_found":
                raise MissingPartError(path) from None
            raise


def mirror(  # noqa: PLR0917 - typer makes options of them
    to: Directory,
    url: Annotated[str, typer.Argument(metavar="[URL]", help="The server, whose TOPICS_ARCHIVE_DIR is set.")] = "",
    status: Annotated[bool, typer.Option("--status", help="Print how late the mirror is, and end.")] = False,
    json: Annotated[bool, typer.Option("--json", help="With --status: print one JSON object.")] = False,
    metrics: Annotated[bool, typer.Option("--metrics", help="With --status: print metrics for Prometheus.")] = False,
    max_lag_ms: Annotated[int, typer.Option(min=0, help="With --status: exit code 1 beyond it; 0: never.")] = 0,
    timeline: Annotated[
        str | None, typer.Option(help="Follow this log of the server, instead of the one before.")
    ] = None,
    every_ms: Annotated[int, typer.Option(min=10, max=_DAY_MS, help="Pause between two steps.")] = 1000,
    retain_ms: Annotated[
        int, typer.Option(min=0, max=_RETAIN_MS_MAX, help="Keep so much of the past for `topics restore --at`.")
    ] = 0,
    name: Annotated[str | None, typer.Option(help="Name in the server's metrics, by default this machine's.")] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for the next bytes of an answer.")] = 10.0,
    key_file: KeyFile = None,
) -> None:
    """Follow a server: copy its topics to a directory as they grow, until this is stopped."""
    check_directory_path("--to", to)
    if status:
        given = ("URL", url or None), ("--timeline", timeline), ("--retain-ms", retain_ms), ("--name", name)
        _refuse_given(given, "with --status")
        if json and metrics:
            raise UsageError("--json and --metrics are two formats: leave out one of them")
        found = read_status(to)
        with open_loop(Config()) as loop:
            loop.run_task(check_not_promoted(loop, to))
        lag_ms = found.lag_ms(SystemClock().now_ms())
        in_format = status_json if json else status_metrics if metrics else partial(status_text, to)
        print(in_format(found, lag_ms))
        raise typer.Exit(REFUSED if not found.upto_ms or 0 < max_lag_ms < lag_ms else 0)
    _refuse_given((("--json", json), ("--metrics", metrics), ("--max-lag-ms", max_lag_ms)), "without --status")
    if not url:
        raise UsageError("no server is named: give its URL, as http://host:4000, or --status")
    if timeline is not None and not is_timeline_name(timeline):
        raise UsageError(f"--timeline is {timeline[:200]!r}: give the name that the mirror printed when it was refused")
    name = os.uname().nodename if name is None else _checked_name(name)
    if key_file is not None and not key_file.strip():
        raise UsageError("--key-file is empty: give it a value, or leave it out")
    key = key_of(key_file, os.environ) or None
    with options_named({"url": "URL", "attempt_timeout": "--timeout", "key": "--key-file or TOPICS_KEY"}):
        client = ArchiveClient(url, key, mirror=name, quiet_seconds=timeout)
    server = _HttpServer(client)
    check_mounted(to)
    to = check_free(to)
    with locked_mirror(to, "--to") as loop:
        follower = ServerMirror(loop, server.source_of, to, retain_ms=retain_ms)
        loop.run_task(follower.open(timeline or ""))
        with contextlib.suppress(KeyboardInterrupt):
            _follow(loop, follower, server, MirrorPlace(to), url=url, every_ms=every_ms)


def _checked_name(name: str) -> str:
    """Return the name that `--name` gives. Raises: UsageError."""
    if not name.strip():
        raise UsageError(f"--name is {name!r}: give a name, or leave it out for that of this machine")
    if len(name) > NAME_CHARS_MAX:
        raise UsageError(f"--name has {len(name)} characters: give one of at most {NAME_CHARS_MAX}")
    if not name.isprintable():
        raise UsageError(f"--name is {name!r}: use characters that can be printed")
    return name


def _refuse_given(options: Iterable[tuple[str, object]], where: str) -> None:
    """Raises: UsageError, an option has a value, and it has no effect."""
    for option, value in options:
        if value is not None and value is not False and value != 0:
            raise UsageError(f"{option} has no effect {where}: leave it out")


def _follow(
    loop: Loop, follower: ServerMirror, server: _HttpServer, place: MirrorPlace, *, url: str, every_ms: int
) -> None:
    said, failures, to = "", 0, place.path
    last = last_status(to)
    server_ms, answered_ms, copied_before = (last.server_ms, last.answered_ms, last.copied_bytes) if last else (0, 0, 0)
    while True:
        failed: Exception | None = None
        more = False
        try:
            place.check()
            more = loop.run_task(follower.step(every_ms))
            failures = 0
        except (TopicsError, OSError) as problem:
            failed, failures = problem, failures + 1
        end = follower.end
        error = _why_all(failed, end, url, to, has_key=server.has_key)
        if (failed is None and not end.waits_for and not end.failures) or (end.again_ms and server.answered_ms):
            server_ms, answered_ms = server.server_ms + end.again_ms, server.answered_ms
        now = MirrorStatus(
            url=url,
            timeline=end.timeline,
            upto_ms=end.upto_ms,
            server_ms=server_ms,
            answered_ms=answered_ms,
            waits_for=end.waits_for,
            error=error,
            left_bytes=end.left_bytes,
            copied_bytes=copied_before + end.copied_bytes,
            holes=len(end.holes),
        )
        with contextlib.suppress(OSError, StorageError):  # the next one is written again
            place.check()
            loop.run_task(write_status(loop, to, now))
        if failed is not None and not _may_pass(failed):
            raise StorageError(error) from failed  # the server has changed, not the call
        says = error or (f"waits for {end.waits_for}" if end.waits_for else f"{to} follows {url}")
        if says != said:
            print(f"topics: {says}", file=sys.stderr, flush=True)
            said = says
        if not more or failures:
            pause = min(every_ms / 1000 * 2 ** min(failures, 8), max(_LONGEST_PAUSE_S, every_ms / 1000))
            time.sleep(pause * (0.75 + random.random() / 2))  # many do not ask at once


def _may_pass(error: Exception) -> bool:
    """Return whether a step may succeed later, without a change here or at the server."""
    return not isinstance(error, UsageError | RequestError)


def _why_all(failed: Exception | None, end: MirrorEnd, url: str, to: str, *, has_key: bool) -> str:
    """Return the sentences for a step that failed, or of cores that did while others are copied."""
    of_cores = [(f"core {core}: ", error) for core, error in end.failures]
    if failed is not None and (not _may_pass(failed) or all(failed is not error for _, error in of_cores)):
        of_cores = [each for each in of_cores if each[1] is failed] or [("", failed)]
    whys = [f"{where}{_why(error, url, to, has_key=has_key)}" for where, error in of_cores]
    return "; ".join(whys)


def _why(error: Exception, url: str, to: str, *, has_key: bool) -> str:
    """Return the sentence for a step that failed."""
    if isinstance(error, RequestError):
        if error.code == "unauthorized":
            what = "does not know the key that was sent" if has_key else "wants a key, and none was sent"
            return f"{url} {what}: give one of its keys with --key-file or TOPICS_KEY"
        return f"{url} refuses: {error.message}"
    if isinstance(error, OSError) and is_full(error):
        return f"{sentence(error)}: {to} needs more room, and the mirror continues once it is there"
    return sentence(error)
