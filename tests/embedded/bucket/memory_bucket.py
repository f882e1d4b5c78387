"""A bucket in memory that fails, or is damaged, as a test asks. It passes the suite of the real one."""

from __future__ import annotations

from collections.abc import Callable

from topics.embedded.bucket.bucket_errors import FailedBucketError
from topics.errors import StorageError


class KilledError(Exception):
    """The process ends here."""


class MemoryBucket:
    """calls_left: calls until one fails with `error`; None: none does."""

    url = "s3://bucket/prefix"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.calls_left: int | None = None
        self.error: Callable[[], Exception] = lambda: FailedBucketError("s3://bucket/prefix: 503 SlowDown")
        self.done_first = False
        """Whether the call that fails is done, as of a process that is killed before the answer."""
        self.calls: list[tuple[str, str]] = []
        self.damage: Callable[[str, bytes], bytes] = lambda _key, data: data
        """Returns the bytes that a write stores."""
        self.hidden: Callable[[str], bool] = lambda _key: False
        """Whether lists leave out a key."""

    async def put(self, key: str, data: bytes) -> None:
        def put() -> None:
            self.objects[key] = self.damage(key, data)

        self._call("put", key, put)

    async def get(self, key: str) -> bytes | None:
        self._call("get", key)
        return self.objects.get(key)

    async def sizes(self, prefix: str) -> dict[str, int]:
        self._call("list", prefix)
        return {
            key: len(data)
            for key, data in sorted(self.objects.items())
            if key.startswith(f"{prefix}/") and not self.hidden(key)
        }

    async def delete(self, keys: list[str]) -> None:
        for key in keys:
            self._call("delete", key, lambda key=key: self.objects.pop(key, None))

    def _call(self, action: str, key: str, work: Callable[[], object] = lambda: None) -> None:
        self.calls.append((action, key))
        if self.calls_left is not None:
            if self.calls_left == 0:
                if self.done_first:
                    work()
                raise self.error()
            self.calls_left -= 1
        work()


assert issubclass(FailedBucketError, StorageError)
