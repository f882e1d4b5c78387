"""Layout `manifest`: commits are JSON files, `_topics/commits/<20 digits>.json`, that list files.

    {"format": "topics-export", "version": 1, "number": 7, "run": "...",
     "created_ms": 1795325238494, "schema": "" , "data": "all",
     "topics": {"orders": {"incarnation": "...", "from_seq": 101, "to_seq": 250, "rows": 149,
                           "losses": [{"from_seq": 120, "to_seq": 120, "reason": "crash"}]}},
     "state": {"orders": {"incarnation": "...", "next_seq": 251}},
     "files": [{"path": "topic=orders/date=2026-11-23/part-....parquet", "topic": "orders",
                "incarnation": "...", "date": "2026-11-23", "rows": 149, "first_seq": 101,
                "last_seq": 250, "first_ts_ms": .., "last_ts_ms": .., "bytes": ..,
                "checksum": "16 hex digits", "nulls": {"tag": 3}, "misfits": 0}]}

`topics` lists the additions of this run, `state` the position of all topics after it. A file
belongs to the target once a commit lists it.
"""

from __future__ import annotations

import json
import os
from typing import Any

from topics.errors import FormatError
from topics.pipelines.errors import disk_errors
from topics.pipelines.target.layout import (
    Addition,
    Mark,
    PartFile,
    Shape,
    TargetState,
    commit_numbers,
    commit_path,
    names_in,
    sound,
    taken,
)
from topics.pipelines.target.runs import OWN, Head, Run
from topics.pipelines.target.whole import sync_directory

COMMITS = os.path.join(OWN, "commits")
FORMAT, VERSION = "topics-export", 1
_NUMBERS = ("rows", "first_seq", "last_seq", "first_ts_ms", "last_ts_ms", "bytes", "misfits")


class ManifestLayout:
    """A target whose commits are JSON files of this program's own format."""

    name = "manifest"

    def __init__(self, target: str) -> None:
        self._target = target
        self._commits = os.path.join(target, COMMITS)

    def load(self) -> TargetState:
        """Return the state after the newest commit."""
        number = max(self._numbers(), default=-1)
        if number < 0:
            return TargetState()
        commit = self.read(number)
        with sound(f"commit {self._path(number)}"):
            marks = {
                name: Mark(str(mark["incarnation"]), int(mark["next_seq"])) for name, mark in commit["state"].items()
            }
            return TargetState(
                number, marks, Shape(str(commit["schema"]), str(commit["data"]), bool(commit.get("bytes")))
            )

    def is_committed(self, head: Head) -> bool:
        """Return whether the commit that the announcement names exists and is by the same run."""
        number = head.get("number")
        if not isinstance(number, int) or not os.path.exists(self._path(number)):
            return False
        return bool(self.read(number).get("run") == head.get("run"))

    def commit(self, run: Run, state: TargetState, add: Addition) -> int:
        """Write the next commit file."""
        marks = {**state.marks, **{name: Mark(one.incarnation, one.to_seq + 1) for name, one in add.topics.items()}}
        number = state.number + 1
        content = {
            "format": FORMAT,
            "version": VERSION,
            "number": number,
            "run": run.id,
            "created_ms": add.now_ms,
            "schema": add.shape.schema,
            "data": add.shape.data,
            **({"bytes": True} if add.shape.bytes else {}),
            "topics": {name: one.as_json() for name, one in sorted(add.topics.items())},
            "state": {name: mark._asdict() for name, mark in sorted(marks.items())},
            "files": [file._asdict() for file in add.files],
        }
        with disk_errors(f"commit in {self._target}"):
            os.makedirs(self._commits, exist_ok=True)
            sync_directory(os.path.dirname(self._commits))
            sync_directory(self._target)
        if not run.commit(json.dumps(content, ensure_ascii=False).encode() + b"\n", self._path(number)):
            raise taken(self._target)
        return number

    def files(self) -> list[PartFile]:
        """Return the files of all commits."""
        found = []
        for number in self._numbers():
            commit = self.read(number)
            with sound(f"commit {self._path(number)}"):
                found += [_part_file(file) for file in commit["files"]]
        return sorted(found, key=lambda file: (file.topic, file.path.partition("part-")[2], file.first_seq))

    def read(self, number: int) -> dict[str, Any]:
        """Return a commit. Raises FormatError, TargetError."""
        with disk_errors(f"commit {self._path(number)} cannot be read"), open(self._path(number), "rb") as file:
            content = file.read()
        with sound(f"commit {self._path(number)}"):
            commit = json.loads(content)
            if not isinstance(commit, dict) or commit.get("format") != FORMAT:
                raise ValueError("it is no commit of an export")
        if commit.get("version") != VERSION:
            raise FormatError(
                f"{self._path(number)} has version {commit.get('version')}, this build knows {VERSION}: use a newer one"
            )
        return commit

    def _numbers(self) -> list[int]:
        """Return the numbers of all commits, ascending."""
        return commit_numbers(names_in(self._commits, f"target {self._target}"))

    def _path(self, number: int) -> str:
        return commit_path(self._commits, number)


def _part_file(entry: dict[str, Any]) -> PartFile:
    """Return a file of a commit. Raises TypeError, KeyError."""
    file = PartFile(**entry)
    for name in PartFile._fields:
        kind = {"nulls": dict, **dict.fromkeys(_NUMBERS, int)}.get(name, str)
        if not isinstance(getattr(file, name), kind):
            raise TypeError(f"{name} is {getattr(file, name)!r}")
    return file
