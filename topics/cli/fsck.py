"""`topics fsck`: compares every checksum of a data directory, and names damage by place and record.

`--rebuild` keeps everything that is sound. Exit codes: 0 sound; 1 damage was found, or is left
after a rebuild; 2 the check could not run, because the directory is in use, missing, or not one of
this package.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import msgspec

from topics.clock import SystemClock
from topics.config import Config
from topics.errors import LockedError, StorageError, UsageError
from topics.loop.choose import open_ring
from topics.loop.loop import Loop
from topics.loop.ring import Ring
from topics.store.disk.data_directory import TakenDirectory, refuse_links, take
from topics.store.repair.rebuild import Rebuilt, rebuild
from topics.store.repair.verify_directory import Damage, VerifyReport, verify

SOUND, DAMAGED, CANNOT_LOOK = 0, 1, 2

_SIGNS = frozenset(("topics.json", "snapshots", "topics", "packs", "wal"))
"""Names in a data directory: a directory with none of them is not one."""


class Outcome(msgspec.Struct):
    """The output of `topics fsck --json`: the last check, and the rebuild before it, if any."""

    data_dir: str
    report: VerifyReport
    rebuilt: Rebuilt | None = None
    damage: list[Damage] = []
    """Findings of the first check, if a rebuild followed it."""

    @property
    def exit_code(self) -> int:
        return SOUND if self.report.sound else DAMAGED


def check(config: Config, *, mend: bool) -> Outcome:
    """Check config.data_dir under its lock; with `mend`, rebuild it if damaged, and check again.

    Raises: UsageError if it is no data directory; LockedError while a server uses it; OSError.
    """
    refuse_missing(config.data_dir)
    ring, _ = open_ring(config, shared=False)
    loop = Loop(ring, SystemClock())
    try:
        taken = _take(ring, config)
        try:
            first = loop.run_task(verify(loop, config.data_dir, config.cold_dir))
            if first.sound or not mend:
                return Outcome(config.data_dir, first)
            for directory in filter(None, (config.data_dir, config.cold_dir)):
                refuse_links(directory)
            result = loop.run_task(rebuild(loop, config.data_dir, config.cold_dir))
            again = loop.run_task(verify(loop, config.data_dir, config.cold_dir))
            return Outcome(config.data_dir, again, result, first.findings)
        finally:
            taken.release()
    finally:
        loop.close()


def _take(ring: Ring, config: Config) -> TakenDirectory:
    try:
        return take(ring, config)
    except LockedError as error:
        raise LockedError(f"{error}, then check again") from error


def refuse_missing(path: str) -> None:
    """Raise UsageError unless `path` is a data directory. It is not created.

    Raises: StorageError if it cannot be listed.
    """
    try:
        names = os.listdir(path)
    except FileNotFoundError:
        raise UsageError(f"data directory {path} does not exist: name it with --data-dir or TOPICS_DATA_DIR") from None
    except OSError as error:
        raise StorageError(f"data directory {path} is not usable: {error.strerror}") from error
    if not _SIGNS.intersection(names):
        raise UsageError(f"{path} is not a data directory of topics: name one with --data-dir or TOPICS_DATA_DIR")


def lines(outcome: Outcome) -> Iterator[str]:
    """Yield the outcome as lines for people."""
    report, names = outcome.report, outcome.report.names
    for finding in outcome.damage:
        yield f"damage: {describe(finding, names)}"
    if outcome.rebuilt is not None:
        yield (
            f"rebuilt: {outcome.rebuilt.topics} topics, {outcome.rebuilt.records} records in segments and packs, "
            f"snapshot {outcome.rebuilt.snapshot}"
        )
        for path in outcome.rebuilt.set_aside:
            yield f"set aside: {path}"
    for note in report.notes:
        yield f"note: {note}"
    for finding in report.findings:
        yield f"{'still damaged' if outcome.rebuilt else 'damage'}: {describe(finding, names)}"
    yield (
        f"{outcome.data_dir}: {report.snapshots} snapshots, {report.segments} segments, {report.packs} packs, "
        f"{report.records} records, {report.log_batches} batches of log read; {verdict(outcome)}"
    )


def verdict(outcome: Outcome) -> str:
    """Return the result and what to do about it, as a clause without a full stop."""
    findings = outcome.report.findings
    if not findings:
        return "all sound"
    if all(finding.is_index for finding in findings):
        return f"{len(findings)} damaged, all in indexes and flags: no record is lost"
    if outcome.rebuilt is not None:
        return f"{len(findings)} damaged places are left"
    return (
        f"{len(findings)} damaged; copy the directory, then `topics fsck --rebuild` keeps all that is sound "
        "and sets damaged files aside"
    )


def describe(finding: Damage, names: dict[int, str]) -> str:
    """Return a line: path, offset, topic and seq as far as they are known, and what is wrong.

    names: of topics, by id.
    """
    parts = [finding.path]
    if finding.offset >= 0:
        parts.append(f"offset {finding.offset}")
    if finding.topic_id >= 0:
        name = names.get(finding.topic_id)
        parts.append(f"topic {name}" if name else f"topic number {finding.topic_id:x}")
    if finding.seq >= 0:
        parts.append(f"seq {finding.seq}")
    message = finding.message.removeprefix(f"{finding.path}: ")
    return f"{', '.join(parts)}: {message}"


def as_json(outcome: Outcome) -> bytes:
    """Return the outcome as a JSON object; offset, topic_id and seq are null if unknown."""
    fields: dict[str, Any] = msgspec.to_builtins(outcome, str_keys=True)
    names = outcome.report.names
    for finding in (*fields["report"]["findings"], *fields["damage"]):
        for key in ("offset", "topic_id", "seq"):
            if finding[key] < 0:
                finding[key] = None
        finding["topic"] = names.get(finding["topic_id"])
    del fields["report"]["names"]
    return msgspec.json.encode({"sound": outcome.report.sound, **fields})
