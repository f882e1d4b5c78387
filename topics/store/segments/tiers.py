"""The directories of segments: the data directory and, for older sealed ones, an optional cold one.

Both have the same layout (`topics/<id>/seg-<first>.data`). The snapshot states which one a segment
is in (`Segment.tier`); a copy in the other one is left over from an interrupted move.

    <data>/cold-directory     the id of the cold directory that belongs to this one
    <cold>/cold-directory     the same id: a directory that is not mounted, or is another data
                              directory's, is refused
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from topics.config import Config
from topics.errors import FormatError, StorageError
from topics.loop.loop import Loop
from topics.loop.ring import Ring
from topics.store.disk.data_directory import make_with_parents, refuse_unsafe, sync_parents
from topics.store.disk.whole_files import FileCalls, list_if_there, read_file, replace_file
from topics.store.layouts.directory_names import COLD, COLD_MARK_NAME, HOT
from topics.store.segments.data_files import Segment
from topics.store.segments.snapshot_files import sound_snapshot

_COLD_DIR = "cold_dir (TOPICS_COLD_DIR)"
"""The setting, as the library and the server have it."""


class Tiers(NamedTuple):
    """The directories of segments. cold: "" if there is no cold directory."""

    hot: str
    cold: str = ""

    @classmethod
    def of(cls, config: Config) -> Tiers:
        return cls(config.data_dir, config.cold_dir)

    def path(self, segment: Segment) -> str:
        """Return the path of the segment's data file."""
        return f"{self.cold if segment.tier == COLD else self.hot}/{segment.path}"

    def roots(self) -> Iterator[tuple[int, str]]:
        """Yield (tier, directory), the data directory first."""
        yield HOT, self.hot
        if self.cold:
            yield COLD, self.cold


class SegmentFile(NamedTuple):
    """The data file of a segment in a directory, whether the snapshot lists it or not."""

    tier: int
    root: str
    topic: str
    """The name of its topic's directory."""
    name: str

    @property
    def path(self) -> str:
        return f"topics/{self.topic}/{self.name}"

    @property
    def full_path(self) -> str:
        return f"{self.root}/{self.path}"


def segment_files(files: FileCalls, tiers: Tiers) -> Iterator[SegmentFile]:
    """Yield the data files of all segments there are, the data directory's first."""
    for tier, root in tiers.roots():
        for topic in list_if_there(files, f"{root}/topics"):
            for name in list_if_there(files, f"{root}/topics/{topic}"):
                if name.endswith(".data"):
                    yield SegmentFile(tier, root, topic, name)


class _Mark(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """The contents of a mark.

    An unknown name is damage: without `both` an empty mount would be marked.
    """

    id: str
    both: bool = False
    """In the data directory: the cold one was marked, so it is not one without a mark."""


async def claim_cold(loop: Loop, tiers: Tiers, *, listed: bool, is_frozen: bool = False) -> None:
    """Check that the cold directory is the data directory's own; create and mark a new one.

    listed: the snapshot lists segments there. is_frozen: check only.
    Raises: StorageError with the sentence to print; OSError.
    """
    if not tiers.cold:
        if listed:
            raise StorageError(
                f"data directory {tiers.hot} has segments in a cold directory: set {_COLD_DIR} to where it is"
            )
        return
    _refuse_unfit(loop, tiers)
    files = loop.files
    ours, theirs = await _mark_of(files, tiers.hot), await _mark_of(files, tiers.cold)
    if theirs is not None and (ours is None or theirs.id != ours.id):
        raise StorageError(f"cold directory {tiers.cold} belongs to another data directory: name one of its own")
    if theirs is None and listed:
        raise StorageError(
            f"cold directory {tiers.cold} does not hold the segments of {tiers.hot}: is it mounted, is it the right "
            "one?"
        )
    if theirs is None and ours is not None and ours.both:
        raise StorageError(
            f"cold directory {tiers.cold} is not the one that {tiers.hot} was started with before: is it mounted, is "
            "it the right one? Nothing is stored there yet: "
            f"to begin with another one, remove {tiers.hot}/{COLD_MARK_NAME}"
        )
    if is_frozen:
        return
    if ours is None:
        ours = _Mark(loop.random_bytes(16).hex())
        await replace_file(files, f"{tiers.hot}/{COLD_MARK_NAME}", msgspec.json.encode(ours))
    elif not ours.both:  # a process that was killed may not have synced the name of its mark
        await files.sync_directory(tiers.hot)
    if theirs is None or not ours.both:
        await sync_parents(loop, tiers.cold, make_with_parents(loop.ring, tiers.cold))
    if theirs is None:
        await replace_file(files, f"{tiers.cold}/{COLD_MARK_NAME}", msgspec.json.encode(_Mark(ours.id)))
    elif not ours.both:
        await files.sync_directory(tiers.cold)
    if not ours.both:
        with contextlib.suppress(OSError):  # the next start writes it
            await replace_file(files, f"{tiers.hot}/{COLD_MARK_NAME}", msgspec.json.encode(_Mark(ours.id, both=True)))


async def require_cold(loop: Loop, tiers: Tiers) -> None:
    """Check that the cold directory, if there is one, was given to a tool that reads everything.

    Raises: StorageError with the sentence to print; OSError.
    """
    ours, theirs = await _mark_of(loop.files, tiers.hot), None
    if tiers.cold:
        _refuse_unfit(loop, tiers)
        theirs = await _mark_of(loop.files, tiers.cold)
    if (ours and ours.id) == (theirs and theirs.id):
        return
    if theirs is None and await _lists_none(loop, tiers):
        return  # nothing was moved there yet; perhaps a start that marks both was killed in between
    if not tiers.cold:
        raise StorageError(f"{tiers.hot} has a cold directory, too: set {_COLD_DIR} to where it is")
    raise StorageError(
        f"cold directory {tiers.cold} is not the one of {tiers.hot}: is it mounted, is {_COLD_DIR} right? "
        f"Their files {COLD_MARK_NAME} differ in the id: if one of them is damaged, copy the other one"
    )


async def _lists_none(loop: Loop, tiers: Tiers) -> bool:
    """Return whether the newest snapshot is sound and lists no segment in the cold directory."""
    found = await sound_snapshot(loop.files, tiers.hot)
    return found is not None and not found.skipped and all(segment.tier == HOT for segment in found.store.segments)


def _refuse_unfit(loop: Loop, tiers: Tiers) -> None:
    """Refuse an unsafe cold directory, and one that is the data directory.

    A move within one directory would remove the only copy.
    """
    refuse_unsafe(loop.ring, tiers.cold)
    if _are_same(loop.ring, tiers.hot, tiers.cold):
        raise StorageError(f"cold directory {tiers.cold} is the data directory: name another one, or none")


def _are_same(ring: Ring, first: str, second: str) -> bool:
    """Return whether two names are of one directory."""
    try:
        one, other = ring.lstat(first), ring.lstat(second)
    except FileNotFoundError:
        return False
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


async def _mark_of(files: FileCalls, directory: str) -> _Mark | None:
    path = f"{directory}/{COLD_MARK_NAME}"
    try:
        return msgspec.json.decode(await read_file(files, path), type=_Mark)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FormatError(
            f"{path} is damaged ({error}): copy the file {COLD_MARK_NAME} of the other directory, which has the same id"
        ) from error
