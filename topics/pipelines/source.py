"""Topics of a data directory, read from its files, as slices of their seqs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from topics.common.values.near_names import bracketed
from topics.errors import UsageError
from topics.files import Location, Loss, Piece, TopicFiles, open_directory
from topics.pipelines.values.pattern import compile_pattern

if TYPE_CHECKING:
    import pyarrow as pa

UNIT_BYTES = 128 << 20
"""Bytes that a unit of work reads, approximately."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The options that select the input."""

    path: str = ""
    cold: str = ""
    subscribe: tuple[str, ...] = ()
    """Names of topics."""
    pattern: str = ""
    """A regular expression of whole names."""
    verify: bool = True


class Slice(NamedTuple):
    """Seqs from_seq to to_seq, both included, of one topic: the input of a unit. Picklable."""

    topic: str
    incarnation: str
    from_seq: int
    to_seq: int
    location: Location
    pieces: tuple[Piece, ...]
    bytes: int
    """Estimated bytes to read from the files."""


class Sized(Protocol):
    """A part of the input: a piece, or a slice."""

    @property
    def bytes(self) -> int:
        """Estimated bytes to read from the files."""


S = TypeVar("S", bound=Sized)


def grouped(items: Iterable[S], bytes_max: int, key: Callable[[S], object] | None = None) -> Iterator[tuple[S, ...]]:
    """Yield items in groups, in order. A group has at most `bytes_max`, or one item.

    key: neighbours with an equal key stay together, however many bytes they have.
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
    """A topic in its state when the directory was opened."""

    name: str
    incarnation: str
    head: int
    """The last seq that can be read."""
    seen_head: int
    """The highest seq given out when the directory was opened.

    Unlike `head`, it never decreases from one opening to the next.
    """
    first: int
    """The first seq that is neither lost nor removed by a delete of all seqs below a bound."""

    def losses(self, from_seq: int, to_seq: int) -> list[Loss]: ...

    def slices(self, from_seq: int, to_seq: int) -> list[Slice]:
        """Return the range in slices of about UNIT_BYTES, ascending, without overlap.

        Slices without a record are left out.
        """


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
        """Return the losses in the range."""
        return self._files.losses(from_seq, to_seq)

    def slices(self, from_seq: int, to_seq: int) -> list[Slice]:
        """Return the pieces of the range, grouped into slices."""
        return [self._slice(group) for group in grouped(self._files.plan(from_seq, to_seq), UNIT_BYTES)]

    def _slice(self, pieces: tuple[Piece, ...]) -> Slice:
        size = sum(piece.bytes for piece in pieces)
        return Slice(self.name, self.incarnation, pieces[0].from_seq, pieces[-1].to_seq, self._location, pieces, size)


class Selection(NamedTuple):
    """The topics that an origin selects, by name, as of one snapshot."""

    topics: dict[str, SourceTopic]
    snapshot: int
    """The number of the snapshot."""


def open_selection(origin: Origin) -> Selection:
    """Open the topics that the options name.

    Raises: UsageError, and the errors of `files.open_directory`.
    """
    if not origin.path:
        raise UsageError("no source: name a data directory with --path")
    directory = open_directory(origin.path, origin.cold or None)
    chosen = choose(list(directory.topics), origin, f"data directory {origin.path}")
    location = directory.location
    return Selection({name: FileTopic(directory.topics[name], location) for name in chosen}, directory.snapshot)


def refuse_inside(target: str, origin: Origin) -> None:
    """Raise UsageError for a target in the data directory or its cold directory.

    A server refuses files that it does not know.
    """
    place = os.path.realpath(target)
    for directory in filter(None, (origin.path, origin.cold)):
        if os.path.commonpath([place, whole := os.path.realpath(directory)]) == whole:
            raise UsageError(f"--to {target} is in {directory}, which only the server may use: name one elsewhere")


def choose(names: Sequence[str], origin: Origin, place: str) -> list[str]:
    """Return the topics that `subscribe` or `pattern` selects; all without either.

    Raises: UsageError, a name does not exist, both options are given, or the pattern is invalid.
    """
    if origin.subscribe and origin.pattern:
        raise UsageError("--subscribe and --subscribe-pattern are both given: choose one")
    if origin.pattern:
        pattern = compile_pattern(origin.pattern, "--subscribe-pattern")
        return sorted(name for name in names if pattern.fullmatch(name))
    for name in origin.subscribe:
        if name not in names:
            raise UsageError(
                f"--subscribe: {place} has no topic {name}{bracketed(name, names)}; "
                "what was created since its last checkpoint is not seen yet"
            )
    return sorted(set(origin.subscribe)) if origin.subscribe else sorted(names)


def read(one: Slice, columns: Sequence[str], *, verify: bool = True) -> Iterator[pa.RecordBatch | Loss]:
    """Yield the live records of a slice, in order, and the losses since it was planned."""
    from topics.files import read_pieces  # noqa: PLC0415 - planning needs no pyarrow

    return read_pieces(one.location, one.pieces, columns=columns, verify=verify)
