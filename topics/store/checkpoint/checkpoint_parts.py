"""The parts of a store that its checkpoints work with, each built before the checkpoints are."""

from __future__ import annotations

from typing import NamedTuple

from topics.config import Config
from topics.loop.loop import Loop
from topics.store.disk.directory_format import DirectoryFormat
from topics.store.disk.open_files import OpenFiles
from topics.store.format.catalog import CheckpointCatalog
from topics.store.format.file_table import FileTable
from topics.store.read.reader import Reader
from topics.store.segments.manifest import Manifest
from topics.store.wal.sharded_log import ShardedLog


class CheckpointParts(NamedTuple):
    """The parts that a checkpoint reads or changes."""

    loop: Loop
    config: Config
    wal: ShardedLog
    reader: Reader
    table: FileTable
    opener: OpenFiles
    catalog: CheckpointCatalog
    manifest: Manifest
    directory_format: DirectoryFormat
