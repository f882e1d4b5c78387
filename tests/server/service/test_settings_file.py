"""The settings that a supervisor gives to the processes of its cores."""

from __future__ import annotations

import os

import pytest

from topics.config import Config
from topics.server.cores.settings_file import read_settings, write_settings


def test_a_core_gets_the_settings_also_with_a_path_that_is_no_utf_8() -> None:
    given = Config(data_dir=os.fsdecode(b"/tmp/\xff"), allowed_hosts=("a", "b"), api_keys="k:admin:secret", port=5)
    fd = write_settings(given)
    again = os.dup(fd)
    assert read_settings(fd) == read_settings(again) == given
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
