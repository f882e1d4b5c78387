"""The calls of a client as requests: arguments checked, as the library checks them.

Raises: UsageError or RequestError for bad arguments.
"""

from topics.client.server_calls.append_calls import append, append_encoded, append_texts
from topics.client.server_calls.checkpoint_calls import backup_progress, begin_backup, checkpoint
from topics.client.server_calls.job_calls import ClientDeadLetters, ack, claim, extend, nack
from topics.client.server_calls.named_reader_calls import (
    commit,
    delete_reader,
    put_reader,
    read_reader,
    reader_state,
    readers,
    release,
    seek,
)
from topics.client.server_calls.read_calls import ClientReads, beginning, get, page
from topics.client.server_calls.request_parts import MAX_LIMIT, MAX_WAIT_MS
from topics.client.server_calls.router_calls import delete_router, put_router, router, router_names
from topics.client.server_calls.topic_calls import (
    delete,
    delete_topic,
    patch_topic,
    put_topic,
    state,
    topic_names,
    wait,
)

__all__ = [
    "MAX_LIMIT",
    "MAX_WAIT_MS",
    "ClientDeadLetters",
    "ClientReads",
    "ack",
    "append",
    "append_encoded",
    "append_texts",
    "backup_progress",
    "begin_backup",
    "beginning",
    "checkpoint",
    "claim",
    "commit",
    "delete",
    "delete_reader",
    "delete_router",
    "delete_topic",
    "extend",
    "get",
    "nack",
    "page",
    "patch_topic",
    "put_reader",
    "put_router",
    "put_topic",
    "read_reader",
    "reader_state",
    "readers",
    "release",
    "router",
    "router_names",
    "seek",
    "state",
    "topic_names",
    "wait",
]
