"""Defects that the code has had, restored one by one: compare_hunts.py searches them like the
mutants.

Each is restored in its smallest part; the number is that of the commit that mended it.
"""

from __future__ import annotations

from tests.sim.mutations import Mutant


def _one(commit: str, name: str, path: str, text: str, instead: str) -> Mutant:
    return Mutant(f"{name} ({commit})", ((path, text, instead),))


PUT_BACK = (
    _one(
        "65a0a5c",
        "a snapshot that was prepared in part is taken",
        "engine/recovery/engine_checkpoints.py",
        "        prepared = PreparedSnapshot()\n",
        "        prepared = self._prepared = PreparedSnapshot()\n",
    ),
    _one(
        "01837d8",
        "the tail of a shard that is used no more not synced",
        "store/store_start.py",
        "                await replay.sync_tail()\n                continue\n",
        "                continue\n",
    ),
    _one(
        "e3b3dec",
        "a spare log file gets its old number back",
        "store/recovery/log_survey.py",
        "            last = max(last, spare_number or 0)",
        "            last = max(last, 0)",
    ),
    _one(
        "136639c",
        "a replay begins in a file that a later one took over from",
        "store/store_start.py",
        "            stored.superseded = True\n",
        "",
    ),
    _one(
        "adf5925",
        "seqs that a failed write had taken given out again after a delete",
        "engine/recovery/engine_catalog.py",
        "            topic.found_taken(seq)\n",
        "",
    ),
    _one(
        "adf5925",
        "a floor above the head",
        "engine/write/delete.py",
        "    upto = min(upto, topic.head)",
        "    upto = upto",
    ),
    _one(
        "a55fbb2",
        "keys that a restart forgot are back",
        "engine/recovery/engine_catalog.py",
        "if topic is not None and first_seq > topic.keys_forgotten:\n            topic.key_store()",
        "if topic is not None:\n            topic.key_store()",
    ),
    _one(
        "d261108",
        "a checkpoint that finds no next log file takes the one there is away",
        "store/wal/shard.py",
        "        self._end.cancel_rotation()\n",
        "",
    ),
)
