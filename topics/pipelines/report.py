"""Reports: the results of a run as values for JSON, and the exit code that they imply."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from topics.files import Loss

WELL, WRONG, COULD_NOT_RUN = 0, 1, 2
"""Exit codes, equal to those of `topics fsck`."""

LISTED_MAX = 1000
"""Entries of one list of a report at most; the count next to it covers all."""


@dataclass
class Report:
    """The part of a report that all pipelines share."""

    pipeline: ClassVar[str]

    seconds: float = field(default=0.0, kw_only=True)

    @property
    def exit_code(self) -> int:
        """Return WELL, or WRONG if the run found an error."""
        return WELL

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {"pipeline": self.pipeline, "exit_code": self.exit_code, **asdict(self)}

    def summary(self) -> str:
        """Return the result in one sentence, for people."""
        raise NotImplementedError


def encoded(report: Report) -> str:
    """Return the report as indented JSON in ASCII.

    Paths need not be UTF-8, and stdout may have any encoding.
    """
    return json.dumps(report.as_json(), indent=1)


def loss_as_json(loss: Loss) -> dict[str, Any]:
    """Return a loss in the form of a report."""
    return {"topic": loss.topic, "from_seq": loss.from_seq, "to_seq": loss.to_seq, "reason": loss.reason}


def loss_sentence(loss: Loss) -> str:
    """Return a loss in the words of the Spark source, so that one search finds both."""
    return f"TOPICS_DATA_LOSS topic={loss.topic} seq {loss.from_seq}..{loss.to_seq} reason={loss.reason}"


def count(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun, as "1 file" or "2,000 files"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
