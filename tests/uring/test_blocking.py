"""Facts of a file system, asked for by blocking calls."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from topics.uring.blocking import BlockingCalls


def test_a_full_disk_does_not_hide_that_it_can_be_read_past_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start relies on it: what a failed sync lost is not to be believed because there is no space."""
    found = BlockingCalls().direct_block_bytes(str(tmp_path))
    if not found:
        pytest.skip("no O_DIRECT here")

    def full(*_arguments: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    assert BlockingCalls().direct_block_bytes(str(tmp_path)) == found
