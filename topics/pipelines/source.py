"""Topics of a data directory, read from its files, as slices of their seqs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from topics.errors import UsageError
from topics.files import Location, Loss, Piece, TopicFiles, open_directory
from topics.pipelines.values.pattern import compile_pattern

if TYPE_CHECKING:
    import pyarrow as pa

UNIT_BYTES = 128 << 20
"""Bytes that a unit of work reads, about."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The options that say what is read."""

    path: str = ""
    cold: str = ""
    subscribe: tuple[str, ...] = ()
    """Names."""
    pattern: str = ""
    """A regular expression of whole names."""
    verify: bool = True


class Slice(NamedTuple):
    """Seqs from_seq to to_seq, both included, of one topic: what a unit reads of it. Picklable."""

    topic: str
    incarnation: str
    from_seq: int
    to_seq: int
    location: Location
    pieces: tuple[Piece, ...]
    bytes: int
    """An estimate of what is read of the files."""


class Sized(Protocol):
    """A share of the reading: a piece, or a slice."""

    @property
    def bytes(self) -> int:
        """An estimate of what is read of the files."""


S = TypeVar("S", bound=Sized)


def grouped(items: Iterable[S], bytes_max: int, key: Callable[[S], object] | None = None) -> Iterator[tuple[S, ...]]:
    """Yield items in groups, in order; a group has at most `bytes_max`, or one item.

    key: neighbours that are equal by it stay together, however many bytes they have.
    """
    group: list[S] = []
    size = 0
    for item in items:
        if group and size + item.bytes > bytes_max and (key is None or key(item) != key(group[-1])):
            yield tuple(group)
            group, size = [], 0
        group.append(item)
        size += item.bytes
    if group:
        yield tuple(group)


class SourceTopic(Protocol):
    """A topic as it stood when the directory was opened."""

    name: str
    incarnation: str
    head: int
    """The last seq that can be read."""
    seen_head: int
    """The highest seq given out when the directory was opened. `head` may be lower than it was before, this never."""
    first: int
    """The first seq that is neither lost nor cut off by a delete of all below."""

    def losses(self, from_seq: int, to_seq: int) -> list[Loss]: ...

    def slices(self, from_seq: int, to_seq: int) -> list[Slice]:
        """The range in slices of about UNIT_BYTES, ascending, without overlap. Those with no record are left out."""


class FileTopic:
    """A topic of a data directory."""

    def __init__(self, files: TopicFiles, location: Location) -> None:
        self._files = files
        self._location = location
        self.name = files.name
        self.incarnation = files.incarnation
        self.head = files.head
        self.seen_head = files.seen_head
        self.first = files.first_kept

    def losses(self, from_seq: int, to_seq: int) -> list[Loss]:
        """Return what was lost in the range."""
        return self._files.losses(from_seq, to_seq)

    def slices(self, from_seq: int, to_seq: int) -> list[Slice]:
        """Return the pieces of the range, grouped."""
        return [self._slice(group) for group in grouped(self._files.plan(from_seq, to_seq), UNIT_BYTES)]

    def _slice(self, pieces: tuple[Piece, ...]) -> Slice:
        size = sum(piece.bytes for piece in pieces)
        return Slice(self.name, self.incarnation, pieces[0].from_seq, pieces[-1].to_seq, self._location, pieces, size)


class Selection(NamedTuple):
    """The topics that an origin selects, by name, as one snapshot has them."""

    topics: dict[str, SourceTopic]
    snapshot: int
    """Its number."""


def open_selection(origin: Origin) -> Selection:
    """Open the topics that the options name. Raises UsageError, and what `files.open_directory` raises."""
    if not origin.path:
        raise UsageError("no source: name a data directory with --path")
    directory = open_directory(origin.path, origin.cold or None)
    chosen = choose(list(directory.topics), origin, f"data directory {origin.path}")
    location = directory.location
    return Selection({name: FileTopic(directory.topics[name], location) for name in chosen}, directory.snapshot)


def refuse_inside(target: str, origin: Origin) -> None:
    """Raise UsageError for a target in the data directory or its cold one: a server refuses files it does not know."""
    place = os.path.realpath(target)
    for directory in filter(None, (origin.path, origin.cold)):
        if os.path.commonpath([place, whole := os.path.realpath(directory)]) == whole:
            raise UsageError(f"--to {target} lies in {directory}, which is the server's alone: name one elsewhere")


def choose(names: Sequence[str], origin: Origin, place: str) -> list[str]:
    """Return the topics that `subscribe` or `pattern` ask for; all without either.

    Raises UsageError for a name that is not there, both options, or a pattern that is none.
    """
    if origin.subscribe and origin.pattern:
        raise UsageError("--subscribe and --subscribe-pattern are both given: choose one")
    if origin.pattern:
        pattern = compile_pattern(origin.pattern, "--subscribe-pattern")
        return sorted(name for name in names if pattern.fullmatch(name))
    for name in origin.subscribe:
        if name not in names:
            near = get_close_matches(name, names, 1, 0.7)
            meant = f" (is {near[0]} meant?)" if near else ""
            raise UsageError(
                f"--subscribe: {place} has no topic {name}{meant}; what was created since its last checkpoint is not "
                "seen yet"
            )
    return sorted(set(origin.subscribe)) if origin.subscribe else sorted(names)


def read(one: Slice, columns: Sequence[str], *, verify: bool = True) -> Iterator[pa.RecordBatch | Loss]:
    """The live records of a slice, in order, and what was lost of it since it was planned."""
    from topics.files import read_pieces  # noqa: PLC0415 - planning needs no pyarrow

    return read_pieces(one.location, one.pieces, columns=columns, verify=verify)
