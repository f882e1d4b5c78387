"""Checks of callers' arguments on their own thread, so that no wrong type reaches the shared loop.

Every check raises UsageError naming the argument, the value given and the values it takes.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence, Set
from typing import Any

from topics.common.values.begin import FIRST, NOW, Begin
from topics.common.values.configs import Predicate
from topics.common.values.written import BYTES_TYPES, NewRecord
from topics.errors import UsageError

_U64_MAX = (1 << 64) - 1
_SECONDS_MAX = 1_000_000
_SHOWN_MAX = 60
_LISTS = (list, tuple)
_URL = re.compile(r"[a-z][a-z0-9+.-]*://|s3:/", re.IGNORECASE | re.ASCII)
"""The begin of a URL; a `Path` has joined the slashes of that of a bucket."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_INCARNATION = re.compile(r"[0-9a-f]{16}", re.ASCII)


def text(name: str, value: object) -> str:
    """Return a string as a plain one: encoders of JSON refuse a subclass (`numpy.str_`)."""
    if not isinstance(value, str):
        raise UsageError(f"is {shown(value)}: use a string", name)
    return value if type(value) is str else str.__str__(value)


def plain_setting(value: object) -> str | int | float:
    """Return a subclass of a string or number as a plain one. Raises: TypeError."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__index__(value)
    if isinstance(value, float):
        return float.__float__(value)
    raise TypeError(f"a setting is {shown(value)}: use a string, a number, True or False")


def is_decimal(text: str, digits: int = 20) -> bool:
    """Return whether a text is a number of ASCII digits, at most so many: by default as of a u64.

    Python reads no number of many thousands of digits, and those of other scripts are none here.
    """
    return text.isascii() and text.isdigit() and len(text) <= digits


def encoded(name: str, value: object) -> bytes:
    """Return a string as UTF-8."""
    try:
        return text(name, value).encode()
    except UnicodeEncodeError:
        raise UsageError(f"is {shown(value)}: use a string without lone surrogates", name) from None


def utf8_text(name: str, value: object) -> str:
    """Return a string that UTF-8 has as a plain one, see `text`."""
    return encoded(name, value).decode()


def optional_encoded(name: str, value: object) -> bytes | None:
    return None if value is None else encoded(name, value)


def path(given: object, name: str = "path") -> str:
    """Return the absolute path of a directory; a change of working directory does not matter.

    given: a string or an object that os.fspath takes.
    """
    if not isinstance(given, str | bytes | os.PathLike):
        raise UsageError(f"is {shown(given)}: use the path of a directory, as a string or a Path", name)
    found = os.fsdecode(given)
    if not found.strip() or "\0" in found:
        raise UsageError(f"is {shown(given)}: use the path of a directory", name)
    if url := _URL.match(found):
        is_bucket = url[0].lower().startswith("s3:")
        also = " (`topics copy-backup` copies a backup to a bucket and from one)" if is_bucket else ""
        raise UsageError(f"is {shown(given)}, which is on no disk: use the path of a directory{also}", name)
    return os.path.abspath(found)


def new_path(given: object, name: str) -> str:
    """Return what `path` does, for a directory that is to be made."""
    found = path(given, name)
    if _CONTROL.search(found):
        said = "which has a control character, such as the end of a line: use a path without"
        raise UsageError(f"is {shown(given)}, {said}", name)
    return found


def flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise UsageError(f"is {shown(value)}: use True or False", name)


def optional_flag(name: str, value: object) -> None:
    if value is not None:
        flag(name, value)


def count(name: str, value: object, most: int = _U64_MAX, least: int = 0) -> int:
    """Return an integer as a plain one: encoders of JSON refuse a subclass."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise UsageError(f"is {shown(value)}: use an integer, {least} to {most}", name)
    return value if type(value) is int else int.__index__(value)


def optional_count(name: str, value: object, least: int = 0) -> int | None:
    return None if value is None else count(name, value, least=least)


def cursor(from_seq: int | None) -> int:
    """Return the cursor where a read begins, 0 if none is given. Raises: UsageError."""
    if from_seq is None:
        return 0
    return count("from_seq", from_seq)


def beginning(from_seq: object, from_: object, from_time: object, last_max: int, name: str = "from_") -> Begin | None:
    """Return where a read begins if it is not `from_seq`; None if it is.

    from_: "first", "now", {"last": n}, {"time": ms}, or a Begin that was made of one. from_time:
    the same as {"time": from_time}. Each is None if it is not given. name: of `from_` in errors.
    """
    given = [each for each, value in ((name, from_), ("from_time", from_time)) if value is not None]
    if from_seq is not None:
        given.insert(0, "from_seq")
    if len(given) > 1:
        raise UsageError(f"{given[0]} and {given[1]} both say where to begin: use one of them")
    if from_time is not None:
        return Begin("time", count("from_time", from_time))
    if from_ is None or isinstance(from_, Begin):
        return from_
    if from_ == "first":
        return FIRST
    if from_ == "now":
        return NOW
    if isinstance(from_, Mapping) and len(from_) == 1:
        for kind, most in (("last", last_max), ("time", _U64_MAX)):
            if kind in from_:
                number = count(f'{name}["{kind}"]', from_[kind], most)
                return Begin(kind, number)  # type: ignore[arg-type]  # one of its kinds
    raise UsageError(f'{name} is {shown(from_)}: use "first", "now", {{"last": 10}} or {{"time": 1795325238494}}')


def optional_milliseconds(name: str, value: Any) -> int | None:
    """Return the milliseconds of a time in seconds, rounded up; None for None."""
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= _SECONDS_MAX:
        raise UsageError(f"is {shown(value)}: use a number of seconds, 0 to {_SECONDS_MAX}, or None", name)
    return math.ceil(value * 1000)


def timed_out(what: str, timeout: float | None) -> TimeoutError:
    """Return the error of a call whose timeout came first. what: the work that it waited for."""
    return TimeoutError(
        f"timeout is {timeout} s, and the {what} has not ended; it continues: wait with a longer timeout"
    )


def optional_incarnation(value: object) -> None:
    """Check an incarnation, as the state of a topic shows it."""
    if value is not None and not (isinstance(value, str) and _INCARNATION.fullmatch(value)):
        raise UsageError(f"incarnation is {shown(value)}: use the topic's state(...).incarnation, 16 hex digits")


def values(given: Any) -> Sequence[Any]:
    """Return the records of an append: one at least.

    A value that would be split into records, which its caller cannot have meant, is refused.
    """
    if type(given) in _LISTS and given:  # nearly always
        return given  # type: ignore[no-any-return]  # a list or a tuple
    if isinstance(given, (str, *BYTES_TYPES, Mapping, NewRecord)):
        raise UsageError(f"records is one {type(given).__name__}: put it into a list, as in [{shown(given)}]")
    if isinstance(given, Set):
        raise UsageError(f"records is one {type(given).__name__}, which has no order: use a list")
    try:
        found = given if isinstance(given, list | tuple) else list(iter(given))
    except TypeError:
        if hasattr(given, "__iter__"):
            raise  # raised by its own __iter__
        raise UsageError(f"records is {shown(given)}: use a list of values, each becomes a record") from None
    if not found:
        raise UsageError("records is empty: use one record at least")
    return found


def plain_value(given: object) -> None:
    if isinstance(given, NewRecord):
        raise UsageError("append_soon takes a value: a NewRecord, with tag, node or meta, is what append takes")


def texts(given: object) -> None:
    """Check the records of append_many: ready-made JSON texts, one at least."""
    if not isinstance(given, Sequence) or isinstance(given, (str, *BYTES_TYPES)):
        raise UsageError(
            f"texts is {shown(given)}: append_many takes a list of JSON texts as bytes; append takes values"
        )
    if not given:
        raise UsageError("texts is empty: use one record at least")


def not_bytes(given: Sequence[Any]) -> UsageError:
    """Return the error for texts of which not all are bytes."""
    wrong = next((at for at, each in enumerate(given) if not isinstance(each, BYTES_TYPES)), 0)
    return UsageError(f"texts[{wrong}] is {shown(given[wrong])}: use JSON as bytes; append takes values")


def predicate(match: object, name: str = "match") -> Predicate | None:
    """Return a predicate: of a tag, a prefix with `*`, or one made by `Predicate`."""
    if match is None or isinstance(match, Predicate):
        return match
    if not isinstance(match, str):
        raise UsageError(f'{name} is {shown(match)}: use a tag, or its beginning and "*"')
    encoded(name, match)
    return Predicate.of(text(name, match))


def shown(value: object) -> str:
    """Return a value as it is written in Python, cut to keep a message readable."""
    try:
        whole = repr(value)
    except Exception:
        whole = f"a {type(value).__name__}"
    return whole if len(whole) <= _SHOWN_MAX else whole[: _SHOWN_MAX - 3] + "..."
