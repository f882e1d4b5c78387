"""The reader of docs/guides/client.md runs as it is printed there."""

from __future__ import annotations

from pathlib import Path

from tests.contract.world.page_code import output_of


def test_the_reader_of_the_page_writes_once_and_reads(tmp_path: Path) -> None:
    output = output_of("client.md", tmp_path, "http://127.0.0.1:4000", "http://{host}:{port}", times=2)
    assert [line.partition(", ")[0] for line in output.splitlines()] == ["record {'$seq': 1"] * 2
