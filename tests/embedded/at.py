"""A signal at a chosen place of the package."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType

import topics

PACKAGE = str(Path(topics.__file__).parent)


class At:
    """Raises a signal at one of the places where Python looks for them: when the package's functions begin, and when
    what they called in C has returned. Counted from 0."""

    def __init__(self, place: int, number: int) -> None:
        self.left = place
        self.number = number

    def __enter__(self) -> At:
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    @property
    def reached(self) -> bool:
        return self.left < 0

    def _profile(self, frame: FrameType, event: str, _argument: object) -> None:
        if event in {"call", "c_return"} and frame.f_code.co_filename.startswith(PACKAGE):
            self.left -= 1
            if self.left == -1:
                signal.raise_signal(self.number)
