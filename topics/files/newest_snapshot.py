"""The newest sound snapshot as values.

The standard library decodes its JSON, because an executor may lack other decoders. The fields are
defined by `store/segments/store_part.py` and `engine/shared/topic_snapshot.py`; a test compares the
names.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from topics.errors import CorruptError, FormatError
from topics.files.errors import DirectoryBusyError
from topics.files.file_calls import FileReads, opened, read_range
from topics.store.layouts.directory_names import SNAPSHOT_DIRECTORY, numbered, snapshot_path
from topics.store.layouts.snapshot_format import SNAPSHOT_HEADER_BYTES, SNAPSHOT_LARGE_BYTES, SnapshotFile

_TRIES = 16


class SegmentEntry(NamedTuple):
    """A segment, as a snapshot lists it."""

    first: int
    last: int
    records: int
    end: int
    epoch: int
    last_ts: int
    sum: int
    sealed: bool
    tier: int
    edition: int


class RunEntry(NamedTuple):
    """A topic's run in a pack, as a snapshot lists it."""

    first: int
    last: int
    run: int
    pack: int
    epoch: int
    bytes: int
    """An estimate: the bytes of the pack, divided by the number of its runs."""


class TopicEntry(NamedTuple):
    """A topic, as a snapshot lists it."""

    image: dict[str, Any]
    """The fields of a TopicImage of `engine/shared/topic_snapshot.py`.

    The columns of PlainTopics are given as these fields, too.
    """
    segments: list[SegmentEntry]
    """Segments in seq order; the last one may be unsealed."""
    runs: list[RunEntry]
    """Runs in seq order; all their seqs are below those of the segments."""


@dataclass(frozen=True, slots=True)
class SnapshotContents:
    """The contents of one snapshot file."""

    number: int
    created_ms: int
    clean: bool
    topics: dict[str, TopicEntry]
    has_cold: bool
    """At least one segment is in the cold directory."""


EMPTY = SnapshotContents(0, 0, False, {}, False)
"""The contents of a directory before its first checkpoint."""


def newest_number(calls: FileReads, path: str) -> int:
    """Return the highest number of a snapshot file in a data directory; 0 without one."""
    return max(snapshot_numbers(calls, path), default=0)


def snapshot_numbers(calls: FileReads, path: str) -> list[int]:
    """Return the numbers of the snapshot files in a data directory, in any order."""
    try:
        names = calls.list_directory(f"{path}/{SNAPSHOT_DIRECTORY}")
    except FileNotFoundError:
        return []
    return [number for name in names if (number := numbered(name, "snapshot-")) is not None]


def load_newest(calls: FileReads, path: str) -> SnapshotContents:
    """Return the newest sound snapshot of a data directory; EMPTY without any snapshot.

    Raises: CorruptError if no snapshot is sound; FormatError for one of a newer build;
    DirectoryBusyError if each was gone before it could be opened; OSError.
    """
    for _ in range(_TRIES):
        damaged: CorruptError | None = None
        numbers = sorted(snapshot_numbers(calls, path), reverse=True)
        if not numbers:
            return EMPTY
        for number in numbers:
            name = f"{path}/{snapshot_path(number)}"
            try:
                file = read_snapshot(calls, name)
            except FileNotFoundError:
                break  # a newer snapshot has replaced it since the names were read
            except CorruptError as error:
                damaged = error
                continue
            return decode(file, name)
        else:
            raise CorruptError(
                f"{path}: no snapshot is sound: stop the server and restore from segments by `topics fsck --rebuild`",
                {"path": name},
            ) from damaged
    raise DirectoryBusyError(
        f"data directory {path}: snapshots vanished {_TRIES} times before they could be read: try again"
    )


def read_snapshot(calls: FileReads, path: str) -> SnapshotFile:
    """Read a whole snapshot file. Raises: FormatError, CorruptError, OSError."""
    with opened(calls, path) as fd:
        size = calls.size(fd)
        if size > SNAPSHOT_LARGE_BYTES:
            SnapshotFile.check_size(bytes(read_range(calls, fd, 0, SNAPSHOT_HEADER_BYTES)), size, path)
        return SnapshotFile.unpack(memoryview(read_range(calls, fd, 0, size)), path)


def decode(file: SnapshotFile, name: str) -> SnapshotContents:
    """Return the contents of a snapshot file.

    Raises: FormatError if this build does not know them.
    """
    try:
        store, catalog = json.loads(bytes(file.store)), json.loads(bytes(file.catalog))
        if store.get("format", 1) != 1:
            raise FormatError(f"{name}: a snapshot of format {store['format']}; this build knows 1")
        segments: dict[int, list[SegmentEntry]] = defaultdict(list)
        runs: dict[int, list[RunEntry]] = defaultdict(list)
        for entry in store["segments"]:
            segments[entry["topic"]].append(
                SegmentEntry(
                    entry["first"],
                    entry["last"],
                    entry["records"],
                    entry["end"],
                    entry["epoch"],
                    entry.get("last_ts", 0),
                    entry.get("sum", 0),
                    entry.get("sealed", False),
                    entry.get("tier", 0),
                    entry.get("ed", 0),
                )
            )
        for pack in store["packs"]:
            share = pack["size"] // max(1, len(pack["runs"]))
            for topic_id, first, last, row in pack["runs"].values():
                runs[topic_id].append(RunEntry(first, last, row, pack["number"], pack["epoch"], share))
        topics = {
            image["name"]: TopicEntry(image, sorted(segments[image["id"]]), sorted(runs[image["id"]]))
            for image in [*catalog["topics"], *_plain_images(catalog.get("plain", []))]
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"{name}: a snapshot whose contents this build does not know: {error!r}") from error
    has_cold = any(entry.get("tier", 0) for entry in store["segments"])
    return SnapshotContents(file.number, file.created_ms, store.get("clean", False), topics, has_cold)


def _plain_images(blocks: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the topics of PlainTopics as the fields of a TopicImage each."""
    for block in blocks:
        fields = ("names", "ids", "orders", "heads", "last_ts", "generations", "config")
        for at, (name, topic_id, order, head, last_ts, generation, config) in enumerate(
            zip(*(block[field] for field in fields), strict=True)
        ):
            yield {
                "name": name,
                "id": topic_id,
                "order": order,
                "config": block["configs"][config],
                "head": head,
                "last_ts": last_ts,
                "generation": generation,
                "incarnation": block["incarnations"][16 * at : 16 * at + 16],
            }
