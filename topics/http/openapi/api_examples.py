"""An example of each operation, and its name: examples.json, whose order is that of a story.

`tests/contract/requests/test_description.py` sends the requests in that order, and compares the
answers.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import msgspec

HOST = "http://127.0.0.1:4000"


class ApiExample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One request, and its answer.

    id: the operation's name. path: with its query. before: requests that the story needs first, as
    method, path and body. text: the answer where it is not JSON.
    """

    id: str
    path: str
    before: list[tuple[str, str, Any]] = []
    body: Any = None
    status: int = 200
    answer: Any = None
    text: str = ""


EXAMPLES = msgspec.json.decode(files(__package__).joinpath("examples.json").read_bytes(), type=dict[str, ApiExample])
"""Examples by key of OPERATIONS."""


def curl(method: str, example: ApiExample) -> str:
    """Return the request as a command."""
    parts = ["curl -N" if "event:" in example.text else "curl -w '\\n'"]
    if method != ("GET" if example.body is None else "POST"):
        parts.append(f"-X {method}")
    parts.append(f"'{HOST}{example.path}'" if "?" in example.path else HOST + example.path)
    if example.body is not None:
        parts.append(f"-H 'Content-Type: application/json' -d '{msgspec.json.encode(example.body).decode()}'")
    return " ".join(parts)
