"""Layout `delta`: a Delta table whose log is written here (reader version 1, writer version 2).

The table's own transaction ids record how far a topic is exported: appId
`topics:<incarnation>:<topic>`, version the next seq to export. `commitInfo` of a commit lists the
additions of a run, with losses. The tags of a file's `add` hold its checksum and its range of seqs.
Other writers may work on the table, too (OPTIMIZE, VACUUM, additional columns): a commit follows
theirs, unless they changed the columns of an export or the protocol.

Source: github.com/delta-io/delta, PROTOCOL.md.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from topics import __version__
from topics.errors import FormatError
from topics.pipelines.errors import TargetError, disk_errors
from topics.pipelines.target.file_names import as_uri, from_uri
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
from topics.pipelines.target.runs import Head, Run
from topics.pipelines.target.whole import replace_file, sync_directory
from topics.pipelines.values import ddl

LOG = "_delta_log"
CHECKPOINT_EVERY = 50
"""Commits between two checkpoints of this program; without checkpoints readers read all commits."""
READER_VERSION, WRITER_VERSION = 1, 2
_CHECKPOINT = re.compile(r"([0-9]{20})\.checkpoint\.parquet\Z")
_PARTED = re.compile(r"[0-9]{20}\.checkpoint\.[^/]+\.(?:parquet|json)\Z")
_APP = re.compile(r"topics:([0-9a-f]{16}):(.+)\Z")
BAD_NAME = re.compile(r"[ ,;{}()\n\t=]")
"""Characters that no name of a column may contain."""
PARTITIONS = ("topic", "date")
COLUMNS = {"topic": "string", "date": "date", "seq": "long", "ts": "timestamp", "tag": "string", "node": "string",
           "data": "string", "meta": "string"}  # fmt: skip


@dataclass(slots=True)
class _TableState:
    """The state of the table after the actions of its log."""

    number: int = -1
    checkpoint: int = -1
    protocol: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    txns: dict[str, dict[str, Any]] = field(default_factory=dict)
    adds: dict[str, dict[str, Any]] = field(default_factory=dict)
    removes: dict[str, dict[str, Any]] = field(default_factory=dict)
    runs: set[str] = field(default_factory=set)
    """Runs of this program that committed since the checkpoint."""

    def apply(self, action: Mapping[str, Any]) -> None:
        for kind, body in action.items():
            if not isinstance(body, dict):
                continue
            if kind == "protocol":
                self.protocol = body
            elif kind == "metaData":
                self.metadata = body
            elif kind == "txn":
                self.txns[body["appId"]] = body
            elif kind == "add":
                self.adds[body["path"]] = body
                self.removes.pop(body["path"], None)
            elif kind == "remove":
                self.adds.pop(body["path"], None)
                self.removes[body["path"]] = body
            elif kind == "commitInfo" and isinstance(body.get("run"), str):
                self.runs.add(body["run"])


class DeltaLayout:
    """A target in the form of a Delta table."""

    name = "delta"

    def __init__(self, target: str) -> None:
        self._target = target
        self._log = os.path.join(target, LOG)

    def load(self) -> TargetState:
        """Return the newest version, with its transaction ids as marks."""
        log = self._read()
        if log.number < 0:
            return TargetState(extra=log)
        with sound(f"Delta log {self._log}"):
            return self._state_of(log)

    def _state_of(self, log: _TableState) -> TargetState:
        self._refuse_unknown(log)
        configuration = _as_dict(log.metadata.get("configuration"))
        schema, data = configuration.get("topics.schema", ""), configuration.get("topics.data", "all")
        shape = Shape(schema, data, configuration.get("topics.bytes") == "true")
        unlike = _differing_column(log.metadata, shape)
        if unlike:
            raise TargetError(
                f"{self._target} is a Delta table with other columns than an export has ({unlike}): name a new target"
            )
        return TargetState(log.number, _marks(log.txns), shape, log)

    def is_committed(self, head: Head) -> bool:
        """Return whether the announced run wrote the version that its announcement names."""
        number = head.get("number")
        if not isinstance(number, int):
            return False
        try:
            with sound(self._path(number)):
                infos = [action.get("commitInfo", {}) for action in self._actions(number)]
                return any(info.get("run") == head.get("run") for info in infos)
        except FileNotFoundError:
            return head.get("run") in self._read().runs or self._lists_files_of(str(head.get("run")))

    def _lists_files_of(self, run: str) -> bool:
        return any(f"/part-{run}-" in path for path in self._read().adds)

    def commit(self, run: Run, state: TargetState, add: Addition) -> int:
        """Write the next version, after versions of other writers.

        Raises: TargetError, such a version changed columns, the protocol or marks of topics.
        """
        log: _TableState = state.extra
        with disk_errors(f"commit in {self._target}"):
            os.makedirs(self._log, exist_ok=True)
            sync_directory(self._target)
        number = state.number + 1
        first = not log.metadata
        now_ms = max([add.now_ms, *(int(txn.get("lastUpdated") or 0) + 1 for txn in log.txns.values())])
        add = replace(add, now_ms=now_ms)  # `_marks` takes the incarnation that was updated last.
        while not run.commit(_commit(run.id, number, add, first=first), self._path(number)):
            later = self._read()
            if first or _marks(later.txns) != _marks(log.txns):
                raise taken(self._target)
            if later.metadata != log.metadata or later.protocol != log.protocol:
                raise TargetError(
                    f"another writer changed columns or protocol of the Delta table {self._target} meanwhile: nothing "
                    "was committed; run it again"
                )
            number = later.number + 1
        if number - log.checkpoint >= CHECKPOINT_EVERY:
            self._write_checkpoint()
        return number

    def files(self) -> list[PartFile]:
        """Return the active files.

        Files that other writers merged from those of an export are included, with checksum "".
        """
        found = []
        for add in self._read().adds.values():
            if add.get("deletionVector"):
                raise FormatError(
                    f"Delta table {self._target} has deletion vectors, which this build does not read: purge them first"
                )
            with sound(f"Delta log {self._log}"):
                found.append(_part_file(add))
        return sorted(found, key=lambda file: (file.topic, file.date, file.first_seq, file.path))

    # --- reading the log

    def _read(self) -> _TableState:
        """Replay the log from its newest complete checkpoint."""
        names = names_in(self._log, f"Delta table {self._target}")
        commits = commit_numbers(names)
        checkpoints = [int(match.group(1)) for name in names if (match := _CHECKPOINT.match(name))]
        log = _TableState()
        if checkpoints:
            self._apply_checkpoint(log, max(checkpoints))
        elif any(_PARTED.match(name) for name in names) and commits and commits[0] > 0:
            raise FormatError(
                f"Delta table {self._target} has checkpoints in parts, unknown to this build: name a new target"
            )
        for number in commits:
            if number <= log.number:
                continue
            if number != log.number + 1:
                raise FormatError(f"Delta table {self._target} has no version {log.number + 1}: its log has a hole")
            with sound(self._path(number)):
                for action in self._actions(number):
                    log.apply(action)
            log.number = number
        return log

    def _actions(self, number: int) -> Iterator[dict[str, Any]]:
        """Yield the actions of one version.

        Raises: FileNotFoundError; ValueError, a line is no JSON.
        """
        with open(self._path(number), "rb") as file:
            for line in file:
                if line.strip():
                    yield json.loads(line)

    def _path(self, number: int) -> str:
        return commit_path(self._log, number)

    def _apply_checkpoint(self, log: _TableState, number: int) -> None:
        path = os.path.join(self._log, f"{number:020d}.checkpoint.parquet")
        try:
            with open(path, "rb") as file:  # pyarrow rejects paths that are not UTF-8.
                table = pq.read_table(file)
        except (OSError, pa.ArrowInvalid) as error:
            raise FormatError(f"{path} is not sound ({error}): restore it, or name a new target") from None
        with sound(path):
            for row in table.to_pylist():
                action = {kind: body for kind, body in row.items() if body is not None}
                for body in action.values():
                    for key, value in body.items():
                        if key in ("partitionValues", "tags", "configuration") and isinstance(value, list):
                            body[key] = dict(value)
                log.apply(action)
        log.number = log.checkpoint = number

    def _refuse_unknown(self, log: _TableState) -> None:
        reader, writer = (int(log.protocol.get(key, 0)) for key in ("minReaderVersion", "minWriterVersion"))
        if reader > READER_VERSION or writer > WRITER_VERSION:
            raise FormatError(
                f"Delta table {self._target} asks for reader {reader} and writer {writer}, this build has "
                f"{READER_VERSION} and {WRITER_VERSION}: name a new target"
            )

    # --- checkpoints

    def _write_checkpoint(self) -> None:
        """Write the state of the log as a checkpoint, from which readers start.

        The commit is valid without a checkpoint, so an error is ignored.
        """
        try:
            log = self._read()
            path = os.path.join(self._log, f"{log.number:020d}.checkpoint.parquet")
            rows = [{"protocol": log.protocol}, {"metaData": log.metadata}]
            rows += [{"txn": txn} for txn in log.txns.values()]
            rows += [{"remove": remove} for remove in log.removes.values()]
            rows += [{"add": {**add, "dataChange": False}} for add in log.adds.values()]
            table = pa.Table.from_pylist([_for_parquet(row) for row in rows], _CHECKPOINT_SCHEMA)
            replace_file(path, partial(pq.write_table, table))
            last = json.dumps({"version": log.number, "size": len(rows)}).encode()
            replace_file(os.path.join(self._log, "_last_checkpoint"), lambda file: file.write(last))
        except (OSError, pa.ArrowException, TargetError, FormatError):
            return


def app_id(incarnation: str, topic: str) -> str:
    """Return the application id of one incarnation of a topic in the table's transactions."""
    return f"topics:{incarnation}:{topic}"


def _marks(txns: Mapping[str, Mapping[str, Any]]) -> dict[str, Mark]:
    """Return the mark of each topic: that of the incarnation exported last."""
    found: dict[str, tuple[int, Mark]] = {}
    for app, txn in txns.items():
        match = _APP.match(app)
        if match:
            when = int(txn.get("lastUpdated") or 0)
            incarnation, topic = match.groups()
            if topic not in found or found[topic][0] <= when:
                found[topic] = (when, Mark(incarnation, int(txn["version"])))
    return {topic: mark for topic, (_, mark) in found.items()}


def refuse_names(schema: str) -> None:
    """Raise TargetError for a field whose name a Delta table does not allow."""
    bad = _bad_name(ddl.parse(schema)) if schema else ""
    if bad:
        raise TargetError(
            f"--schema: field {bad!r} has a blank or one of ,;{{}}()= in its name, which Delta refuses: leave it out"
        )


def _bad_name(kind: ddl.Type) -> str:
    if isinstance(kind, ddl.Struct):
        for one in kind.fields:
            bad = one.name if BAD_NAME.search(one.name) else _bad_name(one.type)
            if bad:
                return bad
    return _bad_name(kind.item) if isinstance(kind, ddl.Array) else ""


def _fields(shape: Shape) -> list[dict[str, Any]]:
    columns = COLUMNS | ({"bytes": "binary"} if shape.bytes else {})
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
    return [*fields, ddl.delta_field("value", ddl.parse(shape.schema))] if shape.schema else fields


def _differing_column(metadata: Mapping[str, Any], shape: Shape) -> str:
    """Return the column of an export that the table lacks or has in another form; "" for none.

    The table may have more columns, all nullable.
    """
    there = {one["name"]: one for one in json.loads(metadata.get("schemaString", "{}")).get("fields", [])}
    if tuple(metadata.get("partitionColumns", ())) != PARTITIONS:
        return f"it is partitioned by {', '.join(metadata.get('partitionColumns', ())) or 'nothing'}"
    for wanted in _fields(shape):
        found = there.pop(wanted["name"], None)
        if found is None or found["type"] != wanted["type"]:
            return str(wanted["name"])
    return next((str(name) for name, one in there.items() if not one.get("nullable", True)), "")


def _commit(run: str, number: int, add: Addition, *, first: bool) -> bytes:
    """Return the lines of one version."""
    actions: list[dict[str, Any]] = [
        {
            "commitInfo": {
                "timestamp": add.now_ms,
                "operation": "WRITE",
                "operationParameters": {"mode": "Append", "partitionBy": json.dumps(PARTITIONS)},
                "isBlindAppend": True,
                "engineInfo": f"topics/{__version__}",
                "run": run,
                "number": number,
                "topics": {name: one.as_json() for name, one in sorted(add.topics.items())},
            }
        }
    ]
    if first:
        configuration = {"topics.schema": add.shape.schema, "topics.data": add.shape.data} if add.shape.schema else {}
        configuration |= {"topics.bytes": "true"} if add.shape.bytes else {}
        actions.append({"protocol": {"minReaderVersion": READER_VERSION, "minWriterVersion": WRITER_VERSION}})
        actions.append(
            {
                "metaData": {
                    "id": str(uuid.UUID(bytes=secrets.token_bytes(16), version=4)),
                    "format": {"provider": "parquet", "options": {}},
                    "schemaString": json.dumps({"type": "struct", "fields": _fields(add.shape)}),
                    "partitionColumns": list(PARTITIONS),
                    "configuration": configuration,
                    "createdTime": add.now_ms,
                }
            }
        )
    for name, one in sorted(add.topics.items()):
        txn = {"appId": app_id(one.incarnation, name), "version": one.to_seq + 1, "lastUpdated": add.now_ms}
        actions.append({"txn": txn})
    actions += [{"add": _add(file, add.now_ms)} for file in add.files]
    return b"".join(json.dumps(action, ensure_ascii=False).encode() + b"\n" for action in actions)


def _add(file: PartFile, now_ms: int) -> dict[str, Any]:
    stats = {
        "numRecords": file.rows,
        "minValues": {"seq": file.first_seq, "ts": _moment(file.first_ts_ms)},
        "maxValues": {"seq": file.last_seq, "ts": _moment(file.last_ts_ms)},
        "nullCount": {"seq": 0, "ts": 0, **{name: count for name, count in file.nulls.items() if name != "value"}},
    }
    return {
        "path": as_uri(file.path),
        "partitionValues": {"topic": file.topic, "date": file.date},
        "size": file.bytes,
        "modificationTime": now_ms,
        "dataChange": True,
        "stats": json.dumps(stats),
        "tags": {
            "topics.checksum": file.checksum,
            "topics.incarnation": file.incarnation,
            "topics.first_seq": str(file.first_seq),
            "topics.last_seq": str(file.last_seq),
            "topics.misfits": str(file.misfits),
        },
    }


def _moment(ts_ms: int) -> str:
    """Return a time in the form of Delta's statistics: milliseconds, UTC."""
    text = pa.scalar(ts_ms, pa.timestamp("ms")).cast(pa.string()).as_py()
    return f"{text.replace(' ', 'T')}Z"


def _part_file(add: Mapping[str, Any]) -> PartFile:
    stats = json.loads(add.get("stats") or "{}")
    tags = _as_dict(add.get("tags"))
    values = _as_dict(add.get("partitionValues"))
    low, high = stats.get("minValues", {}), stats.get("maxValues", {})
    return PartFile(
        from_uri(add["path"]),
        values["topic"],
        tags.get("topics.incarnation", ""),
        values["date"],
        int(stats.get("numRecords", -1)),
        int(tags.get("topics.first_seq", low.get("seq", 0))),
        int(tags.get("topics.last_seq", high.get("seq", 0))),
        0,
        0,
        int(add["size"]),
        tags.get("topics.checksum", ""),
        {},
        int(tags.get("topics.misfits", 0)),
    )


def _as_dict(value: Any) -> dict[str, str]:
    return dict(value) if value else {}


def _for_parquet(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of the checkpoint, with maps as lists of pairs.

    Members that the schema below lacks are left out.
    """
    return {kind: {key: list(value.items()) if isinstance(value, dict) and key in _MAPS else value
                   for key, value in body.items() if key in _KEPT[kind]} for kind, body in row.items()}  # fmt: skip


_TEXTS = pa.map_(pa.string(), pa.string())
_MAPS = ("partitionValues", "tags", "configuration")
_CHECKPOINT_SCHEMA = pa.schema(
    {
        "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
        "add": pa.struct(
            {
                "path": pa.string(),
                "partitionValues": _TEXTS,
                "size": pa.int64(),
                "modificationTime": pa.int64(),
                "dataChange": pa.bool_(),
                "stats": pa.string(),
                "tags": _TEXTS,
            }
        ),
        "remove": pa.struct(
            {
                "path": pa.string(),
                "deletionTimestamp": pa.int64(),
                "dataChange": pa.bool_(),
                "extendedFileMetadata": pa.bool_(),
                "partitionValues": _TEXTS,
                "size": pa.int64(),
            }
        ),
        "metaData": pa.struct(
            {
                "id": pa.string(),
                "name": pa.string(),
                "description": pa.string(),
                "format": pa.struct({"provider": pa.string(), "options": _TEXTS}),
                "schemaString": pa.string(),
                "partitionColumns": pa.list_(pa.string()),
                "configuration": _TEXTS,
                "createdTime": pa.int64(),
            }
        ),
        "protocol": pa.struct({"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()}),
    }
)
_KEPT = {one.name: {inner.name for inner in one.type} for one in _CHECKPOINT_SCHEMA}
