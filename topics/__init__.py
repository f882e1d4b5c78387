"""`topics`: an append-only event log for one machine.

The embedded API: see docs/guides/embedded.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from topics.errors import (
    CorruptError,
    DiskFullError,
    FormatError,
    LockedError,
    LogFailedError,
    LogReadOnlyError,
    RequestError,
    StorageError,
    TopicsError,
    UsageError,
    WouldBlockError,
)

if TYPE_CHECKING:
    from topics.common.settings import LogSettings, TopicSettings
    from topics.embedded.aio import AsyncLog
    from topics.embedded.appends.pending import Pending
    from topics.embedded.directory_calls import fsck
    from topics.embedded.jobs import Job
    from topics.embedded.log import Log
    from topics.embedded.log_reader import AsyncLogReader, LogReader, OpeningReader, ReaderLag
    from topics.embedded.opening import open_log
    from topics.embedded.producer import Producer
    from topics.embedded.records import GapError, Page, Record
    from topics.engine.queue.queue_results import AckResult, ExtendResult
    from topics.engine.read.column_read import ColumnPage
    from topics.engine.read.one_record import Location
    from topics.engine.readers.reader_results import ReaderState
    from topics.engine.routers.router_results import RouterDeleted, RouterPut, RouterState
    from topics.engine.stored_engine import LogStats
    from topics.engine.values.predicate import Predicate
    from topics.engine.values.results import (
        AppendResult,
        DeleteResult,
        DeleteTopicResult,
        PatchResult,
        PutResult,
        QueueState,
        Tombstone,
        TopicHead,
        TopicState,
    )
    from topics.engine.values.topic_config import TopicConfig
    from topics.engine.write.value_rows import NewRecord
    from topics.store.repair.check_directory import FsckReport

__version__ = "0.1.0"
__all__ = [
    "AckResult",
    "AppendResult",
    "AsyncLog",
    "AsyncLogReader",
    "ColumnPage",
    "CorruptError",
    "DeleteResult",
    "DeleteTopicResult",
    "DiskFullError",
    "ExtendResult",
    "FormatError",
    "FsckReport",
    "GapError",
    "Job",
    "Location",
    "LockedError",
    "Log",
    "LogFailedError",
    "LogReadOnlyError",
    "LogReader",
    "LogSettings",
    "LogStats",
    "NewRecord",
    "OpeningReader",
    "Page",
    "PatchResult",
    "Pending",
    "Predicate",
    "Producer",
    "PutResult",
    "QueueState",
    "ReaderLag",
    "ReaderState",
    "Record",
    "RequestError",
    "RouterDeleted",
    "RouterPut",
    "RouterState",
    "StorageError",
    "Tombstone",
    "TopicConfig",
    "TopicHead",
    "TopicSettings",
    "TopicState",
    "TopicsError",
    "UsageError",
    "WouldBlockError",
    "fsck",
    "open",
]

_LAZY = {
    "open": ("topics.embedded.opening", "open_log"),
    "fsck": ("topics.embedded.directory_calls", "fsck"),
    "FsckReport": ("topics.store.repair.check_directory", "FsckReport"),
    "LogStats": ("topics.engine.stored_engine", "LogStats"),
    "Log": ("topics.embedded.log", "Log"),
    "LogReader": ("topics.embedded.log_reader", "LogReader"),
    "AsyncLogReader": ("topics.embedded.log_reader", "AsyncLogReader"),
    "ReaderLag": ("topics.embedded.log_reader", "ReaderLag"),
    "ReaderState": ("topics.engine.readers.reader_results", "ReaderState"),
    "Job": ("topics.embedded.jobs", "Job"),
    "GapError": ("topics.embedded.records", "GapError"),
    "Page": ("topics.embedded.records", "Page"),
    "Pending": ("topics.embedded.appends.pending", "Pending"),
    "Producer": ("topics.embedded.producer", "Producer"),
    "Record": ("topics.embedded.records", "Record"),
    "Location": ("topics.engine.read.one_record", "Location"),
    "NewRecord": ("topics.engine.write.value_rows", "NewRecord"),
    "TopicHead": ("topics.engine.values.results", "TopicHead"),
    "AckResult": ("topics.engine.queue.queue_results", "AckResult"),
    "AppendResult": ("topics.engine.values.results", "AppendResult"),
    "AsyncLog": ("topics.embedded.aio", "AsyncLog"),
    "ColumnPage": ("topics.engine.read.column_read", "ColumnPage"),
    "DeleteResult": ("topics.engine.values.results", "DeleteResult"),
    "DeleteTopicResult": ("topics.engine.values.results", "DeleteTopicResult"),
    "ExtendResult": ("topics.engine.queue.queue_results", "ExtendResult"),
    "LogSettings": ("topics.common.settings", "LogSettings"),
    "OpeningReader": ("topics.embedded.log_reader", "OpeningReader"),
    "PatchResult": ("topics.engine.values.results", "PatchResult"),
    "Predicate": ("topics.engine.values.predicate", "Predicate"),
    "PutResult": ("topics.engine.values.results", "PutResult"),
    "QueueState": ("topics.engine.values.results", "QueueState"),
    "RouterDeleted": ("topics.engine.routers.router_results", "RouterDeleted"),
    "RouterPut": ("topics.engine.routers.router_results", "RouterPut"),
    "RouterState": ("topics.engine.routers.router_results", "RouterState"),
    "Tombstone": ("topics.engine.values.results", "Tombstone"),
    "TopicConfig": ("topics.engine.values.topic_config", "TopicConfig"),
    "TopicSettings": ("topics.common.settings", "TopicSettings"),
    "TopicState": ("topics.engine.values.results", "TopicState"),
}
"""Names that are imported on first use.

Every module of the package imports this one, and most of them do not need the whole engine.
"""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'topics' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - only who asks for one of them pays

    module, attribute = _LAZY[name]
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value


if TYPE_CHECKING:
    open = open_log
