"""The log's view of what is synced is true: its next commit, headers of batches and a replay rely
on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.sim.whole.monitors.listed import find
from tests.sim.world.sim_file import SimFile
from topics.store.format.log_format import BATCH_ALIGN, WAL_FIRST_BATCH_OFFSET

if TYPE_CHECKING:
    from tests.sim.world.sim_disk import SimDirectory


def unsynced_too_much(log: Any) -> str:
    """Return the excess of acknowledged and unsynced bytes over the bound (R-DUR-18); "" if there
    is none.
    """
    bound = log._config.max_unsynced_bytes
    unsynced = sum(shard._batches.unsynced_bytes for shard in log.shards)
    return f"{unsynced} bytes are not synced" if bound and unsynced > bound + len(log.shards) else ""


def claimed_too_much(root: SimDirectory, log: Any) -> str:
    """Return the fault of the file that a shard of a log
    (`topics.store.wal.sharded_log.ShardedLog`) writes to; "" if there is none.

    The padding after the last batch is not compared: a large batch leaves the bytes of an earlier
    use of the file there, and the write of the next one puts zeros in their place.
    """
    for shard in log.shards if not log.read_only else ():
        current = shard._end.file
        if current is None or shard._batches.unsynced or current.position == WAL_FIRST_BATCH_OFFSET:
            continue
        path, end = current.stored.path, current.position
        file = find(root, path, durable=False)
        if not isinstance(file, SimFile) or not any(c.data is not None and c.offset < end for c in file.pending):
            continue
        batches = end - (BATCH_ALIGN - 1)
        if file.durable[:batches] != file.live[:batches]:
            return f"{path}, of which not all {end} bytes are durable"
    return ""
