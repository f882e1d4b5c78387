"""`topics fsck`: every checksum of a data directory, damage named by place and record; `--rebuild` keeps the rest.

Exit codes: 0 sound, 1 damage found (or left behind by a rebuild), 2 could not look: in use, missing, not ours.
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
"""A directory with none of these holds nothing of ours."""


class Outcome(msgspec.Struct):
    """What `topics fsck --json` prints: the last look at the directory, and what a rebuild did before it."""

    data_dir: str
    report: VerifyReport
    rebuilt: Rebuilt | None = None
    damage: list[Damage] = []
    """What the first look found, when a rebuild followed."""

    @property
    def exit_code(self) -> int:
        return SOUND if self.report.sound else DAMAGED


def check(config: Config, *, mend: bool) -> Outcome:
    """Looks at config.data_dir under its lock; with `mend` rebuilds a damaged one and looks again.

    Raises: UsageError when there is nothing to look at, LockedError while a server has it, OSError.
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
    """Raises UsageError unless `path` is a directory that holds something of ours. Makes nothing."""
    try:
        names = os.listdir(path)
    except FileNotFoundError:
        raise UsageError(f"data directory {path} does not exist: name it with --data-dir or TOPICS_DATA_DIR") from None
    except OSError as error:
        raise StorageError(f"data directory {path} is not usable: {error.strerror}") from error
    if not _SIGNS.intersection(names):
        raise UsageError(f"{path} is not a data directory of topics: name one with --data-dir or TOPICS_DATA_DIR")


def lines(outcome: Outcome) -> Iterator[str]:
    """The outcome for people."""
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
    """What to do about it, in half a sentence."""
    findings = outcome.report.findings
    if not findings:
        return "all sound"
    if all(finding.is_index for finding in findings):
        return f"{len(findings)} damaged, all of it indexes and flags, by which nothing is lost"
    if outcome.rebuilt is not None:
        return f"{len(findings)} damaged places are left"
    return (
        f"{len(findings)} damaged; copy the directory, then `topics fsck --rebuild` keeps all that is sound "
        "and sets damaged files aside"
    )


def describe(finding: Damage, names: dict[int, str]) -> str:
    """Path, offset, topic and seq as far as they are known, then what is wrong."""
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
    """One object; offset, topic_id and seq are null where they are not known."""
    fields: dict[str, Any] = msgspec.to_builtins(outcome, str_keys=True)
    names = outcome.report.names
    for finding in (*fields["report"]["findings"], *fields["damage"]):
        for key in ("offset", "topic_id", "seq"):
            if finding[key] < 0:
                finding[key] = None
        finding["topic"] = names.get(finding["topic_id"])
    del fields["report"]["names"]
    return msgspec.json.encode({"sound": outcome.report.sound, **fields})
