"""Copies a file with reads and writes of the ring, four pieces at a time, and makes the copy durable.

Run: python -m examples.loop.file_copy SOURCE TARGET
"""

from __future__ import annotations

import os
import sys

from topics.clock import SystemClock
from topics.config import Config
from topics.loop import Loop
from topics.loop.choose import open_ring

PIECE_BYTES = 1 << 20
WORKERS = 4


async def copy(loop: Loop, source: str, target: str) -> int:
    """Bytes copied. The target appears under its name only when it is complete and on stable storage."""
    files = loop.files
    size = files.file_size(source)
    temporary = target + ".part"
    reading = await files.open(source, os.O_RDONLY)
    writing = await files.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    offsets = iter(range(0, size, PIECE_BYTES))

    async def work() -> None:
        for offset in offsets:  # shared: a free worker takes the next piece
            piece = await files.read(reading, PIECE_BYTES, offset)
            await files.write_all(writing, piece, offset)

    for worker in [loop.spawn(work(), f"worker {number}") for number in range(WORKERS)]:
        await worker
    await files.fsync(writing)
    await files.close(writing)
    await files.close(reading)
    await files.rename(temporary, target)
    await files.sync_directory(os.path.dirname(os.path.abspath(target)))
    return size


def main(source: str, target: str) -> None:
    ring, _ = open_ring(Config(), shared=False)
    loop = Loop(ring, SystemClock())
    try:
        size = loop.run_task(copy(loop, source, target))
    finally:
        loop.close()
    print(f"{size} bytes, {loop.stats().passes} passes")


if __name__ == "__main__":
    main(*sys.argv[1:3])
