"""`topics copy-backup`: backups and archives from a directory to a bucket, and back."""

from __future__ import annotations

import asyncio
import os
import random
from typing import Annotated

import typer

from topics.cli.backups.bucket_calls import OF_WRITES, check_no_effect, run_to_end, with_bucket
from topics.cli.backups.given_paths import check_directory_path, check_given
from topics.cli.exit_codes import options_named, report
from topics.cli.output.printer import bytes_text, count_text
from topics.common.values.time_texts import time_text
from topics.embedded.bucket.bucket import BucketOptions, is_bucket_url, open_bucket
from topics.embedded.bucket.bucket_copy import look_at_copy, missing_parts
from topics.embedded.bucket.bucket_logs import check_may_join
from topics.embedded.bucket.copied_timelines import end_ms
from topics.embedded.bucket.fetch_copy import fetch
from topics.embedded.bucket.send_copy import CopySender, SentCopy
from topics.errors import CorruptError, TopicsError, UsageError
from topics.store.backup.free_places import COPY, taken
from topics.store.disk.disk_space import room_at

_RETRY_MAX_S = 300.0


@with_bucket
def copy_backup(
    source: Annotated[
        str, typer.Argument(metavar="FROM", help="A backup, a directory of them or an archive; or s3://BUCKET/PREFIX.")
    ],
    to: Annotated[str, typer.Argument(metavar="TO", help="s3://BUCKET/PREFIX; or a directory, for one from a bucket.")],
    options: BucketOptions,
    every: Annotated[
        float | None, typer.Option(min=0.1, max=604_800, help="Continue, and copy what is new every so many seconds.")
    ] = None,
    reread: Annotated[
        bool, typer.Option("--reread", help="Read all of it back, and send again what the bucket has damaged.")
    ] = False,
) -> None:
    """Copy a backup or an archive to a bucket, and later what is new; or back from there."""
    check_given("FROM", source)
    check_given("TO", to)
    from_bucket, to_bucket = is_bucket_url("FROM", source), is_bucket_url("TO", to)
    if from_bucket == to_bucket:
        remedy = "copy to a directory first" if to_bucket else "use `cp -a`, or s3://BUCKET/PREFIX for one of them"
        raise UsageError(f"{source} and {to} are both {'buckets' if to_bucket else 'directories'}: {remedy}")
    if from_bucket and (every is not None or reread):
        raise UsageError("--every and --reread are for a copy to a bucket: leave them out")
    if from_bucket:
        check_no_effect(options, f"with FROM {source}", [OF_WRITES])
    check_directory_path(*(("FROM", source) if to_bucket else ("TO", to)))
    if from_bucket:
        _check_apart(os.path.realpath(to))
    if to_bucket:
        with options_named({"source": "FROM"}):
            run_to_end(_send(source, to, options, every, rereads=reread))
    else:
        run_to_end(_fetch(source, to, options))


def _check_apart(to: str) -> None:
    """Raises: UsageError, the copy would be a part of another directory, or mixed with one."""
    if found := taken(to, COPY):
        raise UsageError(f"TO is {found}: name a path elsewhere")


def send_once(source: str, url: str, options: BucketOptions) -> None:
    """Copy a directory to a bucket, and print what was copied."""
    run_to_end(_send(source, url, options, None, rereads=False))


async def _send(source: str, url: str, options: BucketOptions, every_s: float | None, *, rereads: bool) -> None:
    sender = CopySender(open_bucket(url, options), source, options, rereads=rereads)
    _say(url, await sender.step())
    pause_s, fails = every_s, False
    while every_s is not None and pause_s is not None:
        await asyncio.sleep(pause_s * random.uniform(0.8, 1))
        try:
            sent = await sender.step()
        except (TopicsError, OSError) as error:
            pause_s, fails = min(2 * pause_s, max(_RETRY_MAX_S, every_s)), True
            report(error, f"tried again in {pause_s:.0f} s")
            continue
        if fails or sent.backups:
            _say(url, sent)
        pause_s, fails = every_s, False


def _say(url: str, sent: SentCopy) -> None:
    if not sent.upto_ms and not sent.objects:
        print(f"{url}: nothing is archived yet, so nothing was sent", flush=True)
        return
    what = f"{count_text(sent.backups, 'backup')} new, " if sent.backups else ""
    print(
        f"{url}: {what}{bytes_text(sent.bytes)} in {count_text(sent.objects, 'object')} sent; it leads to "
        f"{_newest(sent.upto_ms)}",
        flush=True,
    )


def _newest(upto_ms: int) -> str:
    return time_text(upto_ms) if upto_ms else "no time yet: not all cores have archived"


async def _fetch(url: str, to: str, options: BucketOptions) -> None:
    copy = await look_at_copy(url, options)
    with options_named({"to": "TO"}):
        await check_may_join(copy.bucket, copy.backups, copy.logs, to)
    with room_at(to, "make room there, and call this again: it continues"):
        os.makedirs(to, exist_ok=True)
        got = await fetch(copy, to.rstrip("/") or "/", options)
    print(
        f"{to}: {bytes_text(got.bytes)} read from {url}, which leads to {_newest(end_ms(copy))}; "
        f"`topics verify {to}` compares its records"
    )
    if missing := missing_parts(copy):
        raise CorruptError("; ".join(missing))
