"""`topics backup`, `restore`, `verify`: copies of one instant, and directories made of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from topics.cli.backups.bucket_calls import (
    check_for_backup,
    check_no_effect,
    ended_at_once,
    verified_bucket,
    with_bucket,
    with_bucket_to_read,
)
from topics.cli.backups.copy_command import send_once
from topics.cli.backups.given_paths import check_directory_path, check_given, check_new_path
from topics.cli.commands.beginning import time_of
from topics.cli.commands.cli_call import CliCall, on_topics
from topics.cli.exit_codes import looking, options_named, undone_if_terminated
from topics.cli.output.printer import bytes_text, count_text, left_out_text
from topics.cli.places.place import stopped
from topics.clock import SystemClock
from topics.common.values.arguments import is_decimal
from topics.common.values.backup_result import SKIPPED_SEQS, SKIPPED_SEQS_MAX, UNWRITTEN, BackupResult
from topics.common.values.time_texts import LATEST_MS, time_text
from topics.embedded.bucket.bucket import BucketOptions, is_bucket_url
from topics.embedded.bucket.copied_parts import log_id_at
from topics.errors import RequestError, StorageError, UsageError
from topics.store.backup.backup_manifest import is_backup_name

Backup = Annotated[
    str,
    typer.Option("--from", help="A backup, a directory of them (the newest), an archive; or s3://BUCKET/PREFIX."),
]
_OPTIONS = {"backup": "--from", "to": "--to", "at": "--at", "upto": "--seq", "skipped_seqs": "--skip"}
"""The options of `restore`, by the arguments of the library."""
BACKUPS = ".backups"
"""Suffix of the directory, beside a data directory, in which its backups for a bucket are made."""


@on_topics
@with_bucket
def backup(
    call: CliCall,
    options: BucketOptions,
    to: Annotated[
        str | None,
        typer.Option(help="The server's TOPICS_BACKUP_DIR, or a path below it; or s3://BUCKET/PREFIX."),
    ] = None,
    staging: Annotated[
        str | None,
        typer.Option(help="For a bucket: where it is made first, as --to without one. [default: TOPICS_BACKUP_DIR]"),
    ] = None,
) -> None:
    """Make a backup of all topics, of one instant, beside what the server does."""
    for option, path in (("--to", to), ("--staging", staging)):
        if path is not None:
            check_given(option, path)
    url = to if to is not None and is_bucket_url("--to", to) else None
    if url is None and staging is not None:
        raise UsageError("--staging is for a backup to a bucket: leave it out, or give --to s3://BUCKET/PREFIX")
    if url is None:
        check_no_effect(options, "on a backup to a directory")
        if to is not None and call.place.is_directory:
            check_directory_path("--to", to)
    else:
        directory = call.place.data_dir.rstrip("/") if call.place.is_directory else ""
        check_for_backup(url, options, directory)
        to = staging or (f"{directory}{BACKUPS}" if directory else None)
    option = "--to" if url is None else "--staging"
    made = _made(call, to, option)
    shared = f", {count_text(made.linked_files, 'file')} shared with the backup before" if made.linked_files else ""
    call.printer.said(
        made._asdict(),
        f"{made.path}: {bytes_text(made.bytes)} in {count_text(made.files, 'file')} of {time_text(made.taken_ms)}, "
        f"{bytes_text(made.copied_bytes)} copied{shared}",
    )
    if url is None:
        return
    if not os.path.isdir(made.path):
        raise UsageError(
            f"{made.path} is on the machine of the server: run `topics copy-backup {made.path} {url}` there, or this "
            "command"
        )
    call.printer.flush()
    send_once(made.path, url, options)


def _made(call: CliCall, to: str | None, option: str) -> BackupResult:
    """Make a backup below `to`, which the option names; None: below the one of the settings."""
    if call.place.is_directory:
        from topics.embedded.stopped_cores import backed_up_cores  # noqa: PLC0415 - help should not load the engine

        with stopped(call.place, os.environ) as config, _named(option, to):
            if (made := backed_up_cores(config, to)) is not None:
                return made
    with call.log(writes=True, makes=False) as log, _named(option, to):
        return log.backup(to)


@contextmanager
def _named(option: str, to: str | None) -> Iterator[None]:
    """Have an error about the directory for backups name the option that it is from."""
    try:
        with options_named({"to": option}):
            yield
    except RequestError as error:
        if to is None or error.code != "invalid_request":
            raise
        said = error.message.removeprefix("to ")  # the server names the field
        said = f"{option} {said}" if said != error.message else f"{option} is {to!r}: {said}"
        raise RequestError(error.code, said, error.detail) from None
    except UsageError as error:
        if to is None:
            raise UsageError("no directory for backups is named: give --to, or set TOPICS_BACKUP_DIR") from None
        raise error if error.argument else UsageError(f"{option} is {to!r}: {error}") from None
    except StorageError as error:
        if to is None or not str(error).startswith(UNWRITTEN):
            raise
        raise StorageError(f"{option} is {to!r}: {error}") from None


@with_bucket_to_read
def restore(  # noqa: PLR0917 - options of a command
    source: Backup,
    to: Annotated[str, typer.Option(help="The new data directory: a path where nothing is.")],
    options: BucketOptions,
    skip: Annotated[
        int,
        typer.Option(min=1, max=SKIPPED_SEQS_MAX, help="Seqs that each topic leaves out, for those since the backup."),
    ] = SKIPPED_SEQS,
    at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Of an archive: the time to restore. Default: its end."),
    ] = None,
    seq: Annotated[
        str | None,
        typer.Option(metavar="TOPIC=N", help="Of an archive: the last record to restore."),
    ] = None,
) -> None:
    """Make a data directory of a backup or an archive, and verify every checksum on the way."""
    import topics  # noqa: PLC0415 - `topics --help` should not load the engine
    from topics.embedded.bucket.restore_bucket import restore_bucket  # noqa: PLC0415 - as above
    from topics.embedded.restore_call import unfinished_restores  # noqa: PLC0415 - as above

    if at is not None and seq is not None:
        raise UsageError("--at and --seq name two ends: leave out one of them")
    at_ms = None if at is None else _time(at)
    upto = None if seq is None else _record(seq)
    is_bucket = is_bucket_url("--from", source)
    if not is_bucket:
        check_directory_path("--from", source)
        check_no_effect(options, f"with --from {source!r}")
    check_new_path("--to", to)
    with options_named(_OPTIONS), undone_if_terminated():
        if is_bucket:
            with ended_at_once():
                made = restore_bucket(source, to, options, at_ms=at_ms, upto=upto, skipped_seqs=skip)
        else:
            made = topics.restore(source, to, at=at_ms, upto=upto, skipped_seqs=skip)
    print(
        f"{made.path}: {count_text(made.topics, 'topic')}, {count_text(made.records, 'record')} of "
        f"{time_text(made.taken_ms)}, from {made.backup}; "
        f"{left_out_text(made.skipped_seqs, 'archive' if made.archived_ms else 'backup')}"
    )
    print("if the server has TOPICS_COLD_DIR: name an empty directory there, because the old one has the old segments")
    _say_unnamed(source, made.backup)
    if made.archived_ms > made.taken_ms:
        print(f"left out: what the archive has from then to {time_text(made.archived_ms)}")
    if made.damage:
        print(f"damage that the restore did without: {made.damage}")
    for left in unfinished_restores(to):
        print(f"{left} is there: remove it if no restore to this path runs, since one that was killed has left it")


def _time(text: str) -> int:
    """Return the time of `--at`, Unix ms. Raises: UsageError."""
    ms = time_of(text, SystemClock(), "--at")
    if not 0 < ms <= LATEST_MS:  # an age before 1970 becomes 0
        raise UsageError(
            f"--at is {text[:200]!r}, which is not after the begin of 1970 and before 10000: name a time that the "
            "archive has"
        )
    return ms


def _record(text: str) -> tuple[str, int]:
    """Return the topic and the seq of `--seq`. Raises: UsageError."""
    topic, _, seq = text.rpartition("=")
    if not topic or not is_decimal(seq) or not 1 <= int(seq) < 1 << 64:
        raise UsageError(f"--seq is {text[:200]!r}: use TOPIC=N, such as orders=17, with N from 1 to {(1 << 64) - 1}")
    return topic, int(seq)


@looking()
@with_bucket_to_read
def verify(
    backup: Annotated[
        str,
        typer.Argument(metavar="BACKUP", help="A backup, the directory of them, or an archive; or s3://BUCKET/PREFIX."),
    ],
    options: BucketOptions,
) -> None:
    """Compare every checksum of a backup or an archive.

    Exit code 0: sound; 1: damage found; 2: the comparison could not run.
    """
    import topics  # noqa: PLC0415 - `topics --help` should not load the engine

    if is_bucket_url("BACKUP", backup):
        _verify_bucket(backup, options)
        return
    check_directory_path("BACKUP", backup)
    check_no_effect(options, f"on {backup!r}")
    with options_named({"backup": "BACKUP"}):
        found = topics.verify_backup(backup)
    for finding in found.findings:
        print(f"damage: {finding}")
    if found.sound:
        for timeline, from_ms, to_ms in found.ranges:
            print(f"{timeline}: can be restored as of {time_text(from_ms)} to {time_text(to_ms)}")
    verdict = "all sound" if found.sound else f"{len(found.findings)} damaged: restore another backup"
    records = f"{count_text(found.records, 'record')} of"
    if found.log_records is not None:
        in_log = count_text(found.log_records, "record")
        records = f"{count_text(found.records, 'record')} in the newest base and {in_log} in the log, up to"
    print(
        f"{found.path}: {records} {time_text(found.taken_ms)}, "
        f"{bytes_text(found.bytes)} in {count_text(found.files, 'file')}; {verdict}"
    )
    if found.sound:
        _say_unnamed(backup, found.path)
    raise typer.Exit(0 if found.sound else 1)


def _say_unnamed(source: str, backup: str) -> None:
    """Say of the newest backup of several in a directory that it may be of any log, if it may.

    Those of an older build have no id of their log, so the logs in a directory are not compared.
    """
    above, name = os.path.split(backup)
    if os.path.realpath(source) != os.path.realpath(above) or len([*filter(is_backup_name, os.listdir(above))]) < 2:
        return
    if not log_id_at(backup):
        print(
            f"{name} does not state its log, since an older version made it: if {above} has the backups of several "
            f"logs, name the one that you mean (`topics ls --data-dir {backup}` lists its topics)"
        )


def _verify_bucket(url: str, options: BucketOptions) -> None:
    """Compare all bytes of a copy in a bucket with its manifests."""
    found = verified_bucket(url, options)
    for finding in found.findings:
        print(f"damage: {finding}")
    for sentence in found.incomplete:
        print(f"incomplete: {sentence}")
    verdict = "all sound"
    if found.findings:
        verdict = f"{len(found.findings)} damaged: `topics copy-backup --reread` sends them again from the directory"
    upto = f"up to {time_text(found.upto_ms)}" if found.upto_ms else "no time yet"
    print(
        f"{url}: {count_text(found.backups, 'backup')}, {upto}, {bytes_text(found.bytes)} in "
        f"{count_text(found.objects, 'object')}; {verdict}"
    )
    raise typer.Exit(1 if found.findings else 0)
