"""Keys from a file, as a service manager passes credentials, to change without a restart."""

from __future__ import annotations

from dataclasses import replace

from topics.config import Config, read_regular_file
from topics.errors import UsageError
from topics.http.access.keyring import parse_keys

_FILE_BYTES_MAX = 1 << 20


def with_keys_of_file(config: Config) -> Config:
    """Return the settings with the entries of `api_keys_file` after those of `api_keys`.

    Raises: UsageError, the file cannot be read, is no text, may be read by other users, or has a
    wrong entry.
    """
    if not config.api_keys_file:
        return config
    return replace(config, api_keys=f"{config.api_keys},{read_keys_file(config.api_keys_file)}")


def read_keys_file(path: str) -> str:
    """Return the entries of the file, separated by commas, without the lines that begin with #.

    Raises: UsageError, as `with_keys_of_file`.
    """
    try:
        data, mode = read_regular_file(path, _FILE_BYTES_MAX + 1)
        text = data.decode()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}: name a file of keys", "api_keys_file") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text: name a file of keys", "api_keys_file") from None
    if mode & 0o007:
        raise UsageError(f"{path} may be read by all users: run `chmod o= {path}`", "api_keys_file")
    if len(data) > _FILE_BYTES_MAX:
        raise UsageError(f"{path} is over {_FILE_BYTES_MAX} bytes: name a file of keys", "api_keys_file")
    entries = ",".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    # An error names the file, and counts the entries in it.
    parse_keys(entries, of=f"TOPICS_API_KEYS_FILE {path}")
    return entries
