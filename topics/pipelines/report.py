"""Reports: what a run did, as values that become JSON, and the exit code that follows from them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from topics.files import Loss

WELL, WRONG, COULD_NOT_RUN = 0, 1, 2
"""Exit codes, as of `topics fsck`."""

LISTED_MAX = 1000
"""Most entries of one list of a report; the count beside it is of all."""


@dataclass
class Report:
    """The part of a report that all pipelines have."""

    pipeline: ClassVar[str]

    seconds: float = field(default=0.0, kw_only=True)

    @property
    def exit_code(self) -> int:
        """WELL, or WRONG when something wrong was found."""
        return WELL

    def as_json(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {"pipeline": self.pipeline, "exit_code": self.exit_code, **asdict(self)}

    def summary(self) -> str:
        """The result in one sentence, for people."""
        raise NotImplementedError


def encoded(report: Report) -> str:
    """Return the report as indented JSON in ASCII: paths need not be UTF-8, and stdout may have any encoding."""
    return json.dumps(report.as_json(), indent=1)


def loss_as_json(loss: Loss) -> dict[str, Any]:
    """Return a loss as a report has it."""
    return {"topic": loss.topic, "from_seq": loss.from_seq, "to_seq": loss.to_seq, "reason": loss.reason}


def loss_sentence(loss: Loss) -> str:
    """Return a loss in the words of the Spark source, so that one search finds both."""
    return f"TOPICS_DATA_LOSS topic={loss.topic} seq {loss.from_seq}..{loss.to_seq} reason={loss.reason}"


def count(number: int, noun: str, plural: str = "") -> str:
    """Return "1 file", "2,000 files"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
