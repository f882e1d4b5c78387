"""The records that `topics.files` shows of a directory: those that its newest snapshot lists,
without the log.

R-CHK-1 states when all acknowledged records are among them.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from tests.files.sim_calls import SimCalls
from tests.sim.whole.clients.payloads import text_of
from tests.sim.world.sim_disk import SimDisk
from tests.sim.world.sim_file import SimFile
from topics.config import Config
from topics.files import Loss, open_directory, read_pieces
from topics.store.layouts.directory_names import MARKER_NAME


class Shown(NamedTuple):
    """One topic, as files show it."""

    topic_id: int
    rows: dict[int, bytes]
    """The text (JSON) of the live records in segments and packs, by seq."""


def shown(disk: SimDisk, config: Config) -> tuple[int, dict[str, Shown]]:
    """Return (number of the newest snapshot, its topics by name)."""
    directory = open_directory(config.data_dir, config.cold_dir or None, calls=_AsOfOneCore(lambda: disk))
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


class _AsOfOneCore(SimCalls):
    """Calls that show the marker of a core directory as that of a directory of one core, which
    `topics.files` would refuse otherwise: what is below it is the same.
    """

    def open(self, path: str) -> int:
        fd = super().open(path)
        if path.endswith(f"/{MARKER_NAME}"):
            _path, node, disk = self._open[fd]
            node.opens -= 1
            self._open[fd] = path, _of_one_core(node), disk
        return fd


def _of_one_core(node: SimFile) -> SimFile:
    marker: dict[str, Any] = json.loads(bytes(node.live))
    file = SimFile()
    file.links = file.opens = 1
    file.live[:] = json.dumps({name: value for name, value in marker.items() if name != "core"} | {"cores": 1}).encode()
    return file
