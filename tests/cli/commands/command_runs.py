"""Commands as a person runs them: on a terminal, through a pty, and in a pipe."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shlex
import signal
import struct
import termios
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.cli.forked import Forked

SMALL = {
    "TOPICS_WAL_FILE_BYTES": "1048576",
    "TOPICS_WAL_SPARE_FILES": "1",
    "TOPICS_CHECKPOINT_WAL_BYTES": "4194304",
    "TOPICS_DISK_RESERVE_BYTES": "65536",
}
"""Settings of a directory that takes little space."""
_SECONDS = 60
_SERVER_SECONDS = 300
"""A server lives as long as a whole transcript takes, also beside other tests."""
_PLACES = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"), "YYYY-MM-DDThh:mm:ss.mmmZ"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ"), "YYYY-MM-DDThh-mm-ssZ"),
    (re.compile(r'("(?:taken_ms|bytes|copied_bytes)":)\d+(?=[^}]*"linked_files")'), r"\1N"),
    (re.compile(r"\d+\.\d KiB (?=in \d+ files|copied)"), "N KiB "),
    (re.compile(r"(?<=^peers:\n)(?:  .+\n)+", re.MULTILINE), "  PEERS\n"),
    (re.compile(r'("(?:\$ts|last_write_ts|last_read_ts|deadline|lag_ms|at)":)\d+'), r"\1TIME"),
    (re.compile(r'("effective_priority":)\d+'), r"\1N"),
    (re.compile(r'("incarnation":)"[^"]*"'), r'\1"INCARNATION"'),
    (re.compile(r"lease_[0-9a-f]+"), "lease_ID"),
    (re.compile(r"in \d+\.\d s"), "in 0.0 s"),
    (re.compile(r"after (?:one try|\d+ tries)"), "after N tries"),
)


class Ran(NamedTuple):
    """code: the exit code. out, err: what was written; on a terminal both are in `out`."""

    code: int
    out: str
    err: str


def run(
    arguments: Sequence[str], home: Path, stdin: bytes = b"", *, tty: bool = False, env: Mapping[str, str] | None = None
) -> Ran:
    """Run a command to its end. home: the directory with its config; stdin: of a pipe."""
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "TERM": "dumb", **SMALL, **(env or {})}
    return _on_terminal(arguments, environment, stdin) if tty else _in_pipe(arguments, environment, stdin)


def _in_pipe(arguments: Sequence[str], environment: Mapping[str, str], stdin: bytes) -> Ran:
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    code, (output, errors) = _run(arguments, environment, stdin, {out: out_end, err: err_end}, (out_end, err_end))
    return Ran(code, output, errors)


def _on_terminal(arguments: Sequence[str], environment: Mapping[str, str], stdin: bytes) -> Ran:
    side, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    code, (output,) = _run(arguments, environment, stdin, {side: terminal}, (terminal, terminal))
    return Ran(code, output.replace("\r\n", "\n"), "")


def _run(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    stdin: bytes,
    read_from: Mapping[int, int],
    streams: tuple[int, int],
) -> tuple[int, list[str]]:
    """read_from: descriptors to read from, and their other ends, which are closed here."""
    given, given_end = os.pipe()
    command = Forked(arguments, environment, streams[1], seconds=_SECONDS, stdout=streams[0], stdin=given)
    for descriptor in (given, *read_from.values()):
        os.close(descriptor)
    texts: dict[int, bytes] = {}
    readers = [threading.Thread(target=lambda fd=fd: texts.update({fd: _all_of(fd)})) for fd in read_from]
    for reader in readers:
        reader.start()
    with os.fdopen(given_end, "wb") as pipe:
        pipe.write(stdin)
    for reader in readers:
        reader.join()
    return command.wait(), [texts[fd].decode() for fd in read_from]


def _all_of(descriptor: int) -> bytes:
    found = b""
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        try:
            while chunk := file.read(1 << 16):
                found += chunk
        except OSError:
            pass  # the end of a terminal
    return found


def transcript(script: str, home: Path, *, tty: bool, env: Mapping[str, str]) -> str:
    """Run the commands of a transcript, and return the one that comes of it.

    A line `$ printf 'a\\n' | topics put t` gives a command stdin.
    """
    shown = []
    for line in (line for line in script.splitlines() if line.startswith("$ ")):
        before, _bar, command = line[2:].rpartition(" | ")
        words = shlex.split(command)
        assert words[0] == "topics", line
        given = shlex.split(before)[1].encode().decode("unicode_escape").encode("latin-1") if before else b""
        ran = run([word.replace("DIR", str(home)) for word in words[1:]], home, given, tty=tty, env=env)
        errors = "".join(f"stderr: {text}\n" for text in ran.err.splitlines())
        ended = f"exit code {ran.code}\n" if ran.code else ""
        text = f"{ran.out}{errors}{ended}\n".replace(str(home), "DIR")
        for pattern, place in _PLACES:
            text = pattern.sub(place, text)
        shown.append(f"{line}\n{text}")
    return "".join(shown)


@contextmanager
def serving(home: Path, env: Mapping[str, str] | None = None) -> Iterator[str]:
    """Yield the URL of a server over `home`/served, until the block ends."""
    log, log_end = os.pipe()
    port_file = home / "port"
    arguments = ["serve", "--data-dir", str(home / "served"), "--port", "0", "--port-file", str(port_file)]
    server = Forked(arguments, {"HOME": str(home), **SMALL, **(env or {})}, log_end, seconds=_SERVER_SECONDS)
    os.close(log_end)
    with os.fdopen(log) as lines:
        assert any("ready after" in line for line in lines), "the server ended"
        rest = threading.Thread(target=lambda: [None for _line in lines])
        rest.start()
        try:
            yield f"http://{port_file.read_text()}"
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait()
            rest.join()
