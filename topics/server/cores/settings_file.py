"""The settings that a supervisor gives to the processes of its cores, in a file without a name.

Each life of a core reads the same ones, whatever became of the files that they are from. Names of
files may have bytes that are no UTF-8, which JSON takes as escapes of single surrogates.
"""

from __future__ import annotations

import dataclasses
import json
import os

from topics.config import Config


def write_settings(config: Config) -> int:
    """Return the descriptor of a new file with the settings, keys among them. Raises: OSError."""
    fd = os.memfd_create("topics-settings")
    os.write(fd, json.dumps(dataclasses.asdict(config)).encode())
    os.set_inheritable(fd, True)
    return fd


def read_settings(fd: int) -> Config:
    """Return the settings of a file of `write_settings`, and close it. Raises: OSError."""
    try:
        return Config(**json.loads(os.pread(fd, os.fstat(fd).st_size, 0)))
    finally:
        os.close(fd)
