"""The options about buckets that commands share, and the calls that they make there."""

from __future__ import annotations

import asyncio
import inspect
import os
import shutil
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial, wraps
from typing import Annotated, Any, NamedTuple, Protocol, TypeVar, get_type_hints

import typer

from topics.cli.backups.bucket import BucketOptions
from topics.cli.backups.fetch_copy import (
    CopyFetch,
    WantedPoint,
    look_at_copy,
    missing_parts,
    needed_parts,
    rest_of,
    unlogged_parts,
)
from topics.cli.backups.given_paths import room_at
from topics.cli.backups.verify_copy import VerifiedCopy, verify_copy
from topics.cli.exit_codes import INTERRUPTED
from topics.errors import DiskFullError, LockedError, StorageError, UsageError
from topics.store.archive.restore_point import RestorePoint
from topics.store.archive.timelines import Timeline

R = TypeVar("R")

FETCHED = ".fetched"
"""Suffix of the directory in which a restore puts what it reads from a bucket."""

_SECONDS_MAX = 604_800
"""The longest time in an option: a week."""
_DEFAULTS = BucketOptions()
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


def _nothing() -> None:
    pass


def run_to_end(work: Coroutine[Any, Any, R], undo: Callable[[], None] = _nothing) -> R:
    """Return the result of calls to a bucket. An interrupt ends the process, which may be asking.

    Threads that still wait for the bucket would abort it later, at an end in order.
    undo: called before.
    """
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        undo()
        sys.stdout.flush()
        os._exit(INTERRUPTED)


class FetchedCopy(NamedTuple):
    """The part of a bucket that a restore needs, in a directory beside the new one."""

    path: str
    """The directory of what is restored."""
    root: str
    url: str
    """That of which `root` is a copy."""
    damage: str = ""
    """The parts that the bucket has not, one sentence each."""
    fetch_rest: Callable[[str], None] | None = None
    """Reads the log of a timeline, given by its path here, of which only the first base is."""

    def in_bucket(self, text: str) -> str:
        """Return a text with the places in the bucket for those in the directory."""
        return text.replace(self.root, self.url) if self.root else text


class FindRecord(Protocol):
    """Returns the point of a record among timelines, such as `find_record_in`.

    bring: has a base, given by its path, and the log after it be there.
    """

    def __call__(self, timelines: list[Timeline], *, bring: Callable[[str], None]) -> RestorePoint: ...


class _BucketReads:
    """Reads of a restore from a bucket, to a directory beside the new one."""

    def __init__(self, url: str, directory: str, options: BucketOptions) -> None:
        self.copy = run_to_end(look_at_copy(url, options, beside=True))
        self.root = os.path.realpath(directory)
        self._directory = directory
        self._fetch = CopyFetch(self.copy, directory, options)
        self._is_made = False

    @contextmanager
    def named(self) -> Iterator[None]:
        """Have errors name places in the bucket for those here, and a full disk its remedy."""
        with self._room():
            try:
                yield
            except UsageError as error:
                raise UsageError(error.said.replace(self.root, self.copy.bucket.url), error.argument) from error
            except (DiskFullError, LockedError):  # of a place here
                raise
            except StorageError as error:
                raise type(error)(str(error).replace(self.root, self.copy.bucket.url)) from error

    def read(self, at_ms: int | None, find: FindRecord | None) -> FetchedCopy:
        """Read the parts that a restore needs at first."""
        wanted = WantedPoint(at_ms)
        if find is not None:
            self._make()
            wanted = WantedPoint(find=partial(find, bring=self._bring), root=self.root)
        path, needed = needed_parts(self.copy, wanted)
        if find is None:
            self._make()
        run_to_end(self._fetch.fetch(needed.parts), self.remove)
        damage = "; ".join(missing_parts(self.copy) + unlogged_parts(self.copy))
        return FetchedCopy(f"{self.root}/{path}".rstrip("/"), self.root, self.copy.bucket.url, damage, self._read_rest)

    def remove(self) -> None:
        """Remove the directory, if this has made it."""
        if self._is_made:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _make(self) -> None:
        try:
            os.makedirs(self._directory)
        except FileExistsError:  # it is another process's, and not removed
            remedy = "wait for that one, or restore to another path"
            raise LockedError(f"another restore has just begun in {self._directory}: {remedy}") from None
        self._is_made = True

    def _room(self) -> AbstractContextManager[None]:
        return room_at(self._directory, "make room there, or restore to another disk: it is needed twice")

    def _bring(self, base: str) -> None:
        with self._room():  # the loop that calls this has a sentence of its own for an OSError
            run_to_end(self._fetch.fetch_after(os.path.relpath(base, self.root)), self.remove)

    def _read_rest(self, path: str) -> None:
        rest = rest_of(self.copy, os.path.relpath(path, self.root))
        os.unlink(f"{path}/{rest.logs[0].kind}")  # a timeline that has it is there as a whole
        with self._room():
            run_to_end(self._fetch.fetch(rest.parts), self.remove)


@contextmanager
def fetched(
    url: str, to: str, options: BucketOptions, at_ms: int | None, find: FindRecord | None = None
) -> Iterator[FetchedCopy]:
    """Yield a directory with what a restore of a bucket needs, beside `to`; removed in the end.

    An error about a file there names its place in the bucket.
    find: for a restore up to a record.
    """
    target = to.rstrip("/") or "/"
    if os.path.lexists(target):
        raise UsageError(
            f"--to is {target!r}, which exists: restore to a path where nothing is, and move it there then"
        )
    directory = f"{target}{FETCHED}"
    if os.path.lexists(directory):
        raise UsageError(
            f"{directory} exists, and a restore from a bucket makes it anew: remove it if a restore that was killed "
            "has left it, or restore to another path"
        )
    reads = _BucketReads(url, directory, options)
    try:
        with reads.named():
            yield reads.read(at_ms, find)
    finally:
        reads.remove()


def verified_bucket(url: str, options: BucketOptions) -> VerifiedCopy:
    """Read a whole copy in a bucket."""

    async def run() -> VerifiedCopy:
        return await verify_copy(await look_at_copy(url, options), options)

    return run_to_end(run())
