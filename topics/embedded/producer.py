"""The part that a `topics.Producer` names, checked for the engine."""

from __future__ import annotations

from topics.common.values import arguments
from topics.common.values.written import Producer
from topics.config import Config
from topics.engine.state.producer_part import EPOCH_MAX, PART_MAX, PIECE_MAX, Part, check_attempt, check_id
from topics.errors import UsageError


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
    epoch = arguments.count("producer.epoch", given.epoch, EPOCH_MAX)
    part = arguments.count("producer.part", given.part, PART_MAX)
    piece = arguments.count("producer.piece", given.piece, PIECE_MAX)
    arguments.flag("producer.last", given.last)
    attempt = arguments.encoded("producer.attempt", given.attempt)
    check_attempt(attempt, limits)
    return Part(producer_id, epoch, part, piece, given.last, attempt)
