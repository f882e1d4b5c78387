"""Readers that ask for the same at once: one read for all of them, however long it takes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.engine.harness import Answer, Harness, records
from topics.errors import StorageError
from topics.store.read.render_json import JsonRenderer

RECORDS, EACH = 24, 300_000
MANY = 20


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of frames that each call renders."""
    sizes: list[int] = []
    add = JsonRenderer.add

    def counted(renderer: JsonRenderer, data: memoryview, base: int, *columns: Any) -> int:
        sizes.append(int(columns[1].sum()))
        return add(renderer, data, base, *columns)

    monkeypatch.setattr(JsonRenderer, "add", counted)
    return sizes


def _waiting(**config: Any) -> tuple[Harness, list[Answer], list[Any]]:
    """Equal long polls, and what gives each up. Their answers have several megabytes."""
    h = Harness(pass_read_bytes=1 << 20, max_batch_bytes=16 << 20, **config)
    h.append("first")
    answers, cancels = [], []
    for _ in range(MANY):
        answers.append(h.start_diff(1, wait_ms=1000, max_batch_bytes=16 << 20))
        cancels.append(h.cancel)
    return h, answers, cancels


def _write(h: Harness) -> None:
    h.start_append(records(*("x" * EACH for _ in range(RECORDS))))
    h.store.log.commit(None)


def _flush(h: Harness, answers: list[Answer]) -> None:
    for _ in range(100 * MANY):
        if all(answer.given for answer in answers):
            return
        h.engine.flush()
    raise AssertionError(f"{sum(answer.given for answer in answers)} of {len(answers)} were answered")


def test_equal_long_polls_for_megabytes_share_one_read(rendered: list[int]) -> None:
    """Each rendered an answer of its own until the first was whole: 600 for 7 MB took 4 GB."""
    h, answers, _ = _waiting()
    _write(h)
    _flush(h, answers)
    assert sum(rendered) < 1.1 * RECORDS * EACH
    results = [answer.get() for answer in answers]
    assert {id(result.records) for result in results} == {id(results[0].records)}
    assert (results[0].count, results[0].next_from_seq) == (RECORDS, 1 + RECORDS)
    assert not h.engine._reads._coming


def test_who_gives_up_the_read_that_others_share_takes_nothing_from_them(rendered: list[int]) -> None:
    h, answers, cancels = _waiting()
    _write(h)
    for _ in range(3):
        h.engine.flush()
    (coming,) = h.engine._reads._coming.values()
    assert len(coming._places) > 1, "others have joined it"
    cancels[0]()
    _flush(h, answers[1:])
    assert not answers[0].given
    assert sum(rendered) < 1.1 * RECORDS * EACH


def test_a_read_that_all_have_given_up_ends(rendered: list[int]) -> None:
    h, answers, cancels = _waiting()
    _write(h)
    h.engine.flush()
    before = sum(rendered)
    for cancel in cancels:
        cancel()
    for _ in range(100):
        h.engine.flush()
    assert sum(rendered) == before
    assert not h.engine._reads._coming
    again = h.start_diff(1, max_batch_bytes=16 << 20)
    _flush(h, [again])
    assert again.get().count == RECORDS
    assert not any(answer.given for answer in answers)


def test_who_shares_a_read_gets_no_record_that_is_deleted_before_its_turn(rendered: list[int]) -> None:
    """R-DEL-7."""
    h, answers, _ = _waiting()
    _write(h)
    while not answers[0].given:
        h.engine.flush()
    left = [answer for answer in answers if not answer.given]
    assert len(left) > MANY // 2
    h.start_delete(before_seq=5)
    h.engine.flush()
    h.store.log.commit(None)
    since = [answer for answer in left if not answer.given]
    _flush(h, answers)
    assert len(since) > MANY // 2
    for answer in since:
        assert [row["$seq"] for row in json.loads(b"[%b]" % answer.get().records)] == list(range(5, 2 + RECORDS))
    assert sum(rendered) < 2.1 * RECORDS * EACH, "they share the next read, too"


class BrokenReader:
    """A reader of a disk that fails."""

    def fetch(self, _pieces: Any, done: Any) -> None:
        done(StorageError("EIO"))


def test_an_error_of_the_disk_is_the_answer_of_all_who_share_the_read(monkeypatch: pytest.MonkeyPatch) -> None:
    h, answers, _ = _waiting()
    h.store.reader.slow = True
    _write(h)
    for _ in range(MANY):
        h.engine.flush()
    assert len(h.store.reader.held) == 1
    monkeypatch.setattr(h.store.reader, "_reader", BrokenReader())
    h.store.reader.release()
    _flush(h, answers)
    for answer in answers:
        with pytest.raises(StorageError, match="EIO"):
            answer.get()


def test_who_asks_after_records_have_expired_does_not_share_a_read_that_began_before() -> None:
    h = Harness(pass_read_bytes=1)
    h.put(ttl_ms=500)
    h.append("first")
    h.store.reader.slow = True
    before, late = (h.start_diff(1, wait_ms=2000) for _ in range(2))
    h.start_append(records("second"))
    h.store.log.commit(None)
    while not h.store.reader.held:
        h.engine.flush()
    h.advance_ms(501)
    for _ in range(100):
        h.settle()
    h.store.reader.release()
    h.store.reader.slow = False
    _flush(h, [before, late])
    assert before.get().count == 1
    assert (late.get().count, late.get().tombstone is None) == (0, False)
