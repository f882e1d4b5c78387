"""Options of the source and the sink: one table, and the frozen values parsed by it.

`parse_source` and `parse_sink` refuse unknown names, malformed values and contradictions with one
sentence each. Spark passes option names in lower case, so names are compared without case.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from topics.common.values.near_names import nearest
from topics.spark.errors import OptionError
from topics.spark.schema import BYTES, COLUMNS, LOSS, META

BATCH, STREAM, SINK = "batch reads", "streams", "the sink"
SOURCE: Final = frozenset((BATCH, STREAM))
EVERY: Final = frozenset((BATCH, STREAM, SINK))

EARLIEST, LATEST = -2, -1
"""Numbers in place of the words, as in Kafka's connector."""
SEQ_MAX = 2**63 - 1
EPOCH_MAX = 2**63 - 1
PRODUCER_ID_BYTES_MAX = 256
PAGE_SIZE_MAX = 1000
PARTITIONS_MAX = 100_000
"""With more tasks, Spark's driver needs minutes and gigabytes."""
WAIT_MS_MAX = 30_000
WAIT_SLACK_MS = 1000
"""How much longer than its wait a request may take."""
TARGET_BYTES_MIN = 64 << 10
"""Lower bound of `targetBytes`: the task of a smaller partition costs more than its reading.

`maxRecordsPerPartition` can make smaller partitions nevertheless.
"""
FAIL, SKIP, ROWS = "fail", "skip", "rows"


@dataclass(frozen=True, slots=True)
class Option:
    """A row of the table.

    parse: (name, text) -> value; raises OptionError.
    uses: the kinds of reads and writes that take the option.
    """

    name: str
    parse: Callable[[str, str], Any]
    default: Any
    uses: frozenset[str]
    help: str


def _text(name: str, value: str) -> str:
    if not value.strip():
        raise OptionError(f"option {name} is empty: give it a value or leave it out")
    return value.strip()


def _bool(name: str, value: str) -> bool:
    if value.strip().lower() not in ("true", "false"):
        raise OptionError(f"option {name} must be true or false, not {value!r}")
    return value.strip().lower() == "true"


def _integer(low: int, high: int) -> Callable[[str, str], int]:
    def parse(name: str, value: str) -> int:
        text = value.strip()
        if not re.fullmatch(r"[0-9]{1,19}", text) or not low <= int(text) <= high:
            raise OptionError(f"option {name} must be a whole number from {low} to {high}, not {value!r}")
        return int(text)

    return parse


def _one_of(*words: str) -> Callable[[str, str], str]:
    def parse(name: str, value: str) -> str:
        if value.strip().lower() not in words:
            raise OptionError(f"option {name} must be one of {', '.join(words)}, not {value!r}")
        return value.strip().lower()

    return parse


def _names(name: str, value: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in value.split(","))
    if not all(names):
        raise OptionError(f"option {name} must be names separated by commas, not {value!r}")
    doubled = {one for one in names if names.count(one) > 1}
    if doubled:
        raise OptionError(f"option {name} names {min(doubled)!r} twice: name it once")
    return names


def _columns(name: str, value: str) -> tuple[str, ...]:
    columns = _names(name, value)
    for column in columns:
        if column not in COLUMNS:
            raise OptionError(f"option {name} names {column!r}: the columns are {', '.join(COLUMNS)}")
    return columns


def _tags(name: str, value: str) -> tuple[str, ...]:
    """Parse tags between commas, or a JSON array: for tags with a comma or a bracket in front."""
    if not value.strip().startswith("["):
        return _names(name, value)
    try:
        tags = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise OptionError(
            f'option {name} is not a JSON array ({error}): write tags separated by commas, or as ["a"]'
        ) from None
    if not isinstance(tags, list) or not tags or not all(isinstance(tag, str) for tag in tags):
        raise OptionError(f"option {name} must be tags separated by commas, or a JSON array of strings, not {value!r}")
    return tuple(tags)


def _pattern(name: str, value: str) -> re.Pattern[str]:
    try:
        return re.compile(_text(name, value))
    except (re.error, OverflowError, RecursionError) as error:
        raise OptionError(f"option {name} is not a regular expression ({error}): correct {value[:100]!r}") from None


@dataclass(frozen=True, slots=True)
class Places:
    """Where a read begins or ends.

    word: EARLIEST or LATEST for all topics, or None.
    by_topic: else a seq for each topic, or EARLIEST or LATEST.
    """

    word: int | None
    by_topic: Mapping[str, int] = field(default_factory=dict)


def _places(name: str, value: str) -> Places:
    words = {"earliest": EARLIEST, "latest": LATEST}
    text = value.strip()
    if text.lower() in words:
        return Places(words[text.lower()])
    example = 'like {"orders": 17}, with the first seq to read, -2 for earliest and -1 for latest'
    if name == "endingOffsets":
        example = 'like {"orders": 17}, with the first seq not to read any more, and -1 for latest'
    try:
        places = json.loads(text, object_pairs_hook=lambda pairs: _named_once(name, pairs))
    except (ValueError, RecursionError) as error:
        raise OptionError(f"option {name} is neither a word nor JSON ({error}): write {example}") from None
    if not isinstance(places, dict):
        raise OptionError(f"option {name} must be earliest, latest or an object {example}; not {value!r}")
    for topic, seq in places.items():
        if type(seq) is not int or not (seq in (EARLIEST, LATEST) or 1 <= seq <= SEQ_MAX):
            raise OptionError(
                f"option {name} gives {json.dumps(seq)} for topic {topic!r}: write a seq from 1 on, {example}"
            )
    return Places(None, places)


def _named_once(name: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen = dict(pairs)
    if len(seen) != len(pairs):
        raise OptionError(f"option {name} names a topic twice: name it once")
    return seen


def _url(name: str, value: str) -> str:
    text = value.strip().rstrip("/")
    try:
        parts = urlsplit(text)
        port = parts.port
        (parts.hostname or "").encode("idna")
    except ValueError:
        raise OptionError(f"option {name} is not an address: write one like http://127.0.0.1:4000") from None
    if parts.username is not None or parts.password is not None:
        raise OptionError(f"option {name} must hold no user and no password: give the key by the option token")
    if parts.query or parts.fragment:
        raise OptionError(f"option {name} must end before '?' and '#': give a key by the option token")
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or not re.fullmatch(r"\S+", text):
        raise OptionError(f"option {name} must be like http://127.0.0.1:4000, not {text!r}")
    return text


def _token(name: str, value: str) -> str:
    return checked_token(value, f"option {name}")


def checked_token(value: str, where: str) -> str:
    """Return the key without the blanks around it. No error message contains it.

    where: words of a message for the place of the key. Raises: OptionError.
    """
    token = value.strip()
    if not re.fullmatch(r"[\x21-\x7e]+", token):
        raise OptionError(f"{where} must hold one key of visible ASCII characters: it is empty or holds others")
    return token


def _producer_id(name: str, value: str) -> str:
    if not 1 <= len(value.encode()) <= PRODUCER_ID_BYTES_MAX:
        raise OptionError(f"option {name} must have 1 to {PRODUCER_ID_BYTES_MAX} bytes of UTF-8")
    return value


_COUNT = _integer(1, SEQ_MAX)
_MS = _integer(0, 2**53)

TABLE: Final = (
    Option("url", _url, None, EVERY, "the server, like http://127.0.0.1:4000"),
    Option("path", _text, None, SOURCE, "the data directory, read without a server"),
    Option("coldPath", _text, None, SOURCE, "its cold directory, if it has one"),
    Option("token", _token, None, EVERY, "a key of the server"),
    Option("tokenFile", _text, None, EVERY, "a file with the key, on every machine that reads or writes"),
    Option("subscribe", _names, None, SOURCE, "topics, separated by commas"),
    Option("subscribePattern", _pattern, None, SOURCE, "a regular expression of whole names"),
    Option(
        "startingOffsets", _places, None, SOURCE, "`earliest`, `latest`, or JSON: the first seq to read of each topic"
    ),
    Option(
        "endingOffsets", _places, Places(LATEST), frozenset((BATCH,)), "`latest`, or JSON: the first seq not to read"
    ),
    Option(
        "startingTimestamp", _MS, None, SOURCE, "ms: from the first record of this time or later; overrides offsets"
    ),
    Option("endingTimestamp", _MS, None, frozenset((BATCH,)), "ms: up to the first record of this time or later"),
    Option("failOnDataLoss", _bool, True, SOURCE, "Kafka's name for `onDataLoss`: `fail`, or `skip` when false"),
    Option("onDataLoss", _one_of(FAIL, SKIP, ROWS), None, SOURCE, "`fail`, `skip`, or `rows`: a row for each loss"),
    Option("maxOffsetsPerTrigger", _COUNT, None, frozenset((STREAM,)), "seqs a batch, split over the topics"),
    Option(
        "minPartitions",
        _integer(1, PARTITIONS_MAX),
        1,
        SOURCE,
        "at least this many partitions, if there are as many records",
    ),
    Option("maxRecordsPerPartition", _COUNT, None, SOURCE, "at most this many seqs a partition"),
    Option(
        "targetBytes",
        _integer(TARGET_BYTES_MIN, SEQ_MAX),
        64 << 20,
        SOURCE,
        "small segments are grouped into partitions of this size",
    ),
    Option("columns", _columns, None, SOURCE, "the columns to read"),
    Option("includeMeta", _bool, False, SOURCE, "adds the column `meta`"),
    Option("verify", _bool, True, SOURCE, "checks the checksum of each record read from files"),
    Option("waitMs", _integer(0, WAIT_MS_MAX), 5000, frozenset((STREAM,)), "how long a stream without news waits"),
    Option("pageSize", _integer(1, PAGE_SIZE_MAX), 1000, SOURCE, "records a request"),
    Option("retries", _integer(0, 1000), 10, EVERY, "how many times a request is tried again"),
    Option(
        "retryIntervalMs", _integer(1, 600_000), 200, EVERY, "the pause before the first retry; it doubles, up to 5 s"
    ),
    Option("timeoutMs", _integer(1, 3_600_000), 40_000, EVERY, "how long one request may take"),
    Option("tagIn", _tags, None, SOURCE, "only records with one of these tags: separated by commas, or a JSON array"),
    Option("topic", _text, None, frozenset((SINK,)), "the topic of all rows; overrides the column"),
    Option(
        "producerId", _producer_id, None, frozenset((SINK,)), "for batch writes: the id of the writer; with `epoch`"
    ),
    Option(
        "epoch", _integer(0, EPOCH_MAX), None, frozenset((SINK,)), "for batch writes: which write of the producer it is"
    ),
    Option(
        "create", _bool, None, frozenset((SINK,)), "whether an absent topic is created; by default, the server's rule"
    ),
    Option(
        "allowWeak", _bool, False, frozenset((SINK,)), "lets a stream write to topics of class `memory` and `ephemeral`"
    ),
)
_BY_NAME: Final = {option.name.lower(): option for option in TABLE}

SPARKS_OWN: Final = frozenset(("checkpointlocation", "queryname", "outputmode"))
"""Options of Spark itself, which it passes to sources and sinks, too."""

HINTS: Final = {
    "kafka.bootstrap.servers": "url",
    "assign": "subscribe",
    "includeheaders": "includeMeta",
    "startingoffsetsbytimestamp": "startingTimestamp",
    "endingoffsetsbytimestamp": "endingTimestamp",
    "minoffsetspertrigger": "maxOffsetsPerTrigger",
    "kafkaconsumer.polltimeoutms": "timeoutMs",
    "fetchoffset.numretries": "retries",
    "fetchoffset.retryintervalms": "retryIntervalMs",
}
"""Names of options of Kafka's connector -> the option to use here."""


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """A server's address, key, retries and timeout. `repr` shows neither the key nor its file."""

    url: str
    token: str | None = field(repr=False)
    token_file: str | None = field(repr=False)
    retries: int
    retry_interval_ms: int
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Options of a read.

    connection or path is set, or both; exactly one of subscribe and pattern is set.
    """

    connection: ServerAddress | None
    path: str | None
    cold_path: str | None
    subscribe: tuple[str, ...]
    pattern: re.Pattern[str] | None
    starting: Places
    ending: Places
    starting_ms: int | None
    ending_ms: int | None
    on_loss: str
    max_offsets: int | None
    min_partitions: int
    max_records: int | None
    target_bytes: int
    columns: tuple[str, ...]
    verify: bool
    wait_ms: int
    page_size: int
    tags: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Options of a write. producer_id and epoch are both set, or both None."""

    connection: ServerAddress
    topic: str | None
    producer_id: str | None
    epoch: int | None
    create: bool | None
    allow_weak: bool


def parse_source(raw: Mapping[str, str], use: str) -> SourceOptions:
    """Return the options of a read; use: BATCH or STREAM. Raises: OptionError."""
    given = _parsed(raw, use)
    values = _with_defaults(given)
    if values["url"] is None and values["path"] is None:
        raise OptionError("neither url nor path is given: set url to a server, path to a data directory, or both")
    if values["coldPath"] is not None and values["path"] is None:
        raise OptionError("option coldPath is given without path: set path to the data directory it belongs to")
    if (values["subscribe"] is None) == (values["subscribePattern"] is None):
        both = "both are" if values["subscribe"] else "neither is"
        raise OptionError(f"exactly one of subscribe and subscribePattern is needed, and {both} given")
    return SourceOptions(
        connection=_connection(values),
        path=values["path"],
        cold_path=values["coldPath"],
        subscribe=values["subscribe"] or (),
        pattern=values["subscribePattern"],
        starting=_starting(values, use),
        ending=_ending(values),
        starting_ms=values["startingTimestamp"],
        ending_ms=values["endingTimestamp"],
        on_loss=(on_loss := _on_loss(given)),
        max_offsets=values["maxOffsetsPerTrigger"],
        min_partitions=values["minPartitions"],
        max_records=values["maxRecordsPerPartition"],
        target_bytes=values["targetBytes"],
        columns=_chosen_columns(given, on_loss),
        verify=values["verify"],
        wait_ms=_wait_ms(values),
        page_size=values["pageSize"],
        tags=values["tagIn"],
    )


def parse_columns(raw: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns of a read, either batch or stream. Raises: OptionError."""
    given = _parsed(raw, None)
    return _chosen_columns(given, _on_loss(given))


def parse_sink(raw: Mapping[str, str]) -> SinkOptions:
    """Return the options of a write. Raises: OptionError."""
    values = _with_defaults(_parsed(raw, SINK))
    connection = _connection(values)
    if connection is None:
        raise OptionError("the sink writes through a server: set url")
    if (values["producerId"] is None) != (values["epoch"] is None):
        raise OptionError("options producerId and epoch go together: give both, or none")
    return SinkOptions(
        connection, values["topic"], values["producerId"], values["epoch"], values["create"], values["allowWeak"]
    )


def _parsed(raw: Mapping[str, str], use: str | None) -> dict[str, Any]:
    """Return the values given, by the names of the table.

    use: the use that an option must be for; None accepts any. Raises: OptionError.
    """
    given: dict[str, Any] = {}
    for key, text in raw.items():
        name = key.lower()
        if name in SPARKS_OWN:
            continue
        option = _BY_NAME.get(name)
        if option is None:
            raise OptionError(f"unknown option {key}{_nearest(name)}")
        if use is not None and use not in option.uses:
            raise OptionError(
                f"option {option.name} is for {' and '.join(sorted(option.uses))}, not for {use}: leave it out"
            )
        given[option.name] = option.parse(option.name, text)
    return given


def _nearest(name: str) -> str:
    if name in HINTS:
        return f": use {HINTS[name]} here"
    near = nearest(name, _BY_NAME)
    return f": did you mean {_BY_NAME[near].name}?" if near else ": docs/guides/spark.md lists the options"


def _with_defaults(given: Mapping[str, Any]) -> dict[str, Any]:
    return {option.name: given.get(option.name, option.default) for option in TABLE}


def _connection(values: Mapping[str, Any]) -> ServerAddress | None:
    token, token_file = values["token"], values["tokenFile"]
    if token is not None and token_file is not None:
        raise OptionError("options token and tokenFile are both given: keep one")
    if values["url"] is None:
        if token is not None or token_file is not None:
            raise OptionError("a key is given without url, and files ask for none: set url or leave the key out")
        return None
    return ServerAddress(
        values["url"], token, token_file, values["retries"], values["retryIntervalMs"], values["timeoutMs"]
    )


def _wait_ms(values: Mapping[str, Any]) -> int:
    if values["url"] is not None and values["waitMs"] + WAIT_SLACK_MS > values["timeoutMs"]:
        raise OptionError(
            f"timeoutMs={values['timeoutMs']} must be at least waitMs + {WAIT_SLACK_MS}, which is "
            f"{values['waitMs'] + WAIT_SLACK_MS}: raise it, or lower waitMs"
        )
    return int(values["waitMs"])


def _starting(values: Mapping[str, Any], use: str) -> Places:
    places: Places | None = values["startingOffsets"]
    if places is None:
        return Places(LATEST if use == STREAM else EARLIEST)
    if use == BATCH and (places.word == LATEST or LATEST in places.by_topic.values()):
        raise OptionError("startingOffsets=latest leaves a batch nothing to read: use earliest or a seq")
    _only_subscribed("startingOffsets", places, values)
    return places


def _ending(values: Mapping[str, Any]) -> Places:
    places: Places = values["endingOffsets"]
    if places.word == EARLIEST or EARLIEST in places.by_topic.values():
        raise OptionError("endingOffsets=earliest leaves a batch nothing to read: use latest or a seq")
    _only_subscribed("endingOffsets", places, values)
    return places


def _only_subscribed(name: str, places: Places, values: Mapping[str, Any]) -> None:
    subscribe: tuple[str, ...] | None = values["subscribe"]
    if subscribe is None:
        for topic in places.by_topic:
            if not values["subscribePattern"].fullmatch(topic):
                raise OptionError(f"option {name} names topic {topic!r}, which subscribePattern does not: correct one")
        return
    if places.word is not None:
        return
    for topic in places.by_topic:
        if topic not in subscribe:
            raise OptionError(f"option {name} names topic {topic!r}, which subscribe does not: add it there")
    for topic in subscribe:
        if topic not in places.by_topic:
            word = "-1 for latest" if name == "endingOffsets" else "-2 for earliest"
            raise OptionError(f"option {name} does not name topic {topic!r}: give it a seq, or {word}")


def _on_loss(given: Mapping[str, Any]) -> str:
    fails: bool | None = given.get("failOnDataLoss")
    chosen: str | None = given.get("onDataLoss")
    if chosen is None:
        return SKIP if fails is False else FAIL
    if fails is not None and fails != (chosen == FAIL):
        raise OptionError(
            f"failOnDataLoss={str(fails).lower()} contradicts onDataLoss={chosen}: leave failOnDataLoss out"
        )
    return chosen


def _chosen_columns(given: Mapping[str, Any], on_loss: str) -> tuple[str, ...]:
    columns: tuple[str, ...] | None = given.get("columns")
    with_meta: bool | None = given.get("includeMeta")
    if columns is None:
        left_out = {BYTES} | (set() if with_meta else {META}) | ({LOSS} if on_loss != ROWS else set())
        return tuple(name for name in COLUMNS if name not in left_out)
    if with_meta is not None and with_meta != (META in columns):
        raise OptionError(
            f"includeMeta={str(with_meta).lower()} contradicts columns={','.join(columns)}: leave includeMeta out"
        )
    if (LOSS in columns) != (on_loss == ROWS):
        raise OptionError("the column loss and onDataLoss=rows go together: give both, or none")
    return columns
