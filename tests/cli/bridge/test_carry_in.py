"""A bridge into a server that is killed, or meets an error, at each step: exactly once, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from tests.cli.bridge.fake_sides import Killed, StepCount
from tests.cli.bridge.test_carry_out import NoWait
from topics.bridge.bridge_errors import FencedError, SourceDownError
from topics.bridge.bridge_numbers import BridgeNumbers
from topics.bridge.carry_in import CarryIn
from topics.bridge.carry_out import Retries
from topics.bridge.incoming import BridgeMark, IncomingBatch, IncomingMessage
from topics.bridge.topic_sink import TopicSink
from topics.clock import ManualClock
from topics.common.values.begin import From
from topics.common.values.delivered import Page, Record
from topics.common.values.written import NewRecord, Producer
from topics.errors import NoAnswerError, RequestError, UsageError


class FakeLog:
    """Topics in memory, which know the parts of producers. A step is before and after each append."""

    def __init__(self) -> None:
        self.topics: dict[str, list[Record]] = {}
        self.parts: dict[tuple[str, str, int], list[Any]] = {}
        self.steps = StepCount()
        self.size_max = 100
        self.refuses: Callable[[NewRecord], str] = lambda _record: ""
        """Returns the fault of a record, as a server words it; "": there is none."""
        self.asked = 0

    def append(self, topic: str, records: Sequence[NewRecord], *, producer: Producer) -> None:
        self.steps.step()
        rows = [(record.data, record.meta) for record in records]
        if any(isinstance(record.data, bytes) and len(record.data) > self.size_max for record in records):
            raise RequestError("record_too_large", "a record is too large")
        self.asked += 1
        for at, record in enumerate(records):
            if fault := self.refuses(record):
                raise RequestError("invalid_request", fault.format(f"records[{at}]"))
        name = (topic, producer.id, producer.epoch)
        if name in self.parts:
            if self.parts[name] != rows:
                raise RequestError("producer_diverged", "the part has other records")
            return
        self.parts[name] = rows
        stored = self.topics.setdefault(topic, [])
        for record in records:
            stored.append(Record(seq=len(stored) + 1, ts=0, data=record.data, meta=record.meta, tag=record.tag))
        self.steps.step()

    def page(self, topic: str, from_seq: int | None = None, *, limit: int = 0, from_: From | None = None) -> Page:
        self.steps.step()
        stored = self.topics.get(topic)
        if stored is None:
            raise RequestError("topic_not_found", "it is not there")
        assert isinstance(from_, dict)
        last = int(from_["last"])  # type: ignore[typeddict-item]
        return Page(topic, stored[-last:], len(stored), len(stored), 1, None)


class FakeSource:
    """Numbered messages of two topics, from where the marks say."""

    def __init__(self, mark: Callable[[str], BridgeMark | None], steps: StepCount, size: int) -> None:
        steps.step()
        self._steps = steps
        self._size = size
        self._at = {topic: (found.at["0"] if (found := mark(topic)) else 0) for topic in ("a", "b")}

    @property
    def ended(self) -> bool:
        return all(at == 7 for at in self._at.values())

    def next(self, wait_s: float) -> list[IncomingBatch]:
        self._steps.step()
        found = []
        for topic, at in self._at.items():
            end = min(at + self._size, 7)
            rows = [IncomingMessage(b"\xff%d" % number, None, (), f"message {number}") for number in range(at, end)]
            if rows:
                found.append(IncomingBatch(topic, rows, {"0": end}))
                self._at[topic] = end
        return found

    def left(self) -> dict[str, int]:
        return {topic: 7 - at for topic, at in self._at.items()}

    def close(self) -> None:
        pass


def bridge(log: FakeLog, by: str, steps: StepCount | None = None, size: int = 3, **more: Any) -> CarryIn:
    stop, numbers, of_source = NoWait(), more.pop("numbers", None) or BridgeNumbers(), steps or StepCount()
    options: dict[str, Any] = {"values": "bytes", "adopts": False, "skips_oversize": False, **more}
    return CarryIn(
        lambda mark: FakeSource(mark, of_source, size),
        TopicSink(log, "topics", by, **options),
        numbers=numbers,
        clock=ManualClock(),
        retries=Retries(stop, numbers, lambda: 0.0, ManualClock()),
        stop=stop,
    )


def test_a_bridge_that_is_stopped_before_the_end_is_not_done() -> None:
    assert bridge(FakeLog(), "x").run()
    stopped = bridge(FakeLog(), "x")
    stopped._stop.set()
    assert not stopped.run()


def data(log: FakeLog) -> dict[str, list[bytes]]:
    return {topic: [record.data for record in stored] for topic, stored in log.topics.items()}


def lag(numbers: BridgeNumbers, topic: str) -> float | None:
    return numbers.registry.get_sample_value("topics_bridge_lag_records", {"topic": topic})


EXPECTED = {topic: [b"\xff%d" % number for number in range(7)] for topic in ("a", "b")}


@pytest.mark.parametrize("error", [Killed, NoAnswerError])
def test_a_bridge_continues_after_an_end_at_any_step_here(error: type[BaseException]) -> None:
    log = FakeLog()
    bridge(log, "p1").run()
    assert data(log) == EXPECTED
    for at in range(1, log.steps.count + 1):
        log = FakeLog()
        log.steps = StepCount(at, error)
        if error is Killed:
            with pytest.raises(Killed):
                bridge(log, "p1").run()
        bridge(log, "p2", size=2).run()
        assert data(log) == EXPECTED, at


@pytest.mark.parametrize("error", [Killed, SourceDownError])
def test_a_bridge_continues_after_an_end_at_any_step_there(error: type[BaseException]) -> None:
    steps = StepCount()
    bridge(FakeLog(), "p1", steps).run()
    for at in range(1, steps.count + 1):
        log = FakeLog()
        if error is Killed:
            with pytest.raises(Killed):
                bridge(log, "p1", StepCount(at, error)).run()
            bridge(log, "p2", size=2).run()
        else:
            bridge(log, "p1", StepCount(at, error)).run()
        assert data(log) == EXPECTED, at


def test_the_lag_is_what_the_other_side_has_left() -> None:
    numbers = BridgeNumbers()
    with pytest.raises(Killed):
        bridge(FakeLog(), "p1", StepCount(3, Killed), numbers=numbers).run()
    assert [lag(numbers, topic) for topic in ("a", "b")] == [4, 4]
    bridge(FakeLog(), "p2", numbers=numbers).run()
    assert [lag(numbers, topic) for topic in ("a", "b")] == [0, 0]


def test_an_append_of_a_dead_process_that_arrives_late_is_not_repeated() -> None:
    log = FakeLog()
    late = NewRecord(b"\xff0", meta={"topics-bridge": {"id": "topics", "batch": 1, "by": "dead", "at": {"0": 1}}})
    append = log.append

    def late_first(topic: str, records: Sequence[NewRecord], *, producer: Producer) -> None:
        log.append = append  # type: ignore[method-assign]
        append("a", [late], producer=Producer("bridge:topics", 1))
        append(topic, records, producer=producer)

    log.append = late_first  # type: ignore[method-assign]
    bridge(log, "p2").run()
    assert data(log) == EXPECTED


def test_a_bridge_that_another_one_has_passed_ends() -> None:
    log = FakeLog()
    carry = bridge(log, "p1")
    append = log.append

    def passed(topic: str, records: Sequence[NewRecord], *, producer: Producer) -> None:
        if producer.epoch == 2 and topic == "a":
            log.append = append  # type: ignore[method-assign]
            bridge(log, "p2").run()
        append(topic, records, producer=producer)

    log.append = passed  # type: ignore[method-assign]
    with pytest.raises(FencedError, match="another bridge with --id topics writes to a"):
        carry.run()
    assert data(log) == EXPECTED


def test_a_topic_of_others_is_refused_unless_it_is_adopted() -> None:
    log = FakeLog()
    log.topics["a"] = [Record(seq=1, ts=0, data=b"other")]
    with pytest.raises(UsageError, match="a has had 1 records here.*--adopt"):
        bridge(log, "p1").run()
    bridge(log, "p1", adopts=True).run()
    assert data(log) == EXPECTED | {"a": [b"other", *EXPECTED["a"]]}


def test_a_message_too_large_here_names_its_place_or_is_marked() -> None:
    log = FakeLog()
    log.size_max = 1
    with pytest.raises(UsageError, match=r"message 0 has 2 bytes.*--oversize skip"):
        bridge(log, "p1").run()
    bridge(log, "p1", skips_oversize=True).run()
    assert [record.data for record in log.topics["a"]] == [
        {"place": f"message {number}", "bytes": 2} for number in range(7)
    ]


META_SIZE = "{}.meta is larger than 16384 bytes of compact JSON: use data for more"


def sample(numbers: BridgeNumbers, name: str) -> float | None:
    return numbers.registry.get_sample_value(f"topics_bridge_{name}_total", {"topic": "a"})


def test_a_message_that_the_server_refuses_names_its_place_and_reason_or_is_marked() -> None:
    log, numbers = FakeLog(), BridgeNumbers()
    odd = [b"\xff1", b"\xff3"]
    log.refuses = lambda record: META_SIZE if record.data in odd else ""
    with pytest.raises(UsageError) as caught:
        bridge(log, "p1").run()
    assert str(caught.value) == (
        "message 1 cannot be a record of a here (meta is larger than 16384 bytes of compact JSON: use data for more): "
        "mend it there, or leave a mark in its place with --oversize skip"
    )
    bridge(log, "p1", skips_oversize=True, numbers=numbers).run()
    found = [record.data for record in log.topics["a"]]
    assert [data for data in found if isinstance(data, bytes)] == [b"\xff0", b"\xff2", b"\xff4", b"\xff5", b"\xff6"]
    assert [found[1]["place"], found[3]["place"], found[1]["bytes"]] == ["message 1", "message 3", 2]
    assert "meta is larger than 16384 bytes" in found[1]["reason"]
    assert (sample(numbers, "records"), sample(numbers, "marks")) == (5, 2)


def test_a_value_that_has_to_be_json_and_is_not_is_marked_on_request() -> None:
    log = FakeLog()
    with pytest.raises(UsageError, match=r"message 0 is no JSON .*--values auto or bytes, or .*--oversize skip$"):
        bridge(log, "p1", values="json").run()
    bridge(log, "p1", values="json", skips_oversize=True).run()
    assert [record.data["place"] for record in log.topics["b"]] == [f"message {number}" for number in range(7)]


@pytest.mark.parametrize("where", ["{}.data is not JSON", "the body is not valid JSON: a number (byte 3 in {})"])
def test_json_that_the_server_does_not_take_is_bytes(where: str) -> None:
    log = FakeLog()
    log.refuses = lambda record: where if isinstance(record.data, msgspec.Raw) and len(record.data) > 1 else ""
    sink = TopicSink(log, "topics", "p1", values="auto", adopts=False, skips_oversize=False)
    rows = [IncomingMessage(value, None, (), "a place") for value in (b"1", b"22", b"3")]
    assert sink.put(IncomingBatch("a", rows, {"0": 3})) == 0
    assert [type(record.data) for record in log.topics["a"]] == [msgspec.Raw, bytes, msgspec.Raw]
    assert log.asked == 2


def test_a_refusal_that_names_no_record_ends_the_bridge_as_it_is() -> None:
    log = FakeLog()
    log.refuses = lambda _record: "topic 'a' is not usable"
    with pytest.raises(RequestError, match="topic 'a' is not usable"):
        bridge(log, "p1", skips_oversize=True).run()


def test_a_mark_that_is_refused_too_ends_the_bridge() -> None:
    log = FakeLog()
    log.refuses = lambda _record: META_SIZE
    with pytest.raises(RequestError, match=r"records\[0\].meta is larger"):
        bridge(log, "p1", skips_oversize=True).run()
