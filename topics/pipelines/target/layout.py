"""Values and names shared by both layouts of a target: marks of topics, files, columns, commits."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from topics.errors import FormatError
from topics.files import Loss
from topics.pipelines.errors import TargetError, disk_error
from topics.pipelines.target.runs import Head, Run
from topics.pipelines.values import ddl
from topics.pipelines.values.checksum import COLUMNS, WITH_BYTES

_COMMIT = re.compile(r"([0-9]{20})\.json\Z")


class Mark(NamedTuple):
    """The first seq of a topic, in one incarnation, that is not exported yet."""

    incarnation: str
    next_seq: int


class PartFile(NamedTuple):
    """A Parquet file in a commit."""

    path: str
    """The path below the target, in the file system's form."""
    topic: str
    incarnation: str
    """The topic's incarnation: in another one the same seq names another record."""
    date: str
    """YYYY-MM-DD, UTC."""
    rows: int
    first_seq: int
    last_seq: int
    first_ts_ms: int
    last_ts_ms: int
    bytes: int
    checksum: str
    """The checksum of its rows as in the log (values/checksum.py); "" if unknown."""
    nulls: dict[str, int]
    """The count of nulls in each column of the file that allows them."""
    misfits: int = 0
    """Rows whose `value` is null because they do not fit the schema."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns of the files in addition to those of the log.

    schema: the DDL of the column `value`; "" without this column.
    data: "all", or "misfits" if only rows that do not fit the schema have `data`.
    bytes: whether there is the column `bytes`, for records of bytes.
    """

    schema: str = ""
    data: str = "all"
    bytes: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read from the log."""
        return WITH_BYTES if self.bytes else COLUMNS

    def refuse_another(self, asked: Shape) -> None:
        """Raise TargetError if a run asks for other columns than the target has.

        The message names the difference.
        """
        if asked.bytes and not self.bytes:
            raise TargetError("--bytes: this target has no column `bytes`: leave the option out, or name a new target")
        if asked.schema and not self.schema:
            raise TargetError("--schema: this target has no column `value`: leave the option out, or name a new target")
        if asked.schema:
            unlike = ddl.difference(ddl.parse(self.schema), ddl.parse(asked.schema))
            if unlike:
                raise TargetError(f"--schema: {unlike}: leave the option out, or name a new target")
        if asked.data != self.data and asked.schema:
            kept = "keeps `data` of every row" if self.data == "all" else "keeps `data` only of rows that do not fit"
            raise TargetError(f"--drop-data: this target {kept}: run it as before, or name a new target")


@dataclass(frozen=True, slots=True)
class Exported:
    """The range that a run adds to a topic: from_seq to to_seq, both included; `rows` were live."""

    incarnation: str
    from_seq: int
    to_seq: int
    rows: int
    losses: tuple[Loss, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the range in the form of a commit."""
        losses = [{"from_seq": loss.from_seq, "to_seq": loss.to_seq, "reason": loss.reason} for loss in self.losses]
        return {
            "incarnation": self.incarnation,
            "from_seq": self.from_seq,
            "to_seq": self.to_seq,
            "rows": self.rows,
            "losses": losses,
        }


@dataclass(frozen=True, slots=True)
class Addition:
    """The additions of a run to a target: ranges by topic, and files with their columns."""

    shape: Shape
    topics: Mapping[str, Exported]
    files: Sequence[PartFile]
    now_ms: int


@dataclass(frozen=True, slots=True)
class TargetState:
    """The state of a target. number: the number of its newest commit, -1 before the first."""

    number: int = -1
    marks: Mapping[str, Mark] = field(default_factory=dict)
    shape: Shape | None = None
    extra: Any = None
    """Data of the layout's own."""


class Layout(Protocol):
    """The commits of a target, written and read."""

    name: str

    def load(self) -> TargetState:
        """Return the newest state. Raises TargetError, FormatError."""

    def is_committed(self, head: Head) -> bool:
        """Return whether the run that wrote this announcement has committed."""

    def commit(self, run: Run, state: TargetState, add: Addition) -> int:
        """Add the files of a run to the target; return the number of the commit.

        Raises: TargetError, another run has committed since `state` was loaded; nothing is changed.
        """

    def files(self) -> list[PartFile]:
        """Return all files of the commits, by topic and seq. Raises TargetError, FormatError."""


def commit_path(directory: str, number: int) -> str:
    """Return the path of a commit, whose name has 20 digits."""
    return os.path.join(directory, f"{number:020d}.json")


def commit_numbers(names: Iterable[str]) -> list[int]:
    """Return the numbers of the commits among the names of a directory, ascending."""
    return sorted(int(match.group(1)) for name in names if (match := _COMMIT.match(name)))


def names_in(directory: str, what: str) -> list[str]:
    """Return the names in a directory, [] if it is missing.

    Raises: TargetError, which names what cannot be read.
    """
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise disk_error(f"{what} cannot be read", error) from error


@contextmanager
def sound(what: str) -> Iterator[None]:
    """Raise FormatError, naming what is read, if the block finds content that no export writes."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise FormatError(f"{what} is not sound ({error!r}): restore it, or name a new target") from error


def taken(target: str) -> TargetError:
    """Return the error of a run that another run has overtaken with its commit."""
    return TargetError(
        f"another export has committed to {target} while this one ran: nothing of this one counts and its files are "
        "removed; run it again to export what is new since"
    )
