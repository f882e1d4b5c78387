"""Blocking calls on a real file system: facts of it, and locks."""

from __future__ import annotations

import errno
import os
import socket
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


def test_a_lock_ends_with_its_release_although_a_child_has_a_copy_of_the_descriptor(tmp_path: Path) -> None:
    calls, path = BlockingCalls(), str(tmp_path / "lock")
    fd = calls.lock(path)
    copy = os.dup(fd)  # as a child has that was just forked
    calls.unlock(fd)
    calls.unlock(calls.lock(path))
    os.close(copy)


def test_a_pipe_a_socket_and_a_device_have_no_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To open the first, or to read the last, may never end."""
    monkeypatch.chdir(tmp_path)  # a path of a socket has 107 bytes at most
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("socket")
    for path in ("pipe", "socket", "/dev/null"):
        with pytest.raises(OSError, match=f"it is no regular file: move it away: '{path}'") as caught:
            BlockingCalls().file_size(path)
        assert caught.value.errno == errno.EINVAL


def test_a_lock_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    calls, path = BlockingCalls(), str(tmp_path / "lock")
    os.mkfifo(path)
    calls.unlock(calls.lock(path, shared=True))


def test_a_message_without_a_descriptor_is_told_from_one_whose_descriptor_found_no_place(tmp_path: Path) -> None:
    calls, path = BlockingCalls(), str(tmp_path / "mailbox")
    mailbox = calls.open_mailbox(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"only bytes", path)
    assert calls.take_descriptor(mailbox, 16) == (-errno.EBADMSG, b"only bytes")
    assert calls.take_descriptor(mailbox, 16) == (-errno.EAGAIN, b"")
    os.close(mailbox)
