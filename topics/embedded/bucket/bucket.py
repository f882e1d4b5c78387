"""An object store as what copies ask of it: objects of some MiB, written and read whole."""

from __future__ import annotations

import asyncio
import os
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

from topics.common.extras import install_command
from topics.embedded.bucket.bucket_errors import endless_list, failure, is_bucket_missing, stuck_list
from topics.errors import StorageError, UsageError

SCHEME = "s3://"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]*", re.IGNORECASE | re.ASCII)
_NO_PREFIX = re.compile(r"[\x00-\x1f\x7f?#\ud800-\udfff]")
_NO_URL = re.compile(r"[\x00-\x20\x7f]")
_REGION = re.compile(r"[A-Za-z0-9-]+")
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION")
R = TypeVar("R")


class BucketOptions(NamedTuple):
    """How a bucket is asked."""

    endpoint: str | None = None
    """URL of a store other than that of AWS; None: AWS_ENDPOINT_URL."""
    region: str | None = None
    """Region of the bucket; None: AWS_REGION."""
    timeout_s: float = 60
    """Seconds that one request may take, with its body."""
    retries: int = 10
    """Repetitions of a request that failed, after pauses that double and vary at random."""
    retry_for_s: float = 180
    """Seconds after which a request is not repeated any more."""
    parallel: int = 4
    """Requests at the same time."""
    part_bytes: int = 8 << 20
    """Bytes of an object, at most: a longer file is several."""


class Bucket(Protocol):
    """The part of an object store below a prefix. All calls raise StorageError."""

    @property
    def url(self) -> str: ...

    async def put(self, key: str, data: bytes) -> None: ...

    async def get(self, key: str) -> bytes | None:
        """Return an object; None if it is not there."""

    async def sizes(self, prefix: str) -> dict[str, int]:
        """Return the keys below a prefix, which ends where a name does, and their sizes."""

    async def delete(self, keys: list[str]) -> None:
        """Remove objects. It is no error if one is not there."""


def is_bucket_url(option: str, path: str) -> bool:
    """Return whether a path is the URL of a bucket. Raises: UsageError, it is another URL."""
    scheme, separator, _ = path.partition("://")
    if separator and f"{scheme}://" != SCHEME:
        remedy = "use a path, or s3://BUCKET/PREFIX"
        raise UsageError(f"{option} is {path[:200]!r}, which is neither a directory nor a bucket: {remedy}")
    if separator:
        _place(option, path)
    return bool(separator)


def _place(option: str, url: str) -> tuple[str, str]:
    """Return the bucket of a URL, and the prefix. Raises: UsageError, it names none."""
    name, _, prefix = url.removeprefix(SCHEME).partition("/")
    has_dots = any(part in (".", "..") for part in prefix.split("/"))
    if name and not _BUCKET.fullmatch(name):
        said = f"whose bucket {name[:200]!r} has other characters than a-z, 0-9, - and ., or begins with - or ."
        raise UsageError(f"{option} is {url[:200]!r}, {said}: use s3://BUCKET/PREFIX")
    if not name or "//" in prefix or has_dots or _NO_PREFIX.search(prefix):
        said = "which names no place in a bucket"
        raise UsageError(f"{option} is {url[:200]!r}, {said}: use s3://BUCKET/PREFIX")
    return name, prefix


def open_bucket(url: str, options: BucketOptions) -> Bucket:
    """Return the bucket of a URL. The credentials are those of the variables AWS_*.

    Raises: UsageError, the URL names none, or obstore is not installed.
    """
    name, prefix = _place("the URL", url)
    try:
        from obstore.exceptions import BaseError  # noqa: PLC0415 - an extra
        from obstore.store import S3Store  # noqa: PLC0415 - an extra
    except ImportError:
        raise UsageError(f"{url} needs the package obstore: {install_command('s3')}") from None
    named, endpoint = _endpoint(options)
    _check_text(options)
    shown = f"{named} {_without_user(endpoint)}" if endpoint else ""
    config: dict[str, Any] = {"checksum_algorithm": "SHA256"}
    config |= {"endpoint": endpoint} if endpoint else {}
    config |= {"region": options.region} if options.region else {}
    try:
        store = S3Store(
            name,
            prefix=prefix.strip("/") or None,
            client_options={
                "allow_http": bool(endpoint) and str(endpoint).startswith("http://"),
                "timeout": timedelta(seconds=options.timeout_s),
                "connect_timeout": timedelta(seconds=min(10, options.timeout_s)),
            },
            retry_config={
                "max_retries": options.retries,
                "retry_timeout": timedelta(seconds=options.retry_for_s),
            },
            **config,
        )
    except (BaseError, ValueError) as error:
        raise failure(url, "connection", error, options.timeout_s, shown) from None
    return StoreBucket(store, f"{SCHEME}{name}/{prefix.strip('/')}".rstrip("/"), options, shown)


def _endpoint(options: BucketOptions) -> tuple[str, str | None]:
    """Return what names the store, and its URL; None: that of AWS. Raises: UsageError."""
    variables = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    given = [("--endpoint", options.endpoint), *((name, os.environ.get(name)) for name in variables)]
    if options.endpoint is None:  # an empty variable is one that is not set
        given = [(name, value) for name, value in given if value]
    name, endpoint = next(iter(given), ("", None))
    if endpoint is None:
        return "", None
    try:
        parts = urlsplit(endpoint)
        is_url = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # no port has that number, or the brackets of an address are not closed
        is_url = False
    if not is_url or not endpoint.isascii() or _NO_URL.search(endpoint):
        raise UsageError(f"{name} is {endpoint!r}: use a URL, such as https://s3.example.com")
    return name, endpoint


def _without_user(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _check_text(options: BucketOptions) -> None:
    """Refuse what no header of a request can have. The values of keys are not shown.

    Raises: UsageError.
    """
    if options.region is not None and not _REGION.fullmatch(options.region):
        raise UsageError(f"--region is {options.region!r}: use a name, such as eu-central-1")
    for name in _KEYS:
        if not os.environ.get(name, "").isprintable():
            raise UsageError(f"{name} has a character that no key has, such as the end of a line: set it without")


class StoreBucket:
    """A bucket that obstore talks to."""

    def __init__(self, store: Any, url: str, options: BucketOptions, endpoint: str = "") -> None:
        """endpoint: what names it, and its URL, for errors; "": it is that of AWS."""
        self._store = store
        self._endpoint = endpoint
        self._timeout_s = options.timeout_s
        self._page_s = options.timeout_s + options.retry_for_s
        """The longest time for a request with its repetitions."""
        self._url = url

    @property
    def url(self) -> str:
        return self._url

    async def put(self, key: str, data: bytes) -> None:
        import obstore  # noqa: PLC0415 - an extra

        await self._ask("write", key, lambda: obstore.put(self._store, key, data, use_multipart=False))

    async def get(self, key: str) -> bytes | None:
        import obstore  # noqa: PLC0415 - an extra

        return await self._ask("read", key, lambda: bytes(obstore.get(self._store, key).bytes()), has_none=True)

    async def sizes(self, prefix: str) -> dict[str, int]:
        import obstore  # noqa: PLC0415 - an extra

        page_at = time.monotonic()

        def listed() -> dict[str, int]:
            nonlocal page_at
            found: dict[str, int] = {}
            for page in obstore.list(self._store, prefix):
                page_at, known = time.monotonic(), len(found)
                found |= {item["path"]: item["size"] for item in page}
                if len(found) - known < len(page):
                    raise endless_list(f"{self._url}/{prefix}")
            return found

        listing = asyncio.ensure_future(self._ask("list", prefix, listed))
        while not listing.done():
            left_s = page_at + self._page_s - time.monotonic()
            if left_s <= 0:  # the client follows empty pages for as long as they come
                raise stuck_list(f"{self._url}/{prefix}", self._page_s)
            await asyncio.wait([listing], timeout=left_s)
        return await listing or {}

    async def delete(self, keys: list[str]) -> None:
        import obstore  # noqa: PLC0415 - an extra

        for begin in range(0, len(keys), 1000):
            some = keys[begin : begin + 1000]
            await self._ask("removal", some[0], partial(obstore.delete, self._store, some), has_none=True)

    async def _ask(self, action: str, key: str, work: Callable[[], R], *, has_none: bool = False) -> R | None:
        """Return the result of a blocking call.

        has_none: whether it is None where the object is not there.
        """
        from obstore.exceptions import BaseError  # noqa: PLC0415 - an extra

        try:
            return await in_thread(work)
        except (BaseError, OSError) as error:
            if has_none and isinstance(error, FileNotFoundError) and not is_bucket_missing(error):
                return None
            raise failure(f"{self._url}/{key}", action, error, self._timeout_s, self._endpoint) from None


async def in_thread(work: Callable[[], R]) -> R:
    """Return the result of a blocking call, made by a thread that no end of this process waits for.

    obstore has calls for asyncio, whose threads abort the process if they end at its end.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[R] = loop.create_future()

    def settle(setter: Callable[[Any], None], value: object) -> None:
        if not future.done():
            setter(value)

    def run() -> None:
        try:
            setter, value = future.set_result, work()
        except BaseException as error:  # a panic of obstore is no Exception
            told = error if isinstance(error, Exception) else StorageError(f"the client of the object store: {error}")
            setter, value = future.set_exception, told  # type: ignore[assignment]
        with suppress(RuntimeError):  # the caller was interrupted
            loop.call_soon_threadsafe(settle, setter, value)

    threading.Thread(target=run, name="bucket", daemon=True).start()
    return await future
