"""Records of a file into a topic, with new seqs or with those of the file."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import msgspec

import topics
from topics.cli.commands.input_records import InputForm, StoredLines, lines_as_they_come, record_of
from topics.cli.commands.topic_export import FORMAT
from topics.cli.commands.topic_state import state_if_there
from topics.errors import RequestError, TopicsError, UsageError

if TYPE_CHECKING:
    from topics.common.any_log import AnyLog

_BATCH_RECORDS, _BATCH_BYTES = 1000, 512 << 10
_FORMS = ("record", "json", "text")
_LIMITS = ("ttl_ms", "cap_records", "cap_bytes")
"""Settings that take records away: they hold once all records are there."""
_UNCLAIMABLE_MS = 86_400_000
"""A delay that outlasts an import, so that no worker gets a job that stands for a missing seq."""


class ImportResult(NamedTuple):
    """records: those of the file; head_seq: the topic's head after them."""

    records: int
    head_seq: int
    created: bool


class TopicImport:
    """One import. With seqs kept, what is missing in the file is written and deleted again."""

    def __init__(self, log: AnyLog, topic: str, form: str, *, keep_seqs: bool, max_missing: int = 0) -> None:
        """Raises: UsageError.

        max_missing: most seqs that may be missing in a row where seqs are kept.
        """
        if form not in _FORMS:
            raise UsageError(f"--as is {form!r}: use one of {', '.join(_FORMS)}")
        if keep_seqs and form != "record":
            raise UsageError(f"--keep-seqs needs lines with seqs, and --as {form} has none: use --as record")
        self._log, self._topic = log, topic
        self._form = InputForm.of(form, None, None, None)
        self._keep_seqs = keep_seqs
        self._max_missing = max_missing
        self._batch: list[Any] = []
        self._bytes = 0
        self._line = 0
        """The line of the last record of the batch."""
        self.stored = StoredLines()
        self._result = ImportResult(0, 0, False)
        self._next_seq = 1
        self._filler = f"topics-import-{secrets.token_hex(8)}"
        """Tag of the records that stand for missing seqs."""
        self._filled = False
        self._is_ours = False
        """Whether the topic was not there before."""
        self._is_queue = False
        self._limits: dict[str, Any] = {}

    def run(self, source: IO[bytes], advance: Callable[[int], None]) -> ImportResult:
        """Append all. `stored` says what was, also after an error.

        Raises: UsageError, which names a line; RequestError.
        """
        try:
            return self._run(source, advance)
        except BaseException:
            with suppress(TopicsError):
                self._finish()
                if self._keep_seqs and self._is_ours and not self.stored.records:
                    self._log.delete_topic(self._topic, if_empty=True)
            raise

    def _run(self, source: IO[bytes], advance: Callable[[int], None]) -> ImportResult:
        state = state_if_there(self._log, self._topic)
        if self._keep_seqs and state is not None:
            raise RequestError(
                "topic_exists",
                f"topic {self._topic!r} is there, with seqs up to {state.head_seq}: --keep-seqs needs a new topic, "
                "because routers, workers and readers would get what stands for missing seqs",
            )
        self._is_ours = state is None
        head, is_first = 0, True
        for lines in lines_as_they_come(source):
            for at, line in lines:
                may_begin = is_first and self._form.form == "record"
                is_first = False
                begun = self._begun(line, is_new=state is None) if may_begin else None
                if begun is not None:
                    head = begun
                    continue
                self._add(line, at)
                advance(1)
            self._flush()
        if self._keep_seqs and head >= self._next_seq:
            self._fill(head + 1, f"line 1 has head_seq {head}")
        self._flush()
        self._finish()
        after = state_if_there(self._log, self._topic)
        return self._result._replace(head_seq=0 if after is None else after.head_seq)

    def _begun(self, line: bytes, *, is_new: bool) -> int | None:
        """Create the topic by the first line of an export. Return its head; None: a record."""
        try:
            first = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError):
            return None
        if not isinstance(first, dict) or FORMAT not in first:
            return None
        if first[FORMAT] != 1:
            raise UsageError(
                f"line 1 is of export version {first[FORMAT]!r}, and this build reads 1: use a newer build"
            )
        config, head = first.get("config"), first.get("head_seq")
        if not isinstance(config, dict) or type(head) is not int:
            raise UsageError("line 1 begins as an export, and has no config and head_seq: export the topic again")
        if is_new:
            self._limits = {name: config[name] for name in _LIMITS if config.get(name)}
            self._is_queue = config.get("type") == "queue"
            self._log.put_topic(self._topic, **{**config, **dict.fromkeys(self._limits, 0)})
            self._result = self._result._replace(created=True)
        return head

    def _add(self, line: bytes, at: int) -> None:
        what = f"line {at}"
        if self._form.form != "record":
            self._take(self._form.record(line, what), len(line), at)
            return
        try:
            value = msgspec.json.decode(line)
        except RecursionError:
            raise UsageError(f"{what} is nested too deeply: use a flatter value, or --as text") from None
        except msgspec.DecodeError:
            raise UsageError(f"{what} is no JSON: use a file of `topics export`, or --as text") from None
        record, seq = record_of(value, what)
        if self._keep_seqs:
            if seq is None:
                raise UsageError(f"{what} has no $seq: leave out --keep-seqs, or use a file of `topics export`")
            if seq < self._next_seq:
                raise UsageError(f"{what} has $seq {seq}, which is not above the one before it: sort the file by $seq")
            self._fill(seq, f"{what} has $seq {seq}")
        self._take(record, len(line), at)

    def _take(self, record: Any, size: int, at: int) -> None:
        self._batch.append(record)
        self._bytes, self._line = self._bytes + size, at
        self._next_seq += 1
        self._result = self._result._replace(records=self._result.records + 1)
        if len(self._batch) >= _BATCH_RECORDS or self._bytes >= _BATCH_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._batch:
            appended = self._log.append(self._topic, self._batch)
            self._result = self._result._replace(created=self._result.created or appended.created)
            self.stored = self.stored.and_then(self._line, appended)
            self._batch, self._bytes = [], 0

    def _fill(self, seq: int, where: str) -> None:
        """Write records that stand for the seqs below `seq` that are missing in the file.

        where: the clause that names the number, for the error that there are too many.
        """
        missing = seq - self._next_seq
        if missing > self._max_missing:
            raise UsageError(
                f"{where}, and {missing} seqs on the way there are missing, each of which is a write: raise "
                f"--max-missing ({self._max_missing}), or leave out --keep-seqs"
            )
        filler = topics.NewRecord(None, self._filler, delay_ms=_UNCLAIMABLE_MS if self._is_queue else 0)
        while self._next_seq < seq:
            self._flush()
            count = min(seq - self._next_seq, _BATCH_RECORDS)
            self._log.append(self._topic, [filler] * count)
            self._next_seq += count
            self._filled = True

    def _finish(self) -> None:
        """Delete what stands for missing seqs, and set the limits: once, also after an error."""
        filled, limits = self._filled, self._limits
        self._filled, self._limits = False, {}
        if filled:
            self._log.delete(self._topic, match=self._filler)
        if limits:
            self._log.patch_topic(self._topic, **limits)
