"""`topics`: an append-only event log for one machine.

`open` a directory (docs/guides/embedded.md), or `connect` to a server (docs/guides/client.md).
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
    NoAnswerError,
    NoLogFileError,
    NotCreatedError,
    OutcomeUnknown,
    RequestError,
    StorageError,
    TopicsError,
    UsageError,
    WouldBlockError,
)

if TYPE_CHECKING:
    from topics.client.async_client import AsyncClient, connect_async
    from topics.client.async_reader import AsyncClientReader
    from topics.client.client_options import ClientSettings
    from topics.client.sent_soon import ClientPending
    from topics.client.sync_client import Client, connect
    from topics.client.sync_reader import ClientReader
    from topics.common.any_log import AnyAsyncLog, AnyAsyncReader, AnyLog, AnyOpening, AnyPending, AnyReader
    from topics.common.opening_reader import OpeningReader
    from topics.common.settings import Delivery, Guarantee, LogSettings, TopicSettings
    from topics.common.values.answers import (
        AckResult,
        AppendResult,
        Attempt,
        DeleteResult,
        DeleteTopicResult,
        ExtendResult,
        FailedJob,
        PatchResult,
        PutResult,
        QueueState,
        ReaderLag,
        ReaderState,
        RedriveResult,
        RouterDeleted,
        RouterPut,
        RouterState,
        Tombstone,
        TopicHead,
        TopicState,
    )
    from topics.common.values.backup_result import BackupResult
    from topics.common.values.begin import From, FromLast, FromTime
    from topics.common.values.configs import Predicate, TopicConfig
    from topics.common.values.delivered import GapError, Job, Page, Record
    from topics.common.values.written import NewRecord, Producer
    from topics.common.work import AsyncWorkJob, WorkJob
    from topics.embedded.aio import AsyncLog
    from topics.embedded.appends.pending import Pending
    from topics.embedded.backup_calls import VerifiedBackup, verify_backup
    from topics.embedded.fsck_call import fsck
    from topics.embedded.log import Log
    from topics.embedded.log_reader import AsyncLogReader, LogReader
    from topics.embedded.opening import open_log
    from topics.embedded.restore_call import Restored, restore
    from topics.engine.read.column_read import ColumnPage
    from topics.engine.read.one_record import Location
    from topics.engine.stored_engine import LogStats
    from topics.store.repair.check_files import FsckReport

__version__ = "0.1.0"
__all__ = [
    "AckResult",
    "AnyAsyncLog",
    "AnyAsyncReader",
    "AnyLog",
    "AnyOpening",
    "AnyPending",
    "AnyReader",
    "AppendResult",
    "AsyncClient",
    "AsyncClientReader",
    "AsyncLog",
    "AsyncLogReader",
    "AsyncWorkJob",
    "Attempt",
    "BackupResult",
    "Client",
    "ClientPending",
    "ClientReader",
    "ClientSettings",
    "ColumnPage",
    "CorruptError",
    "DeleteResult",
    "DeleteTopicResult",
    "Delivery",
    "DiskFullError",
    "ExtendResult",
    "FailedJob",
    "FormatError",
    "From",
    "FromLast",
    "FromTime",
    "FsckReport",
    "GapError",
    "Guarantee",
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
    "NoAnswerError",
    "NoLogFileError",
    "NotCreatedError",
    "OpeningReader",
    "OutcomeUnknown",
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
    "RedriveResult",
    "RequestError",
    "Restored",
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
    "VerifiedBackup",
    "WorkJob",
    "WouldBlockError",
    "connect",
    "connect_async",
    "fsck",
    "open",
    "restore",
    "verify_backup",
]

_LAZY = {
    "connect_async": ("topics.client.async_client", "connect_async"),
    "AsyncClient": ("topics.client.async_client", "AsyncClient"),
    "AsyncClientReader": ("topics.client.async_reader", "AsyncClientReader"),
    "connect": ("topics.client.sync_client", "connect"),
    "Client": ("topics.client.sync_client", "Client"),
    "ClientReader": ("topics.client.sync_reader", "ClientReader"),
    "ClientSettings": ("topics.client.client_options", "ClientSettings"),
    "AnyAsyncLog": ("topics.common.any_log", "AnyAsyncLog"),
    "AnyAsyncReader": ("topics.common.any_log", "AnyAsyncReader"),
    "AnyLog": ("topics.common.any_log", "AnyLog"),
    "AnyOpening": ("topics.common.any_log", "AnyOpening"),
    "AnyPending": ("topics.common.any_log", "AnyPending"),
    "ClientPending": ("topics.client.sent_soon", "ClientPending"),
    "WorkJob": ("topics.common.work", "WorkJob"),
    "AsyncWorkJob": ("topics.common.work", "AsyncWorkJob"),
    "AnyReader": ("topics.common.any_log", "AnyReader"),
    "open": ("topics.embedded.opening", "open_log"),
    "BackupResult": ("topics.common.values.backup_result", "BackupResult"),
    "restore": ("topics.embedded.restore_call", "restore"),
    "Restored": ("topics.embedded.restore_call", "Restored"),
    "verify_backup": ("topics.embedded.backup_calls", "verify_backup"),
    "VerifiedBackup": ("topics.embedded.backup_calls", "VerifiedBackup"),
    "fsck": ("topics.embedded.fsck_call", "fsck"),
    "FsckReport": ("topics.store.repair.check_files", "FsckReport"),
    "LogStats": ("topics.engine.stored_engine", "LogStats"),
    "Log": ("topics.embedded.log", "Log"),
    "LogReader": ("topics.embedded.log_reader", "LogReader"),
    "AsyncLogReader": ("topics.embedded.log_reader", "AsyncLogReader"),
    "ReaderLag": ("topics.common.values.answers", "ReaderLag"),
    "ReaderState": ("topics.common.values.answers", "ReaderState"),
    "RedriveResult": ("topics.common.values.answers", "RedriveResult"),
    "Job": ("topics.common.values.delivered", "Job"),
    "GapError": ("topics.common.values.delivered", "GapError"),
    "Page": ("topics.common.values.delivered", "Page"),
    "Pending": ("topics.embedded.appends.pending", "Pending"),
    "Producer": ("topics.common.values.written", "Producer"),
    "Record": ("topics.common.values.delivered", "Record"),
    "Location": ("topics.engine.read.one_record", "Location"),
    "NewRecord": ("topics.common.values.written", "NewRecord"),
    "TopicHead": ("topics.common.values.answers", "TopicHead"),
    "AckResult": ("topics.common.values.answers", "AckResult"),
    "AppendResult": ("topics.common.values.answers", "AppendResult"),
    "AsyncLog": ("topics.embedded.aio", "AsyncLog"),
    "ColumnPage": ("topics.engine.read.column_read", "ColumnPage"),
    "DeleteResult": ("topics.common.values.answers", "DeleteResult"),
    "DeleteTopicResult": ("topics.common.values.answers", "DeleteTopicResult"),
    "Attempt": ("topics.common.values.answers", "Attempt"),
    "FailedJob": ("topics.common.values.answers", "FailedJob"),
    "ExtendResult": ("topics.common.values.answers", "ExtendResult"),
    "LogSettings": ("topics.common.settings", "LogSettings"),
    "OpeningReader": ("topics.common.opening_reader", "OpeningReader"),
    "PatchResult": ("topics.common.values.answers", "PatchResult"),
    "Predicate": ("topics.common.values.configs", "Predicate"),
    "PutResult": ("topics.common.values.answers", "PutResult"),
    "QueueState": ("topics.common.values.answers", "QueueState"),
    "RouterDeleted": ("topics.common.values.answers", "RouterDeleted"),
    "RouterPut": ("topics.common.values.answers", "RouterPut"),
    "RouterState": ("topics.common.values.answers", "RouterState"),
    "Tombstone": ("topics.common.values.answers", "Tombstone"),
    "TopicConfig": ("topics.common.values.configs", "TopicConfig"),
    "Delivery": ("topics.common.settings", "Delivery"),
    "From": ("topics.common.values.begin", "From"),
    "FromLast": ("topics.common.values.begin", "FromLast"),
    "FromTime": ("topics.common.values.begin", "FromTime"),
    "Guarantee": ("topics.common.settings", "Guarantee"),
    "TopicSettings": ("topics.common.settings", "TopicSettings"),
    "TopicState": ("topics.common.values.answers", "TopicState"),
}
"""Names that are imported on first use.

Every module of the package imports this one, and most of them do not need the whole engine.
"""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'topics' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - a program that uses none of them loads none

    module, attribute = _LAZY[name]
    try:
        found = import_module(module)
    except ModuleNotFoundError as error:
        from topics.common.extras import engine_missing, is_engine_missing  # noqa: PLC0415 - nor who meets no error

        if module.startswith("topics.client") or not is_engine_missing(error):
            raise
        raise ImportError(engine_missing(f"topics.{name}", error), name=error.name) from error
    value = getattr(found, attribute)
    globals()[name] = value
    return value


if TYPE_CHECKING:
    open = open_log
    _same_calls: tuple[type[AnyLog], type[AnyLog]] = (Log, Client)
    _same_awaited_calls: tuple[type[AnyAsyncLog], type[AnyAsyncLog]] = (AsyncLog, AsyncClient)
    """A log and a client have the same methods: an error of mypy if they do not."""
