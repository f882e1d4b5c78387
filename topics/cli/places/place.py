"""Which log a command works on, and how it is opened."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import topics
from topics.cli.environment import OF_COMMANDS, settled
from topics.cli.exit_codes import options_named
from topics.cli.places.contexts import contexts_path, read_contexts
from topics.common.values.near_names import suggestion
from topics.config import Config
from topics.errors import RequestError, TopicsError, UsageError

if TYPE_CHECKING:
    from topics.common.any_log import AnyLog

DEFAULT_URL = "http://localhost:4000"
URL, KEY, CONTEXT = OF_COMMANDS
_LIKENESS = 0.7


class Asked(NamedTuple):
    """The options about the place, as given; None for those that were left out."""

    url: str | None = None
    context: str | None = None
    data_dir: str | None = None
    key_file: str | None = None


class LogPlace(NamedTuple):
    """A server with its key, or the data directory of a stopped one."""

    url: str = ""
    key: str = ""
    data_dir: str = ""
    named: str = "--url"
    """The option or variable that the URL is from, for errors."""

    @property
    def is_directory(self) -> bool:
        return bool(self.data_dir)

    def needs_server(self, command: str, why: str) -> None:
        """Raises: UsageError if this is a directory."""
        if self.is_directory:
            raise UsageError(
                f"`topics {command}` needs a running server, because {why}: "
                f"start `topics serve --data-dir {self.data_dir}`, and leave out --data-dir"
            )


def place_of(asked: Asked, env: Mapping[str, str]) -> LogPlace:
    """Return the place that options, then variables, then the current context name.

    Raises: UsageError for two places at once, an empty one, or a context that does not exist.
    """
    given = {f"--{name.replace('_', '-')}": value for name, value in asked._asdict().items() if value is not None}
    for option, value in given.items():
        if not value.strip():
            raise UsageError(f"{option} is empty: give it a value, or leave it out")
    places = [option for option in given if option != "--key-file"]
    if len(places) > 1:
        raise UsageError(f"{' and '.join(places)} name two places: leave out one of them")
    if asked.data_dir is not None:
        if asked.key_file is not None:
            raise UsageError("--key-file is a server's: leave it out with --data-dir")
        return LogPlace(data_dir=asked.data_dir)
    if asked.url is not None:
        return LogPlace(asked.url, key_of(asked.key_file, env))
    name = asked.context if asked.context is not None else "" if env.get(URL) else env.get(CONTEXT, "")
    if not name and env.get(URL):
        return LogPlace(env[URL], key_of(asked.key_file, env), named=URL)
    contexts = read_contexts(contexts_path(env))
    name = name or contexts.current
    if not name:
        return LogPlace(DEFAULT_URL, key_of(asked.key_file, env))
    context = contexts.of(name)
    # A key of the environment is another server's, unless this one has none.
    return LogPlace(context.url, key_of(asked.key_file or context.key_file, env), named=f"context {name}")


def key_of(key_file: str | None, env: Mapping[str, str]) -> str:
    """Return the key in a file, without the blanks around it; without a file TOPICS_KEY.

    Raises: UsageError for a file without a key, or a path where none can be read; OSError.
    """
    if not key_file:
        return env.get(KEY, "").strip()
    try:
        key = Path(os.path.expanduser(key_file)).read_text("utf-8").strip()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError) as error:
        remedy = "name the file that the key was written into"
        raise UsageError(f"key file {key_file} cannot be read: {error.strerror}: {remedy}") from error
    except UnicodeDecodeError:
        raise UsageError(f"key file {key_file} is no text: name the file that the key was written into") from None
    if not key:
        raise UsageError(f"key file {key_file} is empty: write the key into it")
    return key


@contextmanager
def opened(
    place: LogPlace, env: Mapping[str, str], *, writes: bool, timeout: float, makes: bool = True
) -> Iterator[AnyLog]:
    """Yield the log of a place, and close it.

    writes: whether the command changes anything; without, a directory stays as it is. timeout:
    seconds to ask a server that does not answer. makes: whether a command that writes makes a log
    in a directory that has none.
    """
    if not place.is_directory:
        with options_named({"url": place.named, "key": f"--key-file or {KEY}", "timeout": "--timeout"}):
            connected = topics.connect(place.url, key=place.key or None, timeout=timeout)
        with connected as client:
            try:
                yield client
            except RequestError as error:
                raise _with_remedy(error, client, place.key) from None
        return
    _check_directory(place.data_dir, makes=writes and makes)
    _check_one_core(place.data_dir)
    settings, origins = _settings(env)
    if writes:
        _check_no_hole(place.data_dir, replace(Config(), **settings))
    with options_named(origins):
        opening = topics.open(place.data_dir, read_only=not writes, **settings)
    with opening as log:
        try:
            yield log
        except RequestError as error:
            raise _with_remedy(error, log, "") from None


@contextmanager
def stopped(place: LogPlace, env: Mapping[str, str]) -> Iterator[Config]:
    """Yield the settings for a command that works on the data directory of a stopped server."""
    _check_directory(place.data_dir, makes=False)
    settings, origins = _settings(env)
    with options_named(origins):
        config = replace(Config(), data_dir=place.data_dir, **settings)
        _check_no_hole(place.data_dir, config)
        yield config


def _check_directory(path: str, *, makes: bool) -> None:
    """makes: whether the command makes a log where there is none. Raises: UsageError."""
    if not os.path.isdir(path):
        raise UsageError(f"--data-dir is {path!r}: name a directory that exists")
    if not os.access(path, os.R_OK | os.X_OK):
        raise UsageError(f"--data-dir is {path!r}, which this user may not read: run this as the user of the server")
    if not makes and not os.path.exists(os.path.join(path, "topics.json")):
        raise UsageError(f"--data-dir is {path!r}, which has no log: name the data directory of a server")


def _check_one_core(path: str) -> None:
    """Raises: UsageError, it is a backup of several cores, which no command reads as it is."""
    from topics.store.backup.backup_manifest import MANIFEST_NAME  # noqa: PLC0415 - as in `_check_no_hole`
    from topics.store.disk.directory_format import SLOT_MAP_NAME  # noqa: PLC0415

    if all(os.path.exists(os.path.join(path, name)) for name in (MANIFEST_NAME, SLOT_MAP_NAME)):
        raise UsageError(
            f"--data-dir is {path!r}, a backup of several cores: make a data directory of it by `topics restore --from "
            f"{path} --to NEW`, and serve that"
        )


def _check_no_hole(data_dir: str, config: Config) -> None:
    """Raises: UsageError, the log has an archive, which would get a hole by these settings."""
    from topics.loop.choose import open_loop  # noqa: PLC0415 - `topics --help` should not load the engine
    from topics.store.archive.archive_note import TIMELINE_NAME, continued_timeline  # noqa: PLC0415
    from topics.store.archive.joint_timeline import JOINT_NAME  # noqa: PLC0415
    from topics.store.cores.core_directories import core_directory  # noqa: PLC0415
    from topics.store.segments.snapshot_files import sound_snapshot  # noqa: PLC0415

    log, named = data_dir, os.path.join(data_dir, TIMELINE_NAME)
    if os.path.exists(joint := os.path.join(data_dir, JOINT_NAME)):
        log, named = core_directory(data_dir, 0), joint
    with open_loop(Config()) as loop:
        timeline = loop.run_task(continued_timeline(loop.files, log))
        found = loop.run_task(sound_snapshot(loop.files, log)) if timeline else None
    if timeline and not config.archive_dir:
        raise UsageError(
            f"--data-dir is {data_dir!r}, whose log has an archive ({timeline}), and TOPICS_ARCHIVE_DIR is not set, so "
            f"the archive would get a hole: set it as the server has it, or remove {named} if there is no archive any "
            "more"
        )
    if found is not None and found.store.shards != max(1, config.wal_shards):
        raise UsageError(
            f"--data-dir is {data_dir!r}, whose log has {found.store.shards} shards, and TOPICS_WAL_SHARDS is "
            f"{config.wal_shards}, so its archive ({timeline}) would get a hole: set it as the server has it"
        )


def _with_remedy(error: RequestError, log: AnyLog, key: str) -> RequestError:
    """Return an error with what a person may do about it here."""
    if error.code == "unauthorized":
        what = "the server does not know this key" if key else "the server wants a key, and none was sent"
        return RequestError(error.code, f"{what}: set TOPICS_KEY, or use --key-file", error.detail)
    name = (error.detail or {}).get("topic")
    if error.code != "topic_not_found" or not isinstance(name, str):
        return error
    names: list[str] = []
    with suppress(TopicsError):
        names = [state.name for state in log.topics(name[:1])]
    remedy = suggestion(name, names, "create it first", _LIKENESS)
    return RequestError(error.code, f"topic {name!r} does not exist: {remedy} (`topics ls` lists all)", error.detail)


def _settings(env: Mapping[str, str]) -> tuple[Any, Mapping[str, str]]:
    """Return the server's settings of the environment, which a directory may need (cold_dir).

    Return also what each is called there.
    """
    (config, origins), default = settled(env), Config()
    changed = {field.name: getattr(config, field.name) for field in fields(Config)}
    given = {name: value for name, value in changed.items() if value != getattr(default, name) and name != "data_dir"}
    return given, origins
