"""Every block of every page works as it is written, in the order of the page, on a fresh server.

What is not run is in NOT_RUN or in ELSEWHERE, with the reason. A topic is of one type in all pages.
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.contract.world.live_world import LiveWorld
from tests.project.pages.page_reader import Block, Reader, blocks_of

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(sys.executable).parent
ELSEWHERE = {
    "docs/contract.md": "shapes of requests and answers, which tests/contract compares field by field",
    "docs/reliability.md": "suites that take hours",
    "docs/guides/spark.md": "needs Java; tests/spark runs the same calls",
    "docs/tutorial.md": "tests/long/tutorial follows it in two terminals",
    "docs/migration.md": "test_migration.py runs its programs, beside stand-ins for other systems",
    "docs/recipes.md": "test_recipes.py runs each program in a directory of its own",
    "docs/outgrowing.md": "needs Kafka, NATS and Java; tests/long/bridge runs the commands",
    "docs/guides/bench.md": "measures for minutes; tests/cli/bench runs the commands",
    "docs/guides/pipelines.md": "directories of days; tests/cli/test_pipeline.py runs the commands",
    "docs/guides/proxies.md": "configuration of other programs",
    "docs/internals/simulation.md": "suites that take minutes",
    "docs/from-other-logs.md": "calls of two libraries side by side",
}
NOT_RUN = {
    "pip install": "installs packages",
    ".venv/bin/pip install": "installs packages",
    "make ": "builds what is here, and serves",
    ".venv/bin/topics doctor --data-dir /tmp": "a trial on a port of its own, in /tmp",
    ". .venv/bin/activate": "the environment of this test is active",
    "git clone": "fetches this repository",
    "go install": "another language's tools",
    "xdg-open": "a browser",
    "systemctl": "the service manager",
    "[Unit]": "a unit of the service manager",
    "jq ": "containers",
    "supervisor  ": "a picture",
    ".venv/bin/python -m examples.flights": "downloads 330,000 flights; tests/project/test_flights.py has some",
    "from topics.spark": "needs Java; tests/spark runs the same calls",
    "cat data/topics.json": "of the directory of the block before",
    "data/": "the layout of a directory",
    "submit and wait": "a drawing",
    "receive": "a drawing",
    "topic   window_start": "a table of numbers",
    "[[rule]]": "the file of the block before",
    '{"records": [...]': "shapes",
    '{"op":"record"': "shapes",
    '{"format": "topics-export"': "a file's shape",
    "/data/lake/": "a path",
    "PYSPARK_PYTHON": "needs a cluster",
    'for record in log.tail("orders", reader=': "has no end; tests/server/clients/test_same_calls.py tails so",
    "table = ": "a handler's fragment; tests/loop has whole ones",
    "import os\nimport signal": "has no end; test_workers.py runs it, and ends it",
    "import asyncio\nimport os": "has no end; test_workers.py runs it, and ends it",
}
"""Blocks and lines that begin so."""
NEEDS = {
    'log.append("orders", batch)': 'log = topics.open("data"); batch = [1, 2]',
    'log.append("orders", rows,': 'import topics; log = topics.open("data"); rows = [1, 2]',
    "async with log.aio.reader": 'log = topics.open("data")',
    "try:\n    records = reader.read()": 'reader = log.reader("orders", "billing")',
}
"""The program around a fragment, by the beginning of the fragment."""


def settings_of(command: str) -> dict[str, str] | None:
    """The settings of a command that serves, without its port; None for another command."""
    words = shlex.split(command, comments=True)
    if "serve" not in words:
        return None
    at = words.index("serve")
    given = [word.removeprefix("TOPICS_").split("=", 1) for word in words[:at] if word.startswith("TOPICS_")]
    options = [name.removeprefix("--").replace("-", "_") for name in words[at + 1 :: 2]]
    found = dict(
        [(name.lower(), value) for name, value in given], **dict(zip(options, words[at + 2 :: 2], strict=True))
    )
    return {name: value for name, value in found.items() if name != "port"}


class PageRun:
    """One page, its server and its reader."""

    def __init__(self, page: Path, directory: Path) -> None:
        self.name = str(page.relative_to(ROOT))
        self.types: dict[str, str] = {}
        """The type of each topic that the page has made in a server."""
        self._directory = directory
        self._server: LiveWorld | None = None
        self._reader = Reader(directory, {})
        (directory / "mnt").mkdir()
        self._places = {
            "/var/lib/topics": str(directory / "server" / "data"),
            "/mnt/": f"{directory}/mnt/",
            "/data/": f"{directory}/mnt/",
            "/backup/": f"{directory}/mnt/",
            "/somewhere/else": f"{directory}/copy",
            ".venv/bin/": f"{BIN}/",
            "/etc/topics/keys": f"{directory}/keys",
            '"wait_ms":30000': '"wait_ms":30',
            '"wait_ms": 30000': '"wait_ms": 30',
        }

    def run(self, page: Path) -> None:
        try:
            self._serve({})
            for block in blocks_of(page):
                self._try(block)
        finally:
            self._stop()
            self._reader.close()

    def _serve(self, settings: dict[str, str]) -> None:
        self._stop()
        (self._directory / "server").mkdir(exist_ok=True)
        placed = {name: self._placed(value) for name, value in settings.items()}
        self._server = LiveWorld(self._directory / "server", **placed)
        self._server.start()
        port = self._server.address[1]
        process = self._server.process
        assert process is not None
        self._reader.replaced = self._places | {
            "localhost:4000": f"127.0.0.1:{port}",
            "127.0.0.1:4000": f"127.0.0.1:{port}",
            '"127.0.0.1", 4000': '"127.0.0.1", 0',
            "port=4000": f"port={port}",
            "<pid>": str(process.pid),
        }

    def _placed(self, text: str) -> str:
        for shown, real in self._places.items():
            text = text.replace(shown, real)
        return text

    def _stop(self) -> None:
        if self._server is not None:
            for row in self._server.request("GET", "/v0/topics").json.get("topics", ()):
                state = self._server.request("GET", f"/v0/topics/{row['topic']}").json
                self.types[row["topic"]] = state["type"]
            self._server.begin_stop()
            self._server.finish_stop()
            self._server.close()
            self._server = None

    def _try(self, block: Block) -> None:
        kept = []
        if not block.text.startswith(tuple(NOT_RUN)):
            for line in block.text.splitlines():
                served = settings_of(line) if re.match(r"(TOPICS_|\S*topics serve)", line) else None
                if served is not None:
                    self._serve(served)
                elif not line.startswith(tuple(NOT_RUN)):
                    kept.append(line)
        text = "\n".join(kept)
        if not re.sub(r"#.*", "", text).strip():
            return
        if re.search(r"\b(fsck|doctor|pipeline|read_only|open_directory)\b", text) and "--url" not in text:
            self._stop()  # these read a stopped directory, or one that has no newer records
        elif "curl" in text and self._server is None:
            self._serve({})
        for beginning, needed in NEEDS.items():
            if text.startswith(beginning):
                self._reader.try_out(Block(block.line, needed))
        try:
            self._reader.try_out(Block(block.line, text))
        except Exception as error:
            raise AssertionError(f"{self.name}:{block.line}: {error}") from error


def pages() -> dict[str, Path]:
    globs = ("README.md", "docs/*.md", "docs/guides/*.md", "docs/internals/*.md")
    found = {str(page.relative_to(ROOT)): page for glob in globs for page in sorted(ROOT.glob(glob))}
    return {name: page for name, page in found.items() if name not in ELSEWHERE and any(blocks_of(page))}


FIRST = ("README.md", "docs/get-started.md")
"""The pages that `make test` runs; `make pages` runs all."""


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=() if name in FIRST else pytest.mark.slow, id=name) for name, page in pages().items()],
)
def test_the_blocks_of_a_page_work_in_their_order(page: Path, tmp_path: Path) -> None:
    run = PageRun(page, tmp_path)
    run.run(page)
    assert run.types.get("jobs", "queue") == "queue", "a topic has one type in all pages, and jobs are a queue"


def test_every_page_of_a_table_is_there() -> None:
    there = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    assert {*ELSEWHERE, *FIRST} <= {str(page.relative_to(ROOT)) for page in there}
