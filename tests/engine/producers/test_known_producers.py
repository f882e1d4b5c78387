"""A topic's knowledge of producers, against the plainest model; and its memory."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.amount import examples
from tests.engine.harness import Harness, records
from tests.engine.real_world import RealWorld
from topics.config import Config
from topics.engine.shared.topic_snapshot import TopicImage, TopicsSnapshot, image_of
from topics.engine.state import known_producers
from topics.engine.state.known_producers import OF_QUEUES, QUEUE_AGE_MS, Producers, ProducerTotals
from topics.engine.state.producer_part import Part
from topics.errors import RequestError, StorageError
from topics.loop import Loop
from topics.store.format.log_format import Frame, ProducerPart, unpack_extension
from topics.store.repair.rebuild import rebuild

EPOCHS = 4


def totals(**settings: Any) -> ProducerTotals:
    return ProducerTotals(Config(data_dir="", **{"producer_epochs": EPOCHS, "producer_silence_ms": 1000} | settings))


def part(epoch: int, number: int, *, producer: str = "p", count: int = 1, at_ms: int = 0, sum: int = 7) -> ProducerPart:
    return ProducerPart(count, at_ms, epoch, number, sum, producer.encode())


class Model:
    """One producer in dicts: what is known by epoch and part, and the highest epoch that is forgotten."""

    def __init__(self) -> None:
        self.epochs: dict[int, dict[int, int]] = {}
        self.floor = -1

    def refuses(self, epoch: int) -> bool:
        return epoch <= self.floor or (len(self.epochs) >= EPOCHS and epoch < min(self.epochs))

    def add(self, epoch: int, number: int, first_seq: int) -> None:
        if epoch > self.floor:
            self.epochs.setdefault(epoch, {}).setdefault(number, first_seq)
        while len(self.epochs) > EPOCHS:
            self.floor = min(self.epochs)
            del self.epochs[self.floor]

    @property
    def newest(self) -> int:
        return max(self.epochs, default=self.floor)


def check(known: Producers, model: Model, told: list[tuple[int, int]]) -> None:
    producer = known.find(b"p", 0)
    assert producer is not None
    assert producer.newest == model.newest
    assert producer.parts == sum(map(len, model.epochs.values()))
    for epoch, number in told:
        found = producer.find(epoch, number)
        assert (None if found is None else found.first_seq) == model.epochs.get(epoch, {}).get(number)
        assert producer.refuses(epoch, EPOCHS) == (model.refuses(epoch) and epoch not in model.epochs)


names = st.tuples(st.integers(0, 9) | st.just(2**63 - 1), st.integers(0, 3) | st.just(65_535))


@given(st.lists(names, min_size=1, max_size=40), st.integers(0, 40))
@examples(150)
def test_parts_are_known_as_a_model_has_it_also_from_a_snapshot(told: list[tuple[int, int]], cut: int) -> None:
    """R-PROD-3: restored in the middle, and given again what came before."""
    count = totals()
    known, model = Producers(count), Model()
    for seq, (epoch, number) in enumerate(told, 1):
        if model.epochs.get(epoch, {}).get(number) is not None or model.refuses(epoch):
            continue
        known.hold(b"p")
        known.publish(part(epoch, number), seq, 0, in_memory=False)
        model.add(epoch, number, seq)
        if seq == cut:
            (image,) = known.images(0)
            count = totals()
            known = Producers(count)
            known.restore(msgspec.json.decode(msgspec.json.encode(image), type=type(image)))
            for earlier, (each, other) in enumerate(told[:seq], 1):
                if model.epochs.get(each, {}).get(other) == earlier:
                    known.add(part(each, other), earlier)
    check(known, model, told)
    producer = known.find(b"p", 0)
    assert producer is not None
    assert (count.producers, count.parts) == (1, producer.parts)
    known.clear()
    assert (count.producers, count.parts) == (0, 0)


@given(st.lists(st.tuples(names, st.booleans()), min_size=1, max_size=20))
def test_what_lies_in_memory_is_left_out_of_a_snapshot(told: list[tuple[tuple[int, int], bool]]) -> None:
    """R-PROD-7: class `ephemeral`."""
    known = Producers(totals(producer_epochs=100))
    model: dict[tuple[int, int], bool] = {}
    for seq, (name, in_memory) in enumerate(told, 1):
        if name not in model:
            model[name] = in_memory
            known.hold(b"p")
            known.publish(part(*name), seq, 0, in_memory=in_memory)
    again = Producers(totals(producer_epochs=100))
    for image in known.images(0):
        again.restore(image)
    producer = again.find(b"p", 0)
    for name, in_memory in model.items():
        assert (producer is None or producer.find(*name) is None) is in_memory


def test_what_fails_leaves_nothing_and_what_is_on_its_way_counts() -> None:
    """R-PROD-5."""
    count = totals()
    known = Producers(count)
    known.hold(b"p")
    known.hold(b"p")
    assert (count.producers, count.parts, known.images(0)) == (1, 2, [])
    known.release(b"p")
    assert b"p" in known
    known.release(b"p")
    assert (count.producers, count.parts, b"p" in known) == (0, 0, False)


def test_the_longest_silent_are_forgotten_by_the_next_write() -> None:
    """R-PROD-4: a few at a time, and all in a snapshot."""
    known = Producers(totals())
    for number in range(10):
        known.add(part(3, 0, producer=f"p{number}", at_ms=number), number + 1)
    known.hold(b"q")
    known.publish(part(0, 0, producer="q", at_ms=5000), 11, 5000, in_memory=False)
    assert [known.find(b"p%d" % number, 0).parts for number in range(10)] == [0] * 4 + [1] * 6  # type: ignore[union-attr]
    images = known.images(5000)
    assert [bool(image.rows) for image in images] == [False] * 10 + [True]
    assert {image.floor for image in images[:10]} == {3}


def test_a_description_says_most_of_those_that_wrote_last() -> None:
    """R-PROD-7: it is bounded; what it leaves out of a producer counts as forgotten, never as new."""
    known = Producers(totals())
    for number in range(1000):
        for epoch in range(EPOCHS):
            for each in range(50):
                known.add(part(epoch, each, producer=f"producer {number}"), 1000 * number + 50 * epoch + each + 1)
    rows = known.described()
    assert len(msgspec.json.encode(rows)) < 28_000
    assert 3 < len(rows) < 400
    again = Producers(totals())
    for row in rows:
        again.restore(row)
    last, other = (again.find(b"producer %d" % number, 0) for number in (999, 995))
    assert last is not None
    assert last.parts == EPOCHS * 50
    assert other is not None
    assert other.parts < EPOCHS * 50
    assert all(other.find(epoch, 0) or other.refuses(epoch, EPOCHS) for epoch in range(EPOCHS))
    assert not other.refuses(EPOCHS, EPOCHS)


def test_of_two_descriptions_the_later_one_holds() -> None:
    """R-PROD-7: what it left out, too; and frames that are newer add to it."""
    early, late = Producers(totals()), Producers(totals())
    early.add(part(0, 0), 1)
    for known in (early, late):
        known.add(part(1, 0), 2)
    late.add(part(0, 0), 1)
    late.add(part(2, 0), 3)
    ((newer,), (older,)) = late.images(0), early.images(0)
    for order in ((newer, older), (older, newer)):
        again = Producers(totals())
        for row in order:
            again.restore(row)
        again.add(part(3, 0), 4)
        model = Model()
        for epoch in range(4):
            model.add(epoch, 0, epoch + 1)
        check(again, model, [(epoch, 0) for epoch in range(5)])


@pytest.mark.usefixtures("no_old_garbage")
def test_a_producer_of_16_epochs_of_8_parts_takes_less_than_4_kilobytes() -> None:
    """R-PROD-5: with an id as long as that of a query; the snapshot has less than 5 KB of it."""
    count = ProducerTotals(Config(data_dir=""))
    known = Producers(count)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(100):
        name = f"1b4e28ba-2fa1-11d2-883f-0016d3cca4{number:02x}"
        for each in range(20 * 8):
            known.hold(name.encode())
            told = part(
                each // 8, each % 8, producer=name, count=1000, at_ms=1_700_000_000_000 + each, sum=2**63 + each
            )
            known.publish(told, 1 + 1000 * each, 1_700_000_000_000 + each, in_memory=False)
            del told
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert count.parts == 100 * 16 * 8
    assert taken / 100 <= 4096, f"{taken / 100} bytes a producer"
    assert len(msgspec.json.encode(known.images(1_700_000_000_000))) / 100 < 5000


# --- in an engine -----------------------------------------------------------------------------------------------------
def send(h: Harness, *values: Any, epoch: int = 0, number: int = 0, producer: str = "p", name: str = "t") -> Any:
    answer = h.start_append(records(*values), name, identity=Part(producer.encode(), epoch, number))
    h.settle()
    return answer.get()


def test_a_snapshot_that_is_prepared_in_steps_has_what_changed_meanwhile() -> None:
    """R-PROD-7: no pass encodes all producers, and parts that are appended between the steps are in the log."""
    h = Harness()
    h.put()
    h.put("gone")
    for number in range(1100):
        send(h, number, producer=f"p{number}")
    send(h, 1, name="gone")
    h.cut = h.store.log.file.size
    steps = h.catalog.checkpoints.prepare_snapshot(64)
    for _ in range(3):
        next(steps)
    again = (1, 700, 1050)
    for number in again:
        send(h, 1, number, epoch=1, producer=f"p{number}")
    send(h, 0, producer="new")
    h.delete_topic("gone")
    assert sum(1 for _ in steps) == 1, "500 producers a step, and none of a topic that is gone"
    send(h, 1, 0, epoch=1, producer="p0")
    pieces = h.catalog.checkpoints.snapshot()
    h.snapshot = b"".join(pieces)
    assert max(map(len, pieces)) < len(h.snapshot) / 2
    h.restart()
    assert len(h.engine._core.registry.by_name["t"].producers or ()) == 1101
    for number in (*again, 0, 500, 1099):
        assert send(h, number, producer=f"p{number}").deduped
    for number in (*again, 0):
        assert send(h, 1, number, epoch=1, producer=f"p{number}").deduped
    assert send(h, 0, producer="new").deduped


def test_the_frame_of_a_part_bears_its_name_and_its_sum() -> None:
    """R-PROD-7: only the first of its records."""
    h = Harness()
    send(h, 1, 2, epoch=5, number=6)
    memory = bytes(h.store.log.file.memory or b"")
    place = h.engine._core.registry.by_name["t"].index.select(0, 2, 2)
    found = [
        Frame.unpack(memory[offset : offset + length], "")
        for offset, length in zip(place.offsets.tolist(), place.lengths.tolist(), strict=True)
    ]
    (told,) = unpack_extension(found[0].ext)
    assert isinstance(told, ProducerPart)
    assert told[:4] == (2, h.loop.clock.now_ms(), 5, 6)
    assert told.producer == b"p"
    assert found[1].ext == b""


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("power_lost", [False, True])
def test_parts_come_back_from_the_log_and_from_a_snapshot(checkpoint: bool, power_lost: bool) -> None:
    """R-PROD-7: with records that were evicted, and epochs that were forgotten."""
    h = Harness(producer_epochs=2)
    h.put(durability="fsync", cap_records=1)
    for epoch in range(3):
        send(h, epoch, epoch=epoch)
    if checkpoint:
        h.checkpoint()
        send(h, 3, epoch=3)
    h.restart(power_lost=power_lost)
    newest = 3 if checkpoint else 2
    for epoch in range(newest - 1, newest + 1):
        assert send(h, epoch, epoch=epoch).deduped
    with pytest.raises(RequestError, match="forgotten"):
        send(h, 0, epoch=0)
    assert not send(h, 9, epoch=newest + 1).deduped


def test_a_snapshot_tells_of_what_is_committed_and_a_description_has_no_keys_but_parts() -> None:
    """R-PROD-7: a part on its way is in neither."""
    h = Harness()
    h.append(1, key=b"k")
    send(h, 2)
    h.start_append(records(3), identity=Part(b"p", 0, 1))
    topic = h.engine._core.registry.by_name["t"]
    described = msgspec.json.decode(msgspec.json.encode(image_of(topic, None)), type=TopicImage)
    snapshot = msgspec.json.decode(b"".join(h.catalog.checkpoints.snapshot()), type=TopicsSnapshot)
    assert not described.keys
    assert [(topic_id, [row.key for row in rows]) for topic_id, rows in snapshot.keys] == [(topic.id, [b"k"])]
    (told,), ((topic_id, (row,)),) = described.producers, snapshot.producers
    assert topic_id == topic.id
    assert [(each.id, len(each.rows)) for each in (told, row)] == [(b"p", 22)] * 2


def test_a_part_whose_topic_could_not_be_made_is_given_back() -> None:
    """R-PROD-5."""
    h = Harness()
    answer = h.start_append(records(1), identity=Part(b"p", 0, 0))
    h.settle(StorageError("broken"))
    with pytest.raises(StorageError):
        answer.get()
    count = h.engine._core.producers
    assert (count.producers, count.parts) == (0, 0)


@pytest.mark.parametrize("snapshots", [True, False], ids=["snapshots", "no snapshots"])
@pytest.mark.parametrize("run_bytes", [0, 1 << 20], ids=["segments", "packs"])
def test_parts_outlive_a_rebuild(snapshots: bool, run_bytes: int) -> None:
    """R-PROD-7: those of frames in files and in the log, deleted ones too, and those that a description states."""
    world = RealWorld(checkpoint_wal_bytes=1, pack_run_bytes=run_bytes, segment_max_events=4, producer_epochs=3)
    world.put(durability="fsync", cap_records=4)
    for epoch in range(5):
        send(world, epoch, epoch, epoch=epoch)
    world.checkpoint()
    send(world, "deleted", epoch=5)
    world.append("x", "x", tag="gone")
    world.checkpoint()
    world.delete(match="gone")
    world.checkpoint()
    send(world, "in the log", epoch=5, number=1)
    ring = world.ring.next_life(power_cut=False)
    if not snapshots:
        for name in ring.disk.list_directory("data/snapshots"):
            ring.disk.unlink(f"data/snapshots/{name}")
    loop = Loop(ring, ring.clock)
    loop.run_task(rebuild(loop, "data"))
    for again in (False, True):  # a start, and one after it that relies on its snapshot
        world._open(ring if not again else world.ring.next_life(power_cut=False))
        for epoch in (3, 4):
            assert send(world, epoch, epoch, epoch=epoch).deduped
        assert send(world, "deleted", epoch=5).deduped
        assert send(world, "in the log", epoch=5, number=1).deduped
        for epoch in range(3):
            with pytest.raises(RequestError, match="forgotten"):
                send(world, epoch, epoch=epoch)


def test_a_part_whose_description_was_older_is_read_out_of_its_frame() -> None:
    """R-PROD-7: the segment was begun before it, and there is no snapshot and no log any more."""
    world = RealWorld(checkpoint_wal_bytes=1, pack_run_bytes=0)
    world.put(durability="fsync")
    for epoch in range(3):
        send(world, epoch, epoch=epoch)
        world.checkpoint()
    world.delete(before_seq=2)
    world.checkpoint()
    ring = world.ring.next_life(power_cut=False)
    for directory in ("data/snapshots", "data/wal/shard-00"):
        for name in ring.disk.list_directory(directory):
            ring.disk.unlink(f"{directory}/{name}")
    loop = Loop(ring, ring.clock)
    loop.run_task(rebuild(loop, "data"))
    world._open(ring)
    for epoch in range(3):
        assert send(world, epoch, epoch=epoch).deduped
    assert not send(world, 3, epoch=3).deduped


def queue_part(queue: int, number: int, at_ms: int = 0) -> ProducerPart:
    return ProducerPart(1, at_ms, number, 0, 7, OF_QUEUES + b"%d" % queue)


def appended(known: Producers, told: ProducerPart, seq: int, now_ms: int) -> None:
    known.hold(told.producer)
    known.publish(told, seq, now_ms, in_memory=False)


def test_of_a_queue_of_another_core_the_newest_move_is_known_until_it_is_very_old() -> None:
    """R-CORE-15: its number does not say which jobs were moved."""
    count = totals()
    known = Producers(count)
    for number in range(1, 9):
        appended(known, queue_part(1, number, at_ms=number), number, number)
    queue_id = OF_QUEUES + b"1"
    for now_ms in (9, 8 + QUEUE_AGE_MS):  # silent for long
        queue = known.find(queue_id, now_ms)
        assert queue is not None
        assert (queue.newest, queue.parts, queue.find(7, 0)) == (8, 1, None)
        assert queue.find(8, 0) is not None
    assert (count.producers, count.parts, len(known)) == (0, 0, 0)
    rows = known.images(9)
    again = Producers(count)
    again.restore(rows[0])
    assert again.images(9) == rows
    appended(again, queue_part(2, 1, at_ms=9 + QUEUE_AGE_MS), 9, 9 + QUEUE_AGE_MS)
    assert again.peek(queue_id) is None, "an append forgets it, too"
    assert known.find(queue_id, 9 + QUEUE_AGE_MS) is None
    again.clear()
    assert (count.producers, count.parts) == (0, 0)


def test_the_queues_that_a_topic_knows_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_producers, "QUEUES_MAX", 5)
    known = Producers(totals())
    known.hold(OF_QUEUES + b"held")
    for number in range(1, 30):
        appended(known, queue_part(number, 1), number, 0)
    appended(known, queue_part(26, 2), 30, 0)
    assert [row.id for row in known.images(0)] == [OF_QUEUES + b"%d" % number for number in (27, 28, 29, 26)]
    assert known.peek(OF_QUEUES + b"held") is not None
    known.release(OF_QUEUES + b"held")
    assert known.peek(OF_QUEUES + b"held") is None


def test_a_restart_that_has_lost_the_records_forgets_the_queues_they_came_from() -> None:
    known = Producers(totals())
    appended(known, queue_part(1, 1), 4, 0)
    appended(known, queue_part(2, 1), 5, 0)
    known.forget_through(4)
    assert [row.id for row in known.images(0)] == [OF_QUEUES + b"2"]
