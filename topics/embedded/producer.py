"""`topics.Producer`: the name of a part, for writes that may be sent again much later."""

from __future__ import annotations

from dataclasses import dataclass

from topics.config import Config
from topics.embedded import arguments
from topics.engine.state.producer_part import EPOCH_MAX, PART_MAX, PIECE_MAX, Part, check_attempt, check_id
from topics.errors import UsageError


@dataclass(frozen=True, slots=True)
class Producer:
    """Name of a part of a producer's records; see docs/guides/producers.md.

    A write with the same name and the same records appends nothing, even much later, and answers as
    the first one.
    """

    id: str
    """Id of the producer: a job, a stream."""
    epoch: int
    """Number that grows from run to run, or from batch to batch; 0 to 2^63-1."""
    part: int = 0
    """Number of the part in its epoch; 0 to 65535."""
    piece: int = 0
    """Number of the piece in its part, if that comes in several calls: 0, 1, 2, ... to 65535."""
    last: bool = True
    """Whether this is the last piece. Readers see no piece before the last one is there."""
    attempt: str = ""
    """Name of one attempt at sending the pieces."""


def part_of(given: object, limits: Config) -> Part | None:
    """Return the part that a producer names, or None.

    Raises: UsageError if a field is wrong; RequestError if an id is too long.
    """
    if given is None:
        return None
    if not isinstance(given, Producer):
        raise UsageError(f"producer is {arguments.shown(given)}: use topics.Producer(id, epoch, part)")
    producer_id = arguments.encoded("producer.id", given.id)
    check_id(producer_id, limits)
    arguments.count("producer.epoch", given.epoch, EPOCH_MAX)
    arguments.count("producer.part", given.part, PART_MAX)
    arguments.count("producer.piece", given.piece, PIECE_MAX)
    arguments.flag("producer.last", given.last)
    attempt = arguments.encoded("producer.attempt", given.attempt)
    check_attempt(attempt, limits)
    return Part(producer_id, given.epoch, given.part, given.piece, given.last, attempt)
