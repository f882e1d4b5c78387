"""The file of settings that `TOPICS_CONFIG` names: TOML, with the names of `Config` as keys.

Unlike in variables, whatever does not fit is an error. Source: wire contract, R-CONF-1 to R-CONF-4.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import fields
from datetime import date, time

from topics.common.values.near_names import suggestion
from topics.config import OPTIONAL, SECRET, Config, checked, read_regular_file
from topics.errors import UsageError

CONFIG_VARIABLE = "TOPICS_CONFIG"
NEVER = "none"
"""The text for None, of a setting in `OPTIONAL`."""
_FILE_BYTES_MAX = 1 << 20


def read_config_file(path: str, named_by: str = CONFIG_VARIABLE) -> dict[str, object]:
    """Return the settings of the file by name, as `Config` takes them.

    named_by: the option or the variable that names the file, for messages.
    Raises: UsageError, the file cannot be read, is no TOML, has a key that is no setting, a value
    that its setting refuses, or a secret that other users may read.
    """
    where = f"{named_by} {path}"
    try:
        data, mode = read_regular_file(path, _FILE_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"{where} cannot be read: {error.strerror}: name a file of settings") from None
    if len(data) > _FILE_BYTES_MAX:
        raise UsageError(f"{where} is over {_FILE_BYTES_MAX} bytes: name a file of settings")
    try:
        given = tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        line, byte = data.count(b"\n", 0, error.start) + 1, data[error.start]
        raise UsageError(
            f"{where} is no TOML: line {line} has the byte 0x{byte:02x}, which is not UTF-8: save it as UTF-8, or "
            "name a file of settings"
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{where} is no TOML: {error}: write lines such as port = 4000, texts in quotes") from None
    except RecursionError:
        raise UsageError(f"{where} has lists in each other without an end: name a file of settings") from None
    values = {name: _value(where, name, value) for name, value in given.items()}
    secret = [name for name in SECRET if values.get(name)]
    if secret and mode & 0o007:
        raise UsageError(f"{where} has {secret[0]} and may be read by all users: run `chmod o= {path}`")
    return values


def _value(where: str, name: str, value: object) -> object:
    names = [setting.name for setting in fields(Config)]
    if name not in names:
        spelt = name.lower().removeprefix("topics_").replace("-", "_")
        remedy = suggestion(spelt, names, "docs/settings.md lists all settings")
        raise UsageError(f"{where}: {name} is not a setting: {remedy}")
    if name in OPTIONAL and value == NEVER:
        return None
    if name == "host" and isinstance(value, str) and not value.strip():
        raise UsageError(f"{where}: host is {value!r}: use an address, or leave it out")
    if isinstance(value, list) and (joined := [one for one in value if isinstance(one, str) and "," in one]):
        raise UsageError(f"{where}: {name} has {joined[0]!r}: write each as a text of its own, without commas")
    try:
        return checked(name, value, show=_shown)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None


def _shown(value: object) -> str:
    return repr(value) if isinstance(value, str) else toml_text(value)


def toml_text(value: object) -> str:
    """Return a value as TOML has it; None as `NEVER`."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_text, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{toml_text(name)} = {toml_text(each)}' for name, each in value.items())}}}"
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, float):
        return repr(value)
    # JSON of the other types is TOML, except for the character DEL.
    return json.dumps(NEVER if value is None else value, ensure_ascii=False).replace("\x7f", "\\u007f")
