"""Restores a copy in a bucket: what it needs is read to a directory beside the new one first."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import NamedTuple

from topics.common.values.backup_result import SKIPPED_SEQS
from topics.embedded.bucket.bucket import BucketOptions
from topics.embedded.bucket.bucket_copy import look_at_copy, missing_parts, unlogged_parts
from topics.embedded.bucket.fetch_copy import CopyFetch
from topics.embedded.bucket.needed_cores import is_of_cores, needed_of_cores, needed_up_to_record
from topics.embedded.bucket.needed_parts import WantedPoint, needed_parts, rest_of
from topics.embedded.restore_call import FetchRest, Restored, find_record_in, find_time_in, restore_copy
from topics.errors import DiskFullError, LockedError, StorageError, UsageError
from topics.store.disk.disk_space import room_at

FETCHED = ".fetched"
"""Suffix of the directory in which a restore puts what it reads from a bucket."""


class FetchedCopy(NamedTuple):
    """The part of a bucket that a restore needs, in a directory beside the new one."""

    path: str
    """The directory of what is restored."""
    root: str
    url: str
    """That of which `root` is a copy."""
    damage: str
    """The parts that the bucket has not, one sentence each."""
    fetch_rest: FetchRest
    """Reads the log of a timeline, given by its path here, of which only the first base is."""
    at_ms: int | None
    """The time that it is restored to; None: its end, or a record."""
    upto: tuple[str, int] | None

    def in_bucket(self, text: str) -> str:
        """Return a text with the places in the bucket for those in the directory."""
        return text.replace(self.root, self.url)


class _BucketReads:
    """Reads of a restore from a bucket, to a directory beside the new one."""

    def __init__(self, url: str, directory: str, options: BucketOptions) -> None:
        self.copy = asyncio.run(look_at_copy(url, options, beside=True))
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

    def read(self, at_ms: int | None, upto: tuple[str, int] | None) -> FetchedCopy:
        """Read the parts that a restore needs at first."""
        if is_of_cores(self.copy):
            return self._read_cores(at_ms, upto)
        wanted = WantedPoint(at_ms)
        if upto is not None:
            self._make()
            wanted = WantedPoint(find=partial(find_record_in, upto=upto, bring=self._bring), root=self.root)
        path, needed = needed_parts(self.copy, wanted)
        if upto is None:
            self._make()
        asyncio.run(self._fetch.fetch(needed.parts))
        return self._fetched(path, [], at_ms, upto)

    def _read_cores(self, at_ms: int | None, upto: tuple[str, int] | None) -> FetchedCopy:
        """Read the parts that a restore of several cores needs at first."""
        if upto is None:
            needed = needed_of_cores(self.copy, at_ms)
            self._make()
        else:
            self._make()
            needed = needed_up_to_record(self.copy, self.root, partial(find_time_in, upto=upto, bring=self._bring))
        asyncio.run(self._fetch.fetch(needed.copy.parts))
        return self._fetched(needed.path, needed.left_out, needed.at_ms, None)

    def _fetched(self, path: str, left_out: list[str], at_ms: int | None, upto: tuple[str, int] | None) -> FetchedCopy:
        """path: of what is restored, in the copy."""
        damage = "; ".join(left_out + missing_parts(self.copy) + unlogged_parts(self.copy))
        place = f"{self.root}/{path}".rstrip("/")
        return FetchedCopy(place, self.root, self.copy.bucket.url, damage, self._read_rest, at_ms, upto)

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
            asyncio.run(self._fetch.fetch_after(os.path.relpath(base, self.root)))

    def _read_rest(self, path: str) -> None:
        rest = rest_of(self.copy, os.path.relpath(path, self.root))
        os.unlink(f"{path}/{rest.logs[0].kind}")  # a timeline that has it is there as a whole
        with self._room():
            asyncio.run(self._fetch.fetch(rest.parts))


@contextmanager
def fetched(
    url: str, to: str, options: BucketOptions, *, at_ms: int | None = None, upto: tuple[str, int] | None = None
) -> Iterator[FetchedCopy]:
    """Yield a directory with what a restore of a bucket needs, beside `to`; removed in the end.

    An error about a file there names its place in the bucket.
    """
    target = to.rstrip("/") or "/"
    if os.path.lexists(target):
        raise UsageError(
            f"is {target!r}, which exists: restore to a path where nothing is, and move it there then", "to"
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
            yield reads.read(at_ms, upto)
    finally:
        reads.remove()


def restore_bucket(
    url: str,
    to: str,
    options: BucketOptions,
    *,
    at_ms: int | None = None,
    upto: tuple[str, int] | None = None,
    skipped_seqs: int = SKIPPED_SEQS,
) -> Restored:
    """Make a data directory of a copy in a bucket, as `topics.restore` does of a directory.

    Raises: as that; FailedBucketError, SlowBucketError. Nothing is at `to` then.
    """
    with fetched(url, to, options, at_ms=at_ms, upto=upto) as copy:
        rest = copy.fetch_rest
        made = restore_copy(copy.path, to, at=copy.at_ms, upto=copy.upto, skipped_seqs=skipped_seqs, fetch_rest=rest)
    damage = "; ".join(filter(None, [copy.damage, copy.in_bucket(made.damage)]))
    return made._replace(backup=url, damage=damage)
