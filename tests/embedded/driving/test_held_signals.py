"""A process has its own handlers back after each hold, whatever is raised where, and whatever they were before."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import topics
from tests.embedded.at import At
from tests.embedded.conftest import handlers
from topics.embedded.driving import interrupts
from topics.embedded.driving.interrupts import HeldSignals

FIRST, SECOND = signal.SIGINT, signal.SIGALRM
_getframe = interrupts._getframe


class Raised(Exception):
    """The error that a handler raises."""


class Recorder:
    """Sets handlers that count their calls and raise; `restore` puts back those from before."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self._before: dict[int, Any] = {}

    def set(self, number: int, *, raises: bool = True) -> None:
        def on_signal(number: int, _frame: FrameType | None) -> None:
            self.calls.append(number)
            if raises:
                raise Raised(number)

        self.use(number, on_signal)

    def use(self, number: int, handler: Any) -> None:
        before = signal.signal(number, handler)
        self._before.setdefault(number, before)

    def restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    recorder = Recorder()
    yield recorder
    recorder.restore()


@pytest.fixture
def held() -> HeldSignals:
    return HeldSignals()


def nothing() -> None:
    pass


class Wake:
    """The call of a signal that comes within a hold."""

    def __call__(self) -> None:
        pass


@pytest.mark.parametrize("ends", ["release", "give up"])
def test_a_hold_that_has_ended_keeps_nothing_of_its_call(held: HeldSignals, ends: str) -> None:
    """An interrupted read was kept by it, and with it the files that the read had chosen."""
    wake = Wake()
    kept = weakref.ref(wake)
    held.hold(wake)
    if ends == "release":
        held.release()
    else:
        held._give_up()
    del wake
    assert kept() is None


def hold_for(held: HeldSignals, within: Callable[[], object] = nothing) -> None:
    held.hold(nothing)
    try:
        within()
    finally:
        held.release()


def is_kept(number: int, recorder: Recorder) -> bool:
    """Raises the signal; whether no handler was called."""
    count = len(recorder.calls)
    with contextlib.suppress(Raised):
        signal.raise_signal(number)
    return len(recorder.calls) == count


def assert_holds(held: HeldSignals, recorder: Recorder, number: int) -> None:
    """A signal within a hold is handled after it, and not before."""
    kept: list[bool] = []
    recorder.calls.clear()
    with contextlib.suppress(Raised):
        hold_for(held, lambda: kept.append(is_kept(number, recorder)))
    assert kept == [True]
    assert recorder.calls == [number]


@pytest.mark.parametrize("number", [FIRST, SECOND])
@pytest.mark.parametrize("other", ["ignored", "default", "handled"])
def test_wherever_a_handler_raises_all_are_back_and_the_next_hold_holds(
    held: HeldSignals, recorder: Recorder, number: int, other: str
) -> None:
    """Each place is tried in the first hold after the handlers changed, and in one that finds them as they were."""
    beside = SECOND if number == FIRST else FIRST
    for as_before in (False, True):
        place, reached = 0, True
        while reached:
            recorder.calls.clear()
            recorder.set(number)
            if other == "handled":
                recorder.set(beside)
            else:
                recorder.use(beside, signal.SIG_IGN if other == "ignored" else signal.SIG_DFL)
            if as_before:
                hold_for(held)
            expected = handlers()
            with contextlib.suppress(Raised), At(place, number) as at:
                hold_for(held)
            reached = at.reached
            assert recorder.calls == [number] * reached
            assert handlers() == expected
            assert_holds(held, recorder, number)
            assert handlers() == expected
            place += 1
            recorder.use(number, signal.SIG_IGN)  # the first hold after this one sees a change
            hold_for(held)
        assert place > 8


class Behind:
    """Raise signals after chosen calls of one hold, counted from 0, into C."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, numbers: dict[int, int]) -> None:
        self.left = numbers
        self._count = 0
        for name in ("_get_ident", "_getframe", "_get_handler", "_set_handler"):
            monkeypatch.setattr(interrupts, name, self._around(getattr(interrupts, name)))

    def _around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if function is _getframe:
                arguments = (arguments[0] + 1,)  # this function is no part of what is tested
            result = function(*arguments)
            number = self.left.pop(self._count, None)
            self._count += 1
            if number is not None:
                signal.raise_signal(number)
            return result

        return call


@pytest.mark.parametrize("numbers", [(FIRST, SECOND), (SECOND, FIRST), (SECOND, SECOND)])
def test_two_handlers_that_raise_one_after_the_other_are_both_called_and_all_are_back(
    held: HeldSignals, recorder: Recorder, numbers: tuple[int, int]
) -> None:
    for number in (FIRST, signal.SIGUSR1, SECOND):
        recorder.set(number)
    expected = handlers()
    hold_for(held)
    for first in range(80):
        for second in range(first + 1, first + 12):
            recorder.calls.clear()
            with pytest.MonkeyPatch.context() as patch:
                behind = Behind(patch, {first: numbers[0], second: numbers[1]})
                with contextlib.suppress(Raised):
                    hold_for(held)
            came = [number for place, number in zip((first, second), numbers, strict=True) if place not in behind.left]
            assert sorted(recorder.calls) == sorted(came), (first, second)
            assert handlers() == expected, (first, second)
    assert behind.left, "there are places behind those that were tried"


def test_a_handler_that_calls_a_log_while_places_are_taken_or_put_back_is_held_there(
    held: HeldSignals, recorder: Recorder
) -> None:
    """The hold of its own is complete, and so is the one that it came in."""
    inner: list[bool] = []
    outer: list[bool] = []

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(Raised):
            hold_for(held, lambda: inner.extend([is_kept(FIRST, recorder), is_kept(SECOND, recorder)]))

    recorder.set(FIRST)
    recorder.set(SECOND)
    recorder.use(signal.SIGUSR1, on_signal)
    expected = handlers()
    for place in range(120):
        recorder.calls.clear()
        with contextlib.suppress(Raised), pytest.MonkeyPatch.context() as patch:
            Behind(patch, {place: signal.SIGUSR1})
            hold_for(held, lambda: outer.extend([is_kept(FIRST, recorder), is_kept(SECOND, recorder)]))
        assert all(inner + outer), place
        assert handlers() == expected
    assert len(inner) > 80


def test_a_hold_whose_release_was_kept_from_it_ends_with_its_function(held: HeldSignals, recorder: Recorder) -> None:
    """An exception that another thread throws between the two has the same effect."""

    def thrown_out(within: Callable[[], object] = nothing) -> None:
        held.hold(nothing)
        within()
        raise RecursionError

    recorder.set(FIRST, raises=False)
    recorder.set(SECOND)
    expected = handlers()
    for _ in range(2):
        with pytest.raises(RecursionError):
            thrown_out()
        signal.raise_signal(FIRST)
        assert recorder.calls.pop() == FIRST
        assert handlers() == expected

        with pytest.raises(RecursionError):
            thrown_out()
        assert_holds(held, recorder, SECOND)
        assert handlers() == expected

        recorder.calls.clear()
        with pytest.raises(RecursionError):
            thrown_out(lambda: signal.raise_signal(FIRST))
        assert recorder.calls == []
        with pytest.raises(Raised):
            signal.raise_signal(SECOND)
        assert recorder.calls == [FIRST, SECOND]
        assert handlers() == expected

        with pytest.raises(RecursionError):
            hold_for(held, thrown_out)
        assert handlers() == expected
        assert_holds(held, recorder, SECOND)


def test_a_handler_that_is_set_within_a_hold_stays(held: HeldSignals, recorder: Recorder) -> None:
    recorder.set(SECOND)
    hold_for(held, lambda: recorder.use(SECOND, signal.SIG_IGN))
    assert signal.getsignal(SECOND) == signal.SIG_IGN


@pytest.mark.parametrize("in_thread", [False, True])
def test_a_child_that_is_forked_within_a_hold_has_its_own_handlers(recorder: Recorder, in_thread: bool) -> None:
    recorder.set(SECOND)
    expected = handlers()
    statuses: list[int] = []

    def fork() -> None:
        child = os.fork()
        if child == 0:
            os._exit(0 if handlers() == expected else 1)
        statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    def within() -> None:
        if not in_thread:
            fork()
            return
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()

    hold_for(interrupts.signals, within)
    assert statuses == [0]
    assert handlers() == expected


@pytest.mark.parametrize("before", [signal.SIG_IGN, signal.SIG_DFL, signal.default_int_handler])
def test_a_log_leaves_what_it_found(tmp_path: Path, recorder: Recorder, before: Any) -> None:
    recorder.use(FIRST, before)
    expected = handlers()
    with open(tmp_path / "stacks", "w+b") as stacks:
        faulthandler.register(signal.SIGUSR2, stacks)  # in C: not to be seen by getsignal
        try:
            with topics.open(tmp_path / "data") as log:
                log.append("t", [1])
                assert handlers() == expected
                log.append_soon("t", 2).result()
                assert list(log.read("t"))
            assert handlers() == expected
            signal.raise_signal(signal.SIGUSR2)
            stacks.seek(0)
            assert b"test_a_log_leaves_what_it_found" in stacks.read()
        finally:
            faulthandler.unregister(signal.SIGUSR2)
