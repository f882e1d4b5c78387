"""`topics fsck`: compares every checksum of a data directory, and names damage by place and record.

`--rebuild` keeps everything that is sound. Exit codes: 0 sound; 1 damage was found, or is left
after a rebuild; 2 the check could not run, because the directory is in use, missing, or not one of
this package.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from topics.cli.output.printer import count_text
from topics.config import Config
from topics.errors import UsageError
from topics.store.backup.free_places import check_places
from topics.store.repair.check_directory import check_directory
from topics.store.repair.check_files import FsckReport

SOUND, DAMAGED = 0, 1


def check(config: Config, *, mend: bool) -> FsckReport:
    """Check config.data_dir, see `check_directory`. The errors name the options."""
    if mend:
        check_places(config)
    try:
        return check_directory(config, mend=mend)
    except UsageError as error:
        raise UsageError(f"{error}: name one with --data-dir or TOPICS_DATA_DIR") from None


def exit_code(outcome: FsckReport) -> int:
    return SOUND if outcome.sound else DAMAGED


def lines(outcome: FsckReport) -> Iterator[str]:
    """Yield the outcome as lines for people."""
    report = outcome.report
    for finding in outcome.damage:
        yield f"damage: {report.describe(finding)}"
    for each in outcome.cores or [outcome]:
        if each.rebuilt is not None:
            yield (
                f"rebuilt{f' {each.data_dir}' if outcome.cores else ''}: {count_text(each.rebuilt.topics, 'topic')}, "
                f"{count_text(each.rebuilt.records, 'record')} in segments and packs, snapshot {each.rebuilt.snapshot}"
            )
    if outcome.rebuilt is not None:
        for path in outcome.rebuilt.set_aside:
            yield f"set aside: {path}"
    for note in report.notes:
        yield f"note: {note}"
    for finding in report.findings:
        yield f"{'still damaged' if outcome.rebuilt else 'damage'}: {report.describe(finding)}"
    kept = (
        count_text(report.snapshots, "snapshot"),
        count_text(report.segments, "segment"),
        count_text(report.packs, "pack"),
        count_text(report.records, "record"),
    )
    batches = f"{report.log_batches} {'batch' if report.log_batches == 1 else 'batches'} of log"
    log_records = count_text(report.log_records, "record")
    cores = f"{len(outcome.cores)} cores, " if outcome.cores else ""
    yield f"{outcome.data_dir}: {cores}{', '.join(kept)}, {batches} with {log_records} read; {verdict(outcome)}"


def verdict(outcome: FsckReport) -> str:
    """Return the result and what to do about it, as a clause without a full stop."""
    findings = outcome.report.findings
    if not findings:
        return "all sound"
    if all(finding.is_index for finding in findings):
        return f"{len(findings)} damaged, all in indexes and flags: no record is lost"
    if outcome.by_hand == len(findings):
        return (
            f"{len(findings)} damaged, between cores, which a rebuild leaves as it is: each line ends with its remedy"
        )
    if outcome.rebuilt is not None:
        return f"{count_text(len(findings), 'damaged place')} {'is' if len(findings) == 1 else 'are'} left"
    if outcome.newer:
        return f"{len(findings)} damaged; a rebuild refuses what this version cannot read: {outcome.newer}"
    return (
        f"{len(findings)} damaged; copy the directory, then `topics fsck --rebuild` keeps all that is sound "
        "and sets damaged files aside"
    )


def as_json(outcome: FsckReport) -> bytes:
    """Return the outcome as a JSON object; offset, topic_id and seq are null if unknown."""
    return msgspec.json.encode(_fields_of(outcome))


def _fields_of(outcome: FsckReport) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(outcome, str_keys=True)
    names = outcome.report.names
    for finding in (*fields["report"]["findings"], *fields["damage"]):
        for key in ("offset", "topic_id", "seq"):
            if finding[key] < 0:
                finding[key] = None
        finding["topic"] = names.get(finding["topic_id"])
    del fields["report"]["names"]
    del fields["cores"], fields["by_hand"]
    if outcome.cores:
        fields["cores"] = [_fields_of(core) for core in outcome.cores]
    return {"sound": outcome.report.sound, **fields}
