"""The load client in C against servers that answer as a test wants, and its schedule."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli.bench.scripted_server import http_answer, scripted_server
from topics.bench.load._load import lib
from topics.bench.load.latency_histogram import LatencyHistogram
from topics.bench.load.load_client import GroupFigures, LabelCounts, LoadClient, LoadError, LoadFigures, count_labels
from topics.bench.load.load_plan import (
    LABEL,
    AnswerEnd,
    LoadGroup,
    LoadMessage,
    Take,
    http_request,
    labelled_json,
    numbered_json,
    taking_request,
)
from topics.bench.outcome import load_outcome
from topics.bench.round_checks import delivery_check, read_check, request_checks
from topics.bench.workload import LoadSpec

SECONDS = 0.1
WRITE = LoadMessage(http_request("POST", "/t", b'{"records":[{"data":' + labelled_json(80) + b"}]}"))
NUMBERS_MAX = 1 << 20
_NUMBERS = re.compile(rb'"n":(\d{16})')
MESSAGES = tuple(LoadMessage(http_request("POST", "/t", b"%d" % number)) for number in range(6))


def run(
    port: int, *groups: LoadGroup, seconds: float = SECONDS, warmup: float = 0.0, drain_seconds: float = 0.2
) -> LoadFigures:
    client = LoadClient(
        list(groups), "127.0.0.1", port, seconds, warmup=warmup, drain_seconds=drain_seconds, numbers_max=NUMBERS_MAX
    )
    return client.run()


def run_all(port: int, group: LoadGroup, count: int = 30) -> LoadFigures:
    """Run a load to the answer of its last request, however long the server's thread has no core."""
    return run(port, replace(group, most_requests=count), seconds=60, drain_seconds=60)


def checks_hold(plans: list[LoadGroup], figures: LoadFigures) -> bool:
    return all(check.ok for check in request_checks(plans, figures))


@given(st.integers(0, 1 << 60), st.integers(0, 1 << 40), st.floats(0.01, 1e7))
def test_request_i_of_an_open_loop_is_due_at_the_start_plus_i_over_the_rate(
    start: int, number: int, rate: float
) -> None:
    if number / rate > 1e8:
        return
    due = lib.tp_due_ns(start, number, rate)  # type: ignore[arg-type]
    assert abs(due - start - number * 1e9 / rate) <= max(1.0, number * 1e9 / rate * 1e-12)


def test_an_open_loop_counts_every_request_that_was_due_also_those_a_stalled_server_held_up() -> None:
    """The case of coordinated omission: one connection, and no answer at all. A client that only counts answers would
    have nothing to show.
    """
    plan = LoadGroup("w", 1, (WRITE,), rate=1000)
    with scripted_server(lambda data: b"") as port:
        figures = run(port, plan)
    (group,) = figures.groups
    assert group.requests == 0
    assert group.unsent == 99, "the first was sent"
    assert group.unanswered == 1
    waited = group.steps["answer"]
    assert waited.total == 100
    spread = waited.quantile(0.99) - waited.quantile(0.001)
    assert spread == pytest.approx(98e6, rel=0.05), "each of them was due a millisecond after the one before"
    assert waited.quantile(1) >= 0.3e9 * 0.999, "the first one has waited until the client gave up"
    assert not checks_hold([plan], figures)


def test_a_closed_loop_without_any_answer_fails() -> None:
    """Its rate was 0.00, without a warning, and every check held."""
    plan = LoadGroup("w", 3, (WRITE,))
    with scripted_server(lambda data: b"") as port:
        figures = run(port, plan)
    (group,) = figures.groups
    assert (group.all_requests, group.unanswered, group.steps["answer"].total) == (0, 3, 3)
    assert not checks_hold([plan], figures)


def test_requests_that_are_never_answered_show_their_wait_and_fail_the_run() -> None:
    """Each request on a connection of its own, and every 50th hangs."""
    asked = itertools.count(1)
    hung: list[int] = []
    plan = LoadGroup("w", 100, (WRITE,), most_requests=100)

    def answer(data: bytes) -> bytes:
        if next(asked) % 50:
            return http_answer(b"{}")
        hung.append(time.monotonic_ns())
        return b""

    def look(client: LoadClient) -> None:
        if client.requests_so_far() == 98 and len(hung) == 2 and not ended:
            ended.append(time.monotonic_ns())
            client.stop()

    ended: list[int] = []
    with scripted_server(answer) as port:
        client = LoadClient([plan], "127.0.0.1", port, 60, drain_seconds=60, numbers_max=NUMBERS_MAX)
        figures = client.run_watched(0.01, look)
    (group,) = figures.groups
    assert (group.all_requests, group.unsent, group.unanswered) == (98, 0, 2)
    waited = group.steps["answer"]
    assert waited.total == 100
    assert waited.quantile(1) >= (ended[0] - hung[0]) * 0.999
    assert not checks_hold([plan], figures)


def test_a_load_whose_requests_are_all_answered_holds_its_checks() -> None:
    plan = LoadGroup("w", 1, (WRITE,), most_requests=50)
    with scripted_server(lambda data: http_answer(b"{}")) as port:
        assert checks_hold([plan], run(port, plan, seconds=60))


def test_a_read_that_waits_for_records_may_be_in_flight_at_the_end() -> None:
    plan = LoadGroup("t", 1, (WRITE,), hears=True, waits=True)
    with scripted_server(lambda data: b"") as port:
        assert checks_hold([plan], run(port, plan))


def test_a_latency_counts_from_when_the_request_was_due_and_not_from_when_it_was_sent() -> None:
    held = threading.Event()
    answers = iter(range(10**9))

    def answer(data: bytes) -> bytes:
        if next(answers) == 0:
            held.wait(0.05)  # nothing sets it: the first answer takes so long
        return http_answer(b"{}")

    with scripted_server(answer) as port:
        figures = run(port, LoadGroup("w", 1, (WRITE,), rate=1000, samples=1000, most_requests=60), seconds=60)
    due, sent, answered = figures.groups[0].samples.T
    assert np.all(np.diff(due) == 1_000_000), "the schedule does not move with the answers"
    assert np.all(sent >= due)
    assert np.any(sent - due > 10_000_000), "those that were due meanwhile were sent late"
    took = LatencyHistogram.of([int(one) for one in answered - due])
    counted = figures.groups[0].steps["answer"]
    assert np.all(counted.counts >= took.counts)
    assert counted.total - took.total == figures.groups[0].unsent, "and those that were never sent"


@pytest.mark.parametrize("connections", [2, 5, 6])
def test_connections_take_all_messages_by_turns(connections: int) -> None:
    """One connection of a load of reads read one of 64 places, again and again."""
    asked: set[bytes] = set()

    def answer(data: bytes) -> bytes:
        asked.add(data[-1:])
        if len(asked) == len(MESSAGES):
            client.stop()  # a bound of requests might be used up by one connection
        return http_answer(b"{}")

    with scripted_server(answer) as port:
        group = LoadGroup("r", connections, MESSAGES, steps=("a", "b"))
        client = LoadClient([group], "127.0.0.1", port, 60, drain_seconds=0.2, numbers_max=NUMBERS_MAX)
        client.run()
    assert asked == {b"%d" % number for number in range(len(MESSAGES))}


def test_one_connection_takes_all_messages_in_order() -> None:
    asked: list[bytes] = []

    def answer(data: bytes) -> bytes:
        asked.append(data[-1:])
        return http_answer(b"{}")

    with scripted_server(answer) as port:
        run(port, LoadGroup("r", 1, MESSAGES, steps=("a", "b"), most_requests=600), seconds=60)
    assert asked == [b"%d" % (at % len(MESSAGES)) for at in range(600)]


def test_each_record_has_a_number_of_its_own_and_the_time_at_which_it_was_due() -> None:
    texts: list[bytes] = []

    def answer(data: bytes) -> bytes:
        texts.append(data)
        return http_answer(b"{}")

    two = b'{"records":[' + b",".join([b'{"data":' + labelled_json(60) + b"}"] * 2) + b"]}"
    with scripted_server(answer) as port:
        figures = run_all(port, LoadGroup("w", 3, (LoadMessage(http_request("POST", "/t", two)),)))
    labels = re.findall(rb'"n":1(\d{15}),"t":1(\d{18})', b"".join(texts))
    numbers = sorted(int(number) for number, _ in labels)
    assert numbers == list(range(len(numbers)))
    assert len(numbers) == 2 * figures.groups[0].all_requests == len(figures.acked) == 60
    assert figures.acked.all()
    assert all(int(stamp) > 0 for _, stamp in labels)


def test_an_answer_that_is_an_error_is_counted_and_its_records_are_not_acknowledged() -> None:
    with scripted_server(lambda data: http_answer(b'{"error":"full"}', 503)) as port:
        figures = run_all(port, LoadGroup("w", 1, (WRITE,)))
    assert figures.groups[0].errors == figures.groups[0].all_requests == 30
    assert not figures.acked.any()
    assert "503" in figures.error


def test_writes_that_a_limit_refuses_are_counted_and_come_again_with_their_numbers() -> None:
    """A server whose log is at its bound refuses some; a run of minutes would use up its numbers."""
    refused = itertools.cycle((True, True, False))
    seen: list[bytes] = []

    def answer(data: bytes) -> bytes:
        seen.append(re.findall(rb'"n":(\d{16})', data)[0])
        return http_answer(b"{}", 429) if next(refused) else http_answer(b"{}")

    with scripted_server(answer) as port:
        figures = run_all(port, LoadGroup("w", 1, (WRITE,), may_be_throttled=True))
    (group,) = figures.groups
    assert group.errors == 0
    assert (group.all_requests, group.throttled) == (30, 20)
    assert group.all_records == figures.acked.sum() == 10
    assert group.steps["answer"].total == 10
    assert (len(seen), len(set(seen))) == (30, 10)


def test_what_is_due_in_the_warm_up_is_not_measured() -> None:
    with scripted_server(lambda data: http_answer(b"{}")) as port:
        figures = run(port, LoadGroup("w", 4, (WRITE,), rate=500), warmup=0.1, drain_seconds=60)
    (group,) = figures.groups
    assert group.all_requests + group.unsent == 100
    assert group.steps["answer"].total == 50


def held_until(
    moment: Callable[[LoadClient], bool], *, warmup: float, seconds: float, most_requests: int = 0
) -> GroupFigures:
    """A load of which each record comes back with its answer, and no answer comes before a moment."""
    held = threading.Event()

    def answer(data: bytes) -> bytes:
        held.wait()
        return http_answer(b"".join(re.findall(rb'"n":\d+,"t":\d+', data)))

    def look(client: LoadClient) -> None:
        if moment(client):
            held.set()

    plan = LoadGroup("w", 1, (WRITE,), hears=True, most_requests=most_requests)
    with scripted_server(answer) as port:
        client = LoadClient([plan], "127.0.0.1", port, seconds, warmup, drain_seconds=60, numbers_max=NUMBERS_MAX)
        figures = client.run_watched(0.01, look)
    assert not figures.groups[0].wrong
    return figures.groups[0]


def test_what_comes_after_the_end_is_in_no_rate_and_in_the_latencies() -> None:
    """A server that took 194,884 writes and delivered nothing in the measured second had that rate of deliveries."""
    late = held_until(lambda client: client.phase == "draining", warmup=0, seconds=0.1)
    assert (late.requests, late.records, late.deliveries) == (0, 0, 0)
    assert (late.all_requests, late.all_records, late.all_deliveries) == (1, 1, 1)
    assert (late.steps["answer"].total, late.delivery.total) == (1, 1)
    load = load_outcome(LoadSpec("w", "write"), late, 0.1)
    assert (load.rate, load.unit) == (0, "records/s")


def test_what_was_due_before_the_measured_time_and_comes_in_it_is_in_the_rates() -> None:
    """An open loop above what a server can do had a rate of 0.00."""

    def has_warmed_up(client: LoadClient) -> bool:
        return 0 < client.started_ns() < time.monotonic_ns() - 50_000_000

    early = held_until(has_warmed_up, warmup=0.05, seconds=60, most_requests=1)
    assert (early.requests, early.records, early.deliveries) == (1, 1, 1)
    assert (early.steps["answer"].total, early.delivery.total) == (0, 0)


def test_a_request_can_repeat_what_the_last_answer_gave() -> None:
    bodies: list[bytes] = []

    def answer(data: bytes) -> bytes:
        bodies.append(data.partition(b"\r\n\r\n")[2])
        if b"claim" in data:
            return http_answer(b'{"claimed":[{"$seq":%d},{"$seq":%d}]}' % (len(bodies), len(bodies) + 1))
        return http_answer(b'{"acked":2}')

    claim = LoadMessage(http_request("POST", "/q/claim", b"{}"))
    ack = taking_request("/q/ack", (b'{"seqs":[', b"]}"), Take.SEQS)
    with scripted_server(answer) as port:
        for seconds in (SECONDS, 1, 10):  # of a run in which a thread had no core, there may be one cycle
            bodies.clear()
            figures = run(
                port, LoadGroup("w", 1, (claim, ack), steps=("claim", "ack")), seconds=seconds, drain_seconds=60
            )
            if len(bodies) > 2:
                break
    assert bodies[:4] == [b"{}", b'{"seqs":[1,2]}', b"{}", b'{"seqs":[3,4]}']
    assert len(bodies) % 2 == 0, "a cycle that has begun is completed"
    assert figures.groups[0].steps["ack"].total > 0


def test_a_worker_that_finds_nothing_stops_where_the_plan_says_so() -> None:
    with scripted_server(lambda data: http_answer(b'{"claimed":[]}')) as port:
        claim = LoadMessage(http_request("POST", "/q/claim", b"{}"))
        ack = taking_request("/q/ack", (b'{"seqs":[', b"]}"), Take.SEQS)
        group = LoadGroup("w", 2, (claim, ack), steps=("claim", "ack"), stops_empty=True)
        figures = run(port, group, seconds=30)
    assert figures.groups[0].all_requests == 2
    assert figures.seconds < 30


@pytest.mark.parametrize(
    ("end", "size", "reply"), [(AnswerEnd.LINES, 2, b"$3\r\nabc\r\n"), (AnswerEnd.BYTES, 5, b"12345")]
)
def test_other_protocols_end_an_answer_after_lines_or_bytes(end: AnswerEnd, size: int, reply: bytes) -> None:
    with scripted_server(lambda data: reply) as port:
        message = LoadMessage(b"X" + LABEL + b"\n")
        figures = run_all(port, LoadGroup("w", 2, (message,), end=end, size=size, refused=b"-"))
    assert figures.groups[0].all_requests == 30
    assert figures.acked.all()


def test_an_answer_with_the_pattern_of_an_error_is_one_in_other_protocols_too() -> None:
    with scripted_server(lambda data: b"-ERR no\r\n") as port:
        group = LoadGroup("w", 1, (LoadMessage(b"X\n"),), end=AnswerEnd.LINES, size=2, refused=b"-ERR")
        figures = run_all(port, group)
    assert figures.groups[0].errors == figures.groups[0].all_requests == 30


def test_an_error_amid_a_batch_of_commands_is_one_of_the_answer() -> None:
    """Only the first byte of what was received was looked at."""
    batch = LoadMessage(b"".join(b"X" + LABEL + b"\n" for _ in range(3)))
    group = LoadGroup("w", 1, (batch,), end=AnswerEnd.LINES, size=6, refused=b"-", most_requests=20)
    for reply in (b"$3\r\nabc\r\n-ERR full\r\n$3\r\nabc\r\n", b"-ERR a\r\n-ERR b\r\n-ERR c\r\n"):
        with scripted_server(lambda data, reply=reply: reply) as port:  # type: ignore[misc]
            figures = run(port, group, seconds=60)
        assert figures.groups[0].errors == figures.groups[0].all_requests == 20
        assert "an answer that is an error: -ERR" in figures.error
        assert not figures.acked.any()


def test_a_piece_of_an_answer_may_begin_as_an_error_does() -> None:
    """Each answer brings the end of its own text, and the beginning of the next one's, which a stream may cut so."""
    texts = iter(range(10**9))
    message = LoadMessage(b"X" + LABEL + b"\n")
    group = LoadGroup("w", 1, (message,), end=AnswerEnd.LINES, size=2, refused=b"-", most_requests=20)
    with scripted_server(lambda data: b"-1\r\n$3\r\n1" if next(texts) else b"$3\r\n1-1\r\n$3\r\n1") as port:
        figures = run(port, group, seconds=60)
    assert (figures.groups[0].errors, figures.groups[0].all_requests) == (0, 20)


def test_a_pattern_ends_an_answer_wherever_the_stream_is_cut() -> None:
    """Each answer brings the end of its own text, and the beginning of the next one's."""
    texts = iter(range(10**9))
    group = LoadGroup("w", 1, (LoadMessage(b"X\n"),), end=AnswerEnd.PATTERN, answer=b'"op":"ack"')
    with scripted_server(lambda data: b'k"}{"op":"ac' if next(texts) else b'{"op":"ack"}{"op":"ac') as port:
        figures = run_all(port, group)
    assert figures.groups[0].all_requests == 30


def test_a_reader_that_hears_a_record_twice_or_misses_one_is_found() -> None:
    """The first writer's records are repeated in its own answers, once too often."""
    for times, wrong in ((1, 0), (2, 1), (0, 1)):

        def answer(data: bytes, times: int = times) -> bytes:
            records = re.findall(rb'"n":\d+,"t":\d+', data)
            return http_answer(b"{" + b",".join(records * times) + b"}")

        with scripted_server(answer) as port:
            group = LoadGroup("w", 1, (WRITE,), hears=True, most_requests=30)
            figures = run(port, group, seconds=60)  # which waits for no record that does not come
        assert figures.groups[0].wrong == wrong
        assert (figures.groups[0].all_requests, figures.groups[0].all_deliveries) == (30, times * 30)


def test_a_reader_that_hears_a_record_twice_instead_of_another_is_found() -> None:
    """It hears as many as were written."""
    heard: list[bytes] = []

    def answer(data: bytes) -> bytes:
        """Each second answer has the record of the one before it."""
        heard.append(heard[-1] if len(heard) % 2 else re.findall(rb'"n":\d+,"t":\d+', data)[0])
        return http_answer(b"{" + heard[-1] + b"}")

    with scripted_server(answer) as port:
        figures = run(port, LoadGroup("w", 1, (WRITE,), hears=True, most_requests=10), seconds=60)
    (group,) = figures.groups
    assert (group.all_requests, group.all_deliveries, group.wrong) == (10, 10, 1)


def test_an_answer_with_other_records_than_were_asked_for_is_found() -> None:
    """A server that answered each of 64 places with the page of the first passed every check."""
    spec = LoadSpec("r", "read", limit=3)

    def records(numbers: Iterable[int]) -> bytes:
        return b",".join(numbered_json(60, number) for number in numbers)

    def misread(place: int, body: bytes) -> int:
        read = LoadMessage(http_request("POST", "/t", b"{}"), asks_from=place, asks=3)
        plan = LoadGroup("r", 2, (read,), hears=True, shares=True, most_requests=10)
        with scripted_server(lambda data: http_answer(body)) as port:
            (group,) = run(port, plan, seconds=60).groups
        assert group.all_requests == 10
        assert read_check(spec, group).ok == (group.misread == 0)
        return group.misread

    for place in (0, 7):
        assert misread(place, records(range(place, place + 3))) == 0
        assert misread(place, records((place, place + 2, place + 1))) == 10
        assert misread(place, records(range(place, place + 4))) == 10
        assert misread(place, records(range(place, place + 2))) == 10
        assert misread(place, b"") == 10
    assert misread(7, records(range(3))) == 10


def test_a_server_that_closes_a_connection_ends_the_run_with_a_sentence() -> None:
    def answer(data: bytes) -> bytes:
        raise ConnectionError

    with scripted_server(answer) as port, pytest.raises(LoadError, match="the server closed a connection"):
        run_all(port, LoadGroup("w", 1, (WRITE,)))


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: -5", "an answer without Content-Length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: two", "an answer without Content-Length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2 3", "an answer without Content-Length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999", "an answer without Content-Length"),
        (b"HTTP/1.1 200 OK\r\nX-Content-Length: 2", "an answer without Content-Length"),
        (b"HTTP/1.1 200 OK\r\n\r\ncontent-length: 2", "an answer without Content-Length"),
        (b"220 mail.example 2.0\r\nContent-Length: 2", "an answer that is no HTTP"),
    ],
)
def test_an_answer_whose_head_is_wrong_ends_the_run_with_a_sentence(head: bytes, said: str) -> None:
    """After a negative length the client looked for the end of the head for ever; others counted as answers."""
    with (
        scripted_server(lambda data: head + b"\r\n\r\n{}{}") as port,
        pytest.raises(LoadError, match=f"the load client stopped: {said}: "),
    ):
        run_all(port, LoadGroup("w", 1, (WRITE,)))


def test_a_port_without_a_server_is_named() -> None:
    with scripted_server(lambda data: b"") as port:
        pass
    with pytest.raises(LoadError, match=f"connect to 127.0.0.1:{port}: Connection refused"):
        run(port, LoadGroup("w", 1, (WRITE,)))


def test_a_connection_that_is_refused_shows_the_answer() -> None:
    group = LoadGroup("r", 1, openings=(b"GET / HTTP/1.1\r\n\r\n",), ready=b"caught-up", hears=True)
    with (
        scripted_server(lambda data: http_answer(b"no such topic", 404)) as port,
        pytest.raises(LoadError, match="404"),
    ):
        run(port, group)


def test_labels_of_a_text_are_counted_by_number() -> None:
    text = b",".join(numbered_json(60, number) for number in (0, 2, 2))
    seen = np.zeros(3, np.uint8)
    assert count_labels(text + b'{"n":1,"t":2}', seen, (60,)) == LabelCounts(3, 0)
    assert seen.tolist() == [1, 0, 2]
    with pytest.raises(LoadError, match="no request of this run"):
        count_labels(numbered_json(60, 3), seen, (60,))


def test_a_record_with_one_other_byte_is_altered() -> None:
    """A server that stored yyyy for xxxx passed every check."""
    text = numbered_json(60, 1)
    digits = range(text.index(b'"n":') + 4, text.index(b'"n":') + 20)
    assert text[digits.start : digits.stop].isdigit()
    for at in set(range(len(text))) - set(digits):
        for byte in (b"y", b"}", b"0"):
            changed = text[:at] + byte + text[at + 1 :]
            counts = count_labels(b"[" + changed + b"]", np.zeros(2, np.uint8), (60,))
            is_time = text.index(b'"t":1') + 5 <= at < text.index(b'"t":1') + 23 and byte == b"0"
            assert counts.found - counts.altered == (changed == text or is_time), changed
    for size in (46, 53, 54, 200):
        text = numbered_json(size, 1)
        assert count_labels(text, np.zeros(2, np.uint8), (60, size)) == LabelCounts(1, 0)
        assert count_labels(text[:-1], np.zeros(2, np.uint8), (60, size)) == LabelCounts(1, 1)
        assert count_labels(text, np.zeros(2, np.uint8), (60, size + 10)) == LabelCounts(1, 1)


def test_a_record_is_padded_to_its_size_and_a_small_one_is_its_label() -> None:
    assert len(labelled_json(100)) == 100
    assert labelled_json(46) == b"{" + LABEL + b"}"
    assert len(numbered_json(200, 7)) == 200


@settings(max_examples=15, deadline=None)
@given(st.lists(st.binary(max_size=60), min_size=1, max_size=8), st.integers(1, 120))
def test_labels_are_counted_wherever_a_stream_is_cut(fillings: list[bytes], size: int) -> None:
    """The server sends a text by pieces, one for each request. A text of any bytes has labels between them."""
    text = b"".join(filling + numbered_json(46, number) for number, filling in enumerate(fillings))
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    pieces[-1] += b" " * (size - len(pieces[-1]))
    left = iter(pieces)
    message = LoadMessage(b"X\n")
    group = LoadGroup(
        "w",
        1,
        (message,),
        end=AnswerEnd.BYTES,
        size=size,
        hears=True,
        shares=True,
        marks=True,
        most_requests=len(pieces),
    )
    with scripted_server(lambda data: next(left, b"")) as port:
        figures = run(port, group, seconds=20)
    seen = np.zeros(len(fillings) + 1, np.uint8)
    model = re.findall(rb'"n":1\d{15},"t":\d{19}', text)
    assert figures.groups[0].all_deliveries == count_labels(text, seen, (46,)).found == len(model)
    marked = figures.groups[0].seen
    assert marked is not None
    assert np.array_equal(marked[: len(seen)], seen)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from([46, 54, 60, 200]), min_size=1, max_size=6), st.integers(1, 120), st.data())
def test_deliveries_are_compared_byte_by_byte_wherever_a_stream_is_cut(
    sizes: list[int], size: int, data: st.DataObject
) -> None:
    """A server that delivered other bytes under the right numbers passed every check."""
    text = bytearray(b"," + b",".join(numbered_json(each, number) for number, each in enumerate(sizes)))
    places = [at for at in range(len(text)) if not any(at in range(*each.span(1)) for each in _NUMBERS.finditer(text))]
    for at in data.draw(st.lists(st.sampled_from(places), max_size=2)):
        text[at] = data.draw(st.sampled_from(b'xy0}"'))
    del text[data.draw(st.sampled_from([len(text), len(text), len(text) - 1, len(text) - 9])) :]
    pieces = [bytes(text[start : start + size]) for start in range(0, len(text), size)]
    left = iter(pieces)
    known = (46, 54, 60)
    group = LoadGroup("w", 1, (LoadMessage(b"X\n"),), end=AnswerEnd.BYTES, size=1, hears=True, shares=True)
    group = replace(group, record_bytes=known, most_requests=len(pieces))
    with scripted_server(lambda asked: next(left, b"")) as port:
        (figures,) = run(port, group, seconds=20).groups
    model = count_labels(bytes(text), np.zeros(len(sizes) + 1, np.uint8), known)
    assert (figures.all_deliveries, figures.altered) == (model.found, model.altered)
    assert read_check(LoadSpec("w", "read"), figures).ok is False or not model.altered
    assert delivery_check(group, figures).ok == (not model.altered)
