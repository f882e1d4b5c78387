"""The hot tail against a plain image of the files it mirrors."""

import random

from topics.common.memory import LARGE_BYTES
from topics.store.format.log_format import BLOCK_BYTES, align_up
from topics.store.in_memory.hot_tail import HotTail, TailBuffer, chunk_for


def test_what_is_placed_is_found_and_written_in_whole_blocks() -> None:
    """Goal: blocks given out equal the file. Method: random batches over three files, chunks recycled among them."""
    for seed in range(12):
        rng = random.Random(seed)
        tail = HotTail(rng.choice([64, 200, 1000]) * 1024)
        images = {1: bytearray(), 2: bytearray(), 3: bytearray()}
        written = {1: bytearray(), 2: bytearray(), 3: bytearray()}
        for _ in range(120):
            file_id = rng.randint(1, 3)
            image, disk = images[file_id], written[file_id]
            begin = align_up(len(image), 8)
            data = rng.randbytes(rng.choice([1, 64, 700, 5000, 40_000]))
            image += bytes(begin - len(image)) + data
            room = chunk_for(rng.choice([len(data), 30_000])) if rng.random() < 0.3 else None
            cut = rng.choice([0, 0, len(data) // 2])
            blocks = tail.place(file_id, begin, memoryview(data[cut:]), head=data[:cut], room=room)
            start = begin & -BLOCK_BYTES
            assert len(blocks) % BLOCK_BYTES == 0
            disk += bytes(start + len(blocks) - len(disk))
            disk[start : start + len(blocks)] = blocks
            assert disk == image + bytes(align_up(len(image), BLOCK_BYTES) - len(image)), f"seed {seed}"
            for _ in range(3):
                offset = rng.randrange(len(image))
                length = rng.randint(1, len(image) - offset)
                found = tail.find(file_id, offset, length)
                assert found is None or found == image[offset : offset + length], f"seed {seed}"
            assert tail.find(file_id, begin, len(data)) == data, "the newest bytes are always here"
            assert tail.find(file_id, begin, len(data) + 1) is None


def test_the_budget_holds_but_for_the_newest_chunk_of_each_file() -> None:
    tail = HotTail(256 * 1024)
    position = 0
    for _ in range(400):
        tail.place(1, position, memoryview(bytes(4096)))
        position += 4096
    assert tail.bytes_held <= 256 * 1024
    assert tail.find(1, 0, 10) is None
    assert tail.find(1, position - 100_000, 100_000) is not None
    tail.forget(1)
    assert tail.bytes_held == 0
    assert tail.find(1, position - 10, 10) is None
    tail.forget(1)


def test_a_large_batch_takes_the_memory_of_the_large_one_before_it() -> None:
    tail = HotTail(64 << 20)
    size = (5 << 20) + 96
    tail.place(1, 4096, memoryview(b"a" * size))
    assert tail.find(1, 4096, size) == b"a" * size
    held = tail.bytes_held
    blocks = tail.place(1, 4096 + size, memoryview(b"b" * size))
    assert blocks[: 96 + size] == b"a" * 96 + b"b" * size
    assert tail.bytes_held == held
    assert tail.find(1, 4096, size) is None
    assert tail.find(1, 4096 + size, size) == b"b" * size
    tail.place(2, 4096, memoryview(b"c" * size))
    assert tail.bytes_held == 2 * held
    assert tail.find(1, 4096 + size, size) == b"b" * size


def test_memory_that_was_lent_is_used_for_no_other_bytes() -> None:
    """A large batch took the memory of the one before it, which another thread was reading."""
    tail = HotTail(64 << 20)
    size = 5 << 20
    tail.place(1, 4096, memoryview(b"a" * size))
    lent = tail.lend(1, 4096, size)
    assert lent is not None
    tail.place(1, 4096 + size, memoryview(b"b" * size))
    ((begin, data),) = lent
    assert (begin, data) == (4096, b"a" * size)
    assert tail.find(1, 4096, size) == b"a" * size


CHUNK = 1 << 20


def placed(tail: HotTail, chunks: int) -> list[int]:
    """Fill so many chunks of one file; return the addresses of their memory."""
    addresses: list[int] = []
    for at in range(chunks):
        tail.place(1, at * CHUNK, memoryview(bytes(CHUNK)))
        addresses.append(tail._files[1][-1].address)
    return addresses


def test_memory_of_the_tail_comes_page_by_page_as_it_is_filled() -> None:
    """A commit waited 10 ms for the first touch of a huge page, of memory asked for in large pieces."""
    tail = HotTail(64 << 20)
    placed(tail, 9)
    chunks = tail._files[1]
    assert len({id(chunk.view.obj) for chunk in chunks}) == len(chunks) == 9
    assert max(chunk.capacity for chunk in chunks) < LARGE_BYTES


def test_chunks_that_are_dropped_are_used_again() -> None:
    tail = HotTail(8 << 20)
    addresses = placed(tail, 30)
    assert tail.bytes_held == 8 << 20
    assert len(set(addresses)) <= 8 + 4 + 1
    for at in range(22, 30):
        assert tail.find(1, at * CHUNK, CHUNK) == bytes(CHUNK)
    tail.forget(1)
    assert tail.bytes_held == 0


def test_the_memory_of_a_chunk_is_lent_to_no_pointer() -> None:
    """The collector clears a view whose log is gone, and the process crashed at one that was exported."""
    chunk = TailBuffer(BLOCK_BYTES)
    chunk.view.release()
