"""The code blocks of a page, and a reader who tries them in order: shells, Python, and answers that are compared."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import topics
from tests.cli.fork_server import VERIFY

_COMMANDS = (
    "for ", "curl ", "topics ", "TOPICS_", ".venv/bin/", "python -c ", ". ", "install ", "echo ", "cp ", "pip ",
    "make ", "git ",
)  # fmt: skip
_SHOWN = ("text", "console", "yaml", "toml", "ini", "js")
"""Languages of blocks that are not run: drawings, tables, the service manager, other programs."""
_STREAMS = re.compile(r"curl [^\n]*(?:-s?N\b|-v -m)")
_VARIES = re.compile(r"\\\.\\\.\\\.|…")
_SECONDS = 20
_ABOUT_TO_WAIT = "about to wait"


class Block(NamedTuple):
    line: int
    text: str

    @property
    def kind(self) -> str:
        """Return "shell", "python", "answer" or "other"."""
        first = next(line for line in self.text.splitlines() if line.strip() and not line.startswith("#"))
        if first.startswith(_COMMANDS):
            return "shell"
        if re.match(r'[{"#]|id: |retry: ', first.strip()) and ":" in first:
            return "answer"
        try:
            tree = ast.parse(self.text)
        except SyntaxError:
            return "other"
        return "other" if all(isinstance(node, ast.Expr) for node in tree.body) and "(" not in self.text else "python"


def blocks_of(page: Path) -> Iterator[Block]:
    """Yield the indented and the fenced blocks of a page."""
    lines: list[str] = []
    start, fence, after_blank, language = 0, False, True, ""
    for number, line in enumerate([*page.read_text().splitlines(), "end"], 1):
        if line.startswith("```"):
            if fence and language not in _SHOWN:
                yield Block(start, "\n".join(lines))
            fence, start, language, lines = not fence, number + 1, line[3:].strip(), []
        elif fence:
            lines.append(line)
        elif lines and (line.startswith("    ") or not line.strip()):
            lines.append(line[4:])
        elif lines:
            yield Block(start, "\n".join(lines).rstrip())
            lines = []
        elif line.startswith("    ") and after_blank:
            lines, start = [line[4:]], number
        after_blank = not line.strip()


@dataclass
class Reader:
    """A reader of a page, who types every block of it.

    replaced: texts of the pages, such as addresses and directories, and what they are in the test.
    """

    directory: Path
    replaced: dict[str, str]
    names: dict[str, Any] = field(default_factory=dict)
    """The variables of the page's Python blocks."""
    output: str = ""
    """The output of the last block that ran."""

    def try_out(self, block: Block) -> None:
        """Run a block, or compare it with the output so far. Raises: AssertionError."""
        kind = block.kind
        assert kind != "other", "neither a command nor Python nor an answer"
        if kind == "answer":
            self.compare(block.text)
        elif kind == "python":
            self._python(self._here(block.text))
        else:
            self._shell(block.text)

    def close(self) -> None:
        """Close what the page's blocks have left open."""
        for value in self.names.values():
            if isinstance(value, topics.Log):
                value.close()

    def _here(self, text: str) -> str:
        if self.replaced:
            shown = re.compile("|".join(map(re.escape, self.replaced)))
            text = shown.sub(lambda found: self.replaced[found[0]], text)
        for pattern in (r"wid_", r"page_"):
            found = re.findall(rf"{pattern}[\w-]+", self.output)
            if found:
                text = re.sub(rf"{pattern}(?:[\w-]+|…)", found[-1], text)
        return text

    def _shell(self, text: str) -> None:
        """Run the commands of a block one by one, and compare answers that stand between them."""
        command = ""
        for line in text.splitlines():
            if re.match(r"(?:# )?\{\"", line) and not command:
                self.compare(line.removeprefix("# "))
                continue
            command += line + "\n"
            if line.endswith("\\") or command.count("'") % 2:
                continue
            if command.strip():
                self._run(self._here(command), is_refused='{"error"' in text)
            command = ""
        assert not command, f"a command without an end: {command}"

    def _run(self, command: str, *, is_refused: bool = False) -> None:
        """Run a command. is_refused: the page shows an error as its answer."""
        stream = _STREAMS.search(command)
        limit = "-m 0.5" if stream else ""  # curl takes the last one
        fails = f'curl() {{ command curl --fail-with-body -sS "$@" {limit}; }}\n'
        environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(self.directory),
            "LC_ALL": "C.UTF-8",
            **VERIFY,
        }
        if "localhost:4000" in self.replaced:  # the address without an option
            environment["TOPICS_URL"] = f"http://{self.replaced['localhost:4000']}"
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail\n{fails}{command}"],
            cwd=self.directory,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        self.output = done.stdout + done.stderr
        # A stream ends by its time limit.
        ends = {0, 28} if stream else {0, 22} if is_refused else {0}
        assert done.returncode in ends, f"{command}\n{self.output}"
        assert self.output or not command.startswith("curl"), f"it prints nothing: {command}"

    def _python(self, text: str) -> None:
        if "loop.run()" in text:
            self._interrupt(text)
            return
        if "topics.open(" in text:
            self.close()
        code = compile(text, "<page>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.chdir(self.directory):
            result = eval(code, self.names)
            if asyncio.iscoroutine(result):
                asyncio.run(result)
        self.output = printed.getvalue()

    def _interrupt(self, text: str) -> None:
        """Run a program that serves until a signal ends it; interrupt it once it is about to wait."""
        text = text.replace("loop.run()", f'print("{_ABOUT_TO_WAIT}", flush=True)\nloop.run()')
        (self.directory / "served.py").write_text(text)
        with subprocess.Popen(
            [sys.executable, "served.py"],
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as served:
            assert served.stdout is not None
            try:
                first = served.stdout.readline()
                served.send_signal(signal.SIGINT)
                self.output, _ = served.communicate(timeout=_SECONDS)
            finally:
                served.kill()
        assert first.strip() == _ABOUT_TO_WAIT, f"served.py\n{first}{self.output}"
        assert served.returncode == 0, f"served.py\n{self.output}"

    def compare(self, shown: str) -> None:
        """Compare an answer of a page with the output: `...` stands for anything, and blanks do not count."""
        output = _compact(self.output)
        for part in filter(None, re.split(r"\n(?=[{\"]|id: )", shown)):
            pattern = re.sub(r'(\\\$ts":|deadline":|_ms":)[\d\\.]+', r"\1[\\d.]+", re.escape(_compact(part)))
            pattern = re.sub(r"(page_|lease_|wid_)\w+", r"\1\\w+", pattern)
            pattern = _VARIES.sub(".*", pattern)
            assert re.search(pattern, output), f"the page shows {part}\nand it answered {self.output}"


def _compact(text: str) -> str:
    return re.sub(r"\s+", "", text)
