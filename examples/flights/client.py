"""Just enough HTTP for the example: one keep-alive connection, JSON in and out."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import urlsplit


class Refused(Exception):
    """The server answered with an error envelope."""


class Client:
    def __init__(self, url: str) -> None:
        self.url = url
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.hostname or "127.0.0.1", parts.port or 4000, timeout=60)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """The answer's JSON. Raises OSError when the server is gone, Refused for an error answer."""
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        try:
            self._connection.request(method, path, data, {"Content-Type": "application/json"})
            answer = self._connection.getresponse()
            result = json.loads(answer.read())
        except http.client.HTTPException as error:
            self._connection.close()
            raise ConnectionError(str(error)) from error
        except OSError:
            self._connection.close()
            raise
        if "error" in result:
            raise Refused(f"{method} {path}: {answer.status} {result['error']['code']}: {result['error']['message']}")
        return result
