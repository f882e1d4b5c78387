"""HTTP client of the connector: one persistent connection, retries, and no key in any message.

Every request of the connector may be repeated: reads change nothing, and a write names its
producer, epoch and part. So a request is sent again if it failed for a passing reason. Only the
standard library is needed.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from topics.spark.errors import OptionError, ServerError
from topics.spark.options import ServerAddress, checked_token

PAUSE_MS_MAX = 5000
WAIT_NAMES_MAX = 256
LIST_PAGE = 1000
_AGAIN_REASONS = frozenset(("disk_full", "no_log_file", "not_created"))
"""Reasons of a 500 after which the contract (R-DUR-16) lets a client repeat the request."""
_NOT_OURS = "the answer is not from a topics server: correct url"


@dataclass(frozen=True, slots=True)
class Head:
    """A topic in the answer to a wait. head: its highest seq; of: its incarnation."""

    head: int
    of: str


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """The state of a topic, for planning.

    head: its highest seq; earliest: its first live seq, or head + 1 without one; of: its
    incarnation.
    """

    head: int
    earliest: int
    of: str
    durability: str = ""


class SparkClient:
    """A connection to the server for one thread; `close` ends it."""

    def __init__(
        self,
        connection: ServerAddress,
        *,
        sleep: Callable[[float], None] = time.sleep,
        connect: Callable[[str, int | None, float, bool], http.client.HTTPConnection] | None = None,
    ) -> None:
        self._options = connection
        self._sleep = sleep
        self._connect = connect or _connect
        parts = urlsplit(connection.url)
        self._host, self._port = parts.hostname or "", parts.port
        self._secure, self._base = parts.scheme == "https", parts.path
        self._wire: http.client.HTTPConnection | None = None
        self._token = self._read_token()

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    # -- endpoints ---------------------------------------------------------------------------------

    def state(self, topic: str) -> PlannedTopic | None:
        """Return the state of a topic; None if it is absent. It counts as no read (R-PRI-4)."""
        try:
            raw = self._json("GET", f"/v0/topics/{quote(topic, safe='')}?touch=false&incarnation=true")
        except ServerError as error:
            if error.code == "topic_not_found":
                return None
            raise
        return PlannedTopic(raw["head_seq"], raw["earliest_seq"], _of(raw), raw["config"]["durability"])

    def states(self, prefix: str = "") -> dict[str, PlannedTopic]:
        """Return the states of all topics with this prefix that the key may see, by name."""
        found: dict[str, PlannedTopic] = {}
        query = {"page_size": str(LIST_PAGE), "incarnation": "true", "prefix": prefix}
        while True:
            page = self._json("GET", "/v0/topics?" + urlencode(query))
            for raw in page["topics"]:
                found[raw["topic"]] = PlannedTopic(raw["head_seq"], raw["earliest_seq"], _of(raw))
            if not page.get("next_cursor"):
                return found
            query["cursor"] = page["next_cursor"]

    def wait(self, topics: Mapping[str, Any], wait_ms: int) -> dict[str, Head | None]:
        """Return the heads of 1 to 256 topics, by name; None for an absent topic.

        The server answers as soon as a topic differs from its value in `topics`, or after wait_ms.
        """
        assert 1 <= len(topics) <= WAIT_NAMES_MAX
        raw = self._json("POST", "/v0/wait", {"topics": topics, "wait_ms": wait_ms})
        return {
            name: None if entry is None else Head(entry["head_seq"], _of(entry))
            for name, entry in raw["topics"].items()
        }

    def checkpoint(self) -> int:
        """Return the number of a snapshot that includes all writes and deletes answered so far.

        It needs a key with the scope admin.
        """
        body = {"wait_ms": min(30_000, self._options.timeout_ms // 2)}
        while True:
            raw = self._json("POST", "/v0/checkpoint", body)
            if raw["done"]:
                return int(raw["snapshot"])
            body["checkpoint"] = int(raw["checkpoint"])  # R-CHK-6: wait for this checkpoint again

    def page(self, topic: str, from_seq: int, limit: int, *, tags: bool, meta: bool) -> bytes:
        """Return the body of a diff after cursor from_seq. Raises: ServerError topic_not_found."""
        body = {"from_seq": from_seq, "limit": limit, "include_tags": tags, "include_meta": meta}
        return self.call("POST", f"/v0/topics/{quote(topic, safe='')}/diff", json.dumps(body).encode())

    def first_seq_at(self, topic: str, time_ms: int) -> int:
        """Return the first live seq whose ts is time_ms or later; head + 1 without one.

        Raises: ServerError topic_not_found.
        """
        body = {"from": {"time": time_ms}, "limit": 1, "include_meta": False, "max_batch_bytes": 1}
        raw = self._json("POST", f"/v0/topics/{quote(topic, safe='')}/diff", body)
        return int(raw["records"][0]["$seq"] if raw["records"] else raw["next_from_seq"] + 1)

    def first_loss(self, topic: str, from_seq: int) -> dict[str, Any] | None:
        """Return the tombstone at the beginning of a diff after a cursor; None without one.

        Raises: ServerError topic_not_found.
        """
        body = {"from_seq": from_seq, "limit": 1, "include_meta": False, "max_batch_bytes": 1}
        raw = self._json("POST", f"/v0/topics/{quote(topic, safe='')}/diff", body)
        tombstone: dict[str, Any] | None = raw["tombstone"]
        return tombstone

    def write(self, topic: str, body: bytes | Sequence[bytes]) -> dict[str, Any]:
        """Send a write whose body names its producer, and return the answer.

        body: JSON, whole or in parts that are joined.
        """
        whole = body if isinstance(body, bytes) else b"".join(body)
        path = f"/v0/topics/{quote(topic, safe='')}?return_seqs=false"
        answer: dict[str, Any] = json.loads(self.call("POST", path, whole))
        return answer

    # -- transport ---------------------------------------------------------------------------------

    def call(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Send a request and return the body of its 2xx answer.

        Raises: ServerError, at once if a retry cannot help, otherwise after the last retry.
        """
        pause_ms = self._options.retry_interval_ms
        tried = 0
        while True:
            tried += 1
            wait_s = 0.0
            try:
                status, headers, answer = self._exchange(method, path, body)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                problem = self._no_answer(error, tried)
            else:
                if 200 <= status < 300:
                    return answer
                problem = _refusal(status, answer, method, path.partition("?")[0])
                if status == 401 and self._token_has_changed():
                    continue
                if not _may_pass(problem):
                    raise problem
                wait_s = _retry_after(headers)
            if tried > self._options.retries:
                raise problem
            self._sleep(max(wait_s, pause_ms / 1000))
            pause_ms = min(pause_ms * 2, max(PAUSE_MS_MAX, self._options.retry_interval_ms))

    def _json(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        raw = self.call(method, path, None if body is None else json.dumps(body).encode())
        try:
            answer = json.loads(raw)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise ServerError(f"{method} {path.partition('?')[0]}: {_NOT_OURS}")
        return answer

    def _exchange(self, method: str, path: str, body: bytes | None) -> tuple[int, Mapping[str, str], bytes]:
        """Send a request; send it again if the server had closed the persistent connection."""
        kept = self._wire is not None
        try:
            return self._exchange_once(method, path, body)
        except (ConnectionError, http.client.RemoteDisconnected, http.client.CannotSendRequest):
            if not kept:
                raise
            self.close()
            return self._exchange_once(method, path, body)

    def _exchange_once(self, method: str, path: str, body: bytes | None) -> tuple[int, Mapping[str, str], bytes]:
        if self._wire is None:
            self._wire = self._connect(self._host, self._port, self._options.timeout_ms / 1000, self._secure)
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        self._wire.request(method, self._base + path, body, headers)
        response = self._wire.getresponse()
        answer = response.read()
        if response.will_close:
            self.close()
        return response.status, dict(response.headers), answer

    def _read_token(self) -> str | None:
        if self._options.token_file is None:
            return self._options.token
        try:
            with open(self._options.token_file, encoding="ascii", errors="replace") as file:
                text = file.read(65536)
        except OSError as error:
            raise OptionError(
                f"tokenFile {self._options.token_file} cannot be read here ({error.strerror}): "
                "put it on every machine that reads or writes, or give the option token"
            ) from None
        return checked_token(text, f"tokenFile {self._options.token_file}")

    def _token_has_changed(self) -> bool:
        """Read tokenFile again, and return whether it holds another key now.

        Keys are replaced while streams run.
        """
        before, self._token = self._token, self._read_token()
        return before != self._token

    def _no_answer(self, error: BaseException, tried: int) -> ServerError:
        why = "it took too long" if isinstance(error, TimeoutError) else getattr(error, "strerror", None) or error
        remedy = "raise timeoutMs" if isinstance(error, TimeoutError) else "start it, or correct url"
        return ServerError(f"no answer from {self._options.url} after {tried} tries ({why}): {remedy}")


def _connect(host: str, port: int | None, timeout_s: float, secure: bool) -> http.client.HTTPConnection:
    if secure:
        return http.client.HTTPSConnection(host, port, timeout=timeout_s)
    return http.client.HTTPConnection(host, port, timeout=timeout_s)


def _of(raw: Mapping[str, Any]) -> str:
    if "incarnation" not in raw:
        raise ServerError("the server is older than this connector and shows no incarnation: upgrade the server")
    return str(raw["incarnation"])


def _refusal(status: int, answer: bytes, method: str, path: str) -> ServerError:
    """Return the error for the server's refusal, with a remedy for the most frequent ones."""
    try:
        error = json.loads(answer)["error"]
        code, said, detail = str(error["code"]), str(error["message"]), error.get("detail")
    except (ValueError, KeyError, TypeError):
        code, said, detail = "", _NOT_OURS, None
    if status >= 500 and not code:
        said = "a proxy before the server answers, and the server does not"
    remedy = {
        401: ": give a key of the server by the option token or tokenFile",
        403: ": give a key with the right scope and prefix",
        503: ": raise retries to wait longer",
        429: ": raise retries to wait longer, or the server's limit",
    }.get(status, "")
    if code == "not_found":
        remedy = ": correct url, or upgrade the server if it is older than this connector"
    message = f"{method} {path} was answered {status}{code and f' {code}'}: {said}{remedy}"
    return ServerError(message, status, code, detail if isinstance(detail, dict) else None, said)


def _may_pass(problem: ServerError) -> bool:
    is_of_proxy = problem.status >= 500 and not problem.code  # its server is away
    if is_of_proxy or problem.status in (429, 503):
        return True
    return problem.status == 500 and problem.detail.get("reason") in _AGAIN_REASONS


def _retry_after(headers: Mapping[str, str]) -> float:
    value = headers.get("Retry-After", "")
    return min(float(value), 60.0) if value.isdigit() else 0.0
