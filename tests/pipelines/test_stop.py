"""Stop notes the signals that end a run, and gives their handlers back."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from topics.pipelines.engines import Stop
from topics.pipelines.errors import StoppedError


class Raised(Exception):
    """The error that the handler of an alarm raises."""


def on_alarm(_number: int, _frame: FrameType | None) -> None:
    raise Raised


def on_stop(_number: int, _frame: FrameType | None) -> None:
    """The process's own handler."""


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    own = {signal.SIGINT: on_stop, signal.SIGTERM: on_stop, signal.SIGALRM: on_alarm}
    before = {number: signal.signal(number, handler) for number, handler in own.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def handlers() -> list[Any]:
    return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]


def test_a_signal_is_noted_once_and_then_does_what_it_did_before() -> None:
    with Stop() as stop:
        stop.check()
        signal.raise_signal(signal.SIGTERM)
        assert handlers() == [on_stop, on_stop]
        with pytest.raises(StoppedError):
            stop.check()
    assert handlers() == [on_stop, on_stop]


@pytest.mark.parametrize("name", ["signal", "getsignal"])
def test_wherever_another_handler_raises_the_process_has_its_own_back(name: str) -> None:
    function: Callable[..., Any] = getattr(signal, name)
    place, left = 0, -1
    while left < 0:  # the place before was reached
        left = place

        def call(*arguments: Any) -> Any:
            nonlocal left
            result = function(*arguments)
            left -= 1
            if left == -1:
                signal.raise_signal(signal.SIGALRM)
            return result

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(signal, name, call)
            with contextlib.suppress(Raised), Stop():
                pass
        assert handlers() == [on_stop, on_stop], place
        place += 1
    assert place > 4


def test_a_signal_that_c_code_handles_is_left_to_it() -> None:
    """`getsignal` reports such a handler as None, which `signal` does not take."""
    getsignal = signal.getsignal
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signal, "getsignal", lambda number: None if number == signal.SIGTERM else getsignal(number))
        with Stop():
            assert getsignal(signal.SIGTERM) is on_stop
            assert getsignal(signal.SIGINT) is not on_stop
    assert handlers() == [on_stop, on_stop]
