"""Follow docs/tutorial.md in a clean clone of what is committed here, with two terminals.

    python -m tests.long.tutorial [--page docs/tutorial.md]

Everything is typed as the page has it, in shells without settings of this one. What the page says
is printed has to be printed. Port 4000 has to be free, as for a reader of the page.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from tests.long.tutorial.page_steps import Press, Save, See, Step, Type, steps_of
from tests.long.tutorial.terminal import Terminal

_ROOT = Path(__file__).resolve().parents[3]
_ADDRESS = ("127.0.0.1", 4000)
_INSTALL_S = 600
_STEP_S = 90
_DRAIN_S = 180


def follow(steps: list[Step], directory: str) -> None:
    """Take the steps in a checkout. Raises: TimeoutError, something was not printed."""
    left_out = ("TOPICS_", "PYTHON", "VIRTUAL_ENV", "MAKE", "MFLAGS")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    terminals = {number: Terminal(directory, environment) for number in (1, 2)}
    try:
        for step in steps:
            print(f"{step}"[:110], flush=True)
            _take(step, terminals, directory)
    finally:
        for terminal in terminals.values():
            terminal.close()


def _take(step: Step, terminals: dict[int, Terminal], directory: str) -> None:
    if isinstance(step, Type):
        terminal = terminals[step.terminal]
        terminal.clear()
        for line in step.lines:
            terminal.type(line)
            if step.stays:
                _wait_for_server(_INSTALL_S)
            else:
                terminal.wait_for_prompt(_STEP_S)
    elif isinstance(step, See):
        at = 0
        for line in step.lines:
            at = terminals[step.terminal].wait_for_line(line, _STEP_S, at)
    elif isinstance(step, Press):
        terminals[step.terminal].press_ctrl_c()
        terminals[step.terminal].wait_for_prompt(_STEP_S)
    elif isinstance(step, Save):
        Path(directory, step.name).write_text(step.text)
    else:
        _wait_for_empty_queue(_DRAIN_S)


def _wait_for_server(seconds: float) -> None:
    until = time.monotonic() + seconds
    while not _is_served():
        if time.monotonic() > until:
            raise TimeoutError(f"no server listens on port {_ADDRESS[1]} after {seconds:.0f} s")
        time.sleep(0.2)


def _is_served() -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(_ADDRESS) == 0


def _wait_for_empty_queue(seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := _jobs_left()) != 0:
        if time.monotonic() > until:
            raise TimeoutError(f"{left} jobs are left after {seconds:.0f} s")
        time.sleep(0.5)


def _jobs_left() -> int | None:
    """Return the jobs in the queue; None while the server starts."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{_ADDRESS[1]}/v0/topics/jobs?touch=false") as answer:
            return int(json.load(answer)["count"])
    except OSError:
        return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", default="docs/tutorial.md")
    options = parser.parse_args()
    if _is_served():
        print(f"port {_ADDRESS[1]} is in use: stop the program that listens there, and start again", file=sys.stderr)
        return 2
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        clone = f"{directory}/topics"
        subprocess.run(["git", "clone", "-q", str(_ROOT), clone], check=True)
        follow(steps_of((_ROOT / options.page).read_text()), clone)
    print(f"followed in {(time.monotonic() - began) / 60:.1f} minutes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
