"""When a client sends a request again: without a socket, on a clock of the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from topics import (
    DiskFullError,
    NoAnswerError,
    OutcomeUnknown,
    Producer,
    RequestError,
    StorageError,
    UsageError,
    WouldBlockError,
)
from topics.client import scripts, server_calls
from topics.client.attempts import Attempts, Lost, Send, ServerCall
from topics.client.client_options import Address, ClientOptions, options_of
from topics.client.exchange import BadAnswerError, ClientExchange, ServerAnswer, ServerRequest
from topics.client.parsing import HandedOut
from topics.client.reader_script import HeldPage
from topics.common.reader_tail import ReaderTail, tail_awaited_reader, tail_reader
from topics.common.values.answers import ReaderState, Tombstone
from topics.common.values.backup_result import BackupProgress
from topics.common.values.configs import RouterConfig
from topics.common.values.delivered import GapError, Page, Record
from topics.common.values.reader_config import ReaderConfig, opening

APPENDED = b'{"topic":"t","first_seq":1,"last_seq":1,"head_seq":1,"count":1,"created":false,"deduped":true}'
RESET = Lost(True, "reset")
REFUSED = Lost(False, "refused")


def answer(body: bytes, status: int = 200, retry_after: float = 0.0) -> ServerAnswer:
    return ServerAnswer(status, retry_after, "application/json", body)


def error(status: int, code: str, detail: str = "null", retry_after: float = 0.0) -> ServerAnswer:
    return answer(
        b'{"error":{"code":"%s","message":"m","detail":%s}}' % (code.encode(), detail.encode()), status, retry_after
    )


def window(ms: int) -> ServerAnswer:
    return answer(b'{"config":{"idempotency_window_ms":%d}}' % ms)


class Played:
    """Plays a call against outcomes that are given in order; each request takes a second."""

    def __init__(self, *outcomes: Any, **options: Any) -> None:
        self.now = 100.0
        self.left = list(outcomes)
        self.requests: list[ServerRequest] = []
        self.begun: list[float] = []
        self.pauses: list[float] = []
        self.attempts = Attempts("http://s", ClientOptions(**options), lambda: self.now, lambda: 1.0)

    def play(self, call: ServerCall[Any]) -> Any:
        steps = self.attempts.steps(call)
        try:
            step = next(steps)
            while True:
                if isinstance(step, Send):
                    self.requests.append(step.request)
                    self.begun.append(self.now)
                    outcome = self.left.pop(0) if len(self.left) > 1 else self.left[0]
                    self.now += 1.0
                    step = steps.send(outcome)
                else:
                    self.pauses.append(step)
                    self.now += step
                    step = next(steps)
        except StopIteration as end:
            return end.value


def append(**options: Any) -> ServerCall[Any]:
    given = {"key": None, "node": None, "create": None, "incarnation": None, "producer": None, "timeout": None}
    return server_calls.append("t", [1], **{**given, **options}, new_key=lambda: "k")


def test_an_append_without_an_answer_is_sent_again_with_the_same_key() -> None:
    played = Played(RESET, window(120_000), REFUSED, answer(APPENDED))
    assert played.play(append()).deduped
    first, state, *again = played.requests
    assert (state.method, again) == ("GET", [first, first])
    assert b'"idempotency_key":"k"' in (first.body or b"")


def test_within_no_window_nothing_is_sent_again_once_bytes_were_sent() -> None:
    played = Played(REFUSED, RESET, window(0))
    with pytest.raises(OutcomeUnknown, match="no idempotency window"):
        played.play(append())
    assert [request.method for request in played.requests] == ["POST", "POST", "GET"]


def test_a_key_is_repeated_for_half_of_its_window_at_most() -> None:
    played = Played(RESET, window(8_000), RESET, timeout=1000.0)
    with pytest.raises(OutcomeUnknown, match="window could not be asked for in time"):
        played.play(append())
    assert played.begun[-1] < 104.0
    assert len(played.begun) == 4


@pytest.mark.parametrize("refused", [error(401, "unauthorized"), error(409, "incarnation_mismatch"), answer(b"<", 404)])
def test_a_refusal_of_a_repetition_does_not_say_that_nothing_was_done(refused: ServerAnswer) -> None:
    """After a restart, a topic of class `memory` may have the records and another incarnation."""
    for options in ({}, {"incarnation": "0" * 16}, {"producer": Producer("p", 1)}):
        outcomes = [RESET, *([] if "producer" in options else [window(120_000)]), refused]
        with pytest.raises(OutcomeUnknown, match="refused") as raised:
            Played(*outcomes).play(append(**options))
        assert isinstance(raised.value.__cause__, RequestError | NoAnswerError)


def test_what_a_call_waits_for_is_logged_once_and_not_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """A worker that is silent for a minute looks as one that has nothing to do."""
    quick = Played(answer(APPENDED), timeout=1000.0)
    quick.play(append())
    assert not caplog.records
    refused = Lost(False, "Connection refused")
    Played(*[refused] * 9, answer(APPENDED), timeout=1000.0).play(append())
    assert [record.getMessage() for record in caplog.records] == ["waiting for http://s: Connection refused"]
    assert caplog.records[0].levelname == "WARNING"


@pytest.mark.parametrize(
    ("key", "said"), [(None, "http://s wants a key, and none was sent"), ("k", "http://s does not know the key")]
)
def test_a_missing_key_and_a_wrong_one_are_said_with_the_argument_to_give(key: str | None, said: str) -> None:
    with pytest.raises(RequestError, match=f"{said}.*: give one of its keys as `key`") as raised:
        Played(error(401, "unauthorized"), key=key).play(append())
    assert raised.value.code == "unauthorized"


def test_a_repetition_that_finds_no_room_was_not_stored_before() -> None:
    with pytest.raises(RequestError, match="m"):
        Played(RESET, window(120_000), error(422, "topic_full")).play(append())


def test_a_topic_made_again_meanwhile_is_asked_for_its_window_again() -> None:
    absent = error(404, "topic_not_found")
    with pytest.raises(OutcomeUnknown, match="no idempotency window"):
        Played(RESET, absent, RESET, window(0)).play(append())


def test_a_server_that_stays_away_is_not_taken_for_one_without_a_window() -> None:
    with pytest.raises(OutcomeUnknown, match="window could not be asked for in time"):
        Played(RESET, REFUSED).play(append())


@pytest.mark.parametrize(
    "call",
    [
        server_calls.delete_topic("t", if_empty=False),
        server_calls.delete("t", None, "a*"),
        server_calls.delete_router("r"),
        server_calls.delete_reader("t", "r"),
        server_calls.seek("t", "r", 1),
    ],
)
def test_what_could_take_away_what_was_made_since_is_not_sent_again(call: ServerCall[Any]) -> None:
    played = Played(REFUSED, error(503, "not_ready"), RESET, answer(b"{}"))
    with pytest.raises(OutcomeUnknown, match="undo"):
        played.play(call)
    assert len(played.requests) == 3


@pytest.mark.parametrize("seqs", [None, [1, 2]])
def test_a_redrive_is_not_sent_again_because_a_kill_may_have_left_job_and_dead_letter(seqs: list[int] | None) -> None:
    """R-Q-38: the same seqs would then be redriven a second time."""
    call = server_calls.ClientDeadLetters().redriving("jobs", seqs)
    played = Played(REFUSED, error(503, "not_ready"), RESET, answer(b'{"redriven":2,"skipped":[]}'))
    with pytest.raises(OutcomeUnknown, match="twice"):
        played.play(call)
    assert len(played.requests) == 3


def test_a_deletion_below_a_seq_is_sent_again() -> None:
    done = answer(b'{"deleted":0,"earliest_seq":5,"head_seq":9,"count":5,"bytes":1}')
    assert Played(RESET, done).play(server_calls.delete("t", 5, None)).earliest_seq == 5


def test_a_key_that_may_not_read_the_window_repeats_by_the_one_that_it_was_told() -> None:
    told = Played(RESET, error(403, "forbidden"), answer(APPENDED), window_ms=60_000)
    assert told.play(append()).count == 1
    with pytest.raises(OutcomeUnknown, match="window_ms"):
        Played(RESET, error(403, "forbidden")).play(append())


def test_a_topic_that_is_not_there_yet_has_the_default_window() -> None:
    assert Played(RESET, error(404, "topic_not_found"), answer(APPENDED)).play(append()).count == 1


def test_a_part_of_a_producer_needs_no_window() -> None:
    played = Played(RESET, answer(APPENDED))
    assert played.play(append(producer=Producer("p", 1))).count == 1
    assert len(played.requests) == 2


@pytest.mark.parametrize(
    "refused", [error(429, "throttled", '{"retry_after_ms":5}', 1.0), error(503, "not_ready", retry_after=1.0)]
)
def test_what_the_server_refuses_for_now_is_sent_again_after_the_time_it_asks_for(refused: ServerAnswer) -> None:
    played = Played(refused, refused, answer(APPENDED))
    assert played.play(append()).count == 1
    assert played.pauses == [1.0, 1.0]
    assert len(played.requests) == 3, "nothing was stored, so no window is asked for"


@pytest.mark.parametrize("name", ["timeout", "attempt_timeout", "first_pause", "longest_pause"])
def test_a_time_that_may_not_be_zero_is_refused(name: str) -> None:
    """Without a pause a client makes thousands of connections a second while its server is down."""
    with pytest.raises(UsageError, match=f"^{name} is 0: use a number of seconds above 0$"):
        ClientOptions(**{name: 0})


def test_an_append_waits_for_room_as_long_as_it_is_told() -> None:
    full = error(429, "throttled", '{"retry_after_ms":5}', 1.0)
    played = Played(full)
    with pytest.raises(WouldBlockError):
        played.play(append(timeout=0))
    assert len(played.requests) == 1
    played = Played(full)
    with pytest.raises(WouldBlockError):
        played.play(append())
    assert 10 < len(played.requests) < 16, "half a minute, of a second each and a pause"


@pytest.mark.parametrize(
    ("refused", "kind"),
    [
        (error(429, "throttled", '{"limit":"max_topics","max":5}'), RequestError),
        (error(422, "topic_full"), RequestError),
        (error(500, "internal", '{"reason":"disk_full"}'), DiskFullError),
        (answer(b"<html>", 404), NoAnswerError),
    ],
)
def test_what_does_not_pass_is_raised_at_once(refused: ServerAnswer, kind: type[Exception]) -> None:
    played = Played(refused)
    with pytest.raises(kind):
        played.play(append())
    assert len(played.requests) == 1


@pytest.mark.parametrize("status", [200, 404])
def test_json_that_is_nested_too_deeply_is_told_as_what_no_server_says(status: int) -> None:
    deep = answer(b"[" * 100_000 + b"]" * 100_000, status)
    for call, kind in ((server_calls.state("t", touch=False), NoAnswerError), (append(), NoAnswerError)):
        played = Played(deep)
        with pytest.raises(kind, match="no topics server"):
            played.play(call)
        assert len(played.requests) == 1


def test_a_redirect_is_told_with_the_address_to_give() -> None:
    exchange = ClientExchange(Address.parse("http://s"), ClientOptions())
    moved = b"HTTP/1.1 301 Moved\r\nLocation: https://s:4443/v0\r\nContent-Length: 0\r\n\r\n"
    answers = []
    for data in (moved, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"):
        exchange.send(ServerRequest("GET", "/v0/topics"))
        answers.append(exchange.receive(data))
        assert exchange.renew()
    redirect, other = answers
    assert redirect is not None
    assert other is not None
    assert (redirect.location, other.location) == ("https://s:4443/v0", "")
    with pytest.raises(NoAnswerError, match=r"answered 301 and sends to 'https://s:4443/v0': give the address"):
        Played(redirect).play(append())


def test_an_answer_that_is_too_large_is_not_asked_for_again_and_names_the_setting() -> None:
    exchange = ClientExchange(Address.parse("http://s"), ClientOptions(max_answer_bytes=100))
    exchange.send(ServerRequest("GET", "/v0/topics"))
    with pytest.raises(BadAnswerError) as raised:
        exchange.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n" + b"x" * 101)
    lost = Lost(True, str(raised.value), raised.value.is_final)
    for call, kind in ((server_calls.state("t", touch=False), NoAnswerError), (append(), OutcomeUnknown)):
        played = Played(lost)
        with pytest.raises(kind, match="more than 100 bytes: raise max_answer_bytes") as told:
            played.play(call)
        assert (len(played.requests), type(told.value)) == (1, kind)


def test_pauses_grow_and_are_bounded() -> None:
    played = Played(REFUSED, timeout=100.0, longest_pause=0.3)
    with pytest.raises(NoAnswerError, match="refused"):
        played.play(server_calls.state("t", touch=False))
    assert played.pauses[:5] == [0.05, 0.1, 0.2, 0.3, 0.3]


def test_a_job_without_its_lease_is_not_acknowledged_twice() -> None:
    with pytest.raises(OutcomeUnknown, match="twice"):
        Played(RESET).play(server_calls.ack("q", "n", [1]))
    from topics import Job  # noqa: PLC0415

    job = Job(seq=1, ts=1, lease_id="lease_2", deadline=1, deliveries=1, data=1)
    acked = answer(b'{"acked":0,"skipped":[1],"ready":0,"in_flight":0}')
    result = Played(RESET, acked).play(server_calls.ack("q", "n", [job]))
    assert (result.skipped, result.repeated) == ([1], True)
    assert not Played(REFUSED, acked).play(server_calls.ack("q", "n", [job])).repeated


@pytest.mark.parametrize(
    "make",
    [
        lambda: server_calls.ack("q", "\ud800", [1]),
        lambda: server_calls.put_router(
            "r", RouterConfig("\ud800", "u", True, True, True, None, False, "at-least-once")
        ),
        lambda: server_calls.state("", touch=False),
        lambda: server_calls.delete_topic("x" * 70_000, if_empty=False),
    ],
)
def test_a_name_that_no_request_can_hold_is_told(make: Callable[[], object]) -> None:
    with pytest.raises((UsageError, RequestError), match=r"node is|source is|is not usable: use 1 to 255"):
        make()


def test_a_wrong_setting_is_the_error_that_the_library_raises() -> None:
    wrong = error(400, "invalid_request")
    with pytest.raises(UsageError):
        Played(wrong).play(server_calls.put_topic("t", {"ttl_ms": 1}))
    with pytest.raises(RequestError):
        Played(wrong).play(server_calls.put_topic("no/name", {}))


def test_a_read_without_an_answer_says_again_that_the_page_before_is_done() -> None:
    state = ReaderState("r", ReaderConfig(), 0, 0, 0, 0, 0)
    pages = HeldPage(opening("t", "r", None, 9, None, None, 0, None), state, None, 1000)
    read = pages.read(1, 0, 0, peek=False)
    next(read)
    with pytest.raises(StopIteration):
        read.send((Page("t", [], 1, 2, 1, None), HandedOut("token1")))
    for _ in range(2):
        lost: Any = pages.read(1, 0, 0, peek=False)
        assert b'"done":"token1"' in next(lost).request.body
        with pytest.raises(NoAnswerError):
            lost.throw(NoAnswerError("lost"))
    again: Any = next(pages.commit(None))
    assert b'"token":"token1"' in again.request.body


class LosingReader:
    """A named reader with a gap, whose first seek has no answer."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def read(self, **_: object) -> list[Record]:
        self.done.append("read")
        if self.done == ["read"]:
            raise GapError("t", Tombstone(1, 4, "cap", 4, 5, 9))
        return [Record(seq=5, ts=1, data="a")]

    def seek(self, seq: int) -> int:
        self.done.append(f"seek {seq}")
        if len(self.done) == 2:
            raise OutcomeUnknown("lost")
        return seq

    def commit(self, seq: int | None = None) -> int:
        return seq or 0

    def abandon(self) -> None:
        pass


class AwaitedLosingReader(LosingReader):
    async def read(self, **_: object) -> list[Record]:  # type: ignore[override]  # awaited
        return super().read()

    async def seek(self, seq: int) -> int:  # type: ignore[override]  # awaited
        return super().seek(seq)

    async def commit(self, seq: int | None = None) -> int:  # type: ignore[override]  # awaited
        return super().commit(seq)


def test_a_tail_of_a_reader_passes_a_gap_though_the_answer_was_lost() -> None:
    gaps: list[GapError] = []
    reader = LosingReader()
    assert next(tail_reader(lambda: reader, ReaderTail(lambda: False, gaps.append))).data == "a"
    assert reader.done == ["read", "seek 4", "seek 4", "read"]

    awaited = AwaitedLosingReader()

    async def opened() -> AwaitedLosingReader:
        return awaited

    async def first() -> object:
        return (await anext(tail_awaited_reader(opened, ReaderTail(lambda: False, gaps.append)))).data

    assert asyncio.run(first()) == "a"
    assert (awaited.done, len(gaps)) == (reader.done, 2)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Address.parse("localhost:4000"), "begin with http://"),
        (lambda: Address.parse("http://u:p@h"), "connect"),
        (lambda: Address.parse("http://h:x"), "http://h:x"),
        (lambda: Address.parse("http://h:0"), "no server has port 0"),
        (lambda: Address.parse(5), "url is 5"),
        (lambda: Address.parse("http://h/?a=1"), "leave out"),
        (lambda: options_of({"tiemout": 1}), "did you mean timeout"),
        (lambda: options_of({"timeout": 0}), "above 0"),
        (lambda: options_of({"key": "a b"}), "key is"),
        (lambda: options_of({"window_ms": -1}), "window_ms is -1"),
    ],
)
def test_a_wrong_address_or_setting_is_one_sentence(make: Callable[[], object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        make()


def test_a_backup_after_which_another_was_begun_is_not_said_to_be_of_an_earlier_server() -> None:
    """Its end was not read, because the server states the newest one only."""
    waiting = scripts.backup(None)
    next(waiting)
    waiting.send(BackupProgress(3, "running"))
    waiting.send(None)
    with pytest.raises(
        StorageError, match="another backup was begun before the end of this one was read: `topics veri"
    ):
        waiting.send(BackupProgress(4, "running"))


def test_a_user_in_a_url_is_refused_with_what_a_command_has_for_it() -> None:
    with pytest.raises(UsageError, match="or a command's by --key-file or TOPICS_KEY"):
        Address.parse("http://user:word@host")
