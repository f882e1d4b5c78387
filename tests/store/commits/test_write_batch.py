"""A batch while it fills."""

from topics.store.commits.write_batch import Batch


def test_a_batch_keeps_its_bytes_when_it_grows() -> None:
    batch = Batch(128)
    batch.memory[64:70] = b"frames"
    batch.used = 70
    batch.grow(5000)
    assert batch.room == 8192
    assert bytes(batch.memory[64:70]) == b"frames"
    batch.clear()
    assert batch.used == 64
