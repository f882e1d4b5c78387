"""The options about buckets that commands share, and the calls that they make there."""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from topics.cli.exit_codes import INTERRUPTED
from topics.embedded.bucket.bucket import BucketOptions, open_bucket
from topics.embedded.bucket.bucket_copy import look_at_copy
from topics.embedded.bucket.bucket_logs import check_takes_backup
from topics.embedded.bucket.copied_parts import log_id_at
from topics.embedded.bucket.verify_copy import VerifiedCopy, verify_copy
from topics.errors import UsageError
from topics.store.layouts.directory_names import MARKER_NAME

R = TypeVar("R")

_SECONDS_MAX = 604_800
"""The longest time in an option: a week."""
_DEFAULTS = BucketOptions()
_UNNAMED = "a log that has no id yet"
"""Its first backup gives it a new one."""
_OPTIONS: dict[str, Any] = {
    "endpoint": typer.Option(..., "--endpoint", help="URL of the object store; else AWS_ENDPOINT_URL, or AWS itself."),
    "region": typer.Option(..., "--region", help="Region of the bucket; else AWS_REGION."),
    "timeout_s": typer.Option(
        ..., "--request-timeout", min=0.1, max=_SECONDS_MAX, help="Seconds that a request to the bucket may take."
    ),
    "retries": typer.Option(
        ...,
        "--retries",
        min=0,
        max=1_000_000,
        help="Repetitions of a request that failed, after longer and longer pauses.",
    ),
    "retry_for_s": typer.Option(
        ..., "--retry-for", min=0, max=_SECONDS_MAX, help="Seconds after which a request is not repeated any more."
    ),
    "parallel": typer.Option(..., "--parallel", min=1, max=256, help="Requests to the bucket at the same time."),
    "part_bytes": typer.Option(..., "--part-bytes", min=4096, max=1 << 30, help="Bytes of an object, at most."),
}
"""The option of each field of BucketOptions."""
OF_WRITES = "part_bytes"
"""The field that has no effect where a bucket is read."""


def with_bucket(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options about buckets; it gets them as `options`, a BucketOptions."""
    return _with_options(function, list(_OPTIONS))


def with_bucket_to_read(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command that only reads a bucket the options that have an effect on that."""
    return _with_options(function, [name for name in _OPTIONS if name != OF_WRITES])


def check_no_effect(options: BucketOptions, where: str, names: Iterable[str] = _OPTIONS) -> None:
    """Check that no option was given that has no effect. where: such as "with --from 'a'".

    Raises: UsageError.
    """
    for name in names:
        if getattr(options, name) != getattr(_DEFAULTS, name):
            (option,) = _OPTIONS[name].param_decls
            raise UsageError(f"{option} has no effect {where}: leave it out")


def _with_options(function: Callable[..., None], names: list[str]) -> Callable[..., None]:
    signature = inspect.signature(function, eval_str=True)
    mine = [each for each in signature.parameters.values() if each.name != "options"]
    kinds = get_type_hints(BucketOptions)
    added = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=getattr(_DEFAULTS, name),
            annotation=Annotated[kinds[name], _OPTIONS[name]],
        )
        for name in names
    ]

    @wraps(function, assigned=("__module__", "__name__", "__qualname__", "__doc__"))
    def run(*args: Any, **given: Any) -> None:
        options = BucketOptions(**{name: given.pop(name) for name in names})
        function(*args, options=options, **given)

    parameters = [*mine, *added]
    vars(run).update(__signature__=signature.replace(parameters=parameters))
    run.__annotations__.clear()
    run.__annotations__.update({each.name: each.annotation for each in parameters})
    return run


@contextmanager
def ended_at_once() -> Iterator[None]:
    """Have an interrupt of the block end the process, which may be asking a bucket.

    Threads that still wait for the bucket would abort it later, at an end in order.
    """
    try:
        yield
    except KeyboardInterrupt:
        sys.stdout.flush()
        os._exit(INTERRUPTED)


def run_to_end(work: Coroutine[Any, Any, R]) -> R:
    """Return the result of calls to a bucket. An interrupt ends the process."""
    with ended_at_once():
        return asyncio.run(work)


def check_for_backup(url: str, options: BucketOptions, data_dir: str) -> None:
    """Ask a bucket, before a backup is made, whether it takes that: its faults come first, too.

    data_dir: of the log; "": of a server, whose id is known by its backup only.
    Raises: UsageError, the bucket has a copy of another log.
    """
    # That there is no log is said where it is opened.
    has_log = bool(data_dir) and os.path.lexists(f"{data_dir}/{MARKER_NAME}")
    log_id = (log_id_at(data_dir) or _UNNAMED) if has_log else ""
    run_to_end(check_takes_backup(open_bucket(url, options), log_id))


def verified_bucket(url: str, options: BucketOptions) -> VerifiedCopy:
    """Read a whole copy in a bucket."""

    async def run() -> VerifiedCopy:
        return await verify_copy(await look_at_copy(url, options), options)

    return run_to_end(run())
