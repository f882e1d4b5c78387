"""An interactive shell in a pseudo-terminal, into which lines are typed."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import time
from collections.abc import Mapping
from typing import NoReturn

from tests.cli.fork_server import VERIFY

_PROMPT = "follow> "
_ESCAPES = re.compile(r"\x1b\[[\d;?]*[A-Za-z]|\r")


def _be_shell(directory: str, environment: Mapping[str, str]) -> NoReturn:
    """Replace this process, a fork of the tests, which must not continue as a second one of them."""
    try:
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):  # ignored where a shell's background jobs are
            signal.signal(number, signal.SIG_DFL)
        os.chdir(directory)
        prompt = {"PS1": _PROMPT, "VIRTUAL_ENV_DISABLE_PROMPT": "1", "TERM": "dumb"}
        os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], {**environment, **VERIFY, **prompt})
    except BaseException as error:
        os.write(2, f"no shell: {error}\n".encode())
    finally:
        os._exit(1)


class Terminal:
    """One terminal. `printed` is what its programs have written since the last `clear`."""

    def __init__(self, directory: str, environment: Mapping[str, str]) -> None:
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            _be_shell(directory, environment)
        self.printed = ""
        self._typed_at = 0
        self.wait_for(_PROMPT, 20)

    def clear(self) -> None:
        self.printed, self._typed_at = "", 0

    def type(self, line: str) -> None:
        """Type a line, and Return."""
        self._typed_at = len(self.printed)
        os.write(self._fd, line.encode() + b"\n")

    def press_ctrl_c(self) -> None:
        self._typed_at = len(self.printed)
        os.write(self._fd, b"\x03")

    def wait_for_prompt(self, seconds: float) -> None:
        """Return once the shell asks for the next line."""
        self.wait_for(f"\n{_PROMPT}", seconds, self._typed_at)

    def wait_for_line(self, line: str, seconds: float, begin: int) -> int:
        """Return the end of a line that was printed after `begin`, once it was.

        A program in the background may print it after the prompt. Raises: TimeoutError.
        """
        at = begin
        while True:
            at = self.wait_for(f"{line}\n", seconds, at)
            before = self.printed[: at - len(line) - 1]
            if not before or before.endswith(("\n", _PROMPT)):
                return at

    def wait_for(self, text: str, seconds: float, begin: int = 0) -> int:
        """Return the end of a text that was printed after `begin`, once it was.

        Raises: TimeoutError.
        """
        until = time.monotonic() + seconds
        while (found := self.printed.find(text, begin)) < 0:
            if time.monotonic() > until:
                raise TimeoutError(f"{text!r} was not printed within {seconds:.0f} s, but: {self.printed[-2000:]}")
            self._read(0.2)
        return found + len(text)

    def _read(self, seconds: float) -> None:
        if select.select([self._fd], [], [], seconds)[0]:
            self.printed += _ESCAPES.sub("", os.read(self._fd, 65536).decode(errors="replace"))

    def close(self) -> None:
        """End the shell, and all that was started in it."""
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(ProcessLookupError):  # it has ended
                if os.getsid(int(name)) == self._pid:
                    os.kill(int(name), signal.SIGKILL)
        os.close(self._fd)
        os.waitpid(self._pid, 0)
