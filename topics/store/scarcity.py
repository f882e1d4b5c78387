"""A checkpoint on a full disk: it needs little space and gives back as much as it can.

An ordinary one begins a new log file and copies all live records before anything is freed; one that ran out of space
half-way would leave nothing for its own snapshot, and none could follow. With no space for that, the log goes on in the
file it is in, and only so many of its oldest files are emptied as what lives in them can be copied: after deletes that
is nothing, and the files are free at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from topics.store.catalog import Catalog
from topics.store.filetable import FileTable, StoredFile


def live_rows(table: FileTable) -> int:
    """Of all files. On a full disk it only falls; a checkpoint is worth another attempt when it has."""
    return sum(file.live_rows for file in table)


def affordable(catalog: Catalog, left: Iterable[StoredFile], budget: int) -> list[StoredFile]:
    """Of each shard's log files, oldest first, those whose live records are at most `budget` bytes together.

    Always the first files of a shard: what is replayed begins with a file and goes on to the log's end.
    """
    files = sorted(left, key=lambda file: file.path)
    ids = np.array(sorted(file.file_id for file in files), np.uint32)
    live: Counter[int] = Counter()
    for topic_id in catalog.topics_in_log():
        for rows in catalog.rows_in_files(topic_id, ids):
            live[rows.file_id] += int(rows.lengths.sum(dtype=np.int64))
    chosen: list[StoredFile] = []
    ended: set[str] = set()
    for file in files:
        shard = file.path.rpartition("/")[0]
        if shard in ended:
            continue
        if live[file.file_id] > budget:
            ended.add(shard)
            continue
        budget -= live[file.file_id]
        chosen.append(file)
    return chosen
