"""Writes: order, publication, failure, admission, idempotency."""

from __future__ import annotations

import pytest

from tests.engine.harness import Harness, records
from topics.engine.state.append_request import AppendRequest
from topics.engine.state.refusals import config_needs_admin
from topics.engine.values.topic_config import make_config, read_config
from topics.engine.write import admission
from topics.errors import DiskFullError, LogReadOnlyError, RequestError, StorageError
from topics.store.format.file_table import FileKind
from topics.store.format.rows import RowRecord, pack_rows


@pytest.fixture
def h() -> Harness:
    return Harness()


def test_writes_of_one_pass_share_a_commit_and_get_consecutive_seqs(h: Harness) -> None:
    h.put()
    answers = [h.start_append(records(*range(n))) for n in (1, 3, 2)]
    h.engine.flush()
    assert len(h.store.log.filling.waiters) == 1
    h.settle()
    assert [(a.get().first_seq, a.get().last_seq, a.get().head_seq) for a in answers] == [
        (1, 1, 1),
        (2, 4, 4),
        (5, 6, 6),
    ]
    assert [r["data"] for r in h.read()] == [0, 0, 1, 2, 0, 1]


def test_writes_of_one_pass_count_as_several_callbacks_of_their_commit(h: Harness) -> None:
    """4,000 of one topic were one callback, of which a pass runs 256."""
    h.put()
    answers = [h.start_append(records(n)) for n in range(100)]
    h.engine.flush()
    assert len(h.store.log.filling.waiters) == 1 + 100 // 16
    h.settle()
    assert [answer.get().first_seq for answer in answers] == list(range(1, 101))


def test_mixed_rows_of_a_batch_keep_their_tags_nodes_and_keys(h: Harness) -> None:
    """R-NODE-5, R-DEL-8: what the index knows of each row is the row's own."""
    h.put()
    h.start_append(pack_rows([RowRecord(b"1", b"a", None), RowRecord(b"2", None, b"n")]), node=b"batch")
    h.start_append(records(3), key=b"k")
    h.start_append(records(4, tag="b"))
    h.start_append(records(5, 6))
    h.settle()
    read = h.read(include_tags=True)
    assert [(r["data"], r.get("$tag"), r.get("$node")) for r in read] == [
        (1, "a", "batch"),
        (2, None, "n"),
        (3, None, None),
        (4, "b", None),
        (5, None, None),
        (6, None, None),
    ]
    assert h.seqs(nodes=(b"batch", b"n")) == [3, 4, 5, 6]
    assert h.delete(match="*").deleted == 2
    assert h.append(0, key=b"k").first_seq == 3


def test_a_creating_write_creates_once_even_with_others_behind_it_in_the_pass(h: Harness) -> None:
    first, second = h.start_append(records(1)), h.start_append(records(2))
    assert h.start_diff(0).results[0].code == "topic_not_found"
    h.settle()
    assert (first.get().created, second.get().created) == (True, False)
    assert h.seqs() == [1, 2]


def test_the_creating_write_is_synced_whatever_the_class(h: Harness) -> None:
    """R-DUR-1."""
    h.start_append(records(1), config=make_config(durability="memory"))
    assert h.store.log.filling.synced


@pytest.mark.parametrize(
    ("request_values", "code"),
    [
        ({"create": False}, "topic_not_found"),
        ({"config": make_config(auto_create=False)}, "topic_not_found"),
        ({"config": make_config(), "may_create_with_config": config_needs_admin("t")}, "forbidden"),
        ({"violation": RequestError("batch_too_large", "many")}, "batch_too_large"),
        ({"config": read_config(b'{"dead_letter":"-"}')}, "invalid_request"),
        ({"config": read_config(b'{"type":"queue","dead_letter":"t"}')}, "invalid_request"),
    ],
)
def test_refused_creations_leave_nothing_behind(h: Harness, request_values: dict[str, object], code: str) -> None:
    """7.5 checks 2 to 5; R-SEQ-6."""
    answer = h.start_append(records(1), **request_values)
    assert answer.results[0].code == code
    assert h.engine.stats().topics == 0
    assert not h.store.log.filling.body


def test_create_true_overrides_auto_create(h: Harness) -> None:
    assert h.append(1, create=True, config=make_config(auto_create=False)).created


def test_a_bad_name_is_refused_only_where_it_would_become_a_topic(h: Harness) -> None:
    with pytest.raises(RequestError, match="not usable"):
        h.append(1, name="a b")
    with pytest.raises(RequestError) as refused:
        h.append(1, name="a b", create=False)
    assert refused.value.code == "topic_not_found"


def test_max_topics_stops_creation_but_not_reconfiguration() -> None:
    h = Harness(max_topics=1)
    h.put("a")
    with pytest.raises(RequestError) as refused:
        h.append(1, name="b")
    assert refused.value.detail == {"limit": "max_topics", "max": 1}
    assert not h.put("a", ttl_ms=1).created


def test_a_failed_commit_shows_nothing_and_burns_the_seqs_silently(h: Harness) -> None:
    """R-SEQ-6, R-TOMB-7."""
    h.append(1)
    answer = h.start_append(records(2, 3))
    h.settle(StorageError("EIO"))
    with pytest.raises(StorageError):
        answer.get()
    state = h.state()
    assert (state.head_seq, state.count) == (1, 1)
    assert h.append(4).first_seq == 4
    result = h.diff(1)
    assert (result.count, result.tombstone, result.next_from_seq) == (1, None, 4)
    assert h.engine._core.usage.pending_bytes == 0


def test_a_failed_creation_fails_the_writes_behind_it_and_frees_the_name(h: Harness) -> None:
    first = h.start_append(records(1))
    h.store.log.commit(StorageError("EIO"))
    with pytest.raises(StorageError):
        first.get()
    assert h.append(2).created


def test_a_failed_creation_keeps_no_memory_of_the_writes_behind_it(h: Harness) -> None:
    """Class `ephemeral`: their frames are in memory when they are taken."""
    write = h.start_append(records("x" * 300_000), config=make_config(durability="ephemeral"))
    h.settle(StorageError("no"))
    with pytest.raises(StorageError):
        write.get()
    assert [file.live_rows for file in h.store.files if file.kind is FileKind.MEMORY] == [0]


def test_publication_is_in_seq_order_whatever_the_classes(h: Harness) -> None:
    """R-SEQ-3: a synced write staged first holds back the unsynced one after it."""
    h.put(durability="fsync")
    fsync = h.start_append(records(1))
    log = h.store.log
    waiting_for_sync = log.filling
    log.filling = type(log.filling)()
    change = h.start_append(records(2))
    log.commit()
    assert not change.given
    log.filling, rest = waiting_for_sync, log.filling
    log.commit()
    assert fsync.given
    assert change.given
    assert not rest.body


def test_a_write_behind_a_change_to_fsync_is_synced(h: Harness) -> None:
    """R-CFG-3."""
    h.put(durability="disk")
    h.append(1)
    h.engine.put_topic("t", make_config(durability="fsync"), lambda result: None)
    log = h.store.log
    change, log.filling = log.filling, type(log.filling)()
    h.start_append(records(2))
    assert log.filling.synced
    log.filling, last = change, log.filling
    log.commit()
    log.filling = last
    log.commit()
    assert h.seqs() == [1, 2]


def test_ts_never_decreases(h: Harness) -> None:
    """R-SEQ-5 [+]."""
    h.append(1)
    h.loop.clock.step_wall_ms(-5000)
    h.append(2)
    h.loop.clock.step_wall_ms(9000)
    h.append(3)
    stamps = [record["$ts"] for record in h.read()]
    assert stamps[0] == stamps[1] < stamps[2]


def test_sync_time_is_reported_for_class_fsync_only(h: Harness) -> None:
    """13.4: fsync_ms is 0.0 for the others, even when the first write of a topic waits for a reservation."""
    h.put("d", durability="disk")
    h.put("f", durability="fsync")
    assert h.append(1, name="d").sync_ns == 0
    assert h.append(1, name="f").sync_ns > 0


# --- admission -------------------------------------------------------------------------------------------------------
def test_a_reject_topic_counts_what_is_staged(h: Harness) -> None:
    """R-CAP-5."""
    h.put(cap_records=3, discard="reject")
    h.append(1)
    accepted, refused = h.start_append(records(2, 3)), h.start_append(records(4))
    h.settle()
    assert accepted.get().last_seq == 3
    assert refused.results[0].code == "topic_full"
    assert "cap_records is 3, and discard is reject" in refused.results[0].message
    with pytest.raises(RequestError) as too_large:
        h.append(1, 2, 3, 4)
    assert too_large.value.code == "record_too_large"
    detail = refused.results[0].detail
    assert detail == {"topic": "t", "cap_records": 3, "cap_bytes": 0, "head_seq": 1, "earliest_seq": 1}


def test_a_reject_topic_never_evicts(h: Harness) -> None:
    """R-CAP-6."""
    h.append(1, 2, 3, 4)
    h.put(cap_records=2, discard="reject")
    assert h.state().count == 4
    h.delete(before_seq=3)
    with pytest.raises(RequestError):
        h.append(5)
    h.delete(before_seq=4)
    assert h.append(5).last_seq == 5  # R-CAP-7
    assert h.seqs() == [4, 5]


def test_expired_records_make_room_in_a_reject_topic(h: Harness) -> None:
    """R-FLOOR-7: retention comes before admission."""
    h.put(cap_records=1, discard="reject", ttl_ms=10)
    h.append(1)
    h.advance_ms(11)
    assert h.append(2).first_seq == 2
    assert h.diff(0).tombstone is not None


def test_a_record_larger_than_the_cap_is_acknowledged_and_gone(h: Harness) -> None:
    """R-CAP-3."""
    h.put(cap_bytes=5)
    h.append("a")
    assert h.append("x" * 10).last_seq == 2
    state = h.state()
    assert (state.earliest_seq, state.count, state.bytes, state.head_seq) == (3, 0, 0, 2)


def test_both_caps_take_no_more_than_needed(h: Harness) -> None:
    """R-CAP-4."""
    h.put(cap_records=4, cap_bytes=10)
    h.append("12345", 1, 2, 3)
    h.append(4, 5, 6)
    assert h.seqs() == [4, 5, 6, 7]
    h.append("1234567")
    assert h.seqs() == [7, 8]


def test_max_total_bytes_may_be_reached_but_not_passed() -> None:
    """7.5 check 8; freed by deletes, expiry and topic deletion."""
    h = Harness(max_total_bytes=4)
    h.append(1, 2, name="a")
    h.put("b", ttl_ms=10)
    h.append(3, 4, name="b")
    with pytest.raises(RequestError) as refused:
        h.append(5, name="a")
    assert refused.value.detail == {"limit": "max_total_bytes", "max": 4}
    h.advance_ms(11)
    h.append(5, 6, name="a")
    h.delete_topic("a")
    h.append(1, 2, 3, 4, name="c")
    assert h.engine.stats().bytes_live == 4


def test_a_full_quota_looks_through_all_topics_when_something_may_have_expired_and_not_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R-FLOOR-7, 7.5 check 8. Each refused write asked each of perhaps 100,000 topics."""
    looked_at: list[str] = []
    look = admission.expired_through
    monkeypatch.setattr(
        admission, "expired_through", lambda topic, now: (looked_at.append(topic.name), look(topic, now))[1]
    )
    h = Harness(max_total_bytes=2)
    h.put("a")
    h.put("b", ttl_ms=1000)
    h.put("c", ttl_ms=3000)
    h.append(1, name="b")
    h.append(2, name="c")

    def is_refused() -> bool:
        answer = h.start_append(records(3), "a")
        h.settle()
        return isinstance(answer.results[0], RequestError)

    for _ in range(10):
        assert is_refused()
    assert looked_at == ["b", "c"]
    h.advance_ms(1000)
    assert is_refused()
    h.advance_ms(1)
    assert not is_refused()
    assert is_refused()
    h.advance_ms(1000)
    assert is_refused()
    h.put("c", ttl_ms=2000)
    assert not is_refused()
    assert len(looked_at) < 20


def test_a_full_quota_looks_at_some_topics_a_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """R-FLOOR-7, 7.5 check 8: the next write continues, until all were looked at."""
    monkeypatch.setattr(admission, "EXPIRY_WORK_MAX", 10)
    looked_at: list[str] = []
    look = admission.expired_through
    monkeypatch.setattr(
        admission, "expired_through", lambda topic, now: (looked_at.append(topic.name), look(topic, now))[1]
    )
    h = Harness(max_total_bytes=2)
    names = [f"t{number:02d}" for number in range(30)]
    for name in names:
        h.put(name, ttl_ms=60_000)
    h.put("last", ttl_ms=1000)
    h.put("a")
    h.append(1, 2, name="last")

    def is_refused() -> bool:
        answer = h.start_append(records(3), "a")
        h.settle()
        return isinstance(answer.results[0], RequestError)

    parts = []
    for _ in range(6):
        looked_at.clear()
        assert is_refused()
        parts.append(list(looked_at))
    assert [len(part) for part in parts] == [10, 10, 10, 1, 0, 0], "nothing can have expired before"
    assert [name for part in parts for name in part] == [*names, "last"]
    h.advance_ms(1001)
    looked_at.clear()
    assert is_refused()
    h.delete_topic("t25")
    assert [is_refused() for _ in range(4)] == [True, True, False, False]
    assert looked_at[:30] == [name for name in [*names, "last"] if name != "t25"]


def test_a_full_quota_looks_again_at_a_topic_whose_loss_could_not_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    h = Harness(max_total_bytes=1)
    h.put("b", ttl_ms=10)
    h.append(1, name="b")
    h.advance_ms(11)
    core = h.engine._core
    failing = [StorageError("full")]

    def failed(*args: object) -> None:
        if failing:
            raise failing.pop()
        expire(*args)  # type: ignore[arg-type]

    expire = admission.expire
    monkeypatch.setattr(admission, "expire", failed)
    with pytest.raises(StorageError):
        admission.expire_everywhere(core, h.loop.clock.now_ms())
    assert admission.expire_everywhere(core, h.loop.clock.now_ms()) == 1


def test_a_backlogged_disk_throttles(h: Harness) -> None:
    h.store.log.backlogged = True
    with pytest.raises(RequestError) as refused:
        h.append(1)
    assert (refused.value.code, refused.value.detail) == ("throttled", {"retry_after_ms": 1000})


# --- idempotency -----------------------------------------------------------------------------------------------------
def test_concurrent_duplicates_wait_for_the_first(h: Harness) -> None:
    """R-IDEM-5."""
    answers = [h.start_append(records(value), key=b"") for value in range(3)]
    h.settle()
    assert [(a.get().first_seq, a.get().deduped, a.get().created) for a in answers] == [
        (1, False, True),
        (1, True, False),
        (1, True, False),
    ]
    assert [r["data"] for r in h.read()] == [0]


def test_when_the_first_fails_the_next_one_executes(h: Harness) -> None:
    """R-IDEM-5."""
    h.put()
    answers = [h.start_append(records(value), key=b"k") for value in range(3)]
    h.engine.flush()
    h.store.log.commit(StorageError("EIO"))
    h.settle()
    assert isinstance(answers[0].results[0], StorageError)
    assert [a.get().deduped for a in answers[1:]] == [False, True]
    assert [r["data"] for r in h.read()] == [1]


def test_past_the_window_the_key_is_forgotten(h: Harness) -> None:
    """R-IDEM-4."""
    h.put(idempotency_window_ms=100)
    h.append(1, key=b"k")
    h.advance_ms(100)
    assert h.append(2, key=b"k").deduped
    h.advance_ms(1)
    assert not h.append(2, key=b"k").deduped
    assert h.append(3, key=b"k").first_seq == 2


def test_a_duplicate_of_an_accepted_write_succeeds_on_a_full_topic(h: Harness) -> None:
    """R-IDEM-7."""
    h.put(cap_records=1, discard="reject")
    h.append(1, key=b"k")
    assert h.append(1, key=b"k").deduped
    with pytest.raises(RequestError):
        h.append(2, key=b"other")
    h.delete(before_seq=2)
    assert not h.append(2, key=b"other").deduped  # R-IDEM-6: the refusal stored nothing


def test_keys_end_with_the_topic(h: Harness) -> None:
    """R-IDEM-8."""
    h.append(1, key=b"k")
    h.delete_topic()
    again = h.append(1, key=b"k")
    assert (again.deduped, again.first_seq) == (False, 1)


def test_many_keys_do_not_pile_up(h: Harness) -> None:
    h.put(idempotency_window_ms=10)
    for number in range(200):
        h.append(1, key=b"%d" % number)
        h.advance_ms(1)
    keys = h.engine._core.registry.by_name["t"].keys
    assert keys is not None
    assert len(keys) < 20


# --- storage refuses -------------------------------------------------------------------------------------------------
def test_a_full_disk_refuses_appends_and_lets_deletes_and_expiry_go_on(h: Harness) -> None:
    """R-DUR-16."""
    h.put(ttl_ms=100)
    h.append(1, 2, 3)
    h.store.log.disk_full = True
    with pytest.raises(DiskFullError):
        h.append(4)
    assert h.delete(before_seq=2).deleted == 1
    h.advance_ms(101)
    assert h.state().count == 0
    assert h.delete_topic().deleted
    h.store.log.disk_full = False
    assert h.append(5).first_seq == 1


def test_a_read_only_log_refuses_changes_and_reads_go_on(h: Harness) -> None:
    """R-DUR-16."""
    h.append(1)
    h.store.log.read_only = True
    for change in (lambda: h.append(2), lambda: h.delete(before_seq=2), h.delete_topic, lambda: h.put("n")):
        with pytest.raises(LogReadOnlyError):
            change()
    assert h.seqs() == [1]
    assert h.state().count == 1


def test_done_is_called_once_for_every_write_that_storage_refuses(h: Harness) -> None:
    h.put()
    h.store.log.disk_full = True
    answer = h.start_append(records(1))
    assert len(answer.results) == 1
    h.store.log.disk_full = False
    assert h.append(1).first_seq == 1


def test_requests_are_values(h: Harness) -> None:
    assert AppendRequest("t", records(1)) == AppendRequest("t", records(1), None, None, None, None, True, None)
