"""`topics fsck`: compares every checksum of a data directory, and names damage by place and record.

`--rebuild` keeps everything that is sound. Exit codes: 0 sound; 1 damage was found, or is left
after a rebuild; 2 the check could not run, because the directory is in use, missing, or not one of
this package.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from topics.config import Config
from topics.errors import UsageError
from topics.store.repair.check_directory import FsckReport, check_directory
from topics.store.repair.verify_directory import Damage

SOUND, DAMAGED, CANNOT_LOOK = 0, 1, 2


def check(config: Config, *, mend: bool) -> FsckReport:
    """Check config.data_dir, see `check_directory`. The errors name the options."""
    try:
        return check_directory(config, mend=mend)
    except UsageError as error:
        raise UsageError(f"{error}: name one with --data-dir or TOPICS_DATA_DIR") from None


def exit_code(outcome: FsckReport) -> int:
    return SOUND if outcome.sound else DAMAGED


def lines(outcome: FsckReport) -> Iterator[str]:
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


def verdict(outcome: FsckReport) -> str:
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


def as_json(outcome: FsckReport) -> bytes:
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
