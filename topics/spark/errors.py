"""Errors of the Spark connector.

    TopicsError
    ├── UsageError
    │   └── OptionError    an option is unknown, malformed or contradicts another one
    ├── DataLossError      records inside the range were lost, and `onDataLoss` is `fail`
    ├── RowError           a row given to the sink cannot become a record
    ├── BytesRowError      a record of bytes, and the option `columns` lacks their column
    └── ServerError        the server refused a request, or gave no answer

Spark keeps the text of an exception and drops its class. So each message is one sentence that
states the problem and the remedy. The message of a loss begins with the word TOPICS_DATA_LOSS, so
that programs can find it.
"""

from __future__ import annotations

from typing import Any

from topics.errors import TopicsError, UsageError

LOSS_WORD = "TOPICS_DATA_LOSS"


class OptionError(UsageError):
    """An option, a column or the environment is wrong; the message names the remedy."""


class DataLossError(TopicsError):
    """Records between two seqs, both included, were lost before the query read them."""

    def __init__(self, topic: str, from_seq: int, to_seq: int, reason: str) -> None:
        super().__init__(
            f"{LOSS_WORD} topic={topic} seq {from_seq}..{to_seq} reason={reason}: these records were lost before "
            "they were read; set onDataLoss=skip to continue without them, or onDataLoss=rows for a row for each loss"
        )
        self.topic = topic
        self.from_seq = from_seq
        self.to_seq = to_seq
        self.reason = reason


class RowError(TopicsError):
    """A row given to the sink cannot become a record."""


class BytesRowError(TopicsError):
    """A record is bytes, which the column `data` cannot hold, and `bytes` was not asked for."""

    def __init__(self, topic: str, seq: int) -> None:
        super().__init__(
            f"record {seq} of topic {topic} is bytes, which the column data cannot hold: name the column bytes in the "
            "option columns, too, like columns=seq,data,bytes (it is null for JSON, as data is for bytes)"
        )


class ServerError(TopicsError):
    """The server refused a request, or did not answer.

    status: the HTTP status, 0 without an answer.
    code, detail: as in docs/contract.md, "3.2 Errors".
    said: the message of the server.
    """

    def __init__(
        self, message: str, status: int = 0, code: str = "", detail: dict[str, Any] | None = None, said: str = ""
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.detail = detail or {}
        self.said = said
