"""The records that `topics.files` shows of a directory: those that its newest snapshot lists,
without the log.

R-CHK-1 states when all acknowledged records are among them.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from tests.files.sim_calls import SimCalls
from tests.sim.whole.clients.payloads import text_of
from tests.sim.world.sim_disk import SimDisk
from topics.config import Config
from topics.files import Loss, open_directory, read_pieces


class Shown(NamedTuple):
    """One topic, as files show it."""

    topic_id: int
    rows: dict[int, bytes]
    """The text (JSON) of the live records in segments and packs, by seq."""


def shown(disk: SimDisk, config: Config) -> tuple[int, dict[str, Shown]]:
    """Return (number of the newest snapshot, its topics by name)."""
    directory = open_directory(config.data_dir, config.cold_dir or None, calls=SimCalls(lambda: disk))
    topics = {}
    for name, topic in directory.topics.items():
        pieces = [piece for piece in topic.sections(1, topic.head) if not isinstance(piece, Loss)]
        rows: dict[int, bytes] = {}
        columns = ["seq", "data", "bytes"]
        for batch in read_pieces(directory.location, pieces, columns=columns, calls=directory.calls):
            assert not isinstance(batch, Loss), "nothing moves while it is read"
            for row in batch.to_pylist():
                data = json.loads(row["data"]) if row["bytes"] is None else row["bytes"]
                rows[row["seq"]] = json.dumps(text_of(data)).encode()
        topics[name] = Shown(topic.id, rows)
    return directory.snapshot, topics
