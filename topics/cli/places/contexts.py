"""Named contexts: addresses of servers that a person keeps by name, in a small TOML file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from topics.errors import UsageError


class Context(NamedTuple):
    """A server's address, and the file that holds the key for it; "" for none."""

    url: str
    key_file: str = ""


class Contexts(NamedTuple):
    """All contexts by name, and the name of the one that is used without an option; "" for none."""

    current: str
    by_name: dict[str, Context]

    def of(self, name: str) -> Context:
        """Return a context. Raises: UsageError, there is none of that name."""
        if name not in self.by_name:
            known = f"known are {', '.join(sorted(self.by_name))}" if self.by_name else "there is none yet"
            raise UsageError(f"context {name!r} is unknown ({known}): make it with `topics context set {name} URL`")
        return self.by_name[name]


def contexts_path(env: Mapping[str, str]) -> Path:
    """Return the path of the file, which need not exist."""
    home = env.get("XDG_CONFIG_HOME") or os.path.join(env.get("HOME") or os.path.expanduser("~"), ".config")
    return Path(home) / "topics" / "contexts.toml"


def read_contexts(path: Path) -> Contexts:
    """Return what the file holds; nothing if there is none. Raises: UsageError, OSError."""
    import tomllib  # noqa: PLC0415 - most commands read no file

    try:
        found: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return Contexts("", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no TOML ({error}): mend it, or remove it") from None
    rows = found.get("contexts", {})
    current = found.get("current", "")
    sound = isinstance(current, str) and isinstance(rows, dict)
    sound = sound and all(
        isinstance(row, dict) and isinstance(row.get("url"), str) and isinstance(row.get("key_file", ""), str)
        for row in rows.values()
    )
    if not sound:
        raise UsageError(f"{path} is no file of contexts: each needs a `url` in a table [contexts.NAME]")
    return Contexts(current, {name: Context(row["url"], row.get("key_file", "")) for name, row in rows.items()})


def write_contexts(path: Path, contexts: Contexts) -> None:
    """Replace the file as a whole. Raises: UsageError, a text that is no UTF-8; OSError."""
    lines = [f"current = {_quoted(contexts.current)}"]
    for name, context in sorted(contexts.by_name.items()):
        lines += ["", f"[contexts.{_quoted(name)}]", f"url = {_quoted(context.url)}"]
        if context.key_file:
            lines.append(f"key_file = {_quoted(context.key_file)}")
    try:
        text = ("\n".join(lines) + "\n").encode()
    except UnicodeEncodeError:
        raise UsageError("a context has a name or a path that is no UTF-8: use another one") from None
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(text)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _quoted(text: str) -> str:
    """Return a basic string of TOML, whose escapes are those of JSON."""
    import json  # noqa: PLC0415 - as tomllib

    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
