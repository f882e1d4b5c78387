"""Pauses of readers beside appends of other threads."""

from __future__ import annotations

import threading

import pytest

from topics.embedded.driving import reader_rests
from topics.embedded.driving.reader_rests import ReaderRests


def test_a_reader_rests_until_a_few_appends_of_other_threads_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_rests, "_PAUSE_MOST_S", 3600)
    rests = ReaderRests(lambda: False)
    reader = threading.Thread(target=rests.pause)
    rests.appending.add(1)
    reader.start()
    while not rests._pausing:
        pass
    for _ in range(reader_rests._PAUSE_APPENDS - 1):
        rests.end_append(1)
        rests.appending.add(1)
    assert rests._pausing
    rests.end_append(1)
    reader.join()
    assert not rests._pausing
    rests.pause()  # no thread appends
