"""A connection to NATS, whose calls of asyncio run in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import ssl
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from topics.bridge.bridge_errors import TargetDownError
from topics.bridge.jetstream.nats_place import NatsPlace, new_client
from topics.bridge.side_url import shown_url
from topics.errors import UsageError

R = TypeVar("R")
_CONNECT_S = 5.0
_NO_ENTRY = re.compile(r"authorization violation|permissions violation|user authentication", re.IGNORECASE)
"""Words of nats-server about a user who may not do what the bridge does."""
_ERRNO = re.compile(r"\[Errno (\d+)\]")
"""The number in the text of an error that asyncio made of others, and that has no `errno`."""
_NUMBER = re.compile(r"\[Errno -\d+\] ")
"""The number of an error of names, which have numbers of their own."""
_BAD_REQUEST = 400
_STORE_FAILED = 10077
"""The number of the error that the store of a stream has no room."""
_NO_CLUSTER = 10074
"""The number of the error that one server keeps no replicas; its code is 500."""
_PASSING = frozenset({10026, 10058, 10071, 10164})
"""Bad requests that may be good later: too many consumers, a name in use, another last sequence."""
_STREAM = re.compile(r"[^\s.*>/\\\x00-\x1f\x7f]{1,255}")
_PREFIX = re.compile(r"([^\s.*>\x00-\x1f\x7f]+\.)*")


def check_stream(name: str, prefix: str) -> None:
    """Check the name of a stream and the beginning of its subjects. Raises: UsageError."""
    if not _STREAM.fullmatch(name):
        raise UsageError(f"--stream is {name[:200]!r}: use a name without blanks and without . * > / and \\")
    if not _PREFIX.fullmatch(prefix):
        raise UsageError(
            f"--prefix is {prefix[:200]!r}: use parts that each end with a dot, such as 'shop.eu.', without blanks, * "
            "and >"
        )


class JetStreamLink:
    """One connection. Any thread may run calls on it."""

    def __init__(self, place: NatsPlace) -> None:
        """Connect. Raises: TargetDownError."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="bridge-nats", daemon=True)
        self._thread.start()
        self._place = place
        self._told: Exception | str = ""
        """The last error of a try to connect: the one raised after them all has no text."""
        self.closed = asyncio.Event()
        """Set in the loop once the connection is gone."""
        self._refused = asyncio.Event()
        self._refusals: list[Exception] = []
        """nats-py reports those of publications beside the calls, whose answers are never done."""
        try:
            self.nats: Any = self.run(self._connect(), min(_CONNECT_S, place.answer_s))
        except BaseException:
            self._end_loop()
            raise
        self._told = ""
        self.jetstream: Any = self.nats.jetstream(timeout=place.answer_s, publish_async_max_pending=1 << 16)

    @property
    def url(self) -> str:
        """The URL as errors show it."""
        return shown_url(self._place.url)

    def run(self, call: Coroutine[Any, Any, R], timeout_s: float = 0.0) -> R:
        """Run a call. timeout_s: 0: somewhat longer than an answer is waited for.

        Raises: TargetDownError; UsageError, the server lets no such user in; errors of JetStream's
        answers as they are.
        """
        import nats.errors  # noqa: PLC0415 - an optional package
        import nats.js.errors  # noqa: PLC0415

        future = asyncio.run_coroutine_threadsafe(_within(call, timeout_s or self._place.answer_s + 1), self._loop)
        try:
            return future.result()
        except nats.js.errors.ServiceUnavailableError as error:
            if error.code is not None:
                raise
            raise TargetDownError(f"{self.url} has no JetStream that answers: it is off there, or not ready") from error
        except nats.js.errors.APIError:
            raise
        except nats.js.errors.NoStreamResponseError as error:
            raise TargetDownError(f"{self.url} has no stream that takes in the messages any more") from error
        except (nats.errors.Error, OSError, TimeoutError) as error:
            told, self._told = self._told, ""
            if isinstance(told, nats.js.errors.APIError):  # so nats-py reports a refused publish
                raise told from error
            self._told = told
            raise self._down(error) from error

    async def until_closed(self, call: Coroutine[Any, Any, R]) -> R:
        """Await a call; raise as soon as the connection is gone, or a publication was refused.

        Raises: TargetDownError; an APIError, the first refusal.
        """
        waiting = asyncio.ensure_future(call)
        every = [waiting, *(asyncio.ensure_future(each.wait()) for each in (self.closed, self._refused))]
        try:
            await asyncio.wait(every, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                return waiting.result()
            if self._refusals:
                raise self._refusals[0]
            raise TargetDownError(f"{self.url} has closed the connection")
        finally:
            for each in every:
                each.cancel()

    def close(self) -> None:
        """Close the connection. Idempotent."""
        if self._loop.is_closed():
            return
        future = asyncio.run_coroutine_threadsafe(_within(self._closing(), 1.0), self._loop)
        with contextlib.suppress(Exception):  # of a connection that is lost
            future.result()
        self._end_loop()

    def _down(self, error: BaseException) -> TargetDownError | UsageError:
        """Return what it means that a call has failed: no answer, or a refusal of the user."""
        import nats.errors  # noqa: PLC0415 - an optional package

        for told in (str(error), str(self._told)):
            if _NO_ENTRY.search(told):
                return UsageError(
                    f"{self.url} refuses the user of the bridge ({told}): mend --set user, password, token, "
                    "user_credentials or nkeys_seed, or what the user may do there"
                )
        for each in (error, self._told):
            if isinstance(each, ssl.SSLCertVerificationError):
                return UsageError(
                    f"{self.url} has a certificate that is not trusted ({each.verify_message}): name the authorities "
                    "by the variable SSL_CERT_FILE, or its host by --set tls_hostname"
                )
        told_first = isinstance(error, nats.errors.NoServersError)
        first, second = (self._told, error) if told_first else (error, self._told)
        reason = _words(first) or _words(second) or "no answer in time"
        return TargetDownError(f"{self.url} does not answer: {reason}")

    async def _connect(self) -> Any:
        import nats.js.errors  # noqa: PLC0415 - an optional package

        async def on_error(error: Exception) -> None:
            self._told = error
            if isinstance(error, nats.js.errors.APIError):
                self._refusals.append(error)
                self._refused.set()

        async def on_closed() -> None:
            self.closed.set()

        client = new_client(self._place)
        await client.connect(
            self._place.url,
            allow_reconnect=False,
            reconnect_time_wait=0,
            max_reconnect_attempts=1,  # the bridge waits between tries, and says for how long
            connect_timeout=int(_CONNECT_S),
            error_cb=on_error,
            closed_cb=on_closed,
            tls=ssl.create_default_context() if self._place.has_tls else None,
            **dict(self._place.options),
        )
        return client

    async def _closing(self) -> None:
        await self.nats.close()

    def _end_loop(self) -> None:
        async def cancel_all() -> None:
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(cancel_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def refused(what: str, error: Any) -> TargetDownError | UsageError:
    """Return what a refusal of JetStream is: one that passes by itself, or one for a person.

    what: what JetStream refuses to do, as the beginning of a sentence. error: an APIError.
    """
    text = error.description or f"code {error.code}"
    if error.err_code == _STORE_FAILED:
        return TargetDownError(f"{what}, since it is full or cannot store ({text}): it is tried again until it can")
    is_wrong = error.code == _BAD_REQUEST and error.err_code is not None and error.err_code not in _PASSING
    if is_wrong or error.err_code == _NO_CLUSTER:
        return UsageError(f"{what} ({text}): change the options or the stream, and start the bridge again")
    return TargetDownError(f"{what} ({text})")


def _words(error: BaseException | str) -> str:
    """Return what an error says to a person; "" if it has no text."""
    if number := _ERRNO.search(str(error)):
        return os.strerror(int(number[1]))
    return _NUMBER.sub("", str(error))


async def _within(call: Coroutine[Any, Any, R], timeout_s: float) -> R:
    return await asyncio.wait_for(call, timeout_s)
