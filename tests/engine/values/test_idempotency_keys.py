"""The store of idempotency keys."""

from topics.engine.state.idempotency import KeyEntry, KeyStore


def test_an_entry_that_is_old_when_its_write_is_published_is_not_kept() -> None:
    keys = KeyStore()
    keys.store(b"k", KeyEntry(1, 1, 1000), 1001, 0)
    assert len(keys) == 0


def test_old_entries_go_a_few_at_a_time() -> None:
    keys = KeyStore()
    for number in range(10):
        keys.store(b"%d" % number, KeyEntry(number, 1, number), number, 100)
    keys.store(b"new", KeyEntry(11, 1, 500), 500, 100)
    assert len(keys) == 7
    assert keys.find(b"new", 500, 100) == KeyEntry(11, 1, 500)
