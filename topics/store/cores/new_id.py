"""An id of its own for a copy of a data directory of several cores.

Core directories of the two are not mixed up then: each refuses those of the other one.
"""

from __future__ import annotations

import msgspec

from topics.loop.loop import Loop
from topics.store.cores.core_directories import CoreDirectories, read_cores
from topics.store.cores.slot_map_file import ID_BYTES, write_slot_map
from topics.store.disk.directory_format import Marker
from topics.store.disk.whole_files import read_file, replace_file
from topics.store.layouts.directory_names import MARKER_NAME


async def draw_new_id(loop: Loop, path: str) -> CoreDirectories:
    """Give a copy, which nothing uses yet, an id; return its layout.

    Raises: the errors of `read_cores`; OSError.
    """
    files = loop.files
    found = await read_cores(files, path)
    assert found is not None, "it has a slot map"
    stored = found.stored._replace(id=loop.random_bytes(ID_BYTES), generation=found.stored.generation + 1)
    for directory in (path, *map(found.path_of, range(stored.slots.cores))):
        place = f"{directory}/{MARKER_NAME}"
        marker = msgspec.json.decode(await read_file(files, place), type=Marker)
        await replace_file(files, place, msgspec.json.encode(msgspec.structs.replace(marker, of=stored.id.hex())))
    await write_slot_map(files, path, stored)
    return found._replace(stored=stored, damage=[])
