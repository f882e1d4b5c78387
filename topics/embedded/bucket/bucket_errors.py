"""Faults of an object store, a sentence each: which key, what it answered, and the remedy.

Three kinds are distinguished. A store that *fails* answers with an error. One that is *slow* does
not answer in time. One that is *damaged* gives other bytes than it was given, or none; that is a
CorruptError of the caller who compares.
"""

from __future__ import annotations

import re

from topics.errors import StorageError

_STATUS = re.compile(r"status code: (\d{3})([^:\n<]*)")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_TRIES = re.compile(r"after (\d+) retries")
_METADATA = "169.254.169.254"
"""The address that a machine of the provider asks for credentials, if it was given none."""


class FailedBucketError(StorageError):
    """An object store that refuses, answers with an error, or cannot be reached."""


class SlowBucketError(StorageError):
    """An object store that gave no answer in time, also to repetitions."""


def is_bucket_missing(error: Exception) -> bool:
    """Return whether an answer was that there is no such bucket, not that it has no such object."""
    return "<Code>NoSuchBucket</Code>" in str(error)


def endless_list(url: str) -> StorageError:
    """Return the sentence for a list that has an object twice, so that its pages need not end."""
    return FailedBucketError(
        f"{url}: the list has an object twice, so it may never end: check --endpoint, and proxies before the store"
    )


def stuck_list(url: str, seconds: float) -> StorageError:
    """Return the sentence for a list that gave no object for so long: its pages may be empty."""
    return SlowBucketError(
        f"{url}: slow: the list gave no object for {seconds:g} s, as if its pages had no end: check --endpoint, and "
        "proxies before the store, or give a longer --retry-for"
    )


def failure(url: str, action: str, error: Exception, timeout_s: float, endpoint: str = "") -> StorageError:
    """Return the sentence for an exception of obstore.

    The details of the exception are left out, because they may hold what was signed.

    url: of the object. action: what was asked for, such as "write". endpoint: what names the store,
    and its URL; "": it is that of AWS.
    """
    text = str(error)
    first = text.partition("\n")[0]
    tries = int(found[1]) + 1 if (found := _TRIES.search(first)) else 1
    times = f" {tries} times" if tries > 1 else ""
    status, code = _STATUS.search(first), _CODE.search(text)
    if _METADATA in first:
        return FailedBucketError(f"{url}: no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
    if "kind: Timeout" in text:
        smaller = ", smaller --part-bytes" if action == "write" else ""
        return SlowBucketError(
            f"{url}: slow: no answer to a {action} within {timeout_s:g} s,{times or ' once'}: try again later, "
            f"or with a longer --request-timeout{smaller} or fewer --parallel"
        )
    if status is not None:
        return FailedBucketError(f"{url}: {_answered(int(status[1]), status[2].strip(), code, action, times)}")
    if "redirect" in first:
        return FailedBucketError(f"{url}: the bucket is in another region: name it by --region or AWS_REGION")
    if "kind: Connect" in text:
        return FailedBucketError(
            f"{url}: no connection for a {action},{times or ' once'}: check {endpoint or '--endpoint'}, the network"
        )
    cause = first.rpartition(" - ")[2] or type(error).__name__
    return FailedBucketError(f"{url}: a {action} failed{times}: {cause[:200]}: check --endpoint and the URL")


def _answered(status: int, reason: str, code: re.Match[str] | None, action: str, times: str) -> str:
    said = f"{status} {code[1] if code is not None else reason}"
    if status == 404 and code is not None and code[1] == "NoSuchBucket":
        return "there is no such bucket: create it, or mend the URL"
    if status in (401, 403):
        return (
            f"a {action} was refused with {said}: check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and whether the "
            "key may list, read, write and delete objects there"
        )
    if status in (429, 503):
        return f"a {action} was answered {said}{times}: the store is busy: try again later, or with fewer --parallel"
    if status >= 500:
        return f"a {action} was answered {said}{times}: the store fails: try again later"
    return f"a {action} was answered {said}{times}: check --endpoint, --region and the URL"
